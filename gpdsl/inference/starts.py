"""Where a posterior starts: components apart from each other, so that they can find different modes; or another fit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.inference.bound import by_latent, views
from gpdsl.inference.posteriors.family import Diagonal, Family, Linear, PerRow
from gpdsl.inference.posteriors.features import factorise
from gpdsl.inference.problem import Problem
from gpdsl.inference.warm import near, site_start
from gpdsl.kernels.functionals import Functionals
from gpdsl.program.cache import jit
from gpdsl.program.groups import kernel_values
from gpdsl.program.rows import Rows

APART = 0.5
"""Root mean square of a component's first mean function, in prior standard deviations."""

NOISE = 0.1
"""Standard deviation of the whitened noise in every mean: no two latents start as mirror images of each other."""

POWER_STEPS = 3

SMALLEST_WEIGHT = 1e-3
"""Of a component that starts again: one with no weight has no slope either."""


def start_groups(problem: Problem) -> list[dict[str, np.ndarray]]:
    """Starting parameters of every group's posterior."""
    found = []
    for place, (group, mean) in enumerate(zip(problem.program.groups, start_means(problem), strict=True)):
        family = problem.layout.family_of(group)
        begun = None if problem.begun is None else problem.begun.posterior[place]
        q = family.init(mean, problem.count * len(group.readings.all))
        if begun is not None and problem.begun is not None:
            q |= near(family, begun, problem.begun.weights, mean, _factor(problem, place) if _dense(family) else None)
        found.append(q)
    if problem.begun is not None and isinstance(problem.layout.family, Linear) and not problem.program.opaque:
        for group, q, sites in zip(problem.program.groups, found, _site_weights(problem), strict=True):
            if not group.per_row:
                q["site"] = np.arcsinh(np.asarray(sites))[None]
    return found


def start_logits(problem: Problem) -> np.ndarray:
    """Logarithms of the mixture weights: equal, or those of the fit it starts from if that has as many components."""
    components = problem.layout.family.components
    if problem.begun is None or len(problem.begun.weights) != components:
        return np.zeros(components)
    return np.log(np.maximum(problem.begun.weights, SMALLEST_WEIGHT))


def _dense(family: Family) -> bool:
    return isinstance(family, Diagonal) and family.dense and not isinstance(family, PerRow)


def _factor(problem: Problem, place: int) -> np.ndarray:
    """Factor of Kuu of one group at the start."""

    def compute(parameters: dict[str, Array], functionals: Functionals) -> Array:
        group, program = problem.program.groups[place], problem.program
        kernel = kernel_values(program.evaluator, group, program.parameters.constrain(parameters))
        return factorise(group, kernel, functionals, problem.jitter)

    return np.asarray(jit(compute)(problem.parameters, problem.inducing[place]))


def _site_weights(problem: Problem) -> list[Array]:
    """The lambdas of Theorem 2 where the fit it starts from says they are, at unit scale."""
    normals = problem.normals(jax.random.key(problem.options.seed))

    def compute(parameters: dict[str, Array], inducing: list[Functionals], rows: Rows) -> list[Array]:
        program = problem.program
        constrained = program.parameters.constrain(parameters)
        seen = views(program, constrained, inducing, rows, problem.layout.dense, problem.jitter)
        assert problem.begun is not None
        sites = site_start(seen, problem.begun, normals)
        columns = [slice(view.group.start, view.group.stop) for view in seen]
        parts = [by_latent(view.group, sites.precision[:, own]) for view, own in zip(seen, columns, strict=True)]
        return [part * view.kernel.scale[:, None] for part, view in zip(parts, seen, strict=True)]

    return jit(compute)(problem.parameters, problem.inducing, problem.rows)


def start_means(problem: Problem) -> list[Float[np.ndarray, "K latents M"]]:
    """Whitened means of every group's components.

    A single Gaussian starts near the prior mean. Components of a mixture start in pairs of opposite sign: the first
    pair along the function that the prior varies along most, which has one sign wherever covariances are positive, so
    that the two signs of a latent seen through its square, its size or a product are both found; further pairs along
    draws from the prior with signs of their own. An odd one starts near the prior mean.
    """
    rng = np.random.default_rng(problem.options.seed)
    components = problem.layout.family.components
    directions: list[Array | None] = [None] * len(problem.program.groups)
    if components > 1:
        directions = jit(lambda parameters, inducing: _leading(problem, parameters, inducing))(
            problem.parameters, problem.inducing
        )
    found = []
    for group, inducing, leading in zip(problem.program.groups, problem.inducing, directions, strict=True):
        shape = (components, group.size, len(inducing))
        mean = NOISE * rng.standard_normal(shape)
        for pair in range(components // 2):
            size = APART * rng.standard_normal(shape[1:])
            if pair == 0 and leading is not None:
                size = np.broadcast_to(np.asarray(leading), shape[1:])
            mean[2 * pair] += size
            mean[2 * pair + 1] -= size
        found.append(mean)
    return found


def _leading(problem: Problem, parameters: dict[str, Array], inducing: list) -> list[Array | None]:
    """For each group, whitened values of the function along which its prior varies most, [factors, M]."""
    program = problem.program
    found: list[Array | None] = []
    constrained = program.parameters.constrain(parameters)
    for group, functionals in zip(program.groups, inducing, strict=True):
        if group.per_row:
            found.append(None)
            continue
        kernel = kernel_values(program.evaluator, group, constrained)
        factor = factorise(group, kernel, functionals, problem.jitter)
        found.append(APART * principal(factor))
    return found


def principal(factor: Float[Array, "g M M"]) -> Float[Array, "g M"]:
    """Whitened values of the function along which a prior varies most, whose root mean square is one.

    Power iteration for the largest right singular vector of a root, from the constant function.
    """
    vector = jnp.sum(factor, axis=1)  # L'1
    for _ in range(POWER_STEPS):
        vector = jnp.einsum("gnm,gn->gm", factor, jnp.einsum("gnm,gm->gn", factor, vector))
        vector = vector / jnp.linalg.norm(vector, axis=1, keepdims=True)
    function = jnp.einsum("gnm,gm->gn", factor, vector)
    return vector / jnp.sqrt(jnp.mean(function**2, axis=1, keepdims=True))
