"""Outputs that share no latent are batches of one exact inference, however many there are."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jax
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import gpdsl
from gpdsl.inference.exact.evidence import evidence_of, one_program, parts_of
from gpdsl.inference.exact.parts import kinds
from gpdsl.inference.exact.posterior import _within
from gpdsl.inference.exact.system import System, make_system
from gpdsl.program.cache import precision
from gpdsl.program.rows import Rows
from gpdsl.results.fitting import start_of
from tests.inference.problems import problem_of

ALONE = """
index p in 1..P
input x : real
output y[p] : real
param ell{axis} : positive = 0.8
param s2[p] : positive = 1.5
param sigma : positive = 0.3
latent f[p](x) ~ GP(0.5, s2[p] * RBF(ell{axis}))
y[p] ~ Normal(f[p], sigma)
"""
PAIRS = """
index p in 1..P
index q in 1..2
input x : real
input b : real
output y[p, q] : real
const w[q] = [1, -2]
param c[p] : positive = 0.7
latent f[p](x) ~ GP(0, p * RBF(c[p]))
latent g[p](x) ~ GP(0, Matern12(2))
y[p, q] ~ Normal(w * f(b) + g + f, 0.3 * q)
"""


def gram(a: np.ndarray, b: np.ndarray, ell: float) -> np.ndarray:
    return np.exp(-0.5 * ((a[:, None] - b[None, :]) / ell) ** 2)


def outputs(rng: np.random.Generator, rows: int, count: int, share: float) -> dict[str, np.ndarray]:
    """Data with this share of the values missing, so that outputs are of several sizes."""
    x = np.sort(rng.uniform(-3, 3, rows))
    y = np.sin(x[:, None] + np.arange(count)) + 0.3 * rng.standard_normal((rows, count))
    y[rng.random(y.shape) < share] = np.nan
    return {"x": x, "y": y}


@pytest.mark.parametrize("axis", ["", "[p]"], ids=["one kernel", "a kernel each"])
@pytest.mark.parametrize("share", [0.0, 0.2])
def test_forty_outputs_are_exact_by_default(rng: np.random.Generator, axis: str, share: float) -> None:
    data, new = outputs(rng, 15, 40, share), rng.uniform(-3, 3, 4)
    ell = 0.8 if not axis else np.linspace(0.5, 1.5, 40)
    held = {"ell": ell, "s2": np.linspace(0.5, 2, 40), "sigma": 0.4}
    fit = gpdsl.compile(ALONE.format(axis=axis)).fit(data, fixed=list(held), init=held)
    assert sorted(fit.choice.exact) == sorted(np.isfinite(data["y"]).sum(axis=0))
    prediction, found = fit.predict({"x": new}), 0.0
    mean, variance = prediction.mean("f"), prediction.variance("f")
    for p in range(40):
        some = np.isfinite(data["y"][:, p])
        x, y, length, s2 = data["x"][some], data["y"][some, p] - 0.5, np.broadcast_to(ell, 40)[p], held["s2"][p]
        covariance = s2 * gram(x, x, length) + 0.16 * np.eye(len(x))
        found += multivariate_normal.logpdf(y, np.zeros(len(x)), covariance)
        cross = s2 * gram(new, x, length)
        np.testing.assert_allclose(mean[:, p], 0.5 + cross @ np.linalg.solve(covariance, y), atol=1e-9)
        lost = np.sum(cross * np.linalg.solve(covariance, cross.T).T, axis=1)
        np.testing.assert_allclose(variance[:, p], s2 - lost, atol=1e-9)
    assert fit.elbo == pytest.approx(found, abs=1e-8)


@pytest.mark.parametrize("share", [pytest.param(0.0, marks=pytest.mark.slow), 0.15])
def test_batches_have_the_evidence_and_slopes_of_their_parts(
    rng: np.random.Generator, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where each part reads several processes of several groups, and as one program."""
    y = rng.standard_normal((9, 5, 2))
    y[rng.random(y.shape) < share] = np.nan
    data = {"x": rng.standard_normal(9), "b": rng.standard_normal(9), "y": y}
    with precision("float64"):
        problem = problem_of(PAIRS, data)
        together = make_system(problem.program, problem.rows)
        monkeypatch.setattr("gpdsl.inference.exact.system.batched", lambda groups, apart: tuple(apart))
        apart = make_system(problem.program, problem.rows)
        assert together is not None and apart is not None
        assert len(together.parts) < len(apart.parts) == 5
        assert sorted(together.sizes) == sorted(apart.sizes)
        at = problem.parameters
        (value, slopes), (other, gradient) = (evidence_of(problem, each)(at) for each in (apart, together))
        assert other == pytest.approx(value, abs=1e-10)
        np.testing.assert_allclose(gradient["c"], slopes["c"], atol=1e-9)
        assert one_program(problem, together)(at)[0] == pytest.approx(value, abs=1e-10)


def test_programs_do_not_grow_with_the_number_of_outputs(rng: np.random.Generator) -> None:
    lines = []
    for count in (3, 30):
        with precision("float64"):
            problem = problem_of(ALONE.format(axis="[p]"), outputs(rng, 10, count, 0.1))
            system = make_system(problem.program, problem.rows)
            assert system is not None

            def forward(at: dict, rows: Rows, system: System = system) -> tuple:
                return parts_of(system, at, rows)

            lines.append(jax.jit(forward).lower(problem.parameters, problem.rows).as_text().count("\n"))
    assert lines[1] == lines[0]


def test_outputs_of_very_different_sizes_are_not_filled_up(rng: np.random.Generator) -> None:
    data = outputs(rng, 20, 4, 0.0)
    data["y"][5:, 2:] = np.nan
    problem = problem_of(ALONE.format(axis=""), data)
    system = make_system(problem.program, problem.rows)
    assert system is not None
    assert [(part.width, len(part.rows)) for part in system.parts] == [(20, 2), (5, 2)]


def test_what_is_too_large_together_is_not_the_default(rng: np.random.Generator) -> None:
    """As many matrices of one size as take longer than the largest that is the default."""
    data = outputs(rng, 30, 6, 0.0)
    assert problem_of(ALONE.format(axis=""), data).choice.exact == (30,) * 6
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpdsl.inference.exact.engine.EXACT_VALUES", 50)
        assert not problem_of(ALONE.format(axis=""), data).choice.exact


def test_batches_are_kept_in_files_and_begin_other_fits(rng: np.random.Generator, tmp_path: Path) -> None:
    data, new = outputs(rng, 12, 5, 0.1), rng.uniform(-3, 3, 4)
    model = gpdsl.compile(ALONE.format(axis="[p]"))
    fit = model.fit(data, steps=2)
    fit.save(tmp_path / "a.gpfit")
    again = gpdsl.load_fit(tmp_path / "a.gpfit").predict({"x": new})
    np.testing.assert_array_equal(again.variance("y"), fit.predict({"x": new}).variance("y"))
    start = start_of(fit)
    assert start is not None
    (q,), known = start.posterior, fit.predict({"x": data["x"]})
    for p, (ell, s2) in enumerate(zip(fit.parameters["ell"], fit.parameters["s2"], strict=True)):
        root = np.sqrt(s2) * np.linalg.cholesky(gram(data["x"], data["x"], ell) + 1e-8 * np.eye(12))
        mean, variance = root @ np.asarray(q.mean)[0, p], np.sum((root @ np.asarray(q.root)[0, p]) ** 2, axis=1)
        np.testing.assert_allclose(0.5 + mean, known.mean("f")[:, p], atol=1e-5)
        np.testing.assert_allclose(variance, known.variance("f")[:, p], atol=1e-5)


@pytest.mark.parametrize("places", [[0, 5], [-1, 2], [1, 1], [0.0, 1.0], []])
def test_places_are_different_whole_numbers_within_the_values(places: list[float]) -> None:
    assert _within(np.array([4, 0, 2]), 5)
    assert not _within(np.array(places), 5)


def test_readings_of_a_group_are_found_among_the_columns_of_a_set() -> None:
    """Of two processes that are read twice each, one of them once in this set, among other columns."""
    columns = np.array([9, 6, 3, 5, 0])  # 3 + 2 r + j for reading r of process j
    for factors, expected in ((2, [({0: (2,), 1: (3,)}, 0), ({1: (1,)}, 1)]), (1, [({0: (2, -1), 1: (3, 1)}, 0)])):
        group = SimpleNamespace(start=3, stop=7, size=2, factors=factors, readings=SimpleNamespace(basis=(0, 1)))
        found = kinds(cast(Any, group), columns[None])
        assert [(dict(each.columns), int(each.factor[0])) for each in found] == expected


def test_an_element_reads_its_own_columns_and_one_for_all_levels_of_a_label() -> None:
    text = """
index c in 1..3
index p in 1..2
index q in 1..3
input x : real
input k : label[c]
output y[p] : real
latent f[c](x) ~ GP(0, RBF(1))
latent g[p, q](x) ~ GP(0, RBF(2))
y[p] ~ Normal(sum(q, q * g[p, q]) + f[k] - 2 * g[1, 2], 0.3)
"""
    problem = problem_of(text, {"x": np.arange(4.0), "k": np.array([1, 3, 2, 1]), "y": np.ones((4, 2))}, inducing=0)
    start = {name: place for (name, _), (place, _) in problem.program.evaluator.columns.items()}
    system = make_system(problem.program, problem.rows)
    assert system is not None
    expected = [{start["f"], *(start["g"] + each for each in own)} for own in ((0, 1, 2), (1, 3, 4, 5))]
    assert [set(system.reads[0, p]) for p in (0, 1)] == expected
