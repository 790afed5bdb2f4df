"""Functions by formula: written out at each call with the caller's axes, hygienic, bounded, and refused where wrong."""

from __future__ import annotations

import pytest

from gpdsl.language import ModelError, compile_text, model as m
from tests.timing import takes_less_than

HEAD = """index i in 1..3
index p in 1..2
input x : real
output y[p] : real
param a[i] : positive = 1
param b[i] : positive = 1
param s : positive = 0.1
latent f[p](x) ~ GP(0, RBF(1))
"""


def compiled(text: str) -> m.Declarations:
    return compile_text(HEAD + text)


def codes(text: str) -> list[str]:
    with pytest.raises(ModelError) as caught:
        compiled(text)
    return [each.code for each in caught.value.diagnostics]


def let(text: str, definition: str) -> m.Expression:
    return compiled(f"{definition}\nlet g = {text}\ny[p] ~ Normal(f[p], s)\n").lets["g"].cases[0].body


def names(expression: m.Expression) -> set[str]:
    found = {expression.name} if isinstance(expression, m.Read) else set()
    return found.union(*map(names, m.parts(expression)))


def reads(expression: m.Expression) -> list[m.Read]:
    own = [expression] if isinstance(expression, m.Read) else []
    return own + [each for part in m.parts(expression) for each in reads(part)]


WARP = "function warp(y; a, b) = y + sum(i, a[i]*tanh(b[i]*y))"


def test_a_call_holds_the_formula_with_the_values_in_it() -> None:
    call = let("warp(f[1])", WARP)
    assert isinstance(call, m.FunctionCall)
    assert call.function == "warp"
    assert names(call.body) == {"f", "a", "b"}
    assert call.axes == ()


def test_parameters_are_passed_by_position_and_by_name() -> None:
    assert names(let("warp(f[1], b)", WARP)) == {"f", "b"}
    assert names(let("warp(f[1]; b, a)", WARP)) == {"f", "a", "b"}
    assert names(let("warp(f[1], b = a)", WARP)) == {"f", "a"}


def test_the_axes_of_a_call_are_those_of_its_arguments() -> None:
    assert [axis.name for axis in let("square(f)", "function square(z) = z^2").axes] == ["p"]
    assert let("total(f)", "function total(z) = z[1] + z[2]").axes == ()
    assert let("norm2(f)", "function norm2(z) = sum(z*z)").axes == ()


def test_an_element_of_an_argument_is_an_element_of_every_value_in_it() -> None:
    body = let("first(2*f + 1)", "function first(z) = z[1]")
    assert [each.subscripts for each in reads(body)] == [(m.Fixed(1),)]


def test_the_names_of_a_formula_are_those_of_the_file_not_those_of_the_caller() -> None:
    inner = "function inner(z; s) = z*s\nfunction outer(s) = inner(s)"
    assert names(let("outer(f[1])", inner)) == {"f", "s"}


def test_functions_are_defined_in_any_order_and_used_in_every_expression() -> None:
    model = compiled(
        "latent g(x) ~ GP(twice(s), RBF(twice(s)))\nlet h[1] = twice(f[1])\nlet h[p > 1] = twice(h[p-1])\n"
        "function twice(z) = 2*once(z)\nfunction once(z) = z\ny[p] ~ Normal(twice(h[p]) + g, twice(s))\n"
    )
    assert names(model.observations[0].distribution.arguments["mean"]) == {"h", "g"}


def test_arguments_may_recur_in_a_let() -> None:
    model = compiled("function step(z) = z + 1\nlet h[1] = f[1]\nlet h[p > 1] = step(h[p-1])\ny[p] ~ Normal(h[p], s)\n")
    assert names(model.lets["h"].cases[1].body) == {"h"}


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("E330", "function g(z) = g(z)\ny[p] ~ Normal(g(f[p]), s)"),
        ("E201", "function g(z) = z + nothing\ny[p] ~ Normal(g(f[p]), s)"),
        ("E218", "function g(z) = z + x\ny[p] ~ Normal(g(f[p]), s)"),
        ("E301", "function g(z) = z\ny[p] ~ Normal(g(f[p], 1), s)"),
        ("E303", "function g(z; c) = z + c\ny[p] ~ Normal(g(f[p]), s)"),
        ("E302", "function g(z; a) = z + sum(a)\ny[p] ~ Normal(g(f[p], q = 1), s)"),
        ("E202", "function g(z, z) = z\ny[p] ~ Normal(f[p], s)"),
        ("E202", "function g(p) = p\ny[p] ~ Normal(f[p], s)"),
        ("E211", "function g(exp) = exp\ny[p] ~ Normal(f[p], s)"),
        ("E331", "function g(z) = z[1]\ny[p] ~ Normal(g(f[p]), s)"),
        ("E331", "function g(z) = sum(p, z)\ny[p] ~ Normal(g(f[p]), s)"),
        ("E203", "function g(z) = z\ny[p] ~ Normal(g(a), s)"),
        ("E313", "density d(z | m) = -(z - m)^2\ny[p] ~ Normal(d(f[p]), s)"),
    ],
)
def test_refused(code: str, text: str) -> None:
    assert codes(text + "\n") == [code]


def test_a_mistake_in_a_formula_is_reported_once_at_its_definition() -> None:
    text = "function g(z) = z + nothing\nlet h = g(f[1])\nlet k = g(f[2])\ny[p] ~ Normal(h + k, s)\n"
    with pytest.raises(ModelError) as caught:
        compiled(text)
    assert [(each.code, each.span.line) for each in caught.value.diagnostics] == [("E201", 9)]


def test_a_mistake_of_one_call_points_at_the_call_and_names_the_function() -> None:
    with pytest.raises(ModelError) as caught:
        compiled("function g(z) = z[1]\nlet h = g(s)\ny[p] ~ Normal(f[p] + h, s)\n")
    (mistake,) = caught.value.diagnostics
    assert (mistake.span.line, mistake.span.column) == (10, 9)
    assert "inside `g`" in mistake.message_text()


@pytest.mark.parametrize(
    "step",
    ["f{0}(z) + f{0}(z)", "f{0}(f{0}(z))", "exp(f{0}(z))", "f{0}(z)"],
)
def test_functions_of_functions_end_in_an_error_soon(step: str) -> None:
    chain = "".join(f"function f{k}(z) = {step.format(k - 1)}\n" for k in range(1, 300))
    text = f"function f0(z) = z + 1\n{chain}y[p] ~ Normal(f299(f[p]), s)\n"
    assert set(codes(text)) <= {"E332", "E333", "E410"}
    assert takes_less_than(lambda: codes(text), 10)


def test_calls_that_add_up_are_bounded_and_reported_once() -> None:
    chain = "".join(f"function f{k}(z) = f{k - 1}(z) + f{k - 1}(z)\n" for k in range(1, 10))
    many = "".join(f"let g{k} = f9(f[1])\n" for k in range(500))
    assert codes(f"function f0(z) = z + 1\n{chain}{many}y[p] ~ Normal(g1, s)\n") == ["E333"]
