"""`hyperparameters = integrated` and `engine = mcmc` beside reference draws of posteriordb and an independent NUTS."""

from __future__ import annotations

import functools
import gc
import importlib.util
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import numpy as np
from blackjax.diagnostics import effective_sample_size
from jax.scipy.linalg import solve_triangular
from peers import nuts
from report import ROOT, show, verdict

import gpdsl

GAP, RATIO, SHARE = 0.1, 0.1, 1 / 20
"""Standard deviations by which a mean may be away, share by which a standard deviation may be, and of NUTS's time."""

Z = 3.0
"""Monte-Carlo standard errors by which moments of chains may be away."""

WARM_UP, DRAWS, USUAL = 1000, 2500, 1000
"""Of each of four chains: as many draws as the reference has; and the draws that chains usually make."""

REFERENCE = 10_000
"""Draws, independent of each other after thinning, whose means and standard deviations are known."""

JITTER = 1e-10


@dataclass(frozen=True)
class Peer:
    """The same posterior as a density of numbers v, and what is compared, the parameters first."""

    log_density: Callable[..., Any]
    observe: Callable[..., Any]
    size: int
    columns: tuple[str, ...]


def _gamma(u: Any, shape: float, rate: float) -> Any:
    return shape * u - rate * jnp.exp(u)


def _half_normal(u: Any, scale: float) -> Any:
    return u - 0.5 * (jnp.exp(u) / scale) ** 2


def _covariance(v: Any, x: Any) -> Any:
    return jnp.exp(2 * v[1] - 0.5 * ((x[:, None] - x) / jnp.exp(v[0])) ** 2)


def _f(v: Any, x: Any) -> Any:
    matrix = _covariance(v, x)
    return jnp.linalg.cholesky(matrix + JITTER * matrix[0, 0] * jnp.eye(len(x))) @ v[2:]


def _counts(v: Any, x: Any, k: Any) -> Any:
    f = _f(v, x)
    return _gamma(v[0], 25, 4) + _half_normal(v[1], 2) - 0.5 * v[2:] @ v[2:] + k @ f - jnp.sum(jnp.exp(f))


def _values(v: Any, x: Any, y: Any) -> Any:
    root = jnp.linalg.cholesky(_covariance(v, x) + jnp.exp(v[2]) * jnp.eye(len(x)))
    white = solve_triangular(root, y, lower=True)
    prior = _gamma(v[0], 25, 4) + _half_normal(v[1], 2) + _half_normal(v[2], 1)
    return prior - 0.5 * white @ white - jnp.sum(jnp.log(jnp.diagonal(root)))


def _effects(v: Any) -> Any:
    return v[0] + jnp.exp(v[1]) * v[2:]


def _schools(v: Any, y: Any, se: Any) -> Any:
    prior = -0.5 * (v[0] / 5) ** 2 - jnp.log1p((jnp.exp(v[1]) / 5) ** 2) + v[1] - 0.5 * v[2:] @ v[2:]
    return prior - 0.5 * jnp.sum(((y - _effects(v)) / se) ** 2)


PEERS = {
    "gp_pois_regr": Peer(_counts, lambda v, x, k: jnp.concatenate([jnp.exp(v[:2]), _f(v, x)]), 13, ("x", "k")),
    "gp_regr": Peer(_values, lambda v, x, y: jnp.exp(v), 3, ("x", "y")),
    "eight_schools": Peer(
        _schools, lambda v, *_: jnp.concatenate([v[:1], jnp.exp(v[1:2]), _effects(v)]), 10, ("y", "se")
    ),
}


def run() -> None:
    """Print a table of every posterior, and verdicts."""
    _loaded()
    cases = _references().CASES
    for name, (text, data, latent, mean, sd) in cases.items():
        compare(name, text, data, latent, np.asarray(mean, float), np.asarray(sd, float))


def _loaded() -> None:
    """Import all that fits need: the others have their libraries, too, before their time is taken."""
    text = "input x : real\noutput {kind}\nparam a : positive ~ LogNormal(0, 1)\nlatent f(x) ~ GP(0, a * RBF(1))\n{law}"
    x = np.linspace(0, 2, 5)
    for kind, law in (("y : real", "y ~ Normal(f, 0.3)"), ("y : count", "y ~ Poisson(exp(f))")):
        gpdsl.compile(text.format(kind=kind, law=law)).fit({"x": x, "y": np.arange(5.0)}, diagnose="no")


@functools.cache
def _references() -> ModuleType:
    """The moments that the tests have, and how they are read of a fit."""
    place = ROOT / "tests" / "inference" / "test_references.py"
    spec = importlib.util.spec_from_file_location("test_references", place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compare(name: str, text: str, data: Mapping[str, Any], latent: str | None, mean: Any, sd: Any) -> None:
    """Moments beside the reference's, and processor seconds: the first time, and once all is compiled."""
    peer = PEERS[name]
    given = tuple(np.asarray(data[column], float) for column in peer.columns)
    begun = time.process_time()
    gold = nuts.draw_around(peer.log_density, peer.observe, np.zeros(peer.size), given, WARM_UP, DRAWS)
    whole = time.process_time() - begun
    rows: list[tuple[object, ...]] = [_row("NUTS", gold.mean, gold.sd, mean, sd, whole, gold.processor_seconds)]
    lengths = {"a usual run": USUAL, f"{REFERENCE} effective draws": DRAWS * REFERENCE / gold.least_ess}
    runs = {of: gold.processor_seconds * (WARM_UP + each) / (WARM_UP + DRAWS) for of, each in lengths.items()}
    compiling = whole - gold.processor_seconds
    rows += [(f"NUTS, {of}, by its steps", "", "", compiling + run, run) for of, run in runs.items()]
    for way, options in {
        "integrated": {"hyperparameters": "integrated"},
        "mcmc": {"engine": "mcmc", "draws": DRAWS, "warm_up": WARM_UP},
    }.items():
        first, again, fit = _timed(text, data, options)
        found = _references().moments(fit, data, latent)
        rows.append(_row(way, *found, mean, sd, first, again))
        if way == "integrated":
            verdict(f"{name}: means, standard deviations away", float(np.max(np.abs(found[0] - mean) / sd)), GAP)
            verdict(f"{name}: standard deviations, off by", float(np.max(np.abs(found[1] / sd - 1))), RATIO)
            for of, run in runs.items():
                verdict(f"{name}: share of the time of NUTS, {of}, first use", first / (compiling + run), SHARE)
                verdict(f"{name}: the same, compiled", again / run, SHARE)
        else:
            error, of_sd = _errors(fit, len(found[0]))
            verdict(f"{name}: |z| of means of chains", float(np.max(np.abs(found[0] - mean) / sd / error)), Z)
            verdict(f"{name}: |z| of their standard deviations", float(np.max(np.abs(found[1] / sd - 1) / of_sd)), Z)
    about = f"NUTS: 4 x {DRAWS}, R-hat {gold.rhat:.4f}, least ESS {gold.least_ess:.0f}, {gold.gradients} gradients"
    columns = ["fit", "means, sd away at most", "ratio of sds", "processor s, first use", "compiled"]
    show(name, columns, rows, about)


def _errors(fit: gpdsl.Fit, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Monte-Carlo errors of means, in standard deviations, and of standard deviations, as shares of them.

    Parameters have all draws of the chains, the effective number of their squares, and their kurtosis; latents and
    effects are averages over the settings that are kept, with tails between those of a Gaussian (0.5) and of an
    exponential (2).
    """
    settings = fit.settings
    assert settings is not None
    means, sds = [], []
    for chains in (settings.chains[name] for name in fit.parameters if settings.chains[name].ndim == 2):
        apart = (chains - chains.mean()) ** 2
        means.append(1 / float(effective_sample_size(chains)) + 1 / REFERENCE)
        spread = np.var(apart) / np.mean(apart) ** 2 / 4
        sds.append(spread * (1 / float(effective_sample_size(apart)) + 1 / REFERENCE))
    rest = [1 / min(settings.effective, len(settings.weights)) + 1 / REFERENCE] * (count - len(means))
    return np.sqrt(means + rest), np.sqrt(sds + rest)


def _timed(text: str, data: Mapping[str, Any], options: Mapping[str, Any]) -> tuple[float, float, gpdsl.Fit]:
    """Processor seconds of the first fit and of the next one."""
    gc.collect()
    gc.freeze()  # what NUTS was compiled from is not gone through again by what comes after it
    spent = []
    for _ in range(2):
        begun = time.process_time()
        fit = gpdsl.compile(text).fit(data, diagnose="no", **options)
        spent.append(time.process_time() - begun)
    return spent[0], spent[1], fit


def _row(name: str, mean: Any, sd: Any, true_mean: Any, true_sd: Any, first: float, again: float) -> tuple[object, ...]:
    count = len(true_mean)
    gap, ratio = np.max(np.abs(mean[:count] - true_mean) / true_sd), sd[:count] / true_sd
    return name, f"{gap:.3f}", f"{ratio.min():.3f} to {ratio.max():.3f}", first, again
