"""Expectation propagation with opaque functions: the answer of the same model with a formula, within a budget."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpdsl
from gpdsl import GpdslError
from gpdsl.inference.expectation_propagation import engine, objective

ONE = """
input x : real
output y : real
param sigma : positive = 0.5
{}
latent f(x) ~ GP(0, 1.5 * RBF(0.8))
y ~ {}
"""
TWO = """
input x : real
output y : real
{}
latent f(x) ~ GP(0, RBF(1))
latent h(x) ~ GP(0.5, 0.3 * RBF(1))
y ~ {}
"""
DENSITY = "external likelihood outlier(y: real | f: real)"


def sums(count: int = 30) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(count)
    x = np.linspace(-2, 2, count)
    return {"x": x, "y": np.tanh(2 * np.sin(2 * x)) + 0.3 * rng.standard_normal(count)}


def outlier(y: np.ndarray, f: np.ndarray) -> np.ndarray:
    """Student's t with four degrees of freedom and scale 0.4."""
    from scipy import stats

    return np.asarray(stats.t.logpdf((y - f) / 0.4, 4) - np.log(0.4))


CASES: dict[str, tuple[str, str, str, Callable[..., Any], dict[str, Any]]] = {
    "saturating": (
        ONE.format("external g(f: real) -> real", "Normal(g(f), sigma)"),
        ONE.format("", "Normal(tanh(2 * f), sigma)"),
        "g",
        lambda f: np.tanh(2 * f),
        {"fixed": ["sigma"], "inducing": 0},
    ),
    "log density, inducing points, power": (
        ONE.format(DENSITY, "outlier(f)"),
        ONE.format("", "StudentT(4, f, 0.4)"),
        "outlier",
        outlier,
        {"inducing": 9, "power": 0.7},
    ),
    "two latents": (
        TWO.format("external g(f: real, h: real) -> real", "Normal(g(f, h), 0.4)"),
        TWO.format("", "Normal(sin(f) * exp(h), 0.4)"),
        "g",
        lambda f, h: np.sin(f) * np.exp(h),
        {"inducing": 0},
    ),
}


@pytest.mark.parametrize(
    "name", [name if name == "saturating" else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_the_answer_is_that_of_the_formula(name: str) -> None:
    """Evidence within its error, means within tenths of standard deviations, which agree to some per cent."""
    text, formula, function, how, options = CASES[name]
    data = sums()
    known = gpdsl.compile(formula).fit(data, engine="ep", **options)
    found = gpdsl.compile(text, externals={function: how}).fit(data, engine="ep", **options)
    assert "settle" not in found.message and "improper" not in found.message
    assert 0.0 < found.elbo_se < 0.3
    assert abs(found.elbo - known.elbo) < 4.0 * found.elbo_se + 0.02
    for latent in ("f", "h") if "h(x)" in text else ("f",):
        mean, variance = (getattr(known.predict(data), what)(latent) for what in ("mean", "variance"))
        assert np.abs((found.predict(data).mean(latent) - mean) / np.sqrt(variance)).max() < 0.15
        assert np.abs(np.sqrt(found.predict(data).variance(latent) / variance) - 1).max() < 0.08


@pytest.mark.slow
def test_a_poor_surrogate_is_corrected_by_the_evaluations() -> None:
    """One row and a step as the function, which no quadratic resembles: the evidence is that of the integral."""
    model = gpdsl.compile(
        ONE.format("external g(f: real) -> real", "Normal(g(f), sigma)"),
        externals={"g": lambda f: np.where(f > 0.3, 1.0, -1.0)},
    )
    fit = model.fit({"x": [0.0], "y": [0.8]}, engine="ep", inducing=0, fixed=["sigma"], samples=256)
    from scipy import stats

    above = stats.norm.sf(0.3 / np.sqrt(1.5))
    exact = np.log(above * stats.norm.pdf(0.8, 1, 0.5) + (1 - above) * stats.norm.pdf(0.8, -1, 0.5))
    assert abs(fit.elbo - exact) < 0.1


@pytest.mark.slow
def test_what_is_learnt_is_near_what_the_formula_says() -> None:
    text, formula, function, how, _ = CASES["saturating"]
    data = sums(40)
    known = gpdsl.compile(formula).fit(data, engine="ep", inducing=0)
    found = gpdsl.compile(text, externals={function: how}).fit(data, engine="ep", inducing=0)
    assert float(found.parameters["sigma"]) == pytest.approx(float(known.parameters["sigma"]), rel=0.05)
    assert found.elbo == pytest.approx(known.elbo, abs=4.0 * found.elbo_se + 0.05)


def test_a_budget_is_kept_and_counted() -> None:
    text, _, function, how, options = CASES["saturating"]
    called = 0

    def counted(f: np.ndarray) -> np.ndarray:
        nonlocal called
        called += len(f)
        return np.asarray(how(f))

    model, data = gpdsl.compile(text, externals={function: counted}), sums()
    plan = model.explain(data, engine="ep", evaluations=1200, **options)
    assert "of surrogates of g, corrected by reweighted evaluations" in plan and "never more than 1,200" in plan
    called = 0
    fit = model.fit(data, engine="ep", evaluations=1200, **options)
    assert 600 < called <= 1200
    assert fit.usage.evaluations == called
    assert f"{called:,} evaluations" in fit.summary()


def test_what_does_not_settle_is_tried_at_lower_powers_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    text, _, function, how, options = CASES["saturating"]
    settled = objective.doubts

    def unsettled(here: bool, stuck: float, count: int) -> str:
        return settled(here and lasts, stuck, count)

    monkeypatch.setattr(objective, "doubts", unsettled)
    lasts = False
    fit = gpdsl.compile(text, externals={function: how}).fit(sums(12), engine="ep", evaluations=1200, **options)
    assert any("can be relied on" in note for note in fit.notes)
    assert "did not settle" in fit.message and np.isfinite(fit.elbo)
    assert fit.usage.evaluations <= 1200


@pytest.mark.parametrize("options", [{"batch": 10, "inducing": 5}, {"optimizer": "adam"}])
def test_what_has_no_rounds_is_refused(options: dict[str, Any]) -> None:
    text, _, function, how, _ = CASES["saturating"]
    model = gpdsl.compile(text, externals={function: how})
    with pytest.raises(GpdslError, match="`g` is opaque, and engine = ep evaluates"):
        model.fit(sums(), engine="ep", **options)


@pytest.mark.parametrize(
    ("steady", "stuck", "said"), [(1, 0, "did not settle"), (2, 0, ""), (3, 4, "4 of 30 rows have")]
)
def test_sites_at_rest_for_two_sweeps_leave_no_doubt(
    steady: int, stuck: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    search: Any = object.__new__(engine.EpOpaque)
    fixed = SimpleNamespace(steady=np.asarray(steady), swept=SimpleNamespace(stuck=np.asarray(float(stuck))))
    search.fitted = search.best = SimpleNamespace(surrogate=None, point=None, sites=None)
    search.simulator = SimpleNamespace(fixed=lambda *given: (0.0, None, fixed))
    search.problem, search.doubt = SimpleNamespace(count=30), ""
    search.normals = lambda: None
    monkeypatch.setattr(engine.Rounds, "result", lambda self: self.doubt)
    found = search.result()
    assert said in found and bool(found) == bool(said)
    search.fitted = None
    search.doubt = ""
    assert search.result() == ""
