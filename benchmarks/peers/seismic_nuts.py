"""NUTS for the Otway seismic models: the gold standard for the posterior of their depths and velocities."""

from __future__ import annotations

import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from peers import nuts

DEPTH, VELOCITY = np.array([200.0, 500.0, 1600.0, 2200.0]), np.array([1950.0, 2300.0, 2750.0, 3650.0])
NOISE = np.array([0.025, 0.05, 0.075, 0.1])
WARM_UP, DRAWS = 700, 1500


def gold(model: str, position: np.ndarray, times: np.ndarray) -> nuts.Draws:
    """Means and standard deviations [sites, 8] under `seismic` or `seismic_increments`, kept in the temporary folder.

    SAVIGP section 9.8: each time follows the model's time of the layer above, or (eq. 43) the observed one.
    """
    kept = Path(tempfile.gettempdir()) / f"gpdsl_nuts_{model}_{WARM_UP}_{DRAWS}.npz"
    names = ("rhat", "least_ess", "divergences", "seconds", "compile_seconds", "gradients")
    if kept.exists():
        with np.load(kept) as saved:
            return nuts.Draws(saved["mean"], saved["sd"], *(saved[name].item() for name in names))
    root = nuts.reduced_root(np.exp(-0.5 * (position[:, None] - position) ** 2))
    size, observed = root.shape[1], model == "seismic_increments"

    def latents(v: jax.Array, root: jax.Array) -> tuple[jax.Array, jax.Array]:
        values = root @ v.reshape(8, size).T
        return DEPTH * (1 + 0.15 * values[:, :4]), VELOCITY * (1 + 0.1 * values[:, 4:])

    def log_likelihood(v: jax.Array, root: jax.Array, times: jax.Array) -> jax.Array:
        depth, velocity = latents(v, root)
        through = 2 * jnp.diff(depth, axis=1, prepend=0.0) / velocity
        above = jnp.concatenate([jnp.zeros_like(times[:, :1]), times[:, :-1]], axis=1)
        expected = above + through if observed else jnp.cumsum(through, axis=1)
        return -0.5 * jnp.sum(((times - expected) / NOISE) ** 2)

    def observe(v: jax.Array, root: jax.Array, _: jax.Array) -> jax.Array:
        return jnp.concatenate(latents(v, root), axis=1).ravel()

    draws = nuts.draw(log_likelihood, observe, 8 * size, (root, times), WARM_UP, DRAWS)
    table = {"mean": draws.mean.reshape(-1, 8), "sd": draws.sd.reshape(-1, 8)}
    np.savez(kept, **table, **{name: getattr(draws, name) for name in names})
    return gold(model, position, times)
