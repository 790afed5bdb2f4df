"""Otway seismic inversion with travel times that can only be called: accuracy against evaluations, and a sampler."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from peers import elliptical_slice, nuts
from peers.seismic_nuts import DEPTH, NOISE, VELOCITY, gold as gold_of
from report import CONSOLE, find_data, show, verdict
from timing import timed

import gpdsl

SEEDS = range(5)
BUDGETS = (2_000, 4_000, 6_000, 8_000, 12_000, 18_000, 25_000)
STEPS = (30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
Data = dict[str, np.ndarray]


def travel_time(depth: np.ndarray, velocity: np.ndarray) -> np.ndarray:
    """Two-way time to each boundary."""
    return np.cumsum(2 * np.diff(depth, axis=1, prepend=0.0) / velocity, axis=1)


def gradient(depth: np.ndarray, velocity: np.ndarray, sensitivity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Its vector-Jacobian product: a layer's travel time enters all times from its boundary on."""
    below = 2 * np.cumsum(sensitivity[:, ::-1], axis=1)[:, ::-1] / velocity
    thickness = np.diff(depth, axis=1, prepend=0.0)
    return below - np.pad(below[:, 1:], ((0, 0), (0, 1))), -below * thickness / velocity


def run() -> None:
    """Defaults on several seeds, budgets, and elliptical slice sampling; the figure goes to the current folder."""
    paths = find_data("seismic_otway.csv")
    if paths is None:
        return
    table = np.loadtxt(paths[0], delimiter=",", skiprows=1)
    data = {"s": (table[:, 0] - table[:, 0].mean()) / table[:, 0].std(), "t": table[:, 1:]}
    gold = gold_of("seismic", data["s"], data["t"])
    _defaults(data, gold)
    ours = [_row(data, gold, f"budget {budget}", evaluations=budget) for budget in BUDGETS]
    theirs = _slice(data, gold)
    columns = ["", "evaluations", "mean gap / sd", "sd ratio, least", "sd ratio, largest"]
    rows = [row[:5] for row in ours] + theirs
    show("accuracy against evaluations of the travel time, rows", columns, rows, "sd ratios averaged over sites")
    _figure([row[1:3] for row in ours], [row[1:3] for row in theirs])


def _defaults(data: Data, gold: nuts.Draws) -> None:
    rows = [_row(data, gold, f"default, seed {seed}", seed=seed) for seed in SEEDS]
    rows += [_row(data, gold, f"with gradient, seed {seed}", slopes=True, seed=seed) for seed in SEEDS[:2]]
    columns = ["", "evaluations", "mean gap / sd", "sd ratio, least", "sd ratio, largest", "seconds", "compiling"]
    show("opaque seismic survey at default settings, against NUTS", columns, rows, "sd ratios averaged over sites")
    verdict("distance of the means, NUTS standard deviations", max(row[2] for row in rows), 0.05)
    verdict("standard deviation ratio, least", min(row[3] for row in rows), 0.9, least=True)
    verdict("standard deviation ratio, largest", max(row[4] for row in rows), 1.05)
    verdict("evaluations", max(row[1] for row in rows), 100_000)
    verdict("seconds after compilation, median", float(np.median([row[5] for row in rows])), 3.0)


def _row(data: Data, gold: nuts.Draws, name: str, slopes: bool = False, **options: object) -> tuple:
    forward = gpdsl.opaque(travel_time, gradient=gradient) if slopes else travel_time
    model = gpdsl.zoo("seismic_external", externals={"travel_time": forward})
    done = timed(lambda: model.fit(data, **options))
    prediction = done.result.predict(data)
    mean, variance = (
        np.concatenate([ask("depth"), ask("velocity")], axis=1) for ask in (prediction.mean, prediction.variance)
    )
    return (name, done.result.usage.evaluations, *_judged(gold, mean, np.sqrt(variance)), done.running, done.compiling)


def _judged(gold: nuts.Draws, mean: np.ndarray, sd: np.ndarray) -> tuple[float, float, float]:
    ratio = np.mean(sd / gold.sd, axis=0)
    return float(np.mean(np.abs(mean - gold.mean) / gold.sd)), float(ratio.min()), float(ratio.max())


def _slice(data: Data, gold: nuts.Draws) -> list[tuple]:
    position, times = data["s"], jnp.asarray(data["t"])
    root = jnp.asarray(nuts.reduced_root(np.exp(-0.5 * (position[:, None] - position) ** 2)))
    size = root.shape[1]

    def latents(v: jax.Array) -> jax.Array:
        values = root @ v.reshape(8, size).T
        return jnp.concatenate([DEPTH * (1 + 0.15 * values[:, :4]), VELOCITY * (1 + 0.1 * values[:, 4:])], axis=1)

    def log_likelihood(v: jax.Array) -> jax.Array:
        at = latents(v)
        expected = jnp.cumsum(2 * jnp.diff(at[:, :4], axis=1, prepend=0.0) / at[:, 4:], axis=1)
        return -0.5 * jnp.sum(((times - expected) / NOISE) ** 2)

    found = elliptical_slice.moments(log_likelihood, latents, 8 * size, STEPS)
    return [
        (f"elliptical slice, {steps} steps", calls * len(position), *_judged(gold, mean, sd))
        for steps, (calls, mean, sd) in zip(STEPS, found, strict=True)
    ]


def _figure(ours: list[tuple], theirs: list[tuple]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    for name, points in (("gpdsl, quadratic surrogates", ours), ("elliptical slice sampling", theirs)):
        plt.loglog(*zip(*points, strict=True), "o-", label=name)
    plt.axhline(0.05, color="grey", linestyle=":")
    plt.xlabel("evaluations of the travel time, rows")
    plt.ylabel("mean distance of posterior means, NUTS sds")
    plt.legend()
    path = Path("opaque_seismic.png").resolve()
    plt.savefig(path, dpi=150)
    CONSOLE.print(f"figure: {path}")
