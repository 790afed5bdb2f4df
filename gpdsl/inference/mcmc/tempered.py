"""Chains at several temperatures that exchange their places, for posteriors whose modes lie apart.

The likelihood counts b times: from b = 1, the posterior, to b = 0, the prior, whose chain goes everywhere. Neighbours
propose to exchange their places, even and odd pairs in turn, so that a place travels from the prior to the posterior
and back without reversing at every step, and the powers b are set so that all pairs refuse equally often (Syed,
Bouchard-Cote, Deligiannidis and Doucet, 2022). What arrives at b = 1 is a draw of the posterior in any of its modes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from gpdsl.inference.mcmc import chains as drawing
from gpdsl.inference.problem import Problem

ROUNDS, SHORTEST = 3, 20
"""Times that steps and powers are tuned, and the fewest draws that tune the steps."""

FIRST = 3.0
"""Powers are at first the cubes of even ones: likelihoods tell most near 0."""

WIDE = 3.0
"""Standard deviations, on the real line around the end of the search, of parameters without a prior at b = 0."""

SLIGHT = 1e-3
"""Refusals that each pair has at least, so that powers stay apart."""


def tempered(
    target: drawing.Differentiable,
    temperatures: int,
    chains: int,
    warm_up: int,
    draws: int,
    seed: int,
    report: Callable[[int, int], None],
) -> drawing.Chains:
    """`draws` of each of so many chains at b = 1, each beside as many others as there are `temperatures` more.

    Interrupts are as `chains.nuts` has them. Raises GpdslError where BlackJAX is not installed.
    """
    drawing.sampler()
    each = tuning(warm_up)
    total, done = warming(warm_up) + draws, 0
    report(0, total)
    key, near, warm = jax.random.split(jax.random.key(seed), 3)
    powers = np.linspace(1.0, 0.0, temperatures) ** FIRST
    one = drawing.beginnings(target, chains * temperatures, near)
    places = jax.tree.map(lambda leaf: leaf.reshape(chains, temperatures, *leaf.shape[1:]), one)
    data = target.data, target.start["learnt"]
    who = jnp.broadcast_to(jnp.arange(temperatures), (chains, temperatures))
    for number in range(ROUNDS):
        keys = drawing.keys_of(jax.random.fold_in(warm, number), (chains, temperatures))
        places, tuned = _called(target, _tuned, each, data, jnp.asarray(powers), places, keys)
        report(done := done + each, total)
        given = data, jnp.asarray(powers), (places, who), tuned
        keys, turns = _keys(key, number, chains), _turns(0, chains)
        (places, _), (_, _, _, refused) = _called(target, _block, drawing.BLOCK, *given, keys, turns)
        report(done := done + drawing.BLOCK, total)
        powers = powers if number == ROUNDS - 1 else _even(powers, np.asarray(refused).mean((0, 1)))

    def blocks() -> Iterator[Any]:
        state, after = (places, who), done
        for number in range(-(-draws // drawing.BLOCK)):
            keys = _keys(key, ROUNDS + number, chains)
            given = data, jnp.asarray(powers), state, tuned
            state, kept = _called(target, _block, drawing.BLOCK, *given, keys, _turns(number, chains))
            yield kept
            report(min(after := after + drawing.BLOCK, total), total)

    (positions, said, at, refused), stopped = drawing.gathered(blocks(), draws)
    ladder = drawing.Ladder(powers, refused.mean((0, 1)), sum(map(_arrivals, at)))
    return drawing.Chains(positions, said, ladder=ladder, interrupted=stopped)


def tuning(warm_up: int) -> int:
    """Draws of each round that tune the steps."""
    return max(warm_up // 2, SHORTEST)


def warming(warm_up: int) -> int:
    """Draws of each chain before those that count: in each round some that tune its steps, and some with exchanges."""
    return ROUNDS * (tuning(warm_up) + drawing.BLOCK)


def _keys(key: Array, number: int, chains: int) -> Array:
    return drawing.keys_of(jax.random.fold_in(key, number), chains)


def _called(target: drawing.Differentiable, function: Callable[..., Any], count: int, *given: Any) -> Any:
    return drawing.called(target, function, (count, target.without_prior), *given)


def _turns(number: int, chains: int) -> Int[Array, "chains block"]:
    """Which pairs are to exchange in each draw of a block: those of even or of odd places."""
    return jnp.broadcast_to((number * drawing.BLOCK + jnp.arange(drawing.BLOCK)) % 2, (chains, drawing.BLOCK))


@dataclass(frozen=True)
class Heated:
    """The log density in which the likelihood counts less: base(position) + power * energy(position)."""

    densities: drawing.Densities
    data: Any
    start: drawing.Position
    without_prior: tuple[str, ...]

    def energy(self, position: drawing.Position) -> Float[Array, ""]:
        """The log likelihood, less what takes the place of priors that are not there; -inf where it is no number."""
        return drawing.certain(self.densities.log_likelihood(position, self.data) - self._instead(position))

    def at(self, power: Array) -> drawing.Density:
        """The density at one power."""

        def density(position: drawing.Position) -> Array:
            likely = jnp.where(power > 0, power * self.energy(position), 0.0)
            return drawing.certain(self.densities.log_prior(position, self.data) + self._instead(position) + likely)

        return density

    def _instead(self, position: drawing.Position) -> Float[Array, ""]:
        """The log density at b = 0, about where the search has ended, of parameters that have no prior."""
        known = position["learnt"]
        squares = (jnp.sum(((known[name] - self.start[name]) / WIDE) ** 2) for name in self.without_prior)
        return jnp.asarray(-0.5 * sum(squares))


def _heated(problem: Problem, context: tuple[Any, ...], data: Any) -> Heated:
    densities, own, _, without_prior, _ = context
    return Heated(densities(problem, own), data[0], data[1], without_prior)


def _tuned(problem: Problem, context: tuple[Any, ...], *given: Any) -> Any:
    """Where each chain is at each power after some draws that tune its steps, and these."""

    def tuned(data: Any, power: Array, position: drawing.Position, key: Array) -> Any:
        heated = _heated(problem, context, data)
        state, *found = drawing.adapted(heated.at(power), position, jax.random.wrap_key_data(key), context[2])
        return state.position, found

    return jax.vmap(jax.vmap(tuned, in_axes=(None, 0, 0, 0)), in_axes=(None, None, 0, 0))(*given)


def _block(problem: Problem, context: tuple[Any, ...], *given: Any) -> Any:
    """Some draws of every chain at all powers, with an exchange after each: the state, and what is told of each."""

    def block(data: Any, powers: Float[Array, " K"], state: Any, tuned: Any, key: Array, turns: Any) -> Any:
        heated = _heated(problem, context, data)

        def move(power: Array, place: drawing.Position, tuned: Any, key: Array) -> Any:
            size, scales = tuned
            kernel = drawing.sampler()(heated.at(power), step_size=size, inverse_mass_matrix=scales)
            state, info = kernel.step(key, kernel.init(place))
            return state, drawing.statistics_of(state, info, size)

        def step(carry: Any, at: Any) -> Any:
            (places, who), (key, turn) = carry, at
            moving, deciding = jax.random.split(key)
            states, said = jax.vmap(move)(powers, places, tuned, jax.random.split(moving, len(powers)))
            accepted = _acceptance(powers, jax.vmap(heated.energy)(states.position))
            change = _exchange(jax.random.uniform(deciding, accepted.shape) < accepted, turn)
            told = jax.tree.map(lambda leaf: leaf[0], (states.position, said))
            places = jax.tree.map(lambda leaf: leaf[change], states.position)
            return (places, who[change]), (*told, who[change], 1.0 - accepted)

        return jax.lax.scan(step, state, (jax.random.split(jax.random.wrap_key_data(key), len(turns)), turns))

    return jax.vmap(block, in_axes=(None, None, 0, 0, 0, 0))(*given)


def _acceptance(powers: Float[Array, " K"], energies: Float[Array, " K"]) -> Float[Array, " pairs"]:
    """The probability that neighbours exchange their places."""
    ratio = (powers[:-1] - powers[1:]) * (energies[1:] - energies[:-1])
    return jnp.where(jnp.isnan(ratio), 0.0, jnp.exp(jnp.minimum(ratio, 0.0)))


def _exchange(willing: Bool[Array, " pairs"], turn: Array) -> Int[Array, " K"]:
    """From where each place comes, if the pairs whose turn it is exchange."""
    own = jnp.arange(len(willing) + 1)
    up = jnp.concatenate([willing & (own[:-1] % 2 == turn), jnp.zeros(1, bool)])
    return own + up.astype(int) - jnp.roll(up, 1).astype(int)


def _even(powers: Float[np.ndarray, " K"], refused: Float[np.ndarray, " pairs"]) -> Float[np.ndarray, " K"]:
    """Powers between which pairs refuse equally often, as what was refused between these tells."""
    way = np.concatenate([[0.0], np.cumsum(refused + SLIGHT)])
    return np.asarray(np.interp(np.linspace(0.0, way[-1], len(powers)), way, powers))


def _arrivals(who: Int[np.ndarray, "draws K"]) -> int:
    """How many places have come from the prior to the posterior since they were last there."""
    fresh: set[int] = set()
    count = 0
    for each in who:
        fresh.add(int(each[-1]))
        count += int(each[0]) in fresh
        fresh.discard(int(each[0]))
    return count
