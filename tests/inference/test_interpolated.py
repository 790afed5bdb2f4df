"""Moments at few passes in place of many: known functions, and which latents are asked."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gpdsl.inference.layered.predictive import FEW, NOTHING, column_of, interpolated
from gpdsl.kernels.functionals import Functionals, Values
from tests.inference.problems import problem_of

DEVIATES = np.concatenate([np.linspace(-3.0, 1.0, 299), [0.0]])
"""Of no pass as far on one side as on the other."""

FUNCTIONS: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "smooth": (lambda z: jnp.exp(-0.5 * (z - 0.4) ** 2), True),
    "a parabola that touches nothing": (lambda z: z**2, True),
    "even, with a kink": (lambda z: jnp.abs(z), False),
    "odd, with a kink": (lambda z: z * jnp.abs(z), False),
    "nearly smooth enough": (lambda z: 1.0 / (1.0 + 4.0 * z**2), False),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_moments_of_all_passes_are_those_of_the_function(name: str) -> None:
    """Of rows whose places differ by another column, too; none where few do not tell."""
    function, few = FUNCTIONS[name]
    rows, asked = np.array([0.0, 0.25, 2.0]), list[int]()

    def moments(at: Functionals) -> tuple[jax.Array, jax.Array]:
        assert isinstance(at, Values)
        jax.debug.callback(lambda each: asked.append(len(each)), at.points)
        value = function((at.points[:, 1] - 5.0) / 0.5)[None] * (1.0 + at.points[:, 0])
        return value, 2.0 * value

    with jax.enable_x64(True):
        points = np.stack(np.broadcast_arrays(rows, 5.0 + 0.5 * DEVIATES[:, None]), axis=-1)
        found = interpolated(moments, Values(jnp.asarray(points.reshape(-1, 2))), DEVIATES)
        expected = np.asarray(function(DEVIATES))[:, None] * (1.0 + rows)
    jax.effects_barrier()
    assert set(asked) == {3 * FEW}
    if not few:
        assert np.isnan(found[0]).all() and np.isnan(found[1]).all()
        return
    np.testing.assert_allclose(found[0][0], expected.ravel(), atol=2e-11)
    np.testing.assert_allclose(found[1][0], 2.0 * expected.ravel(), atol=4e-11)
    assert np.min(found[1]) >= 0.0


@pytest.mark.parametrize(("share", "told"), [(0.8, True), (1.2, False)])
def test_few_passes_tell_what_many_do_where_the_last_coefficients_are_nothing(share: float, told: bool) -> None:
    """A Chebyshev polynomial of the last order beside a function of size 5, whose last coefficient is its own."""
    reach = np.max(np.abs(DEVIATES))
    small = share * NOTHING * 5.0

    def moments(at: Functionals) -> tuple[jax.Array, jax.Array]:
        assert isinstance(at, Values)
        value = 5.0 + small * jnp.cos((FEW - 1) * jnp.arccos(jnp.clip(at.points[:, 0] / reach, -1, 1)))[None]
        return value, value

    with jax.enable_x64(True):
        found = interpolated(moments, Values(jnp.asarray(DEVIATES[:, None])), DEVIATES)
    assert np.isfinite(found[0]).all() == told


HEAD = "input x : real\noutput y : real\nrow w ~ Normal(0, 1)\n"
TWO = "row v ~ Normal(x, 0.5)\nlatent f(w, v) ~ GP(0, RBF(1))"


@pytest.mark.parametrize(
    ("latents", "one"),
    [
        ("latent f(w) ~ GP(0, RBF(1))", True),
        ("latent f(x, w) ~ GP(0, RBF(1))", True),
        (TWO, False),
        ("index c in 1..2\nrow u[c] ~ Normal(0, 1)\nlatent f(u) ~ GP(0, RBF(1))", False),
        ("latent g(w) ~ GP(0, RBF(1))\nlatent f(g) ~ GP(0, RBF(1))", False),
        ("latent g(x) ~ GP(0, RBF(1))\nlatent f(w, g) ~ GP(0, RBF(1))", False),
    ],
)
def test_one_number_is_told_from_others(latents: str, one: bool) -> None:
    """Which passes differ in, and of which `normals` are the column."""
    data = {"x": np.arange(3.0), "y": np.arange(3.0)}
    read = "f + v" if latents.startswith("row") else "f + w"
    program = problem_of(f"{HEAD}{latents}\ny ~ Normal({read}, 0.1)\n", data).program
    layers = cast(Any, SimpleNamespace(program=program))
    column = {name: group.start for group in program.groups for name in group.names}
    found = {name: column_of(layers, group) for group in program.groups for name in group.names}
    assert found["f"] == (column["w"] if one else None)
    assert found["w"] is None
