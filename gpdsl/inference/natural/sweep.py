"""One pass over a minibatch, and how searches on minibatches end.

A pass gives the bound, its gradient in the hyperparameters, and where the tied sites should be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.inference.bound import GroupView, Views, assemble
from gpdsl.inference.driver import STAYED, assessor, better
from gpdsl.inference.expected_log_likelihood import expected_log_likelihood
from gpdsl.inference.natural.profiled import split_point
from gpdsl.inference.natural.tied import Pass, Tied, backward, forward, host_posterior, read_anew, transported
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.posteriors.features import Covariances, Features, covariances
from gpdsl.inference.problem import Problem, Result, as_arrays, as_numpy
from gpdsl.inference.warm import near
from gpdsl.kernels.functionals import Functionals
from gpdsl.kernels.numerics import with_jitter
from gpdsl.program.evaluation import functionals_at
from gpdsl.program.groups import KernelValues, kernel_values
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows

Point = dict[str, Any]
"""What Adam moves: unconstrained `parameters`, and `inducing` inputs when they are learnt."""


@dataclass(frozen=True)
class Sweep:
    """What one minibatch says; the targets are natural parameters per group, scaled to all rows, for these factors."""

    elbo: Float[Array, ""]
    gradient: Point
    linear: list[Float[Array, "latents M"]]
    precision: list[Float[Array, "latents M M"]]
    factors: list[Float[Array, "g M M"]]
    scales: list[Float[Array, "latents"]]


def sweep(
    problem: Problem, point: Point, held: list[Any], sites: Sequence[Tied], rows: Rows, normals: Array | None
) -> Sweep:
    """Value and gradient of the bound at fixed sites, from some rows on behalf of all.

    The kernels and the likelihood are differentiated by JAX; what lies between, by hand (`inference.tied`).
    """
    program = problem.program

    def kernels(point: Point) -> list[tuple[Covariances, Array]]:
        return covariances_at(problem, point, held, rows)

    known, pull = jax.vjp(kernels, point)
    scales = [scale for _, scale in known]
    passes = [forward(c, tied, scale) for (c, scale), tied in zip(known, sites, strict=True)]
    moments = [(p.mean[None], p.variance[None]) for p in passes]

    def expected(point: Point, scales: list[Array], moments: list[tuple[Array, Array]]) -> Array:
        parameters = program.parameters.constrain(point["parameters"])
        q = _marginals(program, parameters, rows, scales, passes, moments)
        per_row = expected_log_likelihood(program, parameters, rows, q, normals)
        return jnp.sum(per_row) * (problem.data_rows / per_row.shape[1]) + program.log_prior(parameters)

    value, (direct, d_scales, d_moments) = jax.value_and_grad(expected, argnums=(0, 1, 2))(point, scales, moments)
    d_moments = jax.lax.optimization_barrier(d_moments)  # else worked out for every element of their products
    slopes = [backward(p, s, dm[0], dv[0]) for p, s, (dm, dv) in zip(passes, scales, d_moments, strict=True)]
    (through,) = pull([(s.covariances, s.scale + d) for s, d in zip(slopes, d_scales, strict=True)])
    return Sweep(
        value - sum(p.posterior.divergence for p in passes),
        jax.tree.map(jnp.add, direct, through),
        [s.linear for s in slopes],
        [s.precision for s in slopes],
        [p.factor for p in passes],
        scales,
    )


def carried(
    problem: Problem, point: Point, anchors: Sequence[Functionals], sites: Sequence[Tied], factors: Sequence[Array]
) -> list[Tied]:
    """Sites in the coordinates of these factors: of the same inducing values or, where their inputs are learnt and were
    the `anchors`, of what those at the inputs of `point` say of them."""
    if not point["inducing"]:
        return [transported(tied, factor) for tied, factor in zip(sites, factors, strict=True)]
    parameters, found = problem.program.parameters.constrain(point["parameters"]), []
    parts = zip(problem.program.groups, anchors, point["inducing"], sites, factors, strict=True)
    for group, old, new, tied, factor in parts:
        known = covariances(
            group, kernel_values(problem.program.evaluator, group, parameters), old, new, problem.jitter
        )
        found.append(read_anew(tied, with_jitter(known.cross, problem.jitter), factor))
    return found


def covariances_at(problem: Problem, point: Point, held: list[Any], rows: Rows) -> list[tuple[Covariances, Array]]:
    """Covariances of each group at some rows, and the scales of its kernels."""
    learnt, inducing = split_point(point, held)
    parameters = problem.program.parameters.constrain(learnt)
    found = []
    for group, functionals in zip(problem.program.groups, inducing, strict=True):
        kernel = kernel_values(problem.program.evaluator, group, parameters)
        at = functionals_at(group, group.readings.all, rows)
        found.append((covariances(group, kernel, functionals, at, problem.jitter), kernel.scale))
    return found


def _marginals(
    program: Program,
    parameters: Mapping[str, Array],
    rows: Rows,
    scales: Sequence[Array],
    passes: Sequence[Pass],
    moments: Sequence[tuple[Array, Array]],
) -> Marginals:
    seen = [
        GroupView(group, KernelValues(scale, ()), Features(jnp.swapaxes(p.phi, 1, 2), p.variance, p.inverse))
        for group, scale, p in zip(program.groups, scales, passes, strict=True)
    ]
    return assemble(Views(program, parameters, rows, seen), moments)


# How searches on minibatches end: as all rows see what they found, and never below the fit that they started from.


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
    begun = None if first is None else first.state(problem)
    _, bound, stayed = better(assessor(problem), begun, last.state(problem))
    found = first if stayed and first is not None else last
    learnt, inducing = as_numpy(split_point(found.point, problem.inducing))
    return Result(learnt, inducing, found.posterior(), np.ones(1), *bound, STAYED if stayed else "")
