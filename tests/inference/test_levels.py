"""`latent f(x, d)` over an index: one process that a row reads at every value of `d`, against dense algebra."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import gpdsl
from gpdsl.program.rows import Scope
from tests.inference.problems import problem_of

WIDE = """
index d in 1..D
index r in 1..1
input x : real
output y[d] : real
param W[d, r] : real
param kappa[d] : positive
param mu[d] : real
latent f(x, d) ~ GP(mu[d] + 0.5 * d * x, RBF(0.7, on = x) * Coregion(W, kappa, on = d))
let both = f[1] * f[2]
let more = f[2] - f[1]
y[d] ~ Normal(f[d], 0.3)
"""
LONG = """
index d in 1..D
index r in 1..1
input x : real
input task : label[d]
output y : real
param W[d, r] : real
param kappa[d] : positive
param mu[d] : real
const slope[d] = [0.5, 1]
latent f(x, task) ~ GP(mu[task] + slope[task] * x, RBF(0.7, on = x) * Coregion(W, kappa, on = task))
y ~ Normal(f, 0.3)
"""
RNG = np.random.default_rng(np.random.SeedSequence(20))
ROWS = 9
NEW = {"x": np.array([-0.4, 1.9])}
NUMBERS: dict[str, Any] = {
    "W": RNG.normal(size=(2, 1)),
    "kappa": RNG.uniform(0.2, 1.0, 2),
    "mu": RNG.normal(size=2),
}
HELD: dict[str, Any] = {"init": NUMBERS, "fixed": [*NUMBERS]}
X, Y = RNG.uniform(-2, 2, ROWS), RNG.normal(size=(ROWS, 2))
Y[[1, 4, 4], [0, 0, 1]] = np.nan
BETWEEN = NUMBERS["W"] @ NUMBERS["W"].T + np.diag(NUMBERS["kappa"])


def along(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * (a[:, None] - b[None, :]) ** 2 / 0.7**2)


def mean(x: np.ndarray) -> np.ndarray:
    return NUMBERS["mu"] + 0.5 * np.arange(1, 3) * x[:, None]


class Dense:
    """The regression on all values that are known, from the Kronecker product of both covariances."""

    def __init__(self) -> None:
        known = np.isfinite(Y.ravel())
        self.gap = (Y - mean(X)).ravel()[known]
        self.noisy = (np.kron(along(X, X), BETWEEN) + 0.09 * np.eye(2 * ROWS))[np.ix_(known, known)]
        cross = np.kron(along(X, NEW["x"]), BETWEEN)[known]
        told = np.linalg.solve(self.noisy, cross)
        self.mean = mean(NEW["x"]) + (told.T @ self.gap).reshape(2, 2)
        left = np.kron(along(NEW["x"], NEW["x"]), BETWEEN) - cross.T @ told
        self.covariance = left.reshape(2, 2, 2, 2)  # row, level, row, level

    @property
    def evidence(self) -> float:
        whole = self.gap @ np.linalg.solve(self.noisy, self.gap) + np.linalg.slogdet(2 * np.pi * self.noisy)[1]
        return float(-0.5 * whole)


DENSE = Dense()


@pytest.fixture(scope="module")
def fit() -> gpdsl.Fit:
    return gpdsl.compile(WIDE).fit({"x": X, "y": Y}, **HELD)


def test_evidence_and_predictions_are_those_of_dense_algebra(fit: gpdsl.Fit) -> None:
    """With missing outputs, and quantities that depend on two levels, whose covariance counts."""
    assert fit.elbo == pytest.approx(DENSE.evidence, abs=1e-8)
    prediction = fit.predict(NEW)
    own = np.stack([DENSE.covariance[k, :, k] for k in range(2)])
    np.testing.assert_allclose(prediction.mean("f"), DENSE.mean, atol=1e-8)
    np.testing.assert_allclose(prediction.variance("f"), np.einsum("kdd->kd", own), atol=1e-8)
    np.testing.assert_allclose(prediction.variance("y"), np.einsum("kdd->kd", own) + 0.09, atol=1e-8)
    np.testing.assert_allclose(prediction.mean("both"), DENSE.mean.prod(axis=1) + own[:, 0, 1], atol=1e-8)
    apart = own[:, 0, 0] + own[:, 1, 1] - 2 * own[:, 0, 1]
    np.testing.assert_allclose(prediction.variance("more"), apart, atol=1e-8)


def test_rows_and_levels_are_drawn_together(fit: gpdsl.Fit, tmp_path: Path) -> None:
    """Covariances between rows and levels; drawn functions; a fit that was saved."""
    prediction = fit.predict(NEW)
    np.testing.assert_allclose(prediction.covariance("f"), DENSE.covariance, atol=1e-8)
    functions = fit.draw_functions(3, seed=1)
    values = functions(NEW, "f")
    assert values.shape == (3, 2, 2)
    np.testing.assert_allclose(functions(NEW, "more"), values[..., 1] - values[..., 0], atol=1e-12)
    fit.save(tmp_path / "levels.gpfit")
    again = gpdsl.load_fit(tmp_path / "levels.gpfit").predict(NEW)
    np.testing.assert_array_equal(again.mean("f"), prediction.mean("f"))


def test_a_row_for_each_value_is_the_same_model(fit: gpdsl.Fit) -> None:
    """In long format, where a label says the level."""
    row, level = np.nonzero(np.isfinite(Y))
    told = gpdsl.compile(LONG).fit({"x": X[row], "task": level + 1, "y": Y[row, level]}, **HELD)
    assert told.elbo == pytest.approx(fit.elbo, abs=1e-8)
    new = {"x": np.repeat(NEW["x"], 2), "task": np.tile([1, 2], 2)}
    np.testing.assert_allclose(told.predict(new).mean("f"), fit.predict(NEW).mean("f").ravel(), atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(("options", "gap"), [({"optimizer": "natural"}, 1e-4), ({"engine": "ep"}, 1e-4)])
def test_other_engines_find_the_evidence(options: dict[str, Any], gap: float) -> None:
    found = gpdsl.compile(WIDE).fit({"x": X, "y": Y}, **HELD, **options)
    assert found.elbo == pytest.approx(DENSE.evidence, abs=gap)
    np.testing.assert_allclose(found.predict(NEW).mean("f"), DENSE.mean, atol=1e-3)


@pytest.mark.slow
def test_inducing_points_over_rows_and_levels_stay_below_the_evidence() -> None:
    """More of them than rows are possible; with as many as values nothing is lost."""
    bounds = [gpdsl.compile(WIDE).fit({"x": X, "y": Y}, **HELD, inducing=count).elbo for count in (5, 2 * ROWS)]
    assert bounds[0] < bounds[1] - 0.1
    assert bounds[1] == pytest.approx(DENSE.evidence, abs=1e-3)
    assert bounds[1] <= DENSE.evidence + 1e-6


@pytest.mark.slow
def test_a_term_of_two_levels_reads_their_covariance() -> None:
    """As where the levels are columns of the data that say the same in every row."""
    levels = """
    index d in 1..2
    input x : real
    input one : positive
    input two : positive
    output n : count
    output z : real
    const W[d] = [0.8, -0.5]
    const kappa[d] = [0.3, 0.6]
    {latent} ~ GP(0.4, RBF(0.7, on = x) * Coregion({loadings}, kappa, on = {level}))
    n ~ Poisson(exp({first} + 0.5 * {second}))
    z ~ Normal({first} * {second}, 0.5)
    """
    levels = levels.replace("const W[d] = [0.8, -0.5]", "index r in 1..1\n    const W[d, r] = [[0.8], [-0.5]]")
    written = levels.format(latent="latent f(x, d)", loadings="W", level="d", first="f[1]", second="f[2]")
    columns = levels.format(latent="latent f(x, one)", loadings="W", level="one", first="f", second="f(x, two)")
    counts, unseen = RNG.poisson(2.0, ROWS).astype(float), np.nan  # in the last row, the levels are the other ones
    data = {
        "x": np.append(X, 0.0),
        "one": np.append(np.ones(ROWS), 2.0),
        "two": np.append(np.full(ROWS, 2.0), 1.0),
        "n": np.append(counts, unseen),
        "z": np.append(Y[:, 1], unseen),
    }
    fits = [gpdsl.compile(text).fit(data, engine="vi") for text in (written, columns)]
    assert fits[0].elbo == pytest.approx(fits[1].elbo, abs=1e-6)


@pytest.mark.slow
def test_a_label_of_the_index_says_the_level_of_a_row() -> None:
    """`f[task]` beside `f[d]`: both are the same process."""
    text = WIDE.replace("output y[d] : real", "input task : label[d]\noutput y[d] : real\noutput z : real")
    text += "z ~ Normal(f[task], 0.3)\n"
    task = np.resize([1, 2], ROWS)
    z = np.where(np.arange(ROWS) < 4, RNG.normal(size=ROWS), np.nan)
    found = gpdsl.compile(text).fit({"x": X, "task": task, "y": Y, "z": z}, **HELD)
    points = np.concatenate([np.repeat(X, 2), X[:4]])
    level = np.concatenate([np.tile([0, 1], ROWS), task[:4] - 1])
    values = np.concatenate([Y.ravel(), z[:4]]) - mean(points)[np.arange(len(points)), level]
    known = np.isfinite(values)
    points, level, values = points[known], level[known], values[known]
    noisy = along(points, points) * BETWEEN[np.ix_(level, level)] + 0.09 * np.eye(len(points))
    whole = values @ np.linalg.solve(noisy, values) + np.linalg.slogdet(2 * np.pi * noisy)[1]
    assert found.elbo == pytest.approx(-0.5 * whole, abs=1e-8)
    prediction = found.predict({"x": NEW["x"], "task": [2, 1]})
    assert prediction.mean("f").shape == (2, 2)


@pytest.mark.slow
def test_slopes_of_one_level() -> None:
    """A kernel of levels is no line, but the other factor is: `D(f[1], x)` is the slope along `x`."""
    text = WIDE.replace("y[d] ~ Normal(f[d], 0.3)", "y[1] ~ Normal(f[1], 0.3)\ny[2] ~ Normal(D(f[2], x), 0.3)")
    known = np.isfinite(Y).all(axis=1)
    x, y = X[known], Y[known]
    found = gpdsl.compile(text).fit({"x": x, "y": y}, **HELD)
    gap, between = x[:, None] - x[None, :], along(x, x)
    slope = gap / 0.7**2 * between  # of f(x) with f'(x'), along the second point
    both = (1 / 0.7**2 - gap**2 / 0.7**4) * between
    noisy = np.block(
        [[BETWEEN[0, 0] * between, BETWEEN[0, 1] * slope], [BETWEEN[0, 1] * slope.T, BETWEEN[1, 1] * both]]
    )
    noisy += 0.09 * np.eye(len(noisy))
    values = np.concatenate([y[:, 0] - mean(x)[:, 0], y[:, 1] - 1.0])
    whole = values @ np.linalg.solve(noisy, values) + np.linalg.slogdet(2 * np.pi * noisy)[1]
    assert found.elbo == pytest.approx(-0.5 * whole, abs=1e-8)


def test_a_simulation_has_the_covariance_of_the_levels() -> None:
    """Rows far apart are independent draws of the vector of levels."""
    rows, numbers = 500, {**NUMBERS, "mu": [3.0, -1.0]}
    drawn = gpdsl.compile(WIDE).sample_prior(
        inputs={"x": 0.0 * np.arange(rows) + 50.0 * np.arange(rows) / 0.7}, sizes={"D": 2}, parameters=numbers, seed=3
    )
    x = drawn.data["x"]
    around = drawn.latents["f"] - np.array([3.0, -1.0]) - 0.5 * np.arange(1, 3) * x[:, None]
    error = np.sqrt(2 / rows) * np.max(np.diag(BETWEEN))
    np.testing.assert_allclose(np.cov(around.T), BETWEEN, atol=4 * error)  # five numbers, 1 in 10^4 each
    np.testing.assert_allclose(drawn.lets["more"], drawn.latents["f"][:, 1] - drawn.latents["f"][:, 0])


def test_too_many_levels_of_the_data() -> None:
    with pytest.raises(gpdsl.GpdslError, match="E388"):
        gpdsl.compile(WIDE).fit({"x": X, "y": np.zeros((ROWS, 33))})


OF_LEVELS = """
index k in 1..3
index r in 1..2
input x : real
input v : real[3]
input level : label[k]
input n : real
output y : real
const e[k] = [1, 2, 4]
param a[k] : real = [0.5, -1, 2]
param c[r, k] : real = 0.3
latent f(x) ~ GP(0, RBF(0.7))
latent g(x) ~ GP(0, RBF(2))
"""
FORMS = {
    "let h[k] = a[k] * f + k": "a[level] * f + n",
    "let h[k] = if k == 1 then f else a[2] * f + g": "if n == 1 then f else a[2] * f + g",
    "let h[1] = 0\nlet h[k > 1] = a[k] + f": "if n == 1 then 0 else a[level] + f",
    "let h[1] = a[1]\nlet h[k > 1] = h[k - 1] + e[k] * f": (
        "a[1] + (if n > 1 then e[2] * f else 0) + (if n > 2 then e[3] * f else 0)"
    ),
    "let b[r, k] = c[r, k] + r * f\nlet h[k] = sum(r, b[r, k])": "c[1, level] + c[2, level] + 3 * f",
    "let h[k] = v[k] + f": "v[level] + f",
}


@pytest.mark.parametrize("let", FORMS)
def test_a_let_of_levels_is_read_at_the_level_of_the_row(let: str) -> None:
    """The mean of each row beside the same written with the number of the level in another column."""
    level, rng = np.arange(ROWS) % 3 + 1, np.random.default_rng(5)
    data = {"x": X, "v": rng.normal(size=(ROWS, 3)), "level": level, "n": level, "y": Y[:, 0]}
    latents, found = rng.normal(size=(ROWS, 2)), []
    for body in (f"{let}\ny ~ Normal(h[level] + 0.1 * g, 0.3)\n", f"y ~ Normal(({FORMS[let]}) + 0.1 * g, 0.3)\n"):
        problem = problem_of(OF_LEVELS + body, data)
        program, parameters = problem.program, problem.program.parameters.constrain(problem.parameters)
        (observation,) = program.observations
        mean = observation.law.arguments["mean"]  # type: ignore[union-attr]
        found.append(program.evaluator(mean, Scope(parameters, problem.rows, jnp.asarray(latents))))
    np.testing.assert_allclose(*found, atol=1e-6)


def test_a_let_of_levels_is_fitted_and_predicted() -> None:
    level = np.arange(ROWS) % 3 + 1
    data, found = {"x": X, "v": np.zeros((ROWS, 3)), "level": level, "n": level, "y": Y[:, 0] + level}, []
    let = "let h[k] = if k == 1 then f else a[2] * f + g"
    for body in (f"{let}\ny ~ Normal(h[level], 0.3)\n", f"y ~ Normal({FORMS[let]}, 0.3)\n"):
        fit = gpdsl.compile(OF_LEVELS + body).fit(data, diagnose="no")
        found.append((fit.elbo, *fit.predict(data).mean("y")))
    np.testing.assert_allclose(*found, rtol=1e-6)


BUILT = """
index k in {"low", "mid", "high"}
input x : real
input level : label[k]
output y : real
param rho[k] : real = [1, 0.8, -1.5] fixed
param ell[k] : positive = [1, 0.5, 2] fixed
param s[k] : positive = [0.1, 0.2, 0.3] fixed
latent d[k](x) ~ GP(k, RBF(ell[k]))
let h[1] = d[1]
let h[k > 1] = rho[k] * h[k - 1] + d[k]
let gap = d[3] - d[level]
y ~ Normal(h[level], s[level])
"""


def test_levels_that_the_model_knows_build_on_each_other() -> None:
    """The autoregressive model of Kennedy and O'Hagan (2000) against dense algebra."""
    names, model = np.array(["low", "mid", "high"]), gpdsl.compile(BUILT)
    k, y = np.arange(ROWS) % 3, np.sin(X)
    loadings = np.array([[1, 0, 0], [0.8, 1, 0], [-1.2, -1.5, 1]])
    covariances = [np.exp(-0.5 * ((X[:, None] - X) / ell) ** 2) for ell in (1, 0.5, 2)]
    total = sum(np.outer(w[k], w[k]) * c for w, c in zip(loadings.T, covariances, strict=True))
    mean = loadings @ [1, 2, 3]
    noisy = total + np.diag(np.array([0.1, 0.2, 0.3])[k] ** 2)
    solved = np.linalg.solve(noisy, y - mean[k])
    evidence = -0.5 * (y - mean[k]) @ solved - 0.5 * np.linalg.slogdet(2 * np.pi * noisy)[1]

    fit = model.fit({"x": X, "level": names[k], "y": y}, diagnose="no")
    assert "exact" in fit.summary()
    assert fit.elbo == pytest.approx(evidence, abs=1e-4)
    cross = np.stack([covariances[j] * loadings[k, j] for j in range(3)])  # of d[j] with the rows
    d = np.array([1, 2, 3]) + (cross @ solved).T
    prediction = fit.predict({"x": X, "level": names[k]})
    np.testing.assert_allclose(prediction.mean("h"), d @ loadings.T, atol=1e-5)

    drawn = model.sample_prior({"x": X, "level": names[k]}, seed=1)
    d = drawn.latents["d"]
    np.testing.assert_allclose(drawn.lets["h"], d @ loadings.T)
    np.testing.assert_allclose(drawn.lets["gap"], d[:, 2] - d[np.arange(ROWS), k])
    assert np.all(np.abs(drawn.data["y"] - drawn.lets["h"][np.arange(ROWS), k]) < 1.5)


def test_a_name_alone_in_a_let_along_the_levels_is_the_element_of_each() -> None:
    head = BUILT.split("let h[1]")[0].replace("GP(k, RBF(ell[k]))", "GP(0, RBF(1))")
    alone = gpdsl.compile(head + "let twice[k] = 2 * d\ny ~ Normal(twice[level], 1)")
    assert alone.declarations.latents["d"].arguments == ("x",)
