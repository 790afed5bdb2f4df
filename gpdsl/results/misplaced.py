"""What is asked of a fit, or of its settings, and is a prediction's to say."""

from __future__ import annotations

from gpdsl.errors import GpdslError

PREDICTED = frozenset({"mean", "sd", "variance", "covariance", "quantile", "draws", "probability", "total", "label"})
"""Methods of predictions that are looked for elsewhere."""


class MisplacedError(GpdslError, AttributeError):
    """An attribute that something else has; `hasattr` is false, as of any other that is missing."""


def missing(owner: object, attribute: str, what: str) -> AttributeError:
    """The error of an attribute that a thing does not have; `what` says what the thing is, and what it has."""
    if attribute not in PREDICTED:
        text = f"{type(owner).__name__!r} object has no attribute {attribute!r}"
        return AttributeError(text, name=attribute, obj=owner)
    return MisplacedError(f"{what} has no `{attribute}`; predictions have: `fit.predict(data).{attribute}(...)`")
