"""Score-function gradients with control variates: SAVIGP Theorem 1 and appendix F, extended to a regression.

With z standard normal and l = log p(y | m + s z),

    dE[l]/dm_j = E[l z_j] / s_j,      dE[l]/dv_j = E[l (z_j^2 - 1)] / (2 v_j).

Appendix F (control = `constant`) subtracts a multiple a of the score h itself, E[(l - a) h] = E[l h], with the optimal
a = Cov[l h, h] / Var[h] for each gradient. By default (`regression`) l is regressed on 1, z_j, z_j^2 - 1 and z_i z_j
for all latents at once: what the regression explains contributes exactly (these functions are orthogonal), only the
residual is sampled. The products carry no gradient of their own; they take out the variance of a likelihood of a sum of
latents. What is applied to one half of the samples is fitted on the other half, so the estimates stay unbiased.

Of correlated latents, f = m + R z, with the root R of their covariance V = R R',

    dE[l]/dm = R^-T E[l z],      dE[l]/dV = R^-T E[l (z z' - I)] R^-1 / 2.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

RIDGE = 1e-6
ENOUGH = 2.0
"""Samples per coefficient below which a regression would add more variance than it takes away."""


def score_gradients(
    values: Float[Array, "S K rows"],
    normals: Float[Array, "S K rows latents"],
    variance: Float[Array, "K rows latents"],
    control: str = "regression",
) -> tuple[Float[Array, "K rows latents"], Float[Array, "K rows latents"]]:
    """Unbiased estimates of the gradients of E[l] with respect to marginal means and variances.

    `control` is `regression`, `constant` (appendix F) or `none`.
    """
    latents = normals.shape[-1]
    coefficients = _coefficients(values, normals, control, products=False)
    return (
        coefficients[..., :latents] / jnp.sqrt(variance),
        coefficients[..., latents : 2 * latents] / (2.0 * variance),
    )


def coupled_score_gradients(
    values: Float[Array, "S K rows"],
    normals: Float[Array, "S K rows latents"],
    root: Float[Array, "K rows latents latents"],
    control: str = "regression",
) -> tuple[Float[Array, "K rows latents"], Float[Array, "K rows latents latents"]]:
    """Unbiased estimates of the gradients of E[l] with respect to marginal means and covariances."""
    latents = normals.shape[-1]
    coefficients = _coefficients(values, normals, control, products=True)
    first, second = np.triu_indices(latents, 1)
    curvature = jnp.zeros((*coefficients.shape[:-1], latents, latents), values.dtype)
    curvature = curvature.at[..., first, second].set(coefficients[..., 2 * latents :])
    curvature = curvature + jnp.swapaxes(curvature, -1, -2)
    own = np.arange(latents)
    curvature = curvature.at[..., own, own].set(coefficients[..., latents : 2 * latents])
    half = solve_triangular(root, curvature, lower=True, trans=1)
    whole = solve_triangular(root, jnp.swapaxes(half, -1, -2), lower=True, trans=1)
    slope = solve_triangular(root, coefficients[..., :latents, None], lower=True, trans=1)[..., 0]
    return slope, 0.5 * whole


def samples_for(latents: int) -> int:
    """Samples from which on a regression on all z_j, z_j^2 - 1 and z_i z_j pays: half of them fit it."""
    return int(2 * ENOUGH * (2 * latents + latents * (latents - 1) // 2 + 1))


def _coefficients(
    values: Float[Array, "S K rows"], normals: Float[Array, "S K rows latents"], control: str, *, products: bool
) -> Float[Array, "K rows features"]:
    """E[l z_j], E[l (z_j^2 - 1)] and, where they are asked for or help the others, E[l z_i z_j]."""
    samples, latents = values.shape[0], normals.shape[-1]
    half = samples // 2
    z, log_p = jnp.moveaxis(normals, 0, -2), jnp.moveaxis(values, 0, -1)  # [K, rows, S, latents] and [K, rows, S]
    enough = control == "regression" and samples >= samples_for(latents)
    features = _features(z, products or enough)
    if control == "none":
        return jnp.mean(features * log_p[..., None], axis=-2)
    first, second = (features[..., :half, :], log_p[..., :half]), (features[..., half:, :], log_p[..., half:])
    estimate = _regressed if control == "regression" else _shifted
    return (estimate(first, second, latents) * (samples - half) + estimate(second, first, latents) * half) / samples


def _features(z: Float[Array, "K rows S latents"], products: bool) -> Float[Array, "K rows S features"]:
    """z and z^2 - 1, which the gradients are made of, and products of pairs."""
    latents = z.shape[-1]
    columns = [z, z**2 - 1.0]
    if products:
        first, second = np.triu_indices(latents, 1)
        columns.append(z[..., first] * z[..., second])
    return jnp.concatenate(columns, axis=-1)


def _shifted(fit: tuple[Array, Array], apply: tuple[Array, Array], latents: int) -> Float[Array, "K rows features"]:
    """E[(l - a) feature] estimated on `apply`, with the best constant a for each feature on `fit`: eq. 101."""
    del latents
    features, values = fit
    centred = features - jnp.mean(features, axis=-2, keepdims=True)
    spread = jnp.mean(centred**2, axis=-2)
    best = jnp.mean(features * values[..., None] * centred, axis=-2) / jnp.maximum(spread, jnp.finfo(spread.dtype).tiny)
    features, values = apply
    return jnp.mean((values[..., None] - best[..., None, :]) * features, axis=-2)


def _regressed(fit: tuple[Array, Array], apply: tuple[Array, Array], latents: int) -> Float[Array, "K rows features"]:
    """E[l * feature] estimated on `apply`, with the control function fitted on `fit`."""
    intercept, slopes = _regress(*fit)
    features, values = apply
    residual = values - intercept[..., None] - jnp.einsum("...sf,...f->...s", features, slopes)
    exact = slopes * _second_moments(latents, features.shape[-1])
    return exact + jnp.mean(residual[..., None] * features, axis=-2)


def _second_moments(latents: int, count: int) -> Float[np.ndarray, "features"]:
    """E[z^2] = 1, E[(z^2 - 1)^2] = 2, E[(z_i z_j)^2] = 1: what a slope contributes to E[l * feature]."""
    return np.concatenate([np.ones(latents), 2.0 * np.ones(latents), np.ones(count - 2 * latents)])


def _regress(features: Array, values: Array) -> tuple[Array, Array]:
    """Least squares of values on features with an intercept; slopes are zero when there are too few samples."""
    samples, count = features.shape[-2:]
    centre = jnp.mean(values, axis=-1)
    if samples < ENOUGH * (count + 1):
        return centre, jnp.zeros((*values.shape[:-1], count), values.dtype)
    mean = jnp.mean(features, axis=-2, keepdims=True)
    centred = features - mean
    gram = jnp.einsum("...sf,...sg->...fg", centred, centred) / samples
    gram = gram + RIDGE * jnp.eye(count, dtype=gram.dtype)
    moment = jnp.einsum("...sf,...s->...f", centred, values - centre[..., None]) / samples
    slopes = jnp.linalg.solve(gram, moment[..., None])[..., 0]
    return centre - jnp.einsum("...f,...f->...", mean[..., 0, :], slopes), slopes
