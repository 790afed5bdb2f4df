"""Where values lie in what is predicted of them: by all others, or by all, themselves included, as draws of q say.

Those that were seen lie further in than new ones: fewer inside than of new ones is a sign, and more is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy
from jaxtyping import Bool, Float, Int
from scipy.special import ndtr, ndtri

from gpdsl.data import Data, some_rows
from gpdsl.inference.unrelated_rows import laws_at
from gpdsl.program.program import Program
from gpdsl.results.conditional import cdf
from gpdsl.results.criticism.finding import SPEED, Finding, Kind
from gpdsl.results.criticism.seen import FEW, Seen, columns_of
from gpdsl.results.scored import places_drawn, randomised
from gpdsl.results.table import predictable_outputs

if TYPE_CHECKING:
    from gpdsl.results.fit import Fit

CHANCE = 1e-3
"""How seldom data of a right model may look as odd as this, in each check."""

MOSTLY = 0.8
"""Share of values in 90% intervals from which values far out are few, beside which their neighbours lie."""

COUNTED = {
    "Poisson": "NegativeBinomial(mean, phi) with a learnt phi, or add w * White() to the kernel",
    "Binomial": "a latent of each row beside this one: add w * White() to the kernel",
}
"""Laws of counts whose mean leaves their variance no freedom, and what has some."""

HEAVIER_TAILS = "heavier tails, `StudentT(4, f, s)` in place of Normal"

SHAPED = 300
"""Values of which the shape is looked at: of more, any of real data is not quite normal."""

SKEWED, OUTER = 0.01, 2.0
"""How seldom normal values are as skewed, within so many standard deviations: a few far out are no skew."""

NEIGHBOURS_ALIKE = 0.3
"""Correlation of neighbours, left out, from which on they have something in common that the fit does not know."""

ROWS = "the rows"
"""The name of their order beside columns of inputs."""

UNREAD = "what changes along the rows, as time or groups of rows, is in no input: read it as one"

PARTS, PART = 8, 12
"""Into how many parts rows fall in the order of an input, and how many values a part has at least."""

SHIFT = 0.5
"""Standard deviations between the means of two of these parts, from which on it matters."""

UNEVEN = 1.5
"""How many times wider values spread in one of these parts than in another, from which on it matters."""

DRAWS = 100
"""Of q, over which the places of values that it has seen are averaged."""


SOME = 300
"""Rows of a fit by weights that are predicted: next to nothing beside the sweeps."""


def price_of_values(fit: Fit, seen: Seen) -> float:
    """What `values_seen` costs: a root of each kernel matrix."""
    return sum(len(each) ** 3 for each in fit.inducing) / SPEED if seen.replays else 0.0


def values_seen(fit: Fit, seen: Seen) -> Iterator[Finding]:
    """Whether values lie in what draws of q say of them, though they were seen, and neighbours miss alike."""
    if fit.choice.weights is not None:
        yield from _predicted(fit, seen.data.take(some_rows(seen.data.rows, SOME)), fit.choice.weights.features)
    if not seen.replays or seen.white or fit.program.opaque:  # latents are compared without their white noise
        return
    spread = spreading(fit.program)
    at, rng = seen.at_readings, np.random.default_rng(0)
    above = at.mean + at.spread * rng.standard_normal((DRAWS, *at.mean.shape))
    laws = laws_at(fit.program, seen.rows, fit.parameters, above)
    for name in predictable_outputs(fit.program.declarations):
        own = laws.get(name, [])
        known, y = np.asarray(seen.rows.observed[name], bool), np.asarray(seen.rows.outputs[name])
        if len(own) != 1 or own[0].levels or own[0].vector or own[0].registered or not known.any():
            continue
        if fit.program.declarations.outputs[name].kind == "binary" and np.ptp(y[known]) == 0:
            continue  # that something holds in all rows, as that values lie in their intervals, is no draw
        low, high = (
            np.mean(np.broadcast_to(cdf(own[0], y, reached), (DRAWS, *y.shape)), axis=0) for reached in (False, True)
        )
        together = of_elements(fit, f"values of {name}", in_deviations(0.5 * (low + high)[known]), known, seen.data)
        places = randomised(low, high, known, 0)[known]
        narrow = of_both(name, places, np.zeros(places.shape, bool), spread and f"{spread}, or ")
        yield together or replace(narrow, name=f"values of {name}")


def _predicted(fit: Fit, part: Data, features: int) -> Iterator[Finding]:
    """The same of some rows, by what a fit by weights predicts of them."""
    prediction = fit.predict_bound(part, None, None)
    first = f"features = {4 * features} and engine = vi hold more of the latents; else "
    for name in predictable_outputs(fit.program.declarations):
        if (known := part.observed[name]).any():
            places = places_drawn(prediction, name, np.where(known, part.outputs[name], np.nan))[known]
            found = of_both(name, places, np.zeros(places.shape, bool), first)
            yield replace(found, name=f"values of {name}")


def in_deviations(places: Float[np.ndarray, " values"]) -> Float[np.ndarray, " values"]:
    """Places in distribution functions as normal values, none of them infinite."""
    return np.asarray(ndtri(np.clip(places, 1e-9, 1.0 - 1e-9)))


def of_both(
    name: str,
    places: Float[np.ndarray, " values"],
    weighed: Bool[np.ndarray, " values"],
    first: str = "",
    line: Line | None = None,
) -> Finding:
    """Of places of values in what is predicted of them by all other rows, where weights tell that (`weighed`), else
    by all, themselves included.

    Predictions are too narrow where fewer lie inside than would of new values: those that were seen lie further in.
    What is weighed is uniform if the model is right, and whatever the rest would be moves the distance from that by no
    more than their share.
    """
    title, deviations = f"calibration of {name}", in_deviations(places)
    columns = line.columns if line is not None and np.mean(weighed) > MOSTLY else {}
    together = (
        alike(title, deviations, line) or shifted(title, deviations, columns) or uneven(title, deviations, columns)
    )
    if together is not None:
        return together
    open_share, inside = float(np.mean(~weighed)), float(np.mean(np.abs(places - 0.5) < 0.45))
    far = scipy.stats.kstest(places[weighed], "uniform").statistic * (1.0 - open_share) if weighed.any() else 0.0
    apart = float(scipy.stats.kstwo.sf(max(float(far) - open_share, 0.0), len(places)))
    narrow = float(scipy.stats.binom.cdf(round(inside * len(places)), len(places), 0.9))
    p, words = min(narrow, apart), "narrow" if inside < 0.9 else "wide, or not where the values are"
    by = "the other rows" + ", or all where weights do not tell," * bool(open_share)
    said = f"90% intervals from {by if weighed.any() else 'all rows'} hold {inside:.0%} of its values, p {p:.2g}"
    remedy = f"predictions are too {words}: {first}take another likelihood, or a latent more"
    return Finding(title, p, 2 * p < CHANCE, said, remedy)


def spreading(program: Program) -> str:
    """What to do where a latent takes up the spread of counts whose law has none of its own; empty of other laws."""
    laws = {each.distribution for each in program.observations}
    if not laws or not laws <= COUNTED.keys():
        return ""
    instead = " or ".join(dict.fromkeys(COUNTED[law] for law in sorted(laws)))
    return f"the counts may vary more than {' or '.join(sorted(laws))} lets them (overdispersion): take {instead}"


def learn_noise(program: Program) -> str:
    """The start of what to do, where the noise of an output has nothing in it that is learnt; else empty."""
    for each in program.observations:
        known = {} if each.law is None else each.law.arguments
        noise = known.get("sd", known.get("scale"))
        refs = [] if noise is None else [program.translator.references[symbol] for symbol in noise.free_symbols]
        learnt = any(ref.kind == "latent" or ref.name in program.parameters.initial for ref in refs)
        if noise is not None and not learnt:
            return "learn the noise, or "
    return ""


class Line(NamedTuple):
    """Pairs of values that are neighbours, what they are neighbours in, and the columns of that.

    The number of the row is a column besides, where no input has the same order.
    """

    name: str
    one: Int[np.ndarray, " pairs"]
    other: Int[np.ndarray, " pairs"]
    columns: Mapping[str, Float[np.ndarray, " values"]]
    ordered: bool = False
    """Whether rows are in the order of the values themselves, as in a table that was sorted by them: those that follow
    each other are alike then, whatever the model."""


def line_of(fit: Fit, data: Data, values: int, rows: Int[np.ndarray, " values"] | None = None) -> Line | None:
    """Neighbours along the one number, or in the numbers, that rows have for inputs, where each row has one value.

    Rows of which nothing was observed are left out; of several outputs `rows` are those of one. None in anything where
    inputs are labels, or more.
    """
    one, data = len(data.observed) == 1 or rows is not None, data.take(data.observed_rows if rows is None else rows)
    if not one or not data.rows == values > FEW:
        return None
    pairs = [(data.outputs[n].reshape(values, -1).T, data.observed[n].reshape(values, -1).T) for n in data.outputs]
    outputs = [y[seen] for pair in pairs for y, seen in zip(*pair, strict=True) if seen.any()]
    columns = columns_of(fit, data)
    known, follow = dict(columns), [_sorted(each) for each in columns.values()]
    ordered = any(map(_sorted, outputs))
    if not ordered and not any(follow):
        columns[ROWS] = np.arange(values, dtype=float)
    if not known:
        return Line("", np.zeros(0, int), np.zeros(0, int), columns, ordered)
    points = np.stack([*known.values()], axis=1)
    if len(known) == 1:
        order = np.argsort(points[:, 0], kind="stable")
        return Line(f"along `{next(iter(known))}`", order[:-1], order[1:], columns, ordered)
    spread, every = np.std(points, axis=0), np.arange(values)
    scaled = points / np.where(spread > 0, spread, 1.0)
    nearest = scipy.spatial.KDTree(scaled).query(scaled, 2)[1]
    other = np.where(nearest[:, 0] == every, nearest[:, 1], nearest[:, 0])
    return Line("in the inputs", every, other, columns, ordered)


def of_elements(
    fit: Fit, title: str, places: np.ndarray, known: np.ndarray, data: Data, follow: bool = True, normal: Any = None
) -> Finding | None:
    """The first pattern in an element of an output, along the rows where it is known, by a share of `CHANCE` each."""
    flat = known.reshape(len(known), -1)
    several = sum(int(each.any(axis=0).sum()) for each in data.observed.values())
    for element, rows in enumerate(map(np.flatnonzero, flat.T)):
        own, line = places[np.nonzero(flat)[1] == element], line_of(fit, data, len(rows), rows)
        columns = {} if line is None else line.columns
        found = alike(title, own, line) or shifted(title, own, columns) if follow else None
        found = found if found or normal is None else uneven(title, own, columns, normal)
        if found and (found.number > CHANCE or found.number * several < CHANCE):  # a correlation, or by chance
            return replace(found, said=f"of element {element + 1}, " * (flat.shape[1] > 1) + found.said)
    return None


def _sorted(values: np.ndarray) -> bool:
    """Whether they rise, or fall, from row to row."""
    steps = np.diff(values, axis=0)
    return bool(np.all(steps >= 0) or np.all(steps <= 0))


def alike(title: str, places: Float[np.ndarray, " values"], line: Line | None, short: bool = False) -> Finding | None:
    """Whether neighbours miss alike, where a smooth part was taken for noise: those left out, or seen, are apart from
    each other, if anything. Places are in standard deviations; `short`: latents follow single values."""
    if line is None:
        return None
    enough, every = max(NEIGHBOURS_ALIKE, 4.0 / np.sqrt(len(places))), np.arange(len(places))
    if (found := _correlation(places, line.one, line.other)) > enough:
        said = f"neighbours {line.name} miss alike, with correlation {found:.2f}"
        remedy = (
            "what they have in common was lost on latents that follow single values: learn the length-scale, from a "
            "longer one by init"
            if short
            else "what they have in common was taken for noise: begin at a shorter length-scale, by init, or add a "
            "kernel for what returns, is short, or is each group's own"
        )
        return Finding(title, found, True, said, remedy, Kind.PATTERN)
    if not line.ordered and (found := _correlation(places, every[:-1], every[1:])) > enough:
        said = f"rows that follow each other miss alike, with correlation {found:.2f}"
        return Finding(title, found, True, f"{said}, and neighbours in the inputs do not", UNREAD)
    return None


def _correlation(
    places: Float[np.ndarray, " values"], one: Int[np.ndarray, " n"], other: Int[np.ndarray, " n"]
) -> float:
    some = len(one) and np.ptp(places) > 1e-6  # values all alike differ by rounding errors, which are smooth
    return float(np.corrcoef(places[one], places[other])[0, 1]) if some else 0.0


def shifted(
    title: str, places: Float[np.ndarray, " values"], columns: Mapping[str, Float[np.ndarray, " values"]]
) -> Finding | None:
    """Whether values lie higher in one part of the rows than in another, in the order of an input or of the rows.

    Of a right model what a part has in common is known from its other rows.
    """
    found = _worst(places, columns, np.ptp, SHIFT)
    if found is None:
        return None
    p, name, apart, few = found
    where = f"at one value of {name} than at another" if few else f"in one part of {name} than in another"
    said = f"values lie {apart:.2g} of their standard deviations higher {where}, beside what is said of them, p {p:.2g}"
    remedy = UNREAD if name == ROWS else f"take a kernel that bends more along {name}, or a mean that does"
    return Finding(title, p, True, said, remedy, Kind.PATTERN)


def uneven(
    title: str,
    places: Float[np.ndarray, " values"],
    columns: Mapping[str, Float[np.ndarray, " values"]],
    normal: bool = False,
) -> Finding | None:
    """Whether values spread more in one part of the rows than in another, in the order of an input.

    Places are in standard deviations: of a right model their sizes have one distribution everywhere. `normal` tells of
    which noise.
    """
    found = _worst(np.abs(places), columns, lambda spreads: np.max(spreads) / max(np.min(spreads), 1e-9), UNEVEN)
    if found is None:
        return None
    p, name, times, few = found
    where = f"at one value of {name} as at another" if few else f"in one part of {name} as in another"
    own = f"`Normal(f, exp(g))` with a latent g of {name}" + f", or `sigma[{name.strip('`')}]` if it is a label" * few
    change = f"let the noise change, {own}" if normal else f"take a likelihood whose spread changes with {name}"
    said = f"values spread {times:.2g} times as wide {where}, beside what is said of them, p {p:.2g}"
    remedy = f"intervals are too wide here and too narrow there: {change}"
    return Finding(title, p, True, said, remedy, Kind.PATTERN)


def _worst(
    values: Float[np.ndarray, " values"],
    columns: Mapping[str, Float[np.ndarray, " values"]],
    difference: Callable[[np.ndarray], float],
    enough: float,
) -> tuple[float, str, float, bool] | None:
    """How likely by chance, the column, the `difference` of the means of its parts, and `few`, where that is least.

    Of columns with a difference above `enough` that is no chance. Kruskal and Wallis' test compares parts by ranks, and
    Spearman's correlation tells what grows. Each column is two chances more.
    """
    found = []
    for name, column in columns.items():
        parts, few = _parts(column)
        each = [values[part] for part in parts]
        if len(each) > 1 and np.ptp(np.concatenate(each)) > 0:
            trend = scipy.stats.spearmanr(values, column).pvalue
            p = 2 * len(columns) * float(min(scipy.stats.kruskal(*each).pvalue, trend))
            apart = float(difference(np.array([np.mean(own) for own in each])))
            found.append((p, name if name == ROWS else f"`{name}`", apart, few))
    return min((each for each in found if each[0] < CHANCE and each[2] > enough), default=None)


def _parts(column: Float[np.ndarray, " values"]) -> tuple[list[Int[np.ndarray, " part"]], bool]:
    """Rows of each value of a column, where these are `few`; else of about as many in the order of its values."""
    values, number, counts = np.unique(column, return_inverse=True, return_counts=True)
    if len(values) <= PARTS:
        return [np.flatnonzero(number == k) for k in range(len(values)) if counts[k] >= PART], True
    return np.array_split(np.argsort(column, kind="stable"), max(1, min(PARTS, len(column) // PART))), False


def together(places: Float[np.ndarray, " values"], line: Line | None, short: bool = False) -> Finding | None:
    """What such values show together along their rows and inputs, under normal noise; `short` is that of `alike`."""
    columns = {} if line is None else line.columns
    found = alike("calibration", places, line, short) or shifted("calibration", places, columns)
    return found or uneven("calibration", places, columns, normal=True)


def calibrated(
    places: Float[np.ndarray, " values"], line: Line | None = None, first: str = "", short: bool = False
) -> Finding:
    """Of values in units of the standard deviations that the others leave them (Rasmussen and Williams, eq. 5.12).

    What to do begins with `first`; `short` is that of `alike`.
    """
    pattern = together(places, line, short)
    ranks, some = ndtr(places), places[some_rows(len(places), SHAPED)]
    inside, p = float(np.mean(np.abs(places) < 1.6449)), float(scipy.stats.kstest(ranks, "uniform").pvalue)
    shape = float(scipy.stats.shapiro(some).pvalue) if len(places) > FEW and np.ptp(some) > 0 else 1.0
    furthest = float(np.max(np.abs(places)))
    alone = float(-np.expm1(len(places) * np.log1p(-2.0 * ndtr(-furthest))))  # that any of so many is as far out
    tails = alone < CHANCE
    if pattern is not None and not (inside >= MOSTLY and alone < pattern.number < CHANCE):
        return pattern  # but for what a noise that a few values have widened makes of the others
    said = f"90% intervals from the other values hold {inside:.0%}, p {p:.2g}"
    said += f"; values are not normal about what these say, p {shape:.2g}" * (shape < CHANCE)
    said += f"; the furthest value is {furthest:.1f} standard deviations out, p {alone:.2g}" * tails
    far_out = f"few values lie far out: look at their rows, or take {HEAVIER_TAILS}"
    remedy = far_out if tails and inside >= MOSTLY else _misfit(places, inside, first)
    least = min(p, shape, alone) if tails else min(p, shape)
    return Finding("calibration", least, least < CHANCE, said, remedy)


def _misfit(places: Float[np.ndarray, " values"], inside: float, first: str) -> str:
    """How values differ from normal ones, and what to do, by two standard errors, or 3 %, of the share `inside` nine
    tenths, or by their shape."""
    count, wide = len(places), inside - 0.9
    if abs(wide) > max(2.0 * np.sqrt(0.09 / count), 0.03):
        words = "wide" if wide > 0 else "narrow"
        return f"predictions are too {words}: {first}take another likelihood or kernel"
    if count > FEW and scipy.stats.skewtest(np.clip(places, -OUTER, OUTER)).pvalue < SKEWED:
        return "values are skewed about their predictions: take a skewed likelihood, or one of log(y)"
    if scipy.stats.kurtosis(places) > 0:
        heavy = f"values lie close together, or far out: take {HEAVIER_TAILS}"
        return f"{heavy}, or noise that changes with the inputs, `Normal(f, exp(g))`"
    return "values lie on either side of their predictions, as two groups do: read the column that tells them apart"
