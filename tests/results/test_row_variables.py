"""Variables of rows after a fit: their posterior, beside formulas."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

import gpdsl


def test_of_a_normal_model_it_is_the_conjugate_posterior() -> None:
    rng = np.random.default_rng(4)
    model = gpdsl.compile("input x : real\noutput y : real\nrow e ~ Normal(x, 0.5)\ny ~ Normal(2 * e, 0.3)\n")
    data = {"x": rng.standard_normal(6), "y": rng.standard_normal(6)}
    found = model.fit(data, diagnose="no").row_variables(data)["e"]
    precision = 1 / 0.25 + 4 / 0.09
    np.testing.assert_allclose(found.mean, (data["x"] / 0.25 + 2 * data["y"] / 0.09) / precision, rtol=1e-5)
    np.testing.assert_allclose(found.sd, precision**-0.5, rtol=1e-5)


def test_rows_on_a_line_are_found_in_their_order() -> None:
    rng = np.random.default_rng(4)
    model = gpdsl.compile(
        "index p in 1..P\noutput y[p] : real\nrow w ~ Normal(0, 1)\nlatent f[p](w) ~ GP(0, RBF(2))\n"
        "y[p] ~ Normal(f[p], 0.1)\n"
    )
    place = rng.uniform(-1.5, 1.5, 25)
    data = {"y": np.stack([place, np.sin(place), 1 - place], axis=1) + 0.05 * rng.standard_normal((25, 3))}
    fit = model.fit(data, steps=200, inducing=10, diagnose="no")
    found = fit.row_variables(data)["w"]
    assert found.mean.shape == (25,) and abs(np.corrcoef(found.mean, place)[0, 1]) > 0.95
    assert np.all(found.sd > 0) and np.all(found.sd < 0.5)
    with pytest.raises(gpdsl.GpdslError, match="row_variables asks for the data that were fitted, 25 rows"):
        fit.row_variables({"y": data["y"][::-1]})


def test_a_model_without_them_says_so() -> None:
    model = gpdsl.compile("input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.3)\n")
    data = {"x": [0.0, 1.0], "y": [0.0, 1.0]}
    with pytest.raises(gpdsl.GpdslError, match="row_variables: model has none; `row w ~ Normal"):
        model.fit(data, diagnose="no").row_variables(data)


def test_quantiles_of_narrow_noise_far_from_the_data_are_those_of_the_latent() -> None:
    """All passes are alike there; with the same nodes in each, shares were 0.05 off, and the error was 0."""
    model = gpdsl.compile("""
        input x : real
        output y : real
        row w ~ Normal(0, 1)
        latent f(x, w) ~ GP(0, RBF(1))
        y ~ Laplace(f, 0.01)
        infer vi: steps = 5, inducing = 5
    """)
    x = np.linspace(0.0, 1.0, 10)
    prediction = model.fit({"x": x, "y": np.sin(x)}).predict({"x": [40.0]})
    asked = [0.01, 0.05, 0.3, 0.5, 0.975]
    found = prediction.quantile("y", asked)[:, 0]
    assert np.allclose(norm.cdf(found), asked, atol=0.004)
    assert 1e-4 < prediction.error("y", 0.3)[0] < 0.02
