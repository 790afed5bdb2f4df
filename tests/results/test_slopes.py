"""Quantiles of averages of smooth laws: derivatives by differences, places by bisection, and what they cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats

import gpdsl
from gpdsl.results.predictive import Predictive
from gpdsl.results.quantiles import Around, of_normals
from gpdsl.results.slopes import SMOOTH, Smooth
from gpdsl.symbolic.laws import Law

SCALES = {"Normal": "sd", "StudentT": "scale", "Logistic": "scale"}
REFERENCES: dict[str, Any] = {
    "Normal": lambda a: stats.norm(a["mean"], a["sd"]),
    "StudentT": lambda a: stats.t(a["df"], a["mean"], a["scale"]),
    "Logistic": lambda a: stats.logistic(a["mean"], a["scale"]),
}


def law_of(name: str, nodes: int, places: int, width: float, seed: int = 0) -> Law:
    generator = np.random.default_rng(seed)
    mean = generator.standard_normal((nodes, 1, places))
    more = {"df": np.broadcast_to(3.5, mean.shape)} if name == "StudentT" else {}
    return Law(name, {"mean": mean, SCALES[name]: width * np.exp(0.1 * mean), **more})


def around(law: Law, nodes: int, places: int) -> Around:
    weights = np.random.default_rng(1).dirichlet(np.ones(nodes)).reshape(nodes, 1)
    smooth = Smooth.of(law, weights, (places,))
    assert smooth is not None
    mean = np.tensordot(weights, law.arguments["mean"], axes=2)
    return Around(smooth, mean, np.full(places, 1.5))


@pytest.mark.parametrize("name", SMOOTH)
def test_curves_are_a_distribution_function_and_its_derivatives(name: str) -> None:
    y, h = np.linspace(-4, 5, 31)[:, None], 1e-4
    given = {"mean": np.array([[0.3, -1.0]]), SCALES[name]: np.array([[0.7, 2.0]]), "df": np.array([[3.5, 3.5]])}
    curves = SMOOTH[name](y, given)
    known = REFERENCES[name](given)
    np.testing.assert_allclose(curves[0], known.cdf(y), rtol=1e-12)
    np.testing.assert_allclose(curves[1], known.pdf(y), rtol=1e-12)
    beside = [SMOOTH[name](y + step, given) for step in (h, -h)]
    for order in (1, 2):
        slope = (beside[0][order] - beside[1][order]) / (2 * h)
        np.testing.assert_allclose(curves[order + 1], slope, atol=1e-6)


@pytest.mark.parametrize("width", [1.0, 0.1, 1e-3])
@pytest.mark.parametrize("nodes", [3, 300])
@pytest.mark.parametrize("name", SMOOTH)
def test_places_are_where_bisection_finds_them(name: str, nodes: int, width: float) -> None:
    """Of nodes far apart beside their width too, where a step leads anywhere."""
    law = law_of(name, nodes, 4, width)
    whole = around(law, nodes, 4)
    for p in (1e-3, 0.3, 0.95):
        found = whole.quantile(p)
        for place in range(4):
            one = {each: leaf[:, 0, place] for each, leaf in law.arguments.items()}
            cdf = REFERENCES[name](one).cdf
            share = lambda y, cdf=cdf: float(whole.smooth.weights @ cdf(y)) - p  # noqa: B023, E731
            expected = optimize.brentq(share, -500, 500, xtol=1e-14, rtol=1e-14)
            assert abs(share(found[place])) <= 1e-11
            assert found[place] == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize(
    ("weight", "mean", "sd", "start", "beyond"),
    [
        ((0.5, 0.5), (-1.0, 1.0), (0.3, 0.3), 0.0, 1e-4),
        ((0.9, 0.1), (0.0, 0.0), (100.0, 1.0), -1.0, 4e-4),
        ((0.9997, 3e-4), (0.0, 6e-4), (1.0, 1e-5), 0.0, 4e-4),
        ((0.998, 0.002), (0.0, 1e-3), (1.0, 2e-4), 0.0, 2e-3),
    ],
    ids=["a valley between two", "the flank of one", "across one that is not seen", "across one that is hardly seen"],
)
def test_a_step_is_the_last_where_nothing_is_left(
    weight: tuple[float, ...], mean: tuple[float, ...], sd: tuple[float, ...], start: float, beyond: float
) -> None:
    """From places where the slope, or its change, or the narrowest law says nothing of what is beyond."""
    law = Law("Normal", {"mean": np.array(mean)[:, None], "sd": np.array(sd)[:, None]})
    smooth = Smooth.of(law, np.array(weight), (1,))
    assert smooth is not None
    share = lambda y: float(np.array(weight) @ stats.norm.cdf(y, mean, sd))  # noqa: E731
    p = share(start) + beyond
    (found,), (settled,) = smooth.quantile(p, np.array([start - 1e-9 * stats.norm.ppf(p)]), np.array([1e-9]))
    assert not settled or abs(share(found) - p) < 1e-13
    (found,), (settled,) = smooth.quantile(p, np.array([start - stats.norm.ppf(p)]), np.array([1.0]))
    assert settled and abs(share(found) - p) < 1e-13


@pytest.mark.parametrize("name", SMOOTH)
def test_one_law_has_its_own_quantiles(name: str) -> None:
    law = law_of(name, 1, 3, 0.4)
    known = REFERENCES[name]({each: leaf[0, 0] for each, leaf in law.arguments.items()})
    for p in (1e-13, 0.2, 0.5, 0.99):
        np.testing.assert_allclose(around(law, 1, 3).quantile(p), known.ppf(p), rtol=1e-11)


def test_the_smallest_probabilities_have_their_own_places() -> None:
    """What is nothing beside one is no share of them."""
    law = law_of("Normal", 3, 2, 0.4)
    whole = around(law, 3, 2)
    for p in (1e-13, 1e-15):
        for place, found in enumerate(whole.quantile(p)):
            one = {each: leaf[:, 0, place] for each, leaf in law.arguments.items()}
            share = whole.smooth.weights @ stats.norm.cdf(found, one["mean"], one["sd"])
            assert share == pytest.approx(p, rel=1e-11, abs=0.0)


@pytest.mark.filterwarnings("error")
def test_laws_without_width_are_steps() -> None:
    """At probabilities within a step that is its place."""
    mean, variance = np.array([[0.0], [1.0], [2.0]]), np.array([[0.0], [0.0], [0.25]])
    whole = of_normals(mean, variance, np.array([0.5, 0.3, 0.2]))
    assert whole.quantile(0.25)[0] == pytest.approx(0.0, abs=1e-12)
    assert whole.quantile(0.7)[0] == pytest.approx(1.0, abs=1e-12)
    share = 0.8 + 0.2 * stats.norm.cdf(whole.quantile(0.95)[0], 2.0, 0.5)
    assert share == pytest.approx(0.95, abs=1e-13)


def test_numbers_that_do_not_vary_are_kept_once() -> None:
    mean = np.random.default_rng(0).standard_normal((300, 1, 5))
    apart = Law("Normal", {"mean": mean, "sd": np.full(mean.shape, 0.4)})
    once = Law("Normal", {"mean": mean, "sd": np.broadcast_to(0.4, mean.shape)})
    by_place = Law("Normal", {"mean": mean, "sd": np.broadcast_to(np.full(5, 0.4), mean.shape)})
    assert [around(law, 300, 5).smooth.arguments["sd"].shape for law in (apart, once, by_place)] == [
        (5, 300), (1, 1), (5, 1)
    ]  # fmt: skip
    found = [around(law, 300, 5).quantile(0.9) for law in (apart, once, by_place)]
    np.testing.assert_allclose(found[1:], [found[0]] * 2, rtol=1e-14)


def test_few_evaluations_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs as much as all nodes: a search by values alone takes some twenty of them."""
    law, seen = law_of("Normal", 2048, 50, 0.3), []
    at = Smooth.at
    monkeypatch.setattr(Smooth, "at", lambda self, y: (seen.append(len(self.weights) * len(y)), at(self, y))[1])
    around(law, 2048, 50).quantile(0.05)
    assert sum(seen) < 4 * 2048 * 50


@pytest.mark.parametrize("call", ["Bernoulli(probit = 4*f)", "Bernoulli(logit = 4*f)"])
def test_what_is_rare_keeps_its_digits_in_binary_outputs(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """1 - p has none where p is 1 but for rounding; P(y <= 0) = 1 - p reaches itself."""
    x = np.linspace(0, 3, 20)
    model = gpdsl.compile(f"input x : real\noutput y : binary\nlatent f(x) ~ GP(2, RBF(1))\ny ~ {call}\n")
    predicted = model.fit({"x": x, "y": np.ones(20)}, steps=5).predict({"x": x})
    mean, sd = predicted.mean("f"), predicted.sd("f")
    z = np.linspace(-12, 12, 40_001)
    law = stats.norm if "probit" in call else stats.logistic
    weight = stats.norm.pdf(z) / stats.norm.pdf(z).sum()
    shares = [law.cdf(sign * 4 * (mean[:, None] + sd[:, None] * z)) @ weight for sign in (1, -1)]
    np.testing.assert_allclose(predicted.variance("y"), shares[0] * shares[1], rtol=1e-9)
    for p in (0.01, 0.5, 0.999):
        np.testing.assert_array_equal(predicted.quantile("y", p), np.where(shares[1] >= p, 0.0, 1.0))
    monkeypatch.setattr(Predictive, "chances", (np.full(20, 0.25), np.linspace(0.7, 0.8, 21)[1:]))
    np.testing.assert_array_equal(predicted.quantile("y", 0.75), np.linspace(0.7, 0.8, 21)[1:] < 0.75)


@pytest.mark.parametrize("width", [3.0, 0.3, 0.02])
@pytest.mark.parametrize("name", SMOOTH)
def test_many_laws_as_wide_as_each_other_are_put_on_a_grid(
    name: str, width: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One look at all of them is left, at their distribution functions alone, unless they are narrow."""
    nodes, places, full = 2048, 6, []
    law = law_of(name, nodes, places, width)
    widths = width * np.arange(1, places + 1)
    law = Law(name, {**law.arguments, SCALES[name]: widths[None, None]})
    cdf, at = Smooth.cdf, Smooth.at
    count = lambda self, y: full.append(len(y)) if self.weights.ndim == 1 else None  # noqa: E731
    monkeypatch.setattr(Smooth, "cdf", lambda self, y: (count(self, y), cdf(self, y))[1])
    monkeypatch.setattr(Smooth, "at", lambda self, y: (count(self, y), at(self, y))[1])
    whole = around(law, nodes, places)._replace(spread=1.0 + 1.5 * widths)
    for p in (1e-3, 0.3, 0.95):
        full.clear()
        found = whole.quantile(p)
        assert width < 0.1 or sum(full) <= (places if p > 0.01 else 2 * places)
        one = {each: np.broadcast_to(leaf[:, 0], (nodes, places)) for each, leaf in law.arguments.items()}
        np.testing.assert_allclose(whole.smooth.weights @ REFERENCES[name](one).cdf(found), p, rtol=1e-8)
