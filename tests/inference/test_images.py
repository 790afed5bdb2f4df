"""Signs and exchanges of latents that no joint density tells apart, against the symmetry of the formula."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpdsl.inference import images
from gpdsl.inference.images import Images, images_of
from gpdsl.inference.log_joint import LogJoint
from gpdsl.inference.mcmc.chains import Chains
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
        found = images_of(LogJoint(problem), problem.parameters)
    w = np.arange(1.0, 10.0)
    f, g = w[:3], w[3:].reshape(2, 3)
    expected = {tuple(s * np.concatenate([f, *g[list(o)]])) for s, o in product((1, -1), ((0, 1), (1, 0)))}
    assert {tuple(each) for each in np.asarray(found.of(w))} == expected and len(found) == 4


@pytest.mark.parametrize("together", [1, 2, 3, 128])
def test_every_change_is_tried_once_whatever_are_tried_together(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def holds(some: list[int]) -> list[bool]:
        tried.extend(some)
        assert len(some) <= together
        return [change % 2 == 0 for change in some]

    monkeypatch.setattr(images, "TOGETHER", together)
    monkeypatch.setattr(images, "_holding", lambda *_: holds)
    monkeypatch.setattr(images, "_candidates", lambda *_: range(7))
    joint: Any = SimpleNamespace(problem=SimpleNamespace(program=None), sizes=())
    assert images.changes_of_latents(joint, {}) == [0, 2, 4, 6] and tried == [*range(7)]


def test_draws_are_moved_to_one_of_their_images_each_as_often() -> None:
    """Two values that may be exchanged, and one whose sign is open; chains and draws stay where they are."""
    places, signs = np.array([[0, 1, 2], [1, 0, 2], [0, 1, 2]]), np.array([[1.0, 1, 1], [1, 1, 1], [1, 1, -1]])
    every, white = Images(places, signs), np.random.default_rng(0).standard_normal((2, 1500, 3))
    said = {"diverging": np.zeros((2, 1500), int)}
    found = Chains({"white": white[..., 1:], "learnt": {"s": white[..., 0]}}, said).in_all(every, seed=1)
    moved = np.concatenate([found.positions["learnt"]["s"][..., None], found.positions["white"]], axis=-1)
    same = np.all(white[..., places] * signs == moved[..., None, :], axis=-1)
    assert found.images == 3 and np.all(same.sum(axis=-1) == 1)
    assert np.all(np.abs(same.mean(axis=(0, 1)) - 1 / 3) < 4 * np.sqrt(2 / 9 / 3000))
    alone = Chains({"white": white}, said)
    assert alone.in_all(Images(places[:1], signs[:1]), seed=1) is alone
