"""What the diagnosis that comes with every summary finds: fits that are sick on purpose, and healthy ones."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import gpdsl

SEEDS = 20

X = np.linspace(0, 6, 40)
HEAD = "input x : real\noutput y : {kind}\n"
REGRESSION = """param s2 : positive
param ell : positive
param sigma : positive
latent f(x) ~ GP(0, s2 * RBF(ell))
y ~ Normal(f, sigma)
"""

Fitted = tuple[Any, Any, dict[str, Any]]
"""A model or its text, data, and options."""


def product(seed: int) -> Fitted:
    """Two latents multiplied."""
    rng = np.random.default_rng(seed)
    f, g = np.sin(X + rng.uniform(0, 6)), np.cos(1.3 * X + rng.uniform(0, 6))
    text = "latent f(x) ~ GP(0, RBF(1))\nlatent g(x) ~ GP(0, RBF(1))\ny ~ Normal(f * g, 0.1)\n"
    return HEAD.format(kind="real") + text, {"x": X, "y": f * g + 0.1 * rng.standard_normal(40)}, {}


def square(seed: int) -> Fitted:
    """A latent squared."""
    rng = np.random.default_rng(seed)
    text = "param ell : positive\nlatent f(x) ~ GP(0, RBF(ell))\ny ~ Normal(f^2, 0.1)\n"
    y = np.sin(X + rng.uniform(0, 6)) ** 2 + 0.1 * rng.standard_normal(40)
    return HEAD.format(kind="real") + text, {"x": X, "y": y}, {}


def factorised(seed: int) -> Fitted:
    """Depths and velocities that reflection times correlate, independent in the posterior."""
    model = gpdsl.zoo("seismic")
    return model, model.sample_prior(rows=25, seed=seed).data, {"posterior": "full"}


def few_points(seed: int) -> Fitted:
    """Eight inducing points where it takes forty."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0, 10, 300))
    y = np.sin(3 * x) + np.cos(5 * x) + 0.1 * rng.standard_normal(300)
    return HEAD.format(kind="real") + REGRESSION, {"x": x, "y": y}, {"inducing": 8}


def wrong_unit(seed: int) -> Fitted:
    """A length-scale in days where the input is in years, or the other way round."""
    rng = np.random.default_rng(seed)
    ell = (0.8 / 365, 0.8 * 365)[seed % 2]
    text = f"param sigma : positive\nlatent f(x) ~ GP(0, RBF({ell}))\ny ~ Normal(f, sigma)\n"
    return HEAD.format(kind="real") + text, {"x": X, "y": np.sin(2 * X) + 0.2 * rng.standard_normal(40)}, {}


def null_model(seed: int) -> Fitted:
    """A signal between the rows, which the search gives up for noise."""
    rng = np.random.default_rng(seed)
    y = np.sin(20 * X) + 0.5 * rng.standard_normal(40)
    return HEAD.format(kind="real") + REGRESSION, {"x": X, "y": y}, {}


def overdispersed(seed: int) -> Fitted:
    """Counts with a variance of several means under a Poisson law."""
    rng = np.random.default_rng(seed)
    text = "param ell : positive ~ LogNormal(0.5, 0.5)\nparam m : real\nlatent f(x) ~ GP(0, RBF(ell))\n"
    counts = rng.poisson(5 * np.exp(0.5 * np.sin(X)) * rng.gamma(0.5, 2, 40))
    return HEAD.format(kind="count") + text + "y ~ Poisson(exp(f + m))\n", {"x": X, "y": counts}, {}


SICK: dict[str, Callable[[int], Fitted]] = {
    "product of two latents": product,
    "square of a latent": square,
    "too few inducing points": few_points,
    "length-scale in the wrong unit": wrong_unit,
    "null model": null_model,
    "overdispersed counts": overdispersed,
    "seismic, posterior = full": factorised,
}

HEALTHY = (
    "boston",
    "coal_mining",
    "derivatives",
    "laplace",
    "ordinal",
    "preference",
    "probit",
    "student_t",
    "wisconsin",
)
"""Models of the zoo that 100 rows of simulated data determine."""


def healthy(number: int) -> Fitted:
    """A model of the zoo on its own data."""
    model = gpdsl.zoo(HEALTHY[number % len(HEALTHY)])
    return model, model.sample_prior(rows=100, seed=1 + number // len(HEALTHY)).data, {}


def run() -> None:
    """Print a table: how many are flagged, by what, and the seconds of fit and diagnosis (medians)."""
    print("| fits | flagged | by | fit, s | diagnosis, s |\n| --- | --- | --- | --- | --- |")
    for name, make in {**SICK, "healthy models of the zoo": healthy}.items():
        flagged, by, times = 0, {}, []
        for seed in range(SEEDS):
            found, spent = _diagnosed(*make(seed))
            flagged += bool(found)
            times.append(spent)
            for each in dict.fromkeys(found):
                by[each] = by.get(each, 0) + 1
        told = ", ".join(f"{each} {count}" for each, count in sorted(by.items(), key=lambda item: -item[1]))
        fit, diagnosis = np.median(times, axis=0)
        print(f"| {name} | {flagged} of {SEEDS} | {told} | {fit:.1f} | {diagnosis:.1f} |", flush=True)


def _diagnosed(model: Any, data: Any, options: dict[str, Any]) -> tuple[list[str], tuple[float, float]]:
    """Names of what is doubtful, and the seconds of fit and diagnosis."""
    model = gpdsl.compile(model) if isinstance(model, str) else model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begun = time.perf_counter()
        fit = model.fit(data, **options)
        fitted = time.perf_counter()
        found = [each.name for each in fit.diagnose().doubtful]
    return found, (fitted - begun, time.perf_counter() - fitted)
