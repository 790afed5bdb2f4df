"""Simulate, fit, and find again what was simulated: parameters and latents within the posterior's own uncertainty."""

from __future__ import annotations

import numpy as np
import pytest

import gpdsl

from . import models
from .test_requests import zoo_model

COVERED = 0.85
"""Least share of true values inside central intervals of 99 %: rows are correlated, variational intervals narrow."""


def coverage(fit: gpdsl.Fit, drawn: object, names: list[str]) -> float:
    prediction = fit.predict(drawn.data)
    inside = []
    for name in names:
        z = (drawn.latents[name] - prediction.mean(name)) / np.sqrt(prediction.variance(name))
        inside.append(np.abs(z).ravel() < 2.58)
    return float(np.mean(np.concatenate(inside)))


def test_regression_recovers_its_parameters() -> None:
    model = gpdsl.compile(models.REGRESSION)
    truth = {"ell": 0.5, "sigma": 0.1}
    drawn = model.sample_prior(rows=200, seed=3, parameters=truth)
    fit = model.fit(drawn.data, seed=0)
    assert np.log(fit.parameters["sigma"] / 0.1) == pytest.approx(0, abs=0.25)
    assert np.log(fit.parameters["ell"] / 0.5) == pytest.approx(0, abs=0.5)
    assert coverage(fit, drawn, ["f"]) > COVERED


def test_counts_recover_their_rate() -> None:
    model = gpdsl.zoo("coal_mining")
    drawn = model.sample_prior(rows=150, seed=2, parameters={"m": 1.5, "s2": 1.0, "ell": 10})
    fit = model.fit(drawn.data, seed=0)
    assert coverage(fit, drawn, ["f"]) > COVERED
    error = np.log(fit.predict(drawn.data).mean("intensity") / drawn.lets["intensity"])
    assert np.sqrt(np.mean(error**2)) < 0.35


def test_a_warp_is_recovered() -> None:
    model = gpdsl.compile(models.WARPED)
    drawn = model.sample_prior(rows=120, seed=1, parameters={"a": 1.0})
    known, learnt = model.fit(drawn.data, seed=0, fixed=["a"]), model.fit(drawn.data, seed=0)
    assert coverage(known, drawn, ["f"]) > COVERED
    # Twice the gain in the bound by learning one parameter is chi-squared with one degree of freedom: 10.8 is 0.1 %.
    assert 0 <= 2 * (learnt.elbo - known.elbo) + 0.01 < 10.8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "latents", "rows"),
    [
        ("boston", ["f"], 200),
        ("wisconsin", ["f"], 300),
        ("probit", ["f"], 300),
        ("student_t", ["f"], 200),
        ("laplace", ["f"], 200),
        ("seismic", ["depth", "velocity"], 60),
        ("ordinal", ["f"], 300),
        ("derivatives", ["f"], 60),
    ],
)
def test_zoo_models_recover_their_latents(name: str, latents: list[str], rows: int) -> None:
    model = zoo_model(name)
    drawn = model.sample_prior(rows=rows, seed=1)
    fit = model.fit(drawn.data, seed=0)
    assert coverage(fit, drawn, latents) > COVERED
    error = np.concatenate([(fit.predict(drawn.data).mean(each) - drawn.latents[each]).ravel() for each in latents])
    prior = np.concatenate([(drawn.latents[each] - drawn.latents[each].mean(axis=0)).ravel() for each in latents])
    assert np.sqrt(np.mean(error**2)) < np.sqrt(np.mean(prior**2))
