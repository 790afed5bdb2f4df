"""Boston housing: the dense `full` posterior against exact GP regression."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
from peers import exact_gp
from report import find_data, show, verdict

import gpdsl

SPLITS = (1, 2, 3)
START = {"mu": 22.0, "s2": 80.0, "ell": np.full(13, 4.0), "sigma": 3.0}  # the starting values of the zoo model


def run() -> None:
    """All splits: predictions at the same hyperparameters, learnt hyperparameters, scores."""
    paths = find_data(*(f"boston/{part}_{i}.csv" for i in SPLITS for part in ("train", "test")))
    if paths is None:
        return
    rows = [[i, *_split(*paths[2 * n : 2 * n + 2])] for n, i in enumerate(SPLITS)]
    columns = ["split", "means, rel.", "variances of y, rel.", "variances of f, rel.", "LML at gpdsl's", "ELBO - LML"]
    columns += ["LML, own start", "LML, gpdsl's start", "short by, nats", "SSE", "NLPD", "seconds"]
    show(
        "boston: dense full posterior against the exact GP",
        columns,
        rows,
        "rel.: largest difference over the test rows",
    )
    verdict("predictive means, relative to the largest", max(r[1] for r in rows), 1e-5)
    verdict("predictive variances, relative", max(max(r[2], r[3]) for r in rows), 1e-4)
    verdict("short of the best exact log marginal likelihood, nats", max(r[8] for r in rows), 0.1)


def _split(train: Path, test: Path) -> list[float]:
    (x, y), (new, _) = _read(train), _read(test)
    fit = gpdsl.zoo("boston").fit(train, seed=0)
    parameters = {n: np.asarray(v, float) for n, v in fit.parameters.items()}
    prediction = fit.predict(test)
    mean, variance = exact_gp.predict(x, y, new, parameters)
    noisy = variance + parameters["sigma"] ** 2
    with jax.enable_x64(True):
        here = float(exact_gp.log_marginal_likelihood(x, y, parameters))
        own, _ = exact_gp.maximise(x, y, START)
        polished, _ = exact_gp.maximise(x, y, parameters)
    return [
        float(np.max(np.abs(prediction.mean("y") - mean)) / np.max(np.abs(mean))),
        float(np.max(np.abs(prediction.variance("y") - noisy) / noisy)),
        float(np.max(np.abs(prediction.variance("f") - variance) / variance)),
        f"{here:.4f}",
        fit.elbo - here,
        f"{own:.4f}",
        f"{polished:.4f}",
        max(own, polished) - here,
        gpdsl.score.sse(fit, test),
        gpdsl.score.nlpd(fit, test),
        fit.seconds,
    ]


def _read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    return table[:, 1:], table[:, 0]
