"""The expected log likelihood of rows as a function of the mean and variance of the one latent, and its slopes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gpdsl.inference.estimators.expected_log_likelihood import expected_log_likelihood
from gpdsl.program.evaluation import prior_means
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows

Values = Float[Array, "n"]

FLATTEST = 1e-6
"""Least weight of a row, in units of the largest."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Slopes:
    """E_q[log p(y | f)] of each row, its derivative in the mean of f, and -2 times that in the variance.

    By Price's theorem the last is the expected precision -E_q[d^2 log p / df^2].
    """

    value: Values
    slope: Values
    precision: Values

    @property
    def weight(self) -> Values:
        """The precision, where it is positive: a log likelihood that is not concave there counts as nearly flat."""
        return jnp.maximum(self.precision, FLATTEST * jnp.max(jnp.abs(self.precision)))


def expected(program: Program, learnt: Mapping[str, Array], rows: Rows, shift: Values, variance: Values) -> Values:
    """E_q[log p(y | f)] of each row where f is Gaussian; `shift` is how far its mean is from the prior mean."""
    parameters = program.parameters.constrain(learnt)
    prior = prior_means(program.evaluator, program.groups, parameters, rows, shift.shape[0])
    q = Marginals((prior[:, 0] + shift)[None, :, None], variance[None, :, None])
    return expected_log_likelihood(program, parameters, rows, q)[0]


def slopes(program: Program, learnt: Mapping[str, Array], rows: Rows, shift: Values, variance: Values) -> Slopes:
    """The expected log likelihood and what a step needs of it."""

    def total(shift: Values, variance: Values) -> tuple[Array, Values]:
        value = expected(program, learnt, rows, shift, variance)
        return jnp.sum(value), value

    (slope, bend), value = jax.grad(total, argnums=(0, 1), has_aux=True)(shift, variance)
    return Slopes(value, slope, -2.0 * bend)


def quadratic(program: Program, learnt: Mapping[str, Array], rows: Rows) -> Slopes:
    """The coefficients of a log density that is quadratic in f, around the prior mean.

    log p(y | f) = value + slope h - precision h^2 / 2 where f is h above its prior mean: exact, as is the expectation,
    which replaces h^2 by E[h]^2 + V[h] (QSGP eq. 2 for any Gaussian observation of an affine function of f).
    """
    count = next(iter(rows.observed.values())).shape[0]
    nothing = jnp.zeros(count, next(iter(rows.observed.values())).dtype)
    return slopes(program, learnt, rows, nothing, nothing)
