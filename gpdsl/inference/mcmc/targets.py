"""What chains draw from: the posterior of parameters alone where the latents integrate out, else of both.

With normal observations the latents have a closed form given the parameters, which are all that a chain moves in.
Otherwise it moves in the learnt parameters on the real line and in the whitened values w ~ N(0, I) of the latents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.inference.exact.engine import ExactProfile
from gpdsl.inference.exact.evidence import log_normal, parts_of
from gpdsl.inference.integrated.explore import log_volume
from gpdsl.inference.log_joint import LogJoint
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.problem import Problem, Result, as_arrays, as_numpy

Position = Mapping[str, Any]
"""`learnt`: parameters on the real line; `white`: values of latents, where a chain moves in these."""


class Target(Protocol):
    """A log density, up to a constant, and what a place says as a posterior."""

    data: Any
    """An argument of the density, so that it is no constant in a compiled function."""
    start: Position
    """Where the search has ended."""

    def log_density(self, position: Position, data: Any) -> Float[Array, ""]:
        """Of the parameters on the real line, and of w."""

    def at(self, position: Position) -> Result:
        """The posterior of the latents there."""


class Collapsed:
    """p(parameters | y), with the latents integrated out: exact inference at every place."""

    def __init__(self, problem: Problem, result: Result) -> None:
        self.profile, self.data = ExactProfile(problem, result), problem.rows
        self.start: Position = {"learnt": as_arrays(result.parameters, problem.options.dtype)}

    def log_density(self, position: Position, data: Any) -> Float[Array, ""]:
        """The log evidence, with log priors."""
        system, learnt = self.profile.system, position["learnt"]
        matrices, vectors, constant = parts_of(system, learnt, data)
        total = constant + log_volume(system.program, learnt)
        return total + sum(jnp.sum(jax.vmap(log_normal)(*each)) for each in zip(matrices, vectors, strict=True))

    def at(self, position: Position) -> Result:
        """The exact posterior."""
        return self.profile.at(position["learnt"])


class Joint:
    """p(parameters, w | y), the whitened values of all latents at the rows included."""

    def __init__(self, problem: Problem, result: Result) -> None:
        self.joint = LogJoint(problem)
        self.data = self.joint.data
        white = np.concatenate([np.ravel(q.mean[0]) for q in result.posterior])
        known = {"learnt": result.parameters, "white": white}
        self.start: Position = as_arrays(known, problem.options.dtype)

    def log_density(self, position: Position, data: Any) -> Float[Array, ""]:
        """The log joint density."""
        learnt, white, joint = position["learnt"], position["white"], self.joint
        prior = joint.log_prior(learnt) + log_volume(joint.problem.program, learnt) - 0.5 * jnp.sum(white**2)
        return joint.log_likelihood(learnt, white, data) + prior

    def at(self, position: Position) -> Result:
        """Latents that are known at the rows."""
        q = [Whitened(mean, np.zeros((*mean.shape, 1), mean.dtype)) for mean in self.joint.apart(position["white"])]
        inducing = as_numpy(self.joint.problem.inducing)
        return Result(as_numpy(dict(position["learnt"])), inducing, q, np.ones(1), float("nan"), float("nan"))
