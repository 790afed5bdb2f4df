"""Predictions given outputs that are not normal: the best Gaussian, against quadrature over one latent value."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl.data import bind
from gpdsl.inference.problem import as_arrays
from gpdsl.program.cache import jit, precision
from gpdsl.program.program import make_program, make_rows
from gpdsl.results import given
from tests.inference.problems import unlearnt

X = np.linspace(0, 5, 12)
COUNTS = np.array([1, 3, 2, 4, 6, 5, 3, 1, 0, 1, 2, 4.0])
POISSON = """input x : real
output n : count
latent f(x) ~ GP(0.5, RBF(1))
n ~ Poisson(exp(f))
"""


def test_counts_move_a_latent_as_a_fit_of_all_rows_does() -> None:
    """At the same parameters, but that the sites of the others move a little where all are fitted."""
    text = POISSON.replace("RBF(1)", "RBF(ell)").replace("output", "param ell : positive = 1 fixed\noutput")
    model = gpdsl.compile(text)
    fit = model.fit({"x": X, "n": COUNTS}, posterior="full", tolerance=1e-12)
    known = {"x": [2.2, 7.0], "n": [9.0, 3.0]}
    both = {name: np.concatenate([{"x": X, "n": COUNTS}[name], known[name]]) for name in known}
    whole = model.fit(both, posterior="full", tolerance=1e-12).predict({"x": [2.2, 3.0, 6.5]})
    found = fit.predict({"x": [2.2, 3.0, 6.5]}, given=known)
    before = fit.predict({"x": [2.2, 3.0, 6.5]})
    assert np.abs(before.mean("f") - whole.mean("f")).max() > 0.15
    np.testing.assert_allclose(found.mean("f"), whole.mean("f"), atol=0.01)
    np.testing.assert_allclose(found.variance("f"), whole.variance("f"), rtol=0.15)


@pytest.mark.parametrize("law", ["Bernoulli(logit = f)", pytest.param("StudentT(4, f, 0.3)", marks=pytest.mark.slow)])
def test_far_from_the_data_the_best_gaussian_is_that_of_one_value(law: str) -> None:
    """There q is the prior: the bound of one value is maximised over mean and deviation by brute force."""
    kind, value = ("binary", 1.0) if "logit" in law else ("real", 1.2)
    model = gpdsl.compile(f"input x : real\noutput y : {kind}\nlatent f(x) ~ GP(0, RBF(1))\ny ~ {law}\n")
    fit = unlearnt(model, {"x": X, "y": np.arange(12.0) % 2})
    found = fit.predict({"x": [1000.0]}, given={"x": [1000.0], "y": [value]})
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights /= weights.sum()

    def bound(mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
        f = mean[..., None] + sd[..., None] * nodes
        log = -np.logaddexp(0, -f) if kind == "binary" else stats.t.logpdf(value, 4, f, 0.3)
        return log @ weights - 0.5 * (mean**2 + sd**2 - 1) + np.log(sd)

    grid = np.meshgrid(np.linspace(0, 1.3, 261), np.linspace(0.2, 1, 321), indexing="ij")
    best = np.unravel_index(np.argmax(bound(*grid)), grid[0].shape)
    assert found.mean("f")[0] == pytest.approx(grid[0][best], abs=0.01)
    assert np.sqrt(found.variance("f")[0]) == pytest.approx(grid[1][best], abs=0.01)


def test_classes_move_all_latents() -> None:
    model = gpdsl.compile("""index c in 1..3
input x : real
output y : label[c]
latent f[c](x) ~ GP(0, RBF(1))
y ~ Categorical(logits = f)
""")
    fit = model.fit({"x": X, "y": 1 + np.arange(12) % 3}, steps=3)
    told = fit.predict({"x": [30.0, 60.0]}, given={"x": [30.0, 30.0], "y": [2, 2]})
    chances = told.mean("y")
    assert chances[0, 1] > 0.5 and chances[0, 0] == pytest.approx(chances[0, 2], abs=0.02)
    assert chances[1] == pytest.approx(1 / 3, abs=0.02)
    assert told.draws("f", 50).shape == (50, 2, 3)


def test_passes_through_layers_share_the_samples_of_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given, "SAMPLES", 8)
    text = "index c in 1..2\ninput x : real\noutput y : label[c]\nlatent f[c](x) ~ GP(0, RBF(1))\ny ~ "
    model = gpdsl.compile(text + "Categorical(logits = f)")
    bound = bind(model.declarations, {"x": [0.0, 1.0], "y": [1, 2]})
    program = make_program(model.declarations, bound.sizes, bound.levels, {}, expectations="sampled")
    mean, covariance = np.array([[[0.3, -0.5], [1.0, 0.2]]] * 3), np.tile(0.5 * np.eye(2), (3, 2, 1, 1))
    mean[2] += 1.0  # of both logits, which changes no chance
    with precision("float64"):
        rows = as_arrays(make_rows(program, bound), "float64")
        known: Any = SimpleNamespace(marginals=SimpleNamespace(mean=mean), count=2, seed=0, parameters={}, rows=rows)
        known.compile = lambda _, function: jit(lambda moments: function(known, moments))
        found, _ = given.expected_of(known, program)(mean, covariance)
    assert found == pytest.approx(found[0]) and found[0] < 0
