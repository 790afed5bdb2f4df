"""How searches on minibatches end: as all rows see what they found, and never below the fit that they started from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Array

from gpdsl.inference.driver import STAYED, better
from gpdsl.inference.natural.profiled import split_point
from gpdsl.inference.natural.sweep import Point
from gpdsl.inference.natural.tied import Tied, host_posterior
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.problem import Problem, Result, as_arrays, as_numpy
from gpdsl.inference.warm import near


@dataclass(frozen=True)
class End:
    """A point of the search, the sites there, and the scales of the kernels that these were last used with."""

    point: Point
    sites: Sequence[Tied]
    scales: Sequence[Array]

    def posterior(self) -> list[Whitened]:
        """q, on the host."""
        return [host_posterior(tied, scale) for tied, scale in zip(self.sites, self.scales, strict=True)]

    def state(self, problem: Problem) -> dict[str, Any]:
        """As the bound takes it."""
        learnt, inducing = split_point(self.point, problem.inducing)
        groups = [near(problem.layout.family, q, np.ones(1), np.asarray(q.mean), None) for q in self.posterior()]
        posterior = {"groups": groups, "logits": np.zeros(1)}
        state = {"parameters": learnt, "inducing": inducing, "posterior": posterior}
        return dict(as_arrays(state, problem.options.dtype))


def ended(problem: Problem, first: End | None, last: End) -> Result:
    """The last end of a search, with its bound of all rows; or the first, another fit's, where that has a higher."""
    _, bound, stayed = better(problem, None if first is None else first.state(problem), last.state(problem))
    found = first if stayed and first is not None else last
    learnt, inducing = as_numpy(split_point(found.point, problem.inducing))
    return Result(learnt, inducing, found.posterior(), np.ones(1), *bound, STAYED if stayed else "")
