"""Dense fits of nearly as many rows share their programs, and are what they would be by themselves."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import gpdsl
from gpdsl.inference import infer
from gpdsl.inference.infer import EACH, LEAST
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.problem import Problem, Result, as_arrays, of_first
from gpdsl.kernels.functionals import Values
from gpdsl.sklearn import Classifier
from tests.inference.problems import problem_of
from tests.inference.test_reuse import programs_compiled

BINARY = """model m
input x : real[D]
output y : binary
param m : real = 0 ~ Normal(0, 2)
param s2 : positive = 2 ~ LogNormal(1, 1)
latent f(x) ~ GP(m, s2 * RBF(1.2))
y ~ Bernoulli(logit = f)
"""

CLASSES = """model m
index c in 1..3
input x : real[D]
output y : label[c]
param s2 : positive = 2 ~ LogNormal(1, 1)
latent f[c](x) ~ GP(0, s2 * RBF(1.2))
y ~ Categorical(logits = f)
"""

ROWS = LEAST + 3


def data(rng: np.random.Generator, text: str, rows: int = ROWS) -> dict[str, np.ndarray]:
    x = rng.normal(size=(rows, 2))
    tall = 2 * np.sin(x[:, 0]) + rng.normal(size=rows)
    return {"x": x, "y": np.digitize(tall, [-0.7, 0.7]) + 1 if "label" in text else tall > 0}


@pytest.mark.parametrize("text", [BINARY, CLASSES], ids=["binary", "classes"])
def test_rows_that_fill_up_change_nothing(text: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    known, new = data(rng, text), {"x": rng.normal(size=(20, 2))}
    filled = gpdsl.compile(text).fit(known, progress=False, posterior="full")
    monkeypatch.setattr(infer, "filled_up", lambda problem: problem)
    alone = gpdsl.compile(text).fit(known, progress=False, posterior="full")
    assert filled.elbo == pytest.approx(alone.elbo, abs=1e-6)
    for name, value in alone.parameters.items():
        np.testing.assert_allclose(filled.parameters[name], value, rtol=1e-3)
    np.testing.assert_allclose(filled.predict(new).mean("y"), alone.predict(new).mean("y"), atol=1e-4)
    np.testing.assert_allclose(filled.predict(new).variance("f"), alone.predict(new).variance("f"), rtol=1e-3)
    for mine, theirs in zip(filled.posterior, alone.posterior, strict=True):
        assert mine.root.shape == theirs.root.shape


def of_rows(rng: np.random.Generator, rows: int, **options: Any) -> Problem:
    with jax.enable_x64(True):
        return problem_of(BINARY, data(rng, BINARY, rows), posterior="full", **options)


@pytest.mark.parametrize(("rows", "filled"), [(LEAST + 1, LEAST + EACH), (LEAST + EACH - 1, LEAST + EACH)])
def test_copies_of_the_first_row_come_last_and_observe_nothing(
    rows: int, filled: int, rng: np.random.Generator
) -> None:
    problem = of_rows(rng, rows)
    with jax.enable_x64(True):
        found = infer.filled_up(problem)
    assert found.count == filled and len(found.inducing[0]) == filled
    for own, longer in ((problem.rows, found.rows), (problem.inducing, found.inducing)):
        for mine, each in zip(jax.tree.leaves(own), jax.tree.leaves(longer), strict=True):
            assert each.shape == (filled, *mine.shape[1:]) and each.dtype == mine.dtype
    x = np.asarray(found.rows.inputs["x"])
    np.testing.assert_array_equal(x[:rows], problem.rows.inputs["x"])
    np.testing.assert_array_equal(x[rows:], np.repeat(x[:1], filled - rows, axis=0))
    np.testing.assert_array_equal(np.ravel(found.rows.observed["y"]), np.arange(filled) < rows)
    np.testing.assert_array_equal(problem.rows.observed["y"], 1.0)


@pytest.mark.parametrize(
    ("rows", "options"), [(LEAST - 1, {}), (LEAST, {}), (LEAST + EACH, {}), (LEAST + 3, {"inducing": 20})], ids=str
)
def test_few_or_round_numbers_of_rows_are_as_they_are(
    rows: int, options: dict[str, Any], rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = of_rows(rng, rows, **options)
    assert infer.filled_up(problem) is problem
    problem = of_rows(rng, LEAST + 3)
    monkeypatch.setattr(infer, "FEW", LEAST + 2)
    assert infer.filled_up(problem) is problem
    monkeypatch.setattr(infer, "FEW", LEAST + 3)
    with jax.enable_x64(True):
        assert infer.filled_up(problem) is not problem


def test_results_say_of_the_first_rows_what_they_said(rng: np.random.Generator) -> None:
    mean, root = rng.normal(size=(1, 2, 6)), rng.normal(size=(1, 2, 6, 6))
    points, sites = rng.normal(size=(6, 3)), [(rng.normal(size=(6, 2)), rng.normal(size=(6, 2, 2)))]
    whole = Result({}, [Values(points)], [Whitened(mean, root)], np.ones(1), 0.0, 0.0, sites=sites)
    found = of_first(whole, 4)
    np.testing.assert_array_equal(found.posterior[0].mean, mean[:, :, :4])
    np.testing.assert_array_equal(found.posterior[0].root, root[:, :, :4, :4])
    np.testing.assert_array_equal(found.inducing[0].points, points[:4])
    for mine, each in zip(jax.tree.leaves(sites), jax.tree.leaves(found.sites), strict=True):
        np.testing.assert_array_equal(each, mine[:4])


def test_nearly_as_many_rows_compile_nothing_new(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = programs_compiled(monkeypatch)
    known = data(rng, BINARY, LEAST + EACH)
    Classifier().fit(known["x"][:-1], known["y"][:-1])
    first = len(compiled)
    Classifier().fit(known["x"][:-4], known["y"][:-4])
    assert len(compiled) == first > 0


def fits_alone(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, **options: Any) -> bool:
    """Whether a fit with these options has no rows but its own."""
    asked: list[Any] = []
    monkeypatch.setattr(infer, "filled_up", lambda problem: (asked.append(problem), problem)[1])
    gpdsl.compile(BINARY).fit(data(rng, BINARY), progress=False, steps=1, **options)
    return not asked


@pytest.mark.parametrize("options", [{"engine": "ep"}, {"posterior": "mixture(2)"}], ids=str)
def test_other_engines_have_their_own_rows(
    options: dict[str, Any], rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fits_alone(rng, monkeypatch, **options)


def test_the_evidence_at_other_parameters_takes_the_programs_of_the_search(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = programs_compiled(monkeypatch)
    fit = gpdsl.compile(BINARY).fit(data(rng, BINARY), progress=False, posterior="full", steps=1)
    first, ended = len(compiled), fit.inspected.ended
    assert ended is not None and ended.profile is not None
    with jax.enable_x64(True):
        found = ended.profile().at(as_arrays(ended.learnt, "float64"))
    assert len(compiled) == first > 0
    assert found.posterior[0].root.shape == (1, 1, ROWS, ROWS) and len(found.inducing[0]) == ROWS
    assert found.elbo == pytest.approx(fit.elbo, abs=1e-6)
