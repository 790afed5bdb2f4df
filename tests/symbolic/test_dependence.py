"""What quantities are functions of."""

from __future__ import annotations

import sympy as sp

import gpdsl
from gpdsl.symbolic.arguments import _representative
from gpdsl.symbolic.dependence import inputs_behind

TEXT = """
index s in 1..3
input x : real
input z : real
input size : real
input where : label[s]
input unused : real
output n : count
output y : real
output after : real
param a[s] : real ~ Normal(0, 1)
latent f(x) ~ GP(0, RBF(1))
latent g(x) ~ GP(z, RBF(1))
let rate = exp(f)
let more = rate + a[where]
n ~ Poisson(size * rate)
y ~ Normal(f(z) + g, 0.1)
after ~ Normal(y, 0.1)
"""


def test_inputs_are_found_through_everything_between() -> None:
    d = gpdsl.compile(TEXT).declarations
    found = {name: inputs_behind(d, [name]) for name in ("f", "g", "rate", "more", "n", "y", "after")}
    assert found == {
        "f": {"x"},
        "g": {"x", "z"},
        "rate": {"x"},
        "more": {"x", "where"},
        "n": {"x", "size"},
        "y": {"x", "z"},
        "after": {"x", "z"},
    }
    assert inputs_behind(d, ["rate", "g"]) == {"x", "z"}


def test_arguments_have_a_leading_slope_of_one_unless_that_divides_by_what_may_be_zero() -> None:
    """Of multiples of one direction; as they are named where it is explained how an expectation is found."""
    a, b = sp.Symbol("a", real=True), sp.Symbol("b", positive=True)
    assert _representative([(sp.Integer(3), sp.Integer(-6)), (sp.Integer(1), sp.Integer(-2))]) == (1, -2)
    assert _representative([(sp.Integer(0), 2 * b), (sp.Integer(0), b)]) == (0, 1)
    assert _representative([(b, a * b)]) == (1, a)
    assert _representative([(a, a**2 + 1)]) == (a, a**2 + 1)
