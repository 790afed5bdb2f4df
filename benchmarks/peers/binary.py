"""A fit of binary classes elsewhere, all rows at once: `python binary.py LIBRARY ROWS BOUND LIMIT` prints a JSON row.

Three columns, one length-scale and a variance to learn, both from 1. GPflow's VGP by its Scipy optimiser (L-BFGS) ends
when its bound has come within 0.1 nats of BOUND, or after LIMIT seconds; scikit-learn's Laplace approximation has no
bound and ends where it does. Seconds leave out imports, data and, for GPflow, the tracing of its functions.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time

import numpy as np

WITHIN = 0.1


def problem(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The same data for everyone."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 3))
    log_odds = 2.0 * np.sin(2.0 * x[:, 0]) + x[:, 1] * x[:, 2]
    return x, (rng.uniform(size=rows) < 1.0 / (1.0 + np.exp(-log_odds))).astype(int)


def scikit_learn(x: np.ndarray, y: np.ndarray) -> float:
    """`GaussianProcessClassifier`; the approximate log evidence."""
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    return float(GaussianProcessClassifier(ConstantKernel(1.0) * RBF(1.0)).fit(x, y).log_marginal_likelihood_value_)


class Reached(Exception):
    """The bound is there, or time is up."""


def gpflow_vgp(x: np.ndarray, y: np.ndarray, bound: float, limit: float) -> tuple[float, float, float]:
    """`gpflow.models.VGP` with a logistic likelihood: bound, seconds and processor seconds."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    import gpflow
    import tensorflow as tf

    kernel = gpflow.kernels.SquaredExponential(variance=1.0, lengthscales=1.0)
    likelihood = gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid)
    model = gpflow.models.VGP((x, y[:, None].astype(float)), kernel, likelihood)
    loss = model.training_loss_closure(compile=True)
    with tf.GradientTape():
        loss()
    begun, last = (time.perf_counter(), time.process_time()), -np.inf

    def look(*_: object) -> None:
        nonlocal last
        last = -float(loss())
        if last > bound - WITHIN or time.perf_counter() - begun[0] > limit:
            raise Reached

    search = gpflow.optimizers.Scipy()
    with contextlib.suppress(Reached):
        search.minimize(loss, model.trainable_variables, step_callback=look, options={"maxiter": 100_000})
    return last, time.perf_counter() - begun[0], time.process_time() - begun[1]


def main(library: str, rows: int, bound: float, limit: float) -> None:
    """Fit and print."""
    x, y = problem(rows)
    if library == "GPflow":
        value, seconds, cpu = gpflow_vgp(x, y, bound, limit)
    else:
        begun = time.perf_counter(), time.process_time()
        value = scikit_learn(x, y)
        seconds, cpu = time.perf_counter() - begun[0], time.process_time() - begun[1]
    print(json.dumps({"seconds": seconds, "cpu": cpu, "value": value}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
