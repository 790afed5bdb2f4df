"""Sums, means and extremes over rows, of all rows or of groups of them, from draws of all rows together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from gpdsl.data.errors import listed
from gpdsl.errors import GpdslError
from gpdsl.symbolic.reduced import field_quantities

if TYPE_CHECKING:
    from gpdsl.results.prediction import Prediction

OVER_ROWS: Mapping[str, Callable[..., np.ndarray]] = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}


@dataclass(frozen=True, eq=False)
class Total:
    """One number of all rows, or of each group; `groups` are their names in order, None without any."""

    draws: Float[np.ndarray, "draws *groups_and_axes"]
    groups: np.ndarray | None = None

    @property
    def mean(self) -> np.ndarray:
        """Of the draws, [*groups, *axes]."""
        return np.mean(self.draws, axis=0)

    @property
    def sd(self) -> np.ndarray:
        """Standard deviation of the draws; that of `mean` is smaller by the root of their number."""
        return np.std(self.draws, axis=0)

    def quantile(self, probabilities: Any) -> np.ndarray:
        """Quantiles of the draws, several in front."""
        return np.quantile(self.draws, probabilities, axis=0)

    def interval(self, level: float = 0.9) -> np.ndarray:
        """The central interval of so much probability, [2, *groups, *axes]."""
        return self.quantile(ends_of(level))

    def __getitem__(self, group: Any) -> Total:
        """That of one group, by its name."""
        names = [] if self.groups is None else self.groups.tolist()
        if group not in names:
            raise GpdslError(f"total: {group!r} is no group; expected one of {listed(names) or 'none, without `by`'}")
        return Total(self.draws[:, names.index(group)])

    def __sub__(self, other: Total) -> Total:
        """How much more it is than another from the same draws, as of another group."""
        if not isinstance(other, Total) or other.draws.shape != self.draws.shape:
            raise GpdslError("total: expected another total of as many draws, groups and axes to take off")
        return Total(self.draws - other.draws, self.groups)

    def __repr__(self) -> str:
        return f"<gpdsl total of {len(self.draws)} draws: mean {self.mean}, 90% in {self.interval().tolist()}>"


def ends_of(level: float) -> list[float]:
    """The probabilities at the ends of a central interval. Raises GpdslError for a level that is none."""
    if not isinstance(level, int | float | np.number) or not 0 < level < 1:
        raise GpdslError(f"interval: expected a level between 0 and 1, got {level!r}")
    return [0.5 - 0.5 * float(level), 0.5 + 0.5 * float(level)]


def total_of(prediction: Prediction, name: str, by: Any, how: str, count: int, seed: int) -> Total:
    """What `how` makes of the rows of each draw; of those with equal values of `by` where that is given."""
    if how not in OVER_ROWS:
        raise GpdslError(f"total: how = {how!r}; expected one of {', '.join(OVER_ROWS)}")
    declared = prediction.beliefs.program.declarations
    if name in field_quantities(declared) or (name in declared.outputs and declared.outputs[name].label is not None):
        raise GpdslError(f"total of `{name}`: a label or a field has no {how} over rows")
    labels = None if by is None else _labels(prediction, by)
    draws, reduce = prediction.draws(name, count, seed), OVER_ROWS[how]
    if labels is None:
        return Total(reduce(draws, axis=1))
    groups, number = np.unique(labels, return_inverse=True)
    found = [reduce(draws[:, number == place], axis=1) for place in range(len(groups))]
    return Total(np.stack(found, axis=1), groups)


def _labels(prediction: Prediction, by: Any) -> np.ndarray:
    """The group of each row."""
    if isinstance(by, str):
        if prediction.origin is None or by not in prediction.origin.data.inputs:
            raise GpdslError(f"total: by = {by!r} is no input of the model; pass the column itself, by = data[{by!r}]")
        by = prediction.shown_inputs[by]
    labels = np.asarray(by)
    if labels.shape != (prediction.beliefs.count,):
        raise GpdslError(
            f"total: `by` has the shape {labels.shape}; expected a group for each of {prediction.beliefs.count} rows"
        )
    return labels
