"""Products of latents whose priors are all at zero: the fit leaves the symmetric start."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import gpdsl
from gpdsl.inference.ascent.lbfgs import maximise_off_saddles


@pytest.mark.slow
def test_a_regression_network_does_not_explain_everything_as_noise() -> None:
    random = np.random.default_rng(3)
    x = np.linspace(-2, 2, 40)
    y = np.stack([np.sin(3 * x), np.cos(2 * x) * x], axis=1)
    data = {"x": x[:, None], "y": y + 0.05 * random.normal(size=y.shape)}
    model = gpdsl.zoo("gprn")
    fit = model.fit(data, init={"ell_g": 1.0, "ell_w": 3.0}, fixed=["ell_g", "ell_w"], steps=10, seed=0)
    error = np.sqrt(np.mean((fit.predict({"x": x[:, None]}).mean("y") - y) ** 2, axis=0))
    assert np.all(error < 0.1)
    assert np.all(fit.parameters["sigma"] < 0.15)


SQUARE = """
input x : real
output y : real
param l : positive
param sigma : positive
latent f(x) ~ GP(0, RBF(l))
y ~ Normal(f^2, sigma)
"""


@pytest.fixture(scope="module")
def squared() -> gpdsl.Fit:
    """A square of a function that changes its sign five times."""
    random = np.random.default_rng(5)
    x = random.uniform(-3, 3, 60)
    return gpdsl.compile(SQUARE).fit({"x": x, "y": np.sin(2 * x) ** 2 + random.normal(0, 0.1, 60)}, seed=0)


def test_a_trial_far_away_does_not_take_the_search_from_its_maximum(squared: gpdsl.Fit) -> None:
    """q starts at the best q so far: from where a long trial step has left it, sigma ended at 0.4."""
    assert 0.08 < squared.parameters["sigma"] < 0.13
    assert 0.5 < squared.parameters["l"] < 1.2


def test_starts_at_draws_of_a_latent_with_two_signs_differ(squared: gpdsl.Fit) -> None:
    """Where y given f^2 bends upwards there is no Gaussian of the exact sites; these starts were all the first one."""
    line = next(line for line in str(squared.summary()).splitlines() if "from draw" in line)
    ends = re.findall(r"(-?[\d.]+) from draw", line)
    assert len(ends) > 1
    assert len(set(ends)) > 1


def test_curvature_is_that_of_the_maximum_found(squared: gpdsl.Fit) -> None:
    assert "no standard errors" not in str(squared.summary())


@pytest.mark.parametrize("curvature", [1.0, 1e-6])
def test_a_search_goes_on_from_beside_a_saddle_that_promises_enough(curvature: float) -> None:
    """x = 0 has no slope in x, where c (x^2 / 2 - x^4 / 4) is least along it: the maxima are x = 1 and -1."""
    told: list[tuple[int, float]] = []

    def objective(point: Any) -> tuple[float, Any]:
        x, y = point["x"], point["y"]
        value = 8 * curvature * (x**2 / 2 - x**4 / 4) - (y - 1) ** 2 / 2
        return float(value), {"x": 8 * curvature * (x - x**3), "y": 1 - y}

    found = maximise_off_saddles(
        objective,
        {"x": np.array(0.0), "y": np.array(0.3)},
        steps=50,
        tolerance=1e-12,
        report=lambda *each: told.append(each),
        size=10.0,
    )
    left = curvature == 1.0
    assert abs(found.point["x"]) == pytest.approx(1.0 if left else 0.0, abs=1e-5)
    assert found.point["y"] == pytest.approx(1.0, abs=1e-5)
    assert found.value == pytest.approx(2.0 if left else 0.0, abs=1e-9)
    steps = [step for step, _ in told]
    assert steps == sorted(steps) and told[-1][1] == pytest.approx(found.value)
