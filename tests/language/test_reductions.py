"""Sums over the only axis, contractions and conditional expressions: which axes they have, and what they become."""

from __future__ import annotations

import pytest

from gpdsl.language import ModelError, compile_text
from gpdsl.language.model import Let, Operation, Reduction

MODEL = """
index p in 1..3
index q in 1..2
index r in 1..4
input x : real[3]
input u : real[D]
input z : real
const a[p] = [1, 2, 3]
const m[p, q] = 1
const n[q, r] = 1
output y : real
latent f[p](z) ~ GP(0, RBF(1))
latent g[q](z) ~ GP(0, RBF(1))
"""


def let(line: str) -> Let:
    return compile_text(f"{MODEL}\n{line}\ny ~ Normal(f[1] + g[1], 1)\n").lets["v"]


@pytest.mark.parametrize(
    ("line", "axes"),
    [
        ("let v = sum(x)", ""),
        ("let v = mean(u)", ""),
        ("let v = norm(a)", ""),
        ("let v = sum(x[2..3])", ""),
        ("let v = sum(q, m)", "p"),
        ("let v = sum(p, sum(q, f[p] * g[q] * p))", ""),
        ("let v = sum(p, sum(q, f[p] * g[q])) + f", "p"),
        ("let v = sum(p, f[p] * g)", "q"),
        ("let v[p] = sum(m)", "p"),
        ("let v = m @ g", "p"),
        ("let v[p] = m @ g", "p"),
        ("let v = m @ n", "p r"),
        ("let v = dot(a, f)", ""),
        ("let v = a @ x", ""),
        ("let v = a @ m @ n", "r"),
        ("let v = if z > 0 then f else a", "p"),
        ("let v = if x[1] > 0 and not z < 1 or a > 2 then 1 else 2", "p"),
    ],
)
def test_axes(line: str, axes: str) -> None:
    assert " ".join(axis.describe() for axis in let(line).axes) == axes


def test_conditional_has_the_condition_first() -> None:
    body = let("let v = if z >= 1 or not z < 2 then f[1] else 0").cases[0].body
    assert isinstance(body, Operation)
    condition = body.operands[0]
    assert body.operator == "if"
    assert isinstance(condition, Operation)
    assert condition.operator == "or"
    assert [each.operator for each in condition.operands] == [">=", "not"]  # type: ignore[attr-defined]


def test_a_reduction_keeps_the_axis_it_runs_over() -> None:
    body = let("let v = sum(u)").cases[0].body
    assert isinstance(body, Reduction)
    assert body.axis.dimension == "D"


def test_a_quantity_may_be_called_mean_beside_the_function() -> None:
    let_ = compile_text(f"{MODEL}let mean = 2\nlet v = mean + mean(x)\ny ~ Normal(f[1], mean)\n").lets["v"]
    assert let_.axes == ()


def test_a_latent_may_not_be_called_mean() -> None:
    with pytest.raises(ModelError, match="E211"):
        compile_text("input x : real\noutput y : real\nlatent mean(x) ~ GP(0, RBF(1))\ny ~ Normal(mean, 1)\n")
