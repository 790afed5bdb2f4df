"""Means that do not exist are NaN, and said; those that do are as before."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import sympy as sp

import gpdsl
from gpdsl.errors import GpdslWarning
from gpdsl.results.nodes import degrees, poles
from gpdsl.symbolic.curves import curve
from gpdsl.symbolic.laws import Law
from tests.inference.problems import unlearnt

X = np.linspace(0.0, 3.0, 8)
HEAD = "input x : real\noutput y : {kind}\nlatent f(x) ~ GP(0, RBF(1))\nlatent g(x) ~ GP({mean}, RBF(1))\n"


def prediction(kind: str, rest: str, mean: str = "0"):
    model = gpdsl.compile(HEAD.format(kind=kind, mean=mean) + rest)
    return unlearnt(model, {"x": X, "y": 1.5 + np.sin(X) ** 2}).predict({"x": [0.5, 9.0]})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "rest"),
    [
        ("real", "y ~ StudentT(1, f + g, 0.5)"),
        ("real", "y ~ Mixture(0.3, StudentT(0.8, f + g, 0.5), Normal(f, 1))"),
        ("real", "y ~ Truncated(StudentT(1, f + g, 0.5), lower = 0)"),
        ("real", "density cauchy(v | m) = -log(1 + (v - m)^2) - log(3.141592653589793)\ny ~ cauchy(f + g)"),
        ("positive", "density pareto(v | m) = log(0.9) - 1.9 * log(1 + v) + 0 * m\ny ~ pareto(f + g)"),
        ("positive", "log(y) ~ StudentT(4, f + g, 0.5)"),
        ("positive", "log(y) ~ Laplace(f + g, 1.5)"),
    ],
)
def test_an_output_without_mean(kind: str, rest: str) -> None:
    found = prediction(kind, rest + "\n")
    with pytest.warns(GpdslWarning, match="`y` has no mean in 2 of 2 places"):
        mean = found.mean("y")
    assert np.isnan(mean).all()
    with pytest.warns(GpdslWarning, match="no variance"):
        assert np.isnan(found.variance("y")).all()
    assert np.isfinite(found.quantile("y", [0.1, 0.5, 0.9])).all()


def test_a_frame_says_once_what_does_not_exist() -> None:
    found = prediction("positive", "y ~ HalfCauchy(exp(f))\n")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        frame = found.to_frame()
    assert [str(each.message)[:18] for each in caught] == ["`y` has no mean in"]
    assert frame["y_sd"].isna().all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "rest"),
    [
        ("real", "y ~ StudentT(2.5, f + g, 0.5)"),
        ("real", "y ~ Truncated(StudentT(1, f + g, 0.5), lower = -9, upper = 9)"),
        ("positive", "log(y) ~ Normal(f + g, 0.5)"),
        ("positive", "log(y) ~ Laplace(f + g, 0.2)"),
        ("real", "density t(v | m) = -2 * log(1 + (v - m)^2 / 3) - 1.00088888\ny ~ t(f + g)"),
    ],
)
def test_an_output_with_mean(kind: str, rest: str) -> None:
    found = prediction(kind, rest + "\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error", GpdslWarning)
        assert np.isfinite(found.mean("y")).all()
        assert np.isfinite(found.variance("y")).all()


def test_a_mixture_with_a_heavy_tail_has_no_mean() -> None:
    found = prediction("real", "y ~ Mixture(0.3, StudentT(0.8, f + g, 0.5), Normal(f, 1))\n")
    with pytest.warns(GpdslWarning, match="`y` has no mean in 2 of 2 places"):
        assert np.isnan(found.mean("y")).all()
    assert np.isfinite(found.quantile("y", 0.5)).all()


def test_a_ratio_has_no_mean_unless_its_divisor_is_far_from_zero() -> None:
    rest = "let ratio = f / g\nlet fine = g / (1 + f^2)\ny ~ Normal(f, 0.1)\n"
    found = prediction("real", rest)
    with pytest.warns(GpdslWarning, match="`ratio` has no mean"):
        assert np.isnan(found.mean("ratio")).all()
    assert np.isfinite(found.quantile("ratio", 0.5)).all()
    assert np.isfinite(found.mean("fine")).all()
    far = prediction("real", rest, "30").mean("ratio")
    np.testing.assert_allclose(far[1], 0.0, atol=0.05)
    assert np.isfinite(far).all()


def test_poles() -> None:
    f, g, a = sp.symbols("f g a", real=True)
    latents = (f, g)
    assert list(poles(f / g, latents)) == [g]
    assert list(poles(1 + a / (2 * f - a), latents)) == [2 * f - a]
    assert list(poles(1 / g**2, latents)) == [g]
    for fine in (
        sp.sin(f) / f,
        (f**2 - a**2) / (f - a),
        f / sp.exp(g),
        1 / (1 + f**2),
        sp.Abs(f) ** sp.Rational(-1, 2),
    ):
        assert list(poles(fine, latents)) == []


def test_a_zero_of_both_parts_of_a_ratio_is_no_pole() -> None:
    f, a = sp.symbols("f a", real=True)
    assert list(poles(sp.sin(3 * f - a) / (3 * f - a), (f,))) == []
    for numerator in (sp.sin(3 * f + a), sp.sin(f - a), sp.cos(3 * f - a)):
        assert list(poles(numerator / (3 * f - a), (f,))) == [3 * f - a]


def test_degrees_of_freedom_of_laws_and_of_what_is_in_them() -> None:
    two, shape = sp.Integer(2), sp.Symbol("s")
    heavy = Law("StudentT", {"df": two, "mean": sp.Integer(0), "scale": sp.Integer(1)})
    inverse = Law("InverseGamma", {"shape": shape, "scale": two})
    half = Law("HalfCauchy", {"scale": two})
    plain = Law("Normal", {"mean": two, "sd": two})
    mixed = Law("Mixture", {"weights": sp.Rational(1, 2)}, (heavy, Law("Truncated", {"lower": two}, (inverse,))))
    assert degrees(heavy) == [2] and degrees(inverse) == [shape] and degrees(half) == [1] and degrees(plain) == []
    assert degrees(mixed) == [2, shape]
    for name in ("Truncated", "Censored"):
        assert degrees(Law(name, {"lower": two, "upper": shape}, (heavy,))) == []
        assert degrees(Law(name, {"upper": shape}, (half,))) == [1]


@pytest.mark.parametrize("order", [0.7, 1.5, 3.0, 40.0])
def test_the_power_of_a_tail(order: float) -> None:
    assert curve(lambda y: -(order + 1) * np.log1p(y), 1, "positive").tail == pytest.approx(order, rel=1e-6)
    assert curve(lambda y: -(order + 1) / 2 * np.log1p(y**2), 1, "real").tail == pytest.approx(order, rel=1e-6)
    assert curve(lambda y: -(y**2), 1, "real").tail > 1e9


def test_a_divisor_some_deviations_from_zero_leaves_no_mean_and_one_further_out_does() -> None:
    """At x = 9 the posterior is the prior: 5 standard deviations from zero, then 8."""
    for mean, exists in (("5", False), ("8", True)):
        found = prediction("real", "let ratio = f / g\ny ~ Normal(f + 0 * g, 0.5)\n", mean)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GpdslWarning)
            assert np.isfinite(found.mean("ratio")[1]) == exists
            assert np.isfinite(found.variance("ratio")[1]) == exists
