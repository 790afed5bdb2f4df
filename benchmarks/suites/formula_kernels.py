"""Kernels by formula against the built-in kernels of the same formulas: seconds of a value and its gradient.

The value is a random bilinear form of the covariance matrix, so that the gradient with respect to the parameters and to
the inputs needs all of it. Built-in and formula take turns, so that a busy machine slows down both.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from report import show, verdict

from gpdsl.kernels.canonical import canonical
from gpdsl.kernels.columns import Space
from gpdsl.kernels.covariance import covariance
from gpdsl.kernels.functionals import Values
from gpdsl.language import compile_text
from gpdsl.program.compilation import jit
from gpdsl.program.precision import precision
from gpdsl.symbolic.translate import Translator

ROWS, TURNS, LIMIT = 2000, 21, 1.10
FORMULAS = {
    "RBF": ("RBF(ell)", "exp(-r^2 / (2*ell^2))"),
    "Matern32": ("Matern32(ell)", "(1 + sqrt(3)*r/ell) * exp(-sqrt(3)*r/ell)"),
    "Matern52": ("Matern52(ell)", "(1 + sqrt(5)*r/ell + 5*r^2/(3*ell^2)) * exp(-sqrt(5)*r/ell)"),
    "RationalQuadratic": ("RationalQuadratic(ell, alpha)", "(1 + r^2 / (2*alpha*ell^2))^(-alpha)"),
}


def run() -> None:
    """Time each pair over one and over eight columns."""
    rows, worst = [], 0.0
    with precision("float64"):
        for columns in (1, 8):
            for name, (builtin, formula) in FORMULAS.items():
                built, made = _times(
                    _work(builtin, formula, columns, "builtin"), _work(builtin, formula, columns, "k()")
                )
                ratio = float(np.median(made) / np.median(built))
                worst = max(worst, ratio)
                best = float(min(made) / min(built))
                milliseconds = [1000 * float(f(t)) for t in (built, made) for f in (np.min, np.median)]
                rows.append((name, columns, *milliseconds, best, ratio))
    heads = [
        "kernel",
        "columns",
        "built-in min, ms",
        "median",
        "formula min, ms",
        "median",
        "min ratio",
        "median ratio",
    ]
    show(f"formula kernels: value and gradient, {ROWS} rows", heads, rows)
    verdict("formula / built-in, median, worst of all", worst, LIMIT)


def _work(builtin: str, formula: str, columns: int, which: str) -> Callable[[], Any]:
    kernel = builtin if which == "builtin" else "k()"
    text = (
        f"input x : real[{columns}]\noutput y : real\nparam ell : positive = 1\nparam alpha : positive = 1\n"
        f"kernel k(r; ell, alpha) = {formula}\nlatent f(x) ~ GP(0, {kernel})\ny ~ Normal(f, 1)\n"
    )
    declarations = compile_text(text)
    latent = declarations.latents["f"]
    found = canonical(latent.kernel, Space.of(Translator(declarations, {}), latent))
    rng = np.random.default_rng(columns)
    points = jnp.asarray(rng.normal(size=(ROWS, columns)))
    left, right = jnp.asarray(rng.normal(size=ROWS)), jnp.asarray(rng.normal(size=ROWS))
    numbers = [jnp.asarray(1.3) for _ in found.arguments]

    def value(numbers: list[jax.Array], points: jax.Array) -> jax.Array:
        return left @ covariance(found.form, numbers, Values(points)) @ right

    both = jit(jax.value_and_grad(value, argnums=(0, 1)))
    return lambda: jax.block_until_ready(both(numbers, points))


def _times(first: Callable[[], Any], second: Callable[[], Any]) -> tuple[list[float], list[float]]:
    taken: tuple[list[float], list[float]] = ([], [])
    for turn in range(TURNS + 2):
        for work, seconds in zip((first, second), taken, strict=True):
            start = time.perf_counter()
            work()
            if turn >= 2:
                seconds.append(time.perf_counter() - start)
    return taken
