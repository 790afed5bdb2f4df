"""Fits that standardise remember the numbers: what goes in and comes out is in the units of the data."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save
from scipy.optimize import minimize
from scipy.stats import norm

import gpdsl
from gpdsl.cli import main
from gpdsl.program.program import make_program
from gpdsl.program.starts import unit_factors
from gpdsl.results.persistence import checksum
from gpdsl.results.serving import offered
from tests.inference.problems import unlearnt

EXACT = """model exact
input x : real
output y : real
param v : positive
param ell : positive
param s : positive
latent f(x) ~ GP(0, v * RBF(ell))
y ~ Normal(f, s)
"""
LOGS = EXACT.replace("y : real", "y : positive").replace("\ny ~", "\nlog(y) ~")
RANDOM = np.random.default_rng(5)
X = 1000.0 + 50.0 * RANDOM.uniform(size=30)
Y = 500.0 + 80.0 * np.sin(X / 9.0) + 5.0 * RANDOM.normal(size=30)
NEW = np.linspace(998.0, 1052.0, 5)
DATA = {"x": np.append(X, 1025.0), "y": np.append(Y, np.nan)}
"""The last row has no output: its `x` counts for the mean of `x`."""


@pytest.fixture(scope="module")
def fit() -> gpdsl.Fit:
    return gpdsl.compile(EXACT).fit(DATA, standardise=True, tolerance=1e-12)


@pytest.fixture(scope="module")
def file(fit: gpdsl.Fit, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kept") / "a.gpfit"
    fit.save(path)
    return path


def raw(logs: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Log evidence, and mean and variance of new observations, of a dense GP about the mean of the outputs."""
    variance, ell, noise = np.exp(logs)

    def gram(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return variance * np.exp(-0.5 * ((a[:, None] - b) / ell) ** 2)

    covariance, residual = gram(X, X) + noise**2 * np.eye(len(X)), Y - Y.mean()
    evidence = -0.5 * residual @ np.linalg.solve(covariance, residual) - 0.5 * len(X) * np.log(2 * np.pi)
    cross = np.linalg.solve(covariance, gram(X, NEW))
    spread = variance - np.sum(gram(X, NEW) * cross, axis=0) + noise**2
    return evidence - 0.5 * np.linalg.slogdet(covariance)[1], Y.mean() + cross.T @ residual, spread


def raw_optimum() -> np.ndarray:
    """Where the log evidence of the data as they are is highest."""
    begin = np.log([Y.var(), 10.0, 5.0])
    found = minimize(lambda logs: -raw(logs)[0], begin, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12})
    return np.asarray(found.x)


def test_predictions_are_those_of_the_exact_gp_of_the_data_as_they_are(fit: gpdsl.Fit, file: Path) -> None:
    """With the parameters that its own evidence has its maximum at, found elsewhere; a saved fit says the same."""
    optimum = raw_optimum()
    evidence, mean, variance = raw(optimum)
    for each in (fit, gpdsl.load_fit(file)):
        assert each.elbo == pytest.approx(evidence, abs=1e-6)
        predicted = each.predict({"x": NEW})
        np.testing.assert_allclose(predicted.mean("y"), mean, atol=1e-6 * Y.std())
        np.testing.assert_allclose(predicted.variance("y"), variance, rtol=1e-5)
        middle, high = predicted.quantile("y", [0.5, 0.9])
        np.testing.assert_allclose(middle, predicted.mean("y"), rtol=1e-9)
        np.testing.assert_allclose(high - middle, 1.2815515655446004 * np.sqrt(variance), rtol=1e-5)
        draws = predicted.sample("y", 2000)
        np.testing.assert_allclose(draws.mean(axis=0), mean, atol=5 * np.sqrt(variance.max() / 2000))
        density = each.log_predictive_density({"x": NEW, "y": mean + 3.0})
        np.testing.assert_allclose(density, -0.5 * np.log(2 * np.pi * variance) - 4.5 / variance, atol=1e-4)


def test_the_history_and_callbacks_tell_the_bound_in_the_units_of_the_data(fit: gpdsl.Fit) -> None:
    told: list[float] = []
    again = gpdsl.compile(EXACT).fit(
        DATA, standardise=["x", "y"], tolerance=1e-12, callback=lambda each: told.append(each.elbo)
    )
    assert again.elbo == fit.elbo and fit.history[-1, 1] == pytest.approx(fit.elbo, abs=1e-6)
    assert told[-1] == pytest.approx(fit.elbo, abs=1e-6)


def test_scores_plots_and_served_functions_are_in_the_units_of_the_data(fit: gpdsl.Fit) -> None:
    mean = fit.predict({"x": X}).mean("y")
    assert gpdsl.score.rmse(fit, DATA) == pytest.approx(np.sqrt(np.mean((mean - Y) ** 2)))
    assert gpdsl.score.sse(fit, DATA) == pytest.approx(np.mean((mean - Y) ** 2) / Y.var())
    line = fit.plot().axes[0].lines[0]
    assert (line.get_xdata().min(), line.get_xdata().max()) == pytest.approx((X.min(), X.max()))
    np.testing.assert_allclose(line.get_ydata()[0], fit.predict({"x": [X.min()]}).mean("y")[0])
    served = offered(fit)
    assert served["y"].evaluate(X[:1, None])[0, 0] == pytest.approx(mean[0])
    row = np.array([[X[0], Y[0]]])
    expected = fit.log_predictive_density({"x": X[:1], "y": Y[:1]})
    np.testing.assert_allclose(served["log_density"].evaluate(row)[:, 0], expected)


LEFT = {
    "student": "y ~ StudentT(4, f, s)",
    "transformed": "asinh(2*y) ~ Normal(f, s)",
    "mixture": "y ~ Mixture(0.3, Normal(f, s), Normal(0, 2))",
}


@pytest.mark.parametrize("name", LEFT)
def test_densities_have_the_moments_that_are_predicted(name: str) -> None:
    """Integrated over a grid of outputs: one, the mean and the variance."""
    text = EXACT.replace("y ~ Normal(f, s)", LEFT[name])
    fit = unlearnt(text, DATA, standardise=True, init={"s": 0.1, "ell": 0.4})
    centre, spread = float(fit.predict({"x": [1020.0]}).mean("y")[0]), float(Y.std())
    grid = centre + spread * np.sinh(np.linspace(-6, 6, 4001))
    density = np.exp(fit.log_predictive_density({"x": np.full(grid.shape, 1020.0), "y": grid}))
    one, mean = (np.trapezoid(density * grid**k, grid) for k in (0, 1))
    assert (one, mean) == pytest.approx((1.0, centre), rel=1e-4)
    variance = np.trapezoid(density * (grid - mean) ** 2, grid)
    assert variance == pytest.approx(float(fit.predict({"x": [1020.0]}).variance("y")[0]), rel=0.01)


MANY = """model many
input x : real[D]
input a : positive
output y[p] : real
output n : count
index p in 1..P
latent f[p](x) ~ GP(0, RBF(1))
latent g(x) ~ GP(0, RBF(1))
y[p] ~ Normal(f[p], 0.3)
n ~ Poisson(a * exp(g))
"""


def many() -> dict[str, np.ndarray]:
    x = np.stack([np.linspace(0, 300, 12), np.linspace(5, 6, 12) ** 2], axis=1)
    y = np.stack([7 + np.sin(x[:, 0]), -2000 + 100 * np.cos(x[:, 1])], axis=1)
    y[3, 1] = np.nan
    return {"x": x, "a": np.full(12, 2.0) + x[:, 1], "y": y, "n": np.arange(12)}


def test_each_column_has_its_own_numbers_and_what_is_left_out_none() -> None:
    data = many()
    fit = gpdsl.compile(MANY).fit(data, standardise=True, steps=2)
    assert fit.standardised.sds.keys() == {"x", "y"}
    for name in ("x", "y"):
        np.testing.assert_allclose(fit.standardised.means[name], np.nanmean(data[name], axis=0))
        np.testing.assert_allclose(fit.standardised.sds[name], np.nanstd(data[name], axis=0))
    drawn = fit.predict({"x": data["x"], "a": data["a"]}).sample("y", 3)
    assert drawn.shape == (3, 12, 2)
    np.testing.assert_allclose(drawn.mean(axis=(0, 1)), [7, -2000], atol=200)


OPAQUE = """input x : real
input z : real
output y : real
output t : real
external h(a: real) -> real
external likelihood g(t: real | a: real)
latent f(x) ~ GP(0, RBF(1))
let b = 2*z
let r = h(b) + f
y ~ Normal(r, 0.1)
t ~ g(f)
"""
OPAQUE_FUNCTIONS = {"h": lambda a: a, "g": lambda t, a: -((t - a) ** 2)}
LEVELS = """index q in 1..2
input x : real
input k : real
output y : real
param W[q, r] : real
param w[q] : positive
index r in 1..1
latent f(x, k) ~ GP(0, RBF(1, on = x) * Coregion(W, w, on = k))
y ~ Normal(f, 0.1)
"""
TWO_OUTPUTS = """
input x : real
output y : real
output t : real
param s2 : positive
param s : positive
latent f(x) ~ GP(0, s2 * RBF(1))
y ~ Normal(f, s)
t ~ Normal(f, s)
"""
REPEATS = """
index p in 1..3
input x : real
output y[p] : real
param s2 : positive
param s : positive
latent f(x) ~ GP(0, s2 * RBF(1))
y[p] ~ Normal(f, s)
"""
OFFSET = """
input x : real
input z : real
output k : count
latent f(x) ~ GP(0, RBF(1))
k ~ Poisson(exp(f + z))
"""
ERRORS = """
input x : real
input z : real
output y : real
latent f(x) ~ GP(0, RBF(1))
let error = exp(z)
y ~ Normal(f, error)
"""
TWO_INPUTS = """
input x : real
input z : real
output y : real
latent f(x) ~ GP(0, RBF(1))
y ~ Normal(f - f(z), 0.1)
"""
SLOPES = """
input x : real
output y : real
output t : real
latent f(x) ~ GP(0, RBF(1))
let slope = D(f, x)
y ~ Normal(f, 0.1)
t ~ Normal(slope, 0.1)
"""
REFUSED: dict[str, tuple[str, Any, str]] = {
    "a count": (MANY, ["n"], "`n` is of type count"),
    "a time": (EXACT.replace("x : real", "x : time"), "x", "`x` is a time, whose numbers have a unit already"),
    "a positive input": (MANY, "a", "`a` is of type positive"),
    "nothing of that name": (MANY, ["z"], "no input or output `z`; it has x, a, y, n, and true is for all"),
    "bounds": (
        EXACT.replace("Normal(f, s)", "Truncated(Normal(f, s), lower = 0)"),
        ["y"],
        "`y` is truncated at bounds",
    ),
    "no numbers": (EXACT, {"x": (1, "a")}, r"`x` has \(1, 'a'\): expected True, names"),
    "three numbers": (EXACT, {"x": (1, 2, 3)}, "expected True, names"),
    "a deviation of 0": (EXACT, {"x": (1, 0)}, "a positive standard deviation"),
    "a number": (EXACT, 3, "expected True, names, or names with"),
    "a number in a list": (EXACT, [3], "expected True, names, or names with"),
    "two outputs of one latent": (TWO_OUTPUTS, True, "the model gives `y`, `t` one unit"),
    "repeats": (REPEATS, ["y"], "the model gives the elements of `y` one unit: give one pair of numbers"),
    "repeats of a fixed variance": (
        REPEATS.replace("s2 * ", ""),
        ["y"],
        "the model gives the elements of `y` one unit",
    ),
    "an offset": (OFFSET, ["z"], "`z` is read by a formula"),
    "a kernel's formula": (EXACT.replace("RBF(ell)", "RBF(ell, on = x^2)"), "x", "`x` is read by a formula"),
    "a mean's formula": (EXACT.replace("GP(0,", "GP(exp(x),"), "x", "`x` is read by a formula"),
    "beside known errors": (ERRORS, ["y"], "`y` is told beside `z`"),
    "two inputs of one latent": (TWO_INPUTS, True, "`f` is read at several inputs, which ties the units of `x`, `z`"),
    "one of two inputs": (TWO_INPUTS, ["z"], "`f` is read at several inputs"),
    "a derivative": (SLOPES, ["t"], "`f` is observed beside its derivative, which ties the units of `x`, `y`, `t`"),
    "levels": (LEVELS, "k", "`k` numbers the levels of a kernel"),
    "an opaque argument": (OPAQUE, "z", "`z` is passed to an opaque function"),
    "an opaque likelihood": (OPAQUE, "t", "`t` is passed to an opaque function"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_standardised_is_refused_by_name(name: str) -> None:
    text, asked, words = REFUSED[name]
    data = (
        many()
        if text == MANY
        else {
            "x": np.arange(30).astype("M8[D]") if "time" in text else X,
            "y": np.stack([Y] * 3, axis=1) if name.startswith("repeats") else Y,
            "k": np.arange(30) % 2 + 1,
            "z": Y,
            "t": Y,
        }
    )
    model = gpdsl.compile(text, externals=OPAQUE_FUNCTIONS if text == OPAQUE else {})
    with pytest.raises(gpdsl.GpdslError, match=f"standardise: .*{words}"):
        model.explain(data, standardise=asked)


def test_columns_without_spread_are_named() -> None:
    data = many()
    data["x"] = data["x"] * [1.0, 0.0] + 0.1
    with (
        pytest.warns(gpdsl.GpdslWarning, match="never vary"),
        pytest.raises(gpdsl.GpdslError, match=r"`x\[2\]` is 0.1 in"),
    ):
        gpdsl.compile(MANY).explain(data, standardise=True)
    data = many() | {"y": many()["y"] * [np.nan, 1.0]}
    with pytest.raises(gpdsl.GpdslError, match="column `y.1.` is missing in every row and cannot be standardised"):
        gpdsl.compile(MANY).explain(data, standardise=True)


def test_a_fit_that_starts_at_another_keeps_its_units(fit: gpdsl.Fit, file: Path) -> None:
    model, half = gpdsl.compile(EXACT), {"x": X[::2], "y": Y[::2]}
    for asked in (None, True, ["x", "y"], {"x": None, "y": (Y.mean(), Y.std())}):
        begun = model.fit(half, start=fit, standardise=asked, steps=1)
        assert begun.standardised.means == fit.standardised.means
    with pytest.raises(gpdsl.GpdslError, match="other numbers for `y`"):
        model.fit(half, start=fit, standardise={"x": None, "y": (Y.mean(), 1.0)})
    for asked, name in ((False, "x"), (["x"], "y")):
        with pytest.raises(gpdsl.GpdslError, match=f"`{name}` was standardised in the fit to start at"):
            model.fit(half, start=fit, standardise=asked)
    with pytest.raises(gpdsl.GpdslError, match="`x` was not standardised in the fit to start at"):
        model.fit(half, start=model.fit(half, steps=1), standardise=True)
    for text, words in ((EXACT.replace("f, s", "f + x, s"), "read by a formula"), (LOGS, "of type positive")):
        with pytest.raises(gpdsl.GpdslError, match=f"was standardised in the fit to start at, and here it is {words}"):
            gpdsl.compile(text).fit(half, start=fit)
    with (
        warnings.catch_warnings(action="error"),
        pytest.raises(gpdsl.GpdslWarning, match="`x`, `y` are in standard deviations, as in that fit, and so are"),
    ):
        gpdsl.compile(EXACT.replace("RBF", "Matern52")).fit(half, start=fit)
    assert model.fit(DATA, checkpoint=file, resume=True, tolerance=1e-12).elbo == fit.elbo
    assert model.fit(DATA, checkpoint=file, resume=True, tolerance=1e-12, standardise=True).elbo == fit.elbo
    with pytest.raises(gpdsl.GpdslError, match="`x` was standardised in the fit that `resume` goes on from: leave"):
        model.fit(DATA, checkpoint=file, resume=True, tolerance=1e-12, standardise=["y"])
    with pytest.raises(gpdsl.GpdslError, match="is a fit of other data"):
        model.fit({**DATA, "y": 2 * DATA["y"]}, checkpoint=file, resume=True, tolerance=1e-12)


def test_the_command_line_fits_and_predicts_in_the_units_of_the_data(
    fit: gpdsl.Fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.gpm").write_text(EXACT)
    np.savetxt("d.csv", np.stack([DATA["x"], DATA["y"]], axis=1), "%.17g", ",", header="x,y", comments="")
    np.savetxt("new.csv", NEW, "%.17g", header="x", comments="")
    assert (
        main(
            [
                "fit",
                "m.gpm",
                "--data",
                "d.csv",
                "--out",
                "a.gpfit",
                "--quiet",
                "--set",
                "tolerance=1e-12",
                "--standardise",
            ]
        )
        == 0
    )
    capsys.readouterr()
    assert main(["predict", "a.gpfit", "--data", "new.csv"]) == 0
    table = np.genfromtxt(capsys.readouterr().out.splitlines(), delimiter=",", names=True)
    np.testing.assert_allclose(table["y_mean"], fit.predict({"x": NEW}).mean("y"), rtol=1e-8)
    np.testing.assert_allclose(table["y_sd"], np.sqrt(fit.predict({"x": NEW}).variance("y")), rtol=1e-8)


DAMAGED: dict[str, Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]] = {
    "a deviation below 0": lambda a: a | {"standardised.sd.y": np.asarray(-1.0)},
    "a mean of another shape": lambda a: a | {"standardised.mean.y": a["standardised.mean.y"][None]},
    "whole numbers": lambda a: a | {"standardised.sd.y": a["standardised.sd.y"].astype(int)},
    "no number": lambda a: a | {"standardised.mean.x": np.asarray(np.nan)},
    "one that is missing": lambda a: {n: v for n, v in a.items() if n != "standardised.mean.x"},
    "a name that is missing": lambda a: {n: v for n, v in a.items() if not n.endswith("d.x") and not n.endswith("n.x")},
    "none at all": lambda a: {n: v for n, v in a.items() if not n.startswith("standardised")},
    "a parameter": lambda a: a | {"standardised.mean.s": a["parameter.s"], "standardised.sd.s": a["parameter.s"]},
}


@pytest.mark.parametrize("name", DAMAGED)
def test_numbers_that_no_fit_has_are_an_error(name: str, file: Path, tmp_path: Path) -> None:
    with safe_open(file, framework="numpy") as handle:
        header = handle.metadata()["gpdsl"]
        arrays = DAMAGED[name]({key: handle.get_tensor(key) for key in handle.keys()})  # noqa: SIM118
    if name == "a parameter":
        header = json.dumps(json.loads(header) | {"standardised": ["s", "x", "y"]})
    (tmp_path / "a.gpfit").write_bytes(save(arrays, {"gpdsl": header, "sha256": checksum(header, arrays)}))
    with pytest.raises(gpdsl.GpdslError, match="a.gpfit is damaged"):
        gpdsl.load_fit(tmp_path / "a.gpfit")


def test_draws_and_covariances_are_in_the_units_of_the_data(fit: gpdsl.Fit) -> None:
    predicted = fit.predict({"x": NEW})
    covariance = predicted.covariance("y")
    np.testing.assert_allclose(np.diag(covariance), predicted.variance("y"), rtol=1e-6)
    drawn = predicted.draws("y", 4000)
    np.testing.assert_allclose(drawn.mean(axis=0), predicted.mean("y"), atol=5 * np.sqrt(covariance.max() / 4000))
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=0.1 * covariance.max())
    several = gpdsl.compile(MANY).fit(many(), standardise="y", steps=2).predict({k: many()[k][:3] for k in "xa"})
    both = several.covariance("y")
    assert both.shape == (3, 2, 3, 2)
    np.testing.assert_allclose(np.einsum("npnp->np", both), several.variance("y"), rtol=1e-6)


def test_latents_and_lets_that_are_the_location_of_an_output_have_its_unit(fit: gpdsl.Fit) -> None:
    """Beside the dense GP of the data as they are; everything that is said of them agrees, probabilities too."""
    optimum = raw_optimum()
    _, mean, variance = raw(optimum)
    spread = np.sqrt(variance - np.exp(2 * optimum[2]))
    predicted = fit.predict({"x": NEW})
    np.testing.assert_allclose(predicted.mean("f"), mean, atol=1e-6 * Y.std())
    np.testing.assert_allclose(predicted.sd("f"), spread, rtol=1e-4)
    np.testing.assert_allclose(predicted.quantile("f", 0.9), mean + 1.2815515655446004 * spread, rtol=1e-5)
    np.testing.assert_allclose(np.diag(predicted.covariance("f")), spread**2, rtol=1e-4)
    np.testing.assert_allclose(predicted.probability("f > 500"), norm.sf((500 - mean) / spread), atol=1e-4)
    for drawn in (predicted.draws("f", 4000), predicted.sample("f", 4000), fit.draw_functions(4000)({"x": NEW}, "f")):
        np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=5 * spread.max() / np.sqrt(4000))
        np.testing.assert_allclose(drawn.std(axis=0), spread, rtol=0.1)
    np.testing.assert_allclose(predicted.to_frame("f")["f_mean"], mean, atol=1e-6 * Y.std())
    assert fit.plot({"x": NEW}, names="f").axes[0].get_ylabel() == "f"


def test_elements_have_the_unit_of_theirs_and_what_is_no_location_none() -> None:
    """`f[p]` that of `y[p]`; `g`, a logarithm of a rate, and a part of a sum are as the fit knows them."""
    text = MANY + "let part = 2 * f[1]\nlet same[p] = f[p]\n"
    predicted = gpdsl.compile(text).fit(many(), standardise=True, steps=20).predict({k: many()[k] for k in "xa"})
    for name in ("f", "same"):
        np.testing.assert_allclose(predicted.mean(name), predicted.mean("y"), rtol=1e-9)
        np.testing.assert_allclose(predicted.covariance(name)[0, :, 0], np.diag(predicted.variance(name)[0]), rtol=1e-6)
    assert predicted.probability("f[2] < 0 and f[1] > 0").min() > 0.9
    assert np.abs(predicted.mean("part")).max() < 10 and np.abs(predicted.mean("g")).max() < 10


def test_the_location_of_a_vector_has_the_units_of_its_elements() -> None:
    """Beside the same fit of data that were standardised by hand."""
    text = (
        "model vector\nindex p in 1..2\nindex q in 1..2\ninput x : real\noutput y[p] : real\nparam s : positive = 0.3\n"
        "param W[p,q] : real ~ Normal(0, 0.3)\nlatent f[p](x) ~ GP(0, RBF(0.8))\nlet same[p] = f[p]\n"
        "y ~ MultivariateNormal(f, factor = W, sd = s)\n"
    )
    x = np.linspace(-1.5, 1.5, 9)
    x = (x - x.mean()) / x.std()
    y = np.stack([300 + 50 * np.sin(x), -7 + 2 * np.cos(x)], axis=1)
    told = unlearnt(text, {"x": x, "y": y}, standardise=["y"]).predict({"x": x})
    own = unlearnt(text, {"x": x, "y": (y - y.mean(axis=0)) / y.std(axis=0)}).predict({"x": x})
    for name in ("y", "f", "same"):
        np.testing.assert_allclose(told.mean(name), y.mean(axis=0) + y.std(axis=0) * own.mean(name), rtol=1e-9)
        np.testing.assert_allclose(told.sd(name), y.std(axis=0) * own.sd(name), rtol=1e-9)
    assert told.without_unit == ()


def test_parameters_are_told_in_the_units_of_the_data_too(fit: gpdsl.Fit) -> None:
    """There the same model about the mean of the outputs has the same evidence, and predicts the same."""
    told = fit.parameters_in_data_units
    assert told.keys() == {"v", "ell", "s"}
    as_it_is = EXACT.replace("GP(0,", "GP(m,").replace("param v", "param m : real\nparam v")
    same = gpdsl.compile(as_it_is).fit(DATA, init={**told, "m": Y.mean()}, fixed=["m", *told])
    assert same.elbo == pytest.approx(fit.elbo, abs=1e-7)
    np.testing.assert_allclose(same.predict({"x": NEW}).mean("y"), fit.predict({"x": NEW}).mean("y"), rtol=1e-7)
    assert same.parameters_in_data_units == {}
    lines = fit.summary().splitlines()
    x, y = (f"{name}: mean {np.nanmean(v):.4g}, sd {np.nanstd(v):.4g}" for name, v in DATA.items())
    assert f"  standardised {x}; {y}" in lines
    own, error = float(fit.parameters["s"]), float(fit.standard_errors["s"])
    there = float(told["s"]) / own
    values = own, error, own * there, error * there
    assert "    s    {:.4g} ± {:.2g}  ({:.4g} ± {:.2g} in the units of the data)".format(*values) in lines
    frame = fit.to_frame().set_index("parameter")
    shown = ["value", "standard_error", "value_in_data_units", "standard_error_in_data_units"]
    np.testing.assert_allclose(frame.loc["s", shown].astype(float), values, rtol=1e-12)


KERNELS: dict[str, tuple[str, dict[str, Any]]] = {
    "an own length-scale of each column": ("ell[D]: a * RBF(ell) | f", {"ell": [2, 3], "a": 100, "s": 10}),
    "one for columns of different units": ("ell: a * RBF(ell) | f", {"a": 100, "s": 10}),
    "a factor and an exponential": ("ell[D]: RBF(ell) | a * exp(f)", {"ell": [2, 3], "a": 10, "s": 10}),
    "a period of one column": ("ell: a * Periodic(1, ell, on = x[2]) | f", {"ell": 3, "a": 100, "s": 10}),
    "factors that nothing tells apart": ("b: a * b * RBF(1) | f", {"s": 10}),
    "a left side of its own unit": ("ell[D]: a * RBF(ell) | f | asinh(y)", {"ell": [2, 3]}),
}


@pytest.mark.parametrize("name", KERNELS)
def test_which_units_a_model_tells(name: str) -> None:
    """Columns of `x` are twice and thrice, and `y` ten times, what they are in the fit."""
    said, expected = KERNELS[name]
    (declared, rest), left = said.split(": "), "y"
    kernel, mean, *more = rest.split(" | ")
    name, _, size = declared.partition("[")
    text = (
        f"input x : real[D]\noutput y : real\nparam {name} : positive{'[' * bool(size)}{size}\nparam a : positive\n"
        f"param s : positive\nlatent f(x) ~ GP(0, {kernel})\n{(more or [left])[0]} ~ Normal({mean}, s)\n"
    )
    translator = make_program(gpdsl.compile(text).declarations, {"D": 2}, {}, {}).translator
    found = unit_factors(translator, {"x": np.array([2.0, 3.0]), "y": np.array(10.0)})
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-6)


def test_the_model_may_say_what_is_standardised(fit: gpdsl.Fit) -> None:
    of_all = gpdsl.compile(f"{EXACT}infer vi: standardise = true, tolerance = 1e-12\n")
    own = of_all.fit(DATA)
    assert own.elbo == fit.elbo
    assert own.standardised.sds.keys() == {"x", "y"}
    np.testing.assert_array_equal(own.predict({"x": NEW}).mean("y"), fit.predict({"x": NEW}).mean("y"))
    assert of_all.explain(DATA) == gpdsl.compile(EXACT).explain(DATA, standardise=True, tolerance=1e-12)
    plain = of_all.fit(DATA, standardise=False, steps=1)
    assert not plain.standardised.sds
    some = gpdsl.compile(f"{EXACT}infer vi: standardise = [x]\n").fit(DATA, steps=1)
    assert some.standardised.sds.keys() == {"x"}
    with pytest.raises(gpdsl.GpdslError, match=r"`ell` is a parameter and cannot be used in the option `standardise`"):
        gpdsl.compile(f"{EXACT}infer vi: standardise = [x, ell]\n")


def test_what_a_formula_of_a_kernel_reads_stays_as_it_is() -> None:
    for changed, left in (
        (EXACT.replace("RBF(ell)", "RBF(ell, on = x^2)"), {"y"}),
        (EXACT.replace("RBF(ell)", "RBF(ell, on = x)"), {"x", "y"}),
        (EXACT.replace("GP(0,", "GP(x,"), {"x", "y"}),
        (by_formula("a * b / 1e6"), {"y"}),
        (by_formula("exp(-abs(a - b) / 1e6)"), {"x", "y"}),
    ):
        assert gpdsl.compile(changed).fit(DATA, standardise=True, steps=1).standardised.sds.keys() == left
    named = gpdsl.compile(by_formula("a * b / 1e6")).fit(DATA, standardise=["x", "y"], steps=1)
    assert named.standardised.sds.keys() == {"x", "y"}


def by_formula(kernel: str) -> str:
    """The model with a kernel of two points."""
    return EXACT.replace("latent", f"kernel own(a, b) = {kernel}\nlatent").replace("RBF(ell)", "own() * RBF(ell)")


def test_a_formula_of_levels_moves_with_its_points_alone() -> None:
    text = (
        "index s in 1..S\ninput x : real\ninput g : label[s]\noutput y : real\nparam w[s] : positive\n"
        "kernel own[d, e](a, b; w) = w[d] * w[e] * {}\nlatent f(x, g) ~ GP(0, own(w))\ny ~ Normal(f, 1)\n"
    )
    data = {"x": X, "y": Y, "g": np.arange(30) % 3}
    for formula, left in {"exp(-(a - b)^2)": {"x", "y"}, "exp(-(a - b)^2) * a * b / 1e6": {"y"}}.items():
        fit = gpdsl.compile(text.format(formula)).fit(data, standardise=True, steps=1)
        assert fit.standardised.sds.keys() == left


def test_calibration_leaves_numbers_as_they_were_drawn() -> None:
    text = EXACT.replace(": positive\n", ": positive ~ LogNormal(0, 0.5)\n")
    lines = "infer vi: standardise = true\n", ""
    said, plain = (gpdsl.sbc(gpdsl.compile(text + line), 8, runs=2, points=2) for line in lines)
    np.testing.assert_array_equal(said.shares["f"], plain.shares["f"])
    with pytest.raises(gpdsl.GpdslError, match="standardise is not for simulated data"):
        gpdsl.sbc(gpdsl.compile(text), 8, runs=2, standardise=True)


CROSSED = """
input x : real
index p in 1..2
output v[p] : real
param m : real = 0.1
param s[p] : positive = 0.3
latent f[p](x) ~ GP(m, RBF(1))
v[1] ~ {first}
v[2] ~ Normal(f[1], s[2])
"""


@pytest.mark.parametrize(
    "first",
    [
        "Normal(f[2], s[1])",
        pytest.param("Mixture(0.9, Normal(f[2], s[1]), StudentT(4, f[2], s[1]))", marks=pytest.mark.slow),
    ],
)
def test_locations_of_other_elements_and_in_mixtures_have_the_unit_of_their_output(first: str) -> None:
    x = np.linspace(0, 5, 12)
    data = {"x": x, "v": np.stack([100 + 5 * np.sin(x), 2000 + 300 * np.cos(x)], axis=1)}
    mean, sd = data["v"].mean(axis=0), data["v"].std(axis=0)
    units = {"v": (mean, sd)}
    model = gpdsl.compile(CROSSED.format(first=first))
    held = {"fixed": ["m", "s"], "seed": 0}
    found = model.fit(data, standardise=units, **held).predict({"x": x[:3]})
    by_hand = model.fit(data | {"v": (data["v"] - mean) / sd}, **held).predict({"x": x[:3]})
    np.testing.assert_allclose(found.mean("f"), mean[::-1] + sd[::-1] * by_hand.mean("f"), rtol=1e-6)
    np.testing.assert_allclose(found.sd("f"), sd[::-1] * by_hand.sd("f"), rtol=1e-6)
    level = f"f[2] > {100 + 3:.1f} and f[1] < 2100"
    scaled = f"f[2] > {(103 - mean[0]) / sd[0]} and f[1] < {(2100 - mean[1]) / sd[1]}"
    np.testing.assert_allclose(found.probability(level), by_hand.probability(scaled), atol=1e-3)


def test_a_parameter_that_is_the_mean_of_a_location_has_its_unit_in_conditions() -> None:
    x = np.linspace(0, 5, 12)
    model = gpdsl.compile(
        "input x : real\noutput y : real\nparam m : real = 0.5\nparam b : real = 0.1\nlatent f(x) ~ GP(m, RBF(1))\n"
        "let g = f + b\ny ~ Normal(f, 0.3)"
    )
    fit = model.fit({"x": x, "y": 300 + 5 * np.sin(x)}, standardise={"y": (300.0, 5.0)}, fixed=["m", "b"])
    prediction = fit.predict({"x": x})
    np.testing.assert_allclose(prediction.probability("f > m"), prediction.probability("f > 302.5"), rtol=1e-9)
    np.testing.assert_allclose(prediction.probability("y > m + 1"), prediction.probability("y > 303.5"), rtol=1e-9)
    assert prediction.probability("m > 302.4 and m < 302.6").all()
    with pytest.raises(gpdsl.GpdslError, match="nothing tells the unit of `b`"):
        prediction.probability("f > b")


def test_tables_mark_what_is_in_standard_deviations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.linspace(0, 5, 12)
    model = gpdsl.compile(
        "input x : real\nindex p in 1..2\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\nlet g[p] = p * f\nlet h = f\n"
        "y ~ Normal(f, 0.3)"
    )
    plain = model.fit({"x": x, "y": np.sin(x)}).predict({"x": x[:2]})
    assert plain.without_unit == () and not plain.to_frame().attrs and "(standardised)" not in str(plain._repr_html_())
    fit = model.fit({"x": x, "y": 300 + 5 * np.sin(x)}, standardise=["y"])
    prediction = fit.predict({"x": x[:2]})
    assert prediction.without_unit == ("g",)
    assert prediction.to_frame().attrs == {"standardised": ["g"]} and not prediction.to_frame(["y", "h"]).attrs
    dataset = prediction.to_xarray()
    units = {name for name, each in dataset.data_vars.items() if each.attrs.get("units") == "standardised"}
    assert units == {"g_mean", "g_sd", "g_quantile"}
    shown = str(prediction._repr_html_())
    assert (
        shown.count("(standardised)") == 4 and "<th>g[2]_sd (standardised)</th>" in shown and "<th>h_mean</th>" in shown
    )
    fit.save(tmp_path / "a.gpfit")
    (tmp_path / "d.csv").write_text("x\n1\n2\n")
    asked = ["predict", str(tmp_path / "a.gpfit"), "--data", str(tmp_path / "d.csv"), "--out", str(tmp_path / "p.csv")]
    assert main(asked) == 0
    assert "note: `g` is in standard deviations" in capsys.readouterr().err
    assert main([*asked, "--names", "y,h"]) == 0
    assert "note" not in capsys.readouterr().err
