"""Signs and exchanges of latents that no joint density tells apart, against the symmetry of the formula."""

from __future__ import annotations

from itertools import product

import numpy as np

from gpdsl.inference.log_joint import LogJoint, images_of
from gpdsl.program.cache import precision
from tests.inference.problems import problem_of

MODEL = """
index q in 1..2
input x : real
output y : real
latent f(x) ~ GP(0, RBF(1))
latent g[q](x) ~ GP(0, RBF(0.5))
y ~ Normal(f * (g[1] + g[2]), 0.3)
"""


def test_images_of_a_product_are_its_symmetry() -> None:
    """f (g1 + g2) stays when all three change sign, and when g1 and g2 are exchanged."""
    with precision("float64"):
        problem = problem_of(MODEL, {"x": np.array([0.0, 0.4, 1.0]), "y": np.ones(3)}, posterior="full")
        images = images_of(LogJoint(problem), problem.parameters)
    w = np.arange(1.0, 10.0)
    f, g = w[:3], w[3:].reshape(2, 3)
    expected = {tuple(s * np.concatenate([f, *g[list(o)]])) for s, o in product((1, -1), ((0, 1), (1, 0)))}
    assert {tuple(each) for each in np.asarray(images.of(w))} == expected and len(images) == 4
