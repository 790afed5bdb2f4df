"""Posterior predictive checks: a statistic of the data beside that of data drawn anew (Gelman, Meng and Stern 1996)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from gpdsl.errors import GpdslError, described, quoted
from gpdsl.results.criticism.left_out import fitted_rows
from gpdsl.results.named import check_draws

if TYPE_CHECKING:
    from gpdsl.data import Data
    from gpdsl.results.fit import Fit

Statistic = Callable[[np.ndarray], float]

STATISTICS: dict[str, Statistic] = {
    "min": np.min,
    "max": np.max,
    "mean": np.mean,
    "variance": np.var,
    "zeros": lambda values: float(np.mean(values == 0)),
}


@dataclass(frozen=True, eq=False, repr=False)
class Check:
    """A statistic of the observed values of an output, and that of each data set drawn anew at the same rows."""

    statistic: str
    output: str
    observed: float
    drawn: Float[np.ndarray, " draws"]

    @property
    def p(self) -> float:
        """Share of drawn data whose statistic is above the observed one; equal ones count half."""
        return float(np.mean(self.drawn > self.observed) + 0.5 * np.mean(self.drawn == self.observed))

    def __repr__(self) -> str:
        low, high = np.quantile(self.drawn, [0.05, 0.95])
        return (
            f"<check of {self.output}: {self.statistic} {self.observed:.4g}, drawn anew {low:.4g} to {high:.4g} (90%), "
            f"p {self.p:.3g}>"
        )


def check(fit: Fit, data: Any, statistic: str | Statistic, name: str | None, draws: int, seed: int) -> Check:
    """See `Fit.check_predictive`. Raises GpdslError for names of no statistic or output, and what is no number."""
    bound = fitted_rows(fit, data, "check_predictive")
    outputs = fit.program.declarations.outputs
    output = next(iter(outputs)) if name is None else name
    if output not in outputs:
        raise GpdslError(f"the model has no output `{output}`; it has {', '.join(outputs)}")
    if not callable(statistic) and statistic not in STATISTICS:
        raise GpdslError(f"statistic = {statistic!r}: expected a function, or one of {', '.join(STATISTICS)}")
    asked = {_name(statistic): statistic if callable(statistic) else STATISTICS[statistic]}
    return checks(fit, bound, asked, output, check_draws("check_predictive", draws, seed), draws)[0]


def checks(fit: Fit, bound: Data, statistics: dict[str, Statistic], output: str, seed: int, draws: int) -> list[Check]:
    """Several statistics of the same draws."""
    known = bound.observed[output]
    observed = bound.outputs[output][known]
    first = 0 if fit.program.declarations.outputs[output].label is None else 1  # draws number levels from 1
    if not observed.size:
        raise GpdslError(f"`{output}` has no observed value")
    drawn = fit.predict_bound(bound, None, None).draws(output, draws, seed)[:, known]
    return [
        Check(name, output, _value(name, each, observed + first), np.array([_value(name, each, one) for one in drawn]))
        for name, each in statistics.items()
    ]


def _name(statistic: str | Statistic) -> str:
    return str(getattr(statistic, "__name__", "statistic")) if callable(statistic) else statistic


def _value(name: str, statistic: Statistic, values: np.ndarray) -> float:
    try:
        return float(statistic(values))
    except Exception as problem:
        raise GpdslError(
            f"the statistic {quoted(name)} gave no number for an array of {values.size} values: {described(problem)}"
        ) from problem
