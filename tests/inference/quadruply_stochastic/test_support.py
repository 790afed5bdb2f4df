"""The quadratic form of the control variate: what it is, and that it stands for all rows."""

from __future__ import annotations

import numpy as np
import pytest

from gpdsl.inference.quadruply_stochastic import sampled
from gpdsl.inference.quadruply_stochastic.sampled import RIDGE, support_at
from gpdsl.inference.quadruply_stochastic.weights import fourier_features
from tests.inference.quadruply_stochastic.conftest import REGRESSION, make_problem


def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """That of REGRESSION, at its declared parameters."""
    return 1.4 * np.exp(-0.5 * np.sum((a[:, None] - b) ** 2, axis=-1) / 0.9**2)


@pytest.mark.parametrize("most", [1_000, 400])
def test_the_form_interpolates_from_the_support(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Against NumPy, with all rows and with some of them; a row without an output has no part in it."""
    monkeypatch.setattr(sampled, "MOST_ROWS", most)
    monkeypatch.setattr(sampled, "ROWS_AT_ONCE", 70)
    x, y = rng.standard_normal((600, 2)), rng.standard_normal(600)
    y[5:300:7] = np.nan
    problem = make_problem(REGRESSION, {"x": x, "y": y}, "float64", features=50)
    features, z = fourier_features(problem.program, 50, 0), x[:20]
    form = np.asarray(support_at(problem, features, problem.parameters, problem.rows.inputs["x"][:20], rng).form)
    weights = np.linalg.solve(kernel(z, z) + RIDGE * 1.4 * np.eye(20), kernel(z, x))
    exact = (weights * np.isfinite(y) / 0.4**2) @ weights.T
    f = rng.multivariate_normal(np.zeros(20), kernel(z, z), 30)
    tolerance = {"rtol": 1e-6} if most == 1_000 else {"rtol": 0.3}
    np.testing.assert_allclose(np.sum((f @ form) * f, axis=1), np.sum((f @ exact) * f, axis=1), **tolerance)


def test_it_leaves_less_of_all_rows_than_precisions_of_its_own(rng: np.random.Generator) -> None:
    """What a quadratic form says of functions from the prior, beside sums over all rows."""
    x = rng.standard_normal((600, 2))
    problem = make_problem(REGRESSION, {"x": x, "y": x[:, 0]}, "float64", features=50)
    features = fourier_features(problem.program, 50, 0)
    form = np.asarray(support_at(problem, features, problem.parameters, problem.rows.inputs["x"][:60], rng).form)
    f = rng.multivariate_normal(np.zeros(600), kernel(x, x), 200)
    all_rows = np.sum(f**2, axis=1) / 0.4**2
    own = 600 / 60 * np.sum(f[:, :60] ** 2, axis=1) / 0.4**2
    ours = np.sum((f[:, :60] @ form) * f[:, :60], axis=1)
    assert np.std(ours - all_rows) < 0.2 * np.std(own - all_rows)
