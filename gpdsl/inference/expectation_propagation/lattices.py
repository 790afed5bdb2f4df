"""Where the sums stand that are integrals over the latents of a row: on a lattice, or at points of all together.

The lattice is the trapezoidal rule in t, with z = sinh(t): dense where a narrow likelihood is, and reaching as far as
the cavity does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float

from gpdsl.inference.expected_log_likelihood import log_density, row_sum
from gpdsl.inference.opaque.surrogate import Surrogate, penalised
from gpdsl.program.fine_quadrature import fine_nodes
from gpdsl.program.joint import Marginals, basis_columns, block_root
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows, Scope, observed_mask
from gpdsl.symbolic.arguments import Integrand

# log Z_n as a function of the cavities, with its first two derivatives in their means.
#
# For a formula these come from automatic differentiation. For a sum over points f_s, Z = sum_s b_s N(f_s | a, V), they
# follow from the mean and the covariance of the points under their weights in the sum, E and C:
#
#     dz/da = V^-1 (E - a),      d2z/da2 = V^-1 C V^-1 - V^-1,
#
# at the cost of one sum, where differentiation takes one for every latent of a row.


@dataclass(frozen=True)
class Derivatives:
    """log Z_n of each row, and its gradient and (block of) second derivatives in the mean of the cavity."""

    value: Float[Array, "rows"]
    slope: Float[Array, "rows latents"]
    curvature: Float[Array, "rows latents"] | Float[Array, "rows latents latents"]


class Normaliser(Protocol):
    """log Z_n as a function of the cavities."""

    def __call__(self, cavity: Marginals) -> Float[Array, "rows"]:
        """The values; differentiable in what the likelihood and the cavities depend on."""

    def derivatives(self, cavity: Marginals) -> Derivatives:
        """Values with their derivatives in the cavities' means."""


@dataclass(frozen=True)
class Formula:
    """A closed form. `separate`: of a sum over latents, each of which enters a term of its own."""

    value: Callable[[Marginals], Float[Array, "rows"]]
    separate: bool

    def __call__(self, cavity: Marginals) -> Float[Array, "rows"]:
        return self.value(cavity)

    def derivatives(self, cavity: Marginals) -> Derivatives:
        """By automatic differentiation, once for every latent unless they are separate."""

        def at(mean: Array) -> Array:
            return self.value(Marginals(mean[None], cavity.variance, cavity.covariance))

        def slope(mean: Array) -> Array:
            return jax.grad(lambda m: jnp.sum(at(m)))(mean)

        mean = cavity.mean[0]
        if self.separate:
            first, curvature = jax.jvp(slope, (mean,), (jnp.ones_like(mean),))
            return Derivatives(at(mean), first, curvature)

        def along(direction: Array) -> tuple[Array, Array]:
            return jax.jvp(slope, (mean,), (jnp.broadcast_to(direction, mean.shape),))

        first, second = jax.vmap(along, out_axes=(None, 2))(jnp.eye(mean.shape[1], dtype=mean.dtype))
        block = 0.5 * (second + jnp.swapaxes(second, 1, 2))
        own = jnp.diagonal(block, axis1=1, axis2=2)
        return Derivatives(at(mean), first, own if cavity.covariance is None else block)


@dataclass(frozen=True)
class EachLatent:
    """A sum over nodes for every latent by itself, where it is `read`; `behind` is log b, `rest` what reads none."""

    nodes: Float[Array, "S rows latents"]
    behind: Float[Array, "S rows latents"]
    read: Bool[Array, "rows latents"]
    rest: Float[Array, "rows"]

    def _terms(self, cavity: Marginals) -> Float[Array, "S rows latents"]:
        a, v = cavity.mean[0], cavity.variance[0]
        return self.behind - 0.5 * ((self.nodes - a) ** 2 / v + jnp.log(v))

    def __call__(self, cavity: Marginals) -> Float[Array, "rows"]:
        return jnp.sum(jnp.where(self.read, logsumexp(self._terms(cavity), axis=0), 0.0), axis=1) + self.rest

    def derivatives(self, cavity: Marginals) -> Derivatives:
        a, v = cavity.mean[0], cavity.variance[0]
        terms = self._terms(cavity)
        each = logsumexp(terms, axis=0)
        weights = jnp.exp(terms - each)
        mean = jnp.sum(weights * self.nodes, axis=0)
        variance = jnp.sum(weights * (self.nodes - mean) ** 2, axis=0)
        slope, curvature = (mean - a) / v, (variance / v - 1.0) / v
        value = jnp.sum(jnp.where(self.read, each, 0.0), axis=1) + self.rest
        return Derivatives(value, jnp.where(self.read, slope, 0.0), jnp.where(self.read, curvature, 0.0))


@dataclass(frozen=True)
class Along:
    """A function of one linear function of the latents, whose slopes are the `direction` and whose law `law` gives."""

    inner: EachLatent
    law: Callable[[Marginals], Marginals]
    direction: Float[Array, "rows latents"]

    def __call__(self, cavity: Marginals) -> Float[Array, "rows"]:
        return self.inner(self.law(cavity))

    def derivatives(self, cavity: Marginals) -> Derivatives:
        found, c = self.inner.derivatives(self.law(cavity)), self.direction
        if cavity.covariance is None:
            return Derivatives(found.value, c * found.slope, c**2 * found.curvature)
        return Derivatives(found.value, c * found.slope, c[:, :, None] * c[:, None, :] * found.curvature[..., None])


@dataclass(frozen=True)
class Together:
    """A sum over points of all latents of a row that are no sums, the columns `basis`; `behind` is log b."""

    points: Float[Array, "S rows J"]
    behind: Float[Array, "S rows"]
    basis: np.ndarray

    def _terms(self, cavity: Marginals, root: Float[Array, "rows J J"]) -> Float[Array, "S rows"]:
        gap = jnp.moveaxis(self.points - cavity.mean[0][..., self.basis], 0, -1)
        scaled = solve_triangular(root, gap, lower=True)
        log_det = jnp.sum(jnp.log(jnp.diagonal(root, axis1=-2, axis2=-1)), axis=-1)
        return self.behind - 0.5 * jnp.moveaxis(jnp.sum(scaled**2, axis=-2), -1, 0) - log_det

    def __call__(self, cavity: Marginals) -> Float[Array, "rows"]:
        return logsumexp(self._terms(cavity, root_of(cavity, self.basis)), axis=0)

    def derivatives(self, cavity: Marginals) -> Derivatives:
        root = root_of(cavity, self.basis)
        terms = self._terms(cavity, root)
        value = logsumexp(terms, axis=0)
        weights = jnp.exp(terms - value)
        mean = jnp.einsum("sn,snj->nj", weights, self.points)
        gap = self.points - mean
        spread = jnp.einsum("sni,snj->nij", weights[..., None] * gap, gap)
        identity = jnp.broadcast_to(jnp.eye(len(self.basis), dtype=root.dtype), root.shape)
        inverse = solve_triangular(root, identity, lower=True)
        precision = jnp.swapaxes(inverse, 1, 2) @ inverse
        first = jnp.einsum("nij,nj->ni", precision, mean - cavity.mean[0][..., self.basis])
        second = precision @ spread @ precision - precision
        rows, latents = cavity.mean.shape[1:]
        slope = jnp.zeros((rows, latents), first.dtype).at[:, self.basis].set(first)
        block = jnp.zeros((rows, latents, latents), first.dtype)
        block = block.at[:, self.basis[:, None], self.basis].set(0.5 * (second + jnp.swapaxes(second, 1, 2)))
        own = jnp.diagonal(block, axis1=1, axis2=2)
        return Derivatives(value, slope, own if cavity.covariance is None else block)


@dataclass(frozen=True)
class Corrected:
    """A sum over points of a surrogate, with the ratio of two others: log Z = whole + true - said."""

    whole: Together
    true: Together
    said: Together

    def __call__(self, cavity: Marginals) -> Float[Array, "rows"]:
        return self.whole(cavity) + self.true(cavity) - self.said(cavity)

    def derivatives(self, cavity: Marginals) -> Derivatives:
        whole, true, said = (each.derivatives(cavity) for each in (self.whole, self.true, self.said))
        return Derivatives(
            whole.value + true.value - said.value,
            whole.slope + true.slope - said.slope,
            whole.curvature + true.curvature - said.curvature,
        )


def root_of(q: Marginals, basis: np.ndarray) -> Float[Array, "rows J J"]:
    """Lower roots of the covariances of the latents that are no sums, row by row."""
    if q.covariance is not None:
        return block_root(q.covariance, basis)[0]
    return jnp.sqrt(q.variance[0][..., basis])[..., None] * jnp.eye(len(basis), dtype=q.mean.dtype)


LATTICE, FINER_LATTICE, FINEST_LATTICE = {1: 96, 2: 32}, 64, 96
"""Nodes per latent, by the number of latents integrated over together; of two where that was off; to tell how far."""

REACH = 8.0
"""Standard deviations of the cavity that a lattice covers on either side of its mean."""

AROUND, BEYOND = (-4.0, -1.0, 0.0, 1.0, 4.0), 60.0
"""Cuts in standard deviations of q, and the logarithm of how far an integrand may exceed its largest lattice value."""

LOG_2PI = float(np.log(2.0 * np.pi))


Parameters = Mapping[str, Array]

ByLatent = Callable[[Parameters, Array], tuple[Array, Array, Array]]
"""Of parameters and values of latents: `by_latent`."""


def columns_read(program: Program, symbol: sp.Symbol, axes: tuple[str, ...]) -> np.ndarray:
    """Which column of the marginals each element along the axes reads."""
    with jax.ensure_compile_time_eval():
        numbers = jnp.arange(program.latents)[None]
        return np.asarray(program.evaluator.of_latent(symbol, numbers, axes))[0]


def _line(count: int, reach: Array) -> tuple[Array, Array]:
    """Nodes z = sinh(t) and log weights of the trapezoidal rule in t for |z| <= reach, [nodes, *reach.shape]."""
    longest = jnp.arcsinh(reach)
    t = jnp.linspace(-1.0, 1.0, count, dtype=reach.dtype).reshape(-1, *(1,) * reach.ndim) * longest
    return jnp.sinh(t), jnp.log(jnp.cosh(t) * longest * (2.0 / (count - 1)))


def plane(program: Program, q: Marginals, cavity: Marginals, count: int | None = None) -> tuple[Array, Array]:
    """A lattice over all latents of a row: whitened nodes [S, 1, rows, latents] and log weights [S, rows]."""
    basis = basis_columns(program)
    gap = jnp.abs(cavity.mean[0] - q.mean[0])[:, basis]
    wide, here = jnp.sqrt(cavity.variance[0][:, basis]), jnp.sqrt(q.variance[0][:, basis])
    if q.covariance is not None:
        root = block_root(q.covariance, basis)[0]
        inverse = solve_triangular(
            root, jnp.broadcast_to(jnp.eye(len(basis), dtype=root.dtype), root.shape), lower=True
        )
        reach = jnp.sum(jnp.abs(inverse) * (gap + REACH * wide)[:, None, :], axis=2)
    else:
        reach = (gap + REACH * wide) / here
    z, log_weights = _line(count or LATTICE[len(basis)], reach)  # [nodes, rows, basis]
    index = np.stack([each.ravel() for each in np.indices((z.shape[0],) * len(basis))])
    chosen = jnp.stack([z[which, :, k] for k, which in enumerate(index)], axis=-1)  # [S, rows, basis]
    total = sum(log_weights[which, :, k] for k, which in enumerate(index))
    placed = jnp.zeros((*chosen.shape[:2], program.latents), chosen.dtype).at[..., basis].set(chosen)
    return placed[:, None], jnp.asarray(total)


def each_latent(power: float, density: ByLatent, parameters: Parameters, q: Marginals, cavity: Marginals) -> EachLatent:
    """A sum over a lattice for every latent by itself."""
    mean, variance = q.mean[0], q.variance[0]
    reach = (jnp.abs(cavity.mean[0] - mean) + REACH * jnp.sqrt(cavity.variance[0])) / jnp.sqrt(variance)
    z, log_weights = _line(LATTICE[1], reach)
    at = mean + jnp.sqrt(variance) * z  # [nodes, rows, latents]
    each, rest, read = density(parameters, at)
    behind = power * each + log_weights + 0.5 * (jnp.log(variance) - LOG_2PI)
    return EachLatent(at, behind, read, power * rest)


def each_steep_latent(
    power: float, density: ByLatent, parameters: Parameters, q: Marginals, cavity: Marginals
) -> EachLatent:
    """The same in pieces of the cavity that are halved until steep places are told apart."""
    held = jax.lax.stop_gradient(dict(parameters))
    quick = each_latent(power, density, held, q, cavity)
    mean, sd = cavity.mean[0], jnp.sqrt(cavity.variance[0])
    values = quick.behind - 0.5 * ((quick.nodes - mean) / sd) ** 2
    top = jnp.max(jnp.where(jnp.isnan(values), -jnp.inf, values), axis=0)
    centre, width = (q.mean[0] - mean) / sd, jnp.sqrt(q.variance[0]) / sd

    def integrand(z: Array) -> Array:
        return jnp.exp(jnp.minimum(power * density(held, mean + sd * z)[0] - top, BEYOND))

    z, weights = fine_nodes(integrand, [centre + k * width for k in AROUND])
    at = mean + sd * z
    each, rest, read = density(parameters, at)
    empty = weights <= 0
    behind = power * each + jnp.log(jnp.where(empty, 1.0, weights)) + jnp.log(sd) - 0.5 * LOG_2PI
    return EachLatent(at, jnp.where(empty, -jnp.inf, behind), read, power * rest)


def by_latent(program: Program, rows: Rows, parameters: Parameters, at: Array) -> tuple[Array, Array, Array]:
    """Log density at each latent's value [nodes, rows, latents], what no latent enters [rows], and which are read."""
    scope, shape = Scope(parameters, rows, at), at.shape
    each = jnp.zeros(shape, at.dtype)
    constant = jnp.zeros(shape[1], each.dtype)
    read = jnp.zeros(shape[1:], bool)
    for observation in program.observations:
        mask = observed_mask(scope.rows, observation)
        for term in observation.terms:
            values = program.evaluator(term.expression, scope, observation.axes)
            if not term.latents:
                constant = constant + row_sum(scope.rows, observation, values, (1, shape[1]))[0]
                continue
            full = (shape[0], *mask.shape)
            values = jnp.where(mask > 0, jnp.broadcast_to(values, full), 0.0).reshape(*shape[:2], -1)
            columns = np.broadcast_to(columns_read(program, term.latents[0], observation.axes), mask.shape[1:]).ravel()
            placed = jnp.asarray(np.eye(shape[2])[columns], each.dtype)  # [elements, latents]
            each = each + values @ placed
            read = read | ((mask.reshape(shape[1], -1) > 0).astype(each.dtype) @ placed > 0)
    return each, constant, read


def by_argument(
    program: Program, integrand: Integrand, rows: Rows, parameters: Parameters, at: Array
) -> tuple[Array, Array, Array]:
    """The same of the only argument of the only observation."""
    (observation,), (symbol,) = program.observations, integrand.symbols
    values = program.evaluator(integrand.expression, Scope(parameters, rows), (), {symbol: at[..., 0]})
    mask = observed_mask(rows, observation)
    each = jnp.where(mask > 0, jnp.broadcast_to(values, at.shape[:2]), 0.0)[..., None]
    return each, jnp.zeros_like(each[0, :, 0]), (mask > 0)[:, None]


def together(power: float, program: Program, scope: Scope, q: Marginals, z: Array, log_weights: Array) -> Together:
    """A sum over points of all latents of a row: the integral over z of the integrand at m + R z, times |R|.

    `scope` has what opaque functions give there.
    """
    basis = basis_columns(program)
    assert scope.latents is not None
    values = log_density(program, scope, z.shape[:3])[:, 0]
    log_det = jnp.sum(jnp.log(jnp.diagonal(root_of(q, basis), axis1=-2, axis2=-1)), axis=-1)
    behind = power * values + log_weights + log_det - 0.5 * len(basis) * LOG_2PI
    return Together(scope.latents[:, 0][..., basis], behind, basis)


def corrected(power: float, program: Program, scope: Scope, surrogate: Surrogate, whole: Together) -> Corrected:
    """What log Z_n of the true values adds to that of the surrogates: a ratio of sums over the points evaluated so far.

    These are reweighted from where they were drawn to the cavity. What a surrogate says at a point was learnt without
    it, and both sums have much the same error.
    """
    points, basis = surrogate.anchors, basis_columns(program)
    assert points is not None
    width, f = len(basis), points.latents[:, 0][..., basis]
    z = jnp.einsum("nij,snj->sni", surrogate.inverse[:, :width, :width], f - surrogate.centre[:, :width])
    behind = jnp.log(points.weights) + 0.5 * jnp.sum(z**2, axis=-1)

    def known(values: Mapping[str, Array]) -> Together:
        at = Scope(scope.parameters, scope.rows, points.latents, values)
        found = penalised(log_density(program, at, points.latents.shape[:3]), values)[:, 0]
        return Together(f, behind + power * found, basis)

    return Corrected(whole, known(points.true), known(points.said))
