"""What the columns of a table suggest for a first model of it: priors, units and cycles of times, ordered levels."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from jaxtyping import Float

from gpdsl.data.looks import GRADES, Look, output_kind
from gpdsl.data.values import Level
from gpdsl.language.vocabulary import TIME_UNITS

LOGITS = 2.0
"""How far log odds, or what cutpoints divide, differ, in a model of which nothing is known."""


def spread(target: Look) -> float:
    """How far the latent of an output varies: 1 of one that is standardised, else as far as the data on its scale."""
    kind = output_kind(target)
    if kind in ("binary", "label", "ordinal"):
        return LOGITS
    return 1.0 if kind == "real" else float(np.std(_scaled(kind, target.known))) or 1.0


def centre(target: Look) -> float:
    """About which a latent of an output varies: 0 of one that is standardised, or of which nothing is known."""
    kind = output_kind(target)
    return float(np.mean(_scaled(kind, target.known))) if kind in ("unit", "count", "positive") else 0.0


def _scaled(kind: str, known: np.ndarray) -> np.ndarray:
    """Values of an output on the scale of its latent."""
    if kind == "unit":
        return np.log(known) - np.log1p(-known)
    return np.log(known + 0.5) if kind == "count" else np.log(known)


@dataclass(frozen=True)
class Weak:
    """The priors that follow from how far a latent varies, each as a declaration of a parameter ends."""

    spread: float

    def level(self, centre: float) -> str:
        """Of the level: twice as far from where the data lie as they vary, as growth begins at the first moment."""
        place = round(centre, 1) + 0.0
        return f"{f' = {place:g}' * bool(place)} ~ Normal({place:g}, {float(f'{2 * self.spread:.2g}'):g})"

    @property
    def variance(self) -> str:
        """Of one of several functions that add up: from nearly nothing to ten times what there is."""
        return _log_normal(2 * math.log(self.spread) - 1, 1.5)

    @property
    def noise(self) -> str:
        """Of the noise, as a standard deviation: a tenth to all of what there is, less where many rows say so."""
        return _log_normal(math.log(self.spread) - 0.2, 0.8)

    @property
    def effect(self) -> str:
        """Of how far the levels of words differ."""
        return _log_normal(math.log(self.spread) - 1, 1)

    def drift(self, span: float) -> str:
        """Of the time in which steady growth comes to 1, of moments that last `span`; it starts at the span."""
        return _start(span) + _log_normal(math.log(3 * span / self.spread), 1.5)

    @property
    def walk(self) -> str:
        """Of the variance of a walk, which is ten times as long as what there is, where it goes as far as values do."""
        return _log_normal(2 * math.log(self.spread) + 1.6, 1.5)

    @staticmethod
    def turns(span: float, alone: bool) -> str:
        """Of the time in which a trend turns: seldom as short as few moments, seldom longer than all.

        It is longer where another term has what passes: a trend that takes some of that forecasts too surely.
        """
        return _start(span / 3) + _log_normal(math.log(span / 3), 1 if alone else 0.3)

    @staticmethod
    def passing(gap: float) -> str:
        """Of how long what is no trend lasts: some moments, which are so far apart."""
        return _start(4 * gap) + _log_normal(math.log(8 * gap), 1)


def lengths(columns: int) -> str:
    """Of the length-scales of standardised columns: no shorter than rows are apart, which is more of more columns."""
    return _log_normal(1.5 + math.log(columns) / 4, 1)


def _start(value: float) -> str:
    return f" = {float(f'{value:.2g}'):g}"


def _log_normal(mean: float, sd: float) -> str:
    return f" ~ LogNormal({round(mean, 1) + 0.0:g}, {sd:g})"


# Outputs of ordered levels in a first model, and the words that tell of them where levels may be ordered.


def index_of(levels: Sequence[Level]) -> str:
    """The statement that lists them, the lowest first."""
    if not isinstance(levels[0], str):
        return f"index c in 1..{len(levels)}"
    return "index c in {" + ", ".join(f'"{each}"' for each in levels) + "}"


def cutpoints(target: Look, levels: Sequence[Level]) -> str:
    """The declaration of what divides the levels: it starts where a latent of no effect gives each its share."""
    texts = [str(each) for each in target.known] if target.kind == "text" else target.known.astype(int).tolist()
    shares = np.cumsum([texts.count(each) for each in levels])[:-1] / len(texts)
    starts = [round(1.5 * NormalDist().inv_cdf(float(each)), 2) for each in shares]
    value = f" = [{', '.join(f'{each:g}' for each in starts)}]" if len(set(starts)) == len(starts) else ""
    return f"param cut : ordered[{len(starts)}]{value} ~ Normal(0, {LOGITS:g})    # between the levels"


def if_grades(y: str, target: Look, predictor: str) -> tuple[str, ...]:
    """How levels that may be ordered are told to be, as comments; nothing of others."""
    levels: Sequence[Level] = target.levels
    if target.kind != "text":
        most = target.known.max()
        if target.known.min() < 1 or not 3 <= most <= GRADES:
            return ()
        levels = range(1, int(most) + 1)
    elif not 3 <= len(levels) <= GRADES or not all(re.fullmatch(r"[\w .+-]{1,20}", str(each)) for each in levels):
        return ()
    what = "the words are" if target.kind == "text" else "these whole numbers are"
    instead = "" if target.kind != "text" else ", in the order that is meant"
    return (
        f"# If {what} grades, from lowest to highest: `{index_of(levels)}`{instead},",
        f"# `output {y} : ordinal[c]`, `param cut : ordered[{len(levels) - 1}]`,",
        f"# `{y} ~ Ordinal(probit = {predictor}, cutpoints = cut)`;",
        f"# `GP(0, ...)` and no `m`{', nor a `[c]` or `,c` behind others' if target.kind == 'text' else ''}.",
    )


# Times in a first model: the unit they are counted in, and the cycles that they are long and fine enough to show.

CYCLES = {"day": 3, "week": 3, "year": 2}
"""Periods that may show, and how many of each it takes."""
PER_CYCLE = 4
"""Moments in a cycle that it takes."""
UNITS = ("second", "minute", "hour", "day", "year")
LONG = 20 * TIME_UNITS["day"]
"""Seconds between moments from which years are counted."""
PASSING = 50
"""Moments that tell what passes from a trend: a third of them is a trend's first length, and four of them its."""


@dataclass(frozen=True)
class Clock:
    """The unit of an input that is a time, and how many it lasts; its cycles with their periods in this unit.

    `gap` is how far moments are apart, none where they are too few to tell what passes from a trend. `walks` says that
    the output does, along them: then nothing else tells a trend from what passes.
    """

    unit: str
    span: float
    cycles: dict[str, float]
    gap: float | None = None
    walks: bool = False

    def params(self, name: str, weak: Weak) -> Iterator[str]:
        """The parameters of a trend, of what passes, and of the cycles."""
        drift, trend = weak.drift(self.span), weak.turns(self.span, alone=self.gap is None)
        if self.walks:
            yield walk_param(weak)
        else:
            yield f"param ell_drift : positive{drift}    # steady growth: {self.unit}s that change f by 1"
            what = f"a trend along {name}, and over how many {self.unit}s it turns"
            yield f"param s2_trend : positive{weak.variance}    # {what}"
            yield f"param ell_trend : positive{trend}"
        if self.gap is not None and not self.walks:
            what = f"what comes and goes, and within how many {self.unit}s"
            yield f"param s2_short : positive{weak.variance}    # {what}"
            yield f"param ell_short : positive{weak.passing(self.gap)}"
        for cycle in self.cycles:
            yield f"param s2_{cycle} : positive{weak.variance}    # a cycle of one {cycle}"
            yield f"param ell_{cycle} : positive = 1 ~ LogNormal(0, 1)    # its smoothness within one"

    def terms(self, name: str) -> list[str]:
        """The kernels."""
        trend = [f"Linear(ell_drift, on = {name})", f"s2_trend * RBF(ell_trend, on = {name})"]
        trend += [] if self.gap is None else [f"s2_short * Matern32(ell_short, on = {name})"]
        trend = [walk_term(self.span, f", on = {name}")] if self.walks else trend
        cycles = (f"s2_{c} * Periodic(ell_{c}, {period:g}, on = {name})" for c, period in self.cycles.items())
        return [*trend, *cycles]


def walk_param(weak: Weak) -> str:
    """The parameter of a walk."""
    return f"param s2_walk : positive{weak.walk}    # a walk: no step tells of the next; how far it goes"


def walk_term(span: float, on: str) -> str:
    """The kernel of a walk over a span, of which ten are as long as any: it does not come back in what is forecast."""
    return f"s2_walk * Matern12({float(f'{10 * span:.2g}'):g}{on})"


LAG, LEVEL = 10, 10.0
"""Steps after which a walk is as far as so many independent ones; the variance of values in that of steps."""


def walks(places: Float[np.ndarray, " rows"], target: Look) -> bool:
    """Whether an output moves along places or moments, each of one row, by steps that tell nothing of one another.

    White noise on top of anything makes neighbouring steps opposite, and what is smooth makes them alike.
    """
    kind = output_kind(target)
    if kind not in ("real", "positive", "unit") or len(places) < PASSING or len(np.unique(places)) < len(places):
        return False
    ordered = target.values[np.argsort(places)].astype(float)
    values = ordered if kind == "real" else _scaled(kind, ordered)
    values = values[~np.isnan(values)]
    steps = np.diff(values)
    steps = steps - steps.mean()
    size, far = np.mean(steps**2), np.std(values[LAG:] - values[:-LAG]) ** 2 / LAG
    alike = abs(np.mean(steps[1:] * steps[:-1])) * math.sqrt(len(steps)) / max(size, 1e-300)
    return bool(
        len(values) >= PASSING and alike < 2.5 and 0.4 * size < far < 2.5 * size and values.var() > LEVEL * size
    )


def clock_of(seconds: Float[np.ndarray, " rows"], walks: bool = False) -> Clock:
    """The unit and the cycles by how far the distinct moments are apart, and how long they last."""
    moments = np.unique(seconds)
    gap, span = float(np.median(np.diff(moments))), float(moments[-1] - moments[0])
    fitting = [unit for unit in UNITS[:-1] if TIME_UNITS[unit] <= 1.5 * gap]
    unit = "year" if gap >= LONG else fitting[-1] if fitting else UNITS[0]
    lengths = {cycle: TIME_UNITS[cycle] for cycle in CYCLES}
    shown = {c: n for c, n in lengths.items() if span >= CYCLES[c] * n and PER_CYCLE * gap <= n}
    cycles = {c: n / TIME_UNITS[unit] for c, n in shown.items()}
    passing = gap / TIME_UNITS[unit] if len(moments) >= PASSING else None
    return Clock(unit, span / TIME_UNITS[unit], cycles, passing, walks)
