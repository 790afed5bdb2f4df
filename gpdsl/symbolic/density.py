"""What a plain distribution of one number is: log density, mean and variance as SymPy expressions, and functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import sympy as sp

from gpdsl.language import model as m

Formula: TypeAlias = sp.Expr
Arguments = Mapping[str, Formula]
Array = np.ndarray
Values = Mapping[str, Array]


@dataclass(frozen=True, eq=False)
class Density:
    """One distribution, whose arguments are taken by name.

    `log_density(y, a)`, `mean(a)` and `variance(a)` are formulas. `cdf(y, a)` is P(Y <= y), elementwise, and
    `draw(generator, a)` one value per element of arguments that have the same shape. Of a registered one, formulas and
    `cdf` may be None; `moments(a)` are then mean and variance by value, `quantile(p, a)` is the inverse of `cdf`,
    `definition` the log density as a file would define it, `sampled` whether `draw` is more than these quantiles, and
    `said` what saved fits know it by.
    """

    log_density: Callable[[Formula, Arguments], Formula]
    mean: Callable[[Arguments], Formula] | None
    variance: Callable[[Arguments], Formula] | None
    cdf: Callable[[Array, Values], Array] | None
    draw: Callable[[np.random.Generator, Values], Array]
    moments: Callable[[Values], tuple[Array, Array]] | None = None
    quantile: Callable[[Array, Values], Array] | None = None
    definition: m.Density | None = None
    sampled: bool = True
    said: str = ""


def if_above(least: int, degrees: Formula, moment: Formula) -> Formula:
    """A moment of a heavy tail, infinite up to so many degrees of freedom."""
    return sp.Piecewise((moment, degrees > least), (sp.oo, True))
