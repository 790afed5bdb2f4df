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
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gpdsl.inference.features import Covariances
from gpdsl.inference.posterior import Whitened
from gpdsl.kernels.numerics import log_det_factor
from gpdsl.kernels.triangular import (
    congruence,
    gram_of_lower,
    inverse_lower,
    lower_times,
    lower_transposed_times,
    symmetric_product,
)


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
    """One group at some rows: q(w), L, L^-1, features phi and (S - I) phi, the rows' moments at unit scale."""

    posterior: Posterior
    factor: Float[Array, "g M M"]
    inverse: Float[Array, "g M M"]
    phi: Float[Array, "g M rows"]
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
    size = factor.shape[-1]
    return Tied(jnp.zeros((latents, size), factor.dtype), jnp.zeros((latents, size, size), factor.dtype), factor)


def transported(tied: Tied, factor: Float[Array, "g M M"]) -> Tied:
    """The same t(u) in the coordinates of another factor: w_old = L_old^-1 L_new w_new."""
    change = lower_times(inverse_lower(tied.factor), factor)
    axes = (*_axes(factor), 0, 0)

    def one(change: Array, linear: Array, precision: Array) -> tuple[Array, Array]:
        return linear @ change, congruence(change, precision)

    linear, precision = _each(one, axes, change, tied.linear, tied.precision)
    return Tied(linear, precision, factor)


def posterior_of(tied: Tied, scale: Float[Array, "latents"]) -> Posterior:
    """q(w). All NaN where the precision is not positive definite."""

    def one(linear: Array, sites: Array, scale: Array) -> tuple[Array, ...]:
        size = linear.shape[0]
        precision = scale * sites + jnp.eye(size, dtype=sites.dtype)
        factor = jax.lax.linalg.cholesky(precision, symmetrize_input=False)
        inverse = inverse_lower(factor)
        covariance = gram_of_lower(inverse)
        mean = covariance @ (jnp.sqrt(scale) * linear)
        divergence = jnp.trace(covariance) + mean @ mean - size + log_det_factor(factor)
        return mean, covariance, inverse.T, 0.5 * divergence

    mean, covariance, root, divergence = _each(one, (0, 0, 0), tied.linear, tied.precision, scale)
    return Posterior(mean, covariance, root, jnp.sum(divergence))


def whitened(posterior: Posterior) -> Whitened:
    """As predictions take it."""
    return Whitened(posterior.mean[None], posterior.root[None])


def forward(known: Covariances, tied: Tied, scale: Float[Array, "latents"]) -> Pass:
    """Moments of the rows under q, and what `backward` needs."""
    factor = jax.lax.linalg.cholesky(known.inducing, symmetrize_input=False)
    inverse = inverse_lower(factor)
    phi = lower_times(inverse, known.cross)
    q = posterior_of(tied, scale)
    axes = (*_axes(inverse) * 2, 0, 0)

    def one(phi: Array, prior: Array, mean: Array, covariance: Array) -> tuple[Array, Array, Array]:
        bent = (covariance - jnp.eye(mean.shape[0], dtype=mean.dtype)) @ phi
        variance = jnp.maximum(prior + jnp.sum(phi * bent, axis=0), jnp.finfo(prior.dtype).eps * prior)
        return mean @ phi, variance, bent

    mean, variance, bent = _each(one, axes, phi, known.prior, q.mean, q.covariance)
    return Pass(q, factor, inverse, phi, bent, mean, variance)


def backward(at: Pass, scale: Float[Array, "latents"], d_mean: Array, d_variance: Array) -> Slopes:
    """Gradients of the bound at fixed t, from those of the expected log likelihood in the moments of the rows.

    With H = phi diag(dv) phi', E = S - I and e = phi dm - m,

        dKuf = L'^-1 (m dm' + 2 E phi diag(dv)),
        dKuu = L'^-1 C L^-1 / 2,  C = E (2 H - I) E + E e m' + m (E e)' - m m'.

    Natural-gradient targets: G* = -2 H / s, h* = (phi dm - 2 H m) / sqrt(s).
    """
    q, identity = at.posterior, jnp.eye(at.inverse.shape[-1], dtype=at.inverse.dtype)

    def one(
        phi: Array, bent: Array, mean: Array, covariance: Array, scale: Array, dm: Array, dv: Array
    ) -> tuple[Array, ...]:
        square, pulled = symmetric_product(phi * dv, phi), phi @ dm
        shrunk, residual = covariance - identity, pulled - mean
        pushed = shrunk @ residual
        inner, outer = shrunk @ (square - 0.5 * identity), jnp.outer(pushed, mean)
        middle = 2.0 * symmetric_product(inner, shrunk) + outer + outer.T - jnp.outer(mean, mean)
        d_phi = jnp.outer(mean, dm) + 2.0 * bent * dv
        # through P = I + s G and m = S sqrt(s) h
        d_scale = jnp.sum(inner * shrunk) + jnp.trace(inner + 0.5 * shrunk) + (0.5 * residual + pushed) @ mean
        linear = (pulled - 2.0 * square @ mean) / jnp.sqrt(scale)
        return middle, d_phi, d_scale / scale, linear, -2.0 / scale * square

    parts = (at.phi, at.bent, q.mean, q.covariance, scale, d_mean, d_variance)
    middle, d_phi, d_scale, linear, precision = _each(one, (*_axes(at.inverse), *[0] * 6), *parts)
    prior = d_variance
    if at.inverse.shape[0] == 1:
        middle, d_phi, prior = (jnp.sum(x, axis=0, keepdims=True) for x in (middle, d_phi, prior))
    slopes = Covariances(0.5 * congruence(at.inverse, middle), lower_transposed_times(at.inverse, d_phi), prior)
    return Slopes(slopes, d_scale, linear, precision)


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
