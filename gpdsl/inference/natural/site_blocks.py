"""Natural-gradient inference on a large batch, block by block: only the sites, O(rows), are held for all rows.

The posterior needs two sums over the rows, its precision and its linear term; then every block has its own marginals,
expected log likelihoods and site targets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gpdsl.inference.blocks import Draws, block_rows, over_blocks
from gpdsl.inference.bound import GroupView, assemble, views
from gpdsl.inference.estimators.expected_log_likelihood import expected_log_likelihood
from gpdsl.inference.natural.sites import Sites, site_elbo, site_target, whitened_posterior
from gpdsl.inference.opaque.surrogate import Surrogate
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.posteriors.features import Features
from gpdsl.inference.posteriors.free_posterior import by_latent
from gpdsl.inference.posteriors.linear import information, inverse_root
from gpdsl.kernels.functionals import Functionals
from gpdsl.program.evaluation import prior_means
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows


def site_block(program: Program, inducing: Sequence[Functionals], sites: Sites, dense: bool) -> int:
    """How many rows to take at a time; 0 for all, where they are few or belong together."""
    if dense or sites.coupled or program.opaque or any(group.per_row for group in program.groups):
        return 0
    return block_rows(program, inducing, sites.linear.shape[0])


def batch_site_elbo(
    program: Program,
    learnt: Mapping[str, Array],
    inducing: Sequence[Functionals],
    sites: Sites,
    rows: Rows,
    dense: bool,
    normals: Array | Draws | None,
    jitter: Array | float,
    surrogate: Surrogate | None = None,
) -> Float[Array, ""]:
    """`natural.site_elbo`, block by block where there are many rows."""
    size = site_block(program, inducing, sites, dense)
    if not size:
        assert not isinstance(normals, Draws)
        return site_elbo(program, learnt, inducing, sites, rows, dense, normals, surrogate, jitter)
    parameters = program.parameters.constrain(learnt)
    posterior, divergence = _posterior(program, parameters, inducing, sites, rows, size, jitter)

    def expected(some: Rows, weight: Array, numbers: Array, block: Array) -> tuple[Array, None]:
        q = _marginals(program, parameters, inducing, posterior, some, jitter)
        per_row = expected_log_likelihood(program, parameters, some, q, _samples(normals, block, numbers), None)
        return jnp.sum(per_row[0] * weight), None

    value, _ = over_blocks(rows, size, expected)
    return value - divergence + program.log_prior(parameters)


def value_and_target(
    program: Program,
    parameters: Mapping[str, Array],
    inducing: Sequence[Functionals],
    sites: Sites,
    rows: Rows,
    size: int,
    normals: Array | Draws | None,
    jitter: Array | float,
) -> tuple[Float[Array, ""], Sites]:
    """The bound at given sites, without log priors, and where a full natural-gradient step leads."""
    posterior, divergence = _posterior(program, parameters, inducing, sites, rows, size, jitter)

    def one(some: Rows, weight: Array, numbers: Array, block: Array) -> tuple[Array, Sites]:
        q = _marginals(program, parameters, inducing, posterior, some, jitter)
        drawn = _samples(normals, block, numbers)

        def expected(q: Marginals) -> Array:
            return jnp.sum(expected_log_likelihood(program, parameters, some, q, drawn, None)[0] * weight)

        value, gradient = jax.value_and_grad(expected)(q)
        return value, site_target(q, gradient)

    value, target = over_blocks(rows, size, one)
    return value - divergence, target


def batch_posterior(
    program: Program,
    learnt: Mapping[str, Array],
    inducing: Sequence[Functionals],
    sites: Sites,
    rows: Rows,
    dense: bool,
    jitter: Array | float,
) -> list[Whitened]:
    """`natural.whitened_posterior`, block by block where there are many rows."""
    size = site_block(program, inducing, sites, dense)
    if not size:
        return whitened_posterior(program, learnt, inducing, sites, rows, dense, jitter)
    return _posterior(program, program.parameters.constrain(learnt), inducing, sites, rows, size, jitter)[0]


def _posterior(
    program: Program,
    parameters: Mapping[str, Array],
    inducing: Sequence[Functionals],
    sites: Sites,
    rows: Rows,
    size: int,
    jitter: Array | float,
) -> tuple[list[Whitened], Float[Array, ""]]:
    """q(w) of every group, and its KL divergence."""

    def sums(some: Rows, weight: Array, numbers: Array, block: Array) -> tuple[Any, None]:
        del block
        prior = prior_means(program.evaluator, program.groups, parameters, some, size)
        precision = sites.precision[numbers] * weight[:, None]
        linear = sites.linear[numbers] * weight[:, None] - precision * prior
        here = views(program, parameters, inducing, some, False, jitter)
        return [_sums(view, linear, precision) for view in here], None

    total, _ = over_blocks(rows, size, sums)
    found, divergence = [], jnp.zeros((), sites.linear.dtype)
    for precision, moment in total:
        root = inverse_root(precision)
        mean = jnp.einsum("jmr,jnr,jn->jm", root, root, moment)
        log_det = -2.0 * jnp.sum(jnp.log(jnp.diagonal(root, axis1=-2, axis2=-1)))
        divergence += 0.5 * (jnp.sum(root**2) + jnp.sum(mean**2) - mean.size + log_det)
        found.append(Whitened(mean[None], root[None]))
    return found, divergence


def _sums(view: GroupView, linear: Array, precision: Array) -> tuple[Array, Array]:
    """sum_n lambda_n phi_n phi_n' [latents, M, M] and sum_n b_n phi_n [latents, M] over the rows of a block."""
    assert isinstance(view.features, Features)
    columns, scale = slice(view.group.start, view.group.stop), view.kernel.scale[:, None]
    phi = jnp.broadcast_to(view.features.phi, (view.group.size, *view.features.phi.shape[1:]))
    moment = jnp.einsum("jn,jnm->jm", by_latent(view.group, linear[:, columns]) * jnp.sqrt(scale), phi)
    return information(view.features, by_latent(view.group, precision[:, columns]) * scale), moment


def _marginals(
    program: Program,
    parameters: Mapping[str, Array],
    inducing: Sequence[Functionals],
    posterior: Sequence[Whitened],
    some: Rows,
    jitter: Array | float,
) -> Marginals:
    here = views(program, parameters, inducing, some, False, jitter)
    moments = [q.moments(view.features) for q, view in zip(posterior, here, strict=True)]
    return assemble(program, parameters, some, here, moments)


def _samples(normals: Array | Draws | None, block: Array, numbers: Array) -> Array | None:
    if isinstance(normals, Draws):
        return normals.of(block, numbers.shape[0])
    return None if normals is None else normals[:, :, numbers]
