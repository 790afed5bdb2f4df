"""Posterior families: bounds against the exact evidence, Theorem 2, entropies of mixtures, and their modes."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

import gpdsl
from gpdsl.errors import GpdslError
from gpdsl.inference.bound import Layout, mixture_entropy
from gpdsl.inference.posteriors.family import Covariances, Family, Whitened, parse_family, size, told_by_values
from gpdsl.inference.posteriors.features import Features
from tests.inference.conftest import NOISY
from tests.inference.test_exact import Case, exact

FAMILIES = ["full", "linear", "diagonal", "mixture(2)", "mixture_full(2)"]

SQUARE = """
input x : real
output y : real
latent f(x) ~ GP(0, RBF(2))
y ~ Normal(f^2, 0.2)
"""

OUTLIERS = """
input x : real
output y : real
latent f(x) ~ GP(0, RBF(1))
y ~ StudentT(3, f, 0.1)
"""


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("posterior", [*FAMILIES, "coupled"])
def test_no_family_exceeds_the_exact_evidence_of_random_problems(posterior: str, seed: int) -> None:
    """Dense Gaussians with a full covariance reach it. The jitter, if any, is part of the kernel on both sides."""
    rng = np.random.default_rng([seed, len(posterior)])
    rows, mean, s2, ell, sigma = int(rng.integers(12, 30)), *rng.uniform([-1, 0.5, 0.3, 0.2], [1, 3, 2, 1])
    model = gpdsl.compile(
        f"input x : real\noutput y : real\nlatent f(x) ~ GP({mean}, {s2} * Matern12({ell}))\ny ~ Normal(f, {sigma})\n"
    )
    data = {"x": rng.normal(size=rows), "y": rng.normal(size=rows)}
    inducing = int(rng.choice([0, rng.integers(3, 8)]))
    fit = model.fit(data, posterior=posterior, inducing=inducing)
    noise, elbo = sigma**2 + fit.jitter * s2, fit.elbo
    covariance = s2 * np.exp(-np.abs(data["x"][:, None] - data["x"]) / ell) + noise * np.eye(rows)
    evidence = multivariate_normal(np.full(rows, mean), covariance).logpdf(data["y"])
    assert elbo <= evidence + 1e-6
    exact_within = {"full": 1e-6, "coupled": 1e-6, "linear": 1e-3}.get(posterior)
    if inducing == 0 and exact_within is not None:
        assert elbo == pytest.approx(evidence, abs=exact_within)


@pytest.mark.parametrize("posterior", ["full", "coupled"])
def test_a_dense_posterior_has_the_exact_evidence(regression: Case, rng: np.random.Generator, posterior: str) -> None:
    model, data = regression
    fit = model.fit(data, posterior=posterior, fixed=["s2", "ell", "sigma", "mu"])
    assert fit.elbo == pytest.approx(exact(fit, data, rng.normal(size=(3, 2)))[2], abs=1e-6)


@pytest.mark.parametrize("inducing", [pytest.param(0, marks=pytest.mark.slow), 10])
def test_linear_reaches_full_where_sites_are_negative(rng: np.random.Generator, inducing: int) -> None:
    """At an outlier of a heavy-tailed likelihood the optimal lambda is negative."""
    x = np.sort(rng.uniform(-2, 2, 35))
    y = np.sin(2 * x) + 0.1 * rng.normal(size=35)
    y[[5, 20]] += 3
    model = gpdsl.compile(OUTLIERS)
    full, linear = (model.fit({"x": x, "y": y}, posterior=p, inducing=inducing) for p in ("full", "linear"))
    assert linear.elbo == pytest.approx(full.elbo, abs=1e-3)
    new = {"x": np.linspace(-3, 3, 20)}
    for moment in ("mean", "variance"):
        a, b = (getattr(fit.predict(new), moment)("f") for fit in (full, linear))
        np.testing.assert_allclose(a, b, atol=5e-3)


@pytest.mark.slow
def test_linear_reaches_full_with_two_latents_and_hyperparameters(counts: Case, rng: np.random.Generator) -> None:
    model, data = counts
    full, linear = (model.fit(data, posterior=p, inducing=12) for p in ("full", "linear"))
    assert linear.elbo == pytest.approx(full.elbo, abs=1e-3)
    assert linear.parameters["ell"] == pytest.approx(full.parameters["ell"], rel=0.02)
    noisy = {"x": np.sort(rng.uniform(-2, 2, 30)), "y": rng.standard_t(4, size=30)}
    two = gpdsl.compile(NOISY)
    full, linear = (two.fit(noisy, posterior=p, inducing=0) for p in ("full", "linear"))
    assert linear.elbo == pytest.approx(full.elbo, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("inducing", [pytest.param(0, marks=pytest.mark.slow), 8])
def test_a_mixture_finds_both_signs_and_gains_their_entropy(inducing: int) -> None:
    """y = f^2 + noise leaves the sign open: two equal and separate modes are worth log 2 more than one of them."""
    x = np.linspace(0, 1, 25)
    data = {"x": x, "y": (1.2 + 0.6 * x) ** 2 + 0.2 * np.random.default_rng(0).normal(size=25)}
    model = gpdsl.compile(SQUARE)
    one, two = (model.fit(data, posterior=p, inducing=inducing) for p in ("full", "mixture_full(2)"))
    assert two.elbo == pytest.approx(one.elbo + np.log(2), abs=1e-3)
    np.testing.assert_allclose(two.weights, 0.5, atol=1e-3)
    prediction = two.predict(data)
    assert np.all(np.abs(prediction.mean("f")) < 0.02) and np.all(prediction.variance("f") > 1)
    assert np.all(np.abs(one.predict(data).mean("f")) > 1) and np.all(one.predict(data).variance("f") < 0.1)
    signs = np.sign(prediction.beliefs.marginals.mean[..., 0])
    assert np.all(signs[0] == -signs[1]) and np.all(signs == signs[:, :1])
    diagonal = model.fit(data, posterior="mixture(2)", inducing=inducing).predict(data)
    assert np.all(np.abs(diagonal.mean("f")) < 0.05) and np.all(diagonal.variance("f") > 1)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adam", pytest.param("adadelta", marks=pytest.mark.slow)])
def test_stochastic_optimisers_find_both_signs_and_equal_weights(optimizer: str) -> None:
    x = np.linspace(0, 1, 20)
    fit = gpdsl.compile(SQUARE).fit(
        {"x": x, "y": (1.2 + 0.6 * x) ** 2}, posterior="mixture_full(2)", inducing=6, optimizer=optimizer
    )
    np.testing.assert_allclose(fit.weights, 0.5, atol=0.02)
    signs = np.sign(np.asarray(fit.predict({"x": x}).beliefs.marginals.mean[..., 0]))
    assert np.all(signs[0] == -signs[1]) and np.all(signs == signs[:, :1])


@pytest.mark.slow
def test_modes_of_a_product_and_more_components_than_modes(rng: np.random.Generator) -> None:
    text = "input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(2))\nlatent g(x) ~ GP(0, RBF(2))\n"
    model = gpdsl.compile(text + "y ~ Normal(f * g, 0.1)\n")
    data = {"x": np.linspace(0, 1, 12), "y": -1.5 + 0.05 * rng.normal(size=12)}
    fit = model.fit(data, posterior="mixture_full(3)", inducing=4)
    mean = np.asarray(fit.predict(data).beliefs.marginals.mean)
    signs = {tuple(np.sign(mean[k, 0])) for k in range(3) if fit.weights[k] > 0.01}
    assert signs == {(1.0, -1.0), (-1.0, 1.0)}
    assert fit.elbo > model.fit(data, posterior="full", inducing=4).elbo + 0.6


def random_parts(family: Family, rng: np.random.Generator, latents: int, inducing: int) -> tuple[dict, Features]:
    """Parameters of a family at random, and features of a few rows."""
    mean = rng.normal(size=(family.components, latents, inducing))
    q = {name: jnp.asarray(a) for name, a in family.init(mean, inducing).items()}
    for name in set(q) - {"mean"}:
        q[name] = q[name] + jnp.asarray(0.4 * rng.normal(size=q[name].shape))
    root = np.linalg.cholesky(np.cov(rng.normal(size=(inducing, 40))))[None]
    return q, Features(jnp.asarray(root), jnp.zeros((1, inducing)), jnp.asarray(root))


def moments_of(family: Family, q: dict, features: Features) -> tuple[np.ndarray, np.ndarray]:
    """Means [K, latents, M] and covariances of the whitened values, from what predictions use."""
    whitened = family.whitened(family.prepare(q, features), features)
    root = np.asarray(whitened.root)
    return np.asarray(whitened.mean), root @ np.swapaxes(root, -1, -2)


@pytest.mark.parametrize("posterior", ["mixture(3)", "mixture_full(3)"])
@pytest.mark.parametrize("dense", [False, True])
def test_terms_of_the_bound_are_those_of_the_gaussians(rng, posterior: str, dense: bool) -> None:
    """Entropy, cross entropy and Jensen's bound (SAVIGP eqs. 18 and 19) against SciPy, up to the coordinates."""
    family = parse_family(posterior, dense)
    q, features = random_parts(family, rng, 2, 4)
    mean, covariance = moments_of(family, q, features)
    q = family.prepare(q, features)
    log_weights = np.log([0.5, 0.3, 0.2])
    # a dense diagonal family speaks about f = L w, whose densities are smaller by log |L| for each latent
    shift = 2 * np.log(np.diag(features.factor[0])).sum() if posterior == "mixture(3)" and dense else 0.0
    pieces = [[multivariate_normal(mean[k, j], covariance[k, j]) for j in range(2)] for k in range(3)]
    entropies = np.array([sum(p.entropy() for p in row) for row in pieces])
    np.testing.assert_allclose(family.entropy(q), entropies + shift, rtol=1e-9)
    cross = [
        sum(
            multivariate_normal(np.zeros(4), np.eye(4)).logpdf(mean[k, j]) - 0.5 * np.trace(covariance[k, j])
            for j in range(2)
        )
        for k in range(3)
    ]
    np.testing.assert_allclose(family.cross(q, features), np.array(cross) - shift, rtol=1e-9)
    overlap = [
        [
            sum(multivariate_normal(mean[k, j], covariance[k, j] + covariance[i, j]).logpdf(mean[i, j]) for j in (0, 1))
            for i in range(3)
        ]
        for k in range(3)
    ]
    jensen = -np.sum(np.exp(log_weights) * logsumexp(log_weights + np.array(overlap), axis=1))
    found = mixture_entropy("jensen", jnp.asarray(log_weights), family.entropy(q), *family.pairs(q, features), 8)
    assert float(found) == pytest.approx(jensen + shift, rel=1e-9)


def test_linear_covariances_are_those_of_theorem_two(rng: np.random.Generator) -> None:
    """(Kuu^-1 + sum_n lambda_n a_n a_n')^-1 in plain coordinates: eq. 34."""
    family = parse_family("linear", False)
    inducing, rows = 4, 9
    cross = np.cov(rng.normal(size=(inducing + rows, 60)))
    kuu, kuf = cross[:inducing, :inducing], cross[:inducing, inducing:]
    factor = np.linalg.cholesky(kuu)
    features = Features(
        jnp.asarray(np.linalg.solve(factor, kuf).T[None]), jnp.zeros((1, rows)), jnp.asarray(factor[None])
    )
    q = {"mean": jnp.zeros((1, 1, inducing)), "site": jnp.asarray(rng.normal(size=(1, 1, rows)))}
    _, whitened = moments_of(family, q, features)
    a = np.linalg.solve(kuu, kuf)
    expected = np.linalg.inv(np.linalg.inv(kuu) + (a * np.sinh(np.asarray(q["site"][0, 0]))) @ a.T)
    np.testing.assert_allclose(factor @ whitened[0, 0] @ factor.T, expected, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("kind", ["jensen", "pairwise"])
def test_entropies_of_mixtures_are_bounded_from_below(rng: np.random.Generator, kind: str) -> None:
    """Against a million draws; `pairwise` is exact for components that are equal or far apart."""
    for distance in (0.0, 0.7, 2.0, 40.0):
        mean, sd = rng.normal(size=3), rng.uniform(0.5, 2, size=3)
        if distance in (0.0, 40.0):
            mean, sd = distance * np.arange(3.0), np.full(3, 1.3)
        weights = np.array([0.2, 0.5, 0.3])
        sums = sd[:, None] ** 2 + sd**2
        gaps = (mean[:, None] - mean) ** 2 / sums
        entropies = 0.5 * np.log(2 * np.pi * np.e * sd**2)
        bound = float(mixture_entropy(kind, jnp.log(weights), jnp.asarray(entropies), gaps, jnp.log(sums), 1))
        chosen = rng.choice(3, size=400_000, p=weights)
        draws = mean[chosen] + sd[chosen] * rng.normal(size=chosen.size)
        logs = -0.5 * ((draws[:, None] - mean) / sd) ** 2 - np.log(sd * np.sqrt(2 * np.pi)) + np.log(weights)
        values = -logsumexp(logs, axis=1)
        error = values.std() / np.sqrt(values.size)
        assert bound < values.mean() + 4.5 * error
        if kind == "pairwise" and distance in (0.0, 40.0):
            assert bound == pytest.approx(values.mean(), abs=4.5 * error)


@pytest.mark.slow
def test_jensens_bound_is_looser_by_what_it_is(counts: Case) -> None:
    model, data = counts
    tight, jensen = (model.fit(data, posterior="mixture(2)", inducing=6, entropy=e) for e in ("pairwise", "jensen"))
    single = model.fit(data, posterior="diagonal", inducing=6)
    assert tight.elbo >= single.elbo - 1e-3
    assert tight.elbo - 0.1534 * 6 - 0.01 < jensen.elbo < tight.elbo


def test_explain_counts_the_numbers_of_each_family(counts: Case) -> None:
    model, data = counts
    shown = {
        "full": 10 + 55,
        "linear": 10 + 35,
        "diagonal": 20,
        "mixture(2)": 40,
        "mixture_full(3)": 3 * 65,
    }
    for posterior, numbers in shown.items():
        assert size(parse_family(posterior, False), 10, 35) == numbers
        text = model.explain(data, posterior=posterior, inducing=10, optimizer="lbfgs")
        assert f"{numbers} numbers per latent" in text
    assert "Theorem 2" in model.explain(data, posterior="linear")
    assert "eq. 18" in model.explain(data, posterior="mixture(2)", entropy="jensen")


@pytest.mark.parametrize(
    "options,message",
    [
        ({"posterior": "mixture_full"}, "posterior = 'mixture_full': expected one of auto, coupled"),
        ({"posterior": "linear", "batch": 10, "inducing": 5}, "posterior = linear has a parameter in every row"),
        ({"posterior": "mixture(2)", "entropy": "exact"}, "entropy = 'exact': expected one of pairwise, jensen"),
        ({"posterior": "mixture_full(2)", "optimizer": "natural"}, "optimizer = natural needs posterior = full"),
    ],
)
def test_families_refuse_what_they_cannot_do(counts: Case, options: dict, message: str) -> None:
    model, data = counts
    with pytest.raises(GpdslError, match=f"^{message}"):
        model.fit(data, **options)


def test_a_model_names_its_family() -> None:
    for posterior in ("linear", "mixture_full(2)"):
        model = gpdsl.compile(SQUARE + f"infer vi: posterior = {posterior}\n")
        assert model.declarations.infer.options["posterior"] == posterior
    assert Layout(parse_family("linear", False), False).family.components == 1


@pytest.mark.parametrize("dense", [False, True])
def test_pairs_of_diagonal_components_are_as_far_apart_as_their_gaussians_say(rng, dense: bool) -> None:
    family = parse_family("mixture(3)", dense)
    q, features = random_parts(family, rng, 2, 4)
    mean, sd = np.asarray(q["mean"]), np.exp(np.asarray(q["log_sd"]))
    mean = mean @ np.asarray(features.factor[0]).T if dense else mean
    for (k, i), gap in np.ndenumerate(family.pairs(q, features)[0]):
        assert gap == pytest.approx(np.sum((mean[k] - mean[i]) ** 2 / (sd[k] ** 2 + sd[i] ** 2)))
    logs = [[np.sum(np.log(sd[k] ** 2 + sd[i] ** 2)) for i in range(3)] for k in range(3)]
    np.testing.assert_allclose(family.pairs(q, features)[1], logs)


def test_pairs_of_full_components_are_as_far_apart_as_their_gaussians_say(rng: np.random.Generator) -> None:
    q = {"mean": rng.standard_normal((3, 2, 4)), "root": np.tril(rng.uniform(0.3, 1.0, (3, 2, 4, 4)))}
    gaps, logs = parse_family("mixture_full(3)", False).pairs({k: jnp.asarray(v) for k, v in q.items()}, None)
    covariances = q["root"] @ np.swapaxes(q["root"], -1, -2)
    for k, i in np.ndindex(3, 3):
        apart, total = q["mean"][k] - q["mean"][i], covariances[k] + covariances[i]
        assert gaps[k, i] == pytest.approx(np.sum(apart * np.linalg.solve(total, apart[..., None])[..., 0]))
        assert logs[k, i] == pytest.approx(np.sum(np.linalg.slogdet(total)[1]))


@pytest.mark.parametrize("coupled", [True, False])
def test_covariances_at_rows_are_those_of_values_with_noise(coupled: bool) -> None:
    """By conditioning on v = f(points) + noise of the jitter's variance, whose covariance under q is L S L'."""
    rng, jitter = np.random.default_rng(0), 0.3
    roots = rng.standard_normal((2, 7, 9))
    whole = roots @ np.swapaxes(roots, 1, 2) / 9  # of two kernels at four points and three rows
    scale, root = np.array([2.0, 0.5]), rng.standard_normal((2, 4, 4 * 2 if coupled else 4))
    group = Covariances(3, scale, np.zeros(2), whole[:, :4, :4], whole[:, :4, 4:], whole[:, 4:, 4:])
    q = Whitened(np.zeros((1, 2, 4)), root[None])
    found = told_by_values([group], [q], coupled, jitter).covariances
    assert set(found) == ({(3, 3), (3, 4), (4, 3), (4, 4)} if coupled else {(3, 3), (4, 4)})
    ways = []
    for latent, (kernel, s) in enumerate(zip(whole, scale, strict=True)):
        noisy = kernel[:4, :4] + jitter * np.mean(np.diagonal(kernel[:4, :4])) * np.eye(4)
        way = kernel[4:, :4] @ np.linalg.inv(noisy)  # E[f(rows) | v] = way v
        ways.append(np.sqrt(s) * way @ np.linalg.cholesky(noisy) @ root[latent])
        left = s * (kernel[4:, 4:] - way @ kernel[:4, 4:])
        np.testing.assert_allclose(found[3 + latent, 3 + latent], left + ways[-1] @ ways[-1].T)
    if coupled:
        np.testing.assert_allclose(found[3, 4], ways[0] @ ways[1].T)
