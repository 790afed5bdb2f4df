"""Conditional expressions, reductions and bare axes compiled: values against NumPy, gradients that stay finite."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy as sp

from gpdsl.language import ModelError, compile_text
from gpdsl.lowering.table import evaluate
from gpdsl.symbolic.conditions import CONDITIONS, choose, less
from gpdsl.symbolic.functions import ELEMENTARY
from gpdsl.symbolic.translate import Translator

X = sp.Symbol("x", real=True)


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


MODEL = """
index p in 1..3
input x : real[3]
input u : real[D]
input z : real
const a[p] = [1, 2, 3]
output y : real
latent f(z) ~ GP(0, RBF(1))
let v{left} = {right}
y ~ Normal(f, 1)
"""


def values(right: str, columns: int = 4, left: str = "") -> np.ndarray:
    """All elements of `v` at one row whose x, u and z are drawn at random."""
    generator = np.random.default_rng(3)
    data = {"x": generator.normal(size=3), "u": generator.normal(size=columns), "z": generator.normal()}
    translator = Translator(compile_text(MODEL.format(left=left, right=right)), {"D": columns})
    let = translator.declarations.lets["v"]
    positions = [(i,) for i in range(1, 4)] if let.axes else [()]

    def load(symbol: sp.Symbol) -> float:
        ref = translator.references[symbol]
        return float(np.asarray(data[ref.name])[tuple(int(p) - 1 for p in ref.positions)])

    return np.array([float(evaluate(translator.let("v", position), load)) for position in positions])


def drawn(columns: int = 4) -> tuple[np.ndarray, np.ndarray, float]:
    generator = np.random.default_rng(3)
    return generator.normal(size=3), generator.normal(size=columns), generator.normal()


A = np.array([1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("right", "expected"),
    [
        ("sum(u)", lambda x, u, z: u.sum()),
        ("mean(u)", lambda x, u, z: u.mean()),
        ("prod(x)", lambda x, u, z: x.prod()),
        ("max(u) - min(u)", lambda x, u, z: np.ptp(u)),
        ("norm(x - a)", lambda x, u, z: np.linalg.norm(x - A)),
        ("logsumexp(u)", lambda x, u, z: np.log(np.exp(u).sum())),
        ("dot(x, a)", lambda x, u, z: x @ A),
        ("sum(u[2..4])", lambda x, u, z: u[1:].sum()),
        ("x[2..3] @ x[1..2]", lambda x, u, z: x[1:] @ x[:2]),
        ("sum(p, x * p)", lambda x, u, z: x @ A),
        ("if z > 0 or x[1] < 0 then 1 else 2", lambda x, u, z: 1 if z > 0 or x[0] < 0 else 2),
        ("if not (z > 0 and z < 9) then z else -z", lambda x, u, z: -z if 0 < z < 9 else z),
        ("if z == z then 1 else 2", lambda x, u, z: 1),
        ("if 1 != 1 then z else 3", lambda x, u, z: 3),
        ("floor(10 * z) + log10(2) + log2(3)", lambda x, u, z: np.floor(10 * z) + np.log10(2) + np.log2(3)),
        ("logit(0.3) + probit(0.2)", lambda x, u, z: np.log(0.3 / 0.7) - 0.8416212335729143),
        ("atan(z) + asinh(z) + sinh(z)", lambda x, u, z: np.arctan(z) + np.arcsinh(z) + np.sinh(z)),
        ("acos(z/9) + asin(z/9) + atanh(z/9) * cosh(z)", lambda x, u, z: np.pi / 2 + np.arctanh(z / 9) * np.cosh(z)),
    ],
)
def test_value(right: str, expected) -> None:
    np.testing.assert_allclose(values(right), expected(*drawn()), rtol=1e-12)


def test_a_bare_size_runs_along_the_index_it_meets() -> None:
    x, _, z = drawn()
    np.testing.assert_allclose(values("x * a"), x * A)
    np.testing.assert_allclose(values("x + z", left="[p]"), x + z)
    np.testing.assert_allclose(values("if x > a then x else a"), np.maximum(x, A))


def test_an_element_beyond_the_data_is_an_error() -> None:
    with pytest.raises(ModelError, match=r"E570.*`u\[4\]` does not exist: the data have 2 along `D`"):
        values("u[4]", columns=2)


@pytest.mark.parametrize(
    "expression",
    [
        choose(less(0, X), sp.log(X), X),
        choose(less(X, 1), X, sp.sqrt(X - 1) + choose(less(2, X), sp.log(X - 2), 1)),
        choose(less(X, 1), choose(less(0, X), sp.log(X), 0), 1 / (X - 1)),
    ],
)
def test_derivatives_ignore_what_is_not_taken(expression: sp.Expr) -> None:
    def total(x: jax.Array) -> jax.Array:
        return jnp.sum(evaluate(expression, lambda _: x))

    at = jnp.array([-1.5, -0.5, 0.25, 0.75, 1.5, 2.5])
    exact = [float(sp.diff(expression, X).rewrite(sp.Piecewise).subs(X, value).evalf()) for value in np.asarray(at)]
    np.testing.assert_allclose(jax.grad(total)(at), exact, rtol=1e-12)
    np.testing.assert_allclose(jax.jvp(total, (at,), (jnp.ones(6),))[1], sum(exact), rtol=1e-12)
    assert np.isfinite(jax.hessian(total)(at)).all()


def test_derivatives_reach_shared_parameters_from_the_rows_that_take_the_branch() -> None:
    s = sp.Symbol("s", real=True)
    rows = jnp.array([-1.0, 2.0, 3.0])
    expression = choose(less(0, X), sp.log(X) * s, s**2)

    def total(value: jax.Array) -> jax.Array:
        return jnp.sum(evaluate(expression, lambda symbol: rows if symbol == X else value))

    np.testing.assert_allclose(jax.grad(total)(jnp.asarray(0.7)), 1.4 + np.log(2) + np.log(3), rtol=1e-12)


def test_the_norm_has_a_finite_derivative_at_zero() -> None:
    y = sp.Symbol("y", real=True)
    gradient = jax.grad(lambda x: evaluate(sp.sqrt(X**2 + y**2), lambda symbol: x[int(symbol == y)]))
    np.testing.assert_array_equal(gradient(jnp.array([0.0, 0.0])), [0.0, 0.0])
    np.testing.assert_allclose(gradient(jnp.array([3.0, 4.0])), [0.6, 0.8])


def test_the_root_of_a_square_is_the_absolute_value() -> None:
    np.testing.assert_array_equal(evaluate(sp.sqrt(X**2), lambda _: jnp.array([-2.0, 3.0])), [2.0, 3.0])


def test_every_condition_is_an_operator_that_can_be_computed() -> None:
    y = sp.Symbol("y", real=True)
    truth = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal}
    grid = np.array([[a, b] for a in (0.0, 1.0) for b in (0.0, 1.0)]).T
    for name in set(CONDITIONS) - {"if", "and", "or", "not"}:
        found = evaluate(CONDITIONS[name](X, y), lambda symbol: grid[0] if symbol == X else grid[1])
        np.testing.assert_array_equal(found, truth.get(name, np.not_equal)(*grid))
    assert set(CONDITIONS) <= set(ELEMENTARY)
