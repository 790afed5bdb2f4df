"""NUTS for latent Gaussian models, whitened, through BlackJAX: the gold standard for their posteriors."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.diagnostics import effective_sample_size, potential_scale_reduction
from scipy.optimize import minimize
from timing import timed

CHAINS = 4

LEAST_CURVED = 0.3
"""Of a direction around a mode, in units of the prior: what the mode says of directions that hardly are is no scale."""


@dataclass(frozen=True)
class Draws:
    """Posterior moments of what was observed of the chain, Monte-Carlo diagnostics, and seconds without compilation."""

    mean: np.ndarray
    sd: np.ndarray
    rhat: float
    least_ess: float
    divergences: int
    seconds: float
    compile_seconds: float
    gradients: int
    processor_seconds: float = float("nan")


def cholesky_root(covariance: np.ndarray) -> np.ndarray:
    """A root as large as the grid; the jitter is 1e-8 of the variance."""
    return np.linalg.cholesky(covariance + 1e-8 * covariance[0, 0] * np.eye(len(covariance)))


def reduced_root(covariance: np.ndarray) -> np.ndarray:
    """The eigenvectors that carry all but 1e-10 of the largest eigenvalue: fewer unknowns for the same process."""
    values, vectors = np.linalg.eigh(covariance)
    kept = values > 1e-10 * values[-1]
    return vectors[:, kept] * np.sqrt(values[kept])


def sample(root: np.ndarray, counts: np.ndarray, offset: float, warm_up: int, draws: int, seed: int = 0) -> Draws:
    """Draw from p(f | counts), counts ~ Poisson(exp(f + offset)), f = root v, v ~ N(0, I)."""

    def log_likelihood(v: jax.Array, root: jax.Array, counts: jax.Array) -> jax.Array:
        rate = root @ v + offset
        return counts @ rate - jnp.sum(jnp.exp(rate))

    data = (jnp.asarray(root, float), jnp.asarray(counts, float))
    return draw(log_likelihood, lambda v, root, _: root @ v, root.shape[1], data, warm_up, draws, seed)


def draw(
    log_likelihood: Callable[..., jax.Array],
    observe: Callable[..., jax.Array],
    size: int,
    data: tuple[Any, ...],
    warm_up: int,
    draws: int,
    seed: int = 0,
) -> Draws:
    """Draw v from N(0, I) times exp(log_likelihood(v, *data)), and keep observe(v, *data), a vector."""

    def chain(key: jax.Array, *data: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        target = lambda v: log_likelihood(v, *data) - 0.5 * v @ v  # noqa: E731
        start_key, warm_key, draw_key = jax.random.split(key, 3)
        start = 0.1 * jax.random.normal(start_key, (size,), float)
        (state, tuned), _ = blackjax.window_adaptation(blackjax.nuts, target).run(warm_key, start, warm_up)
        step = blackjax.nuts(target, **tuned).step

        def advance(state, key):  # type: ignore[no-untyped-def]
            state, info = step(key, state)
            return state, (observe(state.position, *data), info.num_integration_steps, info.is_divergent)

        return jax.lax.scan(advance, state, jax.random.split(draw_key, draws))[1]

    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(seed), CHAINS)
        arguments = (keys, *jax.tree.map(lambda a: jnp.asarray(a, float), data))
        over_chains = (0, *(None for _ in data))
        compiling = timed(lambda: jax.jit(jax.vmap(chain, over_chains)).lower(*arguments).compile())
        begun = time.process_time()
        run = timed(lambda: compiling.result(*arguments))
        used = time.process_time() - begun
        f, steps, divergent = run.result
        return Draws(
            mean=np.asarray(f.mean((0, 1))),
            sd=np.asarray(f.reshape(-1, f.shape[-1]).std(0, ddof=1)),
            rhat=float(jnp.max(potential_scale_reduction(f))),
            least_ess=float(jnp.min(effective_sample_size(f))),
            divergences=int(divergent.sum()),
            seconds=run.seconds,
            compile_seconds=compiling.seconds,
            gradients=int(steps.sum()),
            processor_seconds=used,
        )


def draw_around(
    log_density: Callable[..., jax.Array],
    observe: Callable[..., jax.Array],
    start: np.ndarray,
    data: tuple[Any, ...],
    warm_up: int,
    draws: int,
    seed: int = 0,
) -> Draws:
    """Draw w from exp(log_density(w, *data)), in the units of its curvature at the mode next to `start`."""
    with jax.enable_x64(True):
        given = jax.tree.map(lambda a: jnp.asarray(a, float), data)
        value_and_slope = jax.jit(jax.value_and_grad(log_density))

        def down(w: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = value_and_slope(w, *given)
            return -float(value), -np.asarray(slope)

        mode = minimize(down, start, jac=True, method="L-BFGS-B", options={"maxiter": 500}).x
        curved, directions = np.linalg.eigh(-np.asarray(jax.jit(jax.hessian(log_density))(mode, *given)))
    root = jnp.asarray(directions / np.sqrt(np.maximum(curved, LEAST_CURVED)))

    def moved(v: jax.Array, root: jax.Array) -> jax.Array:
        return mode + root @ v

    def log_likelihood(v: jax.Array, root: jax.Array, *data: Any) -> jax.Array:
        return log_density(moved(v, root), *data) + 0.5 * v @ v

    def seen(v: jax.Array, root: jax.Array, *data: Any) -> jax.Array:
        return observe(moved(v, root), *data)

    return draw(log_likelihood, seen, len(start), (root, *data), warm_up, draws, seed)
