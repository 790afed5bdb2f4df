"""A fit as an xarray tree, in the groups and with the dimensions that ArviZ reads."""

from __future__ import annotations

import numpy as np
import pytest

import gpdsl

pytest.importorskip("xarray")

MODEL = """index p in 1..2
input x : real[D]
output y[p] : real
param s[p] : positive
param ell : positive[D] = 1
latent f[p](x) ~ GP(0, RBF(ell))
let ratio[p] = f[p] / s[p]
y[p] ~ Normal(f[p], s[p])
"""
X = np.random.default_rng(0).normal(size=(12, 2))


def test_groups_dimensions_and_numbers() -> None:
    y = np.stack([np.sin(X[:, 0]), X[:, 1]], axis=1)
    y[3, 1] = np.nan
    fit = gpdsl.compile(MODEL).fit({"x": X, "y": y}, steps=3)
    tree = fit.to_datatree({"x": X, "y": y}, draws=400, seed=2)
    posterior, predicted = tree["posterior"], tree["posterior_predictive"]
    assert dict(posterior["s"].sizes) == {"chain": 1, "draw": 400, "p": 2}
    assert posterior["ell"].dims == ("chain", "draw", "ell_dim_0")
    assert posterior["f"].dims == posterior["ratio"].dims == predicted["y"].dims == ("chain", "draw", "row", "p")
    np.testing.assert_array_equal(posterior["s"][0, 7], fit.parameters["s"])
    np.testing.assert_allclose(posterior["ratio"] * posterior["s"], posterior["f"], rtol=1e-12)
    prediction = fit.predict({"x": X})
    np.testing.assert_array_equal(posterior["f"][0], prediction.draws("f", 400, seed=2))
    error = np.sqrt(prediction.variance("y") / 400)
    assert np.all(np.abs(predicted["y"].mean(("chain", "draw")) - prediction.mean("y")) < 5 * error)
    np.testing.assert_array_equal(tree["observed_data"]["y"], y)
    np.testing.assert_array_equal(tree["constant_data"]["x"], X)
    assert list(fit.to_datatree(draws=1)) == ["posterior"]


def test_levels_are_numbers_from_one() -> None:
    text = """index c in {"low", "high"}
    input x : real
    output k : label[c]
    param w[c] : positive = 1
    k ~ Categorical(logits = log(w[c]))
    """
    data = {"x": X[:, 0], "k": np.where(X[:, 0] > 0, "high", "low")}
    tree = gpdsl.compile(text).fit(data).to_datatree(data, draws=50)
    assert set(np.unique(tree["posterior_predictive"]["k"])) == {1, 2}
    np.testing.assert_array_equal(tree["observed_data"]["k"], np.where(X[:, 0] > 0, 2, 1))
