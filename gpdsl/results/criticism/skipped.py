"""What is not looked at because of what a fit is, and why: a silent check would pass for a content one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpdsl.results.criticism.finding import SKIPPED, Finding

if TYPE_CHECKING:
    from gpdsl.results.fit import Fit

LOOKED = {
    "evidence for latents": ("layers", "row variables", "settings"),
    "what is known of latents": ("layers", "fields", "row variables", "draws", "mixture"),
    "correlation between latents": ("layers", "opaque functions", "mixture"),
    "effective parameters": ("layers", "draws", "mixture"),
    "data drawn anew": ("layers", "opaque functions"),
    "q against the posterior": ("layers", "opaque functions", "draws", "mixture"),
    "rows left out": ("layers", "opaque functions"),
}
"""What keeps each look from finding anything."""

WORDS = {
    "layers": "latents are functions of latents",
    "fields": "the model has a field",
    "row variables": "rows have variables of their own",
    "opaque functions": "an observation calls an opaque function",
    "settings": "parameters are averaged over",
    "draws": "the posterior is draws",
    "mixture": "the posterior is a mixture of Gaussians",
}


def skipped(fit: Fit, silent: list[str]) -> Iterator[Finding]:
    """A line for every reason of those looks that found nothing to say."""
    reasons = _reasons(fit)
    of = {look: next((why for why in LOOKED.get(look, ()) if why in reasons), None) for look in silent}
    for why in dict.fromkeys(each for each in of.values() if each):
        looks = ", ".join(look for look, each in of.items() if each == why)
        yield Finding(SKIPPED, float("nan"), False, f"{looks}, as {WORDS[why]}")


def kept_from(fit: Fit, look: str) -> bool:
    """Whether a look would find nothing, however much time there were."""
    return not _reasons(fit).isdisjoint(LOOKED.get(look, ()))


def _reasons(fit: Fit) -> set[str]:
    program = fit.program
    found = {
        "layers": bool(program.inner),
        "fields": bool(program.fields),
        "row variables": any(group.per_row for group in program.groups),
        "opaque functions": bool(program.opaque),
        "settings": fit.settings is not None,
        "draws": fit.options.drawn,
        "mixture": len(fit.weights) > 1,
    }
    return {name for name, holds in found.items() if holds}
