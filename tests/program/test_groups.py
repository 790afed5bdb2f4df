"""Grouping of latents by kernel form, their numbers, their columns and their means."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gpdsl.kernels.form import describe
from gpdsl.program.evaluation import functionals_at, prior_means, stack_inputs
from gpdsl.program.groups import columns, columns_of, element_names, elements, kernel_values
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows
from gpdsl.symbolic.readings import OWN

from .models import latents, program, zoo


def constrained(made: Program) -> dict[str, jax.Array]:
    return made.parameters.constrain(made.parameters.unconstrained())


def numbers_of(made: Program, group: int = 0) -> tuple[np.ndarray, list[np.ndarray]]:
    """Scales and arguments of a group at the initial parameters."""
    chosen = made.groups[group]
    with jax.enable_x64(True):
        found = kernel_values(made.evaluator, chosen, constrained(made))
    return np.asarray(found.scale), [np.asarray(a) for a in found.arguments]


def test_seismic_is_one_group_of_eight_with_one_factor() -> None:
    made = zoo("seismic")
    (group,) = made.groups
    assert (group.size, group.factors, group.names) == (8, 1, ("depth", "velocity"))
    scale, (ell,) = numbers_of(made)
    depth, velocity = np.array([200, 500, 1600, 2200]), np.array([1950, 2300, 2750, 3650])
    np.testing.assert_allclose(scale, np.concatenate([(0.15 * depth) ** 2, (0.1 * velocity) ** 2]))
    np.testing.assert_array_equal(ell, [1.0])
    assert made.latent_names == [f"{n}[{i}]" for n in ("depth", "velocity") for i in (1, 2, 3, 4)]


def test_classes_share_their_factor() -> None:
    made = zoo("usps", {"C": 3, "D": 2})
    assert [(g.size, g.factors) for g in made.groups] == [(3, 1)]
    scale, (ell,) = numbers_of(made)
    np.testing.assert_allclose(scale, [10, 10, 10])
    np.testing.assert_allclose(ell, [16])


@pytest.mark.parametrize(
    ("declared", "factors"),
    [
        (("f[p](x) ~ GP(0, RBF(a))",), [1]),
        (("f[p](x) ~ GP(0, w[p] * RBF(a))",), [1]),
        (("f[p](x) ~ GP(0, RBF(w[p]))",), [3]),
        (("f[p](x) ~ GP(0, RBF(a))", "g(x) ~ GP(0, b * RBF(a))"), [1]),
        (("f[p](x) ~ GP(0, RBF(a))", "g(x) ~ GP(0, RBF(b))"), [4]),
        (("f[p](x) ~ GP(0, RBF(a))", "g(z) ~ GP(0, RBF(a))"), [1, 1]),
        (("f[p](x) ~ GP(0, RBF(a))", "g(x) ~ GP(0, Matern32(a))"), [1, 1]),
        (("f[p](x) ~ GP(0, RBF(w[1]))", "g(x) ~ GP(0, RBF(w[1]))"), [1]),
        (("f[p](x) ~ GP(0, RBF(a) + w[p] * White())",), [3]),
        (("f[p](z) ~ GP(0, RBF(ard))",), [1]),
        (("f[p](z) ~ GP(0, RBF(own[p]))",), [3]),
    ],
)
def test_factors(declared: tuple[str, ...], factors: list[int]) -> None:
    assert [g.factors for g in program(latents(*declared), {"D": 2}).groups] == factors


def test_one_length_scale_per_element() -> None:
    scale, (ell,) = numbers_of(program(latents("f[p](x) ~ GP(0, a * RBF(w[p]))"), {"D": 2}))
    np.testing.assert_allclose(scale, [2, 2, 2])
    np.testing.assert_allclose(ell, [1, 2, 3])


def test_one_length_scale_per_column() -> None:
    made = program(latents("f[p](z) ~ GP(0, RBF(ard))"), {"D": 2}, initial={"ard": [1.0, 2.0]})
    np.testing.assert_allclose(numbers_of(made)[1][0], [[1.0, 2.0]])


def test_one_length_scale_per_element_and_column() -> None:
    own = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    made = program(latents("f[p](z) ~ GP(0, RBF(own[p]))"), {"D": 2}, initial={"own": own})
    np.testing.assert_allclose(numbers_of(made)[1][0], own)


def test_one_and_several_length_scales_in_a_group() -> None:
    declared = ("f[p](z) ~ GP(0, RBF(w[p]))", "g(z) ~ GP(0, RBF(ard))")
    made = program(latents(*declared), {"D": 2}, initial={"ard": [8.0, 9.0]})
    np.testing.assert_allclose(numbers_of(made)[1][0], [[1, 1], [2, 2], [3, 3], [8, 9]])


def test_columns_and_names_follow_the_groups() -> None:
    declared = ("f[p](x) ~ GP(0, RBF(a))", "g(x) ~ GP(0, Matern12(a))", "h[p,q](x) ~ GP(0, b * RBF(a))")
    made = program(latents(*declared), {"D": 2})
    assert columns(made.groups) == {("f", OWN): (0, 3), ("h", OWN): (3, 9), ("g", OWN): (9, 10)}
    names = element_names(made.translator, made.groups)
    assert names[3:] == ["h[1,1]", "h[1,2]", "h[2,1]", "h[2,2]", "h[3,1]", "h[3,2]", "g"]
    assert made.latents == 10
    assert [describe(g.form) for g in made.groups] == ["RBF(ell)", "Matern12(ell)"]


def test_inputs_stand_side_by_side() -> None:
    made = program(latents("f[p](x, z) ~ GP(0, RBF(a))"), {"D": 2})
    rows = Rows({"x": jnp.arange(3.0), "z": jnp.arange(6.0).reshape(3, 2)}, {}, {})
    assert columns_of(made.groups[0], made.translator) == 3
    np.testing.assert_array_equal(stack_inputs(("x", "z"), rows), [[0, 0, 1], [1, 2, 3], [2, 4, 5]])


def test_derivatives_are_along_the_columns_they_name() -> None:
    """Counted over all inputs of a latent, one after the other."""
    slopes = "D(f[1], x) + D(f[1], z[1]) + D(f[1], z[3]) + D(f[1], x, z[2])"
    lets = f"output slope : real\nslope ~ Normal({slopes}, 1)"
    made = program(latents("f[p](x, z) ~ GP(0, RBF(a))", lets=lets), {"D": 3})
    rows = Rows({"x": jnp.arange(2.0), "z": jnp.arange(6.0).reshape(2, 3)}, {}, {})
    values, sums = functionals_at(made.groups[0], made.groups[0].readings.all, rows).parts
    assert {each.columns for each in sums.parts} == {(0,), (1,), (3,), (0, 2)}
    for each in (values, *sums.parts):
        np.testing.assert_array_equal(each.points, [[0, 0, 1, 2], [1, 3, 4, 5]])


def test_derivatives_along_an_index_are_those_along_all_its_columns() -> None:
    lets = "index d in 1..D\noutput slope : real\nslope ~ Normal(sum(d, D(f[1], z[d])), 1)"
    made = program(latents("f[p](x, z) ~ GP(0, RBF(a))", lets=lets), {"D": 3})
    rows = Rows({"x": jnp.arange(2.0), "z": jnp.arange(6.0).reshape(2, 3)}, {}, {})
    _, sums = functionals_at(made.groups[0], made.groups[0].readings.all, rows).parts
    assert sorted(each.columns for each in getattr(sums, "parts", [sums])) == [(1,), (2,), (3,)]


def test_prior_means() -> None:
    made = program(latents("f[p](x) ~ GP(m[p] * x + a, RBF(a))", "g(x) ~ GP(1.5, RBF(b))"), {"D": 2})
    x = np.array([0.0, 1.0, 2.0, 3.0])
    with jax.enable_x64(True):
        rows = Rows({"x": jnp.asarray(x)}, {}, {})
        found = prior_means(made.evaluator, made.groups, constrained(made), rows, 4)
    expected = np.column_stack([x[:, None] * [0.1, 0.2, 0.3] + 2, np.full(4, 1.5)])
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_follow_the_parameters_dtype(dtype: str) -> None:
    made = program(latents("f[p](x) ~ GP(0.5, a * RBF(1))"), {"D": 2})
    with jax.enable_x64(dtype == "float64"):
        learnt = {n: jnp.asarray(v, dtype) for n, v in made.parameters.unconstrained().items()}
        parameters = made.parameters.constrain(learnt)
        values = kernel_values(made.evaluator, made.groups[0], parameters)
        mean = prior_means(made.evaluator, made.groups, parameters, Rows({"x": jnp.ones(2, dtype)}, {}, {}), 2)
    assert {values.scale.dtype.name, values.arguments[0].dtype.name, mean.dtype.name} == {dtype}


def test_elements_of_a_latent_are_counted_from_one_among_those_of_its_group() -> None:
    members = [
        SimpleNamespace(latent=SimpleNamespace(name=name, axes=axes)) for name, axes in (("f", (4,)), ("g", (2, 3)))
    ]
    group, translator = cast(Any, SimpleNamespace(members=members)), cast(Any, SimpleNamespace(shape=lambda axes: axes))
    found = lambda *given: np.flatnonzero(elements(translator, group, *given)).tolist()  # noqa: E731
    assert [found("f", (place,)) for place in (1, 2, 3, 4)] == [[0], [1], [2], [3]]
    assert found("g", (1, 2)) == [5] and found("g", (2, 3)) == [9]
    assert found("f") == [0, 1, 2, 3] and found("g") == [4, 5, 6, 7, 8, 9] and found("h") == []
