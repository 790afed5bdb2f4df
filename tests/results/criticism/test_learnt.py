"""What the data say of each latent and of the latents at all: numbers by NumPy, and fits that say nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal, norm

import gpdsl
from gpdsl.results.criticism.finding import Finding
from gpdsl.results.criticism.learnt import SHARED, SILENT, WEAK
from tests.inference.problems import looked_at

X = np.linspace(0, 9, 40)
RNG = np.random.default_rng(5)
CURVE = np.sin(X) + 0.3 * RNG.standard_normal(40)
HEAD = "input x : real\noutput y : {}\n"


def looked(text: str, y: np.ndarray, kind: str = "real", **options: Any) -> dict[str, Finding]:
    fit = gpdsl.compile(HEAD.format(kind) + text).fit({"x": X, "y": y}, **options)
    return {each.name: each for each in fit.diagnose()}


def rbf(ell: float) -> np.ndarray:
    return np.exp(-0.5 * ((X[:, None] - X) / ell) ** 2)


NOISY = "param s : positive = 0.5\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, s)"


def test_the_evidence_is_beside_that_of_a_mean_and_a_deviation() -> None:
    found = looked(NOISY, CURVE)["evidence for latents"]

    def lost(log_s: float) -> float:
        return -float(multivariate_normal.logpdf(CURVE, np.zeros(40), rbf(1) + np.exp(2 * log_s) * np.eye(40)))

    best = -float(minimize_scalar(lost, bounds=(-4, 2), method="bounded").fun)
    nothing = float(np.sum(norm.logpdf(CURVE, CURVE.mean(), CURVE.std())))
    assert not found.doubtful
    assert found.number == pytest.approx(best - nothing, abs=0.01)


def test_evidence_that_a_diagonal_posterior_loses_is_no_chance() -> None:
    counts = np.random.default_rng(0).poisson(np.exp(1 + np.sin(X)))
    text = "latent f(x) ~ GP(1, RBF(1.5))\ny ~ Poisson(exp(f))"
    found = looked(text, counts, "count", posterior="diagonal")["evidence for latents"]
    assert found.doubtful and "compare with full" in found.remedy and "chance" not in found.remedy


def test_the_evidence_is_without_priors_and_in_the_units_of_the_data() -> None:
    """A sharp prior of the noise is in both; its density would be a difference of nats."""
    text = NOISY.replace("= 0.5", "~ LogNormal(-1.2, 0.001)")
    plain, scaled = (looked(text, CURVE * k, standardise=k == 1000)["evidence for latents"] for k in (1, 1000))
    assert plain.number > WEAK and scaled.number > WEAK
    held = looked(NOISY.replace("0.5", "0.301194"), CURVE, fixed=("s",))["evidence for latents"]
    assert plain.number == pytest.approx(held.number, abs=0.5)


def test_latents_of_pure_noise_are_worth_nothing() -> None:
    text = "param s2 : positive = 1\nparam ell : positive = 1\nparam s : positive = 0.5\nparam m : real = 0\n"
    text += "latent f(x) ~ GP(0, s2 * RBF(ell))\ny ~ Normal(f + m, s)"
    for seed in range(2):
        found = looked(text, np.random.default_rng(seed).standard_normal(40))
        assert found["evidence for latents"].number < WEAK
        assert found["evidence for latents"].doubtful or "explain nothing" in found["note"].said


SUMS = [(1, 1, 1.1, True), (0.3, 1, 1.2, True), (1, 3, 0.5, False)]
TWO = "param s : positive = 0.3\nlatent f(x) ~ GP(0, {} * RBF({}))\nlatent g(x) ~ GP(0, RBF({}))\ny ~ {}"


def open_share(a: np.ndarray, b: np.ndarray, noise: float) -> float:
    """Prior variance of the first, but for its mean, that knowing the second as well would settle."""
    centre = np.eye(40) - 1 / 40
    alone = a - a @ np.linalg.solve(a + b + noise * np.eye(40), a)
    beside = a - a @ np.linalg.solve(a + noise * np.eye(40), a)
    return float(np.trace(centre @ (alone - beside)) / np.trace(centre @ a))


@pytest.mark.parametrize(("scale", "one", "other", "together"), SUMS)
def test_what_is_open_because_of_another_is_that_of_conditioning(
    scale: float, one: float, other: float, together: bool
) -> None:
    found = looked(TWO.format(scale, one, other, "Normal(f + g, s)"), CURVE, fixed=("s",))["latents told apart"]
    shares = open_share(scale * rbf(one), rbf(other), 0.09), open_share(rbf(other), scale * rbf(one), 0.09)
    assert found.number == pytest.approx(max(shares), abs=0.005)
    assert found.doubtful == together == (max(shares) > SHARED)


def test_counts_do_not_tell_sums_apart_either() -> None:
    counts = np.random.default_rng(1).poisson(np.exp(1.5 + np.sin(X)))
    assert looked(TWO.format(1, 1, 1.1, "Poisson(exp(f + g))"), counts, "count")["latents told apart"].doubtful


def test_levels_that_latents_share_are_nobodys() -> None:
    """Of two inputs: either function may have the level, which would be most of what is open."""
    z = np.random.default_rng(2).uniform(0, 9, 40)
    text = "input x : real\ninput z : real\noutput y : real\nlatent f(x) ~ GP(0, 3 * Constant() + RBF(2))\n"
    text += "latent g(z) ~ GP(0, 3 * Constant() + RBF(2))\ny ~ Normal(f + g, 0.2)"
    y = np.sin(X) + np.cos(z) + 0.2 * np.random.default_rng(3).standard_normal(40)
    found = {each.name: each for each in gpdsl.compile(text).fit({"x": X, "z": z, "y": y}).diagnose()}
    assert found["latents told apart"].number < 0.1


def test_a_latent_that_nothing_tells_of_is_named() -> None:
    """What is known of its best known direction: the largest share of variance that the data take away."""
    a, b = rbf(1), 1e-4 * rbf(2)
    taken = b @ np.linalg.solve(a + b + 0.09 * np.eye(40), b)
    values, vectors = np.linalg.eigh(b)
    kept = values > 1e-8 * values[-1]
    root = vectors[:, kept] / np.sqrt(values[kept])
    found = looked(TWO.format(1, 1, 2, "Normal(f + 0.01 * g, s)"), CURVE, fixed=("s",))["what is known of latents"]
    assert found.doubtful and "`g`" in found.said and "`f`" not in found.said
    assert found.number == pytest.approx(np.linalg.eigvalsh(root.T @ taken @ root)[-1], rel=0.05)
    assert found.number < SILENT


CLASSES = "param s2 : positive{}\nparam ell : positive = 2\nlatent f(x) ~ GP(0, s2 * RBF(ell))\n"
CLASSES += "y ~ Bernoulli(logit = f)"


def test_separable_classes_are_found_and_a_prior_is_their_remedy() -> None:
    y = (X > 4).astype(int)
    found = looked(CLASSES.format(""), y, "binary")["certainty of classes"]
    assert found.doubtful and "prior" in found.remedy
    assert not looked(CLASSES.format(" ~ LogNormal(0, 1)"), y, "binary")["certainty of classes"].doubtful


def test_the_deviance_is_that_of_the_expected_log_likelihood() -> None:
    """By quadrature over the latent's marginals, between those of the probabilities and of less certain ones."""
    y = ((X > 4) ^ (np.random.default_rng(0).uniform(size=40) < 0.15)).astype(int)
    text = HEAD.format("binary") + CLASSES.format("")
    data = {"x": X, "y": y}
    fit = gpdsl.compile(text).fit(data, diagnose="no")
    found = looked_at(fit, data, "certainty of classes")["certainty of classes"]
    latent, mean = fit.predict({"x": X}), y.mean()
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    f = latent.mean("f")[:, None] + np.sqrt(latent.variance("f"))[:, None] * nodes
    likely = np.sum(-np.logaddexp(0, np.where(y == 1, -1, 1)[:, None] * f) @ weights) / np.sqrt(2 * np.pi)
    nothing = np.sum(y * np.log(mean) + (1 - y) * np.log(1 - mean))
    assert not found.doubtful
    assert found.number == pytest.approx(1 - likely / nothing, abs=1e-3)


def test_outliers_are_told_with_how_far_they_are_out() -> None:
    """Beside every value left out by itself, with the parameters of the fit."""
    y = CURVE + 6.0 * (np.arange(40) == 17)
    fit = gpdsl.compile(HEAD.format("real") + NOISY).fit({"x": X, "y": y}, fixed=("s",))
    found = next(each for each in fit.diagnose() if each.name == "calibration")
    inverse = np.linalg.inv(rbf(1) + 0.25 * np.eye(40))
    furthest = np.max(np.abs(inverse @ y) / np.sqrt(np.diag(inverse)))
    assert found.doubtful and "StudentT" in found.remedy
    assert f"{furthest:.1f} standard deviations out" in found.said
    assert found.number == pytest.approx(1 - (1 - 2 * norm.sf(furthest)) ** 40, rel=0.01)
