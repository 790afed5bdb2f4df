"""Conditional expressions in a likelihood: closed branches where data decide, scores where latents make a jump."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import sympy as sp

from gpdsl.errors import GpdslError
from gpdsl.language import compile_text
from gpdsl.program.program import make_program
from gpdsl.symbolic.closed import expectation
from gpdsl.symbolic.conditions import CONDITIONS, both, choose, equal, less, less_equal, number, opposite, settled
from gpdsl.symbolic.functions import floor, maximum, minimum
from gpdsl.symbolic.gaussian import moments_of
from gpdsl.symbolic.kinks import half_space, jumps, kinks
from gpdsl.symbolic.numeric import Budget, evaluate
from gpdsl.symbolic.terms import observation_terms
from gpdsl.symbolic.translate import Translator

F, G, X, T = sp.symbols("f g x t", real=True)

MODEL = """
input x : real
input z : real
output y : {kind}
param t : real = 0.5
param m : real = 0.5 fixed
latent f(x) ~ GP(0, RBF(1))
latent g(x) ~ GP(0, RBF(1))
y ~ {distribution}
"""


def methods(distribution: str, kind: str = "real", expectations: str = "auto") -> set[str]:
    translator = Translator(compile_text(MODEL.format(kind=kind, distribution=distribution)), {})
    (observation,) = observation_terms(translator, expectations)
    return {term.method for term in observation.terms}


@pytest.mark.parametrize(
    ("distribution", "kind"),
    [
        ("Normal(if z > 0 then f else g, 0.1)", "real"),
        ("Normal(if z > t and x < 1 then f * g else 2 * g, exp(if x > 0 then f else 0))", "real"),
        ("Poisson(if z > 0 then exp(f) else exp(g + f))", "count"),
        ("Normal(if z > 0 then (if x > 0 then f else g) else (if x > 1 then f^2 else 1), 0.1)", "real"),
    ],
)
def test_what_data_decide_keeps_its_closed_form(distribution: str, kind: str) -> None:
    assert methods(distribution, kind) == {"closed"}


@pytest.mark.parametrize("z", [-0.5, 0.5])
@pytest.mark.parametrize(
    "expression",
    [
        (X - choose(less(0, T), F, 2 * G)) ** 2,
        X * sp.log(choose(less(0, T), sp.exp(F), sp.exp(G - F))) - choose(less(0, T), sp.exp(F), sp.exp(G)),
        choose(less(0, T), F, choose(less(T, -1), F**3, G * F)) * choose(opposite(less(0, T)), 2, F),
    ],
)
def test_the_closed_form_is_that_of_the_branch(expression: sp.Expr, z: float) -> None:
    latents, moments = (F, G), moments_of((F, G))
    closed = expectation(expression, latents, moments)
    values = {moments.mean[F]: 0.3, moments.mean[G]: -0.7, moments.variance[F]: 0.6, moments.variance[G]: 0.4}
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    function = sp.lambdify((F, G), expression.xreplace({X: 1.3, T: sp.Float(z)}).doit(), "numpy")
    f, g = np.meshgrid(0.3 + np.sqrt(0.6) * nodes, -0.7 + np.sqrt(0.4) * nodes, indexing="ij")
    reference = np.sum(np.outer(weights, weights) / weights.sum() ** 2 * function(f, g))
    assert closed is not None
    assert float(
        closed.xreplace({X: sp.Float(1.3), T: sp.Float(z), **{k: sp.Float(v) for k, v in values.items()}})
    ) == (pytest.approx(reference, rel=1e-10))


@pytest.mark.parametrize(
    ("expression", "jumping"),
    [
        (choose(less(0, F), 1, 0), True),
        (choose(less(0, F), F, F / 10), False),
        (choose(less(X, 2 * F), 2 * F - X, 0), False),
        (choose(opposite(less(F, T)), F**2, T * F), False),
        (choose(less(F * G, 0), 1, 2), True),
        (choose(less(G, F), F - G, 0), False),
        (choose(less(0, X), F, -F), False),
        (choose(less(F**2, 1), F, 0), True),
        (floor(F), True),
        (floor(X) * F, False),
    ],
)
def test_a_jump_is_where_the_branches_differ(expression: sp.Expr, jumping: bool) -> None:
    assert bool(jumps(expression, (F, G))) is jumping


def test_how_conditions_on_latents_are_estimated() -> None:
    for mean in ("if f > 0 then f else 0.1 * f", "if f > 0 then 1 else 0", "max(f, 0.5 * g)", "abs(f - z)"):
        assert methods(f"Normal({mean}, 0.1)") == {"closed"}
    for mean in ("if f > 0 then tanh(f) else 1", "if f > 0 and g > 0 then 1 else f", "abs(f)^1.5"):
        assert methods(f"Normal({mean}, 0.1)") == {"closed", "quadrature"}
    assert methods("Normal(if sin(f) > 0 then 1 else 0, 0.1)") == {"closed", "score"}
    assert methods("Normal(floor(2 * f) / 2, 0.1)") == {"closed", "quadrature"}
    assert methods("Normal(floor(f) + floor(2 * f), 0.1)") == {"closed", "score"}
    assert methods("Normal(if f > 0.3 then floor(f) else 0, 0.1)") == {"closed", "score"}
    with pytest.raises(GpdslError, match="quadrature is inexact where a condition on a latent makes a jump"):
        methods("Normal(if sin(f) > 0 then 1 else 0, 0.1)", expectations="quadrature")
    assert methods("Normal(if f > 0 then 1 else 0, 0.1)", expectations="quadrature") == {"closed", "quadrature"}


def test_a_parameter_that_moves_a_jump_is_refused() -> None:
    with jax.enable_x64(True):
        for condition in ("sin(f) > m", "sin(f) > x"):
            text = MODEL.format(kind="real", distribution=f"Normal(if {condition} then 1 else 0, 0.1)")
            assert make_program(compile_text(text), {}, {}, {}).methods == {"closed", "score"}
        text = MODEL.format(kind="real", distribution="Normal(if sin(f) > t then 1 else 0, 0.1)")
        with pytest.raises(GpdslError, match="parameter `t` decides where a latent makes a jump"):
            make_program(compile_text(text), {}, {}, {})
        assert make_program(compile_text(text), {}, {}, {}, fixed=["t"]).methods == {"closed", "score"}


def test_what_is_known_of_a_condition_is_taken() -> None:
    """By logic on 0 and 1; comparisons of numbers are decided, and what is not known stays."""
    known, inner = [sp.Integer(0), sp.Integer(1)], less(F, T)
    for a in known:
        assert opposite(a) == int(not a) and both(a, inner) == both(inner, a) == (inner if a else 0)
        assert choose(a, F, G) == (F if a else G)
        for b in known:
            assert both(a, b) == int(a and b) and CONDITIONS["or"](a, b) == int(a or b)
            said = [bool(CONDITIONS[name](a, b)) for name in ("<", "<=", ">", ">=", "==", "!=")]
            assert said == [int(a) < b, int(a) <= b, int(a) > b, int(a) >= b, a == b, a != b]
    assert opposite(opposite(inner)) == inner and choose(inner, X, X) == X
    assert choose(inner, F**2, X * F).diff(F) == choose(inner, 2 * F, X)
    assert all(each.diff(F) == 0 for each in (inner, less_equal(F, T), equal(F, T), both(inner, less(G, T))))


def test_large_constants_become_numbers_and_what_is_no_more_than_rounding_nothing() -> None:
    large = sum(sp.exp(sp.Rational(1, k)) for k in range(2, 12))
    assert settled(large).is_Float and abs(settled(large) - large).evalf(70) < sp.Float(10) ** -55
    assert settled(sp.sin(large) ** 2 + sp.cos(large) ** 2 - 1) == 0
    assert settled(sp.exp(2) + 1) == sp.exp(2) + 1
    assert number(2.0**53 - 1) == 2**53 - 1 and number(2.0**53).is_Float and number(0.5).is_Float


def test_a_choice_is_a_piecewise_function_of_sympy() -> None:
    pieces = choose(less(0, X), X, 2 - X).rewrite(sp.Piecewise)
    assert isinstance(pieces, sp.Piecewise)
    assert (pieces.subs(X, 3), pieces.subs(X, -3)) == (3, 5)


@pytest.mark.parametrize("comparison", [less(-X * F, T), less(T, X * F), less(X * F - T, 2 * G), less(-3 * F, G + T)])
def test_half_spaces_are_those_of_the_comparison(comparison: sp.Expr) -> None:
    """Whatever the signs of parameters that a latent is multiplied with."""
    found = half_space(comparison, (F, G), Budget())
    rng = np.random.default_rng(0)
    values = {symbol: rng.normal(size=200) for symbol in (X, T, F, G)}
    np.testing.assert_array_equal(evaluate(found, values), evaluate(comparison, values))


def test_a_comparison_that_a_branch_decides_is_no_kink() -> None:
    """The outer corner of min(max(f, 1), 1) is at no latent where the inner one has taken 1."""
    assert kinks(minimum(maximum(F, 1), 1) * G, (F, G)) == (F - 1,)
    assert kinks(choose(less(choose(less(F, 0), 2, G), 1), F, G), (F, G)) in {(F, G - 1), (G - 1, F)}
