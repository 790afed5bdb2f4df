"""Averages over learnt parameters against grids of the dense evidence, and what is said where they are doubtful."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats
from scipy.interpolate import CubicSpline
from scipy.special import ndtr

import gpdsl
from gpdsl.inference.images import Images
from gpdsl.inference.integrated import Explored
from gpdsl.inference.log_joint import AT_ONCE, at_places, log_prior, log_volume
from gpdsl.inference.modes import Drawn
from gpdsl.inference.problem import Problem
from gpdsl.inference.proposals import generalised_pareto, smoothed
from gpdsl.language.calls import PREDICTED
from gpdsl.program.program import make_program

NORMAL = """
input x : real
output y : real
param ell : positive ~ LogNormal(0, 0.7)
param sigma : positive ~ LogNormal(-1, 0.7)
latent f(x) ~ GP(0, RBF(ell))
let g = exp(f)
y ~ Normal(f, sigma)
"""
POISSON = """
input x : real
output n : count
param m : real ~ Normal(0, 1)
latent f(x) ~ GP(0, 0.5 * RBF(1))
n ~ Poisson(exp(f + m))
"""
AT = np.array([-3.5, -0.2, 1.1, 4.0])


@pytest.fixture(scope="module")
def data() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    x = np.sort(rng.uniform(-3, 3, 18))
    return {"x": x, "y": np.sin(1.5 * x) + 0.3 * rng.standard_normal(18)}


@pytest.fixture(scope="module")
def fit(data: dict[str, np.ndarray]) -> gpdsl.Fit:
    return gpdsl.compile(NORMAL).fit(data, hyperparameters="integrated")


class Grid:
    """The posterior of (ell, sigma) on a grid of their logarithms, and what it says of f at `AT`: dense NumPy."""

    def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
        logs = np.linspace(-1.8, 1.8, 45), np.linspace(-2.6, 0.6, 45)
        self.points = np.stack(np.meshgrid(*logs, indexing="ij"), axis=-1).reshape(-1, 2)
        ell, sigma = np.exp(self.points).T[:, :, None, None]
        cov = np.exp(-0.5 * (x[:, None] - x) ** 2 / ell**2) + sigma**2 * np.eye(len(x))
        cross = np.exp(-0.5 * (AT[:, None] - x) ** 2 / ell**2)
        gain = np.swapaxes(np.linalg.solve(cov, np.swapaxes(cross, 1, 2)), 1, 2)
        self.means, self.variances = gain @ y, 1 - np.sum(gain * cross, axis=2)
        logp = -0.5 * np.linalg.solve(cov, np.broadcast_to(y[:, None], (*cov.shape[:2], 1)))[..., 0] @ y
        logp += stats.norm.logpdf(self.points, [0, -1], 0.7).sum(axis=1) - 0.5 * np.linalg.slogdet(cov)[1]
        self.weights = np.exp(logp - logp.max())
        self.weights /= self.weights.sum()

    def moments(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean = self.weights @ values
        return mean, np.sqrt(self.weights @ (values - mean) ** 2)


@pytest.fixture(scope="module")
def grid(data: dict[str, np.ndarray]) -> Grid:
    return Grid(data["x"], data["y"])


def test_parameters_have_the_moments_of_a_grid(fit: gpdsl.Fit, grid: Grid) -> None:
    settings = fit.settings
    assert settings is not None and settings.shape < 0.7
    for place, name in enumerate(("ell", "sigma")):
        mean, sd = grid.moments(np.exp(grid.points[:, place]))
        assert abs(settings.mean(name) - mean) < 0.1 * sd
        assert abs(settings.sd(name) / sd - 1) < 0.1
        assert settings.quantile(name, 0.05) < mean < settings.quantile(name, 0.95)


@pytest.mark.slow
def test_predictions_are_those_of_the_mixture(fit: gpdsl.Fit, grid: Grid) -> None:
    prediction = fit.predict({"x": AT})
    mean = grid.weights @ grid.means
    variance = grid.weights @ (grid.variances + (grid.means - mean) ** 2)
    sd = np.sqrt(variance)
    np.testing.assert_allclose(prediction.mean("f"), mean, atol=0.03 * sd.max())
    np.testing.assert_allclose(np.sqrt(prediction.variance("f")), sd, rtol=0.04)
    for p in (0.05, 0.9):
        reached = ndtr((prediction.quantile("f", p) - grid.means) / np.sqrt(grid.variances))
        np.testing.assert_allclose(grid.weights @ reached, p, atol=0.01)
    # exp is monotone: its quantiles are those of f
    np.testing.assert_allclose(prediction.quantile("g", 0.9), np.exp(prediction.quantile("f", 0.9)), rtol=5e-3)
    above = 1 - ndtr((0.5 - grid.means) / np.sqrt(grid.variances))
    np.testing.assert_allclose(prediction.probability("f > 0.5"), grid.weights @ above, atol=0.01)
    np.testing.assert_allclose(np.diag(prediction.covariance("f")), prediction.variance("f"), rtol=1e-6)
    np.testing.assert_allclose(prediction.draws("f", 4000, seed=1).std(axis=0), sd, rtol=0.1)
    np.testing.assert_allclose(prediction.sample("f", 4000, seed=1).std(axis=0), sd, rtol=0.1)
    noise = np.exp(2 * grid.points[:, 1])[:, None]
    wider = grid.weights @ (grid.variances + noise + (grid.means - mean) ** 2)
    np.testing.assert_allclose(prediction.variance("y"), wider, rtol=0.08)
    reached = ndtr((prediction.quantile("y", 0.9) - grid.means) / np.sqrt(grid.variances + noise))
    np.testing.assert_allclose(grid.weights @ reached, 0.9, atol=0.01)
    density = stats.norm.pdf(0.3, grid.means, np.sqrt(grid.variances + noise))
    said = fit.log_predictive_density({"x": AT, "y": np.full(4, 0.3)})
    np.testing.assert_allclose(said, np.log(grid.weights @ density), atol=0.03)


def test_the_frame_has_what_the_summary_has(fit: gpdsl.Fit) -> None:
    frame = fit.to_frame().set_index("parameter")
    for name in fit.parameters:
        mean, sd = frame.loc[name, ["value", "standard_error"]]
        assert (mean, sd) == (float(fit.settings.mean(name)), float(fit.settings.sd(name)))
        assert sd == fit.standard_errors[name] and f"{name} {mean:.4g} ± {sd:.2g} (" in " ".join(fit.summary().split())


def test_a_saved_fit_says_the_same(fit: gpdsl.Fit, tmp_path: Path) -> None:
    fit.save(tmp_path / "a.gpfit")
    loaded = gpdsl.load_fit(tmp_path / "a.gpfit")
    for method in ("mean", "variance"):
        before, after = (getattr(each.predict({"x": AT}), method)("y") for each in (fit, loaded))
        np.testing.assert_array_equal(before, after)
    assert loaded.summary() == fit.summary() and "integrated  over" in fit.summary()


@pytest.mark.slow
def test_a_mean_of_counts_against_fits_with_it_fixed() -> None:
    rng = np.random.default_rng(5)
    x = np.linspace(-2, 2, 12)
    data = {"x": x, "n": rng.poisson(2.0, 12)}
    model = gpdsl.compile(POISSON)
    fit, nodes = model.fit(data, hyperparameters="integrated"), np.linspace(-1.6, 2.0, 7)
    fixed = [model.fit(data, fixed=["m"], init={"m": m}) for m in nodes]
    at = np.linspace(-1.6, 2.0, 400)
    logp = CubicSpline(nodes, [each.elbo for each in fixed])(at) + stats.norm.logpdf(at)
    weights = np.exp(logp - logp.max()) / np.exp(logp - logp.max()).sum()
    mean = weights @ at
    sd = np.sqrt(weights @ (at - mean) ** 2)
    assert fit.settings is not None
    assert abs(fit.settings.mean("m") - mean) < 0.02 * sd and abs(fit.settings.sd("m") / sd - 1) < 0.02
    means = CubicSpline(nodes, np.stack([each.predict({"x": x}).mean("f") for each in fixed]))(at)
    np.testing.assert_allclose(fit.predict({"x": x}).mean("f"), weights @ means, atol=0.01)


def test_parameters_that_the_data_leave_open_are_named() -> None:
    text = (
        "input x : real\noutput y : real\nparam ell : positive = 1\nlatent f(x) ~ GP(0, RBF(ell))\ny ~ Normal(f, 0.5)"
    )
    fit = gpdsl.compile(text).fit(
        {"x": np.array([0.0, 1e-3, 2e-3]), "y": np.array([0.1, 0.3, -0.2])}, hyperparameters="integrated"
    )
    assert any("`ell` is hardly determined by the data" in note for note in fit.notes)


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"engine": "ep"}, "belongs to engine = vi"),
        ({"posterior": "diagonal", "inducing": 0}, "plan is lbfgs: leave out posterior = diagonal$"),
        ({"optimizer": "adam", "posterior": "full"}, "plan is adam: leave out posterior = full, optimizer = adam$"),
    ],
)
def test_other_engines_refuse(data: dict[str, np.ndarray], options: dict[str, object], remedy: str) -> None:
    with pytest.raises(gpdsl.GpdslError, match=f"hyperparameters = integrated.*{remedy}"):
        gpdsl.compile(NORMAL).fit(data, hyperparameters="integrated", **options)


@pytest.mark.slow
def test_conditions_are_drawn_anew_in_every_setting(fit: gpdsl.Fit) -> None:
    """What has no formula scatters as its standard error says: settings share no noise."""
    prediction = fit.predict({"x": AT})
    exact = prediction.probability("y > 0.5")
    errors = prediction.probability("y > 0.5 and f > -99", error=True)
    z = [(prediction.probability("y > 0.5 and f > -99", seed=seed) - exact) / errors for seed in range(4)]
    assert 0.5 < np.std(z) < 1.6


@pytest.mark.parametrize(
    ("prior", "spread"), [("Laplace(1.6, 0.3)", 0.3), pytest.param("Laplace(0, 0.05)", 0.05, marks=pytest.mark.slow)]
)
def test_a_prior_with_a_kink_at_the_mode(prior: str, spread: float) -> None:
    x, rng = np.linspace(0, 3, 12), np.random.default_rng(0)
    y = 1.5 + rng.standard_normal(12)
    lines = f"param k : real ~ {prior}", "latent f(x) ~ GP(k, 0.2 * RBF(1))", "y ~ Normal(f, 1)"
    text = "\n".join(("input x : real", "output y : real", *lines))
    settings = gpdsl.compile(text).fit({"x": x, "y": y}, hyperparameters="integrated").settings
    at = np.linspace(-4, 6, 4001)
    cov = 0.2 * np.exp(-0.5 * (x[:, None] - x) ** 2) + np.eye(12)
    logp = -0.5 * np.sum((y - at[:, None]) @ np.linalg.inv(cov) * (y - at[:, None]), axis=1)
    logp -= np.abs(at - float(prior[8:].split(",")[0])) / spread
    weights = np.exp(logp - logp.max()) / np.exp(logp - logp.max()).sum()
    mean = weights @ at
    assert settings is not None
    assert abs(settings.mean("k") - mean) < 0.1 * spread
    assert abs(settings.sd("k") / np.sqrt(weights @ (at - mean) ** 2) - 1) < 0.1


def test_settings_answer_lists_and_refuse_what_they_do_not_know(fit: gpdsl.Fit) -> None:
    settings = fit.settings
    assert settings is not None
    both = settings.quantile("ell", [0.1, 0.9])
    np.testing.assert_array_equal(both, [settings.quantile("ell", 0.1), settings.quantile("ell", 0.9)])
    for name, p in (("nosuch", 0.5), ("ell", 1.5), ("ell", 10**400)):
        with pytest.raises(gpdsl.GpdslError):
            settings.quantile(name, p)
    with pytest.raises(gpdsl.GpdslError, match=r"one of the parameters .*, got f; .*`fit.predict\(data\).mean\('f'\)`"):
        settings.mean("f")
    for owner, attribute in ((settings, "variance"), (settings, "draws"), (fit, "mean"), (fit, "quantile")):
        with pytest.raises(gpdsl.GpdslError, match=rf"attribute .{attribute}.; .*`fit.predict\(data\).{attribute}`"):
            getattr(owner, attribute)
        assert not hasattr(owner, attribute)
    for owner in (settings, fit):
        with pytest.raises(AttributeError, match="object has no attribute 'nosuch'"):
            getattr(owner, "nosuch")  # noqa: B009
    assert all(hasattr(gpdsl.Prediction, each) for each in PREDICTED)


@pytest.mark.parametrize("count", [12, pytest.param(400, marks=pytest.mark.slow)])
def test_whole_functions_are_those_of_the_settings(fit: gpdsl.Fit, count: int) -> None:
    """As many of each as its weight says, in any order, and the same whenever they are called."""
    prediction, functions = fit.predict({"x": AT}), fit.draw_functions(count, seed=1)
    drawn, sd = functions({"x": AT}), prediction.sd("f")
    assert np.max(np.abs(drawn.mean(axis=0) - prediction.mean("f")) / sd) < 4.5 / np.sqrt(count)
    np.testing.assert_allclose(drawn.std(axis=0), sd, rtol=5 / np.sqrt(count))
    assert sum(part.draws for part in functions.parts) == len(functions) == count
    assert len({id(part.parameters) for part in functions.parts}) > 5
    again = functions if count > 100 else copy.deepcopy(functions)
    np.testing.assert_allclose(again[3]({"x": AT[2:4]}), drawn[3, 2:4], rtol=1e-8)


def test_ctrl_c_while_integrating_keeps_the_fit(data: dict[str, np.ndarray]) -> None:
    def stop(report: Any) -> None:
        if report.stage == "integrating" and report.step == 5:
            raise KeyboardInterrupt

    fit = gpdsl.compile(NORMAL).fit(data, hyperparameters="integrated", callback=stop)
    assert fit.interrupted and fit.settings is None and np.isfinite(fit.elbo)
    assert any("interrupted while parameters were integrated over" in note for note in fit.notes)


@pytest.mark.parametrize("shape", [0.2, 0.9])
def test_the_shape_of_a_tail_is_found(shape: float) -> None:
    draws = np.sort(stats.genpareto.rvs(shape, scale=2.0, size=4000, random_state=1))
    found, scale = generalised_pareto(draws)
    assert abs(found - shape) < 0.06 and abs(scale - 2.0) < 0.15


def test_smoothed_weights_sum_to_one_and_heavy_tails_are_told() -> None:
    rng = np.random.default_rng(0)
    light, heavy = rng.normal(0, 0.3, 1000), -np.log(rng.uniform(size=1000)) * 1.2
    for ratios, trusted in ((light, True), (heavy, False)):
        logs, k = smoothed(ratios)
        assert abs(np.exp(logs).sum() - 1) < 1e-12 and (k < 0.7) == trusted


VOLUMES = [
    ("param u : unit ~ Beta(2, 3)", "u", lambda u: u, 0.4),
    ("param u : positive ~ Gamma(3, 2)", "u", lambda u: u, 1.5),
    ("param u : positive(upper = 2) ~ Uniform(0, 2)", "u", lambda u: u**2, 4 / 3),
    ("param L[p,q] : correlation_factor ~ LKJ(2)", "L", lambda L: L[:, 1, 0] ** 2, 0.2),
    ("param w[p] : simplex ~ Dirichlet(2)", "w", lambda w: w[:, 0] ** 2, 0.3),
]


@pytest.mark.parametrize(("line", "name", "of", "mean"), VOLUMES)
def test_densities_of_parameters_become_those_on_the_real_line(line: str, name: str, of: Any, mean: float) -> None:
    text = f"index p in 1..2\nindex q in 1..2\ninput x : real\noutput y : real\n{line}\nlatent f(x) ~ GP(0, RBF(1))\n"
    read = {"L": "L[2, 1]", "w": "w[1]"}.get(name, name)
    program = make_program(gpdsl.compile(f"{text}y ~ Normal(f, exp({read}))").declarations, {}, {}, {})
    with jax.enable_x64(True):
        at = jnp.linspace(-12, 12, 4001)
        numbers = at.reshape(-1, *program.parameters.unconstrained()[name].shape)

        def log_density(number: Any) -> Any:
            return log_prior(program, {name: number})

        weights = jnp.exp(jax.vmap(log_density)(numbers))
        values = jax.vmap(lambda number: program.parameters.constrain({name: number})[name])(numbers)
        found = jnp.sum(weights * of(values)) / jnp.sum(weights)
    assert abs(float(found) - mean) < 1e-4


@pytest.mark.parametrize("count", [1, AT_ONCE, 2 * AT_ONCE + 3])
def test_places_keep_their_order(count: int) -> None:
    points = np.random.default_rng(0).normal(size=(count, 2))
    np.testing.assert_array_equal(at_places(lambda some: some[:, 0] - 3 * some[:, 1], points), points @ [1.0, -3.0])


def test_values_alone_have_the_volumes_of_priors() -> None:
    """Of several places what each has with its gradient: the evidence, and log |d theta / d u|."""
    text = "input x : real\noutput y : real\nparam a : positive ~ Gamma(3, 2)\nparam b : real ~ Normal(0, 1)\n"
    program = make_program(
        gpdsl.compile(f"{text}latent f(x) ~ GP(b, RBF(1))\ny ~ Normal(f, a)").declarations, {}, {}, {}
    )

    class Evidence:
        def __call__(self, learnt: Any) -> tuple[float, Any]:
            return self.value(learnt), {name: -each for name, each in learnt.items()}

        def value(self, learnt: Any) -> float:
            return -0.5 * sum(float(each) ** 2 for each in learnt.values())

    with jax.enable_x64(True):
        start = {name: jnp.asarray(each) for name, each in program.parameters.unconstrained().items()}
        density = Explored(program, Evidence(), start, lambda *_: None)  # type: ignore[arg-type]
        points = np.random.default_rng(0).normal(size=(3, 2))
        found = density.values(points)
        expected = [-0.5 * each @ each + float(log_volume(program, density.learnt(each))) for each in points]
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        np.testing.assert_allclose(found, [density(each)[0] for each in points], rtol=1e-12)
        assert density.value(points[1]) == pytest.approx(found[1])
        own, volumes = density.measured(points)
        known = [program.parameters.constrain(density.learnt(each)) for each in points]
        np.testing.assert_allclose(own, [[float(each["a"]), float(each["b"])] for each in known], rtol=1e-12)
        for each, volume in zip(points, volumes, strict=True):
            value, slope = density.prior(each)
            on_line, widening = (
                partial(lambda of, at: of(program, density.learnt(at)), of) for of in (log_prior, log_volume)
            )
            by_hand = jax.value_and_grad(on_line)(jnp.asarray(each))
            assert value == pytest.approx(float(by_hand[0]))
            assert volume == pytest.approx(float(log_volume(program, density.learnt(each))))
            np.testing.assert_allclose(slope, by_hand[1], rtol=1e-9)
            np.testing.assert_allclose(
                density(each)[1] + each, jax.grad(widening)(jnp.asarray(each)), rtol=1e-9, atol=1e-12
            )
    assert density.evaluations == 10


def test_programs_are_looked_up_once_and_not_for_every_setting(
    data: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, shared = list[str](), Problem.shared

    def counted(problem: Problem, make: Any, *arguments: Any, **more: Any) -> Any:
        asked.append(make.__name__)
        return shared(problem, make, *arguments, **more)

    monkeypatch.setattr(Problem, "shared", counted)
    counts = {"x": data["x"], "n": np.arange(18) % 4}
    for text, given, name in ((NORMAL, data, "_ended"), (POISSON, counts, "_whitened")):
        found = gpdsl.compile(text).fit(given, hyperparameters="integrated").settings
        assert found is not None and len(found.each) > 40 > 4 >= asked.count(name) > 0


def test_a_level_without_a_prior_is_as_wide_as_a_large_scale_leaves_it() -> None:
    """Two groups tell next to nothing of the scale between them, which leaves their level open: a grid over the scale,
    with the level worked out."""
    y, se = np.array([0.4, -0.5, 0.1, 0.0]), 0.5
    text = """index s in 1..S
input school : label[s]
output y : real
param mu : real
param tau : positive ~ Gamma(2, 0.1)
param effect[s] : real ~ Normal(mu, tau)
y ~ Normal(effect[school], 0.5)
"""
    settings = gpdsl.compile(text).fit({"school": list("abab"), "y": y}, hyperparameters="integrated").settings
    assert settings is not None
    tau, means = np.exp(np.linspace(-6, 6.5, 4000)), y.reshape(2, 2).mean(axis=0)
    variance = tau**2 + se**2 / 2  # of the mean of a group about the level
    log = 2 * np.log(tau) - 0.1 * tau - 0.5 * np.log(variance) - np.ptp(means) ** 2 / 4 / variance
    weights = np.exp(log - log.max()) / np.sum(np.exp(log - log.max()))
    assert settings.sd("mu") == pytest.approx(np.sqrt(weights @ variance / 2), rel=0.1)
    assert settings.mean("tau") == pytest.approx(weights @ tau, rel=0.1)
    assert settings.sd("tau") == pytest.approx(np.sqrt(weights @ tau**2 - (weights @ tau) ** 2), rel=0.15)


@pytest.mark.slow
def test_long_tails_take_more_points() -> None:
    """The spread of eight schools, against a grid over it with everything else in closed form."""
    y, se = np.array([28.0, 8, -3, 7, -1, 1, 18, 12]), np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
    fit = gpdsl.zoo("eight_schools").fit({"school": list("ABCDEFGH"), "y": y, "se": se}, hyperparameters="integrated")
    line = np.linspace(np.log(1e-3), np.log(300), 3000)
    tau, variance = np.exp(line), se**2 + np.exp(2 * line)[:, None]
    precision = np.sum(1 / variance, axis=1)
    centre = np.sum(y / variance, axis=1) / precision
    log_density = stats.norm.logpdf(y, centre[:, None], np.sqrt(variance)).sum(axis=1) - 0.5 * np.log(precision)
    log_density += stats.gamma.logpdf(tau, 2, scale=10) + line
    weights = np.exp(log_density - log_density.max())
    mean = np.average(tau, weights=weights)
    sd = np.sqrt(np.average((tau - mean) ** 2, weights=weights))
    assert float(fit.settings.mean("tau")) == pytest.approx(mean, abs=0.1 * sd)
    assert float(fit.settings.sd("tau")) == pytest.approx(sd, rel=0.1)
    assert "standard deviations within" in fit.summary()


def test_the_largest_weights_are_quantiles_in_the_middles_of_equal_shares() -> None:
    """Of 100 weights the tail is 20, and a prior of k = 0.5 counts as ten of them."""
    ratios = np.sort(stats.genpareto.rvs(0.3, size=100, random_state=2))
    excess = (ratios[80:] - ratios[79]) / ratios[-1]
    shape, scale = generalised_pareto(excess)
    alone = optimize.brentq(lambda k: np.mean(np.log1p(k * excess / scale)) - k, 0.01, 5.0)  # that of the scale
    assert shape == pytest.approx((20 * alone + 5) / 30, rel=1e-9)
    logs, k = smoothed(np.log(ratios))
    assert k == pytest.approx(shape)
    tail = ratios[79] / ratios[-1] + stats.genpareto.ppf((np.arange(20) + 0.5) / 20, shape, scale=scale)
    np.testing.assert_allclose(np.exp(logs[80:] - logs[79]), np.minimum(tail, 1.0) * ratios[-1] / ratios[79], rtol=1e-9)


def test_the_regular_set_stands_alone_where_others_have_found_the_same() -> None:
    """Its own weights are even then; where the others say that the mean is elsewhere, all points are needed."""
    density: Any = SimpleNamespace(
        start=np.zeros(1),
        measured=lambda points: (points + 5.0, np.zeros(len(points))),
        beside=lambda points, volumes: stats.norm.logpdf(points[:, 0]),
        images=Images.of_nothing(1),
    )
    source: Any = SimpleNamespace(
        points=lambda uniform: stats.norm.ppf(uniform), log_density=lambda points: stats.norm.logpdf(points[:, 0])
    )
    drawn, count = Drawn(density, source, np.ones(1, bool)), 1000
    even = (np.arange(count)[:, None] + 0.5) / count
    drawn.add(source, even)
    drawn.add(source, even)
    weights = np.full(2 * count, 0.5 / count)
    first, shape, error = drawn.alone(count, weights) or pytest.fail("it is not alone")
    np.testing.assert_allclose(first, np.repeat([1.0 / count, 0.0], count))
    assert not shape > 0.0 and error < 0.1
    above = np.where(drawn.points[:, 0] > 0.0, 1.0 / count, 0.0)
    assert drawn.alone(count, above) is None


def test_the_parameter_that_moves_most_is_told_by_its_largest_number() -> None:
    """As parts of how far each may go."""
    explored: Any = SimpleNamespace(
        widest=np.array([1.0, 1.0, 4.0]), learnt=lambda flat: {"a": flat[:2], "b": flat[2:]}
    )
    assert Explored.most_moved(explored, np.array([0.1, -0.9, 3.2])) == "a"
    assert Explored.most_moved(explored, np.array([0.1, -0.7, -3.2])) == "b"
