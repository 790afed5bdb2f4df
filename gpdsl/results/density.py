"""Predictive log densities log E_q[p(y|f)]: exact where log p is quadratic, else by adaptive quadrature or samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from gpdsl.inference.estimators.expected_log_likelihood import gauss_hermite, log_density
from gpdsl.inference.fields.calls import field_samples
from gpdsl.inference.opaque.values import Values, arguments_of, evaluate_externals
from gpdsl.program.joint import column_roots
from gpdsl.results.expectation import Beliefs, sample_latents
from gpdsl.symbolic.coupling import quadratic
from gpdsl.symbolic.terms import has_external, latents_in
from gpdsl.symbolic.translate import ExternalUse

NEWTON_STEPS = 30
STEP_LENGTHS = tuple(0.25**k for k in range(8))
ADAPTIVE_NODES = {1: 40, 2: 24}
SAMPLES = 4096
OPAQUE_SAMPLES = 1024

RowFunction = Callable[[Float[Array, "rows involved"]], Float[Array, "rows"]]


def log_predictive(beliefs: Beliefs) -> Float[np.ndarray, "rows"]:
    """log p(y_n | data) at every row of `beliefs.rows`, which must hold the outputs."""
    program = beliefs.program
    densities = [o.log_density for o in program.observations]
    if program.fields or any(has_external(program.translator, d) for d in densities):
        return _opaque(beliefs)
    if "density" not in beliefs.compiled:
        involved = _columns(beliefs, densities)
        method = _method(beliefs, densities, involved)
        beliefs.compile("density", lambda numbers: method(beliefs.with_numbers(numbers), involved))
    compute = beliefs.compiled["density"]
    return _combine(beliefs, compute(beliefs.numbers()))


def _method(
    beliefs: Beliefs, densities: Sequence[sp.Expr], involved: Sequence[int]
) -> Callable[[Beliefs, list[int]], Array]:
    if quadratic(beliefs.program.translator, densities):
        return _gaussian
    return _adaptive if len(involved) <= max(ADAPTIVE_NODES) else _sampled


def _columns(beliefs: Beliefs, densities: Sequence[sp.Expr]) -> list[int]:
    """Columns of the latents the outputs depend on; generic reads stand for all their elements."""
    program, found = beliefs.program, set()
    for density in densities:
        for symbol in latents_in(program.translator, density):
            ref = program.translator.references[symbol]
            if all(isinstance(p, int) for p in ref.positions):
                found.add(program.evaluator.column(symbol))
            else:
                found.update(range(*program.evaluator.columns[ref.name, ref.reading]))
    return sorted(found)


def _row_function(beliefs: Beliefs, involved: list[int], component: int) -> RowFunction:
    """Log density of the rows as a function of the standard normals behind the involved latents."""
    index, base = jnp.asarray(involved, int), beliefs.marginals.mean[component]
    root = column_roots(beliefs.program, beliefs.marginals, component, involved) if involved else None

    def function(normals: Array) -> Array:
        moved = normals if root is None else jnp.einsum("nij,nj->ni", root, normals)
        latents = base.at[:, index].set(base[:, index] + moved)
        return log_density(beliefs.program, beliefs.scope(latents), (beliefs.count,))

    return function


def _gradients(function: RowFunction, values: Array) -> tuple[Array, Array, Array]:
    """Value [rows], gradient [rows, J] and Hessian [rows, J, J]; rows do not interact."""
    gradient = jax.grad(lambda v: jnp.sum(function(v)))
    directions = jnp.eye(values.shape[1], dtype=values.dtype)

    def along(direction: Array) -> Array:
        return jax.jvp(gradient, (values,), (jnp.broadcast_to(direction, values.shape),))[1]

    return function(values), gradient(values), jnp.stack([along(d) for d in directions], axis=-1)


def _gaussian(beliefs: Beliefs, involved: list[int]) -> Float[Array, "K rows"]:
    """log of int exp(quadratic) N: exact.

    With l(z) = l(0) + b'z - z'Az/2 for the standard normals z behind the latents: log E = l(0) + b'C^-1 b / 2 -
    log|C| / 2, C = I + A.
    """
    parts = []
    for k in range(len(beliefs.weights)):
        start = jnp.zeros((beliefs.count, len(involved)), beliefs.marginals.mean.dtype)
        value, b, hessian = _gradients(_row_function(beliefs, involved, k), start)
        c = jnp.eye(len(involved)) - hessian
        solved = jnp.linalg.solve(c, b[..., None])[..., 0]
        _, log_det = jnp.linalg.slogdet(c)
        parts.append(value + 0.5 * jnp.sum(b * solved, axis=1) - 0.5 * log_det)
    return jnp.stack(parts)


def _adaptive(beliefs: Beliefs, involved: list[int]) -> Float[Array, "K rows"]:
    """Gauss–Hermite quadrature centred and scaled at the mode of p(y|f) q(f), as a narrow likelihood needs."""
    parts = []
    nodes, weights = np.zeros((1, 0)), np.ones(1)
    if involved:
        nodes, weights = gauss_hermite(len(involved), ADAPTIVE_NODES[len(involved)])
    for k in range(len(beliefs.weights)):
        mean = jnp.zeros((beliefs.count, len(involved)), beliefs.marginals.mean.dtype)
        row = _row_function(beliefs, involved, k)
        parts.append(_around_mode(row, mean, jnp.ones_like(mean), jnp.asarray(nodes), jnp.asarray(weights)))
    return jnp.stack(parts)


def _around_mode(row: RowFunction, mean: Array, variance: Array, nodes: Array, weights: Array) -> Float[Array, "rows"]:
    """log E[exp(row(f))] for f ~ N(mean, variance), one node at a time to spare memory."""
    centre, width = _mode(row, mean, variance)
    prior = -0.5 * jnp.log(variance) + jnp.log(width)

    def at_node(carry: None, node: tuple[Array, Array]) -> tuple[None, Array]:
        z, log_weight = node
        at = centre + width * z
        log_q = jnp.sum(-0.5 * (at - mean) ** 2 / variance + prior, axis=1)
        return None, row(at) + log_q + 0.5 * jnp.sum(z**2) + log_weight

    _, values = jax.lax.scan(at_node, None, (nodes, jnp.log(weights)))
    return logsumexp(values, axis=0)


def _mode(function: RowFunction, mean: Array, variance: Array) -> tuple[Array, Array]:
    """Mode of function(f) + log N(f; mean, variance) by damped Newton steps, and the curvature's standard deviation."""

    def target(f: Array) -> Array:
        return function(f) - 0.5 * jnp.sum((f - mean) ** 2 / variance, axis=1)

    def step(number: int, f: Array) -> Array:
        del number
        _, slope, hessian = _gradients(function, f)
        curvature = 1.0 / variance + jnp.maximum(-jnp.diagonal(hessian, axis1=1, axis2=2), 0.0)
        move = (slope - (f - mean) / variance) / curvature
        best, here = f, target(f)
        for scale in STEP_LENGTHS:
            trial = f + scale * move
            there = target(trial)
            better = jnp.isfinite(there) & (there > here)
            best, here = jnp.where(better[:, None], trial, best), jnp.where(better, there, here)
        return best

    f = jax.lax.fori_loop(0, NEWTON_STEPS, step, mean)
    _, _, hessian = _gradients(function, f)
    curvature = 1.0 / variance + jnp.maximum(-jnp.diagonal(hessian, axis1=1, axis2=2), 0.0)
    return f, 1.0 / jnp.sqrt(curvature)


def _sampled(beliefs: Beliefs, involved: list[int]) -> Float[Array, "K rows"]:
    """log mean over samples of p(y|f), for several latents; SAVIGP section 7."""
    del involved
    return _mean_density(beliefs, *sample_latents(beliefs, SAMPLES, need_externals=False))


def _mean_density(beliefs: Beliefs, latents: Array, externals: dict[str, Array]) -> Float[Array, "K rows"]:
    shape = (*latents.shape[:2], beliefs.count)
    values = log_density(beliefs.program, beliefs.scope(latents, externals), shape)
    return logsumexp(values, axis=0) - jnp.log(values.shape[0])


def _opaque(beliefs: Beliefs) -> np.ndarray:
    """The same through opaque functions, which are called in between."""
    latents, externals = sample_latents(beliefs, OPAQUE_SAMPLES, need_externals=True)
    externals |= _likelihood_values(beliefs, latents, externals)
    return _combine(beliefs, _mean_density(beliefs, latents, externals))


def _likelihood_values(beliefs: Beliefs, latents: Array, externals: dict[str, Array]) -> dict[str, Array]:
    program = beliefs.program
    uses = [u for u in program.uses() if u.likelihood]
    if program.fields:
        return field_samples(program, uses, beliefs.parameters, beliefs.rows, latents[:, 0, 0], externals)[1]

    def arguments(use: ExternalUse, known: Values) -> list[Array]:
        return arguments_of(program, use, beliefs.parameters, beliefs.rows, latents, {**externals, **known})

    return evaluate_externals(program, uses, arguments)


def _combine(beliefs: Beliefs, per_component: Float[Array, "K rows"]) -> np.ndarray:
    return np.asarray(logsumexp(per_component, axis=0, b=jnp.asarray(beliefs.weights)[:, None]))
