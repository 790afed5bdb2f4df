"""Rows left out: against the inverse of a dense covariance, fits without the row, and smoothed weights elsewhere."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl.inference.proposals import smoothed
from gpdsl.results.criticism import left_out as module
from gpdsl.results.criticism.cavity import Values
from gpdsl.results.criticism.left_out import Elpd, LeaveOneOut
from gpdsl.results.criticism.through_layers import reweighted
from tests.inference.problems import unlearnt

RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(0, 6, 20))
Y = np.sin(X) + 0.2 * RNG.standard_normal(20)
DATA = {"x": X, "y": Y}
HEAD = "input x : real\noutput y : {kind}\nlatent f(x) ~ GP(0, RBF(1))\n"
NORMAL = gpdsl.compile(HEAD.format(kind="real") + "y ~ Normal(f, 0.2)\n")
K = np.exp(-0.5 * (X[:, None] - X) ** 2)


def left_out(covariance: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rasmussen and Williams (2006), eqs. 5.11 and 5.12."""
    inverse = np.linalg.inv(covariance)
    return y - inverse @ y / np.diag(inverse), 1.0 / np.diag(inverse)


@pytest.mark.parametrize(
    ("options", "close"),
    [({}, 1e-10), ({"engine": "vi", "inducing": 14, "posterior": "full", "optimizer": "lbfgs"}, 2e-3)],
)
def test_under_normal_noise_it_is_the_formula(options: dict[str, Any], close: float) -> None:
    fit = NORMAL.fit(DATA, **options)
    found, (mean, variance) = fit.loo(DATA), left_out(K + 0.04 * np.eye(20), Y)
    np.testing.assert_allclose(found.pointwise, stats.norm.logpdf(Y, mean, np.sqrt(variance)), atol=close)
    np.testing.assert_allclose(found.pit("y"), stats.norm.cdf(Y, mean, np.sqrt(variance)), atol=close)
    assert found.elpd == pytest.approx(found.pointwise.sum())
    assert found.se == pytest.approx(np.sqrt(20) * np.std(found.pointwise))
    assert 3 < found.effective_parameters < 10
    assert np.isnan(found.k).all()
    assert "leave-one-out of model: elpd" in repr(found)


def test_all_that_a_row_observes_leaves_together() -> None:
    """Two outputs mix two latents; some values are missing, and one row has none."""
    model = gpdsl.compile(
        "index p in 1..2\ninput x : real\noutput y[p] : real\nlatent f(x) ~ GP(0, RBF(1))\n"
        "latent g(x) ~ GP(0, RBF(0.5))\ny[1] ~ Normal(f + g, 0.2)\ny[2] ~ Normal(f - 2*g, 0.3)\n"
    )
    y = np.column_stack([Y, np.cos(X)])
    y[3, 0] = y[5, 1] = np.nan
    y[7] = np.nan
    found = model.fit({"x": X, "y": y}).loo({"x": X, "y": y})
    own, other = K, np.exp(-0.5 * ((X[:, None] - X) / 0.5) ** 2)
    loads = np.array([[1.0, 1.0], [1.0, -2.0]])
    whole = np.kron(own, np.outer(loads[:, 0], loads[:, 0])) + np.kron(other, np.outer(loads[:, 1], loads[:, 1]))
    whole += np.diag(np.tile([0.04, 0.09], 20))
    values, known = y.ravel(), np.isfinite(y.ravel())
    for row in (0, 3, 5, 12):
        mine = known & (np.arange(40) // 2 == row)
        rest = known & ~mine
        weights = np.linalg.solve(whole[np.ix_(rest, rest)], whole[np.ix_(rest, mine)]).T
        covariance = whole[np.ix_(mine, mine)] - weights @ whole[np.ix_(rest, mine)]
        expected = stats.multivariate_normal.logpdf(values[mine], weights @ values[rest], covariance)
        assert found.pointwise[row] == pytest.approx(expected, abs=1e-8)
    assert np.isnan(found.pointwise[7])
    assert np.isfinite(found.elpd)
    assert "19 rows" in repr(found)


@pytest.mark.parametrize("kind", ["levels", "slopes"])
def test_readings_of_one_latent_leave_together(kind: str) -> None:
    """Two levels of an index among the arguments, or values and slopes: correlated, whatever one output reads."""
    gap = X[:, None] - X
    if kind == "levels":
        text = "index p in 1..2\noutput y[p] : real\nlatent f(x, p) ~ GP(0, RBF(1))\ny[p] ~ Normal(f[p], 0.3)\n"
        data = {"y": np.column_stack([Y, np.cos(X)])}
        whole = np.kron(np.exp(-0.5 * np.array([[0, 1], [1, 0]])), np.exp(-0.5 * gap**2))
    else:
        text = "output a : real\noutput b : real\nlatent f(x) ~ GP(0, RBF(1))\na ~ Normal(f, 0.3)\n"
        text += "b ~ Normal(D(f, x), 0.3)\n"
        data = {"a": Y, "b": np.cos(X)}
        whole = np.exp(-0.5 * np.tile(gap, (2, 2)) ** 2)
        whole *= np.block([[np.ones_like(gap), gap], [-gap, 1 - gap**2]])
    data = {"x": X, **data}
    found = gpdsl.compile("input x : real\n" + text).fit(data).loo(data)
    values, count = np.concatenate([Y, np.cos(X)]), len(X)
    whole += 0.09 * np.eye(2 * count)
    for row in (0, 7, 12):
        mine = np.arange(2 * count) % count == row
        weights = np.linalg.solve(whole[np.ix_(~mine, ~mine)], whole[np.ix_(~mine, mine)]).T
        covariance = whole[np.ix_(mine, mine)] - weights @ whole[np.ix_(~mine, mine)]
        expected = stats.multivariate_normal.logpdf(values[mine], weights @ values[~mine], covariance)
        assert found.pointwise[row] == pytest.approx(expected, abs=1e-8)


def test_noise_in_the_kernel_leaves_with_its_row() -> None:
    model = gpdsl.compile(
        "input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1) + 0.03 * White())\ny ~ Normal(f, 0.1)\n"
    )
    mean, variance = left_out(K + 0.04 * np.eye(20), Y)
    found = model.fit(DATA).loo(DATA).pointwise
    np.testing.assert_allclose(found, stats.norm.logpdf(Y, mean, np.sqrt(variance)), atol=1e-8)


def test_sums_and_errors_are_over_observed_rows() -> None:
    rng = np.random.default_rng(1)
    pointwise, itself = rng.normal(size=7), rng.normal(size=7)
    pointwise[[2, 5]] = itself[[2, 5]] = np.nan
    nothing: Any = None
    found, seen = Elpd(nothing, nothing, pointwise, itself, "WAIC"), pointwise[[0, 1, 3, 4, 6]]
    assert found.elpd == pytest.approx(seen.sum())
    assert found.se == pytest.approx(np.sqrt(5 * np.mean((seen - seen.mean()) ** 2)))
    assert found.effective_parameters == pytest.approx(np.nansum(itself) - seen.sum())
    k = np.array([0.2, 0.71, np.nan, 0.7, 1.5, np.nan, 0.0])
    left = LeaveOneOut(nothing, nothing, pointwise, itself, "loo", k, np.zeros((1, 7)), [])
    np.testing.assert_array_equal(left.doubtful, [False, True, False, False, True, False, False])


def test_draws_count_without_a_row_as_much_as_it_was_improbable() -> None:
    """Few draws are not smoothed: weights are those of the draws over the row's own density, and add up to one."""
    rng = np.random.default_rng(2)
    base, own = np.log(rng.dirichlet(np.ones(6))), rng.normal(size=(6, 4))
    weights, k = reweighted(base, own)
    expected = np.exp(base)[:, None] / np.exp(own)
    np.testing.assert_allclose(np.exp(weights), expected / expected.sum(axis=0), rtol=1e-12)
    assert weights.shape == (6, 4) and np.isnan(k).all()


def test_places_in_what_the_others_say_are_weighed_over_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two settings, whose shares of a row count as its log weights say; of a value of which nothing is known, NaN."""
    places = {0: (np.array([0.1, 0.4, 0.0]), np.array([0.1, 0.5, 0.2])), 1: (np.array([0.3, 0.2, 0.1]),) * 2}
    monkeypatch.setattr(module, "places_of", lambda each, name, values: places[each])
    weights = np.array([[0.25, 0.6, 1.0], [0.75, 0.4, 0.0]])
    values = np.array([1.0, 2.0, np.nan])
    data: Any = SimpleNamespace(observed={"y": np.isfinite(values)}, outputs={"y": values})
    fit: Any = SimpleNamespace(options=SimpleNamespace(dtype="float64"), standardised=None)
    with np.errstate(divide="ignore"):
        left: Any = LeaveOneOut(fit, data, values, values, "loo", values, np.log(weights), [0, 1])  # type: ignore[list-item]
    monkeypatch.setattr(module, "Prediction", lambda each, *_: each)
    found = left.pit("y")
    assert found[0] == pytest.approx(0.25 * 0.1 + 0.75 * 0.3)
    assert 0.6 * 0.4 + 0.4 * 0.2 <= found[1] <= 0.6 * 0.5 + 0.4 * 0.2
    assert np.isnan(found[2])


COUNTS = RNG.poisson(np.exp(np.sin(X)))
OTHERS = {
    "counts": (HEAD.format(kind="count") + "y ~ Poisson(exp(f))\n", COUNTS, {}, 0.05),
    "by EP": (HEAD.format(kind="count") + "y ~ Poisson(exp(f))\n", COUNTS, {"engine": "ep"}, 0.1),
    "noise that varies": (
        HEAD.format(kind="real") + "latent g(x) ~ GP(-1, RBF(2))\ny ~ Normal(f, exp(g))\n",
        Y,
        {"posterior": "coupled"},
        0.1,
    ),
    "two places": (
        "input z : real\n" + HEAD.format(kind="binary") + "y ~ Bernoulli(logit = 3*f - 3*f(z))\n",
        (np.sin(X) > np.cos(X)).astype(int),
        {},
        0.05,
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.slow] if each == "noise that varies" else []) for each in OTHERS]
)
def test_of_others_it_is_close_to_fits_without_the_row(name: str) -> None:
    text, y, options, close = OTHERS[name]
    model, data = gpdsl.compile(text), {"x": X, "y": y}
    if name == "two places":
        data["z"] = X + np.pi / 2
    found = model.fit(data, **options).loo(data)
    for row in (11,):
        keep = np.arange(20) != row
        without = model.fit({key: values[keep] for key, values in data.items()}, **options)
        one = {key: values[[row]] for key, values in data.items()}
        assert found.pointwise[row] == pytest.approx(without.log_predictive_density(one)[0], abs=close)


def test_weights_are_smoothed_as_elsewhere() -> None:
    diagnostics = pytest.importorskip("blackjax.diagnostics")
    jnp = pytest.importorskip("jax.numpy")
    ratios = 1.2 * np.random.default_rng(2).standard_t(5, size=1000)
    log_weights, k = smoothed(ratios)
    theirs, shape = diagnostics.psis_weights(jnp.asarray(ratios))
    assert k == pytest.approx(float(np.squeeze(shape)), abs=0.02)
    weights = np.exp(np.asarray(theirs) - np.logaddexp.reduce(np.asarray(theirs)))
    np.testing.assert_allclose(np.exp(log_weights), weights, rtol=0.05, atol=1e-5)


def test_settings_count_as_much_as_the_other_rows_say() -> None:
    model = gpdsl.compile(
        "input x : real\noutput y : real\nparam ell : positive = 1 ~ LogNormal(0, 0.5)\n"
        "latent f(x) ~ GP(0, RBF(ell))\ny ~ Normal(f, 0.2)\n"
    )
    fit = model.fit(DATA, hyperparameters="integrated")
    assert fit.settings is not None
    grid = np.exp(np.linspace(-2, 2, 200))
    joint, each = [], []
    for ell in grid:
        covariance = np.exp(-0.5 * ((X[:, None] - X) / ell) ** 2) + 0.04 * np.eye(20)
        mean, variance = left_out(covariance, Y)
        each.append(stats.norm.logpdf(Y, mean, np.sqrt(variance)))
        prior = stats.norm.logpdf(np.log(ell), 0, 0.5)
        joint.append(stats.multivariate_normal.logpdf(Y, np.zeros(20), covariance) + prior)
    posterior = np.array(joint) - np.logaddexp.reduce(joint)
    expected = -np.logaddexp.reduce(posterior[:, None] - np.array(each), axis=0)
    found = fit.loo(DATA)
    np.testing.assert_allclose(found.pointwise, expected, atol=0.02)
    assert found.pit("y").shape == (20,)
    shares = np.exp(posterior)
    sd = np.sqrt(shares @ grid**2 - (shares @ grid) ** 2)
    assert fit.standard_errors == {"ell": pytest.approx(sd, rel=0.05)}


@pytest.mark.slow
def test_draws_of_chains_are_weighted_as_elsewhere() -> None:
    diagnostics, jnp = pytest.importorskip("blackjax.diagnostics"), pytest.importorskip("jax.numpy")
    data = {"x": X, "y": COUNTS}
    model = gpdsl.compile(HEAD.format(kind="count") + "y ~ Poisson(exp(f))\n")
    fit = model.fit(data, engine="mcmc", chains=2, draws=200, warm_up=150)
    drawn = np.stack([each.mean("f") for _, each in fit.predict(data).weighted])
    densities = stats.poisson.logpmf(COUNTS, np.exp(drawn))
    weights = np.stack([np.asarray(diagnostics.psis_weights(jnp.asarray(-each))[0]) for each in densities.T], axis=1)
    expected = np.logaddexp.reduce(weights - np.logaddexp.reduce(weights, axis=0) + densities, axis=0)
    found = fit.loo(data)
    np.testing.assert_allclose(found.pointwise, expected, atol=0.02)
    assert np.isfinite(found.k).all()


def test_next_to_no_noise_hides_nothing_of_two_latents() -> None:
    """Values of both outputs tell both latents: rows are wholly told by others, and far from them by the prior."""
    model = gpdsl.compile(
        "index p in 1..2\ninput x : real\noutput y[p] : real\nlatent f(x) ~ GP(0, RBF(1))\n"
        "latent g(x) ~ GP(0, RBF(0.5))\ny[1] ~ Normal(f + g, 1e-8)\ny[2] ~ Normal(f - 2*g, 1e-8)\n"
    )
    data = {"x": [0.0, 1.0, 2.5], "y": [[0.5, 1.0], [-1.0, 0.3], [0.2, np.nan]]}
    fit = model.fit(data)
    far = fit.log_predictive_density({"x": [90.0], "y": [[1.0, np.nan]]})
    assert far == pytest.approx(stats.norm.logpdf(1.0, 0, 2**0.5), abs=1e-7)
    gaps = np.subtract.outer(data["x"], data["x"])
    own, other = np.exp(-0.5 * gaps**2), np.exp(-2 * gaps**2)
    whole = np.kron(own, np.ones((2, 2))) + np.kron(other, np.outer([1, -2], [1, -2]))
    weights = np.linalg.solve(whole[:4, :4], whole[:4, 4])
    spread = np.sqrt(whole[4, 4] - weights @ whole[:4, 4])
    expected = stats.norm.logpdf(0.2, weights @ np.ravel(data["y"])[:4], spread)
    assert fit.loo(data).pointwise[2] == pytest.approx(expected, abs=1e-6)


def test_differences_of_a_latent_leave_with_what_they_are_of() -> None:
    """The density reads f - f(b) as one value, and the exact system as two."""
    model = gpdsl.compile(
        "input x : real\ninput b : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f(x) - f(b), 0.1)\n"
    )
    data = {"x": X, "b": np.roll(X, 3), "y": Y}
    found = model.fit(data).loo(data)
    every = np.concatenate([X, data["b"]])
    reads = np.concatenate([np.eye(20), -np.eye(20)], axis=1)
    inverse = np.linalg.inv(reads @ np.exp(-0.5 * (every[:, None] - every) ** 2) @ reads.T + 0.01 * np.eye(20))
    expected = stats.norm.logpdf(inverse @ Y / np.diag(inverse), 0.0, np.diag(inverse) ** -0.5)
    np.testing.assert_allclose(found.pointwise, expected, atol=1e-7)


def test_units_do_not_matter_to_differences() -> None:
    wide = {"x": X, "y": 10 * Y}
    plain = NORMAL.fit(DATA, standardise={"y": (0.0, 1.0)}).loo(DATA)
    scaled = NORMAL.fit(wide, standardise={"y": (0.0, 10.0)}).loo(wide)
    np.testing.assert_allclose(scaled.pointwise, plain.pointwise - np.log(10), atol=1e-9)


def test_outputs_of_one_row_with_noise_far_apart() -> None:
    """Of two which mix two latents, 1e-7 beside 1: rows were off by 4e-5 nats, and by more the further apart."""
    x, sds, mix = X[:6], [1e-7, 1.0], np.array([[1.0, 0.7], [0.4, -1.0]])
    text = (
        "input x : real\noutput u : real\noutput v : real\nlatent f(x) ~ GP(0, RBF(1))\nlatent g(x) ~ GP(0, RBF(0.5))\n"
    )
    model = gpdsl.compile(f"{text}u ~ Normal(f + 0.7*g, 1e-7)\nv ~ Normal(0.4*f - g, 1)\n")
    data = {"x": x, "u": np.sin(x), "v": np.cos(3 * x)}
    with mpmath.workdps(50):
        values = mpmath.matrix([data[name][i] for i in range(6) for name in "uv"])
        total = mpmath.diag([mpmath.mpf(sd) ** 2 for _ in x for sd in sds])
        for a, b in itertools.product(range(12), repeat=2):
            distance = (mpmath.mpf(x[a // 2]) - mpmath.mpf(x[b // 2])) ** 2
            for of, ell in enumerate((1.0, 0.5)):
                total[a, b] += mix[a % 2, of] * mix[b % 2, of] * mpmath.exp(-distance / (2 * ell**2))
        precision = total**-1
        alpha, known = precision * values, np.log(2 * np.pi)
        expected = []
        for own in (slice(2 * i, 2 * i + 2) for i in range(6)):
            q, left = precision[own, own], alpha[own, 0]
            expected.append(float((mpmath.log(mpmath.det(q)) - (left.T * (q**-1 * left))[0]) / 2 - known))
    np.testing.assert_allclose(model.fit(data).loo(data, refits=0).pointwise, expected, atol=1e-8)


def test_waic_is_close_where_no_row_matters_much(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = NORMAL.fit(DATA)
    found = fit.waic(DATA)
    posterior = K - K @ np.linalg.solve(K + 0.04 * np.eye(20), K)
    mean, variance = K @ np.linalg.solve(K + 0.04 * np.eye(20), Y), np.diag(posterior)
    # the variance of -(y - f)^2 / 2 s^2 with f normal
    expected = (variance**2 / 2 + variance * (Y - mean) ** 2) / 0.04**2
    lost = stats.norm.logpdf(Y, mean, np.sqrt(variance + 0.04)) - found.pointwise
    np.testing.assert_allclose(lost, expected, rtol=0.03, atol=1e-3)
    assert repr(found).startswith("<WAIC of model: elpd")
    monkeypatch.setattr(Values, "resolved", lambda self, _: np.arange(len(self.left)) != 3)
    with pytest.raises(gpdsl.GpdslError, match="what rounding does to them in 1 row, as noise"):
        fit.waic(DATA)


def test_waic_says_where_one_row_matters_that_varies_little() -> None:
    """A row that tells of itself alone has a residual of nearly nothing, so that its log density varies by a half."""
    model = gpdsl.compile(
        "input x : real\ninput sd : positive\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, sd)\n"
    )
    data = {"x": X, "y": Y + 0.8 * (np.arange(20) == 3), "sd": np.where(np.arange(20) == 3, 1e-5, 0.5)}
    with pytest.warns(gpdsl.GpdslWarning, match="waic: rows differ by") as said:
        found = model.fit(data).waic(data)
    apart = np.abs(found.pointwise - model.fit(data).loo(data).pointwise).sum()
    assert f"by {apart:.3g} nats in all" in str(said[0].message)


def test_waic_of_counts_says_where_it_is_too_high_by_a_nat_alone() -> None:
    """The log density of two rows varies by more than 0.4 in the first, and half a nat of the sum is wrong."""
    model = gpdsl.compile(HEAD.format(kind="count") + "y ~ Poisson(exp(4 * f))\n")
    fit = model.fit(calm := {"x": X, "y": COUNTS})
    assert 0.3 < fit.waic(calm).elpd - fit.loo(calm, refits=0).elpd < 1
    wild = {"x": X[::4], "y": [0, 90, 0, 60, 0]}
    with pytest.warns(gpdsl.GpdslWarning, match="waic: rows differ by [0-9.]+ nats in all"):
        found = (fit := model.fit(wild)).waic(wild)
    assert found.elpd > fit.loo(wild, refits=0).elpd + 1


def test_refusals() -> None:
    fit = NORMAL.fit(DATA)
    with pytest.raises(gpdsl.GpdslError, match="data that were fitted, 20 rows: other values here of `y`"):
        fit.loo({"x": X, "y": Y + 1})
    counts = gpdsl.compile(HEAD.format(kind="count") + "y ~ Poisson(exp(f))\n")
    data = {"x": X, "y": COUNTS}
    with pytest.raises(gpdsl.GpdslError, match="cannot be left out of posterior = diagonal"):
        unlearnt(counts, data, posterior="diagonal", inducing=0).loo(data)
    with pytest.raises(gpdsl.GpdslError, match="rows are left out by weighted draws"):
        unlearnt(counts, data, engine="ep").loo(data).pit("y")


def test_places_of_classes_that_two_readings_of_a_latent_tell() -> None:
    """A comparison reads f(a) - f(b); what its class has among all others is the width of where it may lie."""
    model = gpdsl.zoo("preference")
    data = model.sample_prior(rows=20, seed=1).data
    left = model.fit(data).loo(data)
    own, y = np.exp(left.pointwise), np.asarray(data["y"], float)
    places = np.stack([left.pit("y", seed=seed) for seed in range(50)])
    low, high = np.where(y > 0, 1 - own, 0), np.where(y > 0, 1, own)
    assert np.all(places >= low - 1e-9) and np.all(places <= high + 1e-9)
    assert np.all(np.ptp(places, axis=0) > 0.8 * own)


@pytest.mark.parametrize("count", [3, 5])
def test_rows_with_variables_of_their_own_are_left_out(count: int) -> None:
    """Noise that is a variable of each row, whatever the number of rows."""
    x, y = np.array([-1.0, 0.2, 1.5, 0.3, 0.8])[:count], np.array([1.5, 0.6, -0.8, 0.2, 0.4])[:count]
    text = (
        "input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\nrow e ~ Normal(0, 0.5)\ny ~ Normal(f + e, 0.3)"
    )
    whole = text.replace("row e ~ Normal(0, 0.5)\n", "").replace("f + e, 0.3", "f, sqrt(0.34)")
    apart, together = (gpdsl.compile(each).fit({"x": x, "y": y}).loo({"x": x, "y": y}) for each in (text, whole))
    np.testing.assert_allclose(apart.pointwise, together.pointwise, atol=1e-4)


def test_rows_with_fits_of_their_own_have_their_places_from_these(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is printed says how many these are, and how far all may be off."""
    values, asked = np.array([1.0, 2.0]), list[str]()

    def places_of(one: Any, name: str, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        asked.append(f"{one} {y.tolist()}")
        return (np.array([0.7]),) * 2

    monkeypatch.setattr(module, "places_of", places_of)
    data: Any = SimpleNamespace(
        observed={"y": np.full(2, True)}, outputs={"y": values}, take=lambda rows: f"row {rows.tolist()}"
    )
    own: Any = SimpleNamespace(predict_bound=lambda data, *_: data)
    fit: Any = SimpleNamespace(program=SimpleNamespace(declarations=SimpleNamespace(name="m")))
    found = LeaveOneOut(
        fit,
        data,
        -values,
        values,
        "loo",
        np.array([0.1, 0.2]),
        np.zeros((1, 2)),
        [],
        error=np.array([0.25, 0.5]),
        without={1: own},
        places={"y": np.array([[0.2, 0.3], [0.2, 0.3]])},
    )
    assert found.pit("y").tolist() == pytest.approx([0.2, 0.7]) and asked == ["row [1] [2.0]"]
    assert ", 1 of them by fits without them, within 0.75 nats, k up to 0.20" in repr(found)
    assert "fits without" not in repr(replace(found, without={}, error=None))


def test_moments_of_log_densities_are_those_over_draws_and_components(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, weights = RNG.normal(size=(50, 2, 3)), np.array([0.3, 0.7])  # [draws, components, rows]
    monkeypatch.setattr(module, "drawn_log_densities", lambda rows: drawn[..., rows])
    beliefs: Any = SimpleNamespace(count=3, weights=weights, part=lambda rows: rows)
    mean, square = module._moments(beliefs)
    np.testing.assert_allclose(mean, sum(w * drawn[:, k].mean(axis=0) for k, w in enumerate(weights)))
    np.testing.assert_allclose(square, sum(w * (drawn[:, k] ** 2).mean(axis=0) for k, w in enumerate(weights)))
