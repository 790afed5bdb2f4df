"""Kernels by formula against the built-in kernels of the same formulas: seconds of a value and its gradient.

The value is a random bilinear form of the covariance matrix, so that the gradient with respect to the parameters and to
the inputs needs all of it. Built-in and formula take turns, so that a busy machine slows down both.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from report import show, verdict

from gpdsl.kernels.columns import Space, canonical
from gpdsl.kernels.covariance import covariance
from gpdsl.kernels.functionals import Values
from gpdsl.language import compile_text
from gpdsl.program.cache import jit, precision
from gpdsl.symbolic.translate import Translator

ROWS, TURNS, LIMIT = 2000, 15, 1.10


@dataclass(frozen=True)
class Pair:
    """A kernel of the table, the same by formula, the parameters of both, and the numbers of columns to time."""

    name: str
    builtin: str
    head: str
    body: str
    columns: tuple[int, ...] = (1, 8)


FORMULAS = (
    Pair("RBF", "RBF(ell)", "r; ell", "exp(-r^2 / (2*ell^2))"),
    Pair("Matern32", "Matern32(ell)", "r; ell", "(1 + sqrt(3)*r/ell) * exp(-sqrt(3)*r/ell)"),
    Pair("Matern52", "Matern52(ell)", "r; ell", "(1 + sqrt(5)*r/ell + 5*r^2/(3*ell^2)) * exp(-sqrt(5)*r/ell)"),
    Pair("RationalQuadratic", "RationalQuadratic(ell, c)", "r; ell, c", "(1 + r^2 / (2*c*ell^2))^(-c)"),
    Pair("Periodic", "Periodic(ell, c)", "r; ell, c", "exp(-2*sin(pi*r/c)^2 / ell^2)", columns=(1,)),
    Pair("RBF", "RBF(ell)", "a, b; ell", "exp(-sum((a - b)^2) / (2*ell^2))"),
    Pair("RBF, scales", "RBF(scale)", "a, b; scale", "exp(-sum((a - b)^2 / scale^2) / 2)"),
    Pair(
        "Matern32, scales",
        "Matern32(scale)",
        "a, b; scale",
        "(1 + sqrt(3)*norm((a - b)/scale)) * exp(-sqrt(3)*norm((a - b)/scale))",
    ),
    Pair(
        "Matern52",
        "Matern52(ell)",
        "a, b; ell",
        "(1 + sqrt(5)*norm(a - b)/ell + 5*sum((a - b)^2)/(3*ell^2)) * exp(-sqrt(5)*norm(a - b)/ell)",
    ),
    Pair("RationalQuadratic", "RationalQuadratic(ell, c)", "a, b; ell, c", "(1 + sum((a - b)^2)/(2*c*ell^2))^(-c)"),
    Pair("Periodic", "Periodic(ell, c)", "a, b; ell, c", "exp(-2*sum(sin(pi*(a - b)/c)^2) / ell^2)"),
    Pair("Periodic, scales", "Periodic(scale, c)", "a, b; scale, c", "exp(-2*sum(sin(pi*(a - b)/c)^2 / scale^2))"),
    Pair("Linear", "Linear(ell)", "a, b; ell", "dot(a, b) / ell^2"),
)
HEADS = ("kernel", "by", "columns", "built-in, ms", "formula, ms", "ratio of minima", "ratio")


def run() -> None:
    """Time each pair; the times shown are medians, and the ratio is the median of the ratios of neighbours."""
    rows, worst = [], 0.0
    with precision("float64"):
        for pair, columns in [(each, count) for each in FORMULAS for count in each.columns]:
            built, made = _times(_work(pair, pair.builtin, columns), _work(pair, "k()", columns))
            ratio = float(np.median(np.divide(made, built)))
            worst = max(worst, ratio)
            medians = [1000 * float(np.median(each)) for each in (built, made)]
            rows.append((pair.name, pair.head, columns, *medians, float(min(made) / min(built)), ratio))
    show(f"formula kernels: value and gradient, {ROWS} rows", HEADS, rows)
    verdict("formula / built-in, worst of all", worst, LIMIT)


def _work(pair: Pair, kernel: str, columns: int) -> Callable[[], Any]:
    text = (
        f"input x : real[{columns}]\noutput y : real\nparam ell : positive = 1\nparam c : positive = 1\n"
        f"param scale : positive[{columns}] = 1\nkernel k({pair.head}) = {pair.body}\n"
        f"latent f(x) ~ GP(0, {kernel})\ny ~ Normal(f, 1)\n"
    )
    declarations = compile_text(text)
    latent = declarations.latents["f"]
    found = canonical(latent.kernel, Space.of(Translator(declarations, {}), latent))
    rng = np.random.default_rng(columns)
    points = jnp.asarray(rng.normal(size=(ROWS, columns)))
    left, right = jnp.asarray(rng.normal(size=ROWS)), jnp.asarray(rng.normal(size=ROWS))
    numbers = [jnp.full(tuple(axis.size or 1 for axis in each.axes), 1.3) for each in found.arguments]

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
