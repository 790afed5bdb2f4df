"""Parameters: where they start, which are learnt, what is refused."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gpdsl.errors import GpdslError
from gpdsl.language import compile_text
from gpdsl.language.vocabulary import CONSTRAINTS
from gpdsl.program.parameters import BIJECTORS, Parameters, bijector, make_parameters
from gpdsl.symbolic.translate import Translator


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Seeded by the test's name."""
    return np.random.default_rng(sum(map(ord, request.node.name)))


TEXT = """model m
index p in 1..3
input x : real
output y : real
param mu : real = -2
param sigma[p] : positive = 0.5
param share : unit = 0.25 fixed
param start[p] : real = [1, 2, 3]
latent f(x) ~ GP(mu, RBF(1))
y ~ Normal(f, sigma[1] + share + start[1])
"""


def made(fixed: Any = (), initial: Any = None) -> Parameters:
    return make_parameters(Translator(compile_text(TEXT), {}), fixed, initial)


def test_every_constraint_of_the_language_has_a_bijector() -> None:
    assert set(BIJECTORS) == set(CONSTRAINTS)


NARROWED = {
    "between": bijector("real", -1.0, 3.0),
    "above": bijector("real", -2.0),
    "below": bijector("real", None, 5.0),
    "positive below": bijector("positive", None, 0.5),
    "positive above": bijector("positive", 0.2),
}
ALL = {**BIJECTORS, **NARROWED}


# factors of correlation matrices have one axis more than their numbers: `test_correlations` has them
@pytest.mark.parametrize("name", [name for name, each in ALL.items() if each.vector and name != "correlation_factor"])
@pytest.mark.parametrize("shape", [(4,), (2, 3)], ids=str)
def test_vector_bijectors_invert(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> None:
    free = (*shape[:-1], shape[-1] - 1) if name == "simplex" else shape
    u = 2 * rng.normal(size=free)
    with jax.enable_x64(True):
        value = np.asarray(ALL[name].forward(jnp.asarray(u)))
    assert value.shape == shape
    assert ALL[name].contains(value)
    np.testing.assert_allclose(ALL[name].inverse(value), u, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ALL)
def test_bijectors_have_the_gradient_of_their_differences(name: str, rng: np.random.Generator) -> None:
    u, weight = rng.normal(size=3), rng.normal(size=4 if name == "simplex" else 3)
    with jax.enable_x64(True):
        total = lambda v: jnp.sum(weight * ALL[name].forward(v))  # noqa: E731
        found = np.asarray(jax.grad(total)(jnp.asarray(u)))
        steps = 1e-6 * np.eye(3)
        expected = [float(total(jnp.asarray(u + s)) - total(jnp.asarray(u - s))) / 2e-6 for s in steps]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("name", "outside"),
    [
        ("between", [-1.0, 3.0, 4.0, np.nan]),
        ("above", [-2.0, -5.0, np.inf]),
        ("below", [5.0, 6.0, -np.inf]),
        ("positive below", [0.0, 0.5, -1.0]),
        ("positive above", [0.2, 0.1]),
    ],
)
def test_bounds_are_never_attained(name: str, outside: list[float]) -> None:
    assert not any(NARROWED[name].contains(np.array([value])) for value in outside)
    assert NARROWED[name].contains(np.asarray(NARROWED[name].forward(jnp.asarray([-3.0, 0.0, 3.0]))))


@pytest.mark.parametrize(
    ("name", "outside"),
    [("simplex", [[0.5, 0.6], [1.0, 0.0], [1.5, -0.5]]), ("ordered", [[1.0, 1.0], [2.0, 1.0], [0.0, np.inf]])],
)
def test_vectors_outside(name: str, outside: list[list[float]]) -> None:
    assert not any(BIJECTORS[name].contains(np.array(each)) for each in outside)


CONSTRAINED = """model m
index k in 1..2
input x : real
output y : real
param w : simplex[3]
param v[k] : simplex[4] = [[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]]
param cut : ordered[3]
param rho : real(lower = -1, upper = 1) = 0.2
param far : real(lower = 5)
param low : positive(upper = 0.5) fixed
latent f(x) ~ GP(rho, RBF(1))
y ~ Normal(f, 1)
"""


def constrained(**options: Any) -> Parameters:
    return make_parameters(Translator(compile_text(CONSTRAINED), {}), **options)


def test_where_constrained_parameters_start() -> None:
    found = constrained()
    assert found.initial["w"] == pytest.approx([1 / 3] * 3)
    np.testing.assert_allclose(found.initial["v"], [[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]], rtol=1e-14)
    assert found.initial["cut"] == pytest.approx([-0.6745, 0.0, 0.6745], abs=1e-4)
    assert (found.initial["rho"], found.initial["far"], found.held["low"]) == (0.2, 6.0, 0.25)
    with jax.enable_x64(True):
        values = found.constrain(found.unconstrained())
    for name, value in {**found.initial, **found.held}.items():
        np.testing.assert_allclose(values[name], value, rtol=1e-12, atol=1e-15)


def test_constrained_parameters_can_be_held_and_started_elsewhere() -> None:
    found = constrained(fixed=["w"], initial={"w": [0.2, 0.3, 0.5], "cut": [0, 1, 4]})
    assert found.held["w"] == pytest.approx([0.2, 0.3, 0.5])
    assert found.initial["cut"].tolist() == [0, 1, 4]


@pytest.mark.parametrize(
    ("initial", "text"),
    [
        ({"w": 1 / 3}, "parameter `w`: expected an array of shape (3,), got one number"),
        ({"w": [0.5, 0.5]}, "parameter `w`: expected an array of shape (3,), got shape (2,)"),
        ({"w": [0.5, 0.5, 0.5]}, "is simplex: expected positive numbers that add up to 1 along the last axis"),
        ({"cut": [0, 2, 1]}, "parameter `cut` is ordered: expected finite numbers that increase along the last axis"),
        ({"rho": 1}, "parameter `rho` is real: expected numbers strictly between -1 and 1, got 1.0"),
        ({"far": 5}, "parameter `far` is real: expected numbers above 5, got 5.0"),
    ],
)
def test_constrained_values_refused(initial: dict[str, Any], text: str) -> None:
    with pytest.raises(GpdslError) as caught:
        constrained(initial=initial)
    assert text in str(caught.value)


@pytest.mark.parametrize("name", [name for name, each in ALL.items() if not each.vector])
def test_bijectors_invert(name: str) -> None:
    u = np.linspace(-6, 6, 25)
    with jax.enable_x64(True):
        value = np.asarray(ALL[name].forward(jnp.asarray(u)))
    assert ALL[name].contains(value)
    np.testing.assert_allclose(ALL[name].inverse(value), u, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("name", "outside"),
    [
        ("real", [np.nan, np.inf]),
        ("positive", [0.0, -1.0, np.inf, np.nan]),
        ("unit", [0.0, 1.0, -0.1, 1.1, np.nan]),
    ],
)
def test_domains(name: str, outside: list[float]) -> None:
    assert not any(BIJECTORS[name].contains(np.array([0.5, value])) for value in outside)
    assert BIJECTORS[name].contains(np.array([0.5, CONSTRAINTS[name] or 0.5]))


def test_declared_values() -> None:
    found = made()
    assert {n: v.tolist() for n, v in found.initial.items()} == {"mu": -2, "sigma": [0.5] * 3, "start": [1, 2, 3]}
    assert {n: v.tolist() for n, v in found.held.items()} == {"share": 0.25}


def test_values_come_back_from_the_real_line() -> None:
    with jax.enable_x64(True):
        values = made().constrain(made().unconstrained())
    expected = {"mu": -2.0, "sigma": [0.5] * 3, "share": 0.25, "start": [1.0, 2.0, 3.0]}
    assert set(values) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(values[name], value, rtol=1e-14)


def test_held_and_started_elsewhere() -> None:
    found = made(["mu"], {"mu": 7, "sigma": [1, 2, 3], "share": 0.5})
    assert {n: v.tolist() for n, v in found.held.items()} == {"mu": 7, "share": 0.5}
    assert found.initial["sigma"].tolist() == [1, 2, 3]


def test_held_values_take_the_dtype_of_the_learnt() -> None:
    values = made().constrain({n: jnp.asarray(v, jnp.float32) for n, v in made().unconstrained().items()})
    assert {v.dtype.name for v in values.values()} == {"float32"}


@pytest.mark.parametrize(
    ("fixed", "initial", "text"),
    [
        (["sgma"], None, "fixed: the model has no parameter `sgma`; it has mu, sigma, share, start"),
        ((), {"x": 1}, "init: the model has no parameter `x`; it has mu, sigma, share, start"),
        (
            ["f"],
            None,
            "fixed: `f` is inferred with the latents, and has no value to start or be held at; parameters: mu, "
            "sigma, share, start",
        ),
        (["mu=3"], None, "fixed: `mu=3` has a value; name `mu` alone, and give the value by init (--init mu=3)"),
        ((), {"sigma": [1, 2]}, "parameter `sigma`: expected a number or an array of shape (3,), got shape (2,)"),
        ((), {"sigma": 0}, "parameter `sigma` is positive: expected numbers above 0, got [0. 0. 0.]"),
        ((), {"share": 1}, "parameter `share` is unit: expected numbers strictly between 0 and 1, got 1.0"),
        ((), {"mu": float("nan")}, "parameter `mu` is real: expected finite numbers, got nan"),
        ((), {"mu": "much"}, "init: parameter `mu`: expected numbers, got 'much'"),
        ((), {"mu": None}, "parameter `mu` is real: expected finite numbers, got nan"),
        ((), {"sigma": [1, [2], 3]}, "init: parameter `sigma`: expected numbers, got [1, [2], 3]"),
    ],
)
def test_refused(fixed: list[str], initial: dict[str, Any] | None, text: str) -> None:
    with pytest.raises(GpdslError) as caught:
        made(fixed, initial)
    assert str(caught.value) == text
