"""The stated error of expectations that are averages over samples, against what they miss."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpdsl
from gpdsl.results import accuracy

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


def test_errors_of_classes_are_those_of_their_indicators() -> None:
    """Var[1_c] = p (1 - p), which moves with p by 1 - 2 p."""
    law = "index c in 1..C\ninput x : real\noutput k : label[c]\nlatent f[c](x) ~ GP(0, RBF(1))\n"
    model = gpdsl.compile(law + "k ~ Categorical(logits = f)\n")
    fit = model.fit({"x": np.linspace(0, 3, 8), "k": [*"abcd"] * 2}, steps=2, posterior="diagonal")
    found = fit.predict({"x": [0.1, 5.0]})
    errors = found.error("k")
    assert errors.shape == (2, 4) and np.all(errors > 0)
    np.testing.assert_allclose(found.error("k", "variance"), np.abs(1 - 2 * found.mean("k")) * errors, rtol=1e-12)


def test_rules_that_disagree_and_what_is_left_beside_them_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two components and three rows, by three rules: the largest difference from the first, and what is left."""
    rng = np.random.default_rng(0)
    values, left, weights = rng.normal(size=(3, 2, 3)), rng.uniform(1, 2, (2, 3)), np.array([0.3, 0.7])
    monkeypatch.setattr(accuracy, "of_two", lambda *_: (values, left))
    quantity: Any = SimpleNamespace(beliefs=SimpleNamespace(weights=weights), integral=None)
    found = accuracy._between_nodes(quantity)
    said, second, third = np.einsum("krn,r->kn", values, weights)
    np.testing.assert_allclose(found, np.maximum(abs(second - said), abs(third - said)) + weights @ left, rtol=1e-13)


@pytest.mark.parametrize("axes", [(), (2,)])
def test_variances_of_weighted_means_are_those_of_their_points(axes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(5), size=8)  # of 2 components and 4 rows
    difference = rng.normal(size=(5, 2, 4, *axes))
    found = accuracy._alone(weights, difference)
    for k in range(2):
        for row in range(4):
            w = weights[4 * k + row].reshape(5, *(1,) * len(axes))
            expected = np.sum(w**2 * difference[:, k, row] ** 2, axis=0) / (1 - np.sum(w**2))
            np.testing.assert_allclose(found[k, row], expected, rtol=1e-12)


def test_errors_of_passes_are_those_of_the_mean_of_their_sets() -> None:
    found = {"mean": np.array([[1.0, 2.0], [1.5, 1.0], [0.2, 4.0]]), "variance": np.array([[1.0], [3.0], [2.0]])}
    sets: Any = [
        SimpleNamespace(_mean=lambda _, i=i: found["mean"][i], _variance=lambda _, i=i: found["variance"][i])
        for i in range(3)
    ]
    for of, each in found.items():
        spread = np.sqrt(np.sum((each - each.mean(axis=0)) ** 2, axis=0) / 2 / 3)
        np.testing.assert_allclose(accuracy.of_passes(sets, "y", of), spread, rtol=1e-13)


def test_errors_that_nothing_has_are_told_apart() -> None:
    for fine in ("mean", "variance", 0.3):
        accuracy.verify_asked("y", fine)
    for wrong in ("median", 0.0, 1.0, -0.2):
        with pytest.raises(gpdsl.GpdslError, match="error of `y`: expected"):
            accuracy.verify_asked("y", wrong)
