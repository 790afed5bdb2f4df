"""Values on a complete grid: evidence, slopes and predictions are those of dense linear algebra."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import gpdsl
from gpdsl.inference.exact import engine
from gpdsl.inference.exact.engine import ExactProfile
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
        lambda a, b, p: p["s2"]
        * rbf(a["t"], b["t"], p["ell"][0])
        * rbf(a["s"], b["s"], p["ell"][1])
        * rbf(a["u"], b["u"], p["ell"][2]),
        lambda d, p: p["sigma"] * (1 + p["r"] * d["t"] ** 2),
        lengths=(3, 4, 5),
    ),
    "places and times": Case(
        HEAD.replace("param r", "input u : real\nparam r")
        + "latent f(t, s, u) ~ GP(0, s2 * RBF(ell, on = [t, s]) * (Matern32(r, on = u) + Linear(2, on = u)))\n"
        + "y ~ Normal(f, sigma)\n",
        sides(stations, axis("u", 5)),
        SPREAD,
        lambda a, b, p: p["s2"]
        * rbf(a["t"], b["t"], p["ell"])
        * rbf(a["s"], b["s"], p["ell"])
        * (matern32(a["u"], b["u"], p["r"]) + np.multiply.outer(a["u"], b["u"]) / 4),
        lambda d, p: p["sigma"],
        lengths=(6, 5),
    ),
    "equal eigenvalues and a side of one": Case(
        HEAD.replace("param r", "input u : real\nparam r")
        + "latent f(t, s, u) ~ GP(0, s2 * Periodic(ell, 1, on = t) * Constant() * RBF(r, on = u))\n"
        + "y ~ Normal(f, sigma)\n",
        sides(lambda rng: {"t": np.arange(6) / 6}, axis("s", 5), axis("u", 1)),
        SPREAD,
        lambda a, b, p: p["s2"] * periodic(a["t"], b["t"], p["ell"], 1.0) * rbf(a["u"], b["u"], p["r"]),
        lambda d, p: p["sigma"],
        lengths=(6, 5, 1),
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
        + "y[p] ~ Normal(f(x, p), sigma[p])\n",
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
        lambda a, b, p: (p["W"] @ np.diag([1.0, 2.0]) @ p["W"].T)[np.ix_(a["p"].astype(int) - 1, b["p"].astype(int) - 1)]
        * rbf(a["x"], b["x"], p["ell"])
        * matern32(a["z"], b["z"], p["kappa"][0]),
        OWN,
        wide="p",
        lengths=(3, 4, 3),
    ),
    "outputs apart": Case(
        OUTPUTS.replace("param W[p, q] : real = 1\n", "").replace("index p in 1..3\n", "index p in 1..3\noutput y[p] : real\ninput z : real\n")
        + "latent f[p](x, z) ~ GP(0, kappa[p] * RBF(ell, on = x) * RBF(1, on = z))\ny[p] ~ Normal(f[p], sigma[p])\n",
        sides(axis("x", 4), axis("z", 5), level("p", 3)),
        {name: COREGIONAL[name] for name in ("kappa", "ell", "sigma")},
        lambda a, b, p: np.diag(p["kappa"])[np.ix_(a["p"].astype(int) - 1, b["p"].astype(int) - 1)]
        * rbf(a["x"], b["x"], p["ell"])
        * rbf(a["z"], b["z"], 1.0),
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
    domains = problem.program.parameters.bijectors
    for each, known in case.parameters.items():
        for place in np.ndindex(np.shape(known)):
            up, down = (dense(case, at, y, moved(case.parameters, each, place, h))[0] for h in (1e-5, -1e-5))
            found = np.asarray(slope[each])[place]
            own = np.asarray(known, float)[place] if domains[each].domain.startswith("pos") else 1.0
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
