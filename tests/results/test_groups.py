"""Groups: an index that is a column of the data. Fits against dense formulas in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import gamma, multivariate_normal

import gpdsl
from gpdsl.data import DataError
from gpdsl.results.table import Total

HEAD = """model groups
index s in 1..S
input site : label[s]
input x : real
output y : real
param sigma : positive
"""
INTERCEPTS = HEAD + "param mu : real\nparam tau : positive\nparam a[s] : real ~ Normal(mu, tau)\n"
SLOPES = INTERCEPTS + "param nu : real\nparam om : positive\nparam b[s] : real ~ Normal(nu, om)\n"
CURVES = """
param shift[s] : real
param own[s] : positive
param ell : positive
latent f[s](x) ~ GP(shift[s], RBF(ell))
y ~ Normal(f[site], own[site])
"""


@pytest.fixture
def data() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    site, x = rng.choice(list("dbca"), 40), rng.uniform(0, 6, 40)
    level = dict(zip("abcd", (0.0, 2.0, -1.0, 0.5), strict=True))
    mean = np.array([level[each] for each in site]) + 0.4 * np.sin(x)
    return {"site": site, "x": x, "y": mean + 0.3 * rng.standard_normal(40)}


def same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.equal(np.asarray(a)[:, None], np.asarray(b)[None]).astype(float)


def test_intercepts_and_slopes_equal_the_dense_formulas(data: dict[str, np.ndarray]) -> None:
    fit = gpdsl.compile(SLOPES + "y ~ Normal(a[site] + b[site] * x, sigma)").fit(data, progress=False)
    at, x = {name: float(value) for name, value in fit.parameters.items()}, data["x"]
    among = same(data["site"], data["site"]) * (at["tau"] ** 2 + at["om"] ** 2 * np.outer(x, x))
    noisy, mean = among + at["sigma"] ** 2 * np.eye(40), at["mu"] + at["nu"] * x
    assert fit.elbo == pytest.approx(multivariate_normal(mean, noisy).logpdf(data["y"]), abs=1e-8)
    new = {"site": np.array(["b", "new", "new"]), "x": np.array([1.0, 1.0, 2.0])}
    shared = same(new["site"], data["site"]) * (at["tau"] ** 2 + at["om"] ** 2 * np.outer(new["x"], x))
    expected = at["mu"] + at["nu"] * new["x"] + shared @ np.linalg.solve(noisy, data["y"] - mean)
    prediction = fit.predict(new)
    assert prediction.mean("y") == pytest.approx(expected, abs=1e-8)
    # a group that the fit has not seen is drawn from the prior, the same in all its rows
    assert prediction.mean("a")[1] == pytest.approx(at["mu"])
    assert prediction.covariance("a")[1:, 1:] == pytest.approx(np.full((2, 2), at["tau"] ** 2))


def test_a_latent_a_mean_and_a_noise_for_each_group(data: dict[str, np.ndarray]) -> None:
    fit = gpdsl.compile(HEAD.replace("param sigma : positive\n", "") + CURVES).fit(data, progress=False)
    place, x = np.searchsorted(list("abcd"), data["site"]), data["x"]
    shift, own, ell = fit.parameters["shift"][place], fit.parameters["own"][place], float(fit.parameters["ell"])
    among = same(data["site"], data["site"]) * np.exp(-0.5 * (x[:, None] - x) ** 2 / ell**2) + np.diag(own**2)
    assert fit.elbo == pytest.approx(multivariate_normal(shift, among).logpdf(data["y"]), abs=1e-8)
    across = same(np.array(["c"]), data["site"]) * np.exp(-0.5 * (2.0 - x[None]) ** 2 / ell**2)
    expected = fit.parameters["shift"][2] + across @ np.linalg.solve(among, data["y"] - shift)
    assert fit.predict({"site": ["c"], "x": [2.0]}).mean("f") == pytest.approx(expected, abs=1e-8)
    with pytest.raises(DataError, match="the fit has seen no `z`, and `(shift|own)` has one value per level"):
        fit.predict({"site": ["z"], "x": [2.0]})


def test_eight_schools(tmp_path) -> None:
    y, se = np.array([28, 8, -3, 7, -1, 1, 18, 12.0]), np.array([15, 10, 16, 11, 9, 11, 10, 18.0])
    text = """
    index s in 1..S
    input school : label[s]
    input se : positive
    output y : real
    param mu : real
    param tau : positive ~ Gamma(2, 0.1)
    param theta[s] : real ~ Normal(mu, tau)
    y ~ Normal(theta[school], se)
    """
    fit = gpdsl.compile(text).fit({"school": list("ABCDEFGH"), "se": se, "y": y}, progress=False)
    mu, tau = float(fit.parameters["mu"]), float(fit.parameters["tau"])
    evidence = multivariate_normal(np.full(8, mu), np.diag(tau**2 + se**2)).logpdf(y)
    assert fit.elbo == pytest.approx(evidence + gamma(2, scale=10).logpdf(tau), abs=1e-8)
    summary = fit.summary()
    assert "exact, of 8 observed values, in 8 blocks, the largest of 1" in summary
    assert "the groups differ by no more than chance" in summary and "explain nothing" not in summary
    fit.save(tmp_path / "schools.gpfit")
    again = gpdsl.load_fit(tmp_path / "schools.gpfit").predict({"school": ["H", "A"], "se": [1.0, 1.0]})
    pull = tau**2 / (tau**2 + se**2)
    assert again.mean("theta") == pytest.approx((mu + pull * (y - mu))[[7, 0]])
    assert again.variance("theta") == pytest.approx((pull * se**2)[[7, 0]])


def test_a_positive_parameter_of_groups_is_inferred_on_its_logarithm(data: dict[str, np.ndarray]) -> None:
    text = HEAD.replace("param sigma : positive\n", "") + (
        "param sigma[s] : positive ~ LogNormal(-1, 0.5)\nparam mu : real\ny ~ Normal(mu, sigma[site])\n"
    )
    fit = gpdsl.compile(text).fit(data, progress=False)
    prediction = fit.predict({"site": ["a", "new"], "x": [0.0, 0.0]})
    asked = [prediction.probability(f"y > {sigma}") for sigma in ("sigma[site]", "sigma")]
    np.testing.assert_array_equal(*asked)
    log, known = prediction.mean("log_sigma"), prediction.variance("log_sigma")
    assert prediction.mean("sigma") == pytest.approx(np.exp(log + known / 2), rel=1e-6)
    assert (log[1], known[1]) == pytest.approx((-1.0, 0.25))
    assert known[0] < 0.1


def test_two_columns_of_one_index_and_a_latent_at_another_level() -> None:
    rng = np.random.default_rng(0)
    home, away = rng.choice(list("pqrs"), (2, 60))
    skill = dict(zip("pqrs", (1.0, 0.0, -1.0, 0.5), strict=True))
    won = [rng.uniform() < 1 / (1 + np.exp(skill[b] - skill[a])) for a, b in zip(home, away, strict=True)]
    text = """
    index t in 1..T
    input home : label[t]
    input away : label[t]
    output y : real
    param s : positive
    param a[t] : real ~ Normal(0, s)
    y ~ Normal(a[home] - a[away], 0.4)
    """
    y = np.asarray(won, float) - 0.5
    fit = gpdsl.compile(text).fit({"home": home, "away": away, "y": y}, progress=False)
    design = same(home, np.array(list("pqrs"))) - same(away, np.array(list("pqrs")))
    among = float(fit.parameters["s"]) ** 2 * design @ design.T + 0.16 * np.eye(60)
    assert fit.elbo == pytest.approx(multivariate_normal(np.zeros(60), among).logpdf(y), abs=1e-8)


@pytest.mark.parametrize(
    "read", ["f[site](z)", pytest.param("D(f[site], x)", marks=pytest.mark.slow), "D(f[site](z), z)"]
)
def test_a_latent_of_groups_elsewhere(data: dict[str, np.ndarray], read: str) -> None:
    text = HEAD + "input z : real\nlatent f[s](x) ~ GP(0, RBF(2))\n"
    direct = gpdsl.compile(text + f"y ~ Normal({read}, sigma)")
    at = {**data, "z": data["x"][::-1].copy()}
    written = "f(z, site)" if read == "f[site](z)" else read.replace("f[site](z)", "f(z, site)").replace("f[site]", "f")
    plain = (HEAD + "input z : real\n").replace("latent", "")
    plain += f"latent f(x, site) ~ GP(0, RBF(2, on = x) * Same(on = site))\ny ~ Normal({written}, sigma)"
    assert direct.fit(at, progress=False).elbo == pytest.approx(gpdsl.compile(plain).fit(at, progress=False).elbo)


def test_rows_of_different_groups_are_matrices_apart(data: dict[str, np.ndarray], monkeypatch) -> None:
    model = gpdsl.compile(SLOPES + "y ~ Normal(a[site] + b[site] * x, sigma)")
    fit = model.fit(data, fixed=["sigma", "tau", "om"], init={"sigma": 0.3, "tau": 1.0, "om": 0.5}, progress=False)
    assert sum(len(part.rows) for part in fit.held.parts) == 4
    assert max(fit.held.parts[0].sizes) == max(np.sum(data["site"] == each) for each in "abcd")
    new = {"site": ["a", "new", "d", "a"], "x": [1.0, 2.0, 3.0, 4.0]}
    by_level = fit.predict(new)
    monkeypatch.setattr("gpdsl.inference.exact.parts.SMALL", 0)
    at_once = model.fit(data, start=fit, fixed=["mu", "nu", "sigma", "tau", "om"], progress=False).predict(new)
    for name in ("a", "b", "y"):
        assert by_level.mean(name) == pytest.approx(at_once.mean(name), abs=1e-10)
        assert by_level.variance(name) == pytest.approx(at_once.variance(name), abs=1e-10)
        assert by_level.covariance(name) == pytest.approx(at_once.covariance(name), abs=1e-10)
        assert np.diag(by_level.covariance(name)) == pytest.approx(by_level.variance(name), abs=1e-10)


def test_teams_that_never_met_are_apart_and_can_be_compared() -> None:
    text = """
    index t in 1..T
    input home : label[t]
    input away : label[t]
    output y : real
    param s : positive = 1 fixed
    param a[t] : real ~ Normal(0, s)
    y ~ Normal(a[home] - a[away], 0.4)
    """
    home, away, y = ["p", "p", "r", "r"], ["q", "q", "t", "t"], np.array([0.5, 0.7, -0.2, 0.1])
    fit = gpdsl.compile(text).fit({"home": home, "away": away, "y": y}, progress=False)
    assert [len(part.rows) for part in fit.held.parts] == [2]
    names = np.array(list("pqrt"))
    design = same(home, names) - same(away, names)
    posterior = np.linalg.inv(np.eye(4) + design.T @ design / 0.16)
    mean, across = posterior @ design.T @ y / 0.16, np.array([1.0, 0.0, -1.0, 0.0])
    prediction = fit.predict({"home": ["p"], "away": ["r"]})
    assert prediction.mean("y") == pytest.approx([across @ mean])
    assert prediction.variance("y") == pytest.approx([across @ posterior @ across + 0.16])


def test_counts_of_many_rows_have_inducing_points_at_their_levels() -> None:
    """Against quadrature: each group's evidence is an integral over one normal variable."""
    from scipy.stats import poisson

    rng = np.random.default_rng(1)
    site = rng.integers(0, 20, 2400)
    y = rng.poisson(np.exp((0.5 + 0.8 * rng.standard_normal(20))[site]))
    text = """
    index s in 1..S
    input site : label[s]
    output y : count
    param mu : real
    param tau : positive
    param a[s] : real ~ Normal(mu, tau)
    y ~ Poisson(exp(a[site]))
    """
    fit = gpdsl.compile(text).fit({"site": site, "y": y}, progress=False)
    mu, tau = float(fit.parameters["mu"]), float(fit.parameters["tau"])
    grid = np.linspace(mu - 6 * tau, mu + 6 * tau, 4001)
    prior = np.exp(-0.5 * ((grid - mu) / tau) ** 2) / (tau * np.sqrt(2 * np.pi)) * (grid[1] - grid[0])
    total = 0.0
    for each in range(20):
        log = np.sum(poisson.logpmf(y[site == each][:, None], np.exp(grid)), axis=0)
        total += np.log(np.sum(prior * np.exp(log - log.max()))) + log.max()
    assert fit.elbo <= total + 1e-6
    assert fit.elbo == pytest.approx(total, abs=0.05)
    assert 0.5 < tau < 1.2


@pytest.mark.parametrize(
    ("known", "new"),
    [("2020-01", "2020-01-01"), ("2020-01-01 10:00:00", "2020-01-01T10:00:00"), ("1", "True"), ("01", "1")],
)
def test_other_spellings_of_a_level_are_told(known: str, new: str) -> None:
    text = "index s in 1..S\ninput site : label[s]\noutput y : real\nparam a[s] : real ~ Normal(0, 1)\n"
    fit = gpdsl.compile(text + "y ~ Normal(a[site], 1)\n").fit({"site": [known, "b"] * 3, "y": np.arange(6.0)})
    with pytest.warns(gpdsl.GpdslWarning, match=f"{new} is no level that the fit has seen.* did you mean {known}"):
        fit.predict({"site": [new, "b"]})


def test_levels_of_unequal_sizes_without_anything_to_learn(data: dict[str, np.ndarray]) -> None:
    """Sets of rows that are filled up to one size, and a level that no row has: dense algebra says the same."""
    text = HEAD.replace("param sigma : positive\n", "") + "latent f[s](x) ~ GP(0.5, RBF(1))\ny ~ Normal(f[site], 0.3)\n"
    fit = gpdsl.compile(text).fit(data, progress=False)
    counts = np.unique(data["site"], return_counts=True)[1]
    assert len(set(counts)) > 1
    new = {"site": np.array(["b", "a", "new", "b", "d"]), "x": np.array([1.0, 1.0, 2.0, 4.0, 2.5])}

    def gram(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> np.ndarray:
        return same(one["site"], other["site"]) * np.exp(-0.5 * (one["x"][:, None] - other["x"]) ** 2)

    noisy, across = gram(data, data) + 0.09 * np.eye(40), gram(new, data)
    assert fit.elbo == pytest.approx(multivariate_normal(np.full(40, 0.5), noisy).logpdf(data["y"]), abs=1e-8)
    found, left = fit.predict(new), gram(new, new) - across @ np.linalg.solve(noisy, across.T)
    np.testing.assert_allclose(found.mean("y"), 0.5 + across @ np.linalg.solve(noisy, data["y"] - 0.5), atol=1e-8)
    np.testing.assert_allclose(found.variance("y"), np.diag(left) + 0.09, atol=1e-8)


def test_a_table_of_totals_has_a_row_for_each_group_and_columns_for_each_element() -> None:
    """Elements are named from 1, as models name them, and every part of one is in a column of its own."""
    draws = np.random.default_rng(0).normal(size=(40, 2, 3)) + np.arange(6.0).reshape(2, 3)
    frame = Total(draws, np.array(["north", "south"]), ("site",)).to_frame([0.1])
    assert list(frame.index) == ["north", "south"] and frame.index.name == "site"
    assert set(frame) == {f"{part}[{k}]" for part in ("mean", "sd", "q0.1") for k in (1, 2, 3)}
    for k in range(3):
        np.testing.assert_allclose(frame[f"mean[{k + 1}]"], draws[:, :, k].mean(axis=0))
        np.testing.assert_allclose(frame[f"sd[{k + 1}]"], draws[:, :, k].std(axis=0))
        np.testing.assert_allclose(frame[f"q0.1[{k + 1}]"], np.quantile(draws[:, :, k], 0.1, axis=0))
