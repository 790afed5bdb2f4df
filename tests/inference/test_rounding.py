"""Searches whose values fail, or are rounded, where their slopes still tell the way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpdsl
from gpdsl.inference.ascent.lbfgs import MARGIN, ROUNDED, Outcome, _Negative, maximise, rounded_at

BENDS = np.array([1000.0, 10.0, 1.0])
"""Curvatures of a quadratic whose maximum is 0 at 1."""


def searched(objective: Any, start: np.ndarray, tolerance: float = 1e-8) -> Any:
    return maximise(objective, start, steps=200, tolerance=tolerance, report=lambda *_: None, size=100.0)


def quadratic(x: np.ndarray) -> tuple[float, np.ndarray]:
    return -0.5 * float(BENDS @ (x - 1.0) ** 2), -BENDS * (x - 1.0)


@pytest.mark.parametrize("nothing", [np.nan, -1e30])
def test_a_search_comes_back_from_where_there_is_no_value(nothing: float) -> None:
    """Its second trial goes beyond the wall: it is tried again, a third as far, and not next to where it was."""
    tried = []

    def walled(x: np.ndarray) -> tuple[float, np.ndarray]:
        tried.append(x)
        return (nothing, quadratic(x)[1]) if x[2] > 1.5 else quadratic(x)

    found = searched(walled, np.array([1.05, 0.5, -20.0]))
    assert any(x[2] > 1.5 for x in tried)
    assert found.value == pytest.approx(0.0, abs=1e-6)
    assert found.message == "converged"
    assert found.evaluations < 60


@pytest.mark.parametrize("wall", [1.01, 1.1, 1.5])
def test_a_step_that_a_wall_made_short_is_not_the_last(wall: float) -> None:
    """It gains less than the 30 nats at which others end a search so rough; 19 are left."""
    found = searched(
        lambda x: (np.nan, np.full(3, np.nan)) if x[2] > wall else quadratic(x),
        np.array([1.05, 0.5, -20.0]),
        tolerance=0.3,
    )
    assert found.value > -0.3 and found.message == "converged"


@pytest.mark.parametrize("seed", range(5))
def test_slopes_lead_on_where_values_are_rounded(seed: int) -> None:
    """Values off by up to 0.1, as single precision has them of nearly singular covariances; slopes by little."""
    rng = np.random.default_rng(seed)

    def rounded(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = quadratic(x)
        return value + rng.uniform(-0.1, 0.1), slope + 0.01 * rng.standard_normal(3)

    found = searched(rounded, np.array([0.9, 0.0, -2.0]))
    assert quadratic(found.point)[0] > -0.15
    assert found.message in ("converged", ROUNDED)
    assert found.evaluations < 200


def test_differences_that_rounding_hides_are_those_of_slopes() -> None:
    """Exact of a quadratic, also over several line searches; larger ones are those of values."""
    places = [np.array(each) for each in ([0.9, 0.0, -2.0], [0.95, 0.1, -1.5], [1.1, 0.3, 0.0], [1.0, 0.9, 0.8])]
    errors = iter([0.0, 0.05, -0.08, 3.0])

    def off(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = quadratic(x)
        return value + next(errors), slope

    negative = _Negative(off, lambda x: x, Outcome(places[0], -np.inf, "", 0))
    negative.contradicted = 0.1
    negative.by_slopes()
    assert negative.rounding == MARGIN * 0.1 and negative.contradicted == 0.0
    told = []
    for x in places:
        told.append(negative(x)[0])
        negative.begin()
    true = [-quadratic(x)[0] for x in places]
    np.testing.assert_allclose(np.subtract(told, told[0])[:3], np.subtract(true, true[0])[:3], rtol=1e-12)
    assert told[3] - told[2] == pytest.approx(true[3] - true[2] - 3.0 - 0.08)


@pytest.mark.parametrize(("error", "expected"), [(0.9, 0.0), (1.1, 1.1)])
def test_values_contradict_slopes_where_they_are_off_by_more_than_these_bend(error: float, expected: float) -> None:
    """By 1, over a step of 1 along the third; what a gain as large forgets. Smooth functions are off by less."""
    errors = iter([0.0, error])

    def off(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = quadratic(x)
        return value - next(errors), slope

    start = np.array([1.0, 1.0, -2.0])
    negative = _Negative(off, lambda x: x, Outcome(start, -np.inf, "", 0))
    negative(start)
    negative(start + [0.0, 0.0, 1.0])
    assert negative.contradicted == pytest.approx(expected)
    negative.begin(1.0)
    assert negative.contradicted == pytest.approx(expected)
    negative.begin(1.2)
    assert negative.contradicted == 0.0


def test_values_that_agree_with_slopes_are_left_alone() -> None:
    """A smooth function that is no quadratic: no evaluation more than SciPy's own search takes."""
    from scipy.optimize import minimize, rosen, rosen_der

    found = maximise(
        lambda x: (-float(rosen(x)), -rosen_der(x)), np.array([-1.2, 1.0]), steps=200, tolerance=0.0,
        report=lambda *_: None, size=1.0,
    )  # fmt: skip
    options = {"maxiter": 200, "maxfun": 600, "ftol": 0.0, "gtol": 1e-6, "maxcor": 20}
    own = minimize(rosen, [-1.2, 1.0], jac=rosen_der, method="L-BFGS-B", options=options)
    assert found.evaluations == own.nfev
    np.testing.assert_array_equal(found.point, own.x)


@pytest.mark.parametrize("init", [{"ell": 3.0}, {"b": 10.0}])
def test_single_precision_does_not_stop_half_way(init: dict[str, float]) -> None:
    """A nearly singular covariance of 40 points: the search ended after two steps, 50 nats below, and converged."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    data = {"x": x, "y": np.sin(2 * x[:, 0]) + 0.3 * x[:, 1] ** 2 + 0.1 * rng.normal(size=300)}
    model = gpdsl.compile("""
        input x : real[2]
        output y : real
        param b : positive = 1
        param ell : positive = 1
        param sigma : positive = 1
        latent f(x) ~ GP(0, b * Polynomial(5, offset = 1, ell = ell))
        y ~ Normal(f, sigma)
        infer vi: inducing = 40, dtype = float32
        """)
    fit = model.fit(data, progress=False, init=init, diagnose="no")
    assert fit.elbo == pytest.approx(-65.6, abs=0.3)  # what most starts find


def test_double_precision_is_advised_where_it_is_not_had() -> None:
    single, double = rounded_at({"a": np.zeros(2, np.float32)}), rounded_at({"a": np.zeros(2)})
    assert single.startswith(ROUNDED) and double.startswith(ROUNDED)
    assert "dtype = float64" in single and "float64" not in double
