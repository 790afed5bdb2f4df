"""Elliptical slice sampling (Murray, Adams, MacKay 2010) of whitened latents by BlackJAX, its evaluations counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np


def moments(
    log_likelihood: Callable[[jax.Array], jax.Array],
    observe: Callable[[jax.Array], jax.Array],
    size: int,
    steps: tuple[int, ...],
    seed: int = 0,
) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """Calls of the log likelihood, means and standard deviations of what is observed, after so many steps of one chain.

    The first third of the steps is left out of the moments, not of the calls.
    """
    sampler = blackjax.elliptical_slice(log_likelihood, mean=jnp.zeros(size), cov=jnp.ones(size))

    @jax.jit
    def run(state: Any, keys: jax.Array) -> Any:
        def step(state: Any, key: jax.Array) -> Any:
            state, info = sampler.step(key, state)
            return state, (observe(state.position), info.subiter)

        return jax.lax.scan(step, state, keys)

    state, seen, calls = sampler.init(jnp.zeros(size)), [], 0
    found, key = [], jax.random.key(seed)
    for before, after in zip((0, *steps[:-1]), steps, strict=True):
        state, (observed, tries) = run(state, jax.random.split(jax.random.fold_in(key, after), after - before))
        seen.append(np.asarray(observed))
        calls += int(np.sum(tries))
        kept = np.concatenate(seen)[after // 3 :]
        found.append((calls, kept.mean(axis=0), kept.std(axis=0)))
    return found
