"""Results do not depend on the units of the data, and a fit does not stop where latents explain nothing."""

from __future__ import annotations

import numpy as np
import pytest

import gpdsl
from gpdsl.program.starts import start_from_data
from gpdsl.results.fitting import prepare
from tests.inference.unit_models import CHANGES, MODELS, Change, changed, data_for

ROUNDING = 1e-15
"""And by as many times the shift of an output: where q is no closed form, values of latents are as far from zero."""

QUICK = ("rbf", "matern32 ard", "counts", "all starts at one")
INVARIANT = 1e-6
"""Nats by which the evidence may change beside the Jacobian where the start is the data's."""

REGRESSION = """
input x : real
output y : real
param m : real{level}
param s2 : positive{one}
param ell : positive{one}
param sigma : positive{one}
latent f(x) ~ GP(m, s2 * RBF(ell))
y ~ Normal(f, sigma)
"""
GIVEN = REGRESSION.format(level=" = 0", one=" = 1")
MISSING = REGRESSION.format(level="", one="")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in MODELS]
)
def test_other_units_change_the_evidence_by_the_jacobian(name: str) -> None:
    case = MODELS[name]
    data, model = data_for(case), gpdsl.compile(case.text)
    changes = (Change(), CHANGES[3], CHANGES[6]) if name in QUICK else (Change(), *CHANGES)
    values = []
    for change in changes:
        other, jacobian = changed(case, data, change)
        values.append(model.fit(other).elbo - jacobian)
    rounding = ROUNDING * max(change.y_shift for change in changes)
    np.testing.assert_allclose(values, values[0], rtol=0, atol=INVARIANT + rounding)


def _rows(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    x = np.sort(rng.uniform(-3, 3, 40))
    return x, np.sin(2 * x) + 0.3 * rng.standard_normal(40)


@pytest.mark.parametrize("text", [GIVEN, MISSING], ids=["all starts at 1", "no starts"])
@pytest.mark.parametrize("units", [(1.0, 1e3), (1e6, 1.0)], ids=["y in thousandths", "x in millionths"])
def test_units_do_not_lead_to_the_null_model(text: str, units: tuple[float, float], rng: np.random.Generator) -> None:
    x, y = _rows(rng)
    model = gpdsl.compile(text)
    usual = model.fit({"x": x, "y": y}).elbo
    fit = model.fit({"x": units[0] * x, "y": units[1] * y})
    assert fit.elbo + 40 * np.log(units[1]) == pytest.approx(usual, abs=1e-4)
    assert ("best of 2 starts" in fit.message) == (text is GIVEN)


def test_a_good_start_is_searched_from_once(rng: np.random.Generator) -> None:
    x, y = _rows(rng)
    fit = gpdsl.compile(GIVEN).fit({"x": x, "y": y})
    assert fit.message == "converged"
    steps = fit.history[:, 0]
    np.testing.assert_array_equal(steps, np.arange(1, len(steps) + 1))


def test_noise_alone_is_said_to_be_explained_by_nothing(rng: np.random.Generator) -> None:
    x, y = rng.uniform(-3, 3, 40), rng.standard_normal(40)
    fit = gpdsl.compile(MISSING).fit({"x": x, "y": y})
    unrelated = -20 * np.log(2 * np.pi * np.e * np.var(y))
    assert fit.elbo < unrelated + 3
    assert f"the latents explain nothing: unrelated rows are worth {unrelated:.1f} nats" in fit.summary()


def test_given_values_are_where_the_search_starts(rng: np.random.Generator) -> None:
    """What the user wrote or passed is the start; what nobody gave comes from the data."""
    x, y = _rows(rng)
    model = gpdsl.compile(MISSING.replace("param ell : positive", "param ell : positive = 0.123"))
    program, _, _ = prepare(model, {"x": 50 * x, "y": 70 * y}, {}, {"init": {"sigma": 0.456}})
    start = program.parameters.initial
    assert start["ell"] == 0.123 and start["sigma"] == 0.456
    assert start["s2"] == pytest.approx(np.var(70 * y))


SCALES = """
index p in 1..2
input x : real[D]
input t : positive
output y[p] : real
output n : count
param s2[p] : positive
param ell[p] : positive[D]
param per : positive
param b[p] : positive
param w : positive
param sigma[p] : positive
param rate : positive
latent f[p](x) ~ GP(0, s2[p] * RBF(ell[p]))
latent g(t) ~ GP(0, w * Periodic(1, per))
y[p] ~ Normal(f[p] + b[p] * t, sigma[p])
n ~ Poisson(rate * exp(g))
"""


def test_scales_follow_from_dimensional_analysis(rng: np.random.Generator) -> None:
    data = {
        "x": rng.standard_normal((50, 2)) * [3.0, 2e5],
        "t": rng.uniform(1, 9, 50) * 1e-4,
        "y": rng.standard_normal((50, 2)) * [1e-3, 40.0],
        "n": rng.poisson(30, 50).astype(float),
    }
    program, _, _ = prepare(gpdsl.compile(SCALES), data, {}, {})
    start = program.parameters.initial
    size_t, size_y = np.sqrt(np.mean(data["t"] ** 2)), np.sqrt(np.mean(data["y"] ** 2, axis=0))
    np.testing.assert_allclose(start["s2"], size_y**2)
    np.testing.assert_allclose(start["ell"], np.tile(np.std(data["x"], axis=0) * np.sqrt(2), (2, 1)))
    np.testing.assert_allclose(start["b"], size_y / size_t)
    np.testing.assert_allclose(start["sigma"], 0.3 * np.std(data["y"], axis=0))
    assert start["per"] == pytest.approx(np.std(data["t"]))
    assert start["rate"] == pytest.approx(np.sqrt(np.mean(data["n"] ** 2)))
    assert start["w"] == pytest.approx(1.0)


def test_starts_move_with_the_units(rng: np.random.Generator) -> None:
    """Every start is its old value in the new units, whatever these are."""
    x, y = _rows(rng)
    program, bound, _ = prepare(gpdsl.compile(MISSING), {"x": x, "y": y}, {}, {})
    other, moved, _ = prepare(gpdsl.compile(MISSING), {"x": 7e5 * x, "y": 3e-4 * y}, {}, {})
    ratios = {n: other.parameters.initial[n] / v for n, v in program.parameters.initial.items() if n != "m"}
    assert ratios == pytest.approx({"s2": 9e-8, "ell": 7e5, "sigma": 3e-4})
    assert start_from_data(program.parameters, program.translator, moved, frozenset(), 0).initial["ell"] == (
        pytest.approx(other.parameters.initial["ell"])
    )
    assert bound.rows == moved.rows
