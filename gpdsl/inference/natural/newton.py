"""Means by Newton's method, for ridges of the bound along which natural gradients hardly move.

Independent latents have sites that see the curvature of L, the expected log likelihood, in one latent at a time. Where
latents multiply each other and the noise is small, that between them counts as much: steps that leave it out go to and
fro across a ridge, and thousands of them are needed along it. With H, the second derivatives of L in all means of a
row, and whitened values w of the latents, m = prior + Phi w, the best means are closer to w + u,

    (I - Phi' H Phi) u = Phi' dL/dm - w.

Conjugate gradients solve this, preconditioned by the covariance of q, which is the inverse of the matrix but for what
the sites leave out. They stop where the matrix is not positive definite, and after as many products with it as have led
to better points before: with more of them, u leads further along a ridge (Steihaug, 1983, SIAM J. Numer. Anal. 20).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float

from gpdsl.inference.bound import GroupView, by_reading
from gpdsl.inference.natural.sites import SitePosterior, Sites, row_times
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.posteriors.features import RowFeatures, RowSites
from gpdsl.program.joint import Marginals

FIRST_REACH = 10.0
"""Products with the matrix for the first step. A fixed number is slow at the end if it is 20, leads too far at 100."""

LEAST_REACH, LARGEST_REACH = 4.0, 200.0
LONGER, SHORTER = 1.15, 0.7

ACCURACY = 1e-2
"""Squared size of the residual, relative to that of the gradient, that is small enough."""

Posteriors = Sequence[SitePosterior | RowSites | Whitened]

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

    def along(self, blended: Sites, step: Array) -> Sites:
        """The sites a share of the step away, from the blend of those at its ends."""
        return Sites(blended.linear + step * (1.0 - step) * self.bend, blended.precision)

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
    sites: Sites,
    target: Sites,
    reach: Array,
) -> tuple[Sites, Float[Array, "rows columns"]]:
    """Sites with the precisions of `target` and means a Newton step away; and what shorter steps add to a blend.

    `slope` is the gradient of L in the means, as a function of them. With the change d of the means, the linear terms
    are dL/dm + H d + Lambda* (m + d). A share t of the step changes the means by t d and blends the precisions: beside
    the blend of the linear terms that takes t (1 - t) (Lambda - Lambda*) d.
    """
    gradient, curvature = jax.linearize(slope, q.mean[0])
    moved = _moved(seen, posteriors, gradient, curvature, reach)
    moved = jnp.where(jnp.all(jnp.isfinite(moved)), moved, 0.0)
    held = row_times(target.precision, moved)
    bend = row_times(sites.precision, moved) - held
    return Sites(target.linear + curvature(moved) + held, target.precision), bend


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


def _own_covariance_times(posterior: SitePosterior | RowSites | Whitened, values: Array) -> Array:
    assert not isinstance(posterior, Whitened)
    if isinstance(posterior, RowSites):
        return values / posterior.factor**2
    return jax.vmap(lambda factor, each: cho_solve((factor, True), each))(posterior.factor, values)


def _inner(a: Values, b: Values) -> Array:
    return jnp.sum(jnp.stack([jnp.vdot(x, y) for x, y in zip(a, b, strict=True)]))


def _plus(a: Values, length: Array | float, b: Values) -> Values:
    return [x + length * y for x, y in zip(a, b, strict=True)]
