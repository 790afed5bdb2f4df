"""A fit as an xarray tree, in the groups and with the dimensions that ArviZ reads."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

import gpdsl
from tests.inference.problems import unlearnt

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
    densities = np.nansum(norm.logpdf(y, posterior["f"][0], fit.parameters["s"]), axis=-1)
    np.testing.assert_allclose(tree["log_likelihood"]["y"][0], densities, rtol=1e-10)
    np.testing.assert_array_equal(tree["constant_data"]["x"], X)
    assert list(fit.to_datatree(draws=1)) == ["posterior", "sample_stats"]
    assert tree["sample_stats"]["log_weight"].sizes == {"chain": 1, "draw": 400}


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


def test_a_prediction_is_a_dataset() -> None:
    fit = unlearnt(MODEL, {"x": X, "y": X})
    frame = pd.DataFrame({"x1": X[:5, 0], "x2": X[:5, 1]}, index=pd.date_range("2024-01-01", periods=5))
    prediction = fit.predict(frame)
    found = prediction.to_xarray(quantiles=[0.1, 0.5, 0.9])
    assert found["y_quantile"].dims == ("quantile", "row", "p") and found["ratio_mean"].dims == ("row", "p")
    np.testing.assert_array_equal(found["y_mean"], prediction.mean("y"))
    np.testing.assert_array_equal(found["y_sd"] ** 2, np.sqrt(prediction.variance("y")) ** 2)
    np.testing.assert_array_equal(found["y_quantile"].sel(quantile=0.9), prediction.quantile("y", 0.9))
    np.testing.assert_array_equal(found["row"], frame.index)
    np.testing.assert_array_equal(found["x"], X[:5])
    assert list(prediction.to_xarray("f", quantiles=[])) == ["f_mean", "f_sd"]


def test_levels_and_times_name_the_axes_of_a_dataset() -> None:
    text = """index c in {"low", "high"}
    input t : time
    output k : label[c]
    latent f[c](t) ~ GP(0, RBF(10))
    k ~ Categorical(logits = f)
    """
    days = np.arange("2024-01-01", "2024-01-09", dtype="M8[D]")
    prediction = unlearnt(text, {"t": days, "k": ["low", "high"] * 4}).predict({"t": days[:3]})
    found = prediction.to_xarray()
    np.testing.assert_array_equal(found["k_p"].sel(c="high"), prediction.mean("k")[:, 1])
    np.testing.assert_array_equal(found["t"], days[:3])
    assert found["k_label"].values.tolist() == prediction.label("k").tolist()


def test_the_log_likelihood_is_that_of_the_draws_under_settings_and_in_the_units_of_the_data() -> None:
    x = np.linspace(0, 5, 15)
    data = {"x": x, "y": 100 + 20 * np.sin(x)}
    model = gpdsl.compile("""
input x : real
output y : real
param sigma : positive = 0.3 ~ LogNormal(-1, 1)
latent f(x) ~ GP(0, RBF(1))
y ~ Normal(f, sigma)
""")
    fit = model.fit(data, standardise=True, hyperparameters="integrated")
    tree = fit.to_datatree(data, draws=50, seed=1)
    scaled, latents = (fit.standardised.into("y", each) for each in (data["y"], tree["posterior"]["f"][0].to_numpy()))
    noise = tree["posterior"]["sigma"][0].to_numpy()[:, None]
    assert len(np.unique(noise)) > 3
    said, settings = tree["sample_stats"], fit.settings
    assert settings is not None
    of = [settings.each[number].parameters["sigma"] for number in said["setting"].values[0]]
    np.testing.assert_array_equal(noise[:, 0], of)
    np.testing.assert_array_equal(said["log_weight"][0], np.log(settings.weights)[said["setting"].values[0]])
    densities = norm.logpdf(scaled, latents, noise) - np.log(fit.standardised.sds["y"])
    np.testing.assert_allclose(tree["log_likelihood"]["y"][0], densities, rtol=1e-10)
    assert "log_likelihood" not in fit.to_datatree({"x": x}, draws=5).children


def test_every_dimension_has_coordinates() -> None:
    """Numbers of rows from 0, as ArviZ counts, and elements of an index by the words and numbers of the model."""
    data = {"x": X, "y": np.stack([np.sin(X[:, 0]), X[:, 1]], axis=1)}
    for levels, expected in (("1..2", [1, 2]), ('{"old", "new"}', ["old", "new"])):
        tree = gpdsl.compile(MODEL.replace("1..2", levels)).fit(data, steps=2).to_datatree(data, draws=10)
        assert all(set(group.dims) <= set(group.coords) for group in tree.children.values())
        assert tree["posterior"]["p"].values.tolist() == expected
        np.testing.assert_array_equal(tree["posterior"]["row"], np.arange(12))
        np.testing.assert_array_equal(tree["posterior"]["ell_dim_0"], [0, 1])
