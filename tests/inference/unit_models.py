"""Models and data whose units can be changed: what must not depend on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

HEAD = "input x : real\noutput y : real\n"
WIDE = "input x : real[D]\noutput y : real\n"


@dataclass(frozen=True)
class UnitModel:
    """A model; `scaled` says whether its output has a unit, `shifted` whether a level in it follows a shift."""

    text: str
    kind: str = "real"
    columns: int = 0
    outputs: int = 0
    scaled: bool = True
    shifted: bool = True
    moved: bool = True
    """Whether the kernel does not ask where zero is along x."""


REGRESSION = "param m : real\nparam s2 : positive\nparam ell : positive\nparam s : positive\n"
MULTI = "index p in 1..2\nindex q in 1..2\ninput x : real\noutput y[p] : real\n"

LEVEL = "latent f(x) ~ GP(m, s2 * RBF(ell))\ny ~ d(f, s"
LAPLACE = "density d(y | mu, s) = -log(2 * s) - abs(y - mu) / s\n"
STUDENT = (
    "density d(y | mu, s, nu) = lgamma((nu + 1) / 2) - lgamma(nu / 2) - log(nu * pi) / 2 - log(s)"
    " - (nu + 1) / 2 * log(1 + ((y - mu) / s)^2 / nu)\n"
)
GUMBEL = "function z(y, mu, s) = (y - mu) / s\ndensity d(y | mu, s) = -log(s) - z(y, mu, s) - exp(-z(y, mu, s))\n"

MODELS: Mapping[str, UnitModel] = {
    "laplace by formula": UnitModel(LAPLACE + HEAD + REGRESSION + LEVEL + ")"),
    "student by formula": UnitModel(STUDENT + HEAD + REGRESSION + "param nu : positive\n" + LEVEL + ", 2 + nu)"),
    "logistic by formula": UnitModel(
        "density d(y | mu, s) = -log(s) - softplus((y - mu) / s) - softplus(-(y - mu) / s)\n"
        + HEAD
        + REGRESSION
        + LEVEL
        + ")"
    ),
    "gumbel by formula": UnitModel(GUMBEL + HEAD + REGRESSION + LEVEL + ")"),
    "power by formula": UnitModel(
        "density d(y | mu, s, b) = log(b) - log(2 * s) - lgamma(1 / b) - (abs(y - mu) / s)^b\n"
        + HEAD
        + REGRESSION
        + "param b : positive\n"
        + LEVEL
        + ", 1 + b)"
    ),
    "spread by formula": UnitModel(
        LAPLACE
        + HEAD
        + REGRESSION.replace("param s :", "param v : real\nparam t2 :")
        + "latent g(x) ~ GP(v, t2 * RBF(2 * ell))\nlatent f(x) ~ GP(m, s2 * RBF(ell))\ny ~ d(f, exp(g))"
    ),
    "rbf": UnitModel(HEAD + REGRESSION + "latent f(x) ~ GP(m, s2 * RBF(ell))\ny ~ Normal(f, s)"),
    "matern12": UnitModel(HEAD + REGRESSION + "latent f(x) ~ GP(0, s2 * Matern12(ell))\ny ~ Normal(f + m, s)"),
    "matern32 ard": UnitModel(
        WIDE + REGRESSION.replace("ell : positive", "ell : positive[D]") + "latent f(x) ~ GP(m, s2 * Matern32(ell))\n"
        "y ~ Normal(f, s)",
        columns=3,
    ),
    "matern52": UnitModel(WIDE + REGRESSION + "latent f(x) ~ GP(m, s2 * Matern52(ell))\ny ~ Normal(f, s)", columns=2),
    "zero mean": UnitModel(
        HEAD + "param s2 : positive\nparam ell : positive\nparam s : positive\n"
        "latent f(x) ~ GP(0, s2 * RBF(ell))\ny ~ Normal(f, s)",
        shifted=False,
    ),
    "amplitude": UnitModel(
        HEAD + "param m : real\nparam a : positive\nparam ell : positive\nparam s : positive\n"
        "latent f(x) ~ GP(0, RBF(ell))\ny ~ Normal(m + a * f, s)"
    ),
    "rational quadratic": UnitModel(
        HEAD
        + REGRESSION
        + "param al : positive\nlatent f(x) ~ GP(m, s2 * RationalQuadratic(ell, al))\ny ~ Normal(f, s)"
    ),
    "two scales": UnitModel(
        HEAD + REGRESSION + "param t2 : positive\nparam far : positive\n"
        "latent f(x) ~ GP(m, s2 * Matern32(ell) + t2 * RBF(10 * far))\ny ~ Normal(f, s)"
    ),
    "all starts at one": UnitModel(
        HEAD + "param m : real = 0\nparam s2 : positive = 1\nparam ell : positive = 1\nparam s : positive = 1\n"
        "latent f(x) ~ GP(m, s2 * RBF(ell))\ny ~ Normal(f, s)"
    ),
    "all starts at one, ard": UnitModel(
        WIDE + "param m : real = 0\nparam s2 : positive = 1\nparam ell : positive[D] = 1\nparam s : positive = 1\n"
        "latent f(x) ~ GP(m, s2 * Matern52(ell))\ny ~ Normal(f, s)",
        columns=2,
    ),
    "linear trend": UnitModel(
        HEAD + REGRESSION + "param b : real\nlatent f(x) ~ GP(0, s2 * RBF(ell))\ny ~ Normal(f + m + b * x, s)",
        moved=False,
    ),
    "linear kernel": UnitModel(
        HEAD
        + REGRESSION
        + "param t2 : positive\nlatent f(x) ~ GP(m, s2 * RBF(ell) + t2 * Linear(1))\ny ~ Normal(f, s)",
        moved=False,
    ),
    "by formula": UnitModel(
        "kernel rough(r; ell) = exp(-r / ell)\n" + HEAD + REGRESSION + "latent f(x) ~ GP(m, s2 * rough(ell))\n"
        "y ~ Normal(f, s)"
    ),
    "log of the output": UnitModel(
        "input x : real\noutput y : positive\n" + REGRESSION + "latent f(x) ~ GP(m, s2 * RBF(ell))\n"
        "log(y) ~ Normal(f, s)",
        kind="positive",
        shifted=False,
    ),
    "two outputs": UnitModel(
        MULTI + "param m[p] : real\nparam W[p,q] : real\nparam ell[q] : positive\nparam s[p] : positive\n"
        "latent g[q](x) ~ GP(0, RBF(ell[q]))\ny[p] ~ Normal(m[p] + sum(q, W[p,q] * g[q]), s[p])",
        outputs=2,
    ),
    "student": UnitModel(HEAD + REGRESSION + "latent f(x) ~ GP(m, s2 * RBF(ell))\ny ~ StudentT(4, f, s)"),
    "positive": UnitModel(
        "input x : real\noutput y : positive\nparam m : real\nparam s2 : positive\nparam ell : positive\n"
        "latent f(x) ~ GP(m, s2 * RBF(ell))\ny ~ Exponential(exp(-f))",
        kind="positive",
        shifted=False,
    ),
    "counts": UnitModel(
        "input x : real\noutput y : count\nparam m : real\nparam s2 : positive\nparam ell : positive\n"
        "latent f(x) ~ GP(0, s2 * RBF(ell))\ny ~ Poisson(exp(f + m))",
        kind="count",
        scaled=False,
    ),
    "yes or no": UnitModel(
        "input x : real\noutput y : binary\nparam m : real\nparam s2 : positive\nparam ell : positive\n"
        "latent f(x) ~ GP(m, s2 * RBF(ell))\ny ~ Bernoulli(probit = f)",
        kind="binary",
        scaled=False,
    ),
    "softmax": UnitModel(
        "index c in 1..3\ninput x : real\noutput y : label[c]\nparam s2 : positive\nparam ell : positive\n"
        "latent f[c](x) ~ GP(0, s2 * RBF(ell))\ny ~ Categorical(f[c])",
        kind="label",
        scaled=False,
    ),
}


@dataclass(frozen=True)
class Change:
    """Other units: x and y times a power of ten, and shifted by a multiple of it."""

    x: float = 1.0
    y: float = 1.0
    x_shift: float = 0.0
    y_shift: float = 0.0


CHANGES = (
    Change(x=1e-9),
    Change(x=1e9, y=1e3),
    Change(y=1e-9),
    Change(x=1e3, y=1e9),
    Change(x=1e6, y=1e-6),
    Change(x_shift=1e9, y=1e6),
    Change(y_shift=1e9),
)


def data_for(model: UnitModel, rows: int = 40, seed: int = 0) -> dict[str, np.ndarray]:
    """Rows of a function with noise, as multiples of 2^-10: shifts of 1e9 lose none of their digits."""
    rng = np.random.default_rng(seed)
    x = np.round(256 * rng.uniform(-3, 3, (rows, max(model.columns, 1)))) / 256
    f = np.sin(2 * x[:, 0]) + 0.5 * x[:, -1]
    match model.kind:
        case "positive":
            y = np.exp(2 * f) * rng.exponential(size=rows)
        case "count":
            return {"x": x[:, 0], "y": rng.poisson(np.exp(1 + f)).astype(float)}
        case "binary":
            return {"x": x[:, 0], "y": (f + 0.3 * rng.standard_normal(rows) > 0).astype(float)}
        case "label":
            return {"x": x[:, 0], "y": 1.0 + np.digitize(f + 0.3 * rng.standard_normal(rows), [-0.7, 0.7])}
        case _:
            y = f + 0.3 * rng.standard_normal(rows)
    if model.outputs:
        y = np.stack([y, np.cos(2 * x[:, 0]) - y + 0.2 * rng.standard_normal(rows)], axis=1)
    return {"x": x if model.columns else x[:, 0], "y": np.maximum(np.round(1024 * y), -(2.0**40)) / 1024}


def changed(model: UnitModel, data: Mapping[str, np.ndarray], change: Change) -> tuple[dict[str, np.ndarray], float]:
    """The data in other units, and by how much the evidence rises with these: the Jacobian."""
    x = change.x * data["x"] + (change.x_shift if model.moved else 0.0)
    if not model.scaled:
        return {"x": x, "y": data["y"]}, 0.0
    y = change.y * data["y"] + (change.y_shift if model.shifted else 0.0)
    return {"x": x, "y": y}, -np.size(y) * float(np.log(change.y))
