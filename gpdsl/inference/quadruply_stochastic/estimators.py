"""Estimators of the bound from some rows and some basis functions: QSGP Theorems 1 to 3 and Proposition 3.

Blocks I and J of k functions are drawn independently of each other (`weights.block`). A sum over all m functions is
estimated by m / k times the sum over a block, a product of two sums by the product of the estimates from I and from J.
What stands here is per row; n times its mean over drawn rows estimates the sum over all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gpdsl.inference.expected_log_likelihood import expected_log_likelihood
from gpdsl.inference.quadruply_stochastic.sums import Seen
from gpdsl.inference.quadruply_stochastic.weights import divergence, log_diagonal
from gpdsl.program.evaluation import prior_means
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows


def quadratic_likelihood(site: Slopes, first: Seen, second: Seen, scale: float) -> Float[Array, "n"]:
    """Theorems 1 and 2: unbiased for E_q[log p(y | f)] where log p is quadratic in f. `scale` is m / k.

    (Phi mu)^2 and (Phi c_r)^2 are products of two sums, Phi^2 c_ii^2 is one.
    """
    one, two = scale * first.projected, scale * second.projected
    linear = 0.5 * site.slope * (one[:, 0] + two[:, 0])
    square = jnp.sum(one * two, axis=1) + 0.5 * scale * (first.spread + second.spread)
    return site.value + linear - 0.5 * site.precision * square


def control_variate(
    form: Float[Array, "p p"],
    first: Seen,
    second: Seen,
    running: Float[Array, "p columns"],
    scale: float,
) -> Float[Array, ""]:
    """QSGP eq. 3 from support rows p, whose mean over I and J is zero: what Theorems 1 and 2 get wrong there.

    `running` is a = Phi_p [mu, C_1..r] (Proposition 3), which is known exactly, and the quadratic form is a'A a / 2
    with A the symmetric `form` (`support`). Its gradient is sparse and unbiased, as in F.1: that in the drawn weights,
    times m / k.
    """
    one, two = scale * first.projected, scale * second.projected
    known = jax.lax.stop_gradient(running)
    pulled = form @ known
    tangent = jnp.sum(pulled * (one + two))
    return 0.5 * (jnp.sum((form @ one) * two) - tangent + jax.lax.stop_gradient(tangent) - jnp.sum(pulled * known))


def concave_likelihood(
    program: Program, learnt: Mapping[str, Array], rows: Rows, seen: Seen, scale: float
) -> Float[Array, "n"]:
    """Theorem 3, with the standard deviation of phi'w: its mean is at most E_q[log p(y | f)] where log p is concave.

    Under q, phi'w = phi'mu + phi'C z with z ~ N(0, I), which is linear in what is summed over basis functions. So its
    estimate from a block is unbiased for every z, and Jensen's inequality applies inside the expectation over z. For a
    given block that is a Gaussian again, of variance |(m / k) phi_I'C_I|^2: one expectation in one dimension.
    """
    projected = scale * seen.projected
    variance = scale**2 * seen.spread + jnp.sum(projected[:, 1:] ** 2, axis=1)
    return expected(program, learnt, rows, projected[:, 0], variance)


def dense_divergence(first: Seen, second: Seen, cross: Float[Array, "k k"], scale: float) -> Float[Array, ""]:
    """Theorems 1 and 2 for a dense S: unbiased for KL(q || N(0, S^-1)) less the constant -(m + log |S|) / 2.

    `cross` holds rows I and columns J of S.
    """
    squares = scale**2 * jnp.sum((first.q.vectors @ cross) * second.q.vectors)
    total = 0.5 * squares
    for seen in (first, second):
        alone = 0.5 * seen.precision * seen.q.deviation(seen.precision, seen.index) ** 2
        total = total + 0.5 * scale * jnp.sum(alone - log_diagonal(seen.q, seen.precision, seen.index))
    return total


def diagonal_divergence(first: Seen, second: Seen, scale: float) -> Float[Array, ""]:
    """Theorems 1 and 2 and Proposition 2 for a diagonal S: unbiased for KL(q || N(0, S^-1)), by one sum over each."""
    shares = [jnp.sum(divergence(seen.q, seen.precision, seen.index)) for seen in (first, second)]
    return 0.5 * scale * (shares[0] + shares[1])


# --- likelihood ------------------------------------------------------------------------------------------------------


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
