"""Variables of rows after a fit: their posterior, beside formulas."""

from __future__ import annotations

import numpy as np
import pytest

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
