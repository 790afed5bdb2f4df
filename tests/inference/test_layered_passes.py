"""Passes of new rows through layers: what is said of narrow noise, its errors, and options of layers."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl.errors import GpdslError, GpdslWarning
from tests.inference.problems import unlearnt
from tests.inference.test_layered import STEP

NARROW = """
input x : real
output y : real
row w ~ Normal(0, 1)
latent f(x, w) ~ GP(2 * w, 1e-14 * RBF(1))
y ~ Normal(f, 0.1)
"""
"""Passes are evenly spaced."""

OF_TWO = NARROW.replace("(x, w) ~ GP(2 * w,", "(x, w, v) ~ GP(1.2 * w + 1.6 * v,") + "row v ~ Normal(0, 1)\n"
"""Passes are a quasi-Monte-Carlo set."""


def fitted(model: str) -> gpdsl.Fit:
    x = 0.01 * np.arange(10.0)
    return unlearnt(model, {"x": x, "y": 2 * np.sin(10 * x)}, inducing=3)


@pytest.fixture(scope="module")
def narrow() -> gpdsl.Fit:
    return fitted(NARROW)


@pytest.fixture(scope="module")
def of_two() -> gpdsl.Fit:
    return fitted(OF_TWO)


KNOWN = stats.norm(0.0, np.sqrt(4.01))


@pytest.mark.parametrize(("name", "atol"), [("narrow", 1e-5), ("of_two", 0.15)])
def test_densities_and_tails_under_narrow_noise_are_those_of_the_integral(
    name: str, atol: float, request: pytest.FixtureRequest
) -> None:
    fit, y = request.getfixturevalue(name), KNOWN.ppf([0.001, 0.02, 0.3, 0.5, 0.9, 0.999])
    found = fit.log_predictive_density({"x": np.zeros(6), "y": y})
    np.testing.assert_allclose(found, KNOWN.logpdf(y), atol=atol)
    prediction = fit.predict({"x": [0.0]})
    quantiles = prediction.quantile("y", [0.001, 0.5, 0.999])[:, 0]
    np.testing.assert_allclose(quantiles, y[[0, 3, 5]], atol=0.1 if name == "of_two" else 1e-5)
    np.testing.assert_allclose(prediction.variance("y"), 4.01, rtol=2e-3)
    np.testing.assert_allclose(prediction.crps("y", [0.0]), np.sqrt(4.01 / np.pi) * (np.sqrt(2) - 1), rtol=0.05)


def test_errors_of_passes_are_about_as_large_as_what_they_miss(of_two: gpdsl.Fit) -> None:
    prediction = of_two.predict({"x": [0.0]})
    for of, known, found in (
        ("mean", 0.0, prediction.mean("y")),
        ("variance", 4.01, prediction.variance("y")),
        (0.999, KNOWN.ppf(0.999), prediction.quantile("y", 0.999)),
    ):
        error = float(prediction.error("y", of)[0])
        assert 0 < error < 0.2 and abs(float(found[0]) - known) < 5 * error
    for condition, least in (("y > 2.5", 0.0), ("y > 2.5 and w > -99", 0.004)):  # by passes, and by a share of draws
        share, error = (float(prediction.probability(condition, error=each)[0]) for each in (False, True))
        assert least < error < 0.02 and abs(share - KNOWN.sf(2.5)) < 5 * error


def test_errors_of_evenly_spaced_passes_are_small(narrow: gpdsl.Fit) -> None:
    prediction = narrow.predict({"x": [0.0]})
    assert all(float(prediction.error("y", of)[0]) < 1e-6 for of in ("mean", "variance"))
    assert float(prediction.error("y", 0.999)[0]) < 0.1  # each of the sets is a staircase


def test_densities_that_passes_hardly_tell_are_warned_of(narrow: gpdsl.Fit, of_two: gpdsl.Fit) -> None:
    far = narrow.log_predictive_density({"x": np.zeros(1), "y": np.array([14.0])})
    np.testing.assert_allclose(far, KNOWN.logpdf([14.0]), atol=1e-4)
    for fit, beyond in ((narrow, 25.0), (of_two, 14.0)):
        with pytest.warns(GpdslWarning, match="log densities of 1 row are known to"):
            fit.log_predictive_density({"x": np.zeros(2), "y": np.array([1.0, beyond])})
        with warnings.catch_warnings():
            warnings.simplefilter("error", GpdslWarning)
            fit.log_predictive_density({"x": np.zeros(2), "y": np.array([1.0, 3.0])})


def _data() -> dict[str, np.ndarray]:
    x = np.linspace(-1, 1, 12)
    return {"x": x, "y": np.sign(x)}


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("tolerance", 1e-4),
        ("epsilon", 1e-4),
        ("decay", 0.5),
        ("evaluations", 100),
        ("sampling", "iid"),
        ("control_variate", "none"),
    ],
)
def test_options_that_tell_layers_nothing_are_refused(option: str, value: Any) -> None:
    with pytest.raises(GpdslError, match=f"{option} = {value} does not go with latents.*leave it out"):
        gpdsl.compile(STEP).fit(_data(), **{option: value})


@pytest.mark.slow
def test_inducing_points_stay_where_they_are_asked_to() -> None:
    kept, other = (
        gpdsl.compile(STEP).fit(_data(), inducing=5, learn_inducing=False, steps=steps, seed=0) for steps in (1, 25)
    )
    moved = gpdsl.compile(STEP).fit(_data(), inducing=5, steps=25, seed=0)
    for before, after, away in zip(kept.inducing, other.inducing, moved.inducing, strict=True):
        np.testing.assert_array_equal(before.points, after.points)
        assert np.max(np.abs(np.asarray(away.points) - np.asarray(before.points))) > 0.01


def test_another_number_of_inducing_points_than_those_of_the_start_is_refused() -> None:
    model = gpdsl.compile(STEP)
    first = model.fit(_data(), inducing=5, steps=2)
    with pytest.raises(GpdslError, match="inducing = 7, but start = fit has 5 inducing points of `h`"):
        model.fit(_data(), inducing=7, steps=2, start=first)
    assert len(model.fit(_data(), inducing=5, steps=2, start=first).inducing[0].points) == 5


def test_a_bound_that_rises_to_the_end_is_noted() -> None:
    """Inner layers start narrow, and what that costs is not shed in so few steps."""
    x = np.linspace(-1, 1, 40)
    y = np.sin(3 * x) + 0.1 * np.random.default_rng(0).standard_normal(40)
    model, how = gpdsl.compile(STEP), {"inducing": 20, "samples": 20}
    notes = model.fit({"x": x, "y": y}, steps=40, **how).notes
    assert any("the bound still rises" in note and "steps = 160" in note for note in notes)
    hardly_begun = model.fit({"x": x, "y": y}, steps=20, **how)  # ten nats below: so few steps tell nothing
    assert "all steps done" in hardly_begun.message and not hardly_begun.notes


@pytest.mark.slow
def test_short_steps_at_the_end_do_not_hide_that_a_bound_rises() -> None:
    """In the last fifth of the steps nothing moves; a fit that goes on from there gains ten nats."""
    x = np.linspace(-2, 2, 60)
    y = np.sin(3 * x) * (1 + x) + 0.3 * np.random.default_rng(0).standard_normal(60)
    model = gpdsl.compile(
        "input x : real\noutput y : real\nlatent h(x) ~ GP(x, RBF(1))\nlatent f(h) ~ GP(0, RBF(1))\n"
        "latent s(h, x) ~ GP(0, RBF(1))\ny ~ Normal(f, exp(s))\n"
    )
    slow = {"learning_rate": 0.03}
    first = model.fit({"x": x, "y": y}, steps=30, **slow)
    assert any("the bound still rises" in note for note in first.notes)
    assert model.fit({"x": x, "y": y}, steps=50, start=first, **slow).elbo > first.elbo + 10
