"""Gaussian sites tied to the inducing values: a full Gaussian posterior by its dual parameters.

All rows' sites together are one Gaussian factor t(u) with natural parameters sum_n lambda_n a_n and
sum_n Lambda_n a_n a_n', a_n = Kuu^-1 k_n, and q(u) is proportional to p(u) t(u): Adam, Chang, Khan, Solin (2021). They
are kept in whitened coordinates u = L w, where with the kernel's scale s

    q(w):  P = I + s G,  G = sum_n Lambda_n phi_n phi_n',   m = S sqrt(s) h,  S = P^-1,   phi_n = L^-1 k_n,

which is well conditioned whatever Kuu is. As a function of the hyperparameters the bound is taken at fixed t(u), not at
fixed q: it stays closer to the bound maximised over q. `backward` is its gradient by hand, in half the matrix products
of automatic differentiation, and they give the natural-gradient step as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.posteriors.features import Covariances
from gpdsl.kernels import numerics


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Tied:
    """Natural parameters of t, h and G, in the coordinates of `factor`, the Cholesky factor of Kuu at unit scale."""

    linear: Float[Array, "latents M"]
    precision: Float[Array, "latents M M"]
    factor: Float[Array, "g M M"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Posterior:
    """q(w) of each latent: mean m, covariance S and its root, and the KL divergence of all from the prior."""

    mean: Float[Array, "latents M"]
    covariance: Float[Array, "latents M M"]
    root: Float[Array, "latents M M"]
    divergence: Float[Array, ""]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Pass:
    """One group at some rows: q(w), Kuu, L, L^-1, features phi, the rows' moments at unit scale.

    `bend` is S - I, or L'^-1 (S - I) for latents with kernels of their own, and `bent` is its product with phi.
    """

    posterior: Posterior
    inducing: Float[Array, "g M M"]
    factor: Float[Array, "g M M"]
    inverse: Float[Array, "g M M"]
    phi: Float[Array, "g M rows"]
    bend: Float[Array, "latents M M"]
    bent: Float[Array, "latents M rows"]
    mean: Float[Array, "latents rows"]
    variance: Float[Array, "latents rows"]


@dataclass(frozen=True)
class Slopes:
    """Gradients of the bound in a group's covariances and scales; `linear` and `precision` are where t should be."""

    covariances: Covariances
    scale: Float[Array, "latents"]
    linear: Float[Array, "latents M"]
    precision: Float[Array, "latents M M"]


def no_sites(latents: int, factor: Float[Array, "g M M"]) -> Tied:
    """t = 1: the posterior is the prior."""
    size, nothing = factor.shape[-1], np.zeros((), factor.dtype)  # on the host, where it needs no program
    linear, precision = (np.broadcast_to(nothing, (latents, *rest)) for rest in ((size,), (size, size)))
    return Tied(jnp.asarray(linear), jnp.asarray(precision), factor)


def transported(tied: Tied, factor: Float[Array, "g M M"]) -> Tied:
    """The same t(u) in the coordinates of another factor: w_old = L_old^-1 L_new w_new."""
    change = numerics.lower_times(numerics.inverse_lower(tied.factor), factor)
    axes = (*_axes(factor), 0, 0)

    def one(change: Array, linear: Array, precision: Array) -> tuple[Array, Array]:
        return linear @ change, numerics.congruence(change, precision)

    linear, precision = _each(one, axes, change, tied.linear, tied.precision)
    return Tied(linear, precision, factor)


def read_anew(tied: Tied, cross: Float[Array, "g M M"], factor: Float[Array, "g M M"]) -> Tied:
    """The same t as a function of the values at other inducing inputs; `cross` is K_on, with jitter.

    The old values are read from the new ones by their mean K_on K_nn^-1 u_n, so w_o = L_o^-1 K_on L_n^-T w_n. With
    inputs that stay this is `transported`.
    """
    half_way = jnp.swapaxes(numerics.lower_times(numerics.inverse_lower(tied.factor), cross), -1, -2)
    transposed = numerics.lower_times(numerics.inverse_lower(factor), half_way)

    def one(transposed: Array, linear: Array, precision: Array) -> tuple[Array, Array]:
        return transposed @ linear, numerics.symmetric_product(transposed, transposed @ precision)

    linear, precision = _each(one, (*_axes(factor), 0, 0), transposed, tied.linear, tied.precision)
    return Tied(linear, precision, factor)


def posterior_of(tied: Tied, scale: Float[Array, "latents"]) -> Posterior:
    """q(w). All NaN where the precision is not positive definite."""

    def one(linear: Array, sites: Array, scale: Array) -> tuple[Array, ...]:
        size = linear.shape[0]
        precision = scale * sites + jnp.eye(size, dtype=sites.dtype)
        factor = jax.lax.linalg.cholesky(precision, symmetrize_input=False)
        inverse = numerics.inverse_lower(factor)
        covariance = numerics.gram_of_lower(inverse)
        mean = covariance @ (jnp.sqrt(scale) * linear)
        divergence = numerics.trace(covariance) + mean @ mean - size + numerics.log_det_factor(factor)
        return mean, covariance, inverse.T, 0.5 * divergence

    mean, covariance, root, divergence = _each(one, (0, 0, 0), tied.linear, tied.precision, scale)
    return Posterior(mean, covariance, root, jnp.sum(divergence))


def whitened(posterior: Posterior) -> Whitened:
    """As predictions take it."""
    return Whitened(posterior.mean[None], posterior.root[None])


def host_posterior(tied: Tied, scale: Float[Array, "latents"]) -> Whitened:
    """q(w) as predictions take it, in NumPy, its root triangular. NaN where a precision is not positive definite."""
    h, scales = np.asarray(tied.linear, float), np.asarray(scale, float)
    precision = scales[:, None, None] * np.asarray(tied.precision, float) + np.eye(h.shape[-1])
    try:
        inverse = np.linalg.inv(np.linalg.cholesky(precision))
    except np.linalg.LinAlgError:
        inverse = np.full_like(precision, np.nan)
    mean = np.einsum("jab,jac,jc->jb", inverse, inverse, np.sqrt(scales)[:, None] * h, optimize=True)
    dtype = tied.factor.dtype
    root = np.swapaxes(np.linalg.qr(inverse, mode="r"), 1, 2)
    signs = np.sign(np.diagonal(root, axis1=1, axis2=2))[:, None]
    return Whitened(mean[None].astype(dtype), (root * signs)[None].astype(dtype))


HALVINGS = 60
"""Times that sites lose half of their weight before they are given up."""


def definite(tied: Tied, scale: Float[Array, "latents"]) -> Tied:
    """The same sites, less their weight by halves until q has a covariance: the last step may have led beyond."""
    for _ in range(HALVINGS):
        if np.isfinite(host_posterior(tied, scale).root).all():
            break
        tied = replace(tied, linear=tied.linear / 2, precision=tied.precision / 2)
    return tied


def forward(known: Covariances, tied: Tied, scale: Float[Array, "latents"]) -> Pass:
    """Moments of the rows under q, and what `backward` needs."""
    factor = jax.lax.linalg.cholesky(known.inducing, symmetrize_input=False)
    inverse = numerics.inverse_lower(factor)
    phi = jax.lax.optimization_barrier(numerics.lower_times(inverse, known.cross))  # else put together at every use
    q = posterior_of(tied, scale)
    shrunk = q.covariance - jnp.eye(factor.shape[-1], dtype=factor.dtype)
    bend = shrunk if _shared(inverse, scale) else numerics.lower_transposed_times(inverse, shrunk)
    axes = (*_axes(inverse) * 3, 0, 0)

    def one(phi: Array, cross: Array, prior: Array, mean: Array, bend: Array) -> tuple[Array, Array, Array]:
        bent = bend @ phi
        # ones @: a sum over the leading axis takes XLA three to nine times as long
        variance = prior + jnp.ones(len(bent), bent.dtype) @ ((phi if _shared(inverse, scale) else cross) * bent)
        return mean @ phi, jnp.maximum(variance, jnp.finfo(prior.dtype).eps * prior), bent

    mean, variance, bent = _each(one, axes, phi, known.cross, known.prior, q.mean, bend)
    return Pass(q, known.inducing, factor, inverse, phi, bend, bent, mean, variance)


def backward(at: Pass, scale: Float[Array, "latents"], d_mean: Array, d_variance: Array) -> Slopes:
    """Gradients of the bound at fixed t, from those of the expected log likelihood in the moments of the rows.

    With H = phi diag(dv) phi', E = S - I and e = phi dm - m,

        dKuf = L'^-1 (m dm' + 2 E phi diag(dv)),
        dKuu = L'^-1 C L^-1 / 2,  C = E (2 H - I) E + E e m' + m (E e)' - m m'.

    Natural-gradient targets: G* = -2 H / s, h* = (phi dm - 2 H m) / sqrt(s).

    Latents with kernels of their own have bend = L'^-1 E instead of E: then what it bends is in the coordinates of dKuf
    and dKuu already. Latents that share a kernel come back to them together, after their sum.
    """
    parts = (at.inverse, at.phi, at.inducing, at.posterior.mean, at.posterior.covariance, at.bend, at.bent, scale)
    shared = _shared(at.inverse, scale)
    axes = (*_axes(at.inverse) * 3, *[0] * 7)
    back, d_scale, linear, precision = _each(_slopes_of(shared), axes, *parts, d_mean, d_variance)
    d_inducing, d_cross = _shared_slopes(at, back, d_mean, d_variance) if shared else back
    prior = jnp.sum(d_variance, axis=0, keepdims=True) if shared else d_variance
    return Slopes(Covariances(d_inducing, d_cross, prior), d_scale, linear, precision)


def _slopes_of(shared: bool) -> Callable[..., Any]:
    """What `backward` says of one latent: its dKuu and dKuf, or what their sums need; d scale; targets."""

    def one(
        inverse: Array,
        phi: Array,
        inducing: Array,
        mean: Array,
        covariance: Array,
        bend: Array,
        bent: Array,
        scale: Array,
        dm: Array,
        dv: Array,
    ) -> tuple[Any, ...]:
        identity = jnp.eye(mean.shape[0], dtype=mean.dtype)
        square, pulled = numerics.symmetric_product(phi * dv, phi), phi @ dm
        half, shrunk, residual = square - 0.5 * identity, covariance - identity, pulled - mean
        pushed, inner = shrunk @ residual, bend @ half
        if shared:
            back: Any = (inner, pushed)
            curved = jnp.sum(inner * shrunk)
        else:
            middle = numerics.symmetric_product(inner, bend)
            weights, moved = mean @ inverse, pushed @ inverse
            outer = jnp.outer(moved - 0.5 * weights, weights)
            back = middle + 0.5 * (outer + outer.T), jnp.outer(weights, dm) + 2.0 * bent * dv
            curved = jnp.sum(middle * inducing)
        # through P = I + s G and m = S sqrt(s) h
        d_scale = curved + jnp.sum(half * shrunk) + 0.5 * numerics.trace(shrunk) + (0.5 * residual + pushed) @ mean
        linear = (pulled - 2.0 * square @ mean) / jnp.sqrt(scale)
        return back, d_scale / scale, linear, -2.0 / scale * square

    return one


def _shared_slopes(at: Pass, back: tuple[Array, Array], d_mean: Array, d_variance: Array) -> tuple[Array, Array]:
    """dKuu and dKuf of the kernel that all latents share, whose sums are matrix products themselves."""
    (inner, pushed), mean = back, at.posterior.mean
    outer = (pushed - 0.5 * mean).T @ mean
    wide = [jnp.swapaxes(each, 0, 1).reshape(each.shape[1], -1) for each in (inner, at.bend)]
    middle = numerics.symmetric_product(*wide) + 0.5 * (outer + outer.T)
    d_phi = mean.T @ d_mean + 2.0 * jnp.sum(at.bent * d_variance[:, None], axis=0)
    inverse = at.inverse[0]
    return numerics.congruence(inverse, middle)[None], numerics.lower_transposed_times(inverse, d_phi)[None]


def _shared(each: Float[Array, "g ..."], latents: Float[Array, "latents"]) -> bool:
    """Whether several latents share one kernel."""
    return each.shape[0] < latents.shape[0]


def _axes(each: Float[Array, "g ..."]) -> tuple[int | None]:
    """Along which axis `jax.vmap` over latents takes what there is of every kernel: none, when they share it."""
    return (0 if each.shape[0] > 1 else None,)


def _each(function: Callable[..., Any], axes: tuple[int | None, ...], *arguments: Array) -> Any:
    """`function` of every latent; what they share stands first on an axis of length one."""
    first = [a[0] if axis is None else a for axis, a in zip(axes, arguments, strict=True)]
    latents = {a.shape[0] for axis, a in zip(axes, arguments, strict=True) if axis == 0}
    if latents == {1}:
        found = function(*(a if axis is None else a[0] for axis, a in zip(axes, first, strict=True)))
        return jax.tree.map(lambda a: a[None], found)
    return jax.vmap(function, in_axes=axes)(*first)
