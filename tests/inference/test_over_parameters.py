"""q over learnt parameters: exact where the posterior is Gaussian, the best Gaussian elsewhere, by quadrature."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats
from scipy.interpolate import CubicSpline
from scipy.special import gammaln

import gpdsl
from gpdsl.inference import over_parameters
from gpdsl.inference.best_gaussian import Gaussian, Way, ascended, averaged, normals, start

LINE = """
index d in 1..3
input x : real[3]
output y : real
param W[d] : real ~ Normal(0, 1)
let m = sum(d, W[d] * x[d])
y ~ Normal(m, 0.5)
"""
LOGISTIC = """
input x : real
output y : binary
param a : real ~ Normal(0, 2)
param b : real ~ Normal(0, 2)
y ~ Bernoulli(logit = a + b * x)
"""
GP = """
input x : real
output y : real
param ell : positive ~ LogNormal(0, 0.7)
latent f(x) ~ GP(0, RBF(ell))
y ~ Normal(f, 0.3)
"""
FIELD = """
index g in 1..12
input x : real
output y : real
const place[g] = lattice(0, 1, 12)
param ell : positive ~ LogNormal(0, 0.7)
latent f(place) ~ GP(0, RBF(ell))
y ~ Normal(x * sum(g, exp(f[g])), 0.3)
"""
LAYERS = """
input x : real
output y : real
param ell : positive ~ LogNormal(0, 0.7)
latent h(x) ~ GP(x, RBF(ell))
latent f(h) ~ GP(0, RBF(1))
y ~ Normal(f, 0.3)
"""
NODES, SHARES = np.polynomial.hermite_e.hermegauss(40)
SHARES = SHARES / SHARES.sum()


@pytest.fixture(scope="module")
def line() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3))
    return {"x": x, "y": x @ [1.0, -1.0, 0.5] + 0.5 * rng.normal(size=40)}


@pytest.fixture(scope="module")
def fit(line: dict[str, np.ndarray]) -> gpdsl.Fit:
    return gpdsl.compile(LINE).fit(line, parameters="gaussian")


def test_bayesian_linear_regression_is_exact(fit: gpdsl.Fit, line: dict[str, np.ndarray]) -> None:
    """Mean, covariance, log evidence and predictions against their formulas."""
    x, y = line["x"], line["y"]
    covariance = np.linalg.inv(x.T @ x / 0.25 + np.eye(3))
    mean = covariance @ x.T @ y / 0.25
    drawn = fit.settings.values("W")
    np.testing.assert_allclose(fit.settings.mean("W"), mean, atol=1e-8)
    np.testing.assert_allclose(np.cov(drawn.T, bias=True), covariance, rtol=1e-8, atol=1e-12)
    evidence = stats.multivariate_normal.logpdf(y, None, x @ x.T + 0.25 * np.eye(40))
    assert abs(fit.elbo - evidence) < 1e-8 and fit.elbo_se == 0.0
    assert fit.log_evidence_bound == fit.elbo and fit.no_bound == "" and not fit.notes
    prediction = fit.predict(line)
    np.testing.assert_allclose(prediction.mean("y"), x @ mean, atol=1e-7)
    np.testing.assert_allclose(prediction.variance("y"), 0.25 + np.einsum("ni,ij,nj->n", x, covariance, x), rtol=1e-8)


def test_the_summary_tells_and_a_file_keeps_it(fit: gpdsl.Fit, line: dict[str, np.ndarray], tmp_path: Path) -> None:
    text = fit.summary()
    assert "elbo" in text and "256 draws of one Gaussian of 3 numbers" in text and "log prior" not in text
    assert "which is the posterior itself" in text and "posterior mean ± standard deviation" in text
    fit.save(tmp_path / "q.gpfit")
    again = gpdsl.load_fit(tmp_path / "q.gpfit")
    assert again.summary() == text
    np.testing.assert_array_equal(again.predict(line).variance("m"), fit.predict(line).variance("m"))


def test_the_plan_says_what_q_is(line: dict[str, np.ndarray]) -> None:
    model = gpdsl.compile(LINE + "param s : positive\n")
    assert "q of parameters" not in model.explain(line)
    told = model.explain(line, parameters="gaussian")
    assert "one Gaussian of 4 numbers on the real line, with all covariances" in told
    assert "flat on the real line, without a prior: s" in told
    assert "no latents: maximum a posteriori, with priors of W; there q of parameters begins" in told
    assert "\n\nq of parameters\n" in told


def _logistic(x: np.ndarray, y: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The log joint density of LOGISTIC at (a, b), [points]."""
    lines = at[:, :1] + at[:, 1:] * x
    return stats.norm.logpdf(at, 0, 2).sum(axis=1) + (y * lines - np.logaddexp(0, lines)).sum(axis=1)


@pytest.mark.parametrize("seed", [0, 1])
def test_logistic_regression_has_the_best_gaussian(seed: int) -> None:
    """Against the bound maximised by Gauss-Hermite quadrature, and the posterior on a grid, which is 5% wider."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=30)
    y = (rng.uniform(size=30) < 1 / (1 + np.exp(-(0.5 + 2 * x)))).astype(float)
    z = np.stack(np.meshgrid(NODES, NODES, indexing="ij"), axis=-1).reshape(-1, 2)
    weights = np.outer(SHARES, SHARES).ravel()

    def root(v: np.ndarray) -> np.ndarray:
        return np.array([[np.exp(v[2]), 0.0], [v[3], np.exp(v[4])]])

    def negative(v: np.ndarray) -> float:
        entropy = v[2] + v[4] + 1 + np.log(2 * np.pi)
        return -float(weights @ _logistic(x, y, v[:2] + z @ root(v).T) + entropy)

    best = optimize.minimize(negative, [0.0, 1.0, -0.5, 0.0, -0.5], tol=1e-12)
    sds = np.sqrt(np.diag(root(best.x) @ root(best.x).T))
    fit = gpdsl.compile(LOGISTIC).fit({"x": x, "y": y}, parameters="gaussian", seed=seed)
    assert fit.settings is not None
    found = np.array([fit.settings.mean(n) for n in "ab"]), np.array([fit.settings.sd(n) for n in "ab"])
    np.testing.assert_allclose(found[0], best.x[:2], atol=0.005)
    np.testing.assert_allclose(found[1], sds, rtol=0.01)
    assert abs(fit.elbo + best.fun) < 0.01 and 0.0 < fit.elbo_se < 0.01
    assert not fit.notes  # 0.02 nats from the posterior
    grid = np.stack(np.meshgrid(*2 * [np.linspace(-8, 12, 401)], indexing="ij"), axis=-1).reshape(-1, 2)
    logp = _logistic(x, y, grid)
    p = np.exp(logp - logp.max())
    p /= p.sum()
    wide = np.sqrt(p @ (grid - p @ grid) ** 2)
    assert np.all(found[1] < wide) and np.all(found[1] > 0.9 * wide)
    np.testing.assert_allclose(found[0], p @ grid, atol=0.02)


def test_a_length_scale_has_the_best_gaussian_of_its_logarithm() -> None:
    """Of the exact evidence of a GP, against quadrature over log ell."""
    rng = np.random.default_rng(3)
    x = np.sort(rng.uniform(-3, 3, 18))
    y = np.sin(1.5 * x) + 0.3 * rng.standard_normal(18)
    logs, apart = np.linspace(-4, 4, 1601), (x[:, None] - x) ** 2
    logp = np.array(
        [
            stats.multivariate_normal.logpdf(y, None, np.exp(-0.5 * apart / np.exp(2 * u)) + 0.09 * np.eye(18))
            + stats.norm.logpdf(u, 0, 0.7)
            for u in logs
        ]
    )
    curve = CubicSpline(logs, logp)

    def negative(v: np.ndarray) -> float:
        return -float(SHARES @ curve(v[0] + np.exp(v[1]) * NODES) + v[1] + 0.5 + 0.5 * np.log(2 * np.pi))

    best = optimize.minimize(negative, [0.0, -1.4], tol=1e-12)
    fit = gpdsl.compile(GP).fit({"x": x, "y": y}, parameters="gaussian")
    assert fit.settings is not None
    drawn = np.log(fit.settings.values("ell"))
    assert abs(drawn.mean() - best.x[0]) < 0.05 * np.exp(best.x[1])
    assert abs(drawn.std() / np.exp(best.x[1]) - 1) < 0.05
    assert abs(fit.elbo + best.fun) < 4 * fit.elbo_se < 0.1
    evidence = np.log(np.sum(np.exp(logp - logp.max())) * (logs[1] - logs[0])) + logp.max()
    assert fit.elbo < evidence < fit.elbo + 0.1
    assert "elbo" in fit.summary() and "  evidence " not in fit.summary()
    assert np.all(fit.predict({"x": x}).variance("f") > 0)


def test_the_bound_of_a_simplex_is_below_its_evidence() -> None:
    """Its prior is a density of all elements but the last; a Dirichlet has a formula for the evidence."""
    counts = np.array([20, 25, 15])
    model = gpdsl.compile("""
    index k in 1..3
    output c : label[k]
    param w[k] : simplex ~ Dirichlet(4)
    c ~ Categorical(p = w)
    """)
    fit = model.fit({"c": np.repeat([1, 2, 3], counts)}, parameters="gaussian")
    after = counts + 4.0
    evidence = gammaln(12) - 3 * gammaln(4) + gammaln(after).sum() - gammaln(after.sum())
    assert evidence - 0.05 < fit.elbo < evidence + 3 * fit.elbo_se
    exact = stats.dirichlet(after)
    np.testing.assert_allclose(fit.settings.mean("w"), exact.mean(), atol=0.003)
    np.testing.assert_allclose(fit.settings.sd("w"), np.sqrt(exact.var()), rtol=0.03)


def test_a_network_leaves_the_saddle_where_all_is_zero() -> None:
    """Its functions are those of the data, and q is wider away from them."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-2, 2, 40))
    y = np.sin(2 * x) + 0.15 * rng.normal(size=40)
    model = gpdsl.compile("""
    index h in 1..3
    input x : real
    output y : real
    param W[h] : real ~ Normal(0, 2)
    param b[h] : real ~ Normal(0, 2)
    param V[h] : real ~ Normal(0, 1)
    let m = sum(h, V[h] * tanh(W[h] * x + b[h]))
    y ~ Normal(m, 0.15)
    """)
    fit = model.fit({"x": x, "y": y}, parameters="gaussian")
    at = np.array([-1.5, 0.0, 1.5, 4.0])
    prediction = fit.predict({"x": at})
    sd = np.sqrt(prediction.variance("m"))
    assert np.all(np.abs(prediction.mean("m") - np.sin(2 * at))[:3] < 0.25) and sd[3] > 1.5 * sd[1]


def test_parameters_that_the_data_leave_open_are_named() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=30)
    model = gpdsl.compile("input x : real\noutput y : real\nparam a : real\nparam c : real\ny ~ Normal(a + 0*c + x, 1)")
    fit = model.fit({"x": x, "y": x + rng.normal(size=30)}, parameters="gaussian")
    assert any("`c` is hardly determined" in note for note in fit.notes)
    assert "`a`" not in " ".join(fit.notes)
    assert "flat on the real line" in fit.no_bound and np.isnan(fit.log_evidence_bound)


@pytest.mark.parametrize(
    ("text", "options", "match"),
    [
        (GP, {"hyperparameters": "integrated"}, "hyperparameters = integrated averages over them by weights"),
        (GP, {"posterior": "corrected"}, "posterior = corrected draws from the posterior itself"),
        (GP, {"beta": 2.0}, "beta = 2 has no bound"),
        (GP, {"engine": "ep"}, "belongs to engine = vi"),
        (GP, {"batch": 5, "inducing": 4}, "parameters = gaussian explores the evidence"),
        (LOGISTIC, {"optimizer": "adam"}, "parameters = gaussian explores the evidence"),
        (LOGISTIC, {"posterior": "corrected"}, "posterior = corrected draws from the posterior itself"),
        (LOGISTIC, {"posterior": "diagonal"}, "posterior = diagonal is one of latents, and this model has none"),
        (GP, {"schedule": "alternating"}, "the plan is alternating: leave out schedule = alternating"),
        (FIELD, {}, r"parameters = gaussian does not go with a field \(`f`\)"),
        (LAYERS, {}, "parameters = gaussian does not go with latents that are functions of `h`"),
    ],
)
def test_what_does_not_go_with_it_says_why(text: str, options: dict[str, Any], match: str) -> None:
    data = {"x": np.linspace(0, 1, 12), "y": np.tile([0.0, 1.0], 6)}
    with pytest.raises(gpdsl.GpdslError, match=match):
        gpdsl.compile(text).fit(data, parameters="gaussian", **options)


def test_a_fit_is_resumed_and_begun_at(tmp_path: Path) -> None:
    """What has ended is returned; an interrupted search goes on and then finds q; another fit tells where to begin."""
    x = np.linspace(0, 4, 15)
    data, model, path = {"x": x, "y": np.sin(2 * x)}, gpdsl.compile(GP), tmp_path / "a.gpfit"

    def stop(report: Any) -> None:
        if report.stage == "q of parameters":
            raise KeyboardInterrupt

    whole = model.fit(data, parameters="gaussian")
    half = model.fit(data, parameters="gaussian", checkpoint=path, callback=stop)
    assert half.interrupted and gpdsl.load_fit(path).settings is None
    first = model.fit(data, parameters="gaussian", checkpoint=path, resume=True)
    again = model.fit(data, parameters="gaussian", checkpoint=path, resume=True)
    begun = model.fit(data, parameters="gaussian", start=model.fit(data))
    for fit in (first, again, begun):
        assert fit.elbo == pytest.approx(whole.elbo, abs=1e-5)
        np.testing.assert_allclose(fit.settings.sd("ell"), whole.settings.sd("ell"), rtol=1e-4)
    with pytest.raises(gpdsl.GpdslError, match="fitted with another parameters"):
        model.fit(data, checkpoint=path, resume=True)


def test_covariances_between_rows_are_those_of_the_weights(fit: gpdsl.Fit, line: dict[str, np.ndarray]) -> None:
    covariance = np.linalg.inv(line["x"].T @ line["x"] / 0.25 + np.eye(3))
    some = line["x"][:4]
    between = some @ covariance @ some.T
    prediction = fit.predict({"x": some})
    np.testing.assert_allclose(prediction.covariance("m"), between, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(prediction.covariance("y"), between + 0.25 * np.eye(4), rtol=1e-7, atol=1e-12)
    point = gpdsl.compile(LINE).fit(line)
    np.testing.assert_array_equal(point.predict({"x": some}).covariance("y"), 0.25 * np.eye(4))
    with pytest.raises(gpdsl.GpdslError, match="no latents, by which rows tell of each other"):
        point.predict({"x": some}, given={"x": some, "y": np.ones(4)})
    with pytest.raises(gpdsl.GpdslError, match="draw_functions: this model has no latents"):
        point.draw_functions(2)


def test_an_opaque_function_of_parameters_alone_is_refused() -> None:
    model = gpdsl.compile("""
    input x : real
    output y : real
    external response(a: real) -> real
    param a : real ~ Normal(0, 1)
    y ~ Normal(response(a * x), 0.2)
    """)
    gpdsl.register_forward_model("response", lambda a: 2 * a)
    with pytest.raises(gpdsl.GpdslError, match="`response` is opaque, and without latents"):
        model.fit({"x": [1.0, 2.0], "y": [1.0, 2.0]})


def test_an_interrupted_fit_is_that_of_the_search(line: dict[str, np.ndarray]) -> None:
    def stop(report: Any) -> None:
        if report.stage == "q of parameters":
            raise KeyboardInterrupt

    fit = gpdsl.compile(LINE).fit(line, parameters="gaussian", callback=stop)
    assert fit.interrupted and fit.settings is None and any("interrupted while q" in note for note in fit.notes)
    assert "evidence" not in fit.summary().split("bound")[0]


class Quadratic:
    """log p of N(mean, inverse of the precision), up to a constant, and its gradient."""

    def __init__(self, mean: np.ndarray, precision: np.ndarray) -> None:
        self.mean, self.precision = mean, precision

    def __call__(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        apart = points - self.mean
        slopes = -apart @ self.precision
        return 0.5 * np.sum(apart * slopes, axis=1), slopes


@pytest.mark.parametrize("diagonal", [False, True])
def test_a_gaussian_is_found_from_anywhere(diagonal: bool) -> None:
    """Full: exactly, in a step or two. Diagonal: variances 1 / precision, by many sets of samples of few."""
    rng = np.random.default_rng(2)
    size = 12
    spread = rng.normal(size=(size, size))
    target = Quadratic(rng.normal(size=size), spread @ spread.T + np.eye(size))
    begin = Gaussian(np.zeros(size), np.ones(size) if diagonal else np.eye(size))
    wide = np.full(size, np.inf)
    q, settled = ascended(target, begin, normals(256, size, 0), wide, 200)
    assert settled
    if not diagonal:
        q = Way.of(q, normals(256, size, 1), target(q.points(normals(256, size, 1)))[1]).taken(q, 1.0)
        np.testing.assert_allclose(q.root @ q.root.T, np.linalg.inv(target.precision), rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(q.mean, target.mean, atol=1e-6)
        near = start(target, target.mean, diagonal=False)
        np.testing.assert_allclose(near.root @ near.root.T, np.linalg.inv(target.precision), rtol=1e-4)
        return
    best = 1.0 / np.sqrt(np.diag(target.precision))
    after = averaged(target, q, wide, lambda number: normals(256, size, 100 + number), 30)
    np.testing.assert_allclose(np.abs(after.root), best, rtol=0.05)
    assert np.abs(after.root / best - 1).mean() < np.abs(q.root / best - 1).mean()
    np.testing.assert_allclose(start(target, target.mean, diagonal=True).root, best, rtol=1e-6)


def test_many_numbers_are_independent_in_q(line: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond `FULL`: the best independent Gaussian of a linear regression has variances 1 / precision."""
    monkeypatch.setattr(over_parameters, "FULL", 2)
    x = line["x"] + line["x"][:, :1]  # columns that are correlated
    fit = gpdsl.compile(LINE).fit({"x": x, "y": line["y"]}, parameters="gaussian")
    assert fit.settings is not None and "independent of each other" in fit.settings.about
    precision = x.T @ x / 0.25 + np.eye(3)
    np.testing.assert_allclose(fit.settings.sd("W"), 1.0 / np.sqrt(np.diag(precision)), rtol=0.02)
    evidence = stats.multivariate_normal.logpdf(line["y"], None, x @ x.T + 0.25 * np.eye(40))
    gap = 0.5 * (np.sum(np.log(np.diag(precision))) - np.linalg.slogdet(precision)[1])  # KL[q || p]
    assert abs(fit.elbo - (evidence - gap)) < 0.02


def test_models_without_latents_have_standard_errors_and_averages(line: dict[str, np.ndarray]) -> None:
    """Of the likelihood itself: the curvature, and weighted settings."""
    covariance = np.linalg.inv(line["x"].T @ line["x"] / 0.25 + np.eye(3))
    model, sds = gpdsl.compile(LINE), np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(model.fit(line).standard_errors["W"], sds, rtol=1e-4)
    averaged_over = model.fit(line, hyperparameters="integrated")
    assert averaged_over.settings is not None
    np.testing.assert_allclose(averaged_over.settings.sd("W"), sds, rtol=0.1)
    assert "parameters are averaged over" in averaged_over.summary()


def test_the_gap_is_the_divergence_of_q_from_the_posterior() -> None:
    """Of a q that is narrower than the posterior N(0, 1), and less than a quarter of a nat below its evidence."""

    class Known(SimpleNamespace):
        def __call__(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return stats.norm.logpdf(points[:, 0]) - 7.0, -points

    sd = 0.8
    density: Any = Known(quick=False, samples=2000)
    (bound, error), gap = over_parameters._assessed(density, Gaussian(np.zeros(1), np.array([sd])), 0)
    divergence = -np.log(sd) + 0.5 * (sd**2 - 1.0)
    assert error < 1e-3
    assert bound == pytest.approx(-7.0 - divergence, abs=5 * error + 1e-3)
    assert gap.nats == pytest.approx(divergence, abs=2e-3)


def test_a_gaussian_that_is_the_posterior_leaves_no_gap() -> None:
    q = Gaussian(np.array([0.3, -1.0]), np.array([[1.0, 0.0], [0.4, 0.7]]))
    spread = np.linalg.inv(q.root @ q.root.T)

    def one(point: np.ndarray) -> tuple[float, np.ndarray]:
        away = point - q.mean
        return 2.5 + float(stats.multivariate_normal(q.mean, q.root @ q.root.T).logpdf(point)), -spread @ away

    density: Any = SimpleNamespace(_many=None, one=one, quick=False, samples=8)
    density_at = lambda points: over_parameters.Everywhere.__call__(density, points)  # noqa: E731
    values, slopes = density_at(np.stack([q.mean, q.mean + 1.0]))
    assert values.shape == (2,) and np.all(slopes[0] == 0) and np.allclose(slopes[1], -spread @ np.ones(2))
    asked: Any = Called(density_at, quick=False, samples=8)
    (bound, error), gap = over_parameters._assessed(asked, q, seed=0)
    assert bound == pytest.approx(2.5) and error == 0.0 and gap.nats == 0.0
    assert gap.told == "which is the posterior itself"
    wider = Gaussian(q.mean, 1.5 * q.root)
    assert over_parameters._assessed(asked, wider, seed=0)[1].nats > 0.05


class Called:
    """A function with what is said of it."""

    def __init__(self, function: Any, **said: Any) -> None:
        self.function = function
        vars(self).update(said)

    def __call__(self, points: np.ndarray) -> Any:
        return self.function(points)
