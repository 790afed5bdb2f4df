"""Predictions given outputs of some rows: the posterior at fixed parameters, conditioned on normal observations.

The latents at the known and the new rows are jointly Gaussian under each component of q, and outputs that are normal
about something linear in them are too. What is known moves the means, narrows the covariances, and weighs components.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.linalg import cho_solve, cholesky, solve_triangular

from gpdsl.data import Data
from gpdsl.errors import GpdslError
from gpdsl.inference.posteriors.over_rows import MOST, Block
from gpdsl.lowering.table import align
from gpdsl.program.joint import Marginals, basis_columns, with_sums
from gpdsl.results import expectation as ex
from gpdsl.results.covariances import NotLinearError, noise_of, slopes_of
from gpdsl.symbolic.terms import ObservationTerms, latents_in

Array = np.ndarray


def joined(known: Data, new: Data) -> Data:
    """Known rows and then new ones, of which no output is observed."""

    def both(one: Mapping[str, Array], other: Mapping[str, Array]) -> dict[str, Array]:
        blank = {name: np.zeros((new.rows, *values.shape[1:]), values.dtype) for name, values in one.items()}
        return {name: np.concatenate([values, other.get(name, blank[name])]) for name, values in one.items()}

    return replace(
        known,
        rows=known.rows + new.rows,
        inputs=both(known.inputs, new.inputs),
        outputs=both(known.outputs, {}),
        observed=both(known.observed, {}),
        moments=both(known.moments, new.moments),
    )


def conditioned(beliefs: ex.Beliefs, count: int) -> ex.Beliefs:
    """Beliefs about all rows but the first `count`, whose outputs are known.

    Raises GpdslError where these are not normal about something linear in the latents, and for too many rows.
    """
    program = beliefs.program
    if program.fields or program.declarations.rows or program.uses():
        raise GpdslError("given: a model with fields, row variables or opaque functions cannot be conditioned further")
    known = beliefs.part(slice(0, count))
    slopes, residuals, noise = _observed(known)
    latents = len(basis_columns(program))
    means = np.asarray(beliefs.marginals.mean, float)[..., basis_columns(program)]
    moved, left, evidence = [], [], []
    for component, covariance in enumerate(_covariances(beliefs, latents)):
        cross = np.einsum("ocn,cndm->odm", slopes, covariance[:, :count])
        total = np.einsum("odm,pdm->op", cross[..., :count], slopes) + np.diag(noise)
        root = cholesky(total, lower=True)
        gap = residuals - np.einsum("ocn,nc->o", slopes, means[component, :count])
        gain = cho_solve((root, True), gap)
        evidence.append(-0.5 * gap @ gain - np.sum(np.log(np.diagonal(root))))
        moved.append(means[component, count:] + np.einsum("odm,o->md", cross[..., count:], gain))
        explained = solve_triangular(root, cross[..., count:].reshape(len(gap), -1), lower=True)
        rows = beliefs.count - count
        new = covariance[:, count:, :, count:] - (explained.T @ explained).reshape(latents, rows, latents, rows)
        left.append(new)
    weights = np.log(beliefs.weights) + np.asarray(evidence)
    weights = np.exp(weights - weights.max())
    block = Block(tuple(range(latents)), np.stack(left))
    return replace(
        beliefs.part(slice(count, beliefs.count)),
        program=program if program.coupled else program.coupling,
        marginals=_marginals(beliefs, np.stack(moved), block),
        weights=weights / weights.sum(),
        start=0,
        blocks=lambda: [block],
        compiled={},
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


def _marginals(beliefs: ex.Beliefs, means: Array, block: Block) -> Marginals:
    """Row by row, with all sums of readings."""
    program, dtype = beliefs.program, beliefs.marginals.mean.dtype
    every = np.asarray(with_sums(program, jnp.eye(means.shape[-1])))
    own = np.einsum("kcndn->kncd", np.asarray(block.covariance))
    covariance = jnp.asarray(np.einsum("ca,kncd,db->knab", every, own, every, optimize=True), dtype)
    return Marginals(jnp.asarray(means @ every, dtype), jnp.diagonal(covariance, axis1=2, axis2=3), covariance)


def _observed(beliefs: ex.Beliefs) -> tuple[Float[Array, "n columns rows"], Float[Array, " n"], Float[Array, " n"]]:
    """Of every observed number its slopes in the latents at all rows, what it is above their prior mean, its noise."""
    observed = beliefs.rows.observed
    found = [_statement(beliefs, o) for o in beliefs.program.observations if np.any(observed.get(o.outputs[0], 0.0))]
    if not found or not sum(len(noise) for _, _, noise in found):
        names = ", ".join(f"`{name}`" for name in beliefs.program.declarations.outputs)
        raise GpdslError(
            f"given: no output is observed in these rows; expected values of {names}, or leave `given` out"
        )
    slopes, residuals, noise = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return slopes, residuals, noise


def _statement(beliefs: ex.Beliefs, o: ObservationTerms) -> tuple[Array, Array, Array]:
    program, rows, law = beliefs.program, beliefs.rows, o.law
    read, columns = partial(align, positions=o.positions, keys=o.axes), len(basis_columns(program))
    seen = np.asarray(read(jnp.asarray(rows.observed[o.outputs[0]]))) > 0
    try:
        if law is None or law.name != "Normal" or o.reads or latents_in(program.translator, law.arguments["sd"]):
            raise NotLinearError
        slopes = slopes_of(beliefs, law.arguments["mean"], o.axes)
    except NotLinearError as problem:
        raise GpdslError(
            f"given: `{o.outputs[0]}` is not normal about something linear in the latents, so there is no formula; "
            "fit all rows together, `model.fit(all_rows, start=fit)`"
        ) from problem
    evaluate, nowhere = program.evaluator, jnp.zeros_like(beliefs.marginals.mean[0])
    output = read(jnp.asarray(rows.outputs[o.outputs[0]]))
    value = evaluate(o.warp.value, beliefs.scope(), o.axes) if o.warp else output
    level = evaluate(law.arguments["mean"], beliefs.scope(nowhere), o.axes)
    noise = np.broadcast_to(noise_of(beliefs, law.arguments["sd"], o.axes), seen.shape)
    residual = np.broadcast_to(np.asarray(value - level, float), seen.shape)
    at = np.nonzero(seen)
    full = np.stack([np.broadcast_to(each, seen.shape)[at] for each in slopes])
    placed = np.zeros((len(at[0]), columns, beliefs.count))
    placed[np.arange(len(at[0])), :, at[0]] = full.T
    return placed, residual[at], noise[at]
