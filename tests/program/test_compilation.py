"""Programs that work little compile sooner, and compute the same."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gpdsl
from gpdsl.inference.problem import Problem
from gpdsl.program.cache import jit
from tests.timing import holds_once, processor_seconds

MODEL = """
input x : real
output y : count
param s : positive = 1
latent f(x) ~ GP(0, s * Matern32(0.5))
y ~ Poisson(exp(f))
"""


def many_loops(x: jax.Array, number: float) -> jax.Array:
    """Loops that the compiler cannot join, of functions that it has to write out; another program for every number."""
    for step in range(12):
        x = 0.05 * jnp.sort(jax.scipy.special.gammaln(1.0 + x**2) + jnp.sin(step * x + number))
    return x


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="the options are those of the CPU's compiler")
@pytest.mark.parametrize("everything", [False, True])
def test_brief_programs_compile_sooner_and_compute_the_same(everything: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their own wish, and by that of the environment."""

    def made(brief: bool, number: float) -> Any:
        monkeypatch.setenv("GPDSL_BRIEF", "1" if brief and everything else "0")
        return jit(partial(many_loops, number=number), brief=brief and not everything)

    rng = np.random.default_rng()
    x = jnp.asarray(rng.standard_normal(50), jnp.float32)
    np.testing.assert_allclose(made(True, 0.1)(x), made(False, 0.1)(x), rtol=1e-4, atol=1e-6)

    def seconds(brief: bool) -> float:
        return processor_seconds(made(brief, rng.uniform()).lower(x).compile)  # new to the cache on disk

    assert holds_once(lambda: seconds(True) < 0.7 * seconds(False))


@pytest.mark.parametrize(("rows", "brief"), [(60, True), (300, False)])
def test_small_problems_are_brief(monkeypatch: pytest.MonkeyPatch, rows: int, brief: bool) -> None:
    asked = []
    compiled = Problem.compiled

    def seen(self: Problem, *arguments: object, **options: object) -> object:
        asked.append(options.get("brief", False))
        return compiled(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Problem, "compiled", seen)
    x = np.linspace(0, 3, rows)
    gpdsl.compile(MODEL).fit({"x": x, "y": np.ones(rows)}, steps=1, progress=False)
    assert asked and all(asked) is brief  # what starts and ends a fit always is


def test_what_tells_jax_not_to_compile_does_no_harm() -> None:
    """Programs are compiled ahead of their calls, which JAX then refused to make; other code is left as it was."""
    data = {"x": np.linspace(0, 3, 7), "y": np.array([0.0, 1, 1, 2, 0, 3, 1])}
    fit = gpdsl.compile(MODEL).fit(data, progress=False)
    with jax.disable_jit():
        again = gpdsl.compile(MODEL).fit(data, progress=False)
        assert jax.config.jax_disable_jit  # type: ignore[attr-defined]
        np.testing.assert_allclose(again.predict(data).mean("f"), fit.predict(data).mean("f"), rtol=1e-8)
        assert np.all(np.isfinite(again.predict(data).sample("y", 3)))
    assert again.elbo == pytest.approx(fit.elbo, abs=1e-8)


@pytest.mark.slow
def test_what_tells_jax_not_to_compile_does_no_harm_to_chains() -> None:
    data = {"x": np.linspace(0, 3, 7), "y": np.array([0.0, 1, 1, 2, 0, 3, 1])}
    with jax.disable_jit():
        chains = gpdsl.compile(MODEL).fit(data, progress=False, engine="mcmc", draws=20, warm_up=20, chains=2)
        assert np.all(np.isfinite(chains.predict(data).mean("y")))
