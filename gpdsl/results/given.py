"""Predictions given outputs of some rows: the posterior at fixed parameters, conditioned on what they were.

Under each component of q the latents at the known and the new rows are jointly Gaussian, N(m, K). Known outputs stand
in it by Gaussian sites of their rows, with the precision Lambda_n = -2 dL/dV_n and the slope dL/dm_n of the expected
log likelihood L at the moments that they lead to: the best Gaussian by natural gradients (Khan and Lin, 2017), exact
and reached in one step where outputs are normal about something linear in the latents. Bounds weigh the components.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.linalg import cho_solve, solve_triangular

from gpdsl.data import Data
from gpdsl.errors import GpdslError
from gpdsl.inference.estimators.expected_log_likelihood import expected_log_likelihood
from gpdsl.inference.estimators.sampling import base_normals
from gpdsl.inference.posteriors.coupled import MOST, Block
from gpdsl.program.joint import Marginals, basis_columns, with_sums
from gpdsl.program.program import Program
from gpdsl.results import expectation as ex

Array = np.ndarray

STEPS, SHORTEST, AT_REST = 200, 1e-6, 1e-10
"""Updates of sites at most, the shortest of them, and the relative change of the bound that ends them."""

SAMPLES = 1024
"""Of expected log likelihoods without formula or quadrature."""

DEPENDENT = 1e-13
"""Share of the largest variance below which a direction of the known latents follows from the others."""


def joined(program: Program, known: Data, new: Data) -> Data:
    """Known rows and then new ones, of which no output is observed; nor are those that the known rows leave out."""
    d, outputs, observed = program.declarations, dict(known.outputs), dict(known.observed)
    for name in d.outputs.keys() - outputs.keys():
        outputs[name] = np.zeros((known.rows, *program.translator.shape(d.axes_of(name))))
        observed[name] = np.zeros(outputs[name].shape, bool)

    def both(one: Mapping[str, Array], other: Mapping[str, Array]) -> dict[str, Array]:
        blank = {name: np.zeros((new.rows, *values.shape[1:]), values.dtype) for name, values in one.items()}
        return {name: np.concatenate([values, other.get(name, blank[name])]) for name, values in one.items()}

    return replace(
        known,
        rows=known.rows + new.rows,
        inputs=both(known.inputs, new.inputs),
        outputs=both(outputs, {}),
        observed=both(observed, {}),
        moments=both(known.moments, new.moments),
    )


def conditioned(beliefs: ex.Beliefs, count: int) -> ex.Beliefs:
    """Beliefs about all rows but the first `count`, whose outputs are known. Raises GpdslError for too many rows."""
    program = beliefs.program
    if beliefs.marginals.together or program.declarations.rows or program.uses():
        raise GpdslError("given: a model with fields, row variables or opaque functions cannot be conditioned further")
    known = beliefs.part(slice(0, count))
    if not any(np.any(np.asarray(each)) for each in known.rows.observed.values()):
        names = ", ".join(f"`{name}`" for name in program.declarations.outputs)
        raise GpdslError(
            f"given: no output is observed in these rows; expected values of {names}, or leave `given` out"
        )
    if not program.latents:
        raise GpdslError("given: this model has no latents, by which rows tell of each other: leave `given` out")
    program = program.coupling
    latents, rows = len(basis_columns(program)), beliefs.count - count
    means = np.asarray(beliefs.marginals.mean, float)[..., basis_columns(program)]
    expected, moved, left, bounds = _expected(known, program), [], [], []
    for mean, covariance in zip(means, _covariances(beliefs, latents), strict=True):
        values, vectors = np.linalg.eigh(covariance[:, :count, :, :count].reshape(latents * count, -1))
        free = values > DEPENDENT * values[-1]
        roots, vectors = np.sqrt(values[free]), vectors[:, free]
        sites = _settled(Known(mean[:count], (vectors * roots).reshape(latents, count, -1), expected))
        across = covariance[:, count:, :, :count].reshape(latents * rows, -1) @ vectors / roots
        kept = solve_triangular(sites.factor, across.T, lower=True)
        moved.append(mean[count:] + (across @ sites.mean).reshape(latents, rows).T)
        new = covariance[:, count:, :, count:].reshape(latents * rows, -1) - across @ across.T + kept.T @ kept
        left.append(new.reshape(latents, rows, latents, rows))
        bounds.append(sites.bound)
    weights = np.log(beliefs.weights) + np.asarray(bounds)
    weights = np.exp(weights - weights.max())
    block, dtype = Block(tuple(range(latents)), np.stack(left)), beliefs.marginals.mean.dtype
    among = np.einsum("kcndn->kncd", block.covariance)
    return replace(
        beliefs.part(slice(count, beliefs.count)),
        program=program,
        marginals=_marginals(program, jnp.asarray(np.stack(moved), dtype), jnp.asarray(among, dtype)),
        weights=weights / weights.sum(),
        start=0,
        blocks=lambda: [block],
    )


def _covariances(beliefs: ex.Beliefs, latents: int) -> Float[Array, "K latents rows latents rows"]:
    """Of all latents at all rows, those of different blocks independent."""
    assert beliefs.blocks is not None
    components, rows = len(beliefs.weights), beliefs.count
    if components * (latents * rows) ** 2 > MOST:
        most = int((MOST / components) ** 0.5 / latents)
        raise GpdslError(
            f"given: {rows} rows, known and new, are too many for joint covariances; this model takes {most}"
        )
    found = np.zeros((components, latents, rows, latents, rows))
    for block in beliefs.blocks():
        for i, one in enumerate(block.columns):
            for j, other in enumerate(block.columns):
                found[:, one, :, other] = block.covariance[:, i, :, j]
    return found


def _marginals(
    program: Program, mean: Float[jax.Array, "K rows latents"], covariance: Float[jax.Array, "K rows latents latents"]
) -> Marginals:
    """Row by row, with all sums of readings."""
    every = with_sums(program, jnp.eye(mean.shape[-1], dtype=mean.dtype))
    among = jnp.einsum("ca,kncd,db->knab", every, covariance, every)
    return Marginals(mean @ every, jnp.diagonal(among, axis1=2, axis2=3), among)


Expected = Callable[[Array, Array], tuple[float, tuple[Array, Array]]]
"""The expected log likelihood of the known rows by means and covariances of their latents, and its gradients."""


def _expected(known: ex.Beliefs, program: Program) -> Expected:
    dtype, shape = known.marginals.mean.dtype, (known.count, program.latents)
    normals = base_normals(jax.random.key(known.seed), SAMPLES, 1, *shape) if program.sampled else None

    def value(moments: tuple[jax.Array, jax.Array], beliefs: ex.Beliefs) -> jax.Array:
        q = _marginals(program, moments[0][None], moments[1][None])
        return jnp.sum(expected_log_likelihood(program, beliefs.parameters, beliefs.rows, q, normals))

    both = known.compile("given", lambda beliefs, moments: jax.value_and_grad(value)(moments, beliefs))

    def computed(mean: Array, covariance: Array) -> tuple[float, tuple[Array, Array]]:
        found, slopes = both((jnp.asarray(mean, dtype), jnp.asarray(covariance, dtype)))
        return float(found), tuple(np.asarray(each, float) for each in slopes)  # type: ignore[return-value]

    return computed


@dataclass(frozen=True, eq=False)
class Known:
    """The latents of known rows before: their means, a root of their covariance, and what the outputs say of them."""

    mean: Float[Array, "rows latents"]
    root: Float[Array, "latents rows rank"]
    expected: Expected


@dataclass(frozen=True, eq=False)
class Settled:
    """q(z) of f = m + R z given sites: mean, factor of the precision, the bound, and the sites that would follow."""

    mean: Float[Array, " rank"]
    factor: Float[Array, "rank rank"]
    bound: float
    target: tuple[Float[Array, "rows latents"], Float[Array, "rows latents latents"]]


def _at(known: Known, linear: Array, precision: Array) -> Settled:
    """P = I + R' Lambda R, mean P^-1 R' (lambda - Lambda m). Raises LinAlgError where P is not positive definite."""
    root, rank = known.root, known.root.shape[-1]
    weighted = np.einsum("nlm,mnr->lnr", precision, root).reshape(-1, rank)
    factor = np.linalg.cholesky(np.eye(rank) + root.reshape(-1, rank).T @ weighted)
    away = linear - np.einsum("nlm,nm->nl", precision, known.mean)
    mean = cho_solve((factor, True), np.einsum("lnr,nl->r", root, away))
    spread = solve_triangular(factor, root.reshape(-1, rank).T, lower=True).reshape(rank, *root.shape[:2])
    moments = known.mean + np.einsum("lnr,r->nl", root, mean), np.einsum("rln,rmn->nlm", spread, spread)
    value, (slope, bend) = known.expected(*moments)
    inverse = solve_triangular(factor, np.eye(rank), lower=True)
    divergence = 0.5 * (np.sum(inverse**2) + mean @ mean - rank) + np.sum(np.log(np.diagonal(factor)))
    told = -(bend + np.swapaxes(bend, 1, 2))
    target = slope + np.einsum("nlm,nm->nl", told, moments[0]), told
    return Settled(mean, factor, value - divergence, target)


def _settled(known: Known) -> Settled:
    """The sites at rest: full steps, shorter ones where the bound would fall."""
    count, latents = known.mean.shape
    sites: tuple[Array, Array] = np.zeros((count, latents)), np.zeros((count, latents, latents))
    now, step = _at(known, *sites), 1.0
    for _ in range(STEPS):
        tried = tuple(old + step * (new - old) for old, new in zip(sites, now.target, strict=True))
        slack = AT_REST * max(1.0, abs(now.bound))
        try:
            found = _at(known, *tried)
            better = found.bound >= now.bound - slack
        except np.linalg.LinAlgError:
            better = False
        if better:
            gain, full = found.bound - now.bound, step == 1.0
            sites, now, step = tried, found, min(1.0, 2.0 * step)  # type: ignore[assignment]
            if full and gain < slack:
                return now
        elif step < SHORTEST:
            return now
        else:
            step *= 0.5
    raise GpdslError("given: these outputs do not settle; fit all rows together, `model.fit(all_rows, start=fit)`")
