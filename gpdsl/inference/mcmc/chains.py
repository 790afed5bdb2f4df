"""Several chains of the No-U-Turn sampler at once, with steps and scales from a warm-up, by BlackJAX.

Hoffman and Gelman (2014); the warm-up is that of Stan. What chains agree about is told by the rank-normalised R-hat and
effective numbers of draws of Vehtari et al. (2021).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.errors import GpdslError
from gpdsl.inference.mcmc.targets import Position, Target

NEAR = 0.3
"""Standard deviations, on the real line and of w, of where chains begin around the end of the search."""

BLOCK = 50
"""Draws between two reports."""

ACCEPTED = 0.9
"""Share of proposals that steps are chosen for: posteriors of scales are curved, and smaller steps diverge less."""


@dataclass(frozen=True, eq=False)
class Chains:
    """Draws of all chains: leaves of `positions` are [chains, draws, ...]."""

    positions: Position
    divergences: int
    proposals: Float[np.ndarray, "chains draws"]
    """Leapfrog steps of each draw."""

    @property
    def shape(self) -> tuple[int, int]:
        """Chains, and draws of each."""
        return self.proposals.shape[0], self.proposals.shape[1]

    def at(self, chain: int, draw: int) -> Position:
        """One draw."""
        return jax.tree.map(lambda leaf: leaf[chain, draw], self.positions)


def sample(
    target: Target, chains: int, warm_up: int, draws: int, seed: int, report: Callable[[int, int], None]
) -> Chains:
    """`draws` of each of so many chains after a warm-up; `report` is told how many draws were made, of how many.

    Raises GpdslError where BlackJAX is not installed, and KeyboardInterrupt, from `report`, between blocks of draws.
    """
    try:
        import blackjax
    except ImportError as problem:
        raise GpdslError("engine = mcmc needs BlackJAX: install gpdsl[mcmc]") from problem
    total = warm_up + draws
    report(0, total)
    key, near, warm = jax.random.split(jax.random.key(seed), 3)
    begin = jax.vmap(lambda k: _moved(target.start, k))(jax.random.split(near, chains))

    def warmed(data: Any, position: Position, key: Array) -> Any:
        density = _density(target, data)
        adaptation = blackjax.window_adaptation(blackjax.nuts, density, target_acceptance_rate=ACCEPTED)
        (state, tuned), _ = adaptation.run(key, position, num_steps=warm_up)
        return state, tuned["step_size"], tuned["inverse_mass_matrix"]

    def block(data: Any, state: Any, size: Array, scales: Array, key: Array) -> Any:
        kernel = blackjax.nuts(_density(target, data), step_size=size, inverse_mass_matrix=scales)

        def step(state: Any, key: Array) -> Any:
            state, info = kernel.step(key, state)
            return state, (state.position, info.is_divergent, info.num_integration_steps)

        return jax.lax.scan(step, state, jax.random.split(key, BLOCK))

    state, size, scales = jax.jit(jax.vmap(warmed, in_axes=(None, 0, 0)))(
        target.data, begin, jax.random.split(warm, chains)
    )
    advance = jax.jit(jax.vmap(block, in_axes=(None, 0, 0, 0, 0)))
    found = []
    for number in range(-(-draws // BLOCK)):
        report(warm_up + number * BLOCK, total)
        keys = jax.random.split(jax.random.fold_in(key, number), chains)
        state, kept = advance(target.data, state, size, scales, keys)
        found.append(jax.tree.map(np.asarray, kept))
    positions, divergent, steps = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1)[:, :draws], *found)
    return Chains(positions, int(divergent.sum()), np.asarray(steps))


def _density(target: Target, data: Any) -> Callable[[Position], Array]:
    def density(position: Position) -> Array:
        value = target.log_density(position, data)
        return jnp.where(jnp.isfinite(value), value, -jnp.inf)

    return density


def _moved(start: Position, key: Array) -> Position:
    leaves, tree = jax.tree.flatten(start)
    keys = jax.random.split(key, max(len(leaves), 1))
    moved = [leaf + NEAR * jax.random.normal(k, leaf.shape, leaf.dtype) for leaf, k in zip(leaves, keys, strict=False)]
    return jax.tree.unflatten(tree, moved)


@dataclass(frozen=True)
class Agreement:
    """The worst of all numbers that are drawn, those of latents included."""

    r_hat: float
    bulk: float
    tail: float


def agreement(values: Mapping[str, Float[np.ndarray, "chains draws *axes"]]) -> Agreement:
    """Of several chains about some numbers."""
    from blackjax.diagnostics import ess_bulk, ess_tail, rhat

    flat = [np.reshape(each, (*each.shape[:2], -1)) for each in values.values()]
    every = jnp.asarray(np.concatenate(flat, axis=2))
    compiled = [jax.jit(partial(measure, chain_axis=0, sample_axis=1)) for measure in (rhat, ess_bulk, ess_tail)]
    measured = [np.asarray(measure(every)) for measure in compiled]
    return Agreement(float(np.max(measured[0])), float(np.min(measured[1])), float(np.min(measured[2])))
