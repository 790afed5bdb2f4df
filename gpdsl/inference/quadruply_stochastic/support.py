"""The control variate's support: some rows, and a quadratic form in the values there that stands for that of all rows.

QSGP eq. 3 takes (n / p) times the precisions of the p rows themselves. A latent is known at all rows from its values at
some by w_l = K_pp^-1 k_p(x_l), but for what they leave of its variance, so that

    sum_l precision_l (phi_l' mu)^2  is close to  a' A a,   A = sum_l precision_l w_l w_l',   a = Phi_p mu.

That takes twice as much of the variance away (kin40k, rank 300). Any A leaves the estimate unbiased.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.inference.problem import Problem
from gpdsl.inference.quadruply_stochastic.features import Features
from gpdsl.inference.quadruply_stochastic.likelihood import quadratic
from gpdsl.inference.quadruply_stochastic.located import gathered
from gpdsl.inference.quadruply_stochastic.reading import inputs_of
from gpdsl.program.compilation import jit
from gpdsl.program.rows import Rows

RIDGE = 1e-3
"""Added to K_pp, in units of the prior variance: weights of points that are close to each other stay moderate."""

MOST_ROWS = 100_000
ROWS_AT_ONCE = 5_000


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Support:
    """The rows of the control variate, fixed before the first step: inputs, A, and the parameters then."""

    x: Float[Array, "p d"]
    form: Float[Array, "p p"]
    learnt: dict[str, Array]


def no_support(x: Float[Array, "p d"], learnt: dict[str, Array]) -> Support:
    """A control variate that is zero."""
    return Support(x, jnp.zeros((x.shape[0], x.shape[0]), x.dtype), learnt)


def support_at(
    problem: Problem, features: Features, learnt: dict[str, Array], x: Float[Array, "p d"], rng: np.random.Generator
) -> Support:
    """The support at the points x: sums over all rows, or over `MOST_ROWS` of them drawn at random.

    The prior of the weights joins where its precision is dense: its Nyström approximation is K_pp^-1 (appendix F.2).
    """

    def squares(learnt: dict[str, Array], x: Array, rows: Rows) -> Array:
        cross = features.latent.covariance(learnt, x, inputs_of(problem.program, rows))
        return (cross * quadratic(problem.program, learnt, rows).precision) @ cross.T

    taken = np.arange(problem.count)
    if problem.count > MOST_ROWS:
        taken = np.sort(rng.choice(problem.count, MOST_ROWS, replace=False))
    add_up, total = jit(squares), np.zeros((x.shape[0], x.shape[0]))
    for part in np.split(taken, range(ROWS_AT_ONCE, len(taken), ROWS_AT_ONCE)):
        total += np.asarray(add_up(learnt, x, gathered(problem, part)), float)
    covariance = np.asarray(jit(features.latent.covariance)(learnt, x), float)
    scale = np.mean(np.diagonal(covariance))
    inverse = np.linalg.inv(covariance + RIDGE * scale * np.eye(x.shape[0]))
    form = inverse @ (problem.count / len(taken) * total) @ inverse
    if not features.diagonal:
        form = form + inverse
    return Support(x, jnp.asarray(form, x.dtype), learnt)
