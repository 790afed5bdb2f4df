"""GPJax's SVGP on a problem of `svgp_problems`: `python svgp_gpjax.py TASK DTYPE STEPS DATA_FOLDER` prints JSON.

Run by an interpreter that has GPJax: GPDSL_PEERS names it. One jitted step per call, so that every step is timed; its
`fit` puts all steps into one loop and takes 0.7 to 0.9 of that per step. It has no softmax of several latents.
"""

from __future__ import annotations

import sys
from pathlib import Path

import equinox as eqx
import gpjax as gpx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as npd
import optax
import svgp_problems as problems
import svgp_timing as timing


class LogitBernoulli(gpx.likelihoods.AbstractLikelihood):
    """The library's own is probit only."""

    def link_function(self, f):  # type: ignore[no-untyped-def]
        """Of given latent values."""
        return npd.Bernoulli(logits=f)

    def predict(self, dist):  # type: ignore[no-untyped-def]
        """Of Gaussian marginals, by quadrature."""
        x, w = np.polynomial.hermite.hermgauss(20)
        f = dist.mean[:, None] + jnp.sqrt(2 * dist.variance)[:, None] * x
        return npd.Bernoulli(probs=(jax.nn.sigmoid(f) * w / np.sqrt(np.pi)).sum(1))


def main(name: str, dtype: str, steps: int, folder: Path) -> None:
    """Build, step, score."""
    if name == "digits":
        raise SystemExit("GPJax has no softmax of several latents")
    jax.config.update("jax_enable_x64", dtype == "float64")
    task, regression = problems.load(name, folder), name == "regression"
    begun = timing.now()
    length = task.lengthscale if name == "parity" else np.full(task.x.shape[1], task.lengthscale)
    kernel = gpx.kernels.RBF(lengthscale=jnp.asarray(length, dtype), variance=jnp.asarray(1.0, dtype))
    jitter = 1e-6 if dtype == "float64" else 1e-4
    prior = gpx.gps.Prior(mean_function=gpx.mean_functions.Zero(), kernel=kernel, jitter=jitter)
    likelihood = gpx.likelihoods.Gaussian(obs_stddev=jnp.asarray(0.1**0.5, dtype)) if regression else LogitBernoulli()
    z = jnp.asarray(timing.start_inputs(task, dtype))
    q = gpx.variational_families.WhitenedVariationalGaussian(model=prior * likelihood, inducing_inputs=z)
    data = gpx.Dataset(X=jnp.asarray(task.x, dtype), y=jnp.asarray(task.y, dtype)[:, None])
    optimiser = optax.adam(0.01)

    @eqx.filter_jit
    def advance(q, memory, index):  # type: ignore[no-untyped-def]
        some = gpx.Dataset(X=data.X[index], y=data.y[index], n_total=len(task.x))
        value, gradient = eqx.filter_value_and_grad(lambda m, d: -gpx.objectives.elbo(m, d))(q, some)
        updates, memory = optimiser.update(gradient, memory, eqx.filter(q, eqx.is_array))
        return eqx.apply_updates(q, updates), memory, value

    state = [q, optimiser.init(eqx.filter(q, eqx.is_array))]

    def step(index: np.ndarray) -> None:
        state[0], state[1], value = advance(*state, jnp.asarray(index))
        value.block_until_ready()

    row = timing.timed(timing.minibatches(task, steps), step, begun)
    timing.printed(row, _score(name, task, state[0], data, dtype))


def _score(name: str, task: problems.Task, q, data, dtype: str) -> float:  # type: ignore[no-untyped-def]
    @eqx.filter_jit
    def look(q, x):  # type: ignore[no-untyped-def]
        found = q.condition(data)(x, covariance="diagonal")
        if name == "regression":
            return found.mean, found.variance
        return (q.model.likelihood.predict(found).probs,) * 2

    parts = [look(q, jnp.asarray(task.x_test[i : i + 1000], dtype)) for i in range(0, len(task.x_test), 1000)]
    mean, variance = (np.concatenate([np.asarray(p[k], float) for p in parts]) for k in (0, 1))
    if name == "regression":
        variance = variance + float(gpx.parameters.val(q.model.likelihood.obs_stddev)) ** 2
    return problems.negative_log_density(name, task.y_test, mean, variance)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
