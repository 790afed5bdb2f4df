"""How wide a q with independent weights is at the rows of the data, beside the best Gaussian over the same functions.

A diagonal is far too wide where there are many more functions than rows, inside the data, and too narrow where there
are few. The best Gaussian's variances are those of a GP with the covariance G = Phi S^-1 Phi' and noise W^-1:
diag(W^-1 (G + W^-1)^-1 G), on all rows, or on some where there are many.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gpdsl.inference.problem import Problem
from gpdsl.inference.quadruply_stochastic.estimators import slopes
from gpdsl.inference.quadruply_stochastic.features import Features
from gpdsl.inference.quadruply_stochastic.located import gathered
from gpdsl.inference.quadruply_stochastic.reading import inputs_of
from gpdsl.inference.quadruply_stochastic.sums import Held, surveyed
from gpdsl.inference.quadruply_stochastic.weights import Weights
from gpdsl.program.compilation import jit
from gpdsl.program.rows import Rows

LOOKED_AT = 600
"""Rows looked at. What some rows know is less than what all know: the best is narrower still."""

NOTABLE = 1.5
ROUNDING = 1e-6
"""Share of a variance below which the best cannot be told."""


def notes_on_width(problem: Problem, features: Features, q: Weights, learnt: dict[str, Array]) -> tuple[str, ...]:
    """A sentence where standard deviations of q are off by more than half, none where they are not."""
    if not features.diagonal or not np.all(np.isfinite(np.asarray(q.vectors))):
        return ()
    count = min(problem.count, LOOKED_AT)
    index = np.sort(np.random.default_rng([problem.options.seed, 4]).choice(problem.count, count, replace=False))
    factor = width(problem, features, q, learnt, index)
    known = f"{count} of {problem.count} rows" if count < problem.count else f"{count} rows"
    if 1.0 / NOTABLE < factor < NOTABLE or (factor < 1.0 and count < problem.count):
        return ()
    what = "independent weights have" if not q.columns else f"q, with {q.columns} dense columns, has"
    size, than = (factor, "wide") if factor > 1.0 else (1.0 / factor, "narrow")
    least = "at least " if count < problem.count else ""
    return (
        f"{what} standard deviations of the latent {least}{size:.1f} times as {than} as the best Gaussian over these "
        f"functions (median of {known}); means are not affected; a larger chevron helps, and engine = vi",
    )


def width(problem: Problem, features: Features, q: Weights, learnt: dict[str, Array], index: np.ndarray) -> float:
    """Median ratio of the standard deviations of q and of the best Gaussian, at some rows, given these alone."""
    size = min(problem.choice.weights.block if problem.choice.weights else features.count, features.count)

    def look(learnt: dict[str, Array], q: Weights, rows: Rows) -> tuple[Array, Array, Array]:
        sums = surveyed(features, learnt, inputs_of(problem.program, rows), Held(jnp.asarray(q.vectors), q), size)
        variance = sums.spread + jnp.sum(sums.average[:, 1:] ** 2, axis=1)
        weight = slopes(problem.program, learnt, rows, sums.average[:, 0], variance).weight
        return sums.gram, variance, weight

    gram, own, weight = (np.asarray(a, float) for a in jit(look)(learnt, q, gathered(problem, index)))
    noise = 1.0 / weight
    root = np.sqrt(weight)
    value, vector = np.linalg.eigh(root[:, None] * gram * root)
    shrunk = np.maximum(value, 0.0) / (np.maximum(value, 0.0) + 1.0)  # sums of float32 may round below zero
    best = noise * (vector**2 @ shrunk)
    return float(np.median(np.sqrt(own / np.maximum(best, ROUNDING * own))))
