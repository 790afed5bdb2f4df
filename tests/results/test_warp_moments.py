"""Moments of outputs observed through a transform, against mpmath's integrals over the law of the transform."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import sympy as sp
from scipy import integrate, stats

import gpdsl
from gpdsl.errors import GpdslWarning
from gpdsl.results.warp import Moments, Plain, law_moments
from gpdsl.symbolic.laws import Law
from gpdsl.symbolic.terms import Warp

Map = Callable[[Any], Any]
NORMAL = Law("Normal", {"mean": 0.3, "sd": 1.0})


def found(kind: str, transform: Map, law: Law, *, increasing: bool = True) -> Moments:
    y = sp.Symbol("y", real=True, positive=True if kind != "real" else None)
    value = transform(y)
    warp, arrays = Warp(y, value, sp.diff(value, y), None, kind), law.map(lambda each: np.array([float(each)]))
    with np.errstate(all="ignore"):
        return law_moments(warp, arrays, {}, increasing=increasing)


def log_density(law: Law) -> Map:
    a = {name: mp.mpf(value) for name, value in law.arguments.items()}
    if law.name == "Normal":
        return lambda t: -(((t - a["mean"]) / a["sd"]) ** 2) / 2 - mp.log(2 * mp.pi * a["sd"] ** 2) / 2
    return lambda t: -abs(t - a["mean"]) / a["scale"] - mp.log(2 * a["scale"])


def expected(law: Law, back: Map, cuts: Sequence[float]) -> tuple[float, float]:
    """Mean and variance of back(t) for t between the outermost cuts."""
    density = log_density(law)
    top = max(density(cut) for cut in cuts)
    with mp.workdps(25):
        mass, first, second = (mp.quad(lambda t, k=k: mp.exp(density(t) - top) * back(t) ** k, cuts) for k in range(3))
        return float(first / mass), float(second / mass - (first / mass) ** 2)


def root(order: int) -> Map:
    return lambda t: mp.sign(t) * abs(t) ** (mp.mpf(1) / order)


@pytest.mark.parametrize("order", [3, 5])
@pytest.mark.parametrize(
    "law",
    [
        NORMAL,
        Law("Normal", {"mean": 0.02, "sd": 1e-4}),
        Law("Normal", {"mean": 5.0, "sd": 0.5}),
        Law("Laplace", {"mean": 0.5, "scale": 1.0}),
    ],
    ids=str,
)
def test_an_inverse_that_is_steep_at_zero(order: int, law: Law) -> None:
    m, s = law.arguments["mean"], law.arguments["sd" if law.name == "Normal" else "scale"]
    cuts = sorted({0.0} | {m + k * s for k in (-80, -12, -3, 0, 3, 12, 80)})
    moments, (mean, variance) = found("real", lambda y: y**order, law), expected(law, root(order), cuts)
    np.testing.assert_allclose([moments.mean[0], moments.variance[0]], [mean, variance], rtol=1e-9)


@pytest.mark.parametrize("b", [0.1, 0.3, 0.45, 0.6, 0.9])
@pytest.mark.parametrize("sign", [1, -1])
def test_powers_of_the_tail_of_a_log_laplace(b: float, sign: int) -> None:
    """E exp(k t) = exp(k m) / (1 - k^2 b^2), while k b < 1."""
    law = Law("Laplace", {"mean": sign * 0.7, "scale": b})
    moments = found("positive", lambda y: sign * sp.log(y), law, increasing=sign > 0)
    mean = np.exp(0.7) / (1 - b**2)
    np.testing.assert_allclose([moments.mean[0], moments.order[0]], [mean, 1 / b], rtol=1e-9)
    if b < 0.5:
        np.testing.assert_allclose(moments.variance[0], np.exp(1.4) / (1 - 4 * b**2) - mean**2, rtol=1e-9)


@pytest.mark.parametrize("sign", [1, -1])
def test_what_lies_beyond_all_numbers_counts(sign: int) -> None:
    """A density that falls like y^-3.004 has a sixteenth of its second moment there."""
    law = Law("Laplace", {"mean": sign * 0.7, "scale": 0.499})
    moments = found("positive", lambda y: sign * sp.log(y), law, increasing=sign > 0)
    reference = np.exp(1.4) / (1 - 4 * 0.499**2) - (np.exp(0.7) / (1 - 0.499**2)) ** 2
    np.testing.assert_allclose(moments.variance[0], reference, rtol=2e-3)


@pytest.mark.parametrize("shape", [0.9, 1.05, 1.5, 2.05, 9.0])
def test_an_inverse_gamma(shape: float) -> None:
    moments = found("positive", lambda y: 1 / y, Law("Gamma", {"shape": shape, "rate": 3.0}), increasing=False)
    reference = stats.invgamma(shape, scale=3.0)
    assert moments.order[0] == pytest.approx(shape, rel=1e-9)
    if shape > 1:
        assert moments.mean[0] == pytest.approx(reference.mean(), rel=1e-9)
    if shape > 2:
        assert moments.variance[0] == pytest.approx(reference.var(), rel=1e-9)


@pytest.mark.parametrize("sd", [0.3, 1.0, 3.0, 7.0])
def test_a_log_normal_has_every_moment(sd: float) -> None:
    moments = found("positive", sp.log, Law("Normal", {"mean": 0.2, "sd": sd}))
    mean = np.exp(0.2 + sd**2 / 2)
    np.testing.assert_allclose(
        [moments.mean[0], moments.variance[0]], [mean, mean**2 * np.expm1(sd**2)], rtol=1e-9 if sd < 7 else 1e-8
    )
    assert moments.order[0] == np.inf


def test_a_logarithm_of_a_logarithm_has_none() -> None:
    assert found("positive", lambda y: sp.log(sp.log(1 + y)), NORMAL).order[0] < 1


def test_bounds() -> None:
    """Truncated, far out too, and censored: what lies at the bounds is taken back as well."""
    for mean, cuts in ((-1.0, [0, 1, 4, 12, 40]), (-40.0, [0, 0.01, 0.1, 1, 4])):
        law = Law("Normal", {"mean": mean, "sd": 1.0})
        moments = found("positive", sp.sqrt, Law("Truncated", {"lower": 0.0}, (law,)))
        wanted = expected(law, lambda t: t**2, cuts)
        np.testing.assert_allclose([moments.mean[0], moments.variance[0]], wanted, rtol=1e-9)
    low, high = 0.1, 1.2
    sides = stats.norm.cdf(low, 0.3), stats.norm.sf(high, 0.3)
    powers = [
        sides[0] * np.exp(k * low)
        + sides[1] * np.exp(k * high)
        + integrate.quad(lambda t, k=k: stats.norm.pdf(t, 0.3) * np.exp(k * t), low, high, epsabs=1e-13)[0]
        for k in (1, 2)
    ]
    moments = found("positive", sp.log, Law("Censored", {"lower": low, "upper": high}, (NORMAL,)))
    np.testing.assert_allclose([moments.mean[0], moments.variance[0]], [powers[0], powers[1] - powers[0] ** 2])


def test_steps_mixtures_proportions_and_heavy_tails() -> None:
    steps = found("real", lambda y: y + 3 * sp.tanh(20 * (y - 1)), NORMAL)
    density = lambda y: stats.norm.pdf(y + 3 * np.tanh(20 * (y - 1)), 0.3) * (1 + 60 / np.cosh(20 * (y - 1)) ** 2)  # noqa: E731
    cuts = [-12, -4, 0.7, 0.85, 0.95, 1, 1.05, 1.15, 1.3, 2, 8]
    mass, first, second = (
        sum(
            integrate.quad(lambda y, k=k: density(y) * y**k, a, b, epsabs=1e-14)[0]
            for a, b in zip(cuts, cuts[1:], strict=False)
        )
        for k in range(3)
    )
    assert mass == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose([steps.mean[0], steps.variance[0]], [first, second - first**2], rtol=1e-9)
    parts = (Law("Normal", {"mean": 0.2, "sd": 0.5}), Law("Laplace", {"mean": 0.0, "scale": 0.25}))
    mixed = found("positive", sp.log, Law("Mixture", {"weights": 0.3}, parts))
    assert mixed.mean[0] == pytest.approx(0.3 * np.exp(0.325) + 0.7 / (1 - 0.0625), rel=1e-9)
    beta = found("unit", sp.sqrt, Law("Beta", {"a": 2.0, "b": 1.4}))
    assert beta.mean[0] == pytest.approx(2 * 3 / (3.4 * 4.4), rel=1e-9)
    cauchy = found("real", lambda y: y**3, Law("StudentT", {"df": 1.0, "mean": 0.0, "scale": 1.0}))
    np.testing.assert_allclose([cauchy.mean[0], cauchy.variance[0], cauchy.order[0]], [0, 2, 3], atol=1e-9)


def test_rounding_is_no_steep_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a law as narrow as 1e-10 of what its transform adds up every part loses some probability, down to the last."""
    calls, rule = 0, Plain.integrated

    def counted(self: Plain) -> tuple[Moments, np.ndarray]:
        nonlocal calls
        calls += 1
        assert calls < 200
        return rule(self)

    monkeypatch.setattr(Plain, "integrated", counted)
    law = Law("Normal", {"mean": 100.3 + 10 * np.tanh(0.3), "sd": 5e-9})
    moments, slope = found("real", lambda y: 100 + y + 10 * sp.tanh(y), law), 1 + 10 / np.cosh(0.3) ** 2
    assert calls > 1
    np.testing.assert_allclose([moments.mean[0], np.sqrt(moments.variance[0])], [0.3, 5e-9 / slope], rtol=1e-4)


def test_steps_away_from_the_middle() -> None:
    """Two, of which the law is halved until neither is stepped over: against integrals between their ends."""
    steps = ((3.0, 20.0, 1.0), (0.5, 500.0, -1.0))
    moments = found("real", lambda y: y + sum(a * sp.tanh(b * (y - c)) for a, b, c in steps), NORMAL)
    t = lambda y: y + mp.fsum(a * mp.tanh(b * (y - c)) for a, b, c in steps)  # noqa: E731
    slope = lambda y: 1 + mp.fsum(a * b * mp.sech(b * (y - c)) ** 2 for a, b, c in steps)  # noqa: E731
    cuts = sorted([c + k / b for _, b, c in steps for k in (-20, -6, -2, 0, 2, 6, 20)] + [-9, -3, 3, 9])
    powers = [mp.quad(lambda y, k=k: mp.npdf(t(y), 0.3) * slope(y) * y**k, cuts) for k in range(3)]
    assert abs(powers[0] - 1) < 1e-12
    np.testing.assert_allclose(
        [moments.mean[0], moments.variance[0]], [float(powers[1]), float(powers[2] - powers[1] ** 2)], 1e-9
    )


# --- of fits ----------------------------------------------------------------------------------------------------

X = np.linspace(0.0, 3.0, 8)


def predicted(kind: str, line: str) -> gpdsl.Prediction:
    """At a row amid the data and at one far away."""
    model = gpdsl.compile(f"input x : real\noutput y : {kind}\nlatent f(x) ~ GP(0.4, RBF(1))\n{line}\n")
    return model.fit({"x": X, "y": 1.5 + np.sin(X) ** 2}, steps=2).predict({"x": [0.5, 9.0]})


def test_of_a_cube() -> None:
    p = predicted("real", "y^3 ~ Normal(f, 1)")
    for place, (mean, variance) in enumerate(zip(p.mean("y"), p.variance("y"), strict=True)):
        m, s = float(p.mean("f")[place]), float(np.sqrt(p.variance("f")[place] + 1))
        cuts = sorted({0.0} | {m + k * s for k in (-40, -12, -3, 0, 3, 12, 40)})
        wanted = expected(Law("Normal", {"mean": m, "sd": s}), root(3), cuts)
        np.testing.assert_allclose([mean, variance], wanted, rtol=1e-8)


def test_of_a_log_laplace() -> None:
    p = predicted("positive", "log(y) ~ Laplace(f, 0.45)")
    m, v = p.mean("f"), p.variance("f")
    mean = np.exp(m + v / 2) / (1 - 0.45**2)
    np.testing.assert_allclose(p.mean("y"), mean, rtol=1e-8)
    np.testing.assert_allclose(p.variance("y"), np.exp(2 * m + 2 * v) / (1 - 4 * 0.45**2) - mean**2, rtol=1e-8)


@pytest.mark.parametrize(
    "line",
    [
        "log(y) ~ StudentT(3, f, 1)",
        pytest.param("log(1 + y) ~ Exponential(exp(f))", marks=pytest.mark.slow),
        pytest.param("-log(y) ~ Laplace(f, 1)", marks=pytest.mark.slow),
        pytest.param("1/y ~ Exponential(1 + 0*f)", marks=pytest.mark.slow),
        pytest.param("1/y ~ Gamma(0.9, exp(f))", marks=pytest.mark.slow),
        pytest.param("log(log(1 + y)) ~ Normal(f, 0.3)", marks=pytest.mark.slow),
        pytest.param("log(y) ~ Normal(f, exp(f))", marks=pytest.mark.slow),
    ],
)
def test_of_what_has_none(line: str) -> None:
    p = predicted("positive", line)
    with pytest.warns(GpdslWarning, match="`y` has no mean"):
        assert np.isnan(p.mean("y")[1])


@pytest.mark.slow
def test_an_infinite_variance_beside_a_mean() -> None:
    p = predicted("positive", "1/y ~ Gamma(1.9, exp(f))")
    np.testing.assert_allclose(p.mean("y"), np.exp(p.mean("f") + p.variance("f") / 2) / 0.9, rtol=1e-8)
    assert np.isinf(p.variance("y")).all()
