"""Draws and covariances of all rows together, against exact Gaussian processes in dense matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gpdsl
from gpdsl.inference.posteriors import coupled
from gpdsl.inference.posteriors.coupled import Block
from gpdsl.program.cache import precision
from gpdsl.results.draws import Together
from tests.inference.problems import unlearnt

ONE = """model one
input x : real
output y : real
param sigma : positive = 0.2 fixed
latent f(x) ~ GP(0.5, 1.5^2 * RBF(1))
let rate = exp(f)
let step = if f > 0 then 1 else 2
y ~ Normal(f, sigma)
"""
TWO = """model two "a trend and a slope, of which sums are observed"
input x : real
input b : real
output y : real
output dy : real
latent f(x) ~ GP(0, RBF(1))
latent g(x) ~ GP(0, 0.5 * RBF(0.4))
let h = f + 2*g
let change = D(f, x) - f(b)
y ~ Normal(f + g, 0.1)
dy ~ Normal(D(f, x), 0.3)
"""
RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(0, 6, 40))
DATA = {"x": X, "y": np.sin(X) + 0.2 * RNG.standard_normal(40)}
NEW = np.concatenate([np.linspace(-1, 8, 120), [3.0, 3.0001]])


def rbf(a: np.ndarray, b: np.ndarray, ell: float = 1.0, left: int = 0, right: int = 0) -> np.ndarray:
    """The kernel, differentiated in its first and second argument so often."""
    r = (a[:, None] - b[None]) / ell
    factor = {(0, 0): 1.0, (1, 0): -r / ell, (0, 1): r / ell, (1, 1): (1 - r**2) / ell**2}[left, right]
    return factor * np.exp(-0.5 * r**2)


def exact() -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of f at the new points."""
    k = lambda a, b: 2.25 * rbf(a, b)  # noqa: E731
    whole, cross = k(X, X) + 0.04 * np.eye(40), k(NEW, X)
    mean = 0.5 + cross @ np.linalg.solve(whole, DATA["y"] - 0.5)
    return mean, k(NEW, NEW) - cross @ np.linalg.solve(whole, cross.T)


WAYS: dict[str, dict[str, Any]] = {
    "exact": {},
    "inducing points": {"inducing": 30},
    "dense": {"posterior": "linear"},
    "coupled": {"inducing": 30, "posterior": "coupled"},
    "mixture": {"inducing": 30, "posterior": "mixture_full(2)"},
    "ep": {"engine": "ep"},
    "qsgp points": {"engine": "qsgp", "basis": "inducing", "chevron": 40},
}


SLOW = ("dense", "ep", "mixture")
"""Ways whose code the others run too."""


@pytest.mark.parametrize(
    "options", [pytest.param(v, id=n, marks=[pytest.mark.slow] if n in SLOW else []) for n, v in WAYS.items()]
)
def test_draws_of_all_rows_are_those_of_the_exact_process(options: dict[str, Any]) -> None:
    fit = gpdsl.compile(ONE).fit(DATA, seed=0, **options)
    prediction = fit.predict({"x": NEW})
    mean, covariance = exact()
    slack = 8e-3 if options == WAYS["dense"] else 5e-4  # that of a search which ends 5e-5 nats below the top
    np.testing.assert_allclose(prediction.covariance("f"), covariance, atol=slack)
    np.testing.assert_allclose(np.diag(prediction.covariance("f")), prediction.variance("f"), atol=1e-6)
    np.testing.assert_allclose(prediction.covariance("y"), covariance + 0.04 * np.eye(len(NEW)), atol=slack)
    draws = prediction.draws("f", 2000, seed=1)
    # the error of a covariance from S draws is sqrt((V_ii V_jj + V_ij^2) / S); 5 of them in 20,000 entries
    spread = np.sqrt((np.outer(np.diag(covariance), np.diag(covariance)) + covariance**2) / 2000)
    assert np.all(np.abs(np.cov(draws.T) - covariance) < 5 * spread + slack)
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 5 * np.sqrt(np.diag(covariance) / 2000) + slack)
    assert np.corrcoef(draws[:, -2:].T)[0, 1] > 0.999
    np.testing.assert_allclose(prediction.draws("rate", 2000, seed=1), np.exp(draws), rtol=1e-6)
    noise = prediction.draws("y", 2000, seed=1) - draws
    assert abs(noise.std() - 0.2) < 0.002 and abs(np.corrcoef(noise[:, -2:].T)[0, 1]) < 0.1


@pytest.mark.parametrize("options", [{}, {"inducing": 39, "posterior": "coupled"}], ids=["exact", "coupled"])
def test_latents_that_are_observed_together_are_drawn_together(options: dict[str, Any]) -> None:
    slopes = np.cos(X) + 0.3 * RNG.standard_normal(40)
    data = {**DATA, "b": X + 0.5, "dy": slopes}
    prediction = gpdsl.compile(TWO).fit(data, seed=0, **options).predict({"x": NEW[::6], "b": NEW[::6] + 0.5})
    x, b = NEW[::6], NEW[::6] + 0.5

    def with_data(point: np.ndarray, order: int) -> np.ndarray:
        return np.concatenate([rbf(point, X, left=order), rbf(point, X, left=order, right=1)], axis=1)

    f = np.block([[rbf(X, X), rbf(X, X, right=1)], [rbf(X, X, left=1), rbf(X, X, left=1, right=1)]])
    g = np.zeros((80, 80))
    g[:40, :40] = 0.5 * rbf(X, X, 0.4)
    inverse = np.linalg.inv(f + g + np.diag(np.repeat([0.01, 0.09], 40)))
    of_g = np.concatenate([0.5 * rbf(x, X, 0.4), np.zeros((len(x), 40))], axis=1)
    cross_h, prior_h = with_data(x, 0) + 2 * of_g, rbf(x, x) + 2 * rbf(x, x, 0.4)
    cross_c = with_data(x, 1) - with_data(b, 0)
    prior_c = rbf(x, x, left=1, right=1) + rbf(b, b) - rbf(x, b, left=1) - rbf(b, x, right=1)
    expected = {"h": prior_h - cross_h @ inverse @ cross_h.T, "change": prior_c - cross_c @ inverse @ cross_c.T}
    for name, covariance in expected.items():
        np.testing.assert_allclose(prediction.covariance(name), covariance, atol=1e-3)
        draws = prediction.draws(name, 2000)
        spread = np.sqrt((np.outer(np.diag(covariance), np.diag(covariance)) + covariance**2) / 2000)
        assert np.all(np.abs(np.cov(draws.T) - covariance) < 5 * spread + 1e-3)
    f_and_g = prediction.draws("f", 2000) + 2 * prediction.draws("g", 2000)
    np.testing.assert_allclose(f_and_g, prediction.draws("h", 2000), atol=1e-9)


def test_a_draw_of_a_mixture_is_from_one_component_in_all_rows() -> None:
    fit = gpdsl.compile(ONE).fit(DATA, posterior="mixture_full(2)", inducing=12, seed=0)
    first = fit.posterior[0]
    moved = replace(first, mean=np.stack([first.mean[0], first.mean[0] + 1.0]))
    prediction = replace(fit, posterior=(moved,), weights=np.array([0.3, 0.7])).predict({"x": np.linspace(0, 6, 12)})
    draws, covariance = prediction.draws("f", 4000), prediction.covariance("f")
    spread = np.sqrt((np.outer(np.diag(covariance), np.diag(covariance)) + covariance**2) / 4000)
    assert np.all(np.abs(np.cov(draws.T) - covariance) < 5 * spread)
    np.testing.assert_allclose(np.diag(covariance), prediction.variance("f"), rtol=1e-6)
    apart = replace(fit, posterior=(moved,), weights=np.array([1.0, 0.0])).predict({"x": np.linspace(0, 6, 12)})
    assert np.all(np.diag(apart.covariance("f")) < np.diag(covariance))


def test_rows_outputs_and_opaque_functions_are_drawn_at_the_same_latents() -> None:
    text = """model rows
input x : real
output y : real
output n : count
row w ~ Normal(0, 1)
external cube(a: real) -> real
latent f(x) ~ GP(0, RBF(1))
let third = cube(f)
y ~ Normal(f + w, 0.1)
n ~ Poisson(exp(f))
"""
    model = gpdsl.compile(text, externals={"cube": lambda a: a**3})
    fit = unlearnt(model, {**DATA, "n": np.round(np.exp(DATA["y"]))}, posterior="full", inducing=10)
    prediction = fit.predict({"x": np.linspace(0, 6, 9)})
    f, w = prediction.draws("f", 500, seed=3), prediction.draws("w", 500, seed=3)
    np.testing.assert_allclose(prediction.draws("third", 500, seed=3), f**3, atol=1e-3)
    np.testing.assert_allclose(prediction.covariance("w"), np.eye(9), atol=1e-9)
    noise = prediction.draws("y", 500, seed=3) - f - w
    assert abs(noise.std() - 0.1) < 0.01
    counts = prediction.draws("n", 500, seed=3)
    assert abs(np.corrcoef(noise.ravel(), (counts - np.exp(f)).ravel())[0, 1]) < 0.1  # noise of their own


def test_roots_end_where_rows_that_lie_close_together_leave_nothing_but_rounding() -> None:
    x = np.concatenate([np.linspace(0, 6, 300), [3.0, 3.0 + 1e-9]])
    covariance = 0.5 * rbf(x, x)
    root = Block((0,), covariance[None, None, :, None, :]).root(0)
    assert root.shape[1] < 40
    np.testing.assert_allclose(root @ root.T, covariance, atol=1e-13)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda p: p.draws("f", 0), "draws of `f`: expected a positive number of draws, got 0"),
        (lambda p: p.draws("g", 1), "no latent, let or output `g`"),
        (lambda p: p.covariance("rate"), r"not linear in the latents.*np.cov\(prediction.draws\('rate', 4000\).T\)"),
        (lambda p: p.covariance("step"), "`step`: it is not linear in the latents"),
    ],
)
def test_questions_without_an_answer_say_what_to_ask(ask: Any, message: str) -> None:
    prediction = gpdsl.compile(ONE).fit(DATA, seed=0).predict({"x": NEW[:5]})
    with pytest.raises(gpdsl.GpdslError, match=message):
        ask(prediction)


def test_more_rows_than_have_room_are_refused_before_they_are_worked_out() -> None:
    prediction = gpdsl.compile(ONE).fit(DATA, seed=0).predict({"x": np.zeros(5001)})
    with pytest.raises(gpdsl.GpdslError, match="5001 rows: .* goes to 5000 rows"):
        prediction.covariance("f")
    found = prediction.draws("f", 2)
    assert found.shape == (2, 5001) and np.ptp(found[0]) < 1e-9 < abs(found[0, 0] - found[1, 0])


@pytest.mark.parametrize("count", [0, -1, 2.5, "y", True])
def test_what_is_no_number_of_draws_is_refused(count: Any) -> None:
    x = np.linspace(0, 1, 5)
    fit = gpdsl.compile("input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 1)").fit(
        {"x": x, "y": x}, steps=1
    )
    prediction = fit.predict({"x": x})
    for ask in (
        lambda: prediction.draws("y", count),
        lambda: prediction.sample("y", count),
        lambda: fit.draw_functions(count),
    ):
        with pytest.raises(gpdsl.GpdslError, match="expected a positive number of draws"):
            ask()


@pytest.mark.parametrize("seed", [-1, 1.5, "a", None, True])
def test_a_seed_is_a_whole_number(seed: Any) -> None:
    prediction = gpdsl.compile(ONE).fit(DATA, steps=2).predict({"x": X[:3]})
    asked: list[Callable[[], object]] = [
        lambda: prediction.draws("f", 2, seed=seed),
        lambda: prediction.sample("f", 2, seed=seed),
        lambda: prediction.probability("f > 0", seed=seed),
        lambda: prediction.total("f", seed=seed),
    ]
    for ask in asked:
        with pytest.raises(gpdsl.GpdslError, match="seed = .*: expected a whole number of at least 0"):
            ask()


@pytest.mark.parametrize("count", [10**10, 10**20])
def test_more_draws_than_there_is_memory_for_are_refused(count: int) -> None:
    prediction = gpdsl.compile(ONE).fit(DATA, steps=2).predict({"x": np.linspace(0, 1, 5000)})
    for ask in (prediction.draws, prediction.sample):
        with pytest.raises(gpdsl.GpdslError, match="of `f`: .* draws take .* GiB are free; ask for fewer draws"):
            ask("f", count)


@pytest.mark.parametrize("way", ["exact", pytest.param("inducing points", marks=pytest.mark.slow)])
def test_more_rows_than_covariances_have_room_for_are_drawn_by_functions(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In parts; the covariances themselves are refused, and so are draws where no function is one."""
    fit, new = gpdsl.compile(ONE).fit(DATA, **WAYS[way]), {"x": NEW[::20]}
    whole = fit.predict(new)
    mean, covariance = whole.mean("f"), whole.covariance("f")
    monkeypatch.setattr(coupled, "MOST", 10)
    prediction, count = fit.predict(new), 600
    found = prediction.draws("f", count, seed=1)
    spread = np.sqrt(np.diag(covariance))
    assert np.max(np.abs(found.mean(axis=0) - mean) / spread) < 3.0 / np.sqrt(count)
    assert np.max(np.abs(np.cov(found.T) - covariance) / np.outer(spread, spread)) < 4.0 / np.sqrt(count)
    together = prediction.draws("y", count, seed=1) - found
    np.testing.assert_allclose(np.std(together, axis=0), 0.2, rtol=0.1)
    with pytest.raises(gpdsl.GpdslError, match="7 rows: joint draws and covariances need a matrix over all rows"):
        prediction.covariance("f")
    with precision("float64"), pytest.raises(gpdsl.GpdslError, match="7 rows: joint draws"):
        Together(replace(prediction.beliefs, drawn=None)).draws(3, RNG)
