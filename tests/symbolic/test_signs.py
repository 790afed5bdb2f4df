"""Which latents may change their signs without any density noticing."""

from __future__ import annotations

import pytest

import gpdsl
from gpdsl.program.program import make_program
from gpdsl.results.table import subscript
from gpdsl.symbolic.coupling import exchanged, mirrored

HEAD = "index p in 1..2\nindex q in 1..2\ninput x : real\noutput y[p] : {kind}\nparam a : real\n"
LATENTS = """
latent f(x) ~ GP({mean}, RBF(1))
latent g(x) ~ GP(0, RBF(1))
latent h[q](x) ~ GP(0, RBF(2))
latent w[p,q](x) ~ GP(0, RBF(2))
"""

MODELS = {
    "a product": ("real", "0", "Normal(f * g, 0.1)", [("f", "g")]),
    "a square": ("real", "0", "Normal(f^2 + g, 0.1)", [("f",)]),
    "a size": ("real", "0", "Normal(g, abs(f) + 0.1)", [("f",)]),
    "around something else": ("real", "1", "Normal(f^2 + g, 0.1)", []),
    "around a parameter": ("real", "a", "Normal(f * g, 0.1)", []),
    "a network": ("real", "0", "Normal(sum(q, w[p,q] * h[q]), 0.1)", [("h", "w")]),
    "two of each": ("real", "0", "Normal(f^2 * g^2, 0.1)", [("f",), ("g",)]),
    "three together": ("real", "0", "Normal(f * g * h[1], 0.1)", [("f", "g"), ("f", "h"), ("g", "h")]),
    "a sum": ("real", "0", "Normal(f + g, 0.1)", []),
    "counts": ("count", "0", "Poisson(exp(f * g))", [("f", "g")]),
    "a change point": ("real", "0", "Normal(if x > 50 then f + g else f, 0.1)", []),
    "a product from a change point on": ("real", "0", "Normal(if x > 50 then f * g else f, 0.1)", []),
    "a square on both sides": ("real", "0", "Normal(if x > 50 then f^2 + g else f^2, 0.1)", [("f",)]),
    "noise": ("real", "0", "Normal(f, exp(g))", []),
}


@pytest.mark.parametrize("case", MODELS)
def test_signs_that_no_density_tells(case: str) -> None:
    kind, mean, law, expected = MODELS[case]
    text = HEAD.format(kind=kind) + LATENTS.format(mean=mean) + f"y[p] ~ {law}\n"
    declarations = gpdsl.compile(text).declarations
    program = make_program(declarations, {}, {}, {})
    assert mirrored(program.translator, program.observations) == expected


@pytest.mark.parametrize(
    ("second", "law", "expected"),
    [
        ("RBF(1)", "Mixture([0.5, 0.5], Normal(f, 0.2), Normal(g, 0.2))", ("f", "g")),
        ("RBF(1)", "Mixture([0.4, 0.6], Normal(f, 0.2), Normal(g, 0.2))", None),
        ("RBF(2)", "Normal(max(f, g), 0.2)", None),
        ("RBF(1)", "Normal(f - g, 0.2)", None),
        ("RBF(1)", "Mixture([0.5, 0.5], Normal(h[1], 0.2), Normal(h[2], 0.2))", ("h[1]", "h[2]")),
        ("RBF(1)", "Mixture([0.5, 0.5], Normal(k[1], 0.2), Normal(k[2], 0.2))", None),
        *(("RBF(1)", f"Normal({each}[1] * {each}[2], 0.2)", None) for each in "abcd"),
    ],
)
def test_exchanges_that_no_density_tells(second: str, law: str, expected: tuple[str, str] | None) -> None:
    text = f"""
index q in 1..2
input x : real
output y : real
const s[q] = [1, 2]
latent f(x) ~ GP(0, RBF(1))
latent g(x) ~ GP(0, {second})
latent h[q](x) ~ GP(0, RBF(1))
latent k[q](x) ~ GP(0, s[q] * RBF(1))
latent a[q](x) ~ GP(q, RBF(1))
latent b[q](x) ~ GP(if q == 1 then 0 else 2, RBF(1))
latent c[q](x) ~ GP(0, RBF(q))
latent d[q](x) ~ GP(0, q * RBF(1))
y ~ {law}
"""
    program = make_program(gpdsl.compile(text).declarations, {}, {}, {})
    found = exchanged(program.translator, program.observations)
    assert [tuple(name + subscript(at) for name, at in pair) for pair in found] == ([expected] if expected else [])
