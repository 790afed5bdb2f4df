"""Against dense linear algebra: a Gaussian likelihood makes every quantity exact."""

from __future__ import annotations

import numpy as np
import pytest

import gpdsl
from gpdsl.inference.exact.evidence import factorised_in_place
from gpdsl.inference.exact.predictive import _rounded
from tests.inference.conftest import REGRESSION

Case = tuple[gpdsl.Model, dict[str, np.ndarray]]


def exact(fit: gpdsl.Fit, data: dict[str, np.ndarray], new: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean, variance of f at new rows and log marginal likelihood by plain NumPy at the fit's parameters."""
    p = fit.parameters

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        gaps = (a[:, None, :] - b[None, :, :]) / p["ell"]
        return p["s2"] * np.exp(-0.5 * np.sum(gaps**2, axis=-1))

    x, y = data["x"], data["y"] - p["mu"]
    k = kernel(x, x) + p["sigma"] ** 2 * np.eye(len(x))
    cross = kernel(new, x)
    mean = p["mu"] + cross @ np.linalg.solve(k, y)
    variance = p["s2"] - np.sum(cross * np.linalg.solve(k, cross.T).T, axis=1)
    evidence = -0.5 * y @ np.linalg.solve(k, y) - 0.5 * np.linalg.slogdet(k)[1] - 0.5 * len(y) * np.log(2 * np.pi)
    return mean, variance, float(evidence)


@pytest.mark.parametrize("fixed", [(), ("s2", "ell", "sigma", "mu")])
def test_a_dense_full_posterior_is_the_exact_gaussian_process(regression: Case, rng, fixed) -> None:
    model, data = regression
    fit = model.fit(data, fixed=fixed)
    new = rng.normal(size=(25, 2))
    mean, variance, evidence = exact(fit, data, new)
    prediction = fit.predict({"x": new})
    np.testing.assert_allclose(prediction.mean("f"), mean, atol=1e-6)
    np.testing.assert_allclose(prediction.variance("f"), variance, rtol=1e-4, atol=1e-7)
    assert fit.elbo == pytest.approx(evidence, abs=1e-4)
    sd = np.sqrt(variance + fit.parameters["sigma"] ** 2)
    np.testing.assert_allclose(np.sqrt(prediction.variance("y")), sd, rtol=1e-4)
    np.testing.assert_allclose(prediction.quantile("y", 0.9), mean + 1.2815515655446004 * sd, atol=1e-5)
    y = rng.normal(size=25)
    density = -0.5 * ((y - mean) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(fit.log_predictive_density({"x": new, "y": y}), density, atol=1e-4)


def test_learnt_hyperparameters_maximise_the_exact_evidence(regression: Case) -> None:
    """Every perturbation of a learnt parameter lowers the exact log marginal likelihood."""
    model, data = regression
    fit = model.fit(data)
    for name, value in fit.parameters.items():
        for factor in (0.9, 1.1):
            changed = {**fit.parameters, name: value * factor}
            other = model.fit(data, fixed=list(changed), init=changed)
            assert other.elbo < fit.elbo + 1e-6


@pytest.mark.parametrize("posterior", ["full", "diagonal", "mixture(2)"])
@pytest.mark.parametrize("inducing", [pytest.param(0, marks=pytest.mark.slow), 15])
def test_no_bound_exceeds_the_exact_evidence(regression: Case, posterior: str, inducing: int) -> None:
    model, data = regression
    held = ["s2", "ell", "sigma", "mu"]
    fit = model.fit(data, posterior=posterior, inducing=inducing, fixed=held)
    _, _, evidence = exact(fit, data, data["x"][:1])
    assert fit.elbo <= evidence + 1e-5
    assert fit.elbo > evidence - 200


def test_as_many_inducing_points_as_rows_lose_nothing(regression: Case) -> None:
    model, data = regression
    held = ["s2", "ell", "sigma", "mu"]
    dense = model.fit(data, fixed=held)
    sparse = model.fit(data, fixed=held, inducing=40)
    assert sparse.elbo == pytest.approx(dense.elbo, abs=1e-3)


def test_learning_inducing_inputs_raises_the_bound(regression: Case) -> None:
    model, data = regression
    held = ["s2", "ell", "sigma", "mu"]
    still = model.fit(data, inducing=8, fixed=held)
    moved = model.fit(data, inducing=8, fixed=held, learn_inducing=True)
    assert moved.elbo > still.elbo + 0.1
    assert np.abs(moved.inducing[0].points - still.inducing[0].points).max() > 1e-2


def test_the_optimisers_agree(regression: Case) -> None:
    model, data = regression
    held = ["s2", "ell", "sigma", "mu"]
    natural = model.fit(data, inducing=10, fixed=held)
    lbfgs = model.fit(data, inducing=10, fixed=held, optimizer="lbfgs")
    adam = model.fit(data, inducing=10, fixed=held, optimizer="adam", steps=3000, learning_rate=0.02)
    assert lbfgs.elbo == pytest.approx(natural.elbo, abs=1e-3)
    assert adam.elbo == pytest.approx(natural.elbo, abs=0.05)


@pytest.mark.slow
def test_minibatches_reach_the_batch_optimum(regression: Case) -> None:
    model, data = regression
    held = ["s2", "ell", "sigma", "mu"]
    batch = model.fit(data, inducing=10, fixed=held)
    stochastic = model.fit(data, inducing=10, fixed=held, batch=20, steps=4000, learning_rate=0.02)
    grid = {"x": data["x"]}
    gap = stochastic.predict(grid).mean("f") - batch.predict(grid).mean("f")
    assert np.abs(gap).max() < 0.15


@pytest.mark.parametrize("posterior", ["full", "diagonal", pytest.param("mixture(2)", marks=pytest.mark.slow)])
def test_repeated_rows_share_one_value(rng: np.random.Generator, posterior: str) -> None:
    """Values that are independent in q cannot be equal: q would have to be as narrow as the jitter."""
    x = np.repeat(rng.normal(size=(12, 2)), 3, axis=0)
    data = {"x": x, "y": np.sin(2 * x[:, 0]) + 0.3 * rng.normal(size=36)}
    model = gpdsl.compile(REGRESSION)
    fit = model.fit(data, posterior=posterior, fixed=["s2", "ell", "sigma", "mu"])
    _, _, evidence = exact(fit, data, x[:1])
    where = "exact, of 36 observed values" if posterior == "full" else "by 12 points"
    assert posterior == "full" or len(fit.inducing[0]) == 12
    assert where in fit.summary()
    assert fit.elbo <= evidence + 1e-6
    assert fit.elbo > evidence - (1e-5 if posterior == "full" else 12)


def test_some_repeated_rows_change_nothing_for_a_full_posterior(regression: Case) -> None:
    model, data = regression
    few = {name: np.concatenate([values, values[:2]]) for name, values in data.items()}
    held = ["s2", "ell", "sigma", "mu"]
    fit = model.fit(few, fixed=held)
    assert len(fit.inducing[0]) == 42
    assert len(model.fit(few, fixed=held, posterior="diagonal").inducing[0]) == 40
    assert fit.elbo == pytest.approx(exact(fit, few, data["x"][:1])[2], abs=1e-5)


def test_noise_free_data_are_predicted() -> None:
    """A fit that ends at the noise of rounding predicts, though its matrix has no factor in another order of sums."""
    rng = np.random.default_rng(5)
    x = np.sort(rng.uniform(0.0, 6.0, 40))
    text = "input x : real\noutput y : real\nparam ell : positive\nparam sigma : positive\n"
    text += "latent f(x) ~ GP(0, RBF(ell))\ny ~ Normal(f, sigma)\n"
    fit = gpdsl.compile(text).fit({"x": x, "y": np.sin(x)}, standardise=True, progress=False)
    assert fit.parameters["sigma"] < 1e-5
    new = np.linspace(x[0], x[-1], 9)
    np.testing.assert_allclose(fit.predict({"x": new}).mean("y"), np.sin(new), atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_rounding_takes_from_a_matrix_is_given_back(dtype: str) -> None:
    size = np.finfo(dtype).eps ** -1.1
    signal = (size * np.cos(np.subtract.outer(*[np.linspace(0.0, 1.0, 30)] * 2))).astype(dtype)
    with pytest.raises(np.linalg.LinAlgError):
        factorised_in_place(np.array(signal).T)
    factor = np.tril(_rounded(signal)).astype(float)
    np.testing.assert_allclose(factor @ factor.T, signal, atol=1e4 * np.finfo(dtype).eps * size)
    assert _rounded(np.full((3, 3), -4.0, dtype)) is None
