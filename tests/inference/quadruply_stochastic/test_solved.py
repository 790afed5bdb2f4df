"""Covariances with points, solved for: the exact GP by dense linear algebra; and how wide diagonals are beside it."""

from __future__ import annotations

import numpy as np
import pytest

import gpdsl
from gpdsl.errors import GpdslWarning

TEXT = """
input x : real
output y : real
param s2 : positive = 1.3 fixed
param ell : positive = 0.7 fixed
param sigma : positive = 0.2 fixed
latent f(x) ~ GP(0.4, s2 * RBF(ell))
y ~ Normal(f, sigma)
"""
QSGP = {"engine": "qsgp", "basis": "inducing"}
THERE = np.linspace(-4, 4, 30)


def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return 1.3 * np.exp(-0.5 * (a[:, None] - b) ** 2 / 0.49)


@pytest.fixture
def data(rng: np.random.Generator) -> dict[str, np.ndarray]:
    x = rng.uniform(-3, 3, 80)
    return {"x": x, "y": 0.4 + np.sin(2 * x) + 0.2 * rng.standard_normal(80)}


def test_points_at_all_rows_give_the_exact_gp(data: dict[str, np.ndarray]) -> None:
    x, gap = data["x"], data["y"] - 0.4
    total, cross = kernel(x, x) + 0.04 * np.eye(80), kernel(THERE, x)
    mean = 0.4 + cross @ np.linalg.solve(total, gap)
    variance = 1.3 - np.sum(cross.T * np.linalg.solve(total, cross.T), axis=0)
    evidence = -0.5 * gap @ np.linalg.solve(total, gap) - 0.5 * np.linalg.slogdet(2 * np.pi * total)[1]
    fit = gpdsl.compile(TEXT).fit(data, **QSGP)
    found = fit.predict({"x": THERE})
    assert np.max(np.abs(found.mean("f") - mean) / np.sqrt(variance)) < 1e-3
    np.testing.assert_allclose(found.variance("f"), variance, atol=1e-5)
    assert fit.elbo == pytest.approx(evidence, abs=1e-4)
    assert fit.notes == ()


def test_few_rows_are_the_exact_gp_where_nobody_chose_a_basis(data: dict[str, np.ndarray]) -> None:
    """Hyperparameters are those of all rows, but for priors as wide as a factor of 20; draws belong together."""
    model = gpdsl.compile(TEXT.replace(" fixed", ""))
    fit, exact = model.fit(data, engine="qsgp"), model.fit(data)
    assert fit.options.basis == "inducing"
    assert fit.elbo == pytest.approx(exact.elbo, abs=0.05)
    held = {name: float(fit.parameters[name]) for name in ("s2", "ell", "sigma")}
    exact = model.fit(data, init=held, fixed=list(held))
    there = {"x": np.concatenate([THERE, [4.2, 4.2001, 6.0]])}
    one, other = fit.predict(there), exact.predict(there)
    np.testing.assert_allclose(one.mean("f"), other.mean("f"), atol=1e-4)
    np.testing.assert_allclose(one.covariance("f"), other.covariance("f"), atol=1e-4)
    assert "hyperparameters from 80 rows first" in model.explain(data, engine="qsgp")


@pytest.mark.slow
def test_many_rows_and_choices_of_features_take_fourier_features(data: dict[str, np.ndarray]) -> None:
    rows = np.arange(1001.0)
    model = gpdsl.compile(TEXT)
    assert "random Fourier features" in model.explain({"x": rows, "y": rows}, engine="qsgp")
    for option in ({"features": 40}, {"batch": 40}, {"dtype": "float32"}):
        assert "random Fourier features" in model.explain(data, engine="qsgp", **option)
    wave = model.fit({"x": rows, "y": rows}, engine="qsgp", steps=2)
    assert (wave.options.basis, wave.options.dtype) == ("fourier", "float32")


@pytest.mark.parametrize("chevron", [None, 0, 3])
def test_fewer_points_give_the_best_weights_of_theirs(data: dict[str, np.ndarray], chevron: int | None) -> None:
    """H = S + Phi'Phi / sigma^2: the mean solves H mu = Phi'y / sigma^2 whatever the form of the covariance."""
    fit = gpdsl.compile(TEXT).fit(data, **QSGP, features=6, chevron=chevron)
    centres = fit.weight_space.basis.centres[:, 0]
    phi, prior = kernel(data["x"], centres), kernel(centres, centres) + 1.3e-8 * np.eye(6)
    precision = prior + phi.T @ phi / 0.04
    mean = kernel(THERE, centres) @ np.linalg.solve(precision, phi.T @ (data["y"] - 0.4) / 0.04)
    np.testing.assert_allclose(fit.predict({"x": THERE}).mean("f"), 0.4 + mean, atol=2e-4)
    q, root = fit.weight_space.q, np.linalg.cholesky(np.linalg.inv(precision))
    np.testing.assert_allclose(q.curvature, np.sum(phi**2, axis=0) / 0.04, rtol=1e-8)
    np.testing.assert_allclose(q.vectors[1:].T, root[:, : q.columns], rtol=1e-4, atol=1e-4 * np.max(root))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_single_precision_is_near(data: dict[str, np.ndarray], dtype: str) -> None:
    fit = gpdsl.compile(TEXT).fit(data, **QSGP, dtype=dtype)
    x = data["x"]
    mean = 0.4 + kernel(THERE, x) @ np.linalg.solve(kernel(x, x) + 0.04 * np.eye(80), data["y"] - 0.4)
    error = np.abs(fit.predict({"x": THERE}).mean("f") - mean)[np.abs(THERE) < 3]
    assert np.max(error) < {"float64": 1e-5, "float32": 5e-3}[dtype]


@pytest.mark.parametrize(("kind", "law"), [("binary", "Bernoulli(logit = f)"), ("count", "Poisson(exp(f))")])
def test_other_likelihoods_end_at_the_best_gaussian(rng: np.random.Generator, kind: str, law: str) -> None:
    """From zero a whole Newton step overshoots at large counts: shorter ones lead there."""
    x = rng.uniform(-3, 3, 60)
    chance = 1 / (1 + np.exp(-3 * x))
    data = {"x": x, "y": rng.random(60) < chance if kind == "binary" else rng.poisson(100 * chance)}
    data["y"] = data["y"].astype(int)
    model = gpdsl.compile(f"input x : real\noutput y : {kind}\nlatent f(x) ~ GP(0, 2 * RBF(1))\ny ~ {law}\n")
    wanted, fit = model.fit(data, inducing=0), model.fit(data, **QSGP)
    assert fit.elbo == pytest.approx(wanted.elbo, abs=1e-3)
    for name in ("mean", "variance"):
        one, other = (getattr(each.predict({"x": THERE}), name)("f") for each in (fit, wanted))
        np.testing.assert_allclose(one, other, atol=2e-3)


def test_diagonals_say_how_wide_they_are(data: dict[str, np.ndarray]) -> None:
    fit = gpdsl.compile(TEXT).fit(data, engine="qsgp", features=600, batch=80, steps=5, dtype="float64")
    x, own = data["x"], fit.predict({"x": data["x"]}).variance("f")
    exact = np.diag(0.04 * np.linalg.solve(kernel(x, x) + 0.04 * np.eye(80), kernel(x, x)))
    factor = float(np.median(np.sqrt(own / exact)))
    note, other = fit.notes
    assert "do not grow away from the rows" in other
    assert 0.5 < fit.predict({"x": [300.0]}).sd("f")[0] / np.median(np.sqrt(own)) < 2.0
    said = float(note.split(" times")[0].split()[-1])
    assert factor > 3
    assert said == pytest.approx(factor, rel=0.1)
    assert note in fit.summary()


def test_sampled_steps_say_that_they_end_beside_the_mean(data: dict[str, np.ndarray]) -> None:
    fit = gpdsl.compile(TEXT).fit(data, **QSGP, feature_sums="sampled", features=10, steps=3)
    assert any("sampled steps end beside the best mean" in note for note in fit.notes)


def test_what_sampled_steps_alone_take_is_refused(data: dict[str, np.ndarray]) -> None:
    with pytest.raises(gpdsl.GpdslError, match="support belongs to feature_sums = sampled"):
        gpdsl.compile(TEXT).fit(data, **QSGP, support=10)
    with pytest.raises(gpdsl.GpdslError, match="no more columns"):
        gpdsl.compile(TEXT).fit(data, **QSGP, features=10, chevron=11)


def test_the_plan_says_that_nothing_is_sampled(data: dict[str, np.ndarray]) -> None:
    assert "by linear algebra" in gpdsl.compile(TEXT).explain(data, **QSGP)


def test_a_kernel_that_is_none_is_an_error_of_the_model() -> None:
    model = gpdsl.compile(
        "input x : real\noutput y : real\nkernel bowl(r) = 1 - 4 * r^2\nlatent f(x) ~ GP(0, bowl())\ny ~ Normal(f, 1)\n"
    )
    with pytest.raises(gpdsl.GpdslError, match="not positive definite in float64"), pytest.warns(GpdslWarning):
        model.fit({"x": np.arange(5.0), "y": np.arange(5.0)}, **QSGP)


def test_a_likelihood_that_overflows_is_an_error_of_the_model() -> None:
    model = gpdsl.compile("input x : real\noutput n : count\nlatent f(x) ~ GP(800, RBF(1))\nn ~ Poisson(exp(f))\n")
    with pytest.raises(gpdsl.GpdslError, match="not a finite number"):
        model.fit({"x": np.arange(5.0), "n": np.arange(5)}, **QSGP)
