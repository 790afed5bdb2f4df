"""What is asked of a fit, or of its settings, and is a prediction's to say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from gpdsl.errors import GpdslError
from gpdsl.language.model import Declarations

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


def refuse_named(declarations: Declarations, named: Mapping[str, Any]) -> NoReturn:
    """Of arguments that `predict` does not have: outputs are told with the inputs of their rows."""
    name = next(iter(named))
    if name not in declarations.outputs and name.rstrip("0123456789_") not in declarations.outputs:
        raise TypeError(f"Fit.predict() got an unexpected keyword argument {name!r}")
    inputs = "".join(f"{each!r}: ..., " for each in declarations.inputs)
    raise GpdslError(
        f"predict: `{name}` is no argument; outputs that are known are rows, with their inputs: "
        f"predict(data, given={{{inputs}{name!r}: ...}})"
    )
