"""What is not looked at because of what a fit is, and why: a silent check would pass for a content one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from gpdsl.inference.resolution import SAME_VALUES
from gpdsl.kernels.form import nothing_but_white
from gpdsl.results.criticism.finding import SKIPPED, Finding
from gpdsl.results.criticism.importance import takes_long
from gpdsl.results.criticism.left_out import ONE_GAUSSIAN
from gpdsl.results.criticism.seen import FEW, LARGEST, WHITE, WIDE, Seen

if TYPE_CHECKING:
    from gpdsl.results.fit import Fit

Asked = Callable[["Fit", Seen], bool]

REASONS: dict[str, tuple[str, Asked]] = {
    "layers": ("latents are functions of latents", lambda fit, _: bool(fit.program.inner)),
    "fields": ("the model has a field", lambda fit, _: bool(fit.program.fields)),
    "row variables": ("rows have variables of their own", lambda fit, _: any(g.per_row for g in fit.program.groups)),
    "white": (WHITE, lambda _, seen: seen.white),
    "white in q": (WHITE, lambda fit, seen: seen.white and not fit.at_rows.by_data),
    "constant": (SAME_VALUES, lambda fit, _: any(SAME_VALUES in note for note in fit.notes)),
    "opaque functions": ("an observation calls an opaque function", lambda fit, _: bool(fit.program.opaque)),
    "settings": ("parameters are averaged over", lambda fit, _: fit.settings is not None),
    "draws": ("the posterior is draws", lambda fit, _: fit.options.drawn),
    "mixture": ("the posterior is a mixture of Gaussians", lambda fit, _: len(fit.weights) > 1),
    "readings": ("rows read slopes, integrals, sums or several values of a latent", lambda _, seen: not seen.plain),
    "bound": ("no bound of the evidence is known", lambda fit, _: fit.options.beta != 1 or bool(fit.no_bound)),
    "family": ("the posterior is no Gaussian over the values of each latent", lambda fit, _: not _is_gaussian(fit)),
    "few values": (f"{FEW} values and less tell too little", lambda _, seen: seen.values <= FEW),
    "few rows": (f"less than {FEW} rows tell too little", lambda _, seen: len(seen.some) < FEW),
    "one row": ("there is one row", lambda _, seen: seen.data.rows < 2),
    "size": ("there are too many values", lambda fit, seen: fit.at_rows.by_data and seen.values > LARGEST),
    "rows": ("there are too many rows", lambda _, seen: seen.data.rows > WIDE),
    "draws of q": ("there are too many rows and values of latents", takes_long),
}
"""In words, and of which fits they hold."""

ELSE = "nothing can be computed of this fit"


def _is_gaussian(fit: Fit) -> bool:
    return fit.at_rows.by_data or (bool(fit.posterior) and fit.choice.posterior in ONE_GAUSSIAN)


def _has_latents(fit: Fit, _: Seen) -> bool:
    return bool(fit.program.groups)


def _has_places(fit: Fit, _: Seen) -> bool:
    """Whether a latent has values at places that its kernel relates."""
    return any(not (group.per_row or nothing_but_white(group.form)) for group in fit.program.groups)


def _leaves_out(fit: Fit, _: Seen) -> bool:
    """Whether q is one Gaussian that takes latents for independent which an observation mixes."""
    return bool(fit.program.mixing) and fit.at_rows.independent and not fit.options.drawn and bool(fit.posterior)


def _is_approximate(fit: Fit, _: Seen) -> bool:
    return bool(fit.program.groups) and not fit.choice.exact


LOOKED: dict[str, tuple[Asked, Sequence[str]]] = {
    "symmetry": (_has_latents, ("fields",)),
    "reach of latents": (_has_places, ("one row",)),
    "evidence for latents": (
        _has_latents,
        (
            "layers",
            "fields",
            "row variables",
            "white",
            "opaque functions",
            "settings",
            "bound",
            "few values",
            "constant",
        ),
    ),
    "what is known of latents": (
        _has_latents,
        ("layers", "fields", "row variables", "white", "draws", "mixture", "readings", "few rows"),
    ),
    "correlation between latents": (
        _leaves_out,
        ("layers", "fields", "white", "opaque functions", "mixture", "rows"),
    ),
    "effective parameters": (_has_latents, ("layers", "draws", "mixture", "white in q", "family", "size")),
    "data drawn anew": (lambda *_: True, ("layers", "opaque functions")),
    "q against the posterior": (
        _is_approximate,
        ("layers", "opaque functions", "draws", "mixture", "bound", "family", "draws of q"),
    ),
    "rows left out": (lambda *_: True, ("layers", "white", "opaque functions")),
}
"""Of which fits each look has something to say, and what keeps it from finding that."""


def skipped(fit: Fit, seen: Seen, silent: Sequence[str]) -> Iterator[Finding]:
    """A line for every reason of those looks that found nothing to say, where they might have."""
    of = {look: _reason(fit, seen, look) or ELSE for look in silent if look in LOOKED and LOOKED[look][0](fit, seen)}
    for why in dict.fromkeys(of.values()):
        looks = ", ".join(look for look, each in of.items() if each == why)
        yield Finding(SKIPPED, np.nan, False, f"{looks}, as {why}")


def kept_from(fit: Fit, seen: Seen, look: str) -> bool:
    """Whether a look would find nothing, however much time there were."""
    return look in LOOKED and not (LOOKED[look][0](fit, seen) and not _reason(fit, seen, look))


def _reason(fit: Fit, seen: Seen, look: str) -> str:
    """The first that holds, in words; empty where none does."""
    return next((REASONS[why][0] for why in LOOKED[look][1] if REASONS[why][1](fit, seen)), "")
