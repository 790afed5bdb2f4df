"""Fields: straight rays against linear algebra, bent ones against Markov chains, opaque functions against traced ones."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import gpdsl
from gpdsl.program.fields import field_means, roots

SIDE = 5
POINTS = np.stack(np.meshgrid(*[np.linspace(0, 1, SIDE)] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
NOISE = 0.05

STRAIGHT = f"""
model rays "Straight rays through a map of slowness"
index g in 1..G
input  path : real[g]
output t : real
const node[g] = lattice([0, 0], [1, 1], [{SIDE}, {SIDE}])
param s : positive = {NOISE}
param ell : positive = 0.4
latent f(node) ~ GP(1 + 0.5 * node[g, 2], 0.3 * Matern52(ell))
external travel(slowness: real[g], path: real[g]) -> real
let tau = travel(f, path)
t ~ Normal(tau, s)
"""

BENT = STRAIGHT.replace("travel(f, path)", "travel(exp(2 * f(node)), path)")


def traced(slowness: Any, path: Any) -> Any:
    return jnp.einsum("ng,g->n", path, slowness)


def called(slowness: np.ndarray, path: np.ndarray) -> np.ndarray:
    assert slowness.shape == (SIDE**2,)
    return path @ slowness


def covariance(ell: float = 0.4) -> np.ndarray:
    r = np.linalg.norm(POINTS[:, None] - POINTS, axis=-1) * np.sqrt(5) / ell
    return 0.3 * (1 + r + r**2 / 3) * np.exp(-r)


def rays(rows: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.random((rows, SIDE**2)) * (rng.random((rows, SIDE**2)) < 0.3)


def straight_data(rows: int = 20, seed: int = 0) -> dict[str, np.ndarray]:
    rng, path = np.random.default_rng(seed + 1), rays(rows, seed)
    f = 1 + 0.5 * POINTS[:, 1] + np.linalg.cholesky(covariance() + 1e-9 * np.eye(SIDE**2)) @ rng.standard_normal(SIDE**2)
    return {"path": path, "t": path @ f + NOISE * rng.standard_normal(rows)}


def exact(data: dict[str, np.ndarray], s: float, ell: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Posterior mean and covariance of the field, and the log evidence: linear algebra."""
    prior, mean, path = covariance(ell), 1 + 0.5 * POINTS[:, 1], data["path"]
    total, gap = path @ prior @ path.T + s**2 * np.eye(len(path)), data["t"] - path @ mean
    gain = np.linalg.solve(total, path @ prior).T
    evidence = -0.5 * gap @ np.linalg.solve(total, gap) - 0.5 * np.linalg.slogdet(2 * np.pi * total)[1]
    return mean + gain @ gap, prior - gain @ path @ prior, float(evidence)


@pytest.mark.parametrize("function", [traced, called])
def test_straight_rays_are_exact(function: Any) -> None:
    data = straight_data()
    fit = gpdsl.compile(STRAIGHT, externals={"travel": function}).fit(data, fixed=["s", "ell"])
    mean, spread, evidence = exact(data, NOISE, 0.4)
    sd = np.sqrt(np.diag(spread))
    new = {"path": rays(6, seed=9)}
    prediction = fit.predict(new)
    assert prediction.mean("f").shape == (SIDE**2,)
    np.testing.assert_allclose(prediction.mean("f"), mean, atol=2e-3 * sd.min())
    np.testing.assert_allclose(np.sqrt(prediction.variance("f")), sd, rtol=2e-3)
    np.testing.assert_allclose(prediction.mean("tau"), new["path"] @ mean, atol=1e-3)
    assert abs(fit.elbo - evidence) < 0.01 + 3 * fit.elbo_se
    together = np.var(fit.predict(new).sample("tau", 4000, seed=1), axis=0) if function is traced else None
    if together is not None:  # drawn jointly: the variance of a sum over dependent values
        np.testing.assert_allclose(together, np.diag(new["path"] @ spread @ new["path"].T), rtol=0.15)
    if function is called:
        assert fit.usage.evaluations <= 1 + 3 * 64
