"""Chains by elliptical slices, through opaque functions, against draws of the prior with their likelihood as weight."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl.inference.mcmc import engine, slices
from gpdsl.inference.mcmc.slices import Chain, Nowhere, Shape
from gpdsl.inference.plan.options import Options
from gpdsl.inference.problem import Result

X = np.array([-1.0, 0.0, 0.7, 1.5])
COUNTS = """
input x : real
output n : count
external response(level: real) -> real
param s : positive ~ LogNormal(0, 0.5)
latent f(x) ~ GP(0, s^2 * RBF(1))
n ~ Poisson(response(f))
"""
SEEN = {"x": X, "n": np.array([0, 2, 7, 3])}
ASKED = {"engine": "mcmc", "chains": 4, "draws": 300, "warm_up": 150, "seed": 5}


def prior(count: int, scale: np.ndarray | float = 1.0, x: np.ndarray = X, seed: int = 0) -> np.ndarray:
    """Draws of a latent with kernel RBF(1) and these standard deviations."""
    rng = np.random.default_rng(seed)
    root = np.linalg.cholesky(np.exp(-0.5 * (x[:, None] - x) ** 2) + 1e-10 * np.eye(len(x)))
    return np.reshape(scale, (-1, 1)) * (rng.standard_normal((count, len(x))) @ root.T)


def moments(values: np.ndarray, log_weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    mean = weights @ values
    return mean, np.sqrt(weights @ (values - mean) ** 2)


def test_a_chain_keeps_a_distribution_that_its_shape_is_wrong_about() -> None:
    """A gamma density, through a Student t that is shifted and too narrow."""
    law = stats.gamma(3.0)
    chain = Chain(np.array([1.0]), -1.0, [Shape(np.array([1.0]), np.eye(1))], np.random.default_rng(0))
    moves = chain.places()
    place = next(moves)
    while len(chain.draws) < 900:
        place = moves.send(2.0 * float(np.log(place[0])) - float(place[0]) if place[0] > 0 else -np.inf)
    values = np.array([x[0] for x, _, _ in chain.draws])[::3]
    assert stats.kstest(values, law.cdf).pvalue > 1e-5  # of draws that know of each other; a wrong move has 1e-30
    assert all(np.isclose(value, law.logpdf(x[0]) + np.log(2.0)) for x, value, _ in chain.draws[:50])


@pytest.fixture(scope="module")
def fit() -> gpdsl.Fit:
    return gpdsl.compile(COUNTS, externals={"response": np.exp}).fit(SEEN, **ASKED)


def test_places_beside_are_drawn_by_the_scale_that_a_place_belongs_to() -> None:
    """An inverse gamma scale given the place, of a t density with as many degrees of freedom: its mean is known."""
    root = np.linalg.cholesky(np.array([[2.0, 0.5], [0.5, 1.0]]))
    shape, x, rng = Shape(np.array([1.0, -1.0]), root), np.array([2.5, 0.3]), np.random.default_rng(1)
    away = np.linalg.solve(root, x - shape.mean)
    assert shape.apart(x) == pytest.approx(away @ away)
    scale = (slices.TAILS + away @ away) / (slices.TAILS + 2 - 2)
    drawn = np.stack([shape.aside(x, rng) for _ in range(6_000)])
    np.testing.assert_allclose(drawn.T @ drawn / len(drawn), scale * root @ root.T, rtol=0.15)


def test_latents_and_parameters_have_the_moments_of_weighted_draws(fit: gpdsl.Fit) -> None:
    scale = np.exp(0.5 * np.random.default_rng(1).standard_normal(400_000))
    f = prior(len(scale), scale)
    likelihood = stats.poisson.logpmf(SEEN["n"], np.exp(f)).sum(axis=1)
    mean, sd = moments(np.column_stack([f, scale]), likelihood)
    settings, latent = fit.settings, fit.predict({"x": X})
    assert settings is not None and settings.effective > 400
    np.testing.assert_allclose(latent.mean("f"), mean[:4], atol=0.2 * sd.max())
    np.testing.assert_allclose(np.sqrt(latent.variance("f")), sd[:4], rtol=0.15)
    assert abs(settings.mean("s") - mean[4]) < 0.15 * sd[4]
    assert abs(settings.sd("s") / sd[4] - 1) < 0.15


@pytest.mark.slow
def test_each_draw_has_functions_values_of_its_own() -> None:
    """Predictions through the function are the averages of it over the draws, not its values at one of them."""
    few = {**ASKED, "chains": 2, "draws": 8, "warm_up": 40, "diagnose": "no"}
    fit = gpdsl.compile(COUNTS, externals={"response": np.exp}).fit(SEEN, **few)
    assert fit.settings is not None and len(fit.settings.weights) == 16
    f = np.stack([own.mean("f") for own in fit.predict({"x": X[:2]}).settings])  # type: ignore[attr-defined]
    said = fit.predict({"x": X[:2]}).mean("n")
    np.testing.assert_allclose(said, fit.settings.weights @ np.exp(f), rtol=1e-6)
    assert fit.predict({"x": X[:1]}).quantile("n", [0.95]).shape == (1, 1)
    left = fit.loo(SEEN)
    assert left.effective_parameters > 0.5


def test_the_summary_and_the_statistics_tell_of_the_chains(tmp_path: Path) -> None:
    model = gpdsl.compile(COUNTS, externals={"response": np.exp})
    fit = model.fit(SEEN, **ASKED | {"draws": 60, "warm_up": 40}, diagnose="no")
    assert "elliptical slices" in fit.summary() and "divergences" not in fit.summary()
    assert fit.settings is not None
    statistics = fit.settings.statistics
    assert set(statistics) == {"diverging", "lp", "n_steps"} and statistics["lp"].shape == (4, 60)
    assert 4 <= statistics["n_steps"].mean() < 12
    fit.save(tmp_path / "chains.gpfit")
    again = gpdsl.load_fit(tmp_path / "chains.gpfit", externals={"response": np.exp})
    np.testing.assert_array_equal(again.predict({"x": X}).mean("f"), fit.predict({"x": X}).mean("f"))


def failing(level: np.ndarray) -> np.ndarray:
    """No value above 1."""
    return np.where(level > 1.0, np.nan, level)


@pytest.mark.slow
def test_places_where_a_function_fails_have_no_density() -> None:
    model = gpdsl.compile(
        """
        input x : real
        output y : real
        external response(level: real) -> real
        latent f(x) ~ GP(0, RBF(1))
        y ~ Normal(response(f), 0.5)
        """,
        externals={"response": gpdsl.opaque(failing, policy="penalise")},
    )
    y = np.array([0.9])
    fit = model.fit({"x": X[:1], "y": y}, **ASKED)
    f = prior(400_000, x=X[:1])
    below = np.where(f[:, 0] > 1.0, -np.inf, stats.norm.logpdf(y, f[:, 0], 0.5))
    mean, sd = moments(f, below)
    latent = fit.predict({"x": X[:1]})
    np.testing.assert_allclose(latent.mean("f"), mean, atol=0.2 * sd[0])
    np.testing.assert_allclose(np.sqrt(latent.variance("f")), sd, rtol=0.15)


@pytest.mark.parametrize("budget, note", [(9_000, "warmed up"), (22_000, "draws of each chain")])
def test_a_budget_of_evaluations_is_never_passed(budget: int, note: str) -> None:
    calls = [0]

    def counted(level: np.ndarray) -> np.ndarray:
        calls[0] += len(level)
        return np.asarray(np.exp(level))

    model = gpdsl.compile(COUNTS, externals={"response": counted})
    fit = model.fit(SEEN, **ASKED, evaluations=budget, diagnose="no")
    assert 0.9 * budget < calls[0] <= budget
    assert any(note in each for each in fit.notes), fit.notes


@pytest.mark.parametrize("evaluations", [300, 6399])  # three quarters of 6400 would pay
def test_a_budget_that_cannot_pay_for_the_first_draw_is_refused(evaluations: int) -> None:
    model = gpdsl.compile(COUNTS, externals={"response": np.exp})
    told = f"= {evaluations}: 4 chains take 4,800 at least before their first draw, .* and about 57,600 in all"
    with pytest.raises(gpdsl.GpdslError, match=told):
        model.fit(SEEN, **ASKED, evaluations=evaluations)


@pytest.mark.slow
def test_one_chain_with_hardly_a_draw_to_learn_from_goes_on() -> None:
    few = {**ASKED, "chains": 1, "draws": 4, "warm_up": 20, "diagnose": "no"}
    fit = gpdsl.compile(COUNTS, externals={"response": np.exp}).fit(SEEN, **few)
    assert fit.settings is not None and np.isfinite(fit.settings.statistics["lp"]).all()


def test_the_search_is_kept_where_chains_can_begin_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices.Called, "log_densities", lambda self, x: np.full(len(x), -np.inf))
    fit = gpdsl.compile(COUNTS, externals={"response": np.exp}).fit(SEEN, **ASKED)
    assert fit.settings is None and any("no draw was kept" in note for note in fit.notes)


@pytest.mark.slow
def test_jumps_are_moved_through() -> None:
    """A likelihood that jumps calls nothing, and has no useful derivative."""
    model = gpdsl.compile(
        """
        input x : real
        output y : real
        latent f(x) ~ GP(0, RBF(1))
        y ~ Normal(floor(f), 0.7)
        """
    )
    y = np.array([1.2, 0.4, -0.3, -1.0])
    fit = model.fit({"x": X, "y": y}, **ASKED)
    f = prior(400_000)
    mean, sd = moments(f, stats.norm.logpdf(y, np.floor(f), 0.7).sum(axis=1))
    latent = fit.predict({"x": X})
    np.testing.assert_allclose(latent.mean("f"), mean, atol=0.2 * sd.max())
    np.testing.assert_allclose(np.sqrt(latent.variance("f")), sd, rtol=0.15)


@pytest.mark.parametrize("law", ["Normal(response(f), 1)", "Normal(floor(f), 1)"])
def test_inducing_points_are_refused_for_what_they_leave_open(law: str) -> None:
    text = "input x : real\noutput y : real\nexternal response(level: real) -> real\nlatent f(x) ~ GP(0, RBF(1))\n"
    model = gpdsl.compile(f"{text}y ~ {law}", externals={"response": np.exp})
    with pytest.raises(gpdsl.GpdslError, match="leave inducing out"):
        model.fit({"x": X, "y": X}, **ASKED, inducing=2)


def test_values_of_which_a_matrix_is_too_large_are_refused_before_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "WIDEST", 3)
    with pytest.raises(gpdsl.GpdslError, match="4 values of the latents, .*: take fewer rows, 3 values at most"):
        gpdsl.compile(COUNTS, externals={"response": np.exp}).fit(SEEN, **ASKED)


def test_the_plan_tells_of_the_chains(explained: Callable[[str], str]) -> None:
    text = explained(COUNTS)
    assert "4 of 300 draws after 150" in text and "evaluations: 4 a density, about 57,600 in all" in text


@pytest.fixture
def explained() -> Callable[[str], str]:
    return lambda text: gpdsl.compile(text, externals={"response": np.exp}).explain(SEEN, **ASKED)


def test_chains_that_can_begin_nowhere_leave_the_search_and_say_so() -> None:
    """They are tried nearer and farther in turn, about the end of the search and the prior of the latents."""
    tried: list[np.ndarray] = []

    def nothing(places: np.ndarray) -> np.ndarray:
        tried.append(places.copy())
        return np.full(len(places), -np.inf)

    chains: Any = SimpleNamespace(first=np.full(1, 3.0), joint=SimpleNamespace(dimension=2), log_densities=nothing)
    with pytest.raises(Nowhere):
        slices.Called._begun(chains, 2, 7)
    streams = [np.random.default_rng([7, number]) for number in range(2)]
    for places, far in zip(tried, [1.0, 0.7**-0.25, 0.7**2, 0.7**-0.75], strict=False):
        normals = np.stack([stream.standard_normal(3) for stream in streams])
        np.testing.assert_allclose(places, [3, 0, 0] + far * normals * [slices.NEAR, 1, 1], rtol=1e-12)
    assert len(tried) == slices.TRIES

    def sample(*_: object) -> None:
        raise Nowhere

    target: Any = lambda: SimpleNamespace(sample=sample)  # noqa: E731
    result = Result({"s": np.zeros(1)}, [], [], np.ones(1), -1.0, 0.0, target=target)
    monitor = SimpleNamespace(explored=print)
    found = engine.sampled(result, Options(engine="mcmc"), 3, monitor)  # type: ignore[arg-type]
    assert found.notes == (engine.NO_BEGINNING,) and found.elbo == -1.0 and found.integrated is None
