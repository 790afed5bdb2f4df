"""Chains: what they draw from and what they give, the No-U-Turn sampler, and what chains agree about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from gpdsl.errors import GpdslError, plural
from gpdsl.inference.images import Images
from gpdsl.inference.integrated import STATISTICS
from gpdsl.inference.log_joint import Learnt, LogJoint, log_volume
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.problem import Problem, Result, as_numpy
from gpdsl.program.kept import on_use

Position = Mapping[str, Any]
"""`learnt`: parameters on the real line; `white`: values of latents, where a chain moves in these."""


class Target(Protocol):
    """What chains draw from."""

    def sample(self, chains: int, warm_up: int, draws: int, seed: int, report: Callable[[int, int], None]) -> Chains:
        """`draws` of each of so many chains after a warm-up; `report` is told how many were made, of how many.

        Raises KeyboardInterrupt, from `report`, and Spent where a budget of evaluations ends before there are any.
        """

    def at(self, position: Position) -> Result:
        """What a draw says as a posterior of the latents."""


class Densities(Protocol):
    """A log likelihood and a log prior, up to a constant, with gradients; `data` is no constant in what is compiled."""

    def place(self, position: Position, data: Any) -> tuple[Position, Float[Array, ""]]:
        """What the numbers that a chain moves in stand for, and the logarithm of how much wider that is."""

    def log_likelihood(self, position: Position, data: Any) -> Float[Array, ""]:
        """Of the observations."""

    def log_prior(self, position: Position, data: Any) -> Float[Array, ""]:
        """Of the parameters on the real line, and of w."""


class Differentiable(Protocol):
    """Densities, and what else chains have to know."""

    problem: Problem
    data: Any
    start: Position
    """Where the search has ended."""
    without_prior: tuple[str, ...]
    """Learnt parameters that are flat on the real line."""

    @property
    def made(self) -> tuple[Callable[[Problem, Any], Densities], Any]:
        """What makes the densities of a problem without its data, and of what else they depend on: that."""


Density = Callable[[Position], Array]


# Several chains of the No-U-Turn sampler at once, with steps and scales from a warm-up, by BlackJAX.
#
# Hoffman and Gelman (2014); the warm-up is that of Stan. What chains agree about is told by the rank-normalised R-hat
# and effective numbers of draws of Vehtari et al. (2021).

NEAR = 0.3
"""Standard deviations, on the real line and of w, of where chains begin around the end of the search."""

LEAST = 4
"""Draws of each chain, at least: what chains agree about cannot be told of fewer."""

BLOCK = 50
"""Draws between two reports."""

ACCEPTED = 0.9
"""Share of proposals that steps are chosen for: posteriors of scales are curved, and smaller steps diverge less."""


@dataclass(frozen=True, eq=False)
class Ladder:
    """Temperatures between the posterior and the prior, and how places went along them."""

    powers: Float[np.ndarray, " K"]
    """By which the likelihood counts: 1 first, 0 last."""
    refused: Float[np.ndarray, " pairs"]
    """Share of exchanges that neighbours refused."""
    arrivals: int
    """Places that came to the posterior from the prior, over all chains."""

    @property
    def told(self) -> str:
        """The arrivals in words."""
        return f"{plural(self.arrivals, 'place')} came from the prior"


@dataclass(frozen=True, eq=False)
class Chains:
    """Draws of all chains: leaves of `positions` are [chains, draws, ...]."""

    positions: Position
    statistics: Mapping[str, Shaped[np.ndarray, "chains draws"]]
    """What the sampler says of each draw, under the names that ArviZ has for it."""
    images: int = 1
    """Places of equal density that signs and exchanges make of one, of which each draw has one at random."""
    ladder: Ladder | None = None
    """The temperatures of chains that exchange their places."""
    interrupted: bool = False
    """Whether the user stopped them before there were as many draws as were asked for."""

    @property
    def shape(self) -> tuple[int, int]:
        """Chains, and draws of each."""
        chains, draws = self.statistics["diverging"].shape
        return chains, draws

    @property
    def divergences(self) -> int:
        """How many draws diverged."""
        return int(self.statistics["diverging"].sum())

    @property
    def sliced(self) -> bool:
        """Whether they are elliptical slices, and not the No-U-Turn sampler's."""
        return "n_steps" in self.statistics and "energy" not in self.statistics

    def in_all(self, images: Images, seed: int) -> Chains:
        """Every draw, with one of the images of all its numbers that have the same density: chains do not go there."""
        if len(images) == 1:
            return self
        leaves, tree = jax.tree.flatten(self.positions)
        every = np.concatenate([np.reshape(leaf, (self.statistics["diverging"].size, -1)) for leaf in leaves], axis=1)
        turned = images.at_random(every, np.random.default_rng(seed))
        parts = np.split(turned, np.cumsum([np.prod(np.shape(leaf)[2:], dtype=int) for leaf in leaves])[:-1], axis=1)
        moved = [part.reshape(np.shape(leaf)) for part, leaf in zip(parts, leaves, strict=True)]
        return replace(self, positions=jax.tree.unflatten(tree, moved), images=len(images))

    def at(self, chain: int, draw: int) -> Position:
        """One draw."""
        return jax.tree.map(lambda leaf: leaf[chain, draw], self.positions)


def nuts(
    target: Differentiable, chains: int, warm_up: int, draws: int, seed: int, report: Callable[[int, int], None]
) -> Chains:
    """`draws` of each of so many chains after a warm-up; `report` is told how many draws were made, of how many.

    An interrupt, by KeyboardInterrupt from `report`, ends them with the blocks of draws that were made; it passes where
    there are none. Raises GpdslError where BlackJAX is not installed.
    """
    sampler()
    total = warm_up + draws
    report(0, total)
    key, near, warm = jax.random.split(jax.random.key(seed), 3)
    begin, keys = beginnings(target, chains, near), keys_of(warm, chains)
    state, size, scales = called(target, _warmed, (warm_up,), target.data, begin, keys)

    def blocks() -> Iterator[Any]:
        place = state
        for number in range(-(-draws // BLOCK)):
            report(warm_up + number * BLOCK, total)
            keys = keys_of(jax.random.fold_in(key, number), chains)
            place, kept = called(target, _block, (BLOCK,), target.data, place, size, scales, keys)
            yield kept

    (positions, said), stopped = gathered(blocks(), draws)
    return Chains(positions, said, interrupted=stopped)


def keys_of(key: Array, shape: int | tuple[int, ...]) -> Array:
    """So many keys, as plain numbers."""
    return jax.random.key_data(jax.random.split(key, shape))


def called(target: Differentiable, function: Callable[..., Any], said: tuple[Any, ...], *given: Any) -> Any:
    """What a function says of a problem, of (densities, own, *said, version), and of what is given.

    Its program is there for later fits of the model and for other processes too.
    """
    import blackjax

    return target.problem.shared(function, *given, context=(*target.made, *said, blackjax.__version__))(*given)


def _warmed(problem: Problem, context: tuple[Any, ...], *given: Any) -> Any:
    """The last place of every chain's warm-up, the size of its steps and its scales."""
    densities, own, steps, _ = context

    def warmed(data: Any, position: Position, key: Array) -> Any:
        density = density_of(densities(problem, own), data)
        state, size, scales = adapted(density, position, jax.random.wrap_key_data(key), steps)
        return state.position, size, scales

    return jax.vmap(warmed, in_axes=(None, 0, 0))(*given)


def _block(problem: Problem, context: tuple[Any, ...], *given: Any) -> Any:
    """So many draws of every chain: its last place, and what is told of each draw."""
    densities, own, count, _ = context

    def block(data: Any, position: Position, size: Array, scales: Array, key: Array) -> Any:
        each = densities(problem, own)
        kernel = sampler()(density_of(each, data), step_size=size, inverse_mass_matrix=scales)

        def step(state: Any, key: Array) -> Any:
            state, info = kernel.step(key, state)
            place, wider = each.place(state.position, data)
            return state, (place, statistics_of(state._replace(logdensity=state.logdensity - wider), info, size))

        keys = jax.random.split(jax.random.wrap_key_data(key), count)
        state, told = jax.lax.scan(step, kernel.init(position), keys)
        return state.position, told

    return jax.vmap(block, in_axes=(None, 0, 0, 0, 0))(*given)


def sampler() -> Any:
    """The No-U-Turn sampler. Raises GpdslError where BlackJAX is not installed."""
    try:
        import blackjax
    except ImportError as problem:
        raise GpdslError("engine = mcmc needs BlackJAX: install gpdsl[mcmc]") from problem
    return blackjax.nuts


def adapted(density: Density, position: Position, key: Array, steps: int) -> tuple[Any, Array, Array]:
    """The state after some draws that tune the sampler, the size of its steps and its scales."""
    import blackjax

    adaptation = blackjax.window_adaptation(blackjax.nuts, density, target_acceptance_rate=ACCEPTED)
    (state, tuned), _ = adaptation.run(key, position, num_steps=steps)
    return state, tuned["step_size"], tuned["inverse_mass_matrix"]


def beginnings(target: Differentiable, count: int, key: Array) -> Position:
    """Where chains begin: near the end of the search, [count, ...]."""
    return jax.vmap(lambda k: _moved(target.start, k))(jax.random.split(key, count))


def gathered(blocks: Iterator[Any], draws: int) -> tuple[Any, bool]:
    """Blocks of draws [chains, block, ...] one after the other, so many of each chain, and whether some are lacking.

    An interrupt between two leaves those that were made; it passes where there are none.
    """
    found: list[Any] = []
    try:
        for block in blocks:
            found.append(jax.tree.map(np.asarray, block))
    except KeyboardInterrupt:
        if not found:
            raise
    whole = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1)[:, :draws], *found)
    return whole, len(found) * BLOCK < draws


def statistics_of(state: Any, info: Any, size: Array) -> dict[str, Array]:
    """What the No-U-Turn sampler says of a draw."""
    numbers = state.logdensity, info.energy, info.acceptance_rate, size
    counts = info.num_integration_steps, info.num_trajectory_expansions
    return dict(zip(STATISTICS, (info.is_divergent.astype(int), *numbers, *counts), strict=True))


def density_of(densities: Densities, data: Any) -> Density:
    """Of both together, at such data, of the numbers that a chain moves in."""

    def density(position: Position) -> Array:
        place, wider = densities.place(position, data)
        return certain(densities.log_likelihood(place, data) + densities.log_prior(place, data) + wider)

    return jax.jit(density)


def certain(value: Float[Array, ""]) -> Float[Array, ""]:
    """A log density; -inf where it is no number."""
    return jnp.where(jnp.isfinite(value), value, -jnp.inf)


def _moved(start: Position, key: Array) -> Position:
    leaves, tree = jax.tree.flatten(start)
    keys = jax.random.split(key, max(len(leaves), 1))
    moved = [leaf + NEAR * jax.random.normal(k, leaf.shape, leaf.dtype) for leaf, k in zip(leaves, keys, strict=False)]
    return jax.tree.unflatten(tree, moved)


def log_prior(joint: LogJoint, learnt: Learnt, white: Float[Array, " D"]) -> Float[Array, ""]:
    """Of the parameters on the real line and of w, up to a constant."""
    return joint.log_prior(learnt) + log_volume(joint.problem.program, learnt) - 0.5 * jnp.sum(white**2)


def known_at(joint: LogJoint, position: Position) -> Result:
    """What a draw of parameters and w says: latents that are known at the rows."""
    q = [Whitened(mean, np.zeros((*mean.shape, 1), mean.dtype)) for mean in joint.apart(position["white"])]
    inducing = as_numpy(joint.problem.inducing)
    return Result(as_numpy(dict(position["learnt"])), inducing, q, np.ones(1), float("nan"), float("nan"))


@dataclass(frozen=True)
class Agreement:
    """The worst of all numbers that are drawn, those of latents included."""

    r_hat: float
    bulk: float
    tail: float


def agreement(values: Mapping[str, Float[np.ndarray, "chains draws *axes"]]) -> Agreement:
    """Of several chains about some numbers."""
    import blackjax
    from blackjax.diagnostics import ess_bulk, ess_tail, rhat

    flat = [np.reshape(each, (*each.shape[:2], -1)) for each in values.values()]
    every = np.concatenate(flat, axis=2)
    measures = {"rhat": rhat, "bulk": ess_bulk, "tail": ess_tail}
    found = {
        name: np.asarray(on_use((agreement, name, blackjax.__version__), partial(_measure, measure))(every))
        for name, measure in measures.items()
    }
    return Agreement(float(np.max(found["rhat"])), float(np.min(found["bulk"])), float(np.min(found["tail"])))


def _measure(measure: Callable[..., Array]) -> Callable[[Array], Array]:
    return partial(measure, chain_axis=0, sample_axis=1)


AGREED, APART, ENOUGH = 1.01, 1.1, 400
"""R-hat up to which chains agree, and effective draws from which quantiles are steady (Vehtari et al. 2021)."""


def told(chains: Chains, found: Agreement) -> tuple[str, tuple[str, ...]]:
    """What the chains did in a line, and what is doubtful about them, with a remedy."""
    count, draws = chains.shape
    halves = "of its halves " * (count == 1)
    ends = f"effective draws at least {found.bulk:.0f} (bulk), {found.tail:.0f} (tail)"
    worst = f"R-hat {halves}at most {found.r_hat:.3f}, {ends}"
    moves = f"{chains.divergences} divergences"
    if chains.ladder is not None:
        kept = 1 - float(chains.ladder.refused.max())
        moves += f", {len(chains.ladder.powers)} temperatures, neighbours exchange in {kept:.0%} of draws at least"
        moves += f", {chains.ladder.told}"
    if chains.sliced:
        moves = f"elliptical slices, {np.mean(chains.statistics['n_steps']):.0f} densities a draw"
    about = f"{plural(count, 'chain')} of {plural(draws, 'draw')}: {worst}, {moves}"
    about += f", {chains.images} images by signs and exchanges" if chains.images > 1 else ""
    doubts = [ALONE] if count == 1 else []
    if round(found.r_hat, 3) > AGREED and count > 1:
        more = "ask for more draws"
        if chains.sliced:
            more = f"{more}, or for a longer warm_up"
        elif found.r_hat > APART and chains.ladder is None:
            more = f"{more}; where the posterior has separate modes, chains stay apart: try temperatures = 10"
        doubts.append(f"the chains do not agree (R-hat {found.r_hat:.3f}, trusted up to {AGREED}): {more}")
    if min(found.bulk, found.tail) < ENOUGH:
        few = min(found.bulk, found.tail)
        doubts.append(f"{few:.0f} effective draws are few for quantiles, which need {ENOUGH}: ask for more draws")
    if chains.divergences:
        doubts.append(
            f"{plural(int(chains.divergences), 'draw')} diverged, so that a part of the posterior may be missing: "
            "priors that keep scales away from 0 help, or a longer warm_up"
        )
    if chains.ladder is not None and chains.ladder.arrivals < FRESH:
        doubts.append(_too_few_arrivals(chains.ladder))
    return about, tuple(doubts)


ALONE = "one chain cannot tell whether others would go elsewhere, as its R-hat compares its halves: ask for chains = 4"

FRESH, WILLING = 20, 0.3
"""Arrivals from the prior that tell how much each mode weighs, and exchanges below which more temperatures help."""


def _too_few_arrivals(ladder: Ladder) -> str:
    """A doubt, with the number of temperatures that would do where these are too few (Syed et al., 2022, section 4)."""
    more, count = "ask for more draws", len(ladder.powers)
    if 1.0 - ladder.refused.max() < WILLING:
        more = f"ask for more: temperatures = {max(int(np.ceil(2 * ladder.refused.sum())) + 1, count + 1)}"
    return f"{ladder.told} to the posterior, and how much separate modes weigh rests on {FRESH} at least: {more}"
