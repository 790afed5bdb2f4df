"""log Z of a row and its slopes in the moments of the cavity, against dense grids in NumPy, of one row or another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from gpdsl.inference.expectation_propagation.tilted import choose_tilted, normaliser
from gpdsl.program.joint import Marginals
from tests.inference.problems import problem_of

HEAD = "input x : real\nlatent f(x) ~ GP(0.3, 1.5 * RBF(1))\nlatent g(x) ~ GP(-1, 0.4 * RBF(1))\n"
ONE = HEAD + "output y : real\n"
APART = ONE + "output n : count\ny ~ StudentT(3, f, 0.3)\nn ~ Poisson(exp(g) + 0.1)\n"
Y, N = np.array([0.4, -2.0, np.nan]), np.array([0, 3, 2])
MEAN, VARIANCE = np.array([[0.5, -0.7], [-1.0, 0.4], [0.2, 1.0]]), np.array([[0.8, 0.3], [1.6, 0.9], [0.5, 2.0]])
STEP = 1e-3


def integral(density: Callable[[np.ndarray], np.ndarray], mean: float, variance: float) -> float:
    """log of the mean of a density under a normal, by a dense trapezoidal rule."""
    sd = np.sqrt(variance)
    f = mean + sd * np.linspace(-9, 9, 20_001)
    return float(np.log(np.sum(density(f) * stats.norm.pdf(f, mean, sd)) * (f[1] - f[0])))


def apart(power: float, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Every factor reads a latent of its own; a value that is missing has none."""
    found = []
    for y, n, a, v in zip(Y, N, mean, variance, strict=True):
        count = integral(lambda g, n=n: stats.poisson.pmf(n, np.exp(g) + 0.1) ** power, a[1], v[1])
        real = 0.0 if np.isnan(y) else integral(lambda f, y=y: stats.t.pdf(y, 3, f, 0.3) ** power, a[0], v[0])
        found.append(real + count)
    return np.array(found)


def along(power: float, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """One linear function of both latents."""
    m, v = mean @ [1.0, -2.0], variance @ [1.0, 4.0]
    one = [
        0.0 if np.isnan(y) else integral(lambda f, y=y: stats.t.pdf(y, 3, f, 0.3) ** power, a, b)
        for y, a, b in zip(Y, m, v, strict=True)
    ]
    return np.array(one)


def together(power: float, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Both latents in one factor."""
    z, found = np.linspace(-9, 9, 1201), []
    for y, a, v in zip(Y, mean, np.sqrt(variance), strict=True):
        f, g = a[0] + v[0] * z[:, None], a[1] + v[1] * z
        density = 1.0 if np.isnan(y) else stats.norm.pdf(y, f, np.exp(g)) ** power
        weights = stats.norm.pdf(z[:, None]) * stats.norm.pdf(z) * (z[1] - z[0]) ** 2
        found.append(np.log(np.sum(density * weights)))
    return np.array(found)


CASES: dict[str, tuple[str, Callable[..., np.ndarray], bool]] = {
    "apart": (APART, apart, False),
    "apart, fine": (APART, apart, True),
    "along": (ONE + "y ~ StudentT(3, f - 2 * g, 0.3)\n", along, False),
    "along, fine": (ONE + "y ~ StudentT(3, f - 2 * g, 0.3)\n", along, True),
    "together, fine": (ONE + "y ~ Normal(f, exp(g))\n", together, True),
}


@pytest.mark.parametrize("name", CASES)
def test_log_z_and_its_slopes_are_those_of_grids(name: str) -> None:
    text, reference, fine = CASES[name]
    power, data = 0.7, {"x": np.arange(3.0), "y": Y} | ({"n": N} if "output n" in text else {})
    problem = problem_of(text, data, engine="ep", inducing=0)
    parameters = problem.program.parameters.constrain(problem.parameters)
    tilted = replace(choose_tilted(problem.program, power, "auto"), fine=fine)
    assert tilted.method == "quadrature"

    def found(mean: Any, variance: Any) -> Any:
        cavity = Marginals(mean[None], variance[None])
        q = Marginals(mean[None] + 0.1, 0.8 * variance[None])  # where the nodes are, which changes nothing
        log_z = normaliser(tilted, problem.program, parameters, problem.rows, q, cavity)
        known = log_z.derivatives(cavity)
        return log_z(cavity), known.value, known.slope, known.curvature

    again, direct, slope, curvature = jax.jit(found)(jnp.asarray(MEAN), jnp.asarray(VARIANCE))
    value = reference(power, MEAN, VARIANCE)
    tolerance = 5e-5 if reference is together else 1e-6
    np.testing.assert_allclose(again, value, atol=tolerance)
    np.testing.assert_allclose(direct, value, atol=tolerance)
    for column in range(2):
        step = STEP * np.eye(2)[column]
        up, down = (reference(power, MEAN + sign * step, VARIANCE) for sign in (1, -1))
        np.testing.assert_allclose(slope[:, column], (up - down) / (2 * STEP), atol=10 * tolerance)
        bend = (up - 2 * value + down) / STEP**2
        np.testing.assert_allclose(curvature[:, column], bend, atol=20 * tolerance + 1e-4)
