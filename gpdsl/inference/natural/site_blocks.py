"""Natural-gradient inference on a large batch, block by block: only the sites, O(rows), are held for all rows.

The posterior needs two sums over the rows, its precision and its linear term; then every block has its own marginals,
expected log likelihoods and site targets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float

from gpdsl.inference.blocks import Block, Draws, over_blocks
from gpdsl.inference.bound import GroupView, by_reading, whitened_marginals
from gpdsl.inference.natural import sites as natural
from gpdsl.inference.opaque.surrogate import Surrogate
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.posteriors.features import Features, RowFeatures, RowSites, information, inverse_root
from gpdsl.program.joint import Marginals


def batch_site_elbo(
    setting: natural.Setting, sites: natural.Sites, normals: Array | Draws | None, surrogate: Surrogate | None = None
) -> Float[Array, ""]:
    """`natural.site_elbo`, block by block where there are many rows."""
    size = setting.block(sites.coupled)
    if not size:
        assert not isinstance(normals, Draws)
        return natural.site_elbo(setting, sites, normals, surrogate)
    posterior, divergence = posterior_in_blocks(setting, sites, size)

    def expected(block: Block, given: Any) -> tuple[Array, None]:
        here, posterior = setting.there(given[0]), given[1]
        seen = here.views(block.rows)
        per_row = seen.expected(whitened_marginals(seen, posterior), block.samples(normals))
        return jnp.sum(per_row[0] * block.weight), None

    value, _ = over_blocks(setting.rows, size, expected, given=(setting.place, posterior))
    return value - divergence + setting.log_prior


def value_and_target(
    setting: natural.Setting, sites: natural.Sites, size: int, normals: Array | Draws | None
) -> tuple[Float[Array, ""], natural.Sites, Float[Array, ""]]:
    """The bound at given sites, without log priors, where a full natural-gradient step leads, and its length."""
    posterior, divergence = posterior_in_blocks(setting, sites, size)

    def one(block: Block, _: None) -> tuple[tuple[Array, Array], natural.Sites]:
        seen, samples = setting.views(block.rows), block.samples(normals)
        q = whitened_marginals(seen, posterior)

        def expected(q: Marginals) -> Array:
            return jnp.sum(seen.expected(q, samples)[0] * block.weight)

        value, gradient = jax.value_and_grad(expected)(q)
        target = natural.site_target(q, gradient)
        return (value, jnp.sum(natural.step_lengths(q, block.beside, target) * block.weight)), target

    (value, length), target = over_blocks(setting.rows, size, one, sites)
    return value - divergence, target, length


def batch_posterior(setting: natural.Setting, sites: natural.Sites) -> list[Whitened]:
    """`natural.whitened_posterior`, block by block where there are many rows."""
    size = setting.block(sites.coupled)
    return posterior_in_blocks(setting, sites, size)[0] if size else natural.whitened_posterior(setting, sites)


def posterior_in_blocks(
    setting: natural.Setting, sites: natural.Sites, size: int
) -> tuple[list[Whitened], Float[Array, ""]]:
    """q(w) of every group, and its KL divergence."""

    def sums(block: Block, place: natural.Place) -> tuple[Any, None]:
        here = setting.there(place).views(block.rows)
        precision = block.beside.precision * block.weight[:, None]
        linear = block.beside.linear * block.weight[:, None] - precision * here.prior(block.size)
        return [_sums(view, linear, precision) for view in here], None

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
    linear, precision = natural.of_latents(view, linear, precision)
    phi = jnp.broadcast_to(view.features.phi, (view.group.size, *view.features.phi.shape[1:]))
    return information(view.features, precision), jnp.einsum("jn,jnm->jm", linear, phi)


# Means by Newton's method, for ridges of the bound along which natural gradients hardly move.
#
# Independent latents have sites that see the curvature of L, the expected log likelihood, in one latent at a time.
# Where latents multiply each other and the noise is small, that between them counts as much: steps that leave it out go
# to and fro across a ridge, and thousands of them are needed along it. With H, the second derivatives of L in all means
# of a row, and whitened values w of the latents, m = prior + Phi w, the best means are closer to w + u,
#
#     (I - Phi' H Phi) u = Phi' dL/dm - w.
#
# Conjugate gradients solve this, preconditioned by the covariance of q, which is the inverse of the matrix but for what
# the sites leave out. They stop where the matrix is not positive definite, and after as many products with it as have
# led to better points before: with more of them, u leads further along a ridge (Steihaug, 1983, SIAM J. Numer. Anal.
# 20).

FIRST_REACH = 10.0
"""Products with the matrix for the first step. A fixed number is slow at the end if it is 20, leads too far at 100."""

LEAST_REACH, LARGEST_REACH = 4.0, 200.0
LONGER, SHORTER = 1.15, 0.7

ACCURACY = 1e-2
"""Squared size of the residual, relative to that of the gradient, that is small enough."""

Posteriors = Sequence[natural.SitePosterior | RowSites | Whitened]

Values = list[Array]
"""Whitened values of every group, [latents, M]."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Stride:
    """What a share t of a Newton step adds to a blend, t (1 - t) times, and most products for the next one."""

    bend: Float[Array, "rows columns"]
    reach: Float[Array, ""]

    @classmethod
    def first(cls, linear: Float[Array, "rows columns"]) -> Stride:
        """Before any step."""
        return cls(jnp.zeros_like(linear), jnp.asarray(FIRST_REACH, linear.dtype))

    def along(self, blended: natural.Sites, step: Array) -> natural.Sites:
        """The sites a share of the step away, from the blend of those at its ends."""
        return natural.Sites(blended.linear + step * (1.0 - step) * self.bend, blended.precision)

    def after(self, better: Array, whole: Array, plain: Array) -> Array:
        """The reach after a step: longer after a whole one to a better point, shorter after a plain one to a worse."""
        factor = jnp.where(better & whole, LONGER, jnp.where(~better & plain, SHORTER, 1.0))
        return jnp.clip(factor * self.reach, LEAST_REACH, LARGEST_REACH).astype(self.reach.dtype)


class _Search(NamedTuple):
    """Conjugate gradients: the solution so far, what it leaves, and the next direction."""

    solution: Values
    residual: Values
    direction: Values
    size: Array
    products: Array
    done: Array


def newton_target(
    seen: Sequence[GroupView],
    posteriors: Posteriors,
    q: Marginals,
    slope: Callable[[Array], Array],
    sites: natural.Sites,
    target: natural.Sites,
    reach: Array,
) -> tuple[natural.Sites, Float[Array, "rows columns"]]:
    """Sites with the precisions of `target` and means a Newton step away; and what shorter steps add to a blend.

    `slope` is the gradient of L in the means, as a function of them. With the change d of the means, the linear terms
    are dL/dm + H d + Lambda* (m + d). A share t of the step changes the means by t d and blends the precisions: beside
    the blend of the linear terms that takes t (1 - t) (Lambda - Lambda*) d.
    """
    gradient, curvature = jax.linearize(slope, q.mean[0])
    moved = _moved(seen, posteriors, gradient, curvature, reach)
    moved = jnp.where(jnp.all(jnp.isfinite(moved)), moved, 0.0)
    held = natural.row_times(target.precision, moved)
    bend = natural.row_times(sites.precision, moved) - held
    return natural.Sites(target.linear + curvature(moved) + held, target.precision), bend


def _moved(
    seen: Sequence[GroupView],
    posteriors: Posteriors,
    gradient: Array,
    curvature: Callable[[Array], Array],
    reach: Array,
) -> Float[Array, "rows columns"]:
    """The Newton step, as a change of the rows' means."""
    means = [p.mean[0] if isinstance(p, Whitened) else p.mean for p in posteriors]
    transposed = jax.linear_transpose(lambda values: _at_rows(seen, values), means)

    def product(values: Values) -> Values:
        return _plus(values, -1.0, transposed(curvature(_at_rows(seen, values)))[0])

    uphill = _plus(transposed(gradient)[0], -1.0, means)
    first = _covariance_times(posteriors, uphill)
    start = _inner(uphill, first)

    def advance(s: _Search) -> _Search:
        image = product(s.direction)
        bent = _inner(s.direction, image)
        indefinite = bent <= 0
        length = jnp.where(indefinite, 0.0, s.size / jnp.where(indefinite, 1.0, bent))
        solution, residual = _plus(s.solution, length, s.direction), _plus(s.residual, -length, image)
        shrunk = _covariance_times(posteriors, residual)
        size = _inner(residual, shrunk)
        direction = _plus(shrunk, size / s.size, s.direction)
        return _Search(solution, residual, direction, size, s.products + 1, indefinite | ~(size > ACCURACY * start))

    nowhere = jax.tree.map(jnp.zeros_like, means)
    begin = _Search(nowhere, uphill, first, start, jnp.asarray(0), ~(start > 0))
    end = jax.lax.while_loop(lambda s: ~s.done & (s.products < reach), advance, begin)
    return _at_rows(seen, end.solution)


def _at_rows(seen: Sequence[GroupView], values: Values) -> Float[Array, "rows columns"]:
    """Phi w: what the rows read of whitened values."""
    found = []
    for view, each in zip(seen, values, strict=True):
        if not isinstance(view.features, RowFeatures):
            phi = view.features.phi
            shared = phi.shape[0] == 1
            each = each @ phi[0].T if shared else jnp.einsum("jnm,jm->jn", phi, each)
        found.append(by_reading(view.group, (jnp.sqrt(view.kernel.scale)[:, None] * each)[None])[0].T)
    return jnp.concatenate(found, axis=1)


def _covariance_times(posteriors: Posteriors, values: Values) -> Values:
    """S w, by group, or with one covariance of all groups."""
    joint = [p.root[0] for p in posteriors if isinstance(p, Whitened)]
    if joint:
        inner = sum(jnp.einsum("jmr,jm->r", root, each) for root, each in zip(joint, values, strict=True))
        return [jnp.einsum("jmr,r->jm", root, inner) for root in joint]
    return [_own_covariance_times(p, each) for p, each in zip(posteriors, values, strict=True)]


def _own_covariance_times(posterior: natural.SitePosterior | RowSites | Whitened, values: Array) -> Array:
    assert not isinstance(posterior, Whitened)
    if isinstance(posterior, RowSites):
        return values / posterior.factor**2
    return jax.vmap(lambda factor, each: cho_solve((factor, True), each))(posterior.factor, values)


def _inner(a: Values, b: Values) -> Array:
    return jnp.sum(jnp.stack([jnp.vdot(x, y) for x, y in zip(a, b, strict=True)]))


def _plus(a: Values, length: Array | float, b: Values) -> Values:
    return [x + length * y for x, y in zip(a, b, strict=True)]
