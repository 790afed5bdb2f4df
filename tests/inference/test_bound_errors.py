"""Standard errors of sampled bounds are calibrated: over 80 seeds the scores (bound - truth) / error have unit spread.

The posterior is the one that a fit ended at; only what the bound is judged by is drawn anew. The spread of 80 scores
has a standard error of 0.08, so an error that is half or twice as large as it should be is far outside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl.inference.ascent import adam
from gpdsl.inference.fields.engine import FieldRun
from gpdsl.inference.opaque import simulated, stochastic
from gpdsl.inference.problem import Problem
from gpdsl.inference.quadruply_stochastic import engine as qsgp
from gpdsl.inference.sampling import some_rows_sum_and_error, sum_and_error

SEEDS = range(80)
Bound = tuple[float, float]
Judge = Callable[[int], Bound]

NOISY = """
input x : real
output y : real
latent f(x) ~ GP(0, RBF(1))
latent h(x) ~ GP(-1, 0.5 * RBF(2))
y ~ StudentT(4, f, exp(h))
"""
OPAQUE = """
input x : real
output y : real
external g(f: real) -> real
latent f(x) ~ GP(0, RBF(1))
y ~ Normal(g(f), 0.3)
"""
FIELD = """
index g in 1..3
input  path : real[g]
output t : real
const node[g] = lattice([0], [1], [3])
latent f(node) ~ GP(0, RBF(0.4))
t ~ StudentT(3, sum(g, path[g] * exp(f[g])), 0.3)
"""


def bent(f: np.ndarray) -> np.ndarray:
    return np.where(f > 0.2, f, -0.3 * f)


def rows(count: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    x = np.linspace(-3, 3, count)
    return {"x": x, "y": np.sin(2 * x) + 0.3 * rng.standard_t(4, count)}


def exact(fit: gpdsl.Fit, data: dict[str, np.ndarray]) -> float:
    """The bound of a fit of `OPAQUE` with `bent`: quadrature on either side of the kink, and the divergence."""
    prediction = fit.predict(data)
    mean, sd = prediction.mean("f"), np.sqrt(prediction.variance("f"))
    nodes, weights = np.polynomial.legendre.leggauss(60)
    total = 0.0
    for low, high in ((mean - 9 * sd, np.maximum(mean - 9 * sd, 0.2)), (np.maximum(mean - 9 * sd, 0.2), mean + 9 * sd)):
        f = 0.5 * (low + high)[:, None] + 0.5 * (high - low)[:, None] * nodes
        value = stats.norm.logpdf(data["y"][:, None], bent(f), 0.3) * stats.norm.pdf(f, mean[:, None], sd[:, None])
        total += np.sum(0.5 * (high - low) * (value @ weights))
    (q,) = fit.posterior
    root = q.root[0, 0]
    divergence = 0.5 * (np.sum(q.mean**2) + np.sum(root**2) - len(root)) - np.sum(np.log(np.abs(np.diag(root))))
    return float(total - divergence)


def assert_calibrated(fit: gpdsl.Fit, judge: Judge, truth: float | None = None) -> None:
    """`judge` gives the bound of the fit and its error by a seed; that of the fit, of seed 0, is what the fit says."""
    assert (fit.elbo, fit.elbo_se) == pytest.approx(judge(0), rel=1e-9)
    found = np.array([judge(each) for each in SEEDS])
    scores = (found[:, 0] - (found[:, 0].mean() if truth is None else truth)) / found[:, 1]
    assert abs(scores.mean()) < 0.3
    assert 0.8 < scores.std() < 1.25


@pytest.fixture
def reassessing(monkeypatch: pytest.MonkeyPatch) -> list[Judge]:
    """How the bounds of fits that follow are assessed on fresh samples, the last one last."""
    found: list[Judge] = []
    plain = Problem.reassessed

    def reassessed(problem: Problem, bound: Any, value: float) -> Bound:
        def judge(seed: int) -> Bound:
            return plain(replace(problem, options=replace(problem.options, seed=seed)), bound, value)

        found.append(judge)
        return plain(problem, bound, value)

    monkeypatch.setattr(Problem, "reassessed", reassessed)
    return found


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"posterior": "full"}, id="natural"),
        pytest.param({"posterior": "mixture(2)", "steps": 10}, id="mixture", marks=pytest.mark.slow),
        pytest.param({"posterior": "full", "batch": 5, "steps": 20}, id="minibatch"),
        pytest.param({"posterior": "coupled"}, id="coupled", marks=pytest.mark.slow),
        pytest.param(
            {"posterior": "full", "optimizer": "lbfgs", "steps": 10, "sampling": "antithetic"},
            id="gradient",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"posterior": "diagonal", "optimizer": "adam", "steps": 20, "sampling": "iid"},
            id="steps",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"posterior": "full", "schedule": "alternating", "steps": 3}, id="alternating", marks=pytest.mark.slow
        ),
    ],
)
def test_of_fresh_samples(reassessing: list[Judge], options: dict[str, Any]) -> None:
    fit = gpdsl.compile(NOISY).fit(rows(8), expectations="sampled", samples=16, inducing=4, **options)
    assert fit.elbo_se > 0.0
    # what the points lose is found by a dense fit, which is assessed after this one
    assert_calibrated(fit, min(reassessing, key=lambda judge: abs(judge(0)[0] - fit.elbo)))


@pytest.mark.slow
def test_of_samples_block_by_block(reassessing: list[Judge], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpdsl.inference.blocks.LARGE", 0)
    monkeypatch.setattr("gpdsl.inference.blocks.AT_ONCE", 0)
    options = {"expectations": "sampled", "samples": 4, "posterior": "full", "inducing": 3, "steps": 5}
    fit = gpdsl.compile(NOISY).fit(rows(80), optimizer="lbfgs", **options)
    assert_calibrated(fit, reassessing[-1])


def test_of_some_rows_with_weights_of_basis_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows without replacement: 60 of 100, which is where the correction for the finite number of them counts."""
    monkeypatch.setattr(qsgp, "ASSESSED_ROWS", 60)
    judges: list[Judge] = []
    plain = qsgp.assess

    def assess(problem: Problem, *state: Any) -> tuple[float, float, float]:
        judges.append(lambda seed: plain(replace(problem, options=replace(problem.options, seed=seed)), *state)[:2])
        return plain(problem, *state)

    monkeypatch.setattr(qsgp, "assess", assess)
    monkeypatch.setattr(Problem, "compiled", once(Problem.compiled))
    text = NOISY.replace("StudentT(4, f, exp(h))", "Normal(f, 0.3)").replace("latent h(x) ~ GP(-1, 0.5 * RBF(2))", "")
    fit = gpdsl.compile(text).fit(rows(100), engine="qsgp", features=8, steps=10, dtype="float64")
    assert_calibrated(fit, judges[-1])


def once(compiled: Any) -> Any:
    """`Problem.compiled` that compiles a function of one name and for arguments of the same shapes once."""
    known: dict[str, Any] = {}

    def compile_once(problem: Problem, function: Any, *arguments: Any, **how: Any) -> Any:
        name = getattr(function, "__qualname__", None)
        if name is None or not name.startswith("assess"):
            return compiled(problem, function, *arguments, **how)
        if name not in known:
            known[name] = compiled(problem, function, *arguments, **how)
        return known[name]

    return compile_once


@pytest.mark.parametrize(
    ("module", "options"),
    [
        pytest.param(stochastic, {"gradients": "score", "steps": 50, "evaluations": 9000}, id="one look"),
        pytest.param(stochastic, {"gradients": "score", "steps": 50}, id="stochastic", marks=pytest.mark.slow),
        pytest.param(adam, {"optimizer": "adam", "posterior": "mixture(2)"}, id="mixture", marks=pytest.mark.slow),
        pytest.param(
            adam,
            {"optimizer": "adam", "sampling": "iid", "batch": 5, "inducing": 4},
            id="minibatch",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_of_fresh_evaluations(monkeypatch: pytest.MonkeyPatch, module: Any, options: dict[str, Any]) -> None:
    monkeypatch.setattr("gpdsl.inference.opaque.budget.ASSESSED_ROWS", 20)
    judges: list[Judge] = []
    plain = module.fresh_bound

    def fresh_bound(problem: Problem, look: Any, seed: int) -> Bound | None:
        assert problem.program.account is not None
        spent, left = problem.program.account, problem.program.account.remaining

        def judge(seed: int) -> Bound:
            spent.budget = spent.evaluations + left
            return plain(problem, look, seed)

        judges.append(judge)
        return plain(problem, look, seed)

    monkeypatch.setattr(module, "fresh_bound", fresh_bound)
    data = rows(30)
    fit = gpdsl.compile(OPAQUE, externals={"g": bent}).fit(data, **{"samples": 12, "steps": 20, **options})
    assert_calibrated(fit, judges[-1], None if "optimizer" in options else exact(fit, data))


@pytest.mark.parametrize("steps", [5, pytest.param(100, marks=pytest.mark.slow)])
def test_of_surrogates(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """A kink, of which polynomials leave much open."""
    judges: list[Judge] = []
    plain = simulated.held_out_bound

    def held_out_bound(simulator: Any, place: Any, surrogate: Any, points: int, normals: Any, seed: Any) -> Bound:
        def judge(seed: int) -> Bound:
            drawn = lambda number: normals(1000 * seed + number)  # noqa: E731
            return plain(simulator, place, surrogate, points, drawn, [seed, 1])

        judges.append(judge)
        return plain(simulator, place, surrogate, points, normals, seed)

    monkeypatch.setattr(simulated, "held_out_bound", held_out_bound)
    data = rows(8)
    fit = gpdsl.compile(OPAQUE, externals={"g": bent}).fit(data, steps=steps)
    assert_calibrated(fit, judges[-1], exact(fit, data))


def test_of_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[FieldRun] = []
    plain = FieldRun.reassessed

    def reassessed(run: FieldRun) -> Any:
        runs.append(run)
        return plain(run)

    monkeypatch.setattr(FieldRun, "reassessed", reassessed)
    rng = np.random.default_rng(0)
    data = {"path": rng.random((10, 3)), "t": rng.standard_normal(10) + 1}
    fit = gpdsl.compile(FIELD).fit(data)
    bounds = iter([(fit.elbo, fit.elbo_se)])
    assert_calibrated(fit, lambda _: next(bounds, None) or sum_and_error(plain(runs[-1])))


def test_replicates_and_strata() -> None:
    """With unequal variances in four strata, and few replicates."""
    rng = np.random.default_rng(0)
    spread = np.array([0.1, 1.0, 2.0, 3.0])
    for count in (4, 10, 100):
        drawn = spread * rng.standard_normal((4000, count, 4))
        scores = np.array([total / error for total, error in map(sum_and_error, drawn)])
        assert scores.std() == pytest.approx(1.0, abs=0.15 if count < 10 else 0.05)


def test_rows_of_two_stages() -> None:
    """Rows of unequal means drawn without replacement, each with an estimate of its own."""
    rng = np.random.default_rng(1)
    truth, spread = rng.normal(size=50), rng.uniform(0.2, 2.0, size=50)
    scores = []
    for _ in range(1000):
        index = rng.choice(50, 35, replace=False)
        drawn = truth[index] + spread[index] * rng.standard_normal((4, 35))
        total, error = some_rows_sum_and_error(drawn, 50)
        scores.append((total - truth.sum()) / error)
    assert np.mean(scores) == pytest.approx(0.0, abs=0.15)
    assert np.std(scores) == pytest.approx(1.0, abs=0.08)


def test_one_replicate_says_nothing_unless_it_is_all_there_is() -> None:
    assert np.isnan(sum_and_error(np.ones((1, 4)))[1])
    assert some_rows_sum_and_error(np.ones((1, 4)), 4) == (4.0, 0.0)
