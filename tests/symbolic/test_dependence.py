"""What quantities are functions of."""

from __future__ import annotations

import gpdsl
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
