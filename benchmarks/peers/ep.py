"""Expectation propagation for binary classification by a Gaussian process with the logistic likelihood, in NumPy.

Sites and updates of Rasmussen and Williams (2006), algorithm 3.5, in parallel with damping; moments of the tilted
distributions by Gauss-Hermite quadrature, since the logistic function has none in closed form.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from peers.exact_gp import Parameters, kernel

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
SWEEPS, DAMPING, SETTLED = 200, 0.5, 1e-8


def predict(x: np.ndarray, y: np.ndarray, new: np.ndarray, parameters: Parameters) -> np.ndarray:
    """Probability of the class +1 at new rows, from labels -1 and 1; `m` is the mean of the prior."""
    covariance, cross, level = kernel(x, x, parameters), kernel(x, new, parameters), float(parameters["m"])
    precision, linear = np.zeros(len(y)), np.zeros(len(y))
    for _ in range(SWEEPS):
        mean, variance, _, _ = _posterior(covariance, precision, linear)
        cavity = 1.0 / (1.0 / variance - precision)
        centre = cavity * (mean / variance - linear)
        m, v = _tilted(y, level + centre, cavity)
        target = np.maximum(1.0 / v - 1.0 / cavity, 0.0)
        moved = (m - level) / v - centre / cavity
        change = np.max(np.abs(target - precision))
        precision = precision + DAMPING * (target - precision)
        linear = linear + DAMPING * (moved - linear)
        if change < SETTLED:
            break
    _, _, root, factor = _posterior(covariance, precision, linear)
    whole = covariance @ linear
    weights = linear - root * cho_solve((factor, True), root * whole)
    solved = solve_triangular(factor, root[:, None] * cross, lower=True)
    mean = level + cross.T @ weights
    spread = np.sqrt(float(parameters["s2"]) - np.sum(solved**2, axis=0))
    return np.sum(WEIGHTS * _sigmoid(mean[:, None] + spread[:, None] * NODES), axis=1)


def _posterior(
    covariance: np.ndarray, precision: np.ndarray, linear: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Means and variances given the sites, and the factor of B = I + S^1/2 K S^1/2 with the root of S."""
    root = np.sqrt(precision)
    factor = np.linalg.cholesky(np.eye(len(root)) + root[:, None] * covariance * root)
    solved = solve_triangular(factor, root[:, None] * covariance, lower=True)
    posterior = covariance - solved.T @ solved
    return posterior @ linear, np.diag(posterior), root, factor


def _tilted(y: np.ndarray, centre: np.ndarray, cavity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances of N(f; centre, cavity) sigmoid(y f), normalised."""
    f = centre[:, None] + np.sqrt(cavity)[:, None] * NODES
    share = WEIGHTS * _sigmoid(y[:, None] * f)
    share = share / share.sum(axis=1, keepdims=True)
    mean = np.sum(share * f, axis=1)
    return mean, np.sum(share * (f - mean[:, None]) ** 2, axis=1)


def _sigmoid(values: np.ndarray) -> np.ndarray:
    return 0.5 * (1.0 + np.tanh(0.5 * values))
