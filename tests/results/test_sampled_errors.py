"""The stated error of expectations that are averages over samples, against what they miss."""

from __future__ import annotations

import numpy as np
import pytest

import gpdsl

MODEL = """
input x : real
output y : real
latent f(x) ~ GP(0, RBF(1))
latent g(x) ~ GP(0.5, 2 * RBF(1))
latent h(x) ~ GP(-0.5, RBF(2))
let largest = max(f, max(g, h))
let share = exp(f) / (exp(f) + exp(g) + exp(h))
let product = exp(f) * g * h
let least = max(f, g)
let wave = if sin(5 * f) > 0 then 1 else 0
y ~ Normal(f + g + h, 0.5)
"""


@pytest.fixture(scope="module")
def prediction() -> gpdsl.Prediction:
    x = np.linspace(0.0, 3.0, 6)
    fit = gpdsl.compile(MODEL).fit({"x": x, "y": np.sin(x)}, steps=3, posterior="diagonal", seed=0)
    return fit.predict({"x": np.linspace(-4.0, 8.0, 24)})


ASKED = [(name, of) for name in ("largest", "share") for of in ("mean", "variance", 0.2)]


@pytest.mark.parametrize(("name", "of"), [*ASKED, ("wave", "mean")])
def test_the_error_is_as_large_as_what_is_missed(prediction: gpdsl.Prediction, name: str, of: str | float) -> None:
    found, summary = {
        "mean": (prediction.mean, lambda s: s.mean(axis=0)),
        "variance": (prediction.variance, lambda s: s.var(axis=0)),
        0.2: (lambda n: prediction.quantile(n, 0.2), lambda s: np.quantile(s, 0.2, axis=0)),
    }[of]
    draws = prediction.sample(name, 400_000, seed=3)
    parts = np.stack([summary(part) for part in np.split(draws, 20)])
    own = np.std(parts, axis=0, ddof=1) / np.sqrt(len(parts))
    scores = (found(name) - summary(draws)) / np.hypot(prediction.error(name, of), own)
    assert 0.4 < np.sqrt(np.mean(scores**2)) < 2.0
    assert np.max(np.abs(scores)) < 6.0


def test_what_is_exact_has_no_error(prediction: gpdsl.Prediction) -> None:
    for name in ("product", "least", "f", "y"):
        for of in ("mean", "variance"):
            assert np.all(prediction.error(name, of) == 0.0)
