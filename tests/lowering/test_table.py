"""SymPy to JAX by a table: every function of the language, shapes of aligned arrays."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.special
import sympy as sp

from gpdsl.language.vocabulary import FUNCTIONS, REDUCTIONS
from gpdsl.lowering.table import align, cosine, evaluate
from gpdsl.program.cache import jit, precision
from gpdsl.symbolic import numeric
from gpdsl.symbolic.functions import (
    ELEMENTARY,
    REDUCTIONS as REDUCED,
    log1mexp,
    log_difference,
    log_ndtr,
    log_ndtr_interval,
)

A, B = sp.Symbol("a", real=True), sp.Symbol("b", real=True)

REFERENCES = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "tanh": np.tanh,
    "abs": np.abs,
    "sigmoid": scipy.special.expit,
    "softplus": lambda a: np.logaddexp(0, a),
    "log1p": np.log1p,
    "expm1": np.expm1,
    "erf": scipy.special.erf,
    "lgamma": scipy.special.gammaln,
    "Phi": scipy.special.ndtr,
    "min": np.minimum,
    "max": np.maximum,
    "pow": np.power,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "atanh": np.arctanh,
    "log2": np.log2,
    "log10": np.log10,
    "floor": np.floor,
    "logit": scipy.special.logit,
    "probit": scipy.special.ndtri,
}
IN_UNIT = {"asin", "acos", "atanh", "logit", "probit"}
OPERATORS = {"+", "-", "*", "/", "^", "neg", "if", "<", "<=", ">", ">=", "==", "!=", "and", "or", "not"}


def lowered(expression: sp.Expr, **values: object) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(evaluate(expression, lambda s: jnp.asarray(values[s.name], float)))


def test_the_tables_are_those_of_the_language() -> None:
    assert set(REFERENCES) == set(FUNCTIONS)
    assert set(ELEMENTARY) == set(FUNCTIONS) | OPERATORS
    assert set(REDUCED) == set(REDUCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name: str) -> None:
    a, b = np.array([0.3, 1.7, 2.2]), np.array([1.1, 1.2, -0.4])
    a = a / 3 if name in IN_UNIT else a
    symbols, values = ((A,), (a,)) if FUNCTIONS[name].arity == 1 else ((A, B), (a, b))
    found = lowered(ELEMENTARY[name](*symbols), a=a, b=b)
    np.testing.assert_allclose(found, REFERENCES[name](*values), rtol=1e-12)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_of_constants(name: str) -> None:
    constants = ([0.25] if name in IN_UNIT else [2.0, 3.0])[: FUNCTIONS[name].arity]
    found = lowered(ELEMENTARY[name](*[sp.nsimplify(c) for c in constants]))
    np.testing.assert_allclose(found, REFERENCES[name](*constants), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction(name: str) -> None:
    reference = {"sum": sum, "prod": math.prod, "max": max, "min": min}
    reference["logsumexp"] = lambda v: float(scipy.special.logsumexp(v))
    reference["mean"] = lambda v: sum(v) / len(v)
    reference["norm"] = lambda v: math.sqrt(sum(x * x for x in v))
    values = [1.0, -2.0, 3.5]
    symbols = sp.symbols("a b c", real=True)
    found = lowered(REDUCED[name](*symbols), **dict(zip("abc", values, strict=True)))
    assert found == pytest.approx(reference[name](values), rel=1e-14)


def test_operators() -> None:
    expression = ELEMENTARY["-"](ELEMENTARY["/"](A, B), ELEMENTARY["^"](ELEMENTARY["neg"](A), sp.Integer(3)))
    assert lowered(expression, a=2.0, b=4.0) == pytest.approx(0.5 + 8)
    assert lowered(A**100, a=-1.01) == pytest.approx(1.01**100)
    assert lowered(A ** sp.Rational(-3, 2), a=4.0) == pytest.approx(0.125)


def test_logsumexp_neither_overflows_nor_loses_its_gradient() -> None:
    expression = REDUCED["logsumexp"](A, B)
    assert lowered(expression, a=1000.0, b=1000.0) == pytest.approx(1000 + math.log(2))
    with jax.enable_x64(True):
        slope = jax.grad(lambda a: evaluate(expression, lambda s: a if s == A else jnp.asarray(999.0)))(1000.0)
    assert slope == pytest.approx(1 / (1 + math.exp(-1)))


def test_choices() -> None:
    expression = sp.Piecewise((A, A > B), (B, A < -1), (sp.oo, True))
    np.testing.assert_array_equal(lowered(expression, a=[2.0, -2.0, 0.0], b=[1.0, 1.0, 1.0]), [2.0, 1.0, np.inf])


def test_numbers_do_not_change_the_dtype() -> None:
    found = evaluate(sp.pi * A / 3 + sp.Rational(1, 7) + sp.exp(sp.Integer(2)), lambda s: jnp.ones(2, jnp.float32))
    assert found.dtype == jnp.float32


def test_equal_parts_are_computed_once() -> None:
    seen = []

    def load(symbol: sp.Symbol) -> jax.Array:
        seen.append(symbol)
        return jnp.asarray(0.5)

    evaluate(sp.sin(A) + sp.exp(sp.sin(A)) * A, load)
    assert seen == [A]


ARRAY = np.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("positions", "keys", "expected"),
    [
        (("p", "q"), ("p", "q"), ARRAY),
        (("p", "q"), ("q", "p"), ARRAY.transpose(0, 2, 1)),
        (("p", 2), ("p",), ARRAY[:, :, 1]),
        ((3, "q"), ("q",), ARRAY[:, 2, :]),
        ((3, 2), (), ARRAY[:, 2, 1]),
        ((3, "q"), ("p", "q"), ARRAY[:, 2, None, :]),
        (("p", 1), ("p", "q"), ARRAY[:, :, :1]),
        ((), ("p",), ARRAY[..., None]),
        (("q",), ("p", "q", "r"), ARRAY[:, :, None, :, None]),
    ],
)
def test_align(positions: tuple[int | str, ...], keys: tuple[str, ...], expected: np.ndarray) -> None:
    np.testing.assert_array_equal(align(jnp.asarray(ARRAY), positions, keys), expected)


@pytest.mark.parametrize(
    "expression",
    [
        log_ndtr_interval(A, A + sp.exp(B)),
        log_ndtr_interval(A - sp.exp(B), A),
        log1mexp(sp.exp(A / 5)),
        log_difference(A, A - sp.exp(B)),
    ],
)
def test_differences_keep_their_digits(expression: sp.Expr) -> None:
    """By the table of NumPy as by that of JAX, against mpmath, in either tail."""
    a, b = (each.ravel() for each in np.meshgrid([-50.0, -8.5, -0.4, 0.0, 0.9, 8.5, 50.0], [-9.0, -0.3, 2.0]))
    exact = {
        log_ndtr_interval: lambda low, high: mpmath.log(
            mpmath.ncdf(-low) - mpmath.ncdf(-high) if low > 0 else mpmath.ncdf(high) - mpmath.ncdf(low)
        ),
        log1mexp: lambda x: mpmath.log(-mpmath.expm1(-x)),
        log_difference: lambda x, y: mpmath.log(mpmath.exp(x) - mpmath.exp(y)),
    }[expression.func]
    with mpmath.workdps(60):
        places = [
            [mpmath.mpf(float(each.subs({A: x, B: y}))) for each in expression.args] for x, y in zip(a, b, strict=True)
        ]
        expected = np.array([float(exact(*each)) for each in places])
    given = {A: a, B: b}
    np.testing.assert_allclose(numeric.evaluate(expression, given), expected, rtol=1e-8, atol=1e-300)
    np.testing.assert_allclose(lowered(expression, a=a, b=b), expected, rtol=1e-8, atol=1e-300)


def test_calls_of_unequal_shapes_are_made_apart() -> None:
    values = {"a": np.array(0.3), "b": np.array([1.5, 0.0])}
    expected = scipy.special.log_ndtr(0.3) + scipy.special.log_ndtr([1.5, 0.0])
    np.testing.assert_allclose(lowered(log_ndtr(A) + log_ndtr(B), **values), expected, rtol=1e-13)


def test_calls_of_an_expensive_function_are_made_as_one() -> None:
    """Those outside of conditionals, of one shape; a call within a call stays where it is."""
    values = {"a": np.array([0.3, -1.0, 2.0]), "b": np.array([1.5, 0.0, 2.5])}
    parts = [log_ndtr(A), log_ndtr(2 * B), log_ndtr_interval(A, B + 1), log_ndtr_interval(A - 1, B)]
    nested, several = log_ndtr(log_ndtr(A)) + log_ndtr(B), sp.Add(*[(k + 1) * part for k, part in enumerate(parts)])

    def together(given: dict[str, np.ndarray]) -> list[jax.Array]:
        return [evaluate(each, lambda s: given[s.name]) for each in (several, nested, *parts)]

    with jax.enable_x64(True):
        found, inside, *separate = [np.asarray(each) for each in jit(together)(values)]
        assert str(jax.make_jaxpr(lambda given: evaluate(several, lambda s: given[s.name]))(values)).count("erfc ") == 2
    np.testing.assert_allclose(found, sum((k + 1) * part for k, part in enumerate(separate)), rtol=1e-14)
    reference = scipy.special.log_ndtr
    np.testing.assert_allclose(inside, reference(reference(values["a"])) + reference(values["b"]), rtol=1e-13)


@pytest.mark.parametrize(("dtype", "error"), [("float32", 3e-7), ("float64", 1e-15)])
def test_cosines_of_turns_have_all_digits_and_so_have_their_slopes(dtype: str, error: float) -> None:
    """At multiples of 1 / 64, which are exact in turns however many there are."""
    with precision(dtype):
        turns = jnp.asarray(np.arange(-4096, 4097) / 64.0, dtype)
        found, slopes = jax.jit(lambda u: jax.jvp(cosine, (u,), (jnp.ones_like(u),)))(turns)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, np.cos(2 * np.pi * (np.arange(-4096, 4097) % 64) / 64), rtol=0, atol=error)
    exact = -2 * np.pi * np.sin(2 * np.pi * (np.arange(-4096, 4097) % 64) / 64)
    np.testing.assert_allclose(slopes, exact, rtol=0, atol=4 * np.pi * error)
