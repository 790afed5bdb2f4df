"""What a model says it wants of its data."""

from __future__ import annotations

import gpdsl
from gpdsl.symbolic.information import requirements


def test_columns_are_named_by_their_numbers() -> None:
    text = """
    index p in 1..2
    index q in 1..3
    input x : real[2]
    input u : positive
    input z : real[m]
    output y[p, q] : real
    latent f(x) ~ GP(0, RBF(1))
    latent g(z) ~ GP(0, RBF(1))
    y[p, q] ~ Normal(f + g, u)
    """
    found = {entry["name"]: entry["columns"] for entry in requirements(gpdsl.compile(text).declarations)}
    assert found == {
        "x": ["x1", "x2"],
        "u": ["u"],
        "z": None,
        "y": ["y1_1", "y1_2", "y1_3", "y2_1", "y2_2", "y2_3"],
    }
