"""Markov chains against grids and importance sampling, and what is said of chains that cannot be trusted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl.inference.integrated import STATISTICS
from gpdsl.inference.mcmc import chains, engine
from gpdsl.inference.mcmc.chains import BLOCK, Agreement, Chains, density_of, log_prior, told
from gpdsl.inference.mcmc.engine import Joint
from gpdsl.inference.mcmc.slices import told_by
from gpdsl.inference.natural.sites import Sites, never_widening
from gpdsl.results.criticism.through_layers import reweighted

from .test_integrated import AT, NORMAL, Grid

COUNTS = """
input x : real
output n : count
param s : positive ~ LogNormal(0, 0.5)
latent f(x) ~ GP(0, s^2 * Matern12(1))
n ~ Poisson(exp(f))
"""


@pytest.fixture(scope="module")
def data() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    x = np.sort(rng.uniform(-3, 3, 18))
    return {"x": x, "y": np.sin(1.5 * x) + 0.3 * rng.standard_normal(18)}


@pytest.fixture(scope="module")
def fit(data: dict[str, np.ndarray]) -> gpdsl.Fit:
    return gpdsl.compile(NORMAL).fit(data, engine="mcmc", chains=2, draws=400, warm_up=150)


def test_latents_integrate_out_and_parameters_have_the_moments_of_a_grid(
    fit: gpdsl.Fit, data: dict[str, np.ndarray]
) -> None:
    grid, settings = Grid(data["x"], data["y"]), fit.settings
    assert settings is not None and settings.effective > 100
    for place, name in enumerate(("ell", "sigma")):
        mean, sd = grid.moments(np.exp(grid.points[:, place]))
        assert abs(settings.mean(name) - mean) < 3.5 * sd / np.sqrt(settings.effective)
        assert abs(settings.sd(name) / sd - 1) < 0.25
        assert settings.chains[name].shape == (2, 400)
    prediction, mean = fit.predict({"x": AT}), grid.weights @ grid.means
    sd = np.sqrt(grid.weights @ (grid.variances + (grid.means - mean) ** 2))
    np.testing.assert_allclose(prediction.mean("f"), mean, atol=0.15 * sd.max())
    np.testing.assert_allclose(np.sqrt(prediction.variance("f")), sd, rtol=0.15)


def test_other_data_take_the_programs_of_an_earlier_fit(
    fit: gpdsl.Fit, data: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is traced again, and the draws are those of these data."""
    options = {"engine": "mcmc", "chains": 2, "draws": 400, "warm_up": 150}
    monkeypatch.setattr("gpdsl.inference.mcmc.chains.adapted", lambda *_: pytest.fail("traced again"))
    monkeypatch.setattr("gpdsl.inference.mcmc.chains.statistics_of", lambda *_: pytest.fail("traced again"))
    other = gpdsl.compile(NORMAL).fit({"x": data["x"][::-1], "y": 2 * data["y"]}, seed=0, **options)
    assert fit.settings is not None and other.settings is not None
    for settings, y in ((fit.settings, data["y"]), (other.settings, 2 * data["y"][::-1])):
        ell, sigma = (settings.chains[name][1, [3, 60]] for name in ("ell", "sigma"))
        each = [dense_lp({"x": data["x"], "y": y}, *at) for at in zip(ell, sigma, strict=True)]
        np.testing.assert_allclose(np.diff(settings.statistics["lp"][1, [3, 60]]), np.diff(each), rtol=1e-6, atol=1e-7)


def few(fit: gpdsl.Fit) -> gpdsl.Fit:
    """The same with the first and the last draw of every chain as all that is averaged over."""
    settings = fit.settings
    assert settings is not None
    chains, kept = settings.statistics["lp"].shape[0], len(settings.kept)
    each = tuple(settings.each[chain * kept + place] for chain in range(chains) for place in (0, -1 % kept))
    weights = np.full(len(each), 1 / len(each))
    return replace(fit, settings=replace(settings, each=each, weights=weights, kept=settings.kept[[0, -1]]))


def dense_lp(data: dict[str, np.ndarray], ell: float, sigma: float) -> float:
    """Log density of log ell and log sigma, up to a constant."""
    apart = data["x"][:, None] - data["x"]
    covariance = np.exp(-0.5 * (apart / ell) ** 2) + sigma**2 * np.eye(len(apart))
    prior = stats.norm.logpdf(np.log([ell, sigma]), [0, -1], 0.7).sum()
    return float(stats.multivariate_normal.logpdf(data["y"], None, covariance) + prior)


def test_a_tree_has_the_chains(fit: gpdsl.Fit, data: dict[str, np.ndarray]) -> None:
    pytest.importorskip("xarray")
    settings, all_of_them = fit.settings, fit.to_datatree()
    assert settings is not None and set(all_of_them["sample_stats"]) == set(STATISTICS)
    assert all_of_them["posterior"].sizes == all_of_them["sample_stats"].sizes == {"chain": 2, "draw": 400}
    np.testing.assert_array_equal(all_of_them["posterior"]["ell"], settings.chains["ell"])
    statistics = all_of_them["sample_stats"]
    assert statistics["diverging"].dtype == bool
    lp = [dense_lp(data, *(float(settings.chains[name][1, at]) for name in ("ell", "sigma"))) for at in (7, 90)]
    np.testing.assert_allclose(np.subtract(*statistics["lp"].values[1, [7, 90]]), lp[0] - lp[1], atol=1e-6)
    np.testing.assert_array_less(statistics["n_steps"], 2 ** (statistics["tree_depth"] + 1))
    tree = few(fit).to_datatree(data)
    assert tree["posterior"]["f"].sizes == {"chain": 2, "draw": 2, "row": 18}
    np.testing.assert_array_equal(tree["posterior"]["draw"], [0, 399])
    for group, name in (("posterior", "sigma"), ("sample_stats", "lp")):
        np.testing.assert_array_equal(tree[group][name], all_of_them[group][name][:, [0, 399]])
    said = stats.norm.logpdf(data["y"], tree["posterior"]["f"], tree["posterior"]["sigma"].values[..., None])
    np.testing.assert_allclose(tree["log_likelihood"]["y"], said, rtol=1e-9)


@pytest.mark.slow
def test_arviz_reads_the_tree(tmp_path: Path) -> None:
    az = pytest.importorskip("arviz")
    x, n = np.array([-1.0, 0.0, 0.3, 1.5]), np.array([0, 3, 2, 6])
    fit = gpdsl.compile(COUNTS).fit({"x": x, "n": n}, engine="mcmc", chains=2, draws=200, warm_up=200)
    tree = fit.to_datatree({"x": x, "n": n})
    groups = {name: group.to_dataset() for name, group in tree.children.items()}
    old = int(az.__version__.split(".")[0]) < 1
    read = az.InferenceData(**groups) if old else tree
    table = az.summary(read)
    assert list(table.index) == ["s", "f[0]", "f[1]", "f[2]", "f[3]"] and table["r_hat"].astype(float).max() < 1.1
    assert abs(table.loc["s", "mean"] - fit.settings.mean("s")) < 0.01
    ours, theirs = fit.loo({"x": x, "n": n}), az.loo(read, pointwise=True, reff=1.0)
    densities = np.reshape(tree["log_likelihood"]["n"].values, (-1, 4))
    log_weights, _ = reweighted(np.full(len(densities), -np.log(len(densities))), densities)
    plain = np.logaddexp.reduce(log_weights + densities, axis=0)  # 1 / p(y_n | f_n), as ArviZ has it
    theirs_i = theirs.loo_i if old else theirs.elpd_i
    np.testing.assert_allclose(plain, theirs_i, atol=0.02)
    rng = np.random.default_rng(0)
    scale = np.exp(0.5 * rng.standard_normal(1_000_000))
    draws = scale[:, None] * (rng.standard_normal((len(scale), 4)) @ np.linalg.cholesky(np.exp(-abs(x[:, None] - x))).T)
    each = stats.poisson.logpmf(n, np.exp(draws))
    exact = np.logaddexp.reduce(each.sum(axis=1)) - [
        np.logaddexp.reduce(np.delete(each, i, 1).sum(1)) for i in range(4)
    ]
    np.testing.assert_allclose(ours.pointwise, exact, atol=0.15)  # theirs are up to 0.6 above
    plot = az.plot_ppc if old else az.plot_ppc_dist
    assert plot(read) is not None and az.plot_rank(read) is not None
    energy = az.bfmi(read)
    assert np.all((energy if old else energy["energy"]) > 0.3)


@pytest.mark.slow
def test_a_saved_fit_says_the_same(fit: gpdsl.Fit, tmp_path: Path) -> None:
    fit.save(tmp_path / "a.gpfit")
    loaded = gpdsl.load_fit(tmp_path / "a.gpfit")
    assert loaded.summary() == fit.summary() and "chains      2 chains of 400 draws: R-hat" in fit.summary()
    np.testing.assert_array_equal(loaded.predict({"x": AT}).mean("y"), fit.predict({"x": AT}).mean("y"))


def test_latents_and_parameters_together_against_importance_sampling(tmp_path: Path) -> None:
    x, n = np.array([-1.0, 0.0, 0.3, 1.5]), np.array([0, 3, 2, 6])
    fit = gpdsl.compile(COUNTS).fit({"x": x, "n": n}, engine="mcmc", chains=2, draws=500, warm_up=200)
    rng = np.random.default_rng(0)
    s = np.exp(0.5 * rng.standard_normal(400_000))
    f = s[:, None] * (rng.standard_normal((len(s), 4)) @ np.linalg.cholesky(np.exp(-abs(x[:, None] - x))).T)
    weights = np.exp(stats.poisson.logpmf(n, np.exp(f)).sum(axis=1))
    weights /= weights.sum()
    mean = weights @ f
    sd = np.sqrt(weights @ (f - mean) ** 2)
    prediction = fit.predict({"x": x})
    np.testing.assert_allclose(prediction.mean("f"), mean, atol=0.2 * sd.max())
    np.testing.assert_allclose(np.sqrt(prediction.variance("f")), sd, rtol=0.2)
    assert fit.settings is not None and abs(fit.settings.mean("s") - weights @ s) < 0.1
    fit.save(tmp_path / "b.gpfit")
    loaded = gpdsl.load_fit(tmp_path / "b.gpfit")
    np.testing.assert_array_equal(loaded.predict({"x": x}).mean("f"), prediction.mean("f"))


@pytest.mark.slow
def test_chains_over_inducing_values_against_importance_sampling() -> None:
    x = np.linspace(0.0, 6.0, 40)
    n = np.random.default_rng(5).poisson(np.exp(np.sin(x)))
    fit = gpdsl.compile(COUNTS).fit({"x": x, "n": n}, engine="mcmc", inducing=3, chains=2, draws=200, warm_up=150)
    z = np.asarray(fit.inducing[0].points)[:, 0]
    rng = np.random.default_rng(0)
    s = np.exp(0.5 * rng.standard_normal(200_000))
    root = np.linalg.cholesky(np.exp(-abs(z[:, None] - z)))
    white = rng.standard_normal((len(s), 3))
    phi = np.linalg.solve(root, np.exp(-abs(z[:, None] - x))).T
    mean, open_ = s[:, None] * (white @ phi.T), s[:, None] ** 2 * (1 - np.sum(phi**2, axis=1))
    weights = np.sum(n * mean - np.exp(mean + open_ / 2), axis=1)  # E log Poisson(n; exp f) given the inducing values
    weights = np.exp(weights - weights.max())
    weights /= weights.sum()
    exact = weights @ mean
    sd = np.sqrt(weights @ (open_ + (mean - exact) ** 2))
    prediction = fit.predict({"x": x})
    np.testing.assert_allclose(prediction.mean("f"), exact, atol=0.25 * sd.max())
    np.testing.assert_allclose(np.sqrt(prediction.variance("f")), sd, rtol=0.15)
    assert fit.settings is not None
    assert abs(fit.settings.mean("s") - weights @ s) < 0.3 * np.sqrt(weights @ (s - weights @ s) ** 2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch": 5}, "at all rows"),
        ({"learn_inducing": True}, "belongs to engine = vi"),
        ({"posterior": "full"}, "no family of q"),
    ],
)
def test_what_chains_cannot_do_is_said(data: dict[str, np.ndarray], options: dict[str, object], words: str) -> None:
    with pytest.raises(gpdsl.GpdslError, match=words):
        gpdsl.compile(NORMAL).fit(data, engine="mcmc", **options)


def test_doubtful_chains_are_told() -> None:
    diverging = np.zeros((4, 100), int)
    sound = Chains({}, {"diverging": diverging.copy()})
    diverging[1, :3] = 1
    chains = Chains({}, {"diverging": diverging})
    about, doubts = told(chains, Agreement(1.2, 50.0, 300.0))
    assert "R-hat at most 1.200" in about and "3 divergences" in about
    for words in ("do not agree", "50 effective draws", "3 draws diverged"):
        assert words in " ".join(doubts)
    assert told(sound, Agreement(1.003, 900.0, 800.0))[1] == ()


def test_ctrl_c_in_the_chains_keeps_the_fit(data: dict[str, np.ndarray]) -> None:
    def stop(report: Any) -> None:
        if report.stage == "sampling":
            raise KeyboardInterrupt

    fit = gpdsl.compile(NORMAL).fit(data, engine="mcmc", callback=stop)
    assert fit.interrupted and fit.settings is None and np.isfinite(fit.elbo)


def test_draws_before_ctrl_c_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(number: int, total: int) -> None:
        assert total == 220
        if number == 100 + 2 * BLOCK:
            raise KeyboardInterrupt

    block = {"place": np.zeros((3, BLOCK))}, {"diverging": np.zeros((3, BLOCK), int)}
    monkeypatch.setattr(chains, "beginnings", lambda *_: None)
    monkeypatch.setattr(
        chains, "called", lambda _, make, *__: (None, block) if make is chains._block else (None, None, None)
    )
    found = chains.nuts(SimpleNamespace(data=None), 3, 100, 120, 0, stop)
    assert found.interrupted and found.shape == (3, 2 * BLOCK)
    assert not chains.nuts(SimpleNamespace(data=None), 3, 100, 70, 0, lambda *_: None).interrupted
    with pytest.raises(KeyboardInterrupt):
        chains.nuts(SimpleNamespace(data=None), 3, 2 * BLOCK + 100, 20, 0, stop)


def test_chains_visit_all_modes_that_signs_and_exchanges_make_of_one() -> None:
    """In f * g both signs are open, and the latents are alike: means are 0, and chains that stay apart agree."""
    model = gpdsl.compile(
        """
        input x : real
        output y : real
        latent f(x) ~ GP(0, RBF(1))
        latent g(x) ~ GP(0, RBF(1))
        y ~ Normal(f * g, 0.1)
        """
    )
    x = np.array([-1.0, 0.5])
    fit = model.fit({"x": x, "y": [1.5, 1.0]}, engine="mcmc", chains=2, draws=150, warm_up=100, diagnose="no")
    assert "4 images by signs and exchanges" in fit.summary()
    rng, root = np.random.default_rng(0), np.linalg.cholesky(np.exp(-0.5 * (x[:, None] - x) ** 2))
    f, g = np.moveaxis(rng.standard_normal((1_000_000, 2, 2)) @ root.T, 1, 0)
    log_weights = stats.norm.logpdf([1.5, 1.0], f * g, 0.1).sum(axis=1)
    weights = np.exp(log_weights - log_weights.max())
    sd = np.sqrt(weights @ f**2 / weights.sum())
    latent = fit.predict({"x": x})
    for name in "fg":
        np.testing.assert_allclose(latent.mean(name), 0.0, atol=0.25)
        np.testing.assert_allclose(np.sqrt(latent.variance(name)), sd, rtol=0.1)


SQUARE = "input x : real\noutput y : real\nlatent f(x) ~ GP(0.3, 2 * RBF(0.6))\ny ~ Normal(f^2, 0.3)"
FEW = {"x": np.array([-1.0, -0.4, 0.1, 0.6]), "y": np.array([1.2, 0.9, 1.5, 1.1])}
COVARIANCE = 2 * np.exp(-0.5 * ((FEW["x"][:, None] - FEW["x"]) / 0.6) ** 2)


def test_rows_are_left_out_of_draws_by_what_the_others_say_of_them_by_the_prior() -> None:
    x, n = np.array([-1.0, 0.0, 0.3, 1.5]), np.array([0, 3, 2, 6])
    fit = gpdsl.compile(COUNTS).fit({"x": x, "n": n}, engine="mcmc", chains=2, draws=5, warm_up=20, diagnose="no")
    prediction = fit.predict({"x": x})
    means = np.stack([own.mean("f") for own in prediction.settings])  # type: ignore[attr-defined]
    assert fit.settings is not None
    np.testing.assert_allclose(prediction.error("f"), means.std(axis=0) / np.sqrt(min(10, fit.settings.effective)))
    left = fit.loo({"x": x, "n": n}).left
    for beliefs, own in zip(left, fit.settings.posteriors(fit.at_rows), strict=True):  # type: ignore[union-attr]
        covariance = float(own.parameters["s"]) ** 2 * np.exp(-abs(x[:, None] - x))
        inverse, f = np.linalg.inv(covariance), np.linalg.cholesky(covariance) @ own.q[0].mean[0, 0]
        variance = 1 / np.diag(inverse)
        np.testing.assert_allclose(beliefs.marginals.variance[0, :, 0], variance, rtol=1e-6)
        np.testing.assert_allclose(beliefs.marginals.mean[0, :, 0], f - variance * (inverse @ f), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"posterior": "corrected"}, {"engine": "mcmc", "chains": 2, "draws": 100}])
def test_leave_one_out_of_draws_is_that_of_brute_force(options: dict[str, object]) -> None:
    """Weights 1 / p(y_n | f_n) of 400 draws were two nats off here."""
    left = gpdsl.compile(SQUARE).fit(FEW, **options, diagnose="no").loo(FEW)
    draws = np.random.default_rng(0).standard_normal((1_000_000, 4)) @ np.linalg.cholesky(COVARIANCE).T + 0.3
    each = stats.norm.logpdf(FEW["y"], draws**2, 0.3)
    whole = np.logaddexp.reduce(each.sum(axis=1))
    exact = [whole - np.logaddexp.reduce(each.sum(axis=1) - own) for own in each.T]
    np.testing.assert_allclose(left.pointwise, exact, atol=0.3)
    assert abs(left.elpd - np.sum(exact)) < 0.4


ROBUST = """
input x : real
output y : real
param s2 : positive ~ LogNormal(0, 1)
latent f(x) ~ GP(0, s2 * RBF(1))
y ~ StudentT(3, f, 0.1)
"""
COUPLED = ROBUST.replace("y ~", "latent g(x) ~ GP(0, RBF(2))\ny ~").replace("f, 0.1", "f + g, 0.1")


ROWS = ROBUST.replace("latent f(x) ~ GP(0, s2 * RBF(1))", "row f ~ Normal(0, sqrt(s2))")


@pytest.mark.parametrize("text", [ROBUST, COUPLED, ROWS], ids=["one latent", "coupled", "row variables"])
def test_chains_move_in_what_the_search_says_of_latents(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A density of v is that of w times the volume, everywhere: outliers say that q is wider than the prior."""
    rng, given, targets = np.random.default_rng(0), [], []
    x = np.append(np.linspace(0, 3, 8), 100.0)  # where nothing else tells of the latent
    y = np.where(x < 9, np.sin(x) + 0.1 * rng.standard_normal(9), 8.0)

    def caught(target: Joint, *asked: Any) -> Chains:
        targets.append(target)
        raise KeyboardInterrupt

    monkeypatch.setattr(Joint, "sample", caught)
    monkeypatch.setattr(engine, "Joint", lambda *of: given.append(of) or Joint(*of))  # type: ignore[func-returns-value]
    gpdsl.compile(text).fit({"x": x, "y": y}, engine="mcmc", steps=15, diagnose="no")
    (target,) = targets
    assert (target.data[1] is None) is (text == COUPLED)
    data = target.joint.data, told_by(*given[0])
    whole, v = target.made[0](target.problem, None), jnp.asarray(rng.standard_normal(len(target.start["white"])))

    @jax.jit
    def looked_at(s2: jax.Array) -> tuple[jax.Array, ...]:
        learnt = {"s2": s2}
        place, wider = whole.place({"learnt": learnt, "white": v}, data)
        slopes = jax.jacfwd(lambda v: whole.place({"learnt": learnt, "white": v}, data)[0]["white"])(v)
        density = density_of(whole, data)({"learnt": learnt, "white": v})
        alone = target.joint.log_likelihood(learnt, place["white"], target.joint.data)
        return wider, slopes, density, alone + log_prior(target.joint, learnt, place["white"])

    for s2 in (-1.0, 5.0):
        wider, slopes, density, alone = map(np.asarray, looked_at(jnp.asarray(s2)))
        assert wider == pytest.approx(np.linalg.slogdet(slopes)[1], rel=1e-8)
        assert density == pytest.approx(alone + wider, rel=1e-10)


@pytest.mark.parametrize("coupled", [False, True])
def test_sites_that_widen_say_nothing(coupled: bool) -> None:
    """And those that narrow what they said, in the directions that they narrow."""
    linear, precision = jnp.array([[1.0, 2.0]]), jnp.array([[3.0, -4.0]])
    turn = jnp.array([[0.6, -0.8], [0.8, 0.6]])
    if coupled:
        found = never_widening(Sites(linear @ turn.T, (turn @ jnp.diag(precision[0]) @ turn.T)[None]))
        found = Sites(found.linear @ turn, turn.T @ found.precision @ turn)
        np.testing.assert_allclose(found.precision, np.diag([3.0, 0.0])[None], atol=1e-12)
    else:
        found = never_widening(Sites(linear, precision))
        np.testing.assert_allclose(found.precision, [[3.0, 0.0]])
    np.testing.assert_allclose(found.linear, [[1.0, 0.0]], atol=1e-12)
