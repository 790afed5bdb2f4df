"""The best point of a search over the hyperparameters, when a ridge ends it, and which of several ends is attained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Array

from gpdsl.inference.ascent.lbfgs import Enough
from gpdsl.inference.natural.sites import Sites
from gpdsl.inference.problem import Problem

RIDGE_ITERATIONS = 300
"""Most iterations on a ridge, by Newton's method."""

LITTLE, TRIALS, MOST = 1.0, 3, 20
"""A search ends where sites do not settle, at so many points in a row that gain less than so many nats, or so many in
all."""


FOLLOWED = (
    "latents are left independent of each other, because with their correlation q follows the errors of {samples} "
    "samples to a lower bound on fresh ones: ask for more samples, or posterior = full"
)


@dataclass
class Best:
    """The best point of a search, its sites and its bound."""

    point: Any
    sites: Sites
    elbo: float = -np.inf
    idle: int = 0
    unsettled: int = 0
    """Points where the sites had not settled: in a row without a gain, and in all."""
    reason: str = ""
    """What makes ridges in this problem."""
    message: str = ""
    """How the search ended."""

    def see(self, point: Any, sites: Sites, elbo: float, settled: bool) -> None:
        """Keep what is better. Raises Enough on a ridge that leads nowhere, or on and on."""
        self.idle = 0 if settled or elbo > self.elbo + LITTLE else self.idle + 1
        self.unsettled += not settled
        if elbo > self.elbo:
            self.point, self.sites, self.elbo = point, sites, elbo
        if self.idle == TRIALS or self.unsettled == MOST:
            why = f": {self.reason}" if self.reason else ""
            raise Enough(
                f"stopped on a ridge of the bound, where q does not settle in {RIDGE_ITERATIONS} iterations{why}; a "
                "fit with start= this one goes on"
            )


def why_ridges(problem: Problem) -> str:
    """What may make a ridge of the bound, as far as the model tells."""
    if problem.program.sampled:
        return f"it follows the errors of {problem.choice.samples} samples there, and more samples help"
    program, translator = problem.program, problem.program.translator
    symbols = set().union(*(o.log_density.free_symbols for o in program.observations))
    refs = [translator.references[symbol] for symbol in symbols]
    noisy = any(ref.name in program.parameters.initial for ref in refs)
    return "a noise that goes to zero makes such ridges" if noisy else ""


def attained(
    problem: Problem, ends: Sequence[Best], bound: Callable[[Any, Sites, Any], Array]
) -> tuple[Best, str, tuple[float, float]]:
    """The last of the ends of searches, unless it follows its samples so far that an earlier one has a higher bound.

    With it, what is to be said of it if not what its search says, its bound and the standard error of that.
    """

    def assessed(best: Best) -> tuple[float, float]:
        return problem.reassessed(lambda normals: bound(best.point, best.sites, normals), best.elbo)

    *others, chosen = ((best, "", assessed(best)) for best in ends)
    for best, _, found in others if problem.program.sampled else ():
        if found[0] > chosen[2][0]:
            chosen = best, f"{best.message}; {FOLLOWED.format(samples=problem.choice.samples)}", found
    return chosen
