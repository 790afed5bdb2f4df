"""How much latents follow single values: effective parameters, and where values lie in what the others say of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr
from scipy.stats import kstest

from gpdsl.errors import plural
from gpdsl.program.program import Program
from gpdsl.results.criticism.finding import SKIPPED, Finding
from gpdsl.results.criticism.seen import FEW, WHITE, Seen

if TYPE_CHECKING:
    from gpdsl.results.fit import Fit

FLEXIBLE = 0.5
"""Effective parameters a value from which latents follow single values, of more than a few values."""

CHANCE = 1e-3
"""How seldom data of a right model may look as odd as this, in each check."""

MOSTLY = 0.8
"""Share of values in 90% intervals from which values far out are few, beside which their neighbours lie."""

COUNTED = {
    "Poisson": "NegativeBinomial(mean, phi) with a learnt phi, or add w * White() to the kernel",
    "Binomial": "a latent of each row beside this one: add w * White() to the kernel",
}
"""Laws of counts whose mean leaves their variance no freedom, and what has some."""


ALIKE = 0.3
"""Correlation of neighbours, left out, from which on they have something in common that the fit does not know."""


def flexibility(fit: Fit, seen: Seen) -> Iterator[Finding]:
    """The trace of I - S, with S the covariance of q in units of the prior: n - tr B^-1 under normal noise."""
    if fit.at_rows.by_data:
        inverses = list(seen.inverses())
        yield from _used(seen, sum(float(np.sum(1.0 - inverse)) for inverse, _ in inverses), "")
        places = np.concatenate([alpha / np.sqrt(inverse) for inverse, alpha in inverses])
        yield _calibrated(places, _along(seen, len(places)))
    else:
        groups = zip(fit.program.groups, fit.posterior, strict=True)
        shared = [np.asarray(q.root, float) for group, q in groups if not group.per_row]
        used = sum(float(np.prod(root.shape[1:3]) - np.sum(root[0] ** 2)) for root in shared)
        yield from _used(seen, used, spreading(fit.program))


def spreading(program: Program) -> str:
    """What to do where a latent takes up the spread of counts whose law has none of its own; empty of other laws."""
    laws = {each.distribution for each in program.observations}
    if not laws or not laws <= COUNTED.keys():
        return ""
    instead = " or ".join(dict.fromkeys(COUNTED[law] for law in sorted(laws)))
    return f"the counts may vary more than {' or '.join(sorted(laws))} lets them (overdispersion): take {instead}"


def _used(seen: Seen, used: float, spread: str) -> Iterator[Finding]:
    if seen.white or used < 0:
        why = WHITE if seen.white else "q is wider than the prior"
        yield Finding(SKIPPED, np.nan, False, f"effective parameters, as {why}")
        return
    remedy = "a length-scale may be too short, as in another unit, the noise too small, or the likelihood without the "
    yield Finding(
        "effective parameters",
        used,
        seen.values > FEW and used > FLEXIBLE * seen.values,
        f"{used:.1f} for {plural(seen.values, 'value')}",
        "latents follow single values instead of what they have in common: "
        + (f"{spread}; or a length-scale is too short" if spread else f"{remedy}spread that the values have"),
    )


def _along(seen: Seen, values: int) -> tuple[str, Float[np.ndarray, " values"]] | None:
    """The one number that rows have for an input, with its name, where each row has one value."""
    inputs = {name: np.asarray(each) for name, each in seen.data.inputs.items()}
    if len(inputs) != 1 or len(seen.data.observed) != 1 or seen.data.rows != values:
        return None
    name, each = next(iter(inputs.items()))
    return (name, each) if each.shape == (values,) and each.dtype.kind in "fiu" else None


def _calibrated(
    places: Float[np.ndarray, " values"], along: tuple[str, Float[np.ndarray, " values"]] | None = None
) -> Finding:
    """Of values in units of the standard deviations that the others leave them (Rasmussen and Williams, eq. 5.12).

    Neighbours `along` an input miss alike where a smooth part was taken for noise: those left out are apart from each
    other, if anything.
    """
    if along is not None and len(places) > FEW:
        ordered = places[np.argsort(along[1], kind="stable")]
        alike = float(np.corrcoef(ordered[:-1], ordered[1:])[0, 1])
        if alike > max(ALIKE, 4.0 / np.sqrt(len(places))):
            return Finding(
                "calibration",
                alike,
                True,
                f"neighbours along `{along[0]}` miss alike, with correlation {alike:.2f}",
                "what they have in common was taken for noise: begin at a shorter length-scale, by init, or add a "
                "kernel for what returns, or is short",
            )
    ranks = ndtr(places)
    inside, p = float(np.mean(np.abs(places) < 1.6449)), float(kstest(ranks, "uniform").pvalue)
    furthest = float(np.max(np.abs(places)))
    alone = float(-np.expm1(len(places) * np.log1p(-2.0 * ndtr(-furthest))))  # that any of so many is as far out
    tails = alone < CHANCE
    return Finding(
        "calibration",
        min(p, alone) if tails else p,
        p < CHANCE or tails,
        f"90% intervals from the other values hold {inside:.0%}, p {p:.2g}"
        + f"; the furthest value is {furthest:.1f} standard deviations out, p {alone:.2g}" * tails,
        "few values lie far out: look at their rows, or take heavier tails, `StudentT(4, f, s)` in place of Normal"
        if tails and inside >= MOSTLY
        else _misfit(ranks, inside),
    )


def _misfit(ranks: Float[np.ndarray, " values"], inside: float) -> str:
    """How values differ from normal ones, and what to do, by two standard errors, or 3 %, of each.

    By their places in distribution functions, and the share inside nine tenths.
    """
    count, wide = len(ranks), inside - 0.9
    if abs(wide) > max(2.0 * np.sqrt(0.09 / count), 0.03):
        words = "wide" if wide > 0 else "narrow"
        return f"predictions are too {words}: learn the noise, or take another likelihood or kernel"
    if abs(float(np.mean(ranks > 0.5)) - 0.5) > 1.0 / np.sqrt(count):
        return "values are skewed about their predictions: take a skewed likelihood, or one of log(y)"
    if np.mean(np.abs(ranks - 0.5) < 0.25) > 0.5:
        return "values lie close together, or far out: take heavier tails, `StudentT(4, f, s)` in place of Normal"
    return "values lie on either side of their predictions, as two groups do: read the column that tells them apart"
