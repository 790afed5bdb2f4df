"""Where the components of a posterior start: apart from each other, so that they can find different modes."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.inference.features import factorise
from gpdsl.inference.problem import Problem
from gpdsl.kernels.functionals import every_point
from gpdsl.program.compilation import jit
from gpdsl.program.groups import kernel_values

APART = 0.5
"""Root mean square of a component's first mean function, in prior standard deviations."""

NOISE = 0.1
"""Standard deviation of the whitened noise in every mean: no two latents start as mirror images of each other."""

POWER_STEPS = 3


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
        kernel = kernel_values(program.evaluator, group, constrained, every_point(functionals).shape[-1])
        factor = factorise(group, kernel, functionals, problem.jitter)
        found.append(_principal(factor))
    return found


def _principal(factor: Float[Array, "g M M"]) -> Float[Array, "g M"]:
    """Power iteration for the largest right singular vector of a root, from the constant function."""
    vector = jnp.sum(factor, axis=1)  # L'1
    for _ in range(POWER_STEPS):
        vector = jnp.einsum("gnm,gn->gm", factor, jnp.einsum("gnm,gm->gn", factor, vector))
        vector = vector / jnp.linalg.norm(vector, axis=1, keepdims=True)
    function = jnp.einsum("gnm,gm->gn", factor, vector)
    return APART * vector / jnp.sqrt(jnp.mean(function**2, axis=1, keepdims=True))
