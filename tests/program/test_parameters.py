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
from gpdsl.program.bijectors import BIJECTORS, bijector
from gpdsl.program.parameters import Parameters, make_parameters
from gpdsl.symbolic.translate import Translator

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


@pytest.mark.parametrize("name", BIJECTORS)
def test_bijectors_invert(name: str) -> None:
    u = np.linspace(-6, 6, 25) if not BIJECTORS[name].vector else np.random.default_rng(0).normal(size=(20, 4))
    with jax.enable_x64(True):
        value = np.asarray(BIJECTORS[name].forward(jnp.asarray(u)))
    assert BIJECTORS[name].contains(value)
    np.testing.assert_allclose(BIJECTORS[name].inverse(value), u, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("lower", "upper"), [(-1.0, 1.0), (2.0, None), (None, -3.0), (0.0, 1e-3)])
def test_bounds_hold_and_invert(lower: float | None, upper: float | None) -> None:
    between = bijector("real", lower, upper)
    u = np.linspace(-6, 6, 25)
    with jax.enable_x64(True):
        value = np.asarray(between.forward(jnp.asarray(u)))
    assert np.all(value > (-np.inf if lower is None else lower)) and np.all(value < (np.inf if upper is None else upper))
    assert between.contains(value)
    np.testing.assert_allclose(between.inverse(value), u, rtol=1e-6, atol=1e-9)


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
