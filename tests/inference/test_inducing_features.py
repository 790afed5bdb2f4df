"""Inducing features that are not points, in fits: bounds, predictions, files, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gpdsl
from gpdsl.errors import GpdslError
from gpdsl.inference import summed
from gpdsl.inference.posteriors.features import factorise
from gpdsl.kernels.covariance import basis
from gpdsl.kernels.functionals import Coefficients
from gpdsl.program.groups import kernel_values
from gpdsl.results.fitting import prepare
from tests.inference.problems import problem_of
from tests.kernels.test_interdomain import hensman

SERIES = """
input x : real
output y : real
param ell : positive = 0.7
param sigma : positive = 0.5
latent f(x) ~ GP(0, Matern32(ell))
y ~ Normal(f, sigma)
"""
HELD = ["ell", "sigma"]


def series(rows: int = 40) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-2, 1.5, rows))
    return {"x": x, "y": np.sin(3 * x) + 0.5 * rng.standard_normal(rows)}


def titsias(data: dict[str, np.ndarray], among: np.ndarray, cross: np.ndarray, noise: float) -> float:
    """The collapsed bound from Kuu and Kuf."""
    explained = cross.T @ np.linalg.solve(among, cross)
    covariance, rows = explained + noise**2 * np.eye(len(data["y"])), len(data["y"])
    fit = data["y"] @ np.linalg.solve(covariance, data["y"]) + np.linalg.slogdet(2 * np.pi * covariance)[1]
    return float(-0.5 * fit - 0.5 * (rows - np.trace(explained)) / noise**2)


def test_bounds_rise_to_the_evidence() -> None:
    """Above that of the paper's features, which have as many waves and are periodic."""
    data, model, bounds = series(), gpdsl.compile(SERIES), []
    exact = model.fit(data, fixed=HELD).elbo
    for count in (8, 16, 50):
        bounds.append(model.fit(data, inducing=f"fourier({count}, over = [-2, 1.5])", fixed=HELD).elbo)
        waves = 2 * np.pi / 3.5 * (data["x"] + 2)
        even, odd = np.arange((count - 3) // 2 + 1), np.arange(1, (count - 2) // 2)
        cross = np.concatenate([np.cos(np.outer(even, waves)), np.sin(np.outer(odd, waves))])
        assert bounds[-1] > titsias(data, hensman("Matern32", count - 3), cross, 0.5)
    assert bounds[0] < bounds[1] < bounds[2] < exact
    assert exact - bounds[2] < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["Matern12", "Matern32", "Matern52"])
def test_projections_are_below_the_evidence_and_lose_less_than_points(kernel: str) -> None:
    """Few of them lose less than as many points or waves, of a rough process."""
    data, model, bounds = series(), gpdsl.compile(SERIES.replace("Matern32", kernel)), []
    exact = model.fit(data, fixed=HELD).elbo
    for count in (8, 16, 48):
        bounds.append(model.fit(data, inducing=f"eigen({count}, over = [-2, 1.5])", fixed=HELD).elbo)
    assert bounds[0] < bounds[1] < bounds[2] <= exact + 1e-6
    rough = kernel == "Matern12"
    assert exact - bounds[2] < (2.5 if rough else 0.02)
    if rough:
        assert bounds[0] > model.fit(data, inducing=8, fixed=HELD).elbo + 5
        assert bounds[0] > model.fit(data, inducing="fourier(8, over = [-2, 1.5])", fixed=HELD).elbo


def test_hyperparameters_are_learnt_and_predictions_reach_beyond_the_interval(tmp_path: Path) -> None:
    data, model = series(), gpdsl.compile(SERIES + "infer vi: inducing f = fourier(30)")
    fit, exact = model.fit(data), model.fit(data, inducing=0)
    assert fit.elbo == pytest.approx(exact.elbo, abs=0.1)
    new = {"x": np.array([-4.0, -2.1, 0.0, 1.6, 9.0])}
    here, there = fit.predict(new), exact.predict(new)
    np.testing.assert_allclose(here.mean("f"), there.mean("f"), atol=0.02)
    np.testing.assert_allclose(here.variance("f"), there.variance("f"), atol=0.02)
    assert "features fourier(30)" in fit.summary() and "fourier(30), Fourier features" in model.explain(data)
    fit.save(tmp_path / "a.gpfit")
    again = gpdsl.load_fit(tmp_path / "a.gpfit")
    np.testing.assert_array_equal(again.predict(new).mean("f"), here.mean("f"))
    assert here.draws("f", 3, seed=0).shape == (3, 5)
    with pytest.raises(GpdslError, match="no inducing points"):
        fit.plot(data=data, kind="inducing")
    assert model.fit(data, start=fit).elbo == pytest.approx(fit.elbo, abs=1e-3)
    other = model.fit(data, start=fit, inducing="fourier(60, over = [-3, 3])")
    assert other.elbo == pytest.approx(fit.elbo, abs=0.1)


CLASSES = """
input x : real
output y : binary
latent f(x) ~ GP(0.3, 2 * Matern52(0.7))
y ~ Bernoulli(logit = f)
infer vi: inducing f = fourier(14, over = [-2, 1.5])
"""


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch": 20, "steps": 150},
        pytest.param({"optimizer": "lbfgs"}, marks=pytest.mark.slow),
        pytest.param({"engine": "ep"}, marks=pytest.mark.slow),
    ],
)
def test_every_engine_takes_them(options: dict) -> None:
    data = series()
    data["y"] = (data["y"] > 0).astype(int)
    model = gpdsl.compile(CLASSES)
    fit = model.fit(data, **options)
    few = {**options, "inducing": 14} if options.get("batch") else {**options, "inducing": 0}
    assert fit.elbo == pytest.approx(model.fit(data, **few).elbo, abs=0.2 if options.get("batch") else 0.05)


PLANE = """
input x : real[2]
output y : real
param sigma : positive = 0.5
latent f(x) ~ GP(0, {})
y ~ Normal(f, sigma)
"""


@pytest.mark.parametrize(
    ("kernel", "written"),
    [
        (
            "Matern32(0.9, on = x[1]) + 2 * Matern52(1.2, on = x[2]) + Constant()",
            "fourier(30, over = [[0, 2], [-1, 1]])",
        ),
        ("Matern32(0.9, on = x[1]) * Matern52(1.2, on = x[2])", "fourier(10)"),
        ("RBF(1.1)", "eigen(45)"),
        ("RBF(1.1)", "points(15) + slopes(10)"),
    ],
)
def test_several_columns(kernel: str, written: str) -> None:
    rng = np.random.default_rng(0)
    x = np.stack([rng.uniform(0, 2, 40), rng.uniform(-1, 1, 40)], axis=1)
    data = {"x": x, "y": np.sin(3 * x[:, 0]) * x[:, 1] + 0.5 * rng.standard_normal(40)}
    model = gpdsl.compile(PLANE.format(kernel))
    fit, exact = model.fit(data, inducing=written, fixed=["sigma"]), model.fit(data, fixed=["sigma"])
    assert exact.elbo - (0.5 if "fourier" in written else 0.05) < fit.elbo < exact.elbo
    moved = written.replace("[[0, 2], [-1, 1]]", "[[100, 114], [93, 107]]")
    units = {"x": ([100.0, 100.0], [7.0, 7.0])}
    far = model.fit({**data, "x": 100 + 7 * x}, inducing=moved, fixed=["sigma"], standardise=units)
    assert far.elbo == pytest.approx(fit.elbo, abs=1e-5)


@pytest.mark.parametrize(
    ("kernel", "written", "words"),
    [
        ("Matern32(1)", "fourier(9, over = [0, 1])", r"error\[D141\]: row 1: x = -1.9.* lies outside 0 to 1"),
        ("Matern32(1)", "fourier(9, over = [[0, 1], [0, 1]])", "expected bounds of each of the 1 column"),
        ("RBF(1)", "fourier(9)", r":\d+:\d+: error\[E546\](.|\n)*not of RBF"),
        ("Matern12(1)", "slopes(9)", r"error\[E546\](.|\n)*no derivative at all"),
        ("RBF(1)", "eigen(9) + eigen(8)", "inducing = 'eigen.*expected every family once, and `eigen` is there twice"),
        ("Matern32(1)", "fourier(9) + eigen(8)", "expected one of `fourier` and `eigen`, whose"),
    ],
)
def test_what_does_not_fit_is_said(kernel: str, written: str, words: str) -> None:
    model = gpdsl.compile(SERIES.replace("Matern32(ell)", kernel).replace("param ell : positive = 0.7", ""))
    with pytest.raises(GpdslError, match=words):
        model.fit(series(), inducing=written)
    with pytest.raises(GpdslError, match="learn_inducing moves inducing points"):
        model.fit(series(), inducing="fourier(9)", learn_inducing=True)


def test_a_row_beyond_the_features_is_told_in_its_own_units() -> None:
    """Whatever the fit subtracts from the column and divides it by."""
    model = gpdsl.compile(SERIES.replace("Matern32(ell)", "Matern32(1)").replace("param ell : positive = 0.7", ""))
    data = series()
    x = np.linspace(3.0, 7.0, len(data["x"]))
    x[4] = 9.25
    for given in ({}, {"standardise": {"x": (4.0, 2.0)}}):
        with pytest.raises(GpdslError, match=r"row 5: x = 9\.25 lies outside 2 to 8, where"):
            model.fit({**data, "x": x}, inducing="fourier(9, over = [2, 8])", **given)


@pytest.mark.parametrize("at_once", [4])
def test_rows_are_summed_up_in_parts_of_any_size(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Phi'Phi and the like of eleven rows, one without a value, against all rows in NumPy."""
    monkeypatch.setattr(summed, "AT_ONCE", at_once)
    rng = np.random.default_rng(1)
    x, y = rng.uniform(0.1, 0.9, (11, 2)), rng.normal(size=11)
    y[2] = np.nan
    text = SUMMED.replace("fourier(12)", "fourier(5, over = [0, 1])")
    problem = problem_of(text, {"x": x, "y": y})
    program, features = problem.program, problem.inducing[0]
    learnt = problem.parameters
    kernel = kernel_values(program.evaluator, program.groups[0], program.parameters.constrain(learnt))
    functions = basis(program.groups[0].form, [a[0] for a in kernel.arguments], features).functions
    phi, seen = np.asarray(jax.jit(functions)(jnp.asarray(x))), np.isfinite(y)
    monkeypatch.setattr(summed, "PART", len(x) * len(features) ** 2 / 3)
    found = summed._summed(problem, "y")
    phi, y = phi[seen], y[seen] - np.mean(y[seen])
    np.testing.assert_allclose([found.count, found.y, found.squares], [10, 0, np.sum(y**2)], atol=1e-10)
    np.testing.assert_allclose(found.centre, np.nanmean(problem.rows.outputs["y"], where=seen))
    np.testing.assert_allclose(found.among, phi.T @ phi, atol=1e-10)
    np.testing.assert_allclose(found.told, phi.T @ y, atol=1e-10)
    np.testing.assert_allclose(found.ones, np.sum(phi, axis=0), atol=1e-10)


def test_the_bound_of_sums_is_that_of_all_rows_in_dense_algebra(rng: np.random.Generator) -> None:
    """With q of the whitened values, and the most that is lost (Titsias 2014): of noise as large as what is left."""
    x, y = rng.uniform(0.1, 0.9, 11), 3 + rng.normal(size=11)
    text = (
        SERIES.replace("GP(0,", "GP(0.7, 1.6 * ")
        .replace("Normal(f,", "Normal(2 * f + 1,")
        .replace("= 0.7", "= 0.7 ~ Exponential(2)")
    )
    with jax.enable_x64(True):
        program, jitter = prepare(gpdsl.compile(text), {"x": x, "y": y}, {}, {})[0], 1e-6
        features, line = Coefficients(jnp.array([[0.0], [1.0]]), "fourier", 5, 5), summed.line_of(program)

        @jax.jit
        def found(learnt: dict[str, jax.Array], centre: float) -> tuple[Any, ...]:
            kernel = kernel_values(program.evaluator, program.groups[0], program.parameters.constrain(learnt))
            known, off = basis(program.groups[0].form, [a[0] for a in kernel.arguments], features), y - centre
            phi = known.functions(jnp.asarray(x)[:, None])
            sums = jnp.asarray(11.0), centre, off.sum(), off @ off, phi.T @ phi, phi.T @ off, phi.sum(axis=0)
            told = summed._bound(program, line, jitter, learnt, [features], summed.Sums(*sums))
            return told, factorise(program.groups[0], kernel, features, jitter)[0], known.weights * phi

        (value, mean, root, most), factor, phi = jax.tree.map(
            np.asarray, found(program.parameters.unconstrained(), 2.5)
        )
    a = 2 / 0.5 * np.linalg.solve(factor, phi.T) * np.sqrt(1.6)
    z, inverse = (y - 1 - 2 * 0.7) / 0.5, np.linalg.inv(np.eye(len(a)) + a @ a.T)
    left = 4 / 0.25 * 11 * 1.6 - np.trace(a.T @ a)
    dense = lambda noise: noise * np.eye(11) + a.T @ a  # noqa: E731
    density = -0.5 * z @ np.linalg.solve(dense(1), z) - 0.5 * np.linalg.slogdet(2 * np.pi * dense(1))[1]
    prior = np.log(2) - 2 * 0.7
    np.testing.assert_allclose(value, density - 11 * np.log(0.5) - 0.5 * left + prior, rtol=1e-9)
    np.testing.assert_allclose(mean, inverse @ a @ z, rtol=1e-7)
    np.testing.assert_allclose(root @ root.T, inverse, rtol=1e-7, atol=1e-12)
    lost = z @ np.linalg.solve(dense(1), z) - z @ np.linalg.solve(dense(1 + left), z) + left
    assert most == pytest.approx(0.5 * lost)


def test_features_of_an_integral_are_refused_where_it_is_read() -> None:
    text = "input x : real\noutput y : real\nlatent h(x) ~ GP(0, Matern52(1))\n"
    text += "let s = integral(h, 0, x)\ny ~ Normal(h + s, 1)\n"
    data = {"x": np.linspace(0.1, 3, 60), "y": np.sin(np.linspace(0.1, 3, 60))}
    with pytest.raises(GpdslError, match=r":4:9: error\[E546\](.|\n)*`infer vi: inducing h = 50`") as told:
        gpdsl.compile(text + "infer vi: inducing h = fourier(10)\n").fit(data)
    line = re.findall("`(infer .*)`", str(told.value))[0]
    assert gpdsl.compile(f"{text}{line}\n").fit(data, steps=2).choice.inducing == 50


SUMMED = """
input x : real[2]
output y : real
param ell : positive = 1
param s2 : positive = 1 ~ LogNormal(0, 1)
param c : real = 0
param sigma : positive = 0.5
latent f(x) ~ GP(c, s2 * Matern32(ell, on = x[1]) + Matern52(1.2, on = x[2]) + Constant())
y ~ Normal(2 * f + 1, sigma)
infer vi: inducing f = fourier(12)
"""


def test_rows_summed_up_once_give_the_same_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """As sites of all rows, with a missing value, more rows than are held at once, and parts that are told of."""
    monkeypatch.setattr(summed, "AT_ONCE", 16)
    monkeypatch.setattr(summed, "PART", 40 * 25**2)
    stages: list[str] = []
    rng = np.random.default_rng(0)
    x = np.stack([rng.uniform(0, 2, 150), rng.uniform(-1, 1, 150)], axis=1)
    y = 2 + np.sin(3 * x[:, 0]) * x[:, 1] + 0.5 * rng.standard_normal(150)
    y[3] = np.nan
    data, model, new = {"x": x, "y": y}, gpdsl.compile(SUMMED), {"x": np.array([[0.1, 0.2], [3.0, -1.0]])}
    one = model.fit(data, callback=lambda report: stages.append(report.stage))
    assert stages[:5] == [*4 * ["summing up rows"], "full posterior, summed"]
    assert one.choice.reasons["posterior"].endswith("all rows are summed up once") and one.choice.batch == 0
    other = model.fit(data, optimizer="natural")
    assert one.elbo == pytest.approx(other.elbo, abs=1e-5)
    assert one.inducing_loss_bounds == pytest.approx(other.inducing_loss_bounds, rel=1e-3)  # by a pass over the rows
    told = [each.predict(new) for each in (one, other)]
    np.testing.assert_allclose(told[0].mean("f"), told[1].mean("f"), rtol=1e-3)
    np.testing.assert_allclose(told[0].variance("f"), told[1].variance("f"), rtol=1e-3)


def test_too_many_features_of_a_product_are_refused() -> None:
    """They took minutes a step, of which nothing was heard."""
    model = gpdsl.compile(PLANE.format("Matern32(1, on = x[1]) * Matern32(1, on = x[2])"))
    data = {"x": np.random.default_rng(0).uniform(0, 1, (40, 2)), "y": np.zeros(40)}
    with pytest.raises(GpdslError, match=r"they are 4,900 of this kernel, and more than 4,000 are not computed"):
        model.explain(data, inducing="fourier(70)")
    assert "fourier(63)" in model.explain(data, inducing="fourier(63)")


def test_searches_of_one_fit_sum_up_rows_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts at the scales of the data, and with short length-scales, after one that finds nothing."""
    monkeypatch.setattr(summed, "PART", 40 * 12**2)
    rng, stages = np.random.default_rng(0), []
    data = {"x": rng.uniform(0, 3, 40), "y": rng.standard_normal(40)}
    callback = lambda report: stages.append(report.stage)  # noqa: E731
    fit = gpdsl.compile(SERIES).fit(data, inducing="fourier(13)", callback=callback, diagnose="no")
    assert "best of 3 starts" in fit.message and stages.count("summing up rows") == 2


def test_what_summed_rows_lose_is_the_difference_to_dense_inference() -> None:
    """What is certain at the fit's parameters is an upper bound of it."""
    data, text = series(25), SERIES.replace("GP(0,", "GP(0.4,").replace("Normal(f,", "Normal(f + 0.7,")
    model = gpdsl.compile(text)
    fit, dense = (model.fit(data, inducing=m, fixed=HELD) for m in ("fourier(6)", 0))
    assert fit.choice.optimizer == "lbfgs"
    assert fit.inducing_loss == pytest.approx(dense.elbo - fit.elbo, abs=1e-3)
    assert fit.inducing_loss_bounds is not None and fit.inducing_loss_bounds[1] > fit.inducing_loss + 0.01


def test_single_precision_does_not_sum_up() -> None:
    """Sums of squares cancel: in float32 the bound came out 0.08 above the evidence."""
    model = gpdsl.compile(SERIES)
    told = [model.explain(series(), inducing="fourier(20)", dtype=each) for each in ("float64", "float32")]
    assert ["summed up once" in each for each in told] == [True, False]
