"""A program: what an expression reads at the rows, what counts as observed, priors, refusals."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy as sp
from scipy import stats

from gpdsl.data import bind
from gpdsl.inference.opaque.surrogate import passed_parameters
from gpdsl.inference.problem import as_arrays
from gpdsl.language import compile_text
from gpdsl.program.program import make_program, make_rows, take_rows
from gpdsl.program.rows import RowEvaluator, Rows, Scope, observed_mask
from gpdsl.symbolic.terms import ObservationTerms
from gpdsl.symbolic.translate import Ref

from .models import program

TEXT = """model m
index p in 1..2
index q in 1..3
input x : real
input z[q] : real
output y[p] : real
const k[p,q] = [[1, 2, 3], [4, 5, 6]]
param s[q] : positive = [1, 10, 100]
latent f[p,q](x) ~ GP(0, RBF(1))
let a[p] = sum(q, f[p,q] * k[p,q])
let b[q,p] = f[p,q] + s[q] + z[q] + p
y[p] ~ Normal(a[p] + b[1,p], 1)
"""
ROWS = 5
RNG = np.random.default_rng(0)
LATENTS = RNG.normal(size=(4, ROWS, 6))
Z = RNG.normal(size=(ROWS, 3))


def evaluated(name: str, positions: tuple[int | str, ...], keys: tuple[str, ...]) -> np.ndarray:
    """One element, or all, of a `let` at LATENTS."""
    made = program(TEXT)
    with jax.enable_x64(True):
        parameters = made.parameters.constrain(made.parameters.unconstrained())
        scope = Scope(parameters, Rows({"z": jnp.asarray(Z)}, {}, {}), jnp.asarray(LATENTS))
        return np.asarray(made.evaluator(made.translator.let(name, positions), scope, keys))


F = LATENTS.reshape(4, ROWS, 2, 3)
S = np.array([1.0, 10.0, 100.0])
K = np.array([[1.0, 2, 3], [4, 5, 6]])
WHOLE_B = np.moveaxis(F, 2, 3) + (S + Z)[None, :, :, None] + np.array([1.0, 2.0])


def test_values_along_axes() -> None:
    np.testing.assert_allclose(evaluated("a", ("p",), ("p",)), (F * K).sum(-1))
    np.testing.assert_allclose(evaluated("b", ("q", "p"), ("q", "p")), WHOLE_B)
    np.testing.assert_allclose(evaluated("b", ("q", "p"), ("p", "q")), np.moveaxis(WHOLE_B, 2, 3))


def test_values_of_elements() -> None:
    np.testing.assert_allclose(evaluated("a", (2,), ()), (F * K).sum(-1)[..., 1])
    np.testing.assert_allclose(evaluated("b", (3, "p"), ("p",)), WHOLE_B[:, :, 2])
    np.testing.assert_allclose(evaluated("b", ("q", 1), ("q",)), WHOLE_B[:, :, :, 0])


def test_the_column_of_a_latent() -> None:
    made = program(TEXT)
    t = made.translator
    found = [made.evaluator.column(t.symbol(Ref("latent", "f", (i, j)))) for i in (1, 2) for j in (1, 2, 3)]
    assert found == [0, 1, 2, 3, 4, 5]


def test_the_plan_of_a_program() -> None:
    made = program(TEXT)
    assert (made.methods, made.sampled, made.opaque, made.latents) == ({"closed"}, False, False, 6)
    assert made.latent_names[:2] == ["f[1,1]", "f[1,2]"]


MISSING = """model m
index p in 1..2
index c in 1..C
input x : real
output y[p] : real
output w : positive
output label : label[c]
latent f(x) ~ GP(0, RBF(1))
latent g[c](x) ~ GP(0, RBF(1))
y[p] ~ Normal(f, 1)
w ~ LogNormal(f, 1)
label ~ Categorical(g)
"""


def test_missing_outputs_get_a_harmless_value_and_no_weight() -> None:
    declarations = compile_text(MISSING)
    table = {
        "x": [1.0, 2.0, 3.0],
        "y1": [1.0, math.nan, 3.0],
        "y2": [4.0, 5.0, 6.0],
        "w": [math.nan, 2.0, 3.0],
        "label": ["a", "b", "a"],
    }
    data = bind(declarations, table)
    made = make_program(declarations, data.sizes, data.levels, {})
    rows = as_arrays(make_rows(made, data), np.float32)
    np.testing.assert_array_equal(rows.outputs["y"], [[1, 4], [0, 5], [3, 6]])
    np.testing.assert_array_equal(rows.observed["y"], [[1, 1], [0, 1], [1, 1]])
    np.testing.assert_array_equal(rows.outputs["w"], [1, 2, 3])
    np.testing.assert_array_equal(rows.indicators["label"], [[1, 0], [0, 1], [1, 0]])
    assert {v.dtype.name for t in (rows.inputs, rows.outputs, rows.observed, rows.indicators) for v in t.values()} == {
        "float32"
    }
    taken = take_rows(rows, np.array([2, 0]))
    np.testing.assert_array_equal(taken.outputs["y"], [[3, 6], [1, 4]])
    np.testing.assert_array_equal(taken.indicators["label"], [[1, 0], [1, 0]])


def test_what_counts_as_observed() -> None:
    rows = Rows({}, {}, {"y": jnp.array([[1.0, 0], [1, 1], [0, 0]]), "w": jnp.array([1.0, 0, 1])})

    def mask(outputs: tuple[str, ...], positions: tuple = (), axes: tuple = (), reads: tuple = ()) -> object:
        return observed_mask(rows, ObservationTerms(outputs, positions, axes, sp.S.Zero, (), "Normal", reads=reads))

    np.testing.assert_array_equal(mask(("w",)), [1, 0, 1])
    np.testing.assert_array_equal(mask(("y",), ("p",), ("p",)), [[1, 0], [1, 1], [0, 0]])
    np.testing.assert_array_equal(mask(("y",), (2,)), [0, 1, 0])
    np.testing.assert_array_equal(mask(("y",)), [0, 1, 0])
    np.testing.assert_array_equal(mask(("y", "w")), [0, 0, 0])
    np.testing.assert_array_equal(mask(("w",), reads=(("y", (1,)),)), [1, 0, 0])


PRIOR = """model m
index p in 1..3
input x : real
output y : real
const centre[p] = [0, 1, 2]
param a : positive = 2 ~ Gamma(3, 2)
param b[p] : real = [1, 1, 1] ~ Normal(centre[p], 0.5)
param c : unit = 0.25 ~ Beta(2, 3)
param d : positive = 1 fixed ~ Gamma(3, 2)
latent f(x) ~ GP(b[1], a * RBF(d))
y ~ Normal(f, c)
"""


def test_log_prior_of_the_learnt_parameters() -> None:
    made = program(PRIOR)
    with jax.enable_x64(True):
        found = made.log_prior(made.parameters.constrain(made.parameters.unconstrained()))
    expected = stats.gamma(3, scale=0.5).logpdf(2) + stats.norm([0, 1, 2], 0.5).logpdf(1).sum()
    assert float(found) == pytest.approx(expected + stats.beta(2, 3).logpdf(0.25), rel=1e-12)


def test_no_prior_is_no_term() -> None:
    assert program(TEXT).log_prior({}) == 0.0


OPAQUE = """model m
input x : real
output y : real
param s : positive = 1
latent f(x) ~ GP(0, RBF(1))
external g(a: real, b: real) -> real
y ~ Normal(g(f, s), 1)
"""


def test_an_opaque_function_may_take_a_parameter() -> None:
    declarations = compile_text(OPAQUE)
    assert passed_parameters(make_program(declarations, {}, {}, {})) == ["s"]
    made = make_program(declarations, {}, {}, {}, fixed=["s"])
    assert made.opaque
    assert passed_parameters(made) == []
    assert [use.function for use in made.uses()] == ["g"]


def test_missing_elements_of_a_vector_are_independent_of_the_others_and_of_unit_variance() -> None:
    """L^-1 of each row's covariance, whose entries a program computes."""
    rng = np.random.default_rng(0)
    half = rng.normal(size=(4, 3, 3))
    matrix = half @ np.swapaxes(half, 1, 2)
    known = np.array([[1.0, 1, 1], [1, 0, 1], [0, 1, 0], [0, 0, 0]])
    covariance: Any = SimpleNamespace(output="y", entries=[[(i, j) for j in range(3)] for i in range(3)])
    scope: Any = SimpleNamespace(rows=SimpleNamespace(observed={"y": jnp.asarray(known)}))
    evaluator: Any = lambda entry, scope: matrix[:, entry[0], entry[1]]  # noqa: E731
    with jax.enable_x64(True):
        found = RowEvaluator._whitening(evaluator, covariance, scope)
    for whitening, whole, here in zip(found, matrix, known, strict=True):
        expected = np.eye(3)
        expected[np.ix_(here > 0, here > 0)] = whole[np.ix_(here > 0, here > 0)]
        np.testing.assert_allclose(whitening @ expected @ whitening.T, np.eye(3), atol=1e-6)
        assert not np.any(np.triu(whitening, 1))
