"""Predictions averaged over settings of the parameters, against the mixture that they are, in SciPy."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl.data import bind
from gpdsl.data.bound import Standardised
from gpdsl.inference.posteriors import posterior
from gpdsl.inference.posteriors.coupled import Block
from gpdsl.inference.problem import as_arrays
from gpdsl.program.cache import precision
from gpdsl.program.joint import Marginals
from gpdsl.program.program import make_program, make_rows
from gpdsl.results.averaged import MANY, PROBITS, Averaged, _between
from gpdsl.results.datatree import _Drawing
from gpdsl.results.expectation import Beliefs
from gpdsl.results.settings import Setting, Settings

MODEL = """
input x : real
output y : real
output n : count
output l : positive
output b : binary
output t : real
param s : positive = 0.4 fixed
latent f(x) ~ GP(0, RBF(1))
let wide = f * f
y ~ Normal(f, s)
n ~ Poisson(exp(0.02 * f + 1))
l ~ LogNormal(0.02 * f + 1, s)
b ~ Bernoulli(logit = 0.1 * f + 6)
t ~ StudentT(4, f, 2 * s)
"""
ROWS = 3
WEIGHTS = np.array([0.2, 0.5, 0.3])
RNG = np.random.default_rng(0)
MEANS = -60.0 + RNG.normal(size=(3, ROWS)) * 4
SDS = RNG.uniform(0.5, 2.0, (3, ROWS))


@pytest.fixture(scope="module")
def beliefs() -> Beliefs:
    declarations = gpdsl.compile(MODEL).declarations
    data = {"x": np.arange(3.0), "y": np.arange(3.0), "n": np.arange(3), "l": np.arange(1, 4), "b": [0, 1, 1]}
    bound = bind(declarations, data | {"t": np.arange(3.0)})
    with precision("float64"):
        program = make_program(declarations, bound.sizes, bound.levels, {})
        numbers = as_arrays((make_rows(program, bound), program.parameters.unconstrained()), "float64")
        q = Marginals(jnp.zeros((1, ROWS, 1)), jnp.ones((1, ROWS, 1)))
        return Beliefs(program.for_prediction(), program.parameters.constrain(numbers[1]), numbers[0], q, np.ones(1))


def mixture(beliefs: Beliefs, means: np.ndarray, sds: np.ndarray, weights: np.ndarray) -> Averaged:
    """Settings with these means and deviations of the latent."""
    each = []
    for mean, sd in zip(means, sds, strict=True):
        marginals = Marginals(jnp.asarray(mean[None, :, None]), jnp.asarray(sd[None, :, None] ** 2))
        spread = np.diag(sd**2)[None, None, :, None, :]
        block: Any = lambda spread=spread: [Block((0,), spread)]  # noqa: E731
        each.append(replace(beliefs, marginals=marginals, blocks=block))
    return Averaged(weights, each, "float64", Standardised(), None)


@pytest.fixture(scope="module")
def averaged(beliefs: Beliefs) -> Averaged:
    with precision("float64"):
        return mixture(beliefs, MEANS, SDS, WEIGHTS)


def below(y: np.ndarray, sds: np.ndarray, means: np.ndarray = MEANS, weights: np.ndarray = WEIGHTS) -> np.ndarray:
    return weights @ stats.norm.cdf((y - means) / sds)


def test_moments_are_within_and_between(averaged: Averaged) -> None:
    mean = WEIGHTS @ MEANS
    spread = WEIGHTS @ (SDS**2 + MEANS**2) - mean**2
    np.testing.assert_allclose(averaged.mean("f"), mean, rtol=1e-10)
    np.testing.assert_allclose(averaged.variance("f"), spread, rtol=1e-8)
    np.testing.assert_allclose(averaged.variance("y"), spread + 0.16, rtol=1e-8)
    np.testing.assert_allclose(averaged.mean("wide"), WEIGHTS @ (SDS**2 + MEANS**2), rtol=1e-8)
    apart = MEANS - mean
    among = np.einsum("k,ki,kj->ij", WEIGHTS, apart, apart) + np.diag(WEIGHTS @ SDS**2)
    np.testing.assert_allclose(averaged.covariance("f"), among, rtol=1e-8)


def test_a_mean_that_few_settings_make_is_told(beliefs: Beliefs) -> None:
    """That of exp(f) under a setting with half a percent whose latent is wide; what is bounded has one."""
    with precision("float64"):
        wide = mixture(
            beliefs,
            np.zeros((3, ROWS)),
            np.array([[1.0], [2.0], [500.0]]) + np.zeros(ROWS),
            np.array([0.5, 0.495, 0.005]),
        )
    for name, moment in (("n", wide.mean), ("y", wide.variance)):
        with pytest.warns(gpdsl.GpdslWarning, match=f"`{name}` is not to be relied on in 3 of 3 places.*`quantile`"):
            moment(name)
    assert np.all(np.abs(wide.mean("y")) < 1) and np.all(wide.mean("b") > 0.9) and np.all(wide.variance("b") < 0.1)


@pytest.mark.parametrize("probability", [0.003, 0.3, 0.5, 0.9])
def test_quantiles_are_where_the_mixture_reaches_them(averaged: Averaged, probability: float) -> None:
    for name, sds in (("f", SDS), ("y", np.hypot(SDS, 0.4))):
        found = averaged.quantile(name, probability)
        np.testing.assert_allclose(below(found, sds), probability, atol=1e-8)
    found = averaged.quantile("wide", probability)  # known between quantiles of each setting; its root is far from zero
    np.testing.assert_allclose(below(-np.sqrt(found), SDS), 1 - probability, atol=2e-4)


def test_many_settings_are_searched_from_the_heaviest(beliefs: Beliefs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpdsl.results.averaged.SOME", 2)
    count = 2 * MANY
    weights = RNG.dirichlet(np.full(count, 0.3))
    means, sds = RNG.normal(-60, 4, (count, ROWS)), RNG.uniform(0.5, 2.0, (count, ROWS))
    with precision("float64"):
        some = mixture(beliefs, means, sds, weights)
    found = some.quantile("y", 0.8)
    np.testing.assert_allclose(below(found, np.hypot(sds, 0.4), means, weights), 0.8, atol=1e-7)
    found = some.quantile("wide", 0.8)  # by quantiles of each setting
    np.testing.assert_allclose(below(-np.sqrt(found), sds, means, weights), 0.2, atol=2e-3)


def test_laws_under_all_settings_are_one(averaged: Averaged) -> None:
    """Their logarithms, components and nodes are put together, and so are the chances of two values."""
    z = np.linspace(-9.0, 9.0, 4001)
    weights = stats.norm.pdf(z) / stats.norm.pdf(z).sum()
    f = MEANS[..., None] + SDS[..., None] * z
    for p in (0.02, 0.6, 0.999):
        known = {"l": averaged.quantile("l", p), "t": averaged.quantile("t", p)}
        shares = stats.norm.cdf((np.log(known["l"])[:, None] - 0.02 * f - 1) / 0.4)
        np.testing.assert_allclose(WEIGHTS @ (shares @ weights), p, atol=1e-9)
        np.testing.assert_allclose(WEIGHTS @ (stats.t.cdf((known["t"][:, None] - f) / 0.8, 4) @ weights), p, atol=1e-7)
    none = WEIGHTS @ ((1 / (1 + np.exp(0.1 * f + 6))) @ weights)
    for p in (none.min() - 1e-3, none.min() + 1e-3, none.max() + 1e-3):
        np.testing.assert_array_equal(averaged.quantile("b", p), np.where(none >= p, 0.0, 1.0))


def test_quantiles_of_counts_are_the_first_that_reach(averaged: Averaged) -> None:
    z, weights = np.polynomial.hermite_e.hermegauss(60)
    rate = np.exp(0.02 * (MEANS[..., None] + SDS[..., None] * z) + 1)
    for probability in (0.4, 0.95):
        found = averaged.quantile("n", probability)
        chances = [
            WEIGHTS @ (stats.poisson.cdf((found - k)[None, :, None], rate) @ weights / weights.sum()) for k in (0, 1)
        ]
        assert np.all(chances[0] >= probability) and np.all(chances[1] < probability)


def test_probabilities_and_draws_are_those_of_all_settings(averaged: Averaged) -> None:
    np.testing.assert_allclose(averaged.probability("f < -60"), below(np.full(3, -60.0), SDS), atol=1e-9)
    np.testing.assert_allclose(averaged.probability("y > -58"), 1 - below(np.full(3, -58.0), np.hypot(SDS, 0.4)))
    drawn = averaged.sample("f", 4000, seed=2)
    for row in range(ROWS):
        own = stats.kstest(drawn[:, row], lambda y, row=row: below_row(y, row))
        assert own.pvalue > 1e-4
    together = averaged.draws("f", 4000, seed=3)
    np.testing.assert_allclose(together.mean(axis=0), WEIGHTS @ MEANS, atol=0.4)
    counts = [each.shape[0] for each in (averaged.of_each(0, lambda p, n, seed: np.full((n, 2), seed)),)]
    assert counts == [3]


def below_row(y: np.ndarray, row: int) -> np.ndarray:
    return WEIGHTS @ stats.norm.cdf((y - MEANS[:, row, None]) / SDS[:, row, None])


def test_draws_over_settings_are_as_many_as_their_weights_say(averaged: Averaged) -> None:
    asked: list[tuple[int, int]] = []

    def draw(each: gpdsl.Prediction, count: int, seed: int) -> np.ndarray:
        asked.append((count, seed))
        return np.full((count, 1), float(np.asarray(each.beliefs.marginals.mean)[0, 0, 0]))

    found = averaged.over_settings(1000, 5, draw)
    values, counts = np.unique(found, return_counts=True)
    np.testing.assert_array_equal(values, np.sort(MEANS[:, 0]))
    np.testing.assert_allclose(counts / 1000, WEIGHTS[np.argsort(MEANS[:, 0])], atol=0.06)
    assert len({seed for _, seed in asked}) == 3 and sum(count for count, _ in asked) == 1000
    assert len(np.unique(found[:20])) == 3, "in no order"


def test_rows_may_be_taken_and_errors_are_of_the_heaviest(averaged: Averaged) -> None:
    np.testing.assert_allclose(averaged.first_rows(slice(1, 3)).mean("f"), WEIGHTS @ MEANS[:, 1:], rtol=1e-10)
    np.testing.assert_allclose(averaged.settings[1].mean("f"), MEANS[1], rtol=1e-10)
    np.testing.assert_array_equal(np.asarray(averaged.beliefs.marginals.mean)[0, :, 0], MEANS[1])
    assert np.all(averaged.error("f") == 0.0)


def test_between_quantiles_distribution_functions_are_straight_in_deviates() -> None:
    deviates = 0.3 + np.asarray(PROBITS)
    quantiles = (2.0 + 3.0 * deviates)[:, None] * np.ones(2)
    for y in (np.array([-30.0, 1.7]), np.array([2.3, 5.0]), np.array([18.0, -9.99])):
        np.testing.assert_allclose(_between(quantiles, deviates, y), stats.norm.cdf((y - 2) / 3), atol=1e-14)
    steps = np.array([0.0, 0.0, 1.0, 1.0])[:, None]
    places = np.array([-1.0, -0.5, 0.5, 1.0])
    np.testing.assert_allclose(_between(steps, places, np.array([0.5])), stats.norm.cdf(0.0), atol=1e-14)


def test_errors_of_draws_are_of_as_many_as_are_independent(averaged: Averaged) -> None:
    """Of a mean: sqrt(sum w (m - mean)^2 / n), where n is at most what the weights are worth."""
    for effective, n in ((2.0, 2.0), (100.0, 1.0 / np.sum(WEIGHTS**2))):
        fit = SimpleNamespace(settings=SimpleNamespace(effective=effective), options=SimpleNamespace(drawn=True))
        found = Averaged(WEIGHTS, averaged.each, "float64", Standardised(), SimpleNamespace(fit=fit))
        mean, within = WEIGHTS @ MEANS, (MEANS - WEIGHTS @ MEANS) ** 2 + SDS**2
        np.testing.assert_allclose(found.error("f"), np.sqrt(WEIGHTS @ (MEANS - mean) ** 2 / n), rtol=1e-8)
        spread = WEIGHTS @ (within - WEIGHTS @ within) ** 2
        np.testing.assert_allclose(found.error("f", "variance"), np.sqrt(spread / n), rtol=1e-6)
    np.testing.assert_array_equal(averaged.error("f"), 0.0)


def test_quantiles_of_many_rows_are_of_some_at_a_time(averaged: Averaged, monkeypatch: pytest.MonkeyPatch) -> None:
    with precision("float64"):
        together = averaged.quantile("y", [0.1, 0.9])
        asked, own = [], Averaged._one_quantile
        monkeypatch.setattr("gpdsl.results.averaged.AT_ONCE", 2 * len(WEIGHTS))
        count = lambda one, *how: (asked.append(one.beliefs.count), own(one, *how))[1]  # noqa: E731
        monkeypatch.setattr(Averaged, "_one_quantile", count)
        np.testing.assert_allclose(averaged.quantile("y", [0.1, 0.9]), together, rtol=1e-9)
    assert asked == [2] * 4


@pytest.mark.parametrize("at", ["a", None, 10**400, [1.0, 2.0], np.nan])
def test_what_no_parameter_is_below_is_told(at: Any) -> None:
    settings = Settings(WEIGHTS, tuple(Setting({"s": np.array(float(n))}, ()) for n in range(3)), np.nan, 2.0)
    assert repr(settings) == "<gpdsl.Settings: 3 settings>"
    assert 0 < settings.share_below("s", 1.2) < 1
    with pytest.raises(gpdsl.GpdslError, match="share_below of `s`: expected a number, got"):
        settings.share_below("s", at)


def test_draws_are_from_settings_as_often_as_their_weights_say() -> None:
    """In no order; and draws of parameters are of the same settings."""
    each = tuple(Setting({"s": np.array(float(n))}, ()) for n in range(3))
    settings = Settings(WEIGHTS, each, np.nan, 2.0)
    found = settings.drawn(2000, np.random.default_rng(0))
    assert np.all(np.abs(np.bincount(found) / 2000 - WEIGHTS) < 4 * np.sqrt(WEIGHTS * (1 - WEIGHTS) / 2000))
    assert np.mean(np.diff(found) != 0) > 0.4
    fit: Any = SimpleNamespace(settings=settings, parameters={"s": 0.0})
    drawing = _Drawing(fit, 50, 3, whole=False)
    np.testing.assert_array_equal(drawing.parameters()["s"][0], settings.drawn(50, np.random.default_rng(3)))


SEVERAL = """
input x : real
output y : real
param ell : positive ~ LogNormal(0, 0.5)
param s : positive ~ LogNormal(-1, 0.5)
latent f(x) ~ GP(0, RBF(ell))
y ~ {law}
"""


@pytest.mark.parametrize("law", ["Normal(f, s)", "StudentT(4, f, s)"])
def test_settings_looked_at_together_are_those_looked_at_alone(law: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact, and over whitened values; in chunks, of which the last is not full."""
    x = np.linspace(-2, 2, 9)
    data = {"x": x, "y": np.sin(2 * x) + 0.2 * np.cos(40 * x)}
    fit = gpdsl.compile(SEVERAL.format(law=law)).fit(data, steps=1)
    each = [{**fit.parameters, "ell": np.asarray(ell)} for ell in (0.5, 0.8, 1.3, 0.6, 0.9)]
    settings = Settings(
        np.full(5, 0.2), tuple(Setting(own, tuple(fit.posterior), fit.held) for own in each), np.nan, 5.0
    )
    seen = fit.bind({"x": [-1.7, 0.3, 3.0]}, None, outputs=False)
    with precision("float64"):
        held = sum(np.size(leaf) for leaf in jax.tree.leaves(fit.at_rows.numbers_at_rows))
        monkeypatch.setattr(posterior, "SEVERAL", 2 * held)
        alone = [replace(fit.at_rows, parameters=own).marginals(*_asked(fit.beliefs(seen))) for own in each]
        together = list(settings.beliefs(fit.at_rows, fit.beliefs(seen)))
    for one, other, own in zip(alone, together, each, strict=True):
        np.testing.assert_allclose(other.marginals.mean, one.mean, rtol=1e-12)
        np.testing.assert_allclose(other.marginals.variance, one.variance, rtol=1e-10)
        assert other.parameters["ell"] == own["ell"]
    assert np.ptp([one.mean[0, 0, 0] for one in alone]) > 0.01


def _asked(beliefs: Beliefs) -> tuple[Any, Any, int]:
    return beliefs.program, beliefs.rows, beliefs.count
