"""What quantities are functions of."""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp

import gpdsl
from gpdsl.symbolic.arguments import _representative
from gpdsl.symbolic.coupling import marginal
from gpdsl.symbolic.dependence import inputs_behind
from gpdsl.symbolic.numeric import evaluate
from gpdsl.symbolic.terms import observation_terms
from gpdsl.symbolic.translate import Translator

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


CHAIN = """
input x : real
output a : real
output b : real
output c : real
latent f(x) ~ GP(0, RBF(1))
a ~ Normal(2 * f + 0.3, 0.5)
b ~ Normal(x - 1.5 * a, 0.2)
c ~ {law}
"""


def test_a_chain_of_normals_has_the_moments_of_its_sums() -> None:
    """c = 0.4 x b + e of b = x - 1.5 a + e' of a = 2 f + 0.3 + e'': variances go by the squares of slopes."""
    translator = Translator(gpdsl.compile(CHAIN.format(law="Normal(0.4 * x * b, 0.1)")).declarations, {})
    terms = observation_terms(translator)
    known = {"f": -0.7, "x": 1.2}
    found = []
    for each in terms:
        alone = marginal(translator, terms, each)
        assert alone is not None and alone.law is not None and not alone.reads
        symbols = {
            s: np.asarray(known[translator.references[s].name]) for s in alone.law.arguments["mean"].free_symbols
        }
        symbols |= {s: np.asarray(known[translator.references[s].name]) for s in alone.law.arguments["sd"].free_symbols}
        found.append([float(evaluate(alone.law.arguments[name], symbols)) for name in ("mean", "sd")])
    means, variances = [2 * -0.7 + 0.3], [0.25]
    for slope, level, sd in ((-1.5, 1.2, 0.2), (0.4 * 1.2, 0.0, 0.1)):
        means.append(level + slope * means[-1])
        variances.append(sd**2 + slope**2 * variances[-1])
    np.testing.assert_allclose(found, np.stack([means, np.sqrt(variances)], axis=1))


@pytest.mark.parametrize(
    "law", ["Normal(b^2, 0.1)", "Normal(0.4 * b, exp(b))", "StudentT(3, b, 0.1)", "Normal(a * b, 1)"]
)
def test_what_is_no_linear_chain_of_normals_has_no_such_marginal(law: str) -> None:
    translator = Translator(gpdsl.compile(CHAIN.format(law=law)).declarations, {})
    terms = observation_terms(translator)
    assert marginal(translator, terms, terms[-1]) is None
