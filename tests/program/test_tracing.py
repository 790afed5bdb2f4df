"""Functions written in JAX are traced into the program; all others are called with numbers only."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gpdsl
from gpdsl.program.tracing import made_of_jax

MODEL = """
input x : real
output y : real
param a : positive = 0.5
external g(f: real, a: real) -> real
latent f(x) ~ GP(0, RBF(1))
let r = g(f, a)
y ~ Normal(r, 0.1)
"""
SYMBOLIC = MODEL.replace("external g(f: real, a: real) -> real\n", "").replace("g(f, a)", "exp(a * f)")


def in_jax(f: jax.Array, a: jax.Array) -> jax.Array:
    return jnp.exp(a * f)


def through_another(f: Any, a: Any) -> Any:
    return in_jax(f, a)


def in_numpy(f: np.ndarray, a: np.ndarray) -> np.ndarray:
    return np.exp(a * f)


def of_arithmetic(f: Any, a: Any) -> Any:
    return a * f


class Solver:
    def __call__(self, f: Any, a: Any) -> Any:
        return jnp.exp(a * f)


@pytest.fixture(scope="module")
def data() -> dict[str, np.ndarray]:
    x = np.linspace(-2, 2, 20)
    return {"x": x, "y": np.exp(0.7 * np.sin(2 * x)) + 0.1 * np.random.default_rng(0).standard_normal(20)}


@pytest.mark.parametrize(
    "function,expected",
    [
        (in_jax, True),
        (jax.jit(in_jax), True),
        (jax.vmap(in_jax), True),
        (functools.partial(in_jax, a=1.0), True),
        (lambda f, a: jax.numpy.exp(a * f), True),
        (through_another, True),
        (Solver(), True),
        (in_numpy, False),
        (of_arithmetic, False),
        (np.add, False),
        (len, False),
    ],
)
def test_what_is_made_of_jax(function: Callable[..., Any], expected: bool) -> None:
    assert made_of_jax(function) is expected


@pytest.mark.parametrize("vectorized", [True, False])
def test_a_function_in_jax_is_as_good_as_its_formula(data: dict[str, np.ndarray], vectorized: bool) -> None:
    """Same bound, and the parameter that is passed to it is learnt, without one evaluation."""
    model = gpdsl.compile(MODEL, externals={"g": gpdsl.opaque(in_jax, vectorized=vectorized)})
    assert "written in JAX, traced into the program and differentiated: g" in model.explain(data)
    ours, symbolic = model.fit(data), gpdsl.compile(SYMBOLIC).fit(data)
    assert ours.usage.evaluations == 0
    assert ours.elbo == pytest.approx(symbolic.elbo, abs=1e-6)
    assert float(ours.parameters["a"]) == pytest.approx(float(symbolic.parameters["a"]), rel=1e-4)
    new = {"x": np.array([0.3, 1.1])}
    np.testing.assert_allclose(ours.predict(new).mean("r"), symbolic.predict(new).mean("r"), rtol=5e-3)


def test_a_vector_of_results_and_several_latents(data: dict[str, np.ndarray]) -> None:
    """Elements of the result go to the right outputs, at samples (three latents) as at nodes (one)."""
    text = """
    index p in 1..3
    index q in 1..2
    input x : real
    output y[q] : real
    external g(f: real[3]) -> real[2]
    latent f[p](x) ~ GP(0, RBF(1))
    let r = g(f)
    y[q] ~ Normal(r[q], 0.3)
    """

    def mixed(f: jax.Array) -> jax.Array:
        return jnp.stack([jnp.sin(f[:, 0]) + f[:, 1], f[:, 1] * f[:, 2]], axis=1)

    calls = "external g(f: real[3]) -> real[2]", "let r = g(f)", "y[q] ~ Normal(r[q], 0.3)"
    formulas = "", "", "y[1] ~ Normal(sin(f[1]) + f[2], 0.3)\n    y[2] ~ Normal(f[2] * f[3], 0.3)"
    formula = functools.reduce(lambda t, pair: t.replace(*pair), zip(calls, formulas, strict=True), text)
    outputs = {"x": data["x"], "y": np.stack([data["y"] - 1, 0.2 * data["y"]], axis=1)}
    options = {"posterior": "full", "expectations": "sampled"}
    ours = gpdsl.compile(text, externals={"g": mixed}).fit(outputs, **options)
    symbolic = gpdsl.compile(formula).fit(outputs, **options)
    assert ours.elbo == pytest.approx(symbolic.elbo, abs=1e-3)


@pytest.mark.parametrize("how", [{"workers": 2}, {"timeout": 5.0}, {"policy": "penalise"}])
def test_whoever_asks_for_calls_gets_calls(data: dict[str, np.ndarray], how: dict[str, Any]) -> None:
    model = gpdsl.compile(MODEL, externals={"g": gpdsl.opaque(in_jax, **how)})
    assert "opaque, called in batches between compiled steps: g" in model.explain(data, fixed=["a"])


def test_a_function_that_is_not_pure_stays_opaque(data: dict[str, np.ndarray]) -> None:
    def drifting(f: Any, a: Any) -> Any:
        return jnp.exp(a * f) * (1.0 + time.perf_counter() % 1.0)

    model = gpdsl.compile(MODEL, externals={"g": drifting})
    assert "opaque, called in batches" in model.explain(data, fixed=["a"])


def test_a_function_in_numpy_never_sees_a_tracer(data: dict[str, np.ndarray]) -> None:
    kinds: set[type] = set()

    def seen(f: Any, a: Any) -> Any:
        kinds.add(type(f))
        return in_numpy(f, a)

    gpdsl.compile(MODEL, externals={"g": seen}).fit(data, evaluations=700, fixed=["a"])
    assert kinds == {np.ndarray}
