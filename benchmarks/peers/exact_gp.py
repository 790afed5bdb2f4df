"""Exact Gaussian process regression with an RBF kernel: predictions in NumPy, marginal likelihood for L-BFGS."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

Parameters = Mapping[str, np.ndarray]
POSITIVE = ("s2", "ell", "sigma")


def kernel(a: np.ndarray, b: np.ndarray, parameters: Parameters) -> np.ndarray:
    """s2 exp(-|a - b|^2 / 2), distances in units of `ell`: [rows of a, rows of b]."""
    gap = (a[:, None, :] - b[None, :, :]) / parameters["ell"]
    return parameters["s2"] * np.exp(-0.5 * np.sum(gap**2, axis=-1))


def predict(x: np.ndarray, y: np.ndarray, new: np.ndarray, parameters: Parameters) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of the latent function at new rows."""
    factor = cho_factor(kernel(x, x, parameters) + parameters["sigma"] ** 2 * np.eye(len(x)), lower=True)
    cross = kernel(x, new, parameters)
    mean = parameters["mu"] + cross.T @ cho_solve(factor, y - parameters["mu"])
    return mean, parameters["s2"] - np.sum(cross * cho_solve(factor, cross), axis=0)


def log_marginal_likelihood(x: np.ndarray, y: np.ndarray, parameters: Parameters) -> jax.Array:
    """log N(y; mu, K + sigma^2 I) in nats."""
    scaled = x / parameters["ell"]
    squares = jnp.sum((scaled[:, None, :] - scaled[None, :, :]) ** 2, axis=-1)
    covariance = parameters["s2"] * jnp.exp(-0.5 * squares) + parameters["sigma"] ** 2 * jnp.eye(len(x))
    factor = jnp.linalg.cholesky(covariance)
    white = solve_triangular(factor, y - parameters["mu"], lower=True)
    return -0.5 * white @ white - jnp.sum(jnp.log(jnp.diag(factor))) - 0.5 * len(x) * np.log(2 * np.pi)


def maximise(x: np.ndarray, y: np.ndarray, start: Parameters) -> tuple[float, dict[str, np.ndarray]]:
    """The best log marginal likelihood that L-BFGS reaches from `start`, and its parameters."""
    names = list(start)
    shapes = [np.shape(start[n]) for n in names]
    ends = np.cumsum([int(np.prod(s)) for s in shapes])

    def constrain(flat: jax.Array) -> dict[str, jax.Array]:
        parts = {n: p.reshape(s) for n, p, s in zip(names, jnp.split(flat, ends[:-1]), shapes, strict=True)}
        return {n: jnp.exp(p) if n in POSITIVE else p for n, p in parts.items()}

    def loss(flat: jax.Array) -> jax.Array:
        return -log_marginal_likelihood(x, y, constrain(flat))

    compiled = jax.jit(jax.value_and_grad(loss))

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = compiled(flat)
        return (float(value), np.asarray(gradient)) if np.isfinite(value) else (1e12, np.zeros_like(flat))

    flat = np.concatenate([np.ravel(np.log(start[n]) if n in POSITIVE else start[n]) for n in names]).astype(float)
    # beyond e^10 a length-scale or variance changes nothing but the conditioning
    bounds = [(-10.0, 14.0) if n in POSITIVE else (None, None) for n in names for _ in range(np.size(start[n]))]
    found = minimize(
        objective,
        flat,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": 5000, "maxfun": 10000, "ftol": 1e-14},
    )
    return -float(found.fun), {n: np.asarray(p) for n, p in constrain(jnp.asarray(found.x)).items()}
