"""What averaging over learnt parameters would change, and fits that average where it does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpdsl
from gpdsl.results import summary
from gpdsl.results.criticism import plugged
from gpdsl.results.criticism.finding import PLUGGED
from gpdsl.results.criticism.reference import options_anew

LEARNT = """
input x : real
output y : real
param m : real ~ Normal(0, 2)
param ell : positive ~ LogNormal(0, 0.7)
latent f(x) ~ GP(m, RBF(ell))
y ~ Normal(f, 0.3)
"""
COUNTED = LEARNT.replace("output y : real", "output y : count").replace("Normal(f, 0.3)", "Poisson(exp(f))")
RNG = np.random.default_rng(5)
X = np.sort(RNG.uniform(0, 6, 24))
DATA = {"x": X, "y": 1 + np.sin(X) + 0.3 * RNG.standard_normal(24)}


def dense(place: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """The log evidence with the log prior, and mean and variance of the latent at the rows, at (m, log ell)."""
    m, ell = place[0], np.exp(place[1])
    prior = np.exp(-0.5 * ((X[:, None] - X) / ell) ** 2)
    whole, left = prior + 0.09 * np.eye(24), DATA["y"] - m
    solved = np.linalg.solve(whole, np.column_stack([left, prior]))
    value = -0.5 * (left @ solved[:, 0] + np.linalg.slogdet(whole)[1])
    value += -0.5 * (m / 2) ** 2 - 0.5 * (place[1] / 0.7) ** 2 - place[1]
    return value, m + prior @ solved[:, 0], np.diag(prior - prior @ solved[:, 1:])


def curvature(value: Callable[[np.ndarray], float], at: np.ndarray, h: float = 1e-3) -> np.ndarray:
    """Minus the second derivatives of a function of two numbers."""
    steps = h * np.eye(2)
    return -np.array(
        [[value(at + a + b) - value(at + a - b) - value(at - a + b) + value(at - a - b) for a in steps] for b in steps]
    ) / (4 * h**2)


@pytest.fixture(scope="module")
def learnt() -> gpdsl.Fit:
    return gpdsl.compile(LEARNT).fit(DATA)


def found(fit: gpdsl.Fit) -> list:
    return [each for each in fit.diagnose().findings if each.name == PLUGGED]


def test_it_is_the_law_of_total_variance_by_dense_algebra(learnt: gpdsl.Fit) -> None:
    at = np.array([learnt.parameters["m"], np.log(learnt.parameters["ell"])])
    values, vectors = np.linalg.eigh(curvature(lambda place: dense(place)[0], at))
    (_, _, here), grown = dense(at), 0.0
    for value, axis in zip(values, vectors.T, strict=True):
        (_, m, v), (_, n, w) = (dense(at + sign * axis / np.sqrt(value)) for sign in (1, -1))
        grown += np.sum((v + w) / 2 - here + (m - n) ** 2 / 4)
    (said,) = found(learnt)
    assert said.number == pytest.approx(np.sqrt(1 + grown / np.sum(here)), rel=2e-3)
    assert not said.doubtful and "standard deviations of `f` are about 1." in said.said


def test_it_is_near_what_averaging_makes_of_them(learnt: gpdsl.Fit) -> None:
    averaged = learnt.model.fit(DATA, hyperparameters="integrated").predict(DATA).variance("f")
    true = np.sqrt(np.sum(averaged) / np.sum(learnt.predict(DATA).variance("f")))
    assert abs(found(learnt)[0].number - true) < 0.05 < true


def test_level_and_scale_of_a_latent_are_told_apart_from_its_shape() -> None:
    mean, variance = np.sin(X), np.linspace(0.1, 0.2, 24)
    means = np.stack([mean, 3 + 2 * mean, 0.5 * mean - 3, mean + 0.3 * np.cos(X), mean - 0.3 * np.cos(X)])
    variances = np.stack([variance, 4 * variance, variance / 4, variance, variance])
    assert plugged._ratio(means[:3, :, None], variances[:3, :, None])[0] > 5
    alike = plugged._as_first(means, variances)
    np.testing.assert_allclose(plugged._ratio(*alike[:, :3, :, None]), 1.0, rtol=1e-12)
    shape = np.sum((0.3 * (np.cos(X) - np.cos(X).mean())) ** 2) / np.sum(variance)
    assert plugged._ratio(*alike[:, :, :, None])[0] == pytest.approx(np.sqrt(1 + shape), rel=0.05)


@pytest.fixture(scope="module")
def level() -> gpdsl.Model:
    return gpdsl.compile(
        LEARNT.replace("Normal(0, 2)", "Normal(0, 9)")
        .replace("GP(m, RBF(ell))", "GP(0, RBF(1))")
        .replace("Normal(f, 0.3)", "Normal(m + f, 0.3)")
        .replace("param ell : positive ~ LogNormal(0, 0.7)", "")
    )


def test_a_level_that_a_parameter_shares_is_told_and_no_doubt(level: gpdsl.Model) -> None:
    fit = level.fit(DATA)
    (said,) = found(fit)
    assert said.number > 1.5 and not said.doubtful and "times but for its level and scale" in said.said
    assert f"plugged in  {said.said}: hyperparameters = integrated" in fit.summary()


def test_auto_averages_where_it_matters(level: gpdsl.Model, learnt: gpdsl.Fit, tmp_path: Path) -> None:
    fit, asked = (level.fit(DATA, hyperparameters=how) for how in ("auto", "integrated"))
    assert fit.settings.about.startswith("as standard deviations of `f` are ")
    assert fit.settings.about.endswith(f"so: {asked.settings.about}")
    fit.save(tmp_path / "auto.gpfit")
    kept = gpdsl.load_fit(tmp_path / "auto.gpfit")
    np.testing.assert_array_equal(kept.predict(DATA).sd("y"), asked.predict(DATA).sd("y"))
    assert options_anew(fit) == options_anew(asked)
    assert found(learnt)[0].number < 1.05
    left = learnt.model.fit(DATA, hyperparameters="auto")
    assert left.settings is None and options_anew(left).hyperparameters == "point"
    assert f"plugged in  {found(left)[0].said}: hyperparameters = auto has them at a point" in left.summary()


def test_a_prior_is_asked_for_of_what_is_open_without_one_and_tails_have_no_deviation() -> None:
    fit: Any = SimpleNamespace(program=SimpleNamespace(priors={"a": None}))
    opened: Any = SimpleNamespace(covariance=np.diag([np.inf, np.inf, np.inf, 1.0]), names=["a", "v[1]", "v[2]", "s"])
    assert plugged._open_without_prior(fit, opened) == {"v"}
    quantiles: dict[float, Any] = {0.05: np.array([0.5, 1.0]), 0.95: np.array([12.0, 1.0])}
    settings: Any = SimpleNamespace(
        mean=lambda _: np.array([5.6, 1.0]), sd=lambda _: np.array([1500.0, 0.0]), quantile=lambda _, p: quantiles[p]
    )
    assert summary._averaged(settings, "s2") == "5.6 ± ? (0.5 to 12); 1 ± 0 (1 to 1)"


def test_auto_sees_what_outputs_gain_where_latents_do_not() -> None:
    """Noise that is open, and a model without latents: of normal values with flat coefficients, Student's t."""
    text = "input x : real\noutput y : real\nparam b : real ~ Normal(0, 5)\nparam s : positive ~ LogNormal(0, 1)\n"
    fit = gpdsl.compile(text + "y ~ Normal(b * x, s)").fit(
        {"x": [1.0, 2.0, 3.0], "y": [1.1, 1.9, 3.05]}, hyperparameters="auto"
    )
    assert fit.settings is not None and fit.settings.about.startswith("as standard deviations of `y` are ")


def test_auto_leaves_a_parameter_that_is_open_and_what_has_no_evidence_alone(learnt: gpdsl.Fit) -> None:
    open_ended = gpdsl.compile(LEARNT.replace("positive ~ LogNormal(0, 0.7)", "positive"))
    left = open_ended.fit({"x": X[:6], "y": [0.3, -0.3, 0.3, -0.3, 0.2, -0.2]}, hyperparameters="auto")
    assert left.settings is None and "the data leave `ell` open, and averages need a prior of it" in left.summary()
    told = learnt.model.explain(DATA, hyperparameters="auto")
    assert "averaged over where that makes standard deviations of a latent or output 1.05 times as large" in told
    told = learnt.model.explain(DATA, hyperparameters="auto", parameters="gaussian")
    assert "at their most probable values" in told


@pytest.mark.slow
def test_what_takes_a_program_is_looked_at_where_it_is_asked_for() -> None:
    text = LEARNT.replace("Normal(f, 0.3)", "Normal(f + D(f, x), 0.3)")
    (said,) = (each for each in gpdsl.compile(text).fit(DATA).diagnose() if PLUGGED in each.said)
    assert "ask for diagnose = full" in said.said
    (said,) = found(gpdsl.compile(text).fit(DATA, diagnose="full"))
    assert 1 < said.number < 1.5
