"""Random models of several latents whose starts are missing or all equal: mixing, coregion, softmax, products."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class MultiLatent:
    """A model, its data, and the parameters from random values of which it is fitted for comparison."""

    kind: str
    text: str
    data: dict[str, np.ndarray]


KINDS = ("mixing", "coregion", "softmax", "product", "mixture", "sum")


def random_model(number: int, rows: int = 30) -> MultiLatent:
    """The model of a number: its kind, sizes, kernels, whether starts are missing or constant, and data of its kind."""
    rng = np.random.default_rng([7, number])
    kind, start = KINDS[number % len(KINDS)], ("", " = 1", " = 0.5")[number // len(KINDS) % 3]
    kernel = str(rng.choice(["RBF", "Matern52", "Matern32"]))
    x = np.sort(rng.uniform(-3, 3, rows))
    functions = np.stack([np.sin(rng.uniform(0.7, 2.5) * x + rng.uniform(0, 6)) for _ in range(3)], axis=1)
    build = {
        "mixing": _mixing,
        "coregion": _coregion,
        "softmax": _softmax,
        "product": _product,
        "mixture": _mixture,
        "sum": _sum,
    }[kind]
    text, data = build(rng, start, kernel, x, functions)
    return MultiLatent(kind, text, {key: np.asarray(value) for key, value in data.items()})


Made = tuple[str, dict[str, np.ndarray]]


def _mixing(rng: np.random.Generator, start: str, kernel: str, x: np.ndarray, f: np.ndarray) -> Made:
    q = int(rng.integers(2, 4))
    y = f[:, :q] @ rng.standard_normal((q, 3)) + 0.1 * rng.standard_normal((len(x), 3))
    text = (
        f"index p in 1..3\nindex q in 1..{q}\ninput x : real\noutput y[p] : real\nparam W[p,q] : real{start}\n"
        f"param ell[q] : positive{start}\nparam s[p] : positive{start}\nlatent g[q](x) ~ GP(0, {kernel}(ell[q]))\n"
        "y[p] ~ Normal(sum(q, W[p,q] * g[q]), s[p])\n"
    )
    return text, {"x": x, "y": y}


def _coregion(rng: np.random.Generator, start: str, kernel: str, x: np.ndarray, f: np.ndarray) -> Made:
    task = rng.integers(1, 4, len(x)).astype(float)
    mixed = f[:, :2] @ rng.standard_normal((2, 3))
    y = mixed[np.arange(len(x)), task.astype(int) - 1] + 0.1 * rng.standard_normal(len(x))
    text = (
        "input x : real\ninput task : real\noutput y : real\n"
        f"param W : real[3, 2]{start}\nparam kappa : positive[3]{start}\nparam ell : positive{start}\n"
        f"param s : positive{start}\nlatent f(x, task) ~ GP(0, {kernel}(ell, on = x) * Coregion(W, kappa, on = task))\n"
        "y ~ Normal(f, s)\n"
    )
    return text, {"x": x, "task": task, "y": y}


def _softmax(rng: np.random.Generator, start: str, kernel: str, x: np.ndarray, f: np.ndarray) -> Made:
    y = 1.0 + np.argmax(f + 0.3 * rng.standard_normal(f.shape), axis=1)
    text = (
        f"index c in 1..3\ninput x : real\noutput y : label[c]\nparam s2[c] : positive{start}\n"
        f"param ell[c] : positive{start}\nlatent f[c](x) ~ GP(0, s2[c] * {kernel}(ell[c]))\ny ~ Categorical(f[c])\n"
    )
    return text, {"x": x, "y": y}


def _product(rng: np.random.Generator, start: str, kernel: str, x: np.ndarray, f: np.ndarray) -> Made:
    y = f[:, 0] * f[:, 1] + 0.1 * rng.standard_normal(len(x))
    text = (
        f"input x : real\noutput y : real\nparam a : real{start}\nparam e1 : positive{start}\n"
        f"param e2 : positive{start}\nparam s : positive{start}\nlatent g(x) ~ GP(0, {kernel}(e1))\n"
        f"latent w(x) ~ GP(0, {kernel}(e2))\ny ~ Normal(a * g * w, s)\n"
    )
    return text, {"x": x, "y": y}


def _mixture(rng: np.random.Generator, start: str, kernel: str, x: np.ndarray, f: np.ndarray) -> Made:
    which = rng.random(len(x)) < 0.4
    y = np.where(which, f[:, 0] + 2.0, f[:, 1] - 1.0) + 0.1 * rng.standard_normal(len(x))
    text = (
        f"input x : real\noutput y : real\nparam w : unit\nparam s1 : positive{start}\nparam s2 : positive{start}\n"
        f"param ell : positive{start}\nlatent g(x) ~ GP(0, {kernel}(ell))\nlatent h(x) ~ GP(0, {kernel}(ell))\n"
        "y ~ Mixture(w, Normal(g, s1), Normal(h, s2))\n"
    )
    return text, {"x": x, "y": y}


def _sum(rng: np.random.Generator, start: str, kernel: str, x: np.ndarray, f: np.ndarray) -> Made:
    y = f[:, 0] + 0.3 * np.sin(6 * x) + 0.1 * rng.standard_normal(len(x))
    text = (
        f"index q in 1..2\ninput x : real\noutput y : real\nparam a[q] : positive{start}\n"
        f"param ell[q] : positive{start}\nparam s : positive{start}\nlatent g[q](x) ~ GP(0, {kernel}(ell[q]))\n"
        "y ~ Normal(sum(q, a[q] * g[q]), s)\n"
    )
    return text, {"x": x, "y": y}


Shapes = dict[str, tuple[str, tuple[int, ...]]]
"""The constraint and the shape of each parameter."""


def random_start(parameters: Shapes, seed: int) -> dict[str, np.ndarray]:
    """Values drawn about one: log-normal where they are positive, normal where they have either sign."""
    rng = np.random.default_rng([11, seed])
    found = {}
    for name, (constraint, shape) in parameters.items():
        drawn = rng.standard_normal(shape)
        found[name] = {"real": drawn, "positive": np.exp(0.7 * drawn), "unit": 1 / (1 + np.exp(-drawn))}[constraint]
    return found
