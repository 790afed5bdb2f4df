"""scikit-learn's Gaussian processes and gpdsl, the same models on the same rows: seconds of a fit, RMSE, log loss.

Both learn a variance and length-scales (and a noise) by L-BFGS from the same values, standardised inputs. The first fit
of a model compiles it or reads its programs from the cache; the second, on other rows of the data, is what compares.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from report import CONSOLE, show, verdict

import gpdsl

REGRESSION = """
input x : real[D]
output y : real
param s2 : positive = 1
param ell : positive[D] = 2
param sigma : positive = 0.3
latent f(x) ~ GP(0, s2 * RBF(ell))
y ~ Normal(f, sigma)
"""
BINARY = """
input x : real[D]
output y : binary
param s2 : positive = 1
param ell : positive = 3
latent f(x) ~ GP(0, s2 * RBF(ell))
y ~ Bernoulli(logit = f)
"""
CLASSES = """
index c in 1..C
input x : real[D]
output y : label[c]
param s2 : positive = 1
param ell : positive = 3
latent f[c](x) ~ GP(0, s2 * RBF(ell))
y ~ Categorical(logits = f)
"""


@dataclass(frozen=True)
class Task:
    """Rows to learn from and to be tested on, inputs standardised on the former."""

    name: str
    model: str
    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def run() -> None:
    """The table."""
    rows, ratios = [], []
    for load in (
        _diabetes,
        _breast_cancer,
        _wine,
        _digits,
        lambda s: _synthetic(500, s),
        lambda s: _synthetic(1400, s),
    ):
        _ours(load(0))  # compiles
        task = load(1)
        ours, theirs = _ours(task), _theirs(task)
        ratio = theirs["seconds"] / ours["seconds"]
        ratios.append((task.name, ratio, ours["loss"], theirs["loss"]))
        rows.append((task.name, len(task.x), ours["seconds"], theirs["seconds"], ratio, ours["loss"], theirs["loss"]))
    columns = ["data", "rows", "gpdsl, s", "scikit-learn, s", "times faster", "loss", "scikit-learn's loss"]
    show("fits beside scikit-learn", columns, rows, "loss: RMSE of standardised targets, or log loss, on test rows")
    for name, ratio, ours, theirs in ratios:
        verdict(f"{name}: times as fast", ratio, 1.0, least=True)
        verdict(f"{name}: loss beside scikit-learn's", ours / theirs, 1.01)
    verdict("median: times as fast", float(np.median([ratio for _, ratio, *_ in ratios])), 3.0, least=True)


def _ours(task: Task) -> dict[str, float]:
    start = time.perf_counter()
    fit = gpdsl.compile(task.model).fit({"x": task.x, "y": task.y})
    seconds = time.perf_counter() - start
    prediction = fit.predict({"x": task.x_test})
    CONSOLE.print(f"{task.name}: {fit.message}, bound {fit.elbo:.2f}")
    return {"seconds": seconds, "loss": _loss(task, prediction.mean("y"))}


def _theirs(task: Task) -> dict[str, float]:
    from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if task.model == REGRESSION:
            kernel = ConstantKernel(1.0) * RBF([2.0] * task.x.shape[1], (1e-3, 1e4)) + WhiteKernel(0.09)
            fitted = GaussianProcessRegressor(kernel, alpha=0.0).fit(task.x, task.y)
            seconds = time.perf_counter() - start
            return {"seconds": seconds, "loss": _loss(task, fitted.predict(task.x_test))}
        fitted = GaussianProcessClassifier(ConstantKernel(1.0) * RBF(3.0, (1e-3, 1e4))).fit(task.x, task.y)
        seconds = time.perf_counter() - start
    found = fitted.predict_proba(task.x_test)
    return {"seconds": seconds, "loss": _loss(task, found[:, 1] if task.model == BINARY else found)}


def _loss(task: Task, predicted: np.ndarray) -> float:
    if task.model == REGRESSION:
        return float(np.sqrt(np.mean((predicted - task.y_test) ** 2)))
    if task.model == BINARY:
        return float(-np.mean(np.log(np.where(task.y_test == 1, predicted, 1.0 - predicted))))
    levels = np.unique(task.y)
    return float(-np.mean(np.log(predicted[np.arange(len(predicted)), np.searchsorted(levels, task.y_test)])))


# --- data -------------------------------------------------------------------------------------------------------


def _split(name: str, model: str, data: Mapping[str, np.ndarray], rows: int, seed: int) -> Task:
    order = np.random.default_rng(seed).permutation(len(data["x"]))
    learn, test = order[:rows], order[rows : rows + 2000]
    x, y = np.asarray(data["x"], float), np.asarray(data["y"])
    middle, spread = x[learn].mean(axis=0), x[learn].std(axis=0)
    x = (x - middle) / np.where(spread > 0, spread, 1.0)
    if model == REGRESSION:
        y = (y - y[learn].mean()) / y[learn].std()
    return Task(name, model, x[learn], y[learn], x[test], y[test])


def _diabetes(seed: int) -> Task:
    from sklearn.datasets import load_diabetes

    data = load_diabetes()
    return _split("diabetes", REGRESSION, {"x": data.data, "y": data.target}, 300, seed)


def _breast_cancer(seed: int) -> Task:
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    return _split("breast cancer", BINARY, {"x": data.data, "y": data.target}, 398, seed)


def _wine(seed: int) -> Task:
    from sklearn.datasets import load_wine

    data = load_wine()
    return _split("wine", CLASSES, {"x": data.data, "y": data.target + 1}, 124, seed)


def _digits(seed: int) -> Task:
    from sklearn.datasets import load_digits

    data = load_digits()
    return _split("digits", CLASSES, {"x": data.data, "y": data.target + 1}, 300, seed)


def _synthetic(rows: int, seed: int) -> Task:
    rng = np.random.default_rng(seed + 10)
    x = rng.normal(size=(rows + 500, 5))
    y = np.sin(1.5 * x[:, 0]) + 0.6 * x[:, 1] * np.cos(x[:, 2]) + 0.3 * x[:, 3] + 0.2 * rng.normal(size=rows + 500)
    return _split(f"synthetic, {rows} rows", REGRESSION, {"x": x, "y": y}, rows, seed)
