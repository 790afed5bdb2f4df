"""Times in a first model: the unit they are counted in, and the cycles that they are long and fine enough to show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from gpdsl.cli.weak_priors import Weak
from gpdsl.language.vocabulary import TIME_UNITS

CYCLES = {"day": 3, "week": 3, "year": 2}
"""Periods that may show, and how many of each it takes."""
PER_CYCLE = 4
"""Moments in a cycle that it takes."""
UNITS = ("second", "minute", "hour", "day", "year")
LONG = 20 * TIME_UNITS["day"]
"""Seconds between moments from which years are counted."""


@dataclass(frozen=True)
class Clock:
    """The unit of an input that is a time, and how many it lasts; its cycles with their periods in this unit."""

    unit: str
    span: float
    cycles: dict[str, float]

    def params(self, name: str, weak: Weak) -> Iterator[str]:
        """The parameters of a trend and of the cycles."""
        drift, trend = weak.drift(self.span), weak.turns(self.span)
        yield f"param ell_drift : positive{drift}    # steady growth: {self.unit}s that change f by 1"
        what = f"a trend along {name}, and over how many {self.unit}s it turns"
        yield f"param s2_trend : positive{weak.variance}    # {what}"
        yield f"param ell_trend : positive{trend}"
        for cycle in self.cycles:
            yield f"param s2_{cycle} : positive{weak.variance}    # a cycle of one {cycle}"
            yield f"param ell_{cycle} : positive = 1 ~ LogNormal(0, 1)    # its smoothness within one"

    def terms(self, name: str) -> list[str]:
        """The kernels."""
        trend = f"Linear(ell_drift, on = {name})", f"s2_trend * RBF(ell_trend, on = {name})"
        cycles = (f"s2_{c} * Periodic(ell_{c}, {period:g}, on = {name})" for c, period in self.cycles.items())
        return [*trend, *cycles]


def clock_of(seconds: Float[np.ndarray, " rows"]) -> Clock:
    """The unit and the cycles by how far the distinct moments are apart, and how long they last."""
    moments = np.unique(seconds)
    gap, span = float(np.median(np.diff(moments))), float(moments[-1] - moments[0])
    fitting = [unit for unit in UNITS[:-1] if TIME_UNITS[unit] <= 1.5 * gap]
    unit = "year" if gap >= LONG else fitting[-1] if fitting else UNITS[0]
    lengths = {cycle: TIME_UNITS[cycle] for cycle in CYCLES}
    shown = {c: n for c, n in lengths.items() if span >= CYCLES[c] * n and PER_CYCLE * gap <= n}
    return Clock(unit, span / TIME_UNITS[unit], {c: n / TIME_UNITS[unit] for c, n in shown.items()})
