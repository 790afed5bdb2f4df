"""Joint draws at 500 rows by every engine: their covariance beside that of the exact process, in Monte-Carlo errors."""

from __future__ import annotations

from typing import Any

import numpy as np

import gpdsl

MODEL = """
input x : real
output y : real
latent f(x) ~ GP(0, RBF(1))
y ~ Normal(f, 0.3)
"""

WAYS: dict[str, dict[str, Any]] = {
    "dense": {},
    "30 inducing points": {"inducing": 30},
    "coupled": {"inducing": 30, "posterior": "coupled"},
    "mixture_full(2)": {"inducing": 30, "posterior": "mixture_full(2)"},
    "EP": {"engine": "ep"},
    "qsgp": {"engine": "qsgp"},
}

ROWS, POINTS, DRAWS = 60, 500, 4000


def run() -> None:
    """Print a table: errors of means and covariances of draws; one is what an exact sampler has."""
    rng = np.random.default_rng(0)
    x, at = np.sort(rng.uniform(0, 10, ROWS)), np.linspace(-1, 11, POINTS)
    y = np.sin(x) + 0.3 * rng.standard_normal(ROWS)
    known, cross, own = (np.exp(-0.5 * (a[:, None] - b) ** 2) for a, b in ((x, x), (x, at), (at, at)))
    gain = np.linalg.solve(known + 0.09 * np.eye(ROWS), cross)
    mean, covariance = gain.T @ y, own - cross.T @ gain
    spread = np.diag(covariance)
    error = np.sqrt((np.outer(spread, spread) + covariance**2) / DRAWS)
    print("| posterior | means, RMS | covariances, RMS | covariances, largest |\n| --- | --- | --- | --- |")
    for name, options in WAYS.items():
        fit = gpdsl.compile(MODEL).fit({"x": x, "y": y}, seed=0, **options)
        draws = fit.predict({"x": at}).draws("f", DRAWS, seed=1)
        away = (draws.mean(axis=0) - mean) / np.sqrt(spread / DRAWS)
        off = (np.cov(draws.T) - covariance) / error
        print(
            f"| {name} | {np.sqrt(np.mean(away**2)):.2f} | {np.sqrt(np.mean(off**2)):.2f} | {np.abs(off).max():.1f} |"
        )
