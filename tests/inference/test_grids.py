"""Values on a complete grid: evidence, slopes and predictions are those of dense linear algebra."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file
from scipy.stats import multivariate_normal

import gpdsl
from gpdsl.inference.exact import engine, grids
from gpdsl.inference.exact.engine import ExactProfile
from gpdsl.inference.exact.evidence import log_normal_on_grid
from gpdsl.inference.exact.grids import _sides
from tests.inference.problems import problem_of

Parameters = Mapping[str, Any]
Points = Mapping[str, np.ndarray]
"""One number for each value, or for each thing that is predicted."""


def rbf(a: np.ndarray, b: np.ndarray, ell: float) -> np.ndarray:
    return np.exp(-0.5 * np.subtract.outer(a, b) ** 2 / ell**2)


def matern32(a: np.ndarray, b: np.ndarray, ell: float) -> np.ndarray:
    r = np.sqrt(3) * np.abs(np.subtract.outer(a, b)) / ell
    return (1 + r) * np.exp(-r)


def periodic(a: np.ndarray, b: np.ndarray, ell: float, period: float) -> np.ndarray:
    return np.exp(-2 * np.sin(np.pi * np.subtract.outer(a, b) / period) ** 2 / ell**2)


def coregion(a: np.ndarray, b: np.ndarray, p: Parameters) -> np.ndarray:
    between = p["W"] @ p["W"].T + np.diag(p["kappa"])
    return between[np.ix_(a.astype(int) - 1, b.astype(int) - 1)]


@dataclass(frozen=True)
class Case:
    """A model, the sides of its grid, the covariance of what is read of its latents, and the noise of values."""

    text: str
    sides: Callable[[np.random.Generator], list[dict[str, np.ndarray]]]
    parameters: Parameters
    covariance: Callable[[Points, Points, Parameters], np.ndarray]
    noise: Callable[[Points, Parameters], Any]
    mean: float = 0.0
    wide: str = ""
    """The axis along which outputs of a row stand, that is no input."""
    lengths: tuple[int, ...] = ()


HEAD = """
input t : real
input s : real
output y : real
param s2 : positive = 1
param ell : positive = 1
param r : positive = 1
param sigma : positive = 1
"""
SPREAD = {"s2": 1.3, "ell": 0.7, "r": 0.5, "sigma": 0.3}


def axis(name: str, count: int) -> Callable[[np.random.Generator], dict[str, np.ndarray]]:
    return lambda rng: {name: rng.uniform(0, 3, count)}


def level(name: str, count: int) -> Callable[[np.random.Generator], dict[str, np.ndarray]]:
    return lambda rng: {name: np.arange(1.0, count + 1)}


def stations(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Places whose longitudes and latitudes are no grid, some longitudes twice."""
    return {"t": np.repeat(rng.uniform(0, 3, 3), 2), "s": rng.uniform(0, 3, 6)}


def sides(*each: Callable[[np.random.Generator], dict[str, np.ndarray]]) -> Any:
    return lambda rng: [one(rng) for one in each]


OUTPUTS = """
index p in 1..3
input x : real
param W[p, q] : real = 1
param kappa[p] : positive = 1
param ell : positive = 1
param sigma[p] : positive = 1
"""
COREGIONAL = {
    "W": np.array([[1.0, 0.2], [-0.5, 0.8], [0.3, 0.1]]),
    "kappa": np.array([0.2, 0.1, 0.4]),
    "ell": 0.8,
    "sigma": np.array([0.3, 0.5, 0.2]),
}
BY_OUTPUT = "latent f(x, p) ~ GP(0, Coregion(W, kappa, on = p) * RBF(ell, on = x))\n"
OWN = lambda d, p: p["sigma"][d["p"].astype(int) - 1]  # noqa: E731
CASES = {
    "two sides": Case(
        HEAD + "latent f(t, s) ~ GP(0.4, s2 * RBF(ell, on = t) * Matern32(r, on = s))\ny ~ Normal(f, sigma)\n",
        sides(axis("t", 6), axis("s", 5)),
        SPREAD,
        lambda a, b, p: p["s2"] * rbf(a["t"], b["t"], p["ell"]) * matern32(a["s"], b["s"], p["r"]),
        lambda d, p: p["sigma"],
        0.4,
        lengths=(6, 5),
    ),
    "three sides of one kernel": Case(
        HEAD.replace("param r", "input u : real\nparam r").replace("param ell : positive", "param ell[k] : positive")
        + "index k in 1..3\nlatent f(t, s, u) ~ GP(0, s2 * RBF(ell))\ny ~ Normal(f, sigma * (1 + r * t^2))\n",
        sides(axis("t", 3), axis("s", 4), axis("u", 5)),
        {**SPREAD, "ell": np.array([0.7, 1.2, 0.9])},
        lambda a, b, p: (
            p["s2"]
            * rbf(a["t"], b["t"], p["ell"][0])
            * rbf(a["s"], b["s"], p["ell"][1])
            * rbf(a["u"], b["u"], p["ell"][2])
        ),
        lambda d, p: p["sigma"] * (1 + p["r"] * d["t"] ** 2),
        lengths=(3, 4, 5),
    ),
    "places and times": Case(
        HEAD.replace("param r", "input u : real\nparam r")
        + "latent f(t, s, u) ~ GP(0, s2 * RBF(ell, on = [t, s]) * (Matern32(r, on = u) + Linear(2, on = u)))\n"
        + "y ~ Normal(f, sigma)\n",
        sides(stations, axis("u", 5)),
        SPREAD,
        lambda a, b, p: (
            p["s2"]
            * rbf(a["t"], b["t"], p["ell"])
            * rbf(a["s"], b["s"], p["ell"])
            * (matern32(a["u"], b["u"], p["r"]) + np.multiply.outer(a["u"], b["u"]) / 4)
        ),
        lambda d, p: p["sigma"],
        lengths=(6, 5),
    ),
    "equal eigenvalues": Case(
        HEAD + "latent f(t, s) ~ GP(0, s2 * Periodic(ell, r, on = t) * Constant())\ny ~ Normal(f, sigma)\n",
        sides(lambda rng: {"t": np.arange(6) / 12}, axis("s", 5)),
        SPREAD,
        lambda a, b, p: p["s2"] * periodic(a["t"], b["t"], p["ell"], p["r"]),
        lambda d, p: p["sigma"],
        lengths=(6, 5),
    ),
    "a label": Case(
        OUTPUTS.replace("input x", "index q in 1..2\ninput d : label[p]\noutput y : real\ninput x")
        + "latent f(x, d) ~ GP(0, Coregion(W, kappa, on = d) * RBF(ell, on = x))\ny ~ Normal(f, sigma[d])\n",
        sides(axis("x", 8), level("d", 3)),
        COREGIONAL,
        lambda a, b, p: coregion(a["d"], b["d"], p) * rbf(a["x"], b["x"], p["ell"]),
        lambda d, p: p["sigma"][d["d"].astype(int) - 1],
        lengths=(8, 3),
    ),
    "outputs side by side": Case(
        OUTPUTS.replace("input x", "index q in 1..2\noutput y[p] : real\ninput x")
        + BY_OUTPUT
        + "y[p] ~ Normal(f[p], sigma[p])\n",
        sides(axis("x", 8), level("p", 3)),
        COREGIONAL,
        lambda a, b, p: coregion(a["p"], b["p"], p) * rbf(a["x"], b["x"], p["ell"]),
        OWN,
        wide="p",
        lengths=(8, 3),
    ),
    "mixed latents over a grid": Case(
        OUTPUTS.replace("input x", "index q in 1..2\noutput y[p] : real\ninput z : real\ninput x")
        + "latent g[q](x, z) ~ GP(0, q * RBF(ell, on = x) * Matern32(kappa[1], on = z))\n"
        + "y[p] ~ Normal(sum(q, W[p, q] * g[q]), sigma[p])\n",
        sides(axis("x", 4), axis("z", 3), level("p", 3)),
        COREGIONAL,
        lambda a, b, p: (
            (p["W"] @ np.diag([1.0, 2.0]) @ p["W"].T)[np.ix_(a["p"].astype(int) - 1, b["p"].astype(int) - 1)]
            * rbf(a["x"], b["x"], p["ell"])
            * matern32(a["z"], b["z"], p["kappa"][0])
        ),
        OWN,
        wide="p",
        lengths=(3, 4, 3),
    ),
    "outputs apart": Case(
        OUTPUTS.replace("param W[p, q] : real = 1\n", "").replace(
            "index p in 1..3\n", "index p in 1..3\noutput y[p] : real\ninput z : real\n"
        )
        + "latent f[p](x, z) ~ GP(0, kappa[p] * RBF(ell, on = x) * RBF(1, on = z))\ny[p] ~ Normal(f[p], sigma[p])\n",
        sides(axis("x", 4), axis("z", 5), level("p", 3)),
        {name: COREGIONAL[name] for name in ("kappa", "ell", "sigma")},
        lambda a, b, p: (
            np.diag(p["kappa"])[np.ix_(a["p"].astype(int) - 1, b["p"].astype(int) - 1)]
            * rbf(a["x"], b["x"], p["ell"])
            * rbf(a["z"], b["z"], 1.0)
        ),
        OWN,
        wide="p",
        lengths=(3, 4, 5),
    ),
}


def crossed(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Every combination of what stands side by side, the last running fastest."""
    lengths = [len(next(iter(each.values()))) for each in parts]
    places = np.indices(lengths).reshape(len(parts), -1)
    return {name: values[at] for each, at in zip(parts, places, strict=True) for name, values in each.items()}


def drawn(case: Case, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], Points, np.ndarray]:
    """The data in any order of rows, where each value stands, and the values."""
    parts = case.sides(rng)
    wide = [each for each in parts if case.wide in each]
    rows = crossed([each for each in parts if case.wide not in each])
    order = rng.permutation(len(next(iter(rows.values()))))
    rows = {name: values[order] for name, values in rows.items()}
    count = len(order)
    outputs = len(wide[0][case.wide]) if wide else 1
    at = {name: np.repeat(values, outputs) for name, values in rows.items()}
    if wide:
        at[case.wide] = np.tile(wide[0][case.wide], count)
    y = rng.standard_normal(count * outputs)
    data = {**rows, "y": y.reshape(count, outputs) if wide else y}
    return data, at, y


def dense(case: Case, at: Points, y: np.ndarray, p: Parameters) -> tuple[float, np.ndarray]:
    noise = np.broadcast_to(case.noise(at, p), y.shape)
    covariance = case.covariance(at, at, p) + np.diag(noise**2)
    return float(multivariate_normal.logpdf(y, np.full(len(y), case.mean), covariance)), covariance


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "GRID_VALUES", 1)


def moved(p: Parameters, name: str, place: tuple[int, ...], step: float) -> Parameters:
    values = np.array(p[name], float)
    values[place] += step
    return {**p, name: values}


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("name", CASES)
def test_evidence_and_slopes(rng: np.random.Generator, name: str) -> None:
    case = CASES[name]
    data, at, y = drawn(case, rng)
    problem = problem_of(gpdsl.compile(case.text), data, init=case.parameters)
    assert problem.choice.grid == case.lengths
    value, slope = ExactProfile(problem, None)(problem.parameters)  # type: ignore[arg-type]
    assert value == pytest.approx(dense(case, at, y, case.parameters)[0], abs=1e-9)
    declared = problem.program.declarations.params
    for each, known in case.parameters.items():
        for place in np.ndindex(np.shape(known)):
            up, down = (dense(case, at, y, moved(case.parameters, each, place, h))[0] for h in (1e-5, -1e-5))
            found = np.asarray(slope[each])[place]
            own = np.asarray(known, float)[place] if declared[each].constraint == "positive" else 1.0
            assert found == pytest.approx(own * (up - down) / 2e-5, abs=1e-6, rel=1e-6), (each, place)


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("name", CASES)
def test_predictions(rng: np.random.Generator, name: str) -> None:
    case = CASES[name]
    data, at, y = drawn(case, rng)
    fit = gpdsl.compile(case.text).fit(data, init=case.parameters, fixed=list(case.parameters))
    value, covariance = dense(case, at, y, case.parameters)
    assert fit.elbo == pytest.approx(value, abs=1e-9)
    assert fit.choice.grid == case.lengths
    inputs = [each for each in at if each != case.wide]
    levels = {"d": 3}
    new = {n: rng.integers(1, 4, 7).astype(float) if n in levels else rng.uniform(0, 3, 7) for n in inputs}
    outputs = y.size // len(data["y"])
    there = {n: np.repeat(values, outputs) for n, values in new.items()}
    if case.wide:
        there[case.wide] = np.tile(np.arange(1.0, outputs + 1), 7)
    cross = case.covariance(there, at, case.parameters)
    mean = case.mean + cross @ np.linalg.solve(covariance, y - case.mean)
    among = case.covariance(there, there, case.parameters) - cross @ np.linalg.solve(covariance, cross.T)
    noise = np.broadcast_to(case.noise(there, case.parameters), mean.shape)
    prediction = fit.predict(new)
    shape = (7, outputs) if case.wide else (7,)
    np.testing.assert_allclose(prediction.mean("y"), mean.reshape(shape), atol=1e-9)
    np.testing.assert_allclose(prediction.variance("y"), (np.diag(among) + noise**2).reshape(shape), atol=1e-9)
    joint = np.asarray(prediction.covariance("y")).reshape(len(mean), -1)
    np.testing.assert_allclose(joint, among + np.diag(noise**2), atol=1e-9)
    if not case.wide:
        (one,), units = fit.at_rows.inverses(), np.broadcast_to(case.noise(at, case.parameters), y.shape)
        b, z = covariance / np.outer(units, units), (y - case.mean) / units
        np.testing.assert_allclose(one.diagonal, np.diag(np.linalg.inv(b))[one.rows], rtol=1e-7)
        np.testing.assert_allclose(one.alpha, np.linalg.solve(b, z)[one.rows], rtol=1e-6, atol=1e-9)
        assert one.spread == pytest.approx(np.trace(b) - b.sum() / len(z), rel=1e-8)


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("change", ["a cell less", "a row twice", "a value not seen", "noise of each row"])
def test_what_is_no_grid_is_as_it_was(rng: np.random.Generator, change: str) -> None:
    case = CASES["two sides"]
    data, _, _ = drawn(case, rng)
    text, extra = case.text, {}
    if change == "a cell less":
        data = {name: values[1:] for name, values in data.items()}
    elif change == "a row twice":
        data = {name: np.append(values, values[3]) for name, values in data.items()}
    elif change == "a value not seen":
        data["y"][4] = np.nan
    else:
        text = text.replace("input t", "input noise : positive\ninput t").replace("sigma)", "sigma * noise)")
        extra = {"noise": rng.uniform(1, 2, 30)}
    problem = problem_of(gpdsl.compile(text), {**data, **extra}, init=case.parameters)
    assert problem.choice.grid == ()
    assert problem.choice.exact == (int(np.isfinite(data["y"]).sum()),)


def test_sides_of_points(rng: np.random.Generator) -> None:
    """Places by one column that does not vary, pairs that are no grid, and a third column across all of them."""
    places = np.array([[0.0, 1.0], [0.0, 2.0], [1.0, 1.0], [3.0, 5.0]])
    points = np.array([[7.0, *place, u] for place in places for u in (1.0, 4.0, 9.0)])[rng.permutation(12)]
    apart = [frozenset({k}) for k in range(4)]
    found = _sides(points, apart)
    assert found is not None
    assert {columns: int(codes.max()) + 1 for columns, codes in found} == {
        frozenset({0}): 1,
        frozenset({1, 2}): 4,
        frozenset({3}): 3,
    }
    assert len(_sides(points[1:], apart) or ()) == 2
    assert _sides(points[[0, *range(12)]], apart) is None


def test_slopes_are_those_of_the_whole_matrix(rng: np.random.Generator) -> None:
    """Of matrices with equal eigenvalues, and of one by one, by automatic differentiation of a Cholesky factor."""
    roots = [rng.standard_normal((n, n)) for n in (1, 4, 3)]
    matrices = [jnp.asarray(root @ root.T) for root in roots[:2]] + [2.0 * jnp.eye(3)]
    z = jnp.asarray(rng.standard_normal((1, 4, 3)))

    def whole(matrices: list[Any], z: Any) -> Any:
        everything = jnp.kron(jnp.kron(matrices[0], matrices[1]), matrices[2]) + jnp.eye(12)
        factor = jnp.linalg.cholesky(everything)
        half = jnp.linalg.solve(factor, z.ravel())
        return -0.5 * half @ half - jnp.sum(jnp.log(jnp.diag(factor)))

    found, expected = (jax.value_and_grad(each, argnums=(0, 1))(matrices, z) for each in (log_normal_on_grid, whole))
    np.testing.assert_allclose(found[0], expected[0], atol=1e-12)
    for one, other in zip(jax.tree.leaves(found[1]), jax.tree.leaves(expected[1]), strict=True):
        np.testing.assert_allclose(one + one.T, other + other.T, atol=1e-10)


SIMULATED = CASES["two sides"].text


def simulated(rng: np.random.Generator, rows: int, columns: int) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """A draw over a grid, from the roots of both sides."""
    true = {"s2": 1.5, "ell": 0.4, "r": 0.9, "sigma": 0.3}
    t, s = np.linspace(0, 6, rows), np.linspace(0, 9, columns)
    left = np.linalg.cholesky(rbf(t, t, true["ell"]) + 1e-9 * np.eye(rows))
    right = np.linalg.cholesky(matern32(s, s, true["r"]))
    f = np.sqrt(true["s2"]) * left @ rng.standard_normal((rows, columns)) @ right.T
    y = 0.4 + f + true["sigma"] * rng.standard_normal(f.shape)
    order = rng.permutation(rows * columns)
    at = {"t": np.repeat(t, columns)[order], "s": np.tile(s, rows)[order]}
    return {**at, "y": y.ravel()[order]}, true


@pytest.mark.slow
def test_ten_thousand_values_are_exact_and_give_the_parameters_back(rng: np.random.Generator, tmp_path: Path) -> None:
    data, true = simulated(rng, 100, 100)
    model = gpdsl.compile(SIMULATED)
    assert "a complete grid of 100 x 100" in model.explain(data)
    fit = model.fit(data)
    assert "exact, of 10000 observed values, on a grid of 100 x 100" in fit.summary()
    for name, value in true.items():
        assert float(fit.parameters[name]) == pytest.approx(value, rel=0.2), name
    assert float(fit.parameters["sigma"]) == pytest.approx(true["sigma"], rel=0.03)
    new = {"t": np.array([0.31, 2.0, 7.0]), "s": np.array([4.4, 0.1, 1.0])}
    prediction = fit.predict(new)
    fit.save(tmp_path / "grid.gpfit")
    again = gpdsl.load_fit(tmp_path / "grid.gpfit").predict(new)
    np.testing.assert_array_equal(again.mean("y"), prediction.mean("y"))
    np.testing.assert_array_equal(again.variance("y"), prediction.variance("y"))
    assert np.all(prediction.variance("f")[:2] < 0.5) and prediction.variance("f")[2] > 0.8


@pytest.mark.slow
@pytest.mark.usefixtures("any_size")
def test_slopes_draws_and_conditions_are_those_of_dense_inference(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES["two sides"]
    text = case.text + "let slope = D(f, t)\nlet bend = slope - 2 * D(f, s)\n"
    data, _, _ = drawn(case, rng)
    given = {"init": case.parameters, "fixed": list(case.parameters)}
    fit = gpdsl.compile(text).fit(data, **given)
    monkeypatch.setattr(engine, "GRID_VALUES", 10**9)
    dense_fit = gpdsl.compile(text).fit(data, **given)
    assert fit.choice.grid and not dense_fit.choice.grid
    new = {"t": rng.uniform(0, 3, 4), "s": rng.uniform(0, 3, 4)}
    one, other = fit.predict(new), dense_fit.predict(new)
    for name in ("f", "slope", "bend", "y"):
        np.testing.assert_allclose(one.mean(name), other.mean(name), atol=1e-9)
        np.testing.assert_allclose(one.variance(name), other.variance(name), atol=1e-9)
        np.testing.assert_allclose(one.covariance(name), other.covariance(name), atol=1e-8)
    known = {"t": np.array([1.0, 2.5]), "s": np.array([0.3, 0.4]), "y": np.array([0.2, -0.4])}
    conditioned = [each.predict(new, given=known) for each in (fit, dense_fit)]
    np.testing.assert_allclose(*(each.covariance("f") for each in conditioned), atol=1e-8)
    drawn_ones = [each.draw_functions(3, seed=1)(new, "slope") for each in (fit, dense_fit)]
    np.testing.assert_allclose(*drawn_ones, atol=1e-7)
    left = [each.loo(data).pointwise for each in (fit, dense_fit)]
    np.testing.assert_allclose(*left, atol=1e-8)
    one_of, other_of = (next(iter(each.at_rows.inverses())) for each in (fit, dense_fit))
    told = [np.sort(np.concatenate(each[:2], axis=None)) for each in (one_of, other_of)]
    np.testing.assert_allclose(*told, atol=1e-9)
    assert one_of.spread == pytest.approx(other_of.spread, rel=1e-8)


@pytest.mark.usefixtures("any_size")
def test_it_starts_no_variational_fit_and_single_precision_is_near(rng: np.random.Generator) -> None:
    case = CASES["two sides"]
    data, _, _ = drawn(case, rng)
    model, held = gpdsl.compile(case.text), {"init": case.parameters, "fixed": list(case.parameters)}
    fit, rough = model.fit(data, **held), model.fit(data, dtype="float32", **held)
    assert rough.choice.grid and rough.elbo == pytest.approx(fit.elbo, abs=1e-3)
    np.testing.assert_allclose(rough.predict(data).mean("f"), fit.predict(data).mean("f"), atol=1e-3)
    assert model.fit(data, start=fit).elbo >= fit.elbo - 1e-6
    with pytest.raises(gpdsl.GpdslError, match=r"values on a grid starts no fit .* init = fit\.parameters"):
        model.fit(data, start=fit, inducing=5)


DAMAGES: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "another side": ("regression.0.grid", lambda a: a + [9, 0, 0, 0]),
    "no side": ("regression.0.grid", lambda a: a * [0, 1, 1, 1]),
    "columns that are not there": ("regression.0.grid", lambda a: a + 3),
    "a column twice": ("regression.0.grid", lambda a: a * [1, 0, 0, 0]),
    "not of all elements": ("regression.0.grid", lambda a: a[:-1]),
    "no grid": ("inducing.0.0", lambda a: a + 0.01 * np.arange(len(a))[:, None]),
}


@pytest.mark.usefixtures("any_size")
def test_a_file_whose_values_are_on_no_grid_is_damaged(rng: np.random.Generator, tmp_path: Path) -> None:
    case = CASES["outputs side by side"]
    data, _, _ = drawn(case, rng)
    fit = gpdsl.compile(case.text).fit(data, init=case.parameters, fixed=list(case.parameters))
    fit.save(tmp_path / "a.gpfit")
    with safe_open(tmp_path / "a.gpfit", framework="numpy") as handle:
        arrays = {key: handle.get_tensor(key) for key in handle.keys()}  # noqa: SIM118
        header = handle.metadata()
    new = {"x": rng.uniform(0, 3, 4)}
    np.testing.assert_array_equal(
        gpdsl.load_fit(tmp_path / "a.gpfit").predict(new).mean("y"), fit.predict(new).mean("y")
    )
    for name, change in DAMAGES.values():
        changed = {**arrays, name: np.ascontiguousarray(change(arrays[name]))}
        save_file(changed, tmp_path / "b.gpfit", header)
        with pytest.raises(gpdsl.GpdslError, match="damaged"):
            gpdsl.load_fit(tmp_path / "b.gpfit")
    save_file({name: a for name, a in arrays.items() if not name.endswith(".grid")}, tmp_path / "b.gpfit", header)
    with pytest.raises(gpdsl.GpdslError, match="damaged"):
        gpdsl.load_fit(tmp_path / "b.gpfit")


def test_rows_of_many_places_are_not_searched_for_a_grid(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at the first rows tells that a side would be too long; with `inducing = 0` any length may be asked for."""
    looked: list[bool] = []
    monkeypatch.setattr("gpdsl.inference.exact.engine.gridded", lambda *given: looked.append(True))
    text = "input x : real[2]\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.1)"
    side = np.linspace(0, 1, 60)
    apart = {"x": rng.standard_normal((3_600, 2)), "y": rng.standard_normal(3_600)}
    grid = {**apart, "x": np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)}
    for data, options, expected in ((apart, {}, 0), (apart, {"inducing": 0}, 1), (grid, {}, 1)):
        looked.clear()
        gpdsl.compile(text).explain(data, **options)
        assert len(looked) == expected


def test_explain_says_which_values_keep_rows_from_a_grid() -> None:
    side, other = np.linspace(1.1, 7.3, 40), np.linspace(2.0, 9.0, 30)
    t, p = (each.ravel() for each in np.meshgrid(side, other))
    model = gpdsl.compile(
        "model m\ninput t : real\ninput p : real\noutput y : real\n"
        "latent f(t, p) ~ GP(0, RBF(1, on = t) * Matern32(2, on = p))\ny ~ Normal(f, 0.2)\n"
    )
    moved = t.copy()
    moved[5] = np.nextafter(t[5], 9)
    told = " ".join(model.explain({"t": moved, "p": p, "y": np.sin(t)}).split())
    assert f"nearly equal values are not equal: `t` has {t[5]} and {moved[5]}" in told
    for at in (t, np.where(np.arange(1200) == 5, 1.2345, t)):
        assert "nearly equal" not in model.explain({"t": at, "p": p, "y": np.sin(t)})


def test_rows_are_nearly_a_grid_where_places_that_differ_are_no_more_than_cells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On three sides of two places each, one of them written in two ways; four rows are half of it."""
    monkeypatch.setattr(grids, "separable", lambda _: True)
    sides = np.stack(np.meshgrid(*[[1.0, 2.0]] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    sides[0, 1] += 1e-12
    program: Any = SimpleNamespace(groups=[SimpleNamespace(inputs=("a", "b", "c"))])
    for some, said in ((slice(None), True), ([0, 1, 3, 7], False)):
        inputs = dict(zip("abc", sides[some].T, strict=True))
        found = grids.near_grid(program, cast(Any, SimpleNamespace(inputs=inputs, rows=len(inputs["a"]))))
        assert ("`b` has 1.0 and 1.000000000001" in found) == said and bool(found) == said
    spread: Any = SimpleNamespace(inputs=dict(zip("abc", np.floor(sides).T, strict=True)), rows=8)
    assert grids.near_grid(program, spread) == ""
