"""Covariances with points as basis functions, where there are few enough of them: q by linear algebra, not by steps.

With W the expected precisions of the rows, the mean and the covariance of the best q of all Gaussians are

    H = S + Phi'W Phi,   mu + H^-1 (Phi'g - S mu)

for the slopes g at mu: at once where log p is quadratic, by Newton steps on the bound elsewhere. Whitened by S = L L',
H^-1 = R'R with R = U^-1 L^-1 and U U' = I + L^-1 Phi'W Phi L^-T, and the triangle of R = Q T is the root C = T': H
itself, whose condition number is the square of that of the kernel's matrix, is never factorised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.linalg import cholesky, qr, solve_triangular

from gpdsl.errors import GpdslError
from gpdsl.inference.problem import Problem
from gpdsl.inference.quadruply_stochastic.basis import InducingFeatures
from gpdsl.inference.quadruply_stochastic.estimators import Slopes, slopes
from gpdsl.inference.quadruply_stochastic.features import Features
from gpdsl.inference.quadruply_stochastic.located import gathered
from gpdsl.inference.quadruply_stochastic.reading import inputs_of, moments, whole_divergence
from gpdsl.inference.quadruply_stochastic.weights import Weights
from gpdsl.kernels.numerics import jitters_for
from gpdsl.program.compilation import jit
from gpdsl.program.rows import Rows

ROWS_AT_ONCE = 4_000
SHORTEST = 1e-3
"""Share of a Newton step below which none is taken."""


def steadied(features: InducingFeatures, learnt: Mapping[str, Array], dtype: str) -> InducingFeatures:
    """The functions with the first jitter at which S has a Cholesky factor. Raises GpdslError where none will do."""
    every = jnp.arange(features.count)
    for jitter in jitters_for(dtype):
        found = replace(features, jitter=jitter)
        try:
            cholesky(np.asarray(found.cross_precision(learnt, every, every), float), lower=True)
        except (np.linalg.LinAlgError, ValueError):  # no factor, or no numbers
            continue
        return found
    raise GpdslError(
        f"the covariance matrix of {features.count} points is not positive definite in {dtype}; use fewer features, a "
        "rougher kernel, or engine = vi" + (", or dtype = float64" if dtype == "float32" else "")
    )


@dataclass(frozen=True, eq=False)
class _Site:
    """The data at some q: the bound but for log |S|, Phi'g and Phi'W Phi."""

    bound: float
    pull: Float[np.ndarray, "m"]
    gram: Float[np.ndarray, "m m"]


class SolvedFit:
    """Newton steps: the first is the last where log p is quadratic in the latent."""

    def __init__(self, problem: Problem, features: Features, q: Weights, learnt: dict[str, Array]) -> None:
        assert isinstance(features, InducingFeatures)
        self.problem, self.features, self.q, self.learnt = problem, features, q, learnt
        every = jnp.arange(features.count)
        self._prior = np.asarray(features.cross_precision(learnt, every, every), float)
        self._root = cholesky(self._prior, lower=True)
        self._look = problem.compiling(self._seen)
        self._apart = jit(lambda q: whole_divergence(features, learnt, q, features.count))
        self._here, self._done = self._site(q), 0
        self.message = "all steps done"

    @property
    def constant(self) -> float:
        """What the divergence lacks: (m + log |S|) / 2."""
        return 0.5 * self.features.count + float(np.sum(np.log(np.diagonal(self._root))))

    def advance(self) -> tuple[int, float]:
        """One Newton step, shortened until it raises the bound."""
        before, share = self._here, 1.0
        if not np.isfinite(before.bound):
            return self.problem.choice.steps, float("nan")
        goal = self._best()
        while share > SHORTEST:
            q = goal if share == 1.0 else self._between(goal, share)
            here = self._site(q)
            if here.bound > before.bound or self.problem.program.conjugate:
                self.q, self._here = q, here
                break
            share *= 0.5
        gained = self._here.bound - before.bound
        self._done += 1
        if self.problem.program.conjugate or gained <= self.problem.options.tolerance * (1.0 + abs(before.bound)):
            self.message, self._done = "solved", self.problem.choice.steps
        return self._done, self._here.bound + self.constant

    def working_memory(self) -> int:
        """Bytes of the matrices of all functions."""
        return 8 * 6 * self.features.count**2

    def _best(self) -> Weights:
        """q with the Newton step's mean, and with the covariance that the curvatures here ask for."""
        inner = solve_triangular(self._root, self._here.gram, lower=True)
        inner = solve_triangular(self._root, inner.T, lower=True)
        upper = cholesky(np.eye(len(inner)) + 0.5 * (inner + inner.T), lower=True)
        precision_root = solve_triangular(
            upper, solve_triangular(self._root, np.eye(len(inner)), lower=True), lower=True
        )
        mean = np.asarray(self.q.vectors[0], float)
        mean = mean + precision_root.T @ (precision_root @ (self._here.pull - self._prior @ mean))
        triangle = qr(precision_root, mode="r")[0]
        triangle = triangle * np.sign(np.diagonal(triangle))[:, None]
        vectors = np.concatenate([mean[None], triangle[: self.q.columns]])
        dtype = self.q.vectors.dtype
        return Weights(jnp.asarray(vectors, dtype), jnp.asarray(np.diagonal(self._here.gram), dtype))

    def _between(self, goal: Weights, share: float) -> Weights:
        """q with a shorter step of the mean and of the root of its covariance."""
        vectors = self.q.vectors + share * (goal.vectors - self.q.vectors)
        return replace(goal, vectors=vectors, curvature=self.q.curvature + share * (goal.curvature - self.q.curvature))

    def _site(self, q: Weights) -> _Site:
        """What all rows say at q, some of them at a time."""
        count, size = self.problem.count, self.features.count
        total, pull, gram = -float(self._apart(q)), np.zeros(size), np.zeros((size, size))
        for part in np.split(np.arange(count), range(ROWS_AT_ONCE, count, ROWS_AT_ONCE)):
            known, phi, weighed = self._look(q, gathered(self.problem, part))
            values = np.asarray(phi, float)
            if not np.all(np.isfinite(known.slope)):
                return _Site(float("nan"), pull, gram)
            total += float(np.sum(np.asarray(known.value, float)))
            pull += values.T @ np.asarray(known.slope, float)
            gram += values.T @ (np.asarray(weighed, float)[:, None] * values)
        return _Site(total, pull, gram)

    def _seen(self, q: Weights, rows: Rows) -> tuple[Slopes, Float[Array, "b m"], Float[Array, "b"]]:
        x = inputs_of(self.problem.program, rows)
        projected, variance = moments(self.features, self.learnt, x, q, self.features.count)
        known = slopes(self.problem.program, self.learnt, rows, projected[:, 0], variance)
        return known, self.features.values(self.learnt, x, jnp.arange(self.features.count)), known.weight
