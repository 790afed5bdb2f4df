"""GPflow's SVGP on a problem of `svgp_problems`: `python svgp_gpflow.py TASK DTYPE STEPS DATA_FOLDER` prints JSON.

Run by an interpreter that has GPflow, tf_keras and TensorFlow: GPDSL_PEERS_TF names it. Settings as its documentation
recommends: whitened, Adam at 0.01 on everything, inducing inputs learnt, one compiled function per step.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["TF_USE_LEGACY_KERAS"] = "1"

import gpflow
import numpy as np
import svgp_problems as problems
import svgp_timing as timing
import tensorflow as tf
import tf_keras


def main(name: str, dtype: str, steps: int, folder: Path) -> None:
    """Build, step, score."""
    gpflow.config.set_default_float(np.dtype(dtype).type)
    gpflow.config.set_default_jitter(1e-6 if dtype == "float64" else 1e-4)
    tf.random.set_seed(0)
    task = problems.load(name, folder)
    begun = timing.now()
    advance, model, likelihood = _model(name, task, dtype)
    batches = timing.minibatches(task, steps)
    row = timing.timed(batches, lambda index: advance(tf.constant(index)).numpy(), begun)
    if name == "digits":
        likelihood.num_monte_carlo_points = 100
    parts = [model.predict_y(task.x_test[i : i + 1000].astype(dtype)) for i in range(0, len(task.x_test), 1000)]
    mean, variance = (np.concatenate([np.asarray(p[k], float) for p in parts]) for k in (0, 1))
    timing.printed(row, problems.negative_log_density(name, task.y_test, mean, variance))


def _model(name: str, task: problems.Task, dtype: str):  # type: ignore[no-untyped-def]
    z = timing.start_inputs(task, dtype)
    if name == "digits":
        likelihood = gpflow.likelihoods.Softmax(10)
        likelihood.num_monte_carlo_points = 10
    else:
        regression = name == "regression"
        likelihood = (
            gpflow.likelihoods.Gaussian(0.1) if regression else gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid)
        )
    shared = name in ("digits", "parity")
    kernel = gpflow.kernels.SquaredExponential(
        lengthscales=task.lengthscale if shared else np.full(task.x.shape[1], task.lengthscale)
    )
    latents = 10 if name == "digits" else 1
    model = gpflow.models.SVGP(kernel, likelihood, z, num_latent_gps=latents, num_data=len(task.x))
    optimiser, variables = tf_keras.optimizers.legacy.Adam(0.01), model.trainable_variables
    y = task.y if name == "digits" else task.y.astype(dtype)
    rows, targets = tf.constant(task.x.astype(dtype)), tf.constant(y[:, None])

    @tf.function
    def step(index):  # type: ignore[no-untyped-def]
        with tf.GradientTape() as tape:
            loss = model.training_loss((tf.gather(rows, index), tf.gather(targets, index)))
        optimiser.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    return step, model, likelihood


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
