"""Checked expressions to SymPy: generic and elementwise forms, cases, recursion, opaque calls."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import sympy as sp

from gpdsl.language import compile_text
from gpdsl.language.errors.base import ModelError
from gpdsl.language.model import Read
from gpdsl.symbolic.errors import NoCase
from gpdsl.symbolic.readings import Reduced, elements_of, gathered, is_level, level_of, shifted
from gpdsl.symbolic.terms import observation_terms
from gpdsl.symbolic.translate import NeedsElements, Ref, Translator

from .models import indexed, scalar, terms, translator


def named(expression: sp.Expr) -> set[str]:
    return {symbol.name for symbol in expression.free_symbols}


def test_one_formula_for_all_elements_along_an_index() -> None:
    (observation,) = terms(indexed(50, "let a[p] = 2 * u[p] + p", "y[p] ~ Normal(a[p], s)"))
    assert observation.axes == ("p",)
    assert observation.positions == ("p",)
    assert named(observation.log_density) == {"u[p]", "index:p[p]", "y[p]", "s"}


def test_cases_are_translated_element_by_element() -> None:
    lets = "let a[1] = u[1]\nlet a[p > 1] = a[p - 1] + v[p]"
    found = terms(indexed(3, lets, "y[p] ~ Normal(a[p], s)"))
    assert [o.positions for o in found] == [(1,), (2,), (3,)]
    assert [o.axes for o in found] == [()] * 3
    assert [named(o.law.arguments["mean"]) for o in found] == [{"u[1]"}, {"u[1]", "v[2]"}, {"u[1]", "v[2]", "v[3]"}]


def test_every_comparison_picks_its_elements() -> None:
    lets = "let a[1] = 1\nlet a[p == 2] = 2\nlet a[p > 3] = 4\nlet a[p == 3] = 3"
    t = translator(indexed(5, lets, "y[p] ~ Normal(u[p], s)"))
    assert [t.let("a", (i,)) for i in range(1, 6)] == [1, 2, 3, 4, 4]
    lets = "let a[p <= 2] = 1\nlet a[p >= 3] = 2\nlet b[p != 2] = 1\nlet b[2] = 2\nlet c[p < 3] = 1\nlet c[p > 2] = 2"
    t = translator(indexed(3, lets, "y[p] ~ Normal(u[p], s)"))
    assert [[t.let(n, (i,)) for i in (1, 2, 3)] for n in "abc"] == [[1, 1, 2], [1, 2, 1], [1, 1, 2]]


def test_a_definition_by_cases_has_no_generic_form() -> None:
    t = translator(indexed(3, "let a[1] = 1\nlet a[p > 1] = u[p]", "y[p] ~ Normal(a[p], s)"))
    with pytest.raises(NeedsElements) as caught:
        t.let("a", ("p",))
    assert caught.value.axis == "p"


def test_a_let_without_a_form_for_all_levels_is_written_out_at_a_level() -> None:
    """As the results of an opaque function, and columns of an input."""
    text = """model m
index p in 1..3
input x : real
input v : real[3]
input site : label[p]
output y : real
latent f(x) ~ GP(0, RBF(1))
external solver(t: real) -> real[3]
let w = solver(f)
let a[p] = w[p] + v[p]
let b[1] = 0
let b[p > 1] = b[p - 1] + f
y ~ Normal(a[site] + b[site], 1)
"""
    (observation,) = terms(text)
    mean, each = observation.law.arguments["mean"], {}  # type: ignore[union-attr]
    assert named(mean) == {"site", "f", *(f"solver#1[{k}]" for k in (1, 2, 3)), *(f"v[{k}]" for k in (1, 2, 3))}
    (site,) = (symbol for symbol in mean.free_symbols if symbol.name == "site")
    for level in (1, 2, 3):
        each[level] = named(mean.subs(site, level))
    assert each == {k: {f"solver#1[{k}]", f"v[{k}]"} | ({"f"} if k > 1 else set()) for k in (1, 2, 3)}


def test_cases_of_one_index_stay_generic_along_another() -> None:
    text = """model m
index p in 1..3
index q in 1..100
input x : real
output y[p,q] : real
latent u[p,q](x) ~ GP(0, RBF(1))
let a[1,q] = u[1,q]
let a[p > 1,q] = a[p - 1,q] + u[p,q]
y[p,q] ~ Normal(a[p,q], 1)
"""
    found = terms(text)
    assert [(o.positions, o.axes) for o in found] == [((i, "q"), ("q",)) for i in (1, 2, 3)]
    assert named(found[1].law.arguments["mean"]) == {"u[1,q]", "u[2,q]"}  # type: ignore[arg-type]


def test_recursion_backwards_and_forwards() -> None:
    back = translator(indexed(4, "let a[1] = u[1]\nlet a[p > 1] = s * a[p - 1]", "y[p] ~ Normal(a[p], s)"))
    forth = translator(indexed(4, "let a[4] = u[4]\nlet a[p < 4] = s * a[p + 1]", "y[p] ~ Normal(a[p], s)"))
    s = sp.Symbol("s", positive=True)
    assert back.let("a", (4,)) == s**3 * sp.Symbol("u[1]", real=True)
    assert forth.let("a", (1,)) == s**3 * sp.Symbol("u[4]", real=True)


@pytest.mark.parametrize("first", [1, 400])
def test_recursion_is_longer_than_pythons_stack(first: int) -> None:
    lets = "let a[1] = u[1]\nlet a[p > 1] = a[p - 1] + u[p]"
    t = translator(indexed(400, lets, "y[p] ~ Normal(u[p], s)"))
    t.let("a", (first,))
    assert len(t.let("a", (400,)).args) == 400


def test_a_chain_of_definitions_is_longer_than_pythons_stack() -> None:
    lets = "let a0 = f\n" + "\n".join(f"let a{i} = a{i - 1} + {i}" for i in range(1, 600))
    t = translator(scalar("Normal(a599, s)", lets=lets))
    assert t.let("a599", ()) == sp.Symbol("f", real=True) + sum(range(600))


def test_reductions_over_an_index() -> None:
    lets = "let a = sum(p, u[p] * p)\nlet b = prod(p, u[p])\nlet c = max(p, u[p])\nlet d = logsumexp(p, u[p])"
    t = translator(indexed(3, lets, "y[p] ~ Normal(a + b + c + d, s)"))
    u = sp.symbols("u[1] u[2] u[3]", real=True)
    assert t.let("a", ()) == u[0] + 2 * u[1] + 3 * u[2]
    assert t.let("b", ()) == u[0] * u[1] * u[2]
    assert t.let("c", ()).args == u
    assert t.let("d", ()).args == u


def test_observations_of_single_elements_and_of_the_rest() -> None:
    found = terms(indexed(3, "", "y[1] ~ Normal(u[1], s)\ny[2] ~ StudentT(4, v[2], s)"))
    assert [(o.positions, o.distribution) for o in found] == [((1,), "Normal"), ((2,), "StudentT")]


def test_constants_are_numbers_at_an_element_and_symbols_along_an_index() -> None:
    t = translator(indexed(3, "const k[p] = [1, 2.5, 3]\nlet a = k * u", "y[p] ~ Normal(a[p], s)"))
    assert t.let("a", (2,)) == sp.Float(2.5, 17) * sp.Symbol("u[2]", real=True)
    t.let("a", ("p",))
    assert t.references[sp.Symbol("k[p]", real=True)] == Ref("const", "k", ("p",))


def test_halves_and_whole_floats_are_exact_powers() -> None:
    t = translator(scalar("Normal(f^2.0 + s^0.5, s)"))
    mean = t.scalar(t.declarations.observations[0].distribution.arguments["mean"])
    assert mean == sp.Symbol("f", real=True) ** 2 + sp.sqrt(sp.Symbol("s", positive=True))


LABELS = """model m
index c in 1..C
input x : real
output y : label[c]
latent f[c](x) ~ GP(0, RBF(1))
y ~ Categorical(logits = f)
"""


def test_a_label_is_read_by_indicators() -> None:
    t = translator(LABELS, {"C": 3})
    (observation,) = observation_terms(t)
    reads = {t.references[s] for s in observation.log_density.free_symbols}
    assert {r for r in reads if r.kind == "indicator"} == {Ref("indicator", "y", (i,)) for i in (1, 2, 3)}
    assert {r for r in reads if r.kind == "latent"} == {Ref("latent", "f", (i,)) for i in (1, 2, 3)}
    assert {(term.method, len(term.latents)) for term in observation.terms} == {("closed", 3), ("pathwise", 3)}


OPAQUE = """model m
index p in 1..2
input x : real
output y[p] : real
output z : real
latent u[p](x) ~ GP(0, RBF(1))
external g(a: real[2], b: real) -> real[2]
let same = g(u, 2)
let again = g(u, 2)
let other = g(u, 3)
let inner = g(other, 2)
y[p] ~ Normal(same[p] + again[p], 1)
z ~ Normal(other[1] + inner[2], 1)
"""


def opaque() -> Translator:
    t = translator(OPAQUE)
    for name in ("inner", "same", "again", "other"):
        t.let(name, ("p",))
    return t


def test_equal_opaque_calls_are_one_call() -> None:
    t = opaque()
    assert t.let("same", ("p",)) == t.let("again", ("p",)) != t.let("other", ("p",))
    assert len(t.externals) == 3


def test_opaque_calls_come_after_the_calls_they_read() -> None:
    uses = list(opaque().externals.values())
    known: set[str] = set()
    for use in uses:
        read = {s.name.split("[")[0] for _, elements in use.arguments for e in elements for s in e.free_symbols}
        assert {r for r in read if "#" in r} <= known
        known.add(use.key)
    assert [shape for shape, _ in uses[0].arguments] == [(2,), ()]
    assert uses[0].result == (2,)


def test_an_opaque_observation_is_estimated_by_its_score() -> None:
    found = terms(OPAQUE)
    assert [{term.method for term in o.terms} for o in found] == [{"closed", "score"}] * 2
    assert [f.name for term in found[1].terms for f in term.latents] == ["u[1]", "u[2]"]


def test_an_element_that_no_case_defines() -> None:
    text = indexed(3, "let a[1] = 1\nlet a[p > 1] = u[p]", "y[p] ~ Normal(a[p], s)")
    checked = translator(text)
    cut = checked.declarations.lets["a"]
    declarations = replace(checked.declarations, lets={"a": replace(cut, cases=cut.cases[1:])})
    with pytest.raises(ModelError, match=r"no case defines `a\[1\]`") as caught:
        Translator(declarations, {}).let("a", (1,))
    assert isinstance(caught.value.diagnostics[0], NoCase)


def test_reads_without_subscripts_stay_whole() -> None:
    t = translator(indexed(3, "let a = u", "y[p] ~ Normal(a[p], s)"))
    body = t.declarations.lets["a"].cases[0].body
    assert isinstance(body, Read)
    assert [str(e) for e in t.elements(body)] == ["u[1]", "u[2]", "u[3]"]


def test_towers_of_constants_are_settled() -> None:
    """SymPy's own evaluation of the constant takes twice as long with each exponential: 2^45 steps here."""
    made = translator(scalar("Normal(f + a, s)", lets=f"let a = {'exp(-' * 45}1{')' * 45}"))
    found = made.scalar(made.declarations.lets["a"].cases[0].body)
    expected = 1.0
    for _ in range(45):
        expected = math.exp(-expected)
    assert float(found) == pytest.approx(expected, rel=1e-14)


FIELD = """
index g in 1..4
input w : real
output y : real
const node[g] = [0.0, 1.0, 2.0, 3.0]
param s : positive = 1
latent f(node) ~ GP(0, RBF(1))
let a = sum(g, w * f[g]) + max(g, f[g])
let b = 2 * sum(g, w * f[g])
let c = sum(g, floor(f[g]))
y ~ Normal(a + b + c, s)
"""


def test_reductions_over_a_field_are_kept_once_each() -> None:
    t = translator(FIELD)
    a, b, c = (t.let(name, ()) for name in "abc")
    total, largest = (sp.Symbol(name, real=True) for name in ("sum#1", "max#2"))
    assert a == total + largest and b == 2 * total
    f, w = sp.Symbol("f[g]", real=True), sp.Symbol("w", real=True)
    assert t.reduced == {"sum#1": Reduced("sum", "g", 4, f * w), "max#2": Reduced("max", "g", 4, f)}
    assert t.references[total] == Ref("reduced", "sum#1") and t.references[largest] == Ref("reduced", "max#2")
    elements = [sp.Symbol(f"f[{k}]", real=True) for k in (1, 2, 3, 4)]
    assert elements_of(t, t.reduced["sum#1"], f) == elements
    assert elements_of(t, t.reduced["sum#1"], w) == [w]
    assert named(c) == {"f[1]", "f[2]", "f[3]", "f[4]"}  # steps are written out


def test_subscripts() -> None:
    assert shifted(3, -1) == 2 and shifted("p", 0) == "p"
    with pytest.raises(NeedsElements):
        shifted("p", 1)
    assert is_level(level_of("site")) and not is_level("site") and not is_level(2)
    found = gathered("a", (level_of("site"), 2, level_of("kind")))
    assert found == Ref("gathered", "a", (2,), at=((0, "site"), (2, "kind")))
    assert found.places == ("site", 2, "kind")


@pytest.mark.parametrize("given", [1, 2, 4])
def test_a_mixture_has_one_weight_for_each_component(given: int) -> None:
    """At the size that the data give to their index: fewer are refused like more."""
    parts = ", ".join(f"Normal(f, {sd})" for sd in (1, 3, 10))
    head = "input x : real\ninput v : real[K]\noutput y : real\nparam w : simplex[K]\nlatent f(x) ~ GP(0, RBF(1))\n"
    model = compile_text(f"{head}y ~ Mixture(w, {parts})")
    with pytest.raises(ModelError, match=f"3 distributions has 3 weights, not {given}"):
        observation_terms(Translator(model, {"K": given}))
    assert observation_terms(Translator(model, {"K": 3}))
