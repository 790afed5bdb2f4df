"""Predictions given outputs of some rows: the posterior at fixed parameters, conditioned on what they were.

Under each component of q the latents at the known and the new rows are jointly Gaussian, N(m, K). Known outputs stand
in it by Gaussian sites of their rows, with the precision Lambda_n = -2 dL/dV_n and the slope dL/dm_n of the expected
log likelihood L at the moments that they lead to: the best Gaussian by natural gradients (Khan and Lin, 2017), exact
and reached in one step where outputs are normal about something linear in the latents. Bounds weigh the components.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from gpdsl.data import Data
from gpdsl.errors import GpdslError
from gpdsl.inference.expected_log_likelihood import expected_log_likelihood
from gpdsl.inference.posteriors.coupled import MOST, Block
from gpdsl.inference.posteriors.posterior import Posterior
from gpdsl.inference.sampling import base_normals
from gpdsl.program.joint import Marginals, basis_columns, with_sums
from gpdsl.program.program import Program
from gpdsl.results import expectation as ex

Array = np.ndarray

STEPS, SHORTEST, AT_REST, ROUNDING = 200, 1e-6, 1e-10, 8.0
"""Updates of sites at most, the shortest of them, the relative change of the bound that ends them, and roundings of the
first bound that later ones may be off."""

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


def conditioned(beliefs: ex.Beliefs, count: int, posterior: Posterior) -> ex.Beliefs:
    """Beliefs about all rows but the first `count`, whose outputs are known. Raises GpdslError for too many rows."""
    program = beliefs.program
    if beliefs.marginals.together or program.declarations.rows or program.uses():
        what = "row variables" if program.declarations.rows else "opaque functions" if program.uses() else "fields"
        raise GpdslError(
            f"given: a model with {what} cannot be conditioned further; fit the rows of both together, "
            "model.fit(data, start=fit), which begins where this fit has ended"
        )
    known = beliefs.part(slice(0, count))
    if not any(np.any(np.asarray(each)) for each in known.rows.observed.values()):
        names = ", ".join(f"`{name}`" for name in program.declarations.outputs)
        raise GpdslError(
            f"given: no output is observed in these rows; expected values of {names}, or leave `given` out"
        )
    if not program.latents:
        raise GpdslError("given: this model has no latents, by which rows tell of each other: leave `given` out")
    if program.inner:
        from gpdsl.results.given_layers import weighed

        return weighed(beliefs, count, posterior)
    program = program.coupling
    columns = basis_columns(program)
    latents, means = len(columns), np.asarray(beliefs.marginals.mean, float)[..., columns]
    covariance = _covariances(beliefs, latents)
    told = conditional(means, covariance[..., :count], range(latents), expected_of(known, program))
    covariance = told.covariance(covariance[:, :, count:, :, count:])
    weights = np.log(beliefs.weights) + told.bound
    weights = np.exp(weights - weights.max())
    block, dtype = Block(tuple(range(latents)), covariance), beliefs.marginals.mean.dtype
    among = np.einsum("kcndn->kncd", covariance)
    return replace(
        beliefs.part(slice(count, beliefs.count)),
        program=program,
        marginals=marginals_of(program, jnp.asarray(told.mean, dtype), jnp.asarray(among, dtype)),
        weights=weights / weights.sum(),
        start=0,
        blocks=lambda: [block],
        drawn=None,
    )


@dataclass(frozen=True, eq=False)
class Conditional:
    """The latents of new rows given the known ones, under each component.

    Covariances are the prior ones - A A' + B B', of `columns` times rows: A is what known rows tell of new ones before
    their outputs are known, B what outputs leave of it. `bound` is that of the evidence of these.
    """

    mean: Float[Array, "K rows latents"]
    before: Float[Array, "K columns rows rank"]
    after: Float[Array, "K columns rows rank"]
    bound: Float[Array, " K"]

    def covariance(
        self, prior: Float[Array, "K columns rows columns rows"]
    ) -> Float[Array, "K columns rows columns rows"]:
        """Of all new rows together."""
        before, after = (a.reshape(len(a), -1, a.shape[-1]) for a in (self.before, self.after))
        return prior - (before @ _turned(before) - after @ _turned(after)).reshape(prior.shape)

    def part(self, index: np.ndarray) -> Conditional:
        """Of some components."""
        return Conditional(self.mean[index], self.before[index], self.after[index], self.bound[index])

    def among(self, prior: Float[Array, "K rows columns columns"]) -> Float[Array, "K rows columns columns"]:
        """Of the latents in each new row."""
        before, after = (np.swapaxes(a, 1, 2) for a in (self.before, self.after))
        return prior - before @ _turned(before) + after @ _turned(after)


def conditional(
    mean: Float[Array, "K every latents"],
    covariance: Float[Array, "K columns every columns known"],
    columns: Sequence[int],
    expected: Expected,
) -> Conditional:
    """Of all rows but the first, which are known, by covariances with these.

    Latents that are not among the `columns` are what they are. Raises GpdslError for outputs that do not settle.
    """
    (components, width, _), count, own = covariance.shape[:3], covariance.shape[-1], list(columns)
    values, vectors = np.linalg.eigh(covariance[:, :, :count].reshape(components, width * count, -1))
    free = values > DEPENDENT * values[:, -1:]
    some = free.any(axis=0)
    free, vectors = free[:, None, some], vectors[:, :, some]
    roots = np.sqrt(np.where(free, values[:, None, some], 1.0))
    root = np.zeros((components, mean.shape[-1], count, vectors.shape[-1]))
    root[:, own] = np.where(free, vectors * roots, 0.0).reshape(components, width, count, -1)
    sites = _settled(Known(mean[:, :count], root, expected))
    before = covariance[:, :, count:].reshape(components, -1, width * count) @ np.where(free, vectors / roots, 0.0)
    after, moved = before @ _turned(sites.inverse), np.array(mean[:, count:])
    moved[..., own] += np.swapaxes((before @ sites.mean[..., None]).reshape(components, width, -1), 1, 2)
    shape = components, width, mean.shape[1] - count, before.shape[-1]
    return Conditional(moved, before.reshape(shape), after.reshape(shape), sites.bound)


def _turned(a: Array) -> Array:
    return np.swapaxes(a, -1, -2)


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


def marginals_of(
    program: Program, mean: Float[jax.Array, "K rows latents"], covariance: Float[jax.Array, "K rows latents latents"]
) -> Marginals:
    """Row by row, with all sums of readings."""
    every = with_sums(program, jnp.eye(mean.shape[-1], dtype=mean.dtype))
    among = jnp.einsum("ca,kncd,db->knab", every, covariance, every)
    return Marginals(mean @ every, jnp.diagonal(among, axis1=2, axis2=3), among)


Expected = Callable[[Array, Array], tuple[Array, tuple[Array, Array]]]
"""The expected log likelihood [K] of the known rows, and its gradients, by means [K, rows, latents] and covariances."""


def expected_of(known: ex.Beliefs, program: Program) -> Expected:
    """Of known rows. `program` has its expectations under one Gaussian of all latents."""
    dtype, shape = known.marginals.mean.dtype, (known.count, program.latents)
    normals = base_normals(jax.random.key(known.seed), SAMPLES, 1, *shape) if program.sampled else None

    def value(moments: tuple[jax.Array, jax.Array], beliefs: ex.Beliefs) -> tuple[jax.Array, jax.Array]:
        q = marginals_of(program, *moments)
        same = None if normals is None else jnp.broadcast_to(normals, (SAMPLES, len(q.mean), *shape))
        found = expected_log_likelihood(program, beliefs.parameters, beliefs.rows, q, same)
        each = jnp.sum(jnp.broadcast_to(found, q.mean.shape[:2]), axis=1)
        return jnp.sum(each), each

    both = known.compile("given", lambda beliefs, moments: jax.value_and_grad(value, has_aux=True)(moments, beliefs))

    def computed(mean: Array, covariance: Array) -> tuple[Array, tuple[Array, Array]]:
        (_, found), slopes = both((jnp.asarray(mean, dtype), jnp.asarray(covariance, dtype)))
        return np.asarray(found, float), tuple(np.asarray(each, float) for each in slopes)  # type: ignore[return-value]

    return computed


@dataclass(frozen=True, eq=False)
class Known:
    """The latents of known rows before: their means, a root of their covariance, and what the outputs say of them."""

    mean: Float[Array, "K rows latents"]
    root: Float[Array, "K latents rows rank"]
    expected: Expected


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Settled:
    """q(z) of f = m + R z given sites: mean, L^-1 of the precision L L', bounds, and the sites that would follow.

    All of it is NaN where the precision is not positive definite.
    """

    mean: Float[Array, "K rank"]
    inverse: Float[Array, "K rank rank"]
    bound: Float[Array, " K"]
    target: tuple[Float[Array, "K rows latents"], Float[Array, "K rows latents latents"]]


def _at(known: Known, linear: Array, precision: Array) -> Settled:
    """P = I + R' Lambda R, mean P^-1 R' (lambda - Lambda m)."""
    root, rank = known.root, known.root.shape[-1]
    flat = root.reshape(len(root), -1, rank)
    weighted = np.einsum("knlm,kmnr->klnr", precision, root).reshape(flat.shape)
    factor = _factors(np.eye(rank) + _turned(flat) @ weighted)
    inverse = np.linalg.inv(factor)
    away = linear - np.einsum("knlm,knm->knl", precision, known.mean)
    mean = np.einsum("ksr,kst,kt->kr", inverse, inverse, np.einsum("klnr,knl->kr", root, away), optimize=True)
    spread = (flat @ _turned(inverse)).reshape(root.shape)
    moments = known.mean + np.einsum("klnr,kr->knl", root, mean), np.einsum("klnr,kmnr->knlm", spread, spread)
    value, (slope, bend) = known.expected(*moments)
    divergence = 0.5 * (np.sum(inverse**2, axis=(1, 2)) + np.sum(mean**2, axis=1) - rank)
    divergence += np.sum(np.log(np.diagonal(factor, axis1=1, axis2=2)), axis=1)
    told = -(bend + _turned(bend))
    target = slope + np.einsum("knlm,knm->knl", told, moments[0]), told
    return Settled(mean, inverse, value - divergence, target)


def _factors(precision: Float[Array, "K rank rank"]) -> Float[Array, "K rank rank"]:
    """Their Cholesky factors, NaN of those that have none."""
    with suppress(np.linalg.LinAlgError):
        return np.linalg.cholesky(precision)
    found = np.full_like(precision, np.nan)
    for factor, each in zip(found, precision, strict=True):
        with suppress(np.linalg.LinAlgError):
            factor[:] = np.linalg.cholesky(each)
    return found


def _settled(known: Known) -> Settled:
    """The sites at rest, of each component: full steps, shorter ones where its bound would fall."""
    components, count, latents = known.mean.shape
    sites: tuple[Array, Array] = np.zeros((components, count, latents)), np.zeros((components, count, latents, latents))
    now, step, over = _at(known, *sites), np.ones(components), np.zeros(components, bool)
    rounding = ROUNDING * np.finfo(float).eps * np.abs(now.bound)  # later ones are differences of numbers as large
    for _ in range(STEPS):
        tried = jax.tree.map(lambda old, new: old + _beside(step, old) * (new - old), sites, now.target)  # noqa: B023
        found, slack = _at(known, *tried), np.maximum(AT_REST * np.maximum(1.0, np.abs(now.bound)), rounding)
        gain = found.bound - now.bound
        better = gain >= -slack
        taken, ended = better & ~over, np.where(better, (step == 1.0) & (gain < slack), step < SHORTEST)
        sites, now = jax.tree.map(lambda a, b: np.where(_beside(taken, a), a, b), (tried, found), (sites, now))  # noqa: B023
        over |= ended
        if over.all():
            return now
        step = np.where(better, np.minimum(1.0, 2.0 * step), 0.5 * step)
    raise GpdslError("given: these outputs do not settle; fit all rows together, `model.fit(all_rows, start=fit)`")


def _beside(each: Array, of: Array) -> Array:
    """A number of each component, shaped to stand beside arrays of these."""
    return each.reshape(-1, *(1,) * (of.ndim - 1))
