"""Score-function gradients with control variates: SAVIGP Theorem 1 and appendix F, extended to a regression.

With z standard normal and l = log p(y | m + s z),

    dE[l]/dm_j = E[l z_j] / s_j,      dE[l]/dv_j = E[l (z_j^2 - 1)] / (2 v_j).

Appendix F subtracts a constant multiple of the score. Here l is regressed on 1, z_j and z_j^2 - 1 for all latents at
once: what the regression explains contributes exactly (the z are orthogonal), only the residual is sampled. The
coefficients applied to one half of the samples are fitted on the other half, so the estimate stays unbiased.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

RIDGE = 1e-6


def score_gradients(
    values: Float[Array, "S K rows"],
    normals: Float[Array, "S K rows latents"],
    variance: Float[Array, "K rows latents"],
) -> tuple[Float[Array, "K rows latents"], Float[Array, "K rows latents"]]:
    """Unbiased estimates of the gradients of E[l] with respect to marginal means and variances."""
    samples, latents = values.shape[0], normals.shape[-1]
    half = samples // 2
    z, log_p = jnp.moveaxis(normals, 0, -2), jnp.moveaxis(values, 0, -1)  # [K, rows, S, latents] and [K, rows, S]
    features = jnp.concatenate([z, z**2 - 1.0], axis=-1)
    first, second = (features[..., :half, :], log_p[..., :half]), (features[..., half:, :], log_p[..., half:])
    total = _crossed(first, second) * (samples - half) + _crossed(second, first) * half
    coefficients = total / samples
    return (
        coefficients[..., :latents] / jnp.sqrt(variance),
        coefficients[..., latents:] / (2.0 * variance),
    )


def _crossed(fit: tuple[Array, Array], apply: tuple[Array, Array]) -> Float[Array, "K rows features"]:
    """E[l * feature] estimated on `apply`, with the control function fitted on `fit`."""
    intercept, slopes = _regress(*fit)
    features, values = apply
    residual = values - intercept[..., None] - jnp.einsum("...sf,...f->...s", features, slopes)
    exact = slopes * _second_moments(features.shape[-1])
    return exact + jnp.mean(residual[..., None] * features, axis=-2)


def _second_moments(count: int) -> Float[Array, "features"]:
    """E[z^2] = 1 and E[(z^2 - 1)^2] = 2: what a slope contributes to E[l * feature]."""
    return jnp.concatenate([jnp.ones(count // 2), 2.0 * jnp.ones(count // 2)])


def _regress(features: Array, values: Array) -> tuple[Array, Array]:
    """Least squares of values on features with an intercept; slopes are zero when there are too few samples."""
    samples, count = features.shape[-2:]
    centre = jnp.mean(values, axis=-1)
    if samples < 2 * (count + 1):
        return centre, jnp.zeros((*values.shape[:-1], count), values.dtype)
    mean = jnp.mean(features, axis=-2, keepdims=True)
    centred = features - mean
    gram = jnp.einsum("...sf,...sg->...fg", centred, centred) / samples
    gram = gram + RIDGE * jnp.eye(count, dtype=gram.dtype)
    moment = jnp.einsum("...sf,...s->...f", centred, values - centre[..., None]) / samples
    slopes = jnp.linalg.solve(gram, moment[..., None])[..., 0]
    return centre - jnp.einsum("...f,...f->...", mean[..., 0, :], slopes), slopes
