"""Moments of the tilted distributions p(y_n|f_n)^alpha N(f_n | a_n, V_n) / Z_n, row by row.

All that expectation propagation needs of a likelihood is log Z_n and its first two derivatives in the cavity's mean
a_n. Z_n is closed form where the mathematics allows (`symbolic.tilted`), a sum over a lattice for one or two latents
that a row reads together, or over quasi-random points for more. The nodes f = m_n + R_n z lie about the current
marginals N(m_n, R_n R_n'), which the tilted distributions come close to; for fixed nodes the derivatives are exactly
those of the sum. The lattice is the trapezoidal rule in t, with z = sinh(t): dense where a narrow likelihood is, and
reaching as far as the cavity does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from gpdsl.inference.estimators.expected_log_likelihood import log_density, row_sum
from gpdsl.inference.estimators.sampling import base_normals
from gpdsl.program.joint import Marginals, basis_columns, block_root, moment_values
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows, Scope, observed_mask
from gpdsl.symbolic.gaussian import joint_moments_of, moments_of
from gpdsl.symbolic.terms import ObservationTerms
from gpdsl.symbolic.tilted import POWER, tilted_normaliser
from gpdsl.symbolic.translate import axis_key

LATTICE = {1: 96, 2: 32}
"""Nodes per latent, by the number of latents that are integrated over together."""

REACH = 8.0
"""Standard deviations of the cavity that a lattice covers on either side of its mean."""

RIDGE = 1e-9
"""Added to the covariance of a row's points, of which there may be fewer than latents."""

LOG_2PI = float(np.log(2.0 * np.pi))


@dataclass(frozen=True)
class Tilted:
    """How the tilted distributions of a program are integrated: `closed`, `quadrature` or `sampled`, and why.

    `separate` says that every factor of the likelihood reads one latent, so that each has a tilted distribution of its
    own; `formulas` are the closed forms, one per observation.
    """

    method: str
    reason: str
    power: float
    separate: bool
    formulas: tuple[sp.Expr, ...] = ()

    def normals(self, key: Array, samples: int, rows: int, latents: int) -> Float[Array, "S 1 rows latents"] | None:
        """Base points of the `sampled` method, the same at every call with one key.

        Each row's are symmetric and have the identity as covariance, so that a tilted distribution that is q itself
        has exactly q's moments. Without it q shrinks, by what points vary too little, from sweep to sweep.
        """
        if self.method != "sampled":
            return None
        half = base_normals(key, -(-samples // 2), 1, rows, latents)
        covariance = jnp.einsum("sknj,sknl->knjl", half, half) / half.shape[0]
        root = jnp.linalg.cholesky(covariance + RIDGE * jnp.eye(latents, dtype=half.dtype))
        even = solve_triangular(root, jnp.moveaxis(half, 0, -1), lower=True)
        even = jnp.moveaxis(even, -1, 0)
        return jnp.concatenate([even, -even])


def choose_tilted(program: Program, power: float, expectations: str) -> Tilted:
    """The method for a program's likelihood at this power."""
    separate = not program.coupled and _separate(program)
    if expectations == "sampled":
        return Tilted("sampled", "as asked", power, False)
    if expectations == "auto" and not _overlapping(program):
        found = [_closed_form(program, each, power) for each in program.observations]
        if all(each is not None for each in found):
            formulas = tuple(each for each in found if each is not None)
            return Tilted(
                "closed", "the normaliser of the tilted distribution has a formula", power, separate, formulas
            )
    if separate:
        return Tilted("quadrature", "every factor reads one latent", power, True)
    if len(basis_columns(program)) <= 2 and expectations != "closed":
        return Tilted("quadrature", "a row reads two latents", power, False)
    return Tilted("sampled", f"a row reads {len(basis_columns(program))} latents together", power, False)


def _closed_form(program: Program, observation: ObservationTerms, power: float) -> sp.Expr | None:
    latents = tuple({s: None for term in observation.terms for s in term.latents})
    moments = joint_moments_of(latents) if program.coupled else moments_of(latents)
    return tilted_normaliser(observation.log_density, latents, moments, power)


def _separate(program: Program) -> bool:
    """Whether every term reads a single value of a single latent, and none of a sum of values."""
    single = all(len(term.latents) <= 1 for o in program.observations for term in o.terms)
    return single and not any(group.readings.sums for group in program.groups)


def _columns(program: Program, symbol: sp.Symbol, axes: tuple[str, ...]) -> np.ndarray:
    """Which column of the marginals each element along the axes reads."""
    with jax.ensure_compile_time_eval():
        numbers = jnp.arange(program.latents)[None]
        return np.asarray(program.evaluator.of_latent(symbol, numbers, axes))[0]


def _overlapping(program: Program) -> bool:
    """Whether two factors of a row read the same latent, which couples their tilted distributions."""
    seen: list[int] = []
    for observation in program.observations:
        latents = {s for term in observation.terms for s in term.latents}
        declared = program.declarations.outputs[observation.outputs[0]].axes
        sizes = {axis_key(axis): program.translator.size(axis) for axis in declared}
        shape = tuple(sizes[key] for key in observation.axes)
        read = [np.broadcast_to(_columns(program, s, observation.axes), shape).ravel() for s in latents]
        for element in np.stack(read, axis=1) if read else []:
            seen += sorted(set(element.tolist()))
    return len(seen) != len(set(seen))


@dataclass(frozen=True)
class Derivatives:
    """log Z_n of each row, and its gradient and (block of) second derivatives in the mean of the cavity."""

    value: Float[Array, "rows"]
    slope: Float[Array, "rows latents"]
    curvature: Float[Array, "rows latents"] | Float[Array, "rows latents latents"]


Normaliser = Callable[[Marginals], Float[Array, "rows"]]


def normaliser(
    tilted: Tilted,
    program: Program,
    parameters: Mapping[str, Array],
    rows: Rows,
    q: Marginals,
    cavity: Marginals,
    normals: Float[Array, "S 1 rows latents"] | None,
) -> Normaliser:
    """log Z_n as a function of the cavities; nodes are placed for the current marginals `q` and cavities."""
    scope = Scope(parameters, rows)
    if tilted.method == "closed":
        return lambda cavity: _closed(tilted, program, scope, cavity)
    q, cavity = jax.lax.stop_gradient((q, cavity))
    if tilted.separate:
        return _each_latent(tilted, program, scope, q, cavity)
    if tilted.method == "quadrature":
        z, log_weights = _plane(program, q, cavity)
        return _together(tilted, program, scope, q, z, log_weights)
    assert normals is not None
    squares = jnp.sum(normals[:, 0][..., basis_columns(program)] ** 2, axis=-1)
    log_weights = 0.5 * (squares + len(basis_columns(program)) * LOG_2PI) - np.log(normals.shape[0])
    return _together(tilted, program, scope, q, normals, log_weights)


def _line(count: int, reach: Array) -> tuple[Array, Array]:
    """Nodes z = sinh(t) and log weights of the trapezoidal rule in t for |z| <= reach, [nodes, *reach.shape]."""
    longest = jnp.arcsinh(reach)
    t = jnp.linspace(-1.0, 1.0, count, dtype=reach.dtype).reshape(-1, *(1,) * reach.ndim) * longest
    return jnp.sinh(t), jnp.log(jnp.cosh(t) * longest * (2.0 / (count - 1)))


def _plane(program: Program, q: Marginals, cavity: Marginals) -> tuple[Array, Array]:
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
    z, log_weights = _line(LATTICE[len(basis)], reach)  # [nodes, rows, basis]
    index = np.stack([each.ravel() for each in np.indices((z.shape[0],) * len(basis))])
    chosen = jnp.stack([z[which, :, k] for k, which in enumerate(index)], axis=-1)  # [S, rows, basis]
    total = sum(log_weights[which, :, k] for k, which in enumerate(index))
    placed = jnp.zeros((*chosen.shape[:2], program.latents), chosen.dtype).at[..., basis].set(chosen)
    return placed[:, None], jnp.asarray(total)


def derivatives(log_z: Normaliser, cavity: Marginals, separate: bool) -> Derivatives:
    """log Z and its derivatives in the cavity's mean."""

    def at(mean: Array) -> Array:
        return log_z(Marginals(mean[None], cavity.variance, cavity.covariance))

    def slope(mean: Array) -> Array:
        return jax.grad(lambda m: jnp.sum(at(m)))(mean)

    mean = cavity.mean[0]
    along = jnp.eye(mean.shape[1], dtype=mean.dtype)
    if separate:
        first, curvature = jax.jvp(slope, (mean,), (jnp.ones_like(mean),))
        return Derivatives(at(mean), first, curvature)
    first, second = jax.vmap(lambda e: jax.jvp(slope, (mean,), (jnp.broadcast_to(e, mean.shape),)), out_axes=(None, 2))(
        along
    )
    block = 0.5 * (second + jnp.swapaxes(second, 1, 2))
    own = jnp.diagonal(block, axis1=1, axis2=2)
    return Derivatives(at(mean), first, own if cavity.covariance is None else block)


def _closed(tilted: Tilted, program: Program, scope: Scope, cavity: Marginals) -> Float[Array, "rows"]:
    total: Array = jnp.zeros(cavity.mean.shape[:2], cavity.mean.dtype)
    for observation, formula in zip(program.observations, tilted.formulas, strict=True):
        latents = tuple({s: None for term in observation.terms for s in term.latents})
        given = moment_values(program, latents, cavity, observation.axes, formula.free_symbols)
        given[POWER] = jnp.asarray(tilted.power, cavity.mean.dtype)
        values = program.evaluator(formula, scope, observation.axes, given)
        total = total + row_sum(scope.rows, observation, values, total.shape)
    return total[0]


def _each_latent(tilted: Tilted, program: Program, scope: Scope, q: Marginals, cavity: Marginals) -> Normaliser:
    """A sum over a lattice for every latent by itself."""
    mean, variance = q.mean[0], q.variance[0]
    reach = (jnp.abs(cavity.mean[0] - mean) + REACH * jnp.sqrt(cavity.variance[0])) / jnp.sqrt(variance)
    z, log_weights = _line(LATTICE[1], reach)
    at = mean + jnp.sqrt(variance) * z  # [nodes, rows, latents]
    each, constant, read = _by_latent(program, Scope(scope.parameters, scope.rows, at), at.shape)
    behind = tilted.power * each + log_weights + 0.5 * (jnp.log(variance) - LOG_2PI)

    def log_z(cavity: Marginals) -> Array:
        a, v = cavity.mean[0], cavity.variance[0]
        terms = behind - 0.5 * ((at - a) ** 2 / v + jnp.log(v))
        return jnp.sum(jnp.where(read, logsumexp(terms, axis=0), 0.0), axis=1) + tilted.power * constant

    return log_z


def _by_latent(program: Program, scope: Scope, shape: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """Log density at each latent's value [nodes, rows, latents], what no latent enters [rows], and which are read."""
    each = jnp.zeros(shape, scope.latents.dtype if scope.latents is not None else float)
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
            columns = np.broadcast_to(_columns(program, term.latents[0], observation.axes), mask.shape[1:]).ravel()
            placed = jnp.asarray(np.eye(shape[2])[columns], each.dtype)  # [elements, latents]
            each = each + values @ placed
            read = read | ((mask.reshape(shape[1], -1) > 0).astype(each.dtype) @ placed > 0)
    return each, constant, read


def _together(tilted: Tilted, program: Program, scope: Scope, q: Marginals, z: Array, log_weights: Array) -> Normaliser:
    """A sum over points of all latents of a row: the integral over z of the integrand at m + R z, times |R|."""
    basis = basis_columns(program)
    at = q.at(program, z)
    values = log_density(program, Scope(scope.parameters, scope.rows, at), z.shape[:3])[:, 0]
    f = at[:, 0][..., basis]
    behind = tilted.power * values + log_weights + _log_root(q, basis) - 0.5 * len(basis) * LOG_2PI

    def log_z(cavity: Marginals) -> Array:
        gap = f - cavity.mean[0][..., basis]
        if cavity.covariance is None:
            scaled = gap / jnp.sqrt(cavity.variance[0][..., basis])
        else:
            root = block_root(cavity.covariance, basis)[0]
            scaled = solve_triangular(root, jnp.moveaxis(gap, 0, -1), lower=True)
            scaled = jnp.moveaxis(scaled, -1, 0)
        return logsumexp(behind - 0.5 * jnp.sum(scaled**2, axis=-1) - _log_root(cavity, basis), axis=0)

    return log_z


def _log_root(q: Marginals, basis: np.ndarray) -> Float[Array, "rows"]:
    """Half the log determinant of the covariance of the latents that are no sums."""
    if q.covariance is None:
        return 0.5 * jnp.sum(jnp.log(q.variance[0][..., basis]), axis=-1)
    root = block_root(q.covariance, basis)[0]
    return jnp.sum(jnp.log(jnp.diagonal(root, axis1=-2, axis2=-1)), axis=-1)


def nodes_of(tilted: Tilted, program: Program, samples: int) -> int:
    """How often the likelihood of a row is evaluated in one sweep."""
    if tilted.method == "closed":
        return 1
    latents = 1 if tilted.separate else len(basis_columns(program))
    return LATTICE[latents] ** latents if tilted.method == "quadrature" else samples
