"""Inducing points that explain the prior: greedy conditional variance, which is pivoted Cholesky.

Each point is the row whose value is known least given those at the points before it, under the kernel at the starting
parameters. Burt, Rasmussen and van der Wilk (2020), Convergence of sparse variational inference, section 4. Points are
found some at a time, among the rows that are known least, as long as hardly another can be known less: the matrix
products of a block take a tenth of the time of as many vectors'.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.linalg import solve_triangular

from gpdsl.inference.posteriors.features import factorise, sparse_features
from gpdsl.kernels.covariance import covariance, variance
from gpdsl.kernels.functionals import Values
from gpdsl.kernels.numerics import jitter_for
from gpdsl.program.compilation import jit
from gpdsl.program.groups import Group, kernel_values
from gpdsl.program.program import Program

CANDIDATES = 256
"""Rows known least, among which the points of a block are found."""

NEARLY = 0.7
"""Share of the largest variance left in any other row that the next point of a block has at least."""


@dataclass(frozen=True)
class Pivots:
    """Row numbers in the order they were chosen, the mean prior variance, and the share of it open after each."""

    chosen: Int[np.ndarray, "count"]
    prior: float
    open: Float[np.ndarray, "count"]


def greedy_points(
    program: Program, group: Group, points: Float[np.ndarray, "n D"], count: int, dtype: str
) -> Float[np.ndarray, "at_most_count D"]:
    """At most `count` of the points: fewer when these determine all others."""
    return points[pivots(program, group, points, count, dtype).chosen]


def pivots(program: Program, group: Group, points: Float[np.ndarray, "n D"], count: int, dtype: str) -> Pivots:
    """The order in which at most `count` points are chosen, until these determine all others.

    Latents with different kernels share the points; their mean covariance is what the points explain.
    """
    learnt = {name: jnp.asarray(value, dtype) for name, value in program.parameters.unconstrained().items()}
    everywhere = jnp.asarray(points, dtype)

    def kernels(learnt: dict[str, Array]) -> list[tuple[Array, ...]]:
        kernel = kernel_values(program.evaluator, group, program.parameters.constrain(learnt), points.shape[-1])
        return [tuple(a[g] for a in kernel.arguments) for g in range(group.factors)]

    def cross(learnt: dict[str, Array], some: Array, points: Array) -> Array:
        found = [covariance(group.form, each, Values(some), Values(points)) for each in kernels(learnt)]
        return jnp.mean(jnp.stack(found), axis=0)

    def prior(learnt: dict[str, Array], points: Array) -> Array:
        return jnp.mean(jnp.stack([variance(group.form, each, Values(points)) for each in kernels(learnt)]), axis=0)

    compiled, diagonal = jit(cross), np.asarray(jit(prior)(learnt, everywhere), float)
    tolerance = jitter_for(jnp.dtype(dtype))
    return pivoted(lambda some: np.asarray(compiled(learnt, everywhere[some], everywhere)), diagonal, count, tolerance)


def pivoted(
    rows_of: Callable[[Int[np.ndarray, "c"]], Float[np.ndarray, "c n"]],
    prior: Float[np.ndarray, "n"],
    count: int,
    tolerance: float,
) -> Pivots:
    """Pivoted Cholesky of a covariance matrix with the diagonal `prior`, by blocks of rows that `rows_of` gives."""
    size, most = len(prior), min(count, len(prior))
    factor, residual, mean = np.empty((most, size)), np.array(prior), float(np.mean(prior))
    chosen: list[int] = []
    left_open: list[float] = []
    while len(chosen) < most:
        known, top = len(chosen), np.argsort(-residual, kind="stable")[:CANDIDATES]
        bound = 0.0 if len(top) == size else NEARLY * float(residual[top[-1]])
        wide, told = rows_of(top), factor[:known, top]
        picks, local = _among(wide[:, top] - told.T @ told, most - known, bound, tolerance * mean)
        if not picks:
            break
        new = solve_triangular(local, wide[picks] - told[:, picks].T @ factor[:known], lower=True)
        factor[known : known + len(picks)] = new
        for row, pick in zip(new, picks, strict=True):
            residual = np.maximum(residual - row**2, 0.0)
            residual[top[pick]] = 0.0
            chosen.append(int(top[pick]))
            left_open.append(float(np.mean(residual)) / mean)
    return Pivots(np.asarray(chosen, int), mean, np.asarray(left_open))


def _among(
    covariance: Float[np.ndarray, "c c"], most: int, bound: float, least: float
) -> tuple[list[int], Float[np.ndarray, "k k"]]:
    """Pivots of a small matrix and their Cholesky factor: while the best has as much left as the others' `bound`.

    One of any that have more than `least` is always there.
    """
    residual, factor = np.diag(covariance).copy(), np.zeros((0, len(covariance)))
    picks: list[int] = []
    while len(picks) < min(most, len(covariance)):
        pivot = int(np.argmax(residual))
        if residual[pivot] <= least or (picks and residual[pivot] < bound):
            break
        row = (covariance[pivot] - factor[:, pivot] @ factor) / np.sqrt(residual[pivot])
        factor = np.vstack([factor, row])
        residual = np.maximum(residual - row**2, 0.0)
        residual[pivot] = 0.0
        picks.append(pivot)
    return picks, factor[:, picks].T


def unexplained(
    program: Program,
    group: Group,
    points: Float[np.ndarray, "n D"],
    inducing: Float[np.ndarray, "M D"],
    dtype: str,
) -> float:
    """Mean prior variance at the points that values at the inducing points leave open, under the start kernel."""
    learnt = {name: jnp.asarray(value, dtype) for name, value in program.parameters.unconstrained().items()}
    jitter = jitter_for(jnp.dtype(dtype))

    def left(learnt: dict[str, Array], points: Array, inducing: Array) -> Array:
        kernel = kernel_values(program.evaluator, group, program.parameters.constrain(learnt), points.shape[-1])
        factor = factorise(group, kernel, Values(inducing), jitter)
        features = sparse_features(group, kernel, Values(inducing), Values(points), factor)
        return jnp.mean(features.residual)

    return float(jit(left)(learnt, *(jnp.asarray(each, dtype) for each in (points, inducing))))
