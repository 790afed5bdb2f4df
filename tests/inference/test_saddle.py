"""Products of latents whose priors are all at zero: the fit leaves the symmetric start."""

from __future__ import annotations

import numpy as np
import pytest

import gpdsl


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
