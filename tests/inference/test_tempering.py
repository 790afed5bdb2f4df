"""beta-VI against direct maximisation of its bound, its routes against each other, and where it does not apply."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import gammaln
from scipy.optimize import minimize

import gpdsl
from gpdsl import GpdslError

LEVEL = """
input x : real
output {output}
param ell : positive = 1 ~ Gamma(3, 3)
latent f(x) ~ GP(0, 1.5 * RBF(ell))
{law}
"""
NORMAL = LEVEL.format(output="y : real", law="y ~ Normal(f, 0.4)")
POISSON = LEVEL.format(output="y : count", law="y ~ Poisson(exp(f))")
X = np.array([-2.0, -1.1, -0.3, 0.4, 1.3, 2.2])
Y = np.array([0.0, 1.0, 0.0, 2.0, 4.0, 3.0])
DATA = {"x": X, "y": Y}


def normal(mean, variance):
    return -0.5 * jnp.log(2 * jnp.pi * 0.16) - ((Y - mean) ** 2 + variance) / 0.32


def poisson(mean, variance):
    return Y * mean - jnp.exp(mean + 0.5 * variance) - gammaln(Y + 1)


def best_by_hand(expected, beta):
    """The bound maximised over mean and root of q, and log ell, by L-BFGS: E - beta KL + log Gamma(ell; 3, 3)."""
    count = len(X)
    lower = np.tril_indices(count)

    def bound(point):
        mean, ell = point[:count], jnp.exp(point[-1])
        root = jnp.zeros((count, count)).at[lower].set(point[count:-1])
        prior = 1.5 * jnp.exp(-0.5 * (X[:, None] - X) ** 2 / ell**2) + 1e-9 * jnp.eye(count)
        inverse = jnp.linalg.inv(prior)
        gap = jnp.linalg.slogdet(prior)[1] - 2 * jnp.sum(jnp.log(jnp.abs(jnp.diagonal(root))))
        divergence = 0.5 * (jnp.trace(inverse @ root @ root.T) + mean @ inverse @ mean - count + gap)
        log_prior = 3 * jnp.log(3.0) - gammaln(3.0) + 2 * jnp.log(ell) - 3 * ell
        return -(jnp.sum(expected(mean, jnp.sum(root**2, axis=1))) - beta * divergence + log_prior)

    start = np.concatenate([np.zeros(count), 0.5 * np.eye(count)[lower], [0.0]])
    value = jax.jit(jax.value_and_grad(bound))
    found = minimize(value, start, jac=True, method="L-BFGS-B", options={"maxiter": 5000, "ftol": 1e-14, "gtol": 1e-8})
    root = np.zeros((count, count))
    root[lower] = found.x[count:-1]
    return -found.fun, np.exp(found.x[-1]), found.x[:count], np.sum(root**2, axis=1)


@pytest.mark.parametrize("text, expected", [(NORMAL, normal), (POISSON, poisson)])
@pytest.mark.parametrize("beta", [0.3, 2.0])
def test_direct_maximisation(text, expected, beta):
    fit = gpdsl.compile(text).fit(DATA, beta=beta, diagnose="no")
    value, ell, mean, variance = best_by_hand(expected, beta)
    prediction = fit.predict(DATA)
    np.testing.assert_allclose(fit.elbo, value, atol=1e-5)
    np.testing.assert_allclose(fit.parameters["ell"], ell, rtol=2e-3)
    np.testing.assert_allclose(prediction.mean("f"), mean, atol=3e-3)
    np.testing.assert_allclose(prediction.variance("f"), variance, rtol=5e-3)


def test_a_beta_of_one_changes_nothing():
    model = gpdsl.compile(NORMAL)
    plain, asked = model.fit(DATA, diagnose="no"), model.fit(DATA, beta=1, diagnose="no")
    assert plain.choice == asked.choice and plain.choice.exact
    assert plain.elbo == asked.elbo


@pytest.mark.slow
def test_other_searches_end_at_the_same_bound():
    model, told = gpdsl.compile(POISSON + "infer vi: beta = 0.3"), []
    natural = model.fit(DATA, diagnose="no", callback=lambda report: told.append(report.elbo))
    assert np.isclose(told[-1], natural.elbo, atol=1e-4) and np.isclose(natural.history[-1, 1], natural.elbo, atol=1e-4)
    lbfgs = model.fit(DATA, optimizer="lbfgs", diagnose="no")
    sparse = model.fit(DATA, inducing=5, learn_inducing=True, diagnose="no")
    np.testing.assert_allclose(lbfgs.elbo, natural.elbo, atol=1e-4)
    assert natural.elbo - 0.5 < sparse.elbo < natural.elbo + 1e-6


def test_white_noise_within_the_noise_of_an_output():
    apart = gpdsl.compile(NORMAL.replace("RBF(ell)", "RBF(ell) + 0.09 * White()"))
    within = gpdsl.compile(NORMAL.replace("0.4", "0.5"))
    assert np.isclose(*(each.fit(DATA, beta=0.5, diagnose="no").elbo for each in (apart, within)), atol=1e-5)


def test_what_is_said_of_the_fit():
    fit = gpdsl.compile(NORMAL).fit(DATA, beta=0.5)
    assert "no standard errors: with beta = 0.5" in fit.summary() and np.isnan(fit.log_evidence_bound)
    assert "counted 0.5 times" in str(gpdsl.compile(NORMAL).explain(DATA, beta=0.5))
    with pytest.raises(GpdslError, match=r"with beta = 0\.5 q is none"):
        fit.loo(DATA)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"engine": "ep"}, "beta = 0.5 belongs to engine = vi"),
        ({"engine": "mcmc"}, "beta = 0.5 belongs to engine = vi"),
        ({"engine": "qsgp"}, "beta = 0.5 belongs to engine = vi"),
        ({"hyperparameters": "integrated"}, "hyperparameters = integrated weighs parameters by their evidence"),
        ({"posterior": "corrected"}, "posterior = corrected weighs draws"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(GpdslError, match=message):
        gpdsl.compile(NORMAL).fit(DATA, beta=0.5, **options)


def test_values_and_models_without_a_divergence():
    with pytest.raises(GpdslError, match="beta = 0: expected a number above 0"):
        gpdsl.compile(NORMAL).fit(DATA, beta=0)
    with pytest.raises(GpdslError, match="this model has no latents"):
        gpdsl.compile("input x : real\noutput y : real\nparam m : real\ny ~ Normal(m * x, 1)").fit(DATA, beta=0.5)
