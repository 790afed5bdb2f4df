"""The rows' side of the weights: w = S^-1 Phi' alpha with one number for each row, and the best numbers of a batch.

The bound in the mean mu of q is sum_l g_l(phi_l' mu) - mu' S mu / 2 with g_l the expected log likelihood of row l, so
that at its maximum mu = S^-1 Phi' alpha with alpha_l = g_l'(f_l). While mu has this form for any alpha, the rows p have
a problem of their own: given all others, they see a GP with the covariance K = Phi_p S^-1 Phi_p' around the mean c that
is left without them, and want the largest sum_p g(c + K a) - a'K a / 2. Its solution is an exact step of coordinate
ascent in the dual. No noise of the batch is left in it when all rows are at theirs, so that no step has to be short
(as in "Stochastic gradient descent for Gaussian processes done right", Lin et al. 2024, with blocks in place of rows).
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Float

HALVINGS = 10
"""How often a step is halved at most before none is taken."""

Values = Float[Array, "n"]


def newton_step(gram: Float[Array, "n n"], weight: Values, residual: Float[Array, "n v"]) -> Float[Array, "n v"]:
    """(I + W K)^-1 residual: what sets g' - alpha to zero where g' is linear with the slope -W < 0, for each column.

    What rounding could make indefinite has a ridge, which shortens a step and leaves the solution where it is.
    """
    half = jnp.sqrt(weight + jnp.finfo(weight.dtype).tiny)[:, None]
    scaled = half * gram * half.T
    ridge = jnp.finfo(gram.dtype).eps * jnp.trace(scaled)
    matrix = scaled + (1.0 + ridge) * jnp.eye(gram.shape[0], dtype=gram.dtype)
    return half * cho_solve(cho_factor(matrix, lower=True), residual / half)


def best_length(
    gain: Callable[[Values], Values], gram: Float[Array, "n n"], start: Values, step: Values
) -> Float[Array, ""]:
    """How much of a step of alpha the batch's own objective wants: 1, a power of 1/2, or nothing.

    `gain` is what a change of f adds to each row's expected log likelihood.
    """
    moved = gram @ step
    slope, bend = start @ moved, step @ moved

    def objective(length: Array) -> Array:
        return jnp.sum(gain(length * moved)) - length * slope - 0.5 * length**2 * bend

    lengths = jnp.asarray([0.5**number for number in range(HALVINGS)], step.dtype)
    found = jax.lax.map(objective, lengths)
    best = jnp.argmax(jnp.where(jnp.isfinite(found), found, -jnp.inf))
    return jnp.where(found[best] >= 0.0, lengths[best], 0.0)
