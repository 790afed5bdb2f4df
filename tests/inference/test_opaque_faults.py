"""Opaque functions inside a fit: the probing call, penalties, what a fault leaves behind, and what it all costs."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gpdsl
from gpdsl.inference.opaque.surrogate import FAILED, penalised
from gpdsl.inference.problem import Report

GAUGE = """
model gauge
input  x : real
output y : real
external response(level: real) -> real
latent level(x) ~ GP(1, RBF(1))
let r = response(level)
y ~ Normal(r, 0.1)
"""
RANDOM = np.random.default_rng(0)
X = np.linspace(0, 4, 20)


def response(level: np.ndarray) -> np.ndarray:
    return np.where(level > 0, level, 0.2 * level)


DATA = {"x": X, "y": response(np.sin(2 * X)) + 0.1 * RANDOM.normal(size=20)}
QUICK: dict[str, Any] = {"seed": 0, "optimizer": "adam", "samples": 8, "steps": 12}


def fitted(function: Any, **options: Any) -> gpdsl.Fit:
    return gpdsl.compile(GAUGE, externals={"response": function}).fit(DATA, **{**QUICK, **options})


class Counting:
    """Calls so far; `on` says what the calls of those numbers do instead."""

    def __init__(self, on: dict[int, Any] | None = None) -> None:
        self.rows: list[int] = []
        self.on = on or {}

    def __call__(self, level: np.ndarray) -> np.ndarray:
        self.rows.append(len(level))
        trouble = self.on.get(len(self.rows))
        return response(level) if trouble is None else trouble(level)


def fail(level: np.ndarray) -> np.ndarray:
    raise RuntimeError("no licence for the solver")


def test_one_probing_call_at_prior_means_comes_first() -> None:
    seen: list[np.ndarray] = []

    def look(level: np.ndarray) -> np.ndarray:
        seen.append(level)
        raise RuntimeError("stop here")

    with pytest.raises(gpdsl.ForwardModelError, match="stop here") as caught:
        fitted(look)
    np.testing.assert_array_equal(seen[0], np.ones(2))
    assert caught.value.fit is None


@pytest.mark.parametrize(
    "function", [lambda level: level.sum(), lambda level: level[:, None], lambda level: np.float64(1)]
)
@pytest.mark.parametrize("policy", ["raise", "penalise"])
def test_a_wrong_shape_ends_the_fit_at_the_probing_call(function: Any, policy: str) -> None:
    with pytest.raises(gpdsl.ForwardModelError, match=r"shape \[.*expected \[2\]"):
        fitted(gpdsl.opaque(function, policy=policy))


def test_a_function_of_rows_is_probed_with_one_row() -> None:
    seen: list[float] = []

    def one(level: float) -> np.ndarray:
        seen.append(level)
        return np.zeros(3)

    with pytest.raises(gpdsl.ForwardModelError, match=r"shape \[3\]"):
        fitted(gpdsl.opaque(one, vectorized=False))
    assert seen == [1.0]


def test_a_failure_at_the_probing_call_is_no_end_where_failures_are_penalised() -> None:
    function = Counting({1: lambda level: np.full(len(level), np.nan)})
    fit = fitted(gpdsl.opaque(function, policy="penalise"))
    assert (fit.usage.failures, fit.usage.penalised) == (2, 0)


def test_penalised_samples_count_as_the_worst_of_their_row() -> None:
    values = jnp.asarray(RANDOM.normal(size=(5, 2, 3)))
    failed = np.zeros((5, 2, 3))
    failed[1, 0, 0] = failed[3, 0, 0] = 1.0
    failed[:, 1, 2] = 1.0
    found = np.asarray(penalised(values, {FAILED: jnp.asarray(failed)}))
    expected = np.asarray(values).copy()
    expected[[1, 3], 0, 0] = np.asarray(values)[[0, 2, 4], 0, 0].min()
    expected[:, 1, 2] = np.asarray(values)[failed == 0].min()
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(penalised(values, {}), values)
    slope = np.asarray(jax.grad(lambda v: jnp.sum(penalised(v, {FAILED: jnp.asarray(failed)})))(values))
    np.testing.assert_array_equal(slope, 1.0 - failed)


def test_a_fault_ends_a_fit_with_its_state_and_the_fit_goes_on_from_it(tmp_path: Path) -> None:
    function = Counting({9: fail})
    model = gpdsl.compile(GAUGE, externals={"response": gpdsl.opaque(function)})
    with pytest.raises(gpdsl.ForwardModelError, match="no licence for the solver") as caught:
        model.fit(DATA, **QUICK)
    kept = caught.value.fit
    assert "model.fit(data, start=error.fit)" in str(caught.value)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert len(kept.history) == 7
    assert kept.interrupted
    assert "interrupted by an opaque function" in kept.summary()
    kept.save(tmp_path / "kept.gpfit")
    again = gpdsl.load_fit(tmp_path / "kept.gpfit", {"response": response})
    np.testing.assert_array_equal(again.posterior[0].mean, kept.posterior[0].mean)
    assert again.usage == kept.usage
    resumed = model.fit(DATA, start=kept, **{**QUICK, "steps": 1, "learning_rate": 1e-9})
    np.testing.assert_allclose(resumed.predict(DATA).mean("level"), kept.predict(DATA).mean("level"), atol=1e-4)


def test_what_a_fit_costs_is_counted_shown_and_told_to_the_callback() -> None:
    function, reports = Counting(), list[Report]()
    fit = fitted(function, callback=reports.append)
    assert fit.usage.evaluations == sum(function.rows) == 2 + (12 + 10) * 8 * 20, "steps, and looks at the bound"
    assert fit.usage.failures == fit.usage.penalised == fit.usage.hits == 0
    assert 0 < fit.usage.seconds < fit.seconds
    assert [each.usage.evaluations for each in reports][-1] == fit.usage.evaluations - 10 * 8 * 20
    assert re.search(r"simulator   3,522 evaluations, [\d,]+/s, \d+% of the time inside", fit.summary())


@pytest.mark.slow
def test_a_penalised_fit_says_how_biased_it_may_be_and_predicts_without_failures() -> None:
    random = np.random.default_rng(1)

    def moody(level: np.ndarray) -> np.ndarray:
        return np.where(random.random(len(level)) < 0.2, np.nan, response(level))

    fit = fitted(gpdsl.opaque(moody, policy="penalise"))
    share = fit.usage.failures / fit.usage.evaluations
    assert 0.15 < share < 0.25
    assert fit.usage.penalised <= fit.usage.failures
    assert f"precisions are up to {fit.usage.penalised / fit.usage.evaluations:.1%} too low" in fit.summary()
    assert np.isfinite(fit.predict(DATA).mean("r")).all()


def test_when_everything_fails_the_fit_says_so() -> None:
    nothing = gpdsl.opaque(lambda level: np.full(len(level), np.nan), policy="penalise")
    with pytest.raises(gpdsl.ForwardModelError, match="all of 160 evaluations failed"):
        fitted(nothing)


def test_values_come_from_the_cache_the_second_time(tmp_path: Path) -> None:
    function = Counting()
    cached = gpdsl.opaque(function, cache=tmp_path / "evaluations.sqlite")
    first, second = fitted(cached), fitted(cached)
    assert first.usage.evaluations == second.usage.hits == sum(function.rows)
    assert second.usage.evaluations == 0
    assert second.elbo == first.elbo
    assert "answered by the cache" in second.summary()


def test_equal_inputs_with_results_that_differ_are_warned_of() -> None:
    """Noise of a function was fitted as if it were one, without a word."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", gpdsl.GpdslWarning)
        with pytest.raises(gpdsl.GpdslWarning, match=r"gives 1 and 2 for the same inputs, level = 1: it draws random"):
            fitted(lambda level: level + np.arange(len(level)))


def test_a_wrong_gradient_ends_the_fit_at_its_start() -> None:
    function = Counting()

    def right(level: np.ndarray, sensitivity: np.ndarray) -> np.ndarray:
        return sensitivity * np.where(level > 0, 1.0, 0.2)

    def negative(level: np.ndarray, sensitivity: np.ndarray) -> np.ndarray:
        return -right(level, sensitivity)

    def by_row(level: np.ndarray, sensitivity: np.ndarray) -> np.ndarray:
        return right(level, sensitivity) * 1.105  # an adjoint that is off by less than a tenth of itself is one

    model = gpdsl.compile(GAUGE, externals={"response": gpdsl.opaque(function, gradient=negative)})
    with pytest.raises(gpdsl.ForwardModelError, match=r"F212.*not that of the function") as caught:
        model.fit(DATA)
    assert str(caught.value).count("level = ") == 1
    assert len(function.rows) == 5  # the probing call, and two pairs of differences
    model.externals["response"] = gpdsl.opaque(function, gradient=lambda level, sensitivity: np.ones(3))
    with pytest.raises(gpdsl.ForwardModelError, match=r"`gradient of response`: error\[F203\]"):
        model.fit(DATA)
    for good in (right, by_row):
        gpdsl.compile(GAUGE, externals={"response": gpdsl.opaque(response, gradient=good)}).fit(DATA, steps=1)


def test_failures_are_penalised_beside_a_gradient() -> None:
    """5% of the calls fail, of the function and of its gradient; the fit is as without, within its own accuracy."""
    numbers = np.random.default_rng(3)

    def some(values: np.ndarray) -> np.ndarray:
        return np.where(numbers.random(len(values)) < 0.05, np.nan, values)

    def failing(level: np.ndarray) -> np.ndarray:
        return some(np.exp(0.5 * level))

    def pulled(level: np.ndarray, sensitivity: np.ndarray) -> np.ndarray:
        return some(sensitivity * 0.5 * np.exp(0.5 * level))

    data = {"x": X, "y": np.exp(0.5 * np.sin(2 * X))}
    fits = [
        gpdsl.compile(GAUGE, externals={"response": forward}).fit(data, seed=1)
        for forward in (
            gpdsl.opaque(failing, gradient=pulled, policy="penalise"),
            gpdsl.opaque(lambda level: np.exp(0.5 * level)),
        )
    ]
    (mean, variance), (clean, known) = ((p.mean("level"), p.variance("level")) for p in (f.predict(data) for f in fits))
    assert fits[0].usage.penalised > 0
    assert np.sqrt(np.mean((mean - clean) ** 2 / known)) < 0.15
    assert np.abs(np.log(variance / known)).max() < 0.4
