"""Natural-gradient inference on a large batch, block by block: only the sites, O(rows), are held for all rows.

The posterior needs two sums over the rows, its precision and its linear term; then every block has its own marginals,
expected log likelihoods and site targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gpdsl.inference.blocks import Block, Draws, over_blocks
from gpdsl.inference.bound import GroupView, whitened_marginals
from gpdsl.inference.estimators.expected_log_likelihood import expected_log_likelihood
from gpdsl.inference.natural.setting import Place, Setting
from gpdsl.inference.natural.sites import Sites, site_elbo, site_target, whitened_posterior
from gpdsl.inference.opaque.surrogate import Surrogate
from gpdsl.inference.posteriors.families import information, inverse_root
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.posteriors.features import Features
from gpdsl.inference.posteriors.free_posterior import by_latent
from gpdsl.program.evaluation import prior_means
from gpdsl.program.joint import Marginals


def batch_site_elbo(
    setting: Setting, sites: Sites, normals: Array | Draws | None, surrogate: Surrogate | None = None
) -> Float[Array, ""]:
    """`natural.site_elbo`, block by block where there are many rows."""
    size = setting.block(sites.coupled)
    if not size:
        assert not isinstance(normals, Draws)
        return site_elbo(setting, sites, normals, surrogate)
    posterior, divergence = posterior_in_blocks(setting, sites, size)

    def expected(block: Block, given: Any) -> tuple[Array, None]:
        here, posterior = setting.there(given[0]), given[1]
        q = block_marginals(here, posterior, block, here.views(block.rows))
        samples = block.samples(normals)
        per_row = expected_log_likelihood(here.program, here.parameters, block.rows, q, samples, None)
        return jnp.sum(per_row[0] * block.weight), None

    value, _ = over_blocks(setting.rows, size, expected, given=(setting.place, posterior))
    return value - divergence + setting.log_prior


def value_and_target(
    setting: Setting, sites: Sites, size: int, normals: Array | Draws | None
) -> tuple[Float[Array, ""], Sites]:
    """The bound at given sites, without log priors, and where a full natural-gradient step leads."""
    posterior, divergence = posterior_in_blocks(setting, sites, size)

    def one(block: Block, _: None) -> tuple[Array, Sites]:
        q = block_marginals(setting, posterior, block, setting.views(block.rows))
        samples = block.samples(normals)

        def expected(q: Marginals) -> Array:
            found = expected_log_likelihood(setting.program, setting.parameters, block.rows, q, samples, None)
            return jnp.sum(found[0] * block.weight)

        value, gradient = jax.value_and_grad(expected)(q)
        return value, site_target(q, gradient)

    value, target = over_blocks(setting.rows, size, one)
    return value - divergence, target


def batch_posterior(setting: Setting, sites: Sites) -> list[Whitened]:
    """`natural.whitened_posterior`, block by block where there are many rows."""
    size = setting.block(sites.coupled)
    return posterior_in_blocks(setting, sites, size)[0] if size else whitened_posterior(setting, sites)


def posterior_in_blocks(setting: Setting, sites: Sites, size: int) -> tuple[list[Whitened], Float[Array, ""]]:
    """q(w) of every group, and its KL divergence."""
    program = setting.program

    def sums(block: Block, place: Place) -> tuple[Any, None]:
        here = setting.there(place)
        prior = prior_means(program.evaluator, program.groups, here.parameters, block.rows, block.size)
        precision = block.beside.precision * block.weight[:, None]
        linear = block.beside.linear * block.weight[:, None] - precision * prior
        return [_sums(view, linear, precision) for view in here.views(block.rows)], None

    total, _ = over_blocks(setting.rows, size, sums, sites, setting.place)
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


def block_marginals(
    setting: Setting, posterior: Sequence[Whitened], block: Block, here: Sequence[GroupView]
) -> Marginals:
    """Marginals of the rows of a block, whose views these are."""
    return whitened_marginals(setting.program, setting.parameters, block.rows, here, posterior)
