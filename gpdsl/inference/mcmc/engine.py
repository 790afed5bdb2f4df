"""`engine = mcmc`: the search of exact or variational inference, and chains that begin where it has ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from gpdsl.data import Data
from gpdsl.errors import GpdslError
from gpdsl.inference.driver import Plan, Planner
from gpdsl.inference.exact.engine import ExactProfile
from gpdsl.inference.exact.evidence import log_evidence
from gpdsl.inference.integrated import STATISTICS, Integrated, log_volume
from gpdsl.inference.log_joint import LogJoint
from gpdsl.inference.machine import machine_for
from gpdsl.inference.monitor import Monitor
from gpdsl.inference.plan.options import Options
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.problem import Problem, Result, as_arrays, as_numpy
from gpdsl.inference.warm import Start
from gpdsl.program.program import Program

# What chains draw from: the posterior of parameters alone where the latents integrate out, else of both.
#
# With normal observations the latents have a closed form given the parameters, which are all that a chain moves in.
# Otherwise it moves in the learnt parameters on the real line and in the whitened values w ~ N(0, I) of the latents.

Position = Mapping[str, Any]
"""`learnt`: parameters on the real line; `white`: values of latents, where a chain moves in these."""


class Target(Protocol):
    """A log density, up to a constant, and what a place says as a posterior."""

    data: Any
    """An argument of the density, so that it is no constant in a compiled function."""
    start: Position
    """Where the search has ended."""

    def log_density(self, position: Position, data: Any) -> Float[Array, ""]:
        """Of the parameters on the real line, and of w."""

    def at(self, position: Position) -> Result:
        """The posterior of the latents there."""


class Collapsed:
    """p(parameters | y), with the latents integrated out: exact inference at every place."""

    def __init__(self, problem: Problem, result: Result) -> None:
        self.profile, self.data = ExactProfile(problem, result), problem.rows
        self.start: Position = {"learnt": as_arrays(result.parameters, problem.options.dtype)}

    def log_density(self, position: Position, data: Any) -> Float[Array, ""]:
        """The log evidence, with log priors."""
        system, learnt = self.profile.system, position["learnt"]
        return log_evidence(system, learnt, data) + log_volume(system.program, learnt)

    def at(self, position: Position) -> Result:
        """The exact posterior."""
        return self.profile.at(position["learnt"])


class Joint:
    """p(parameters, w | y), the whitened values of all latents at the rows included."""

    def __init__(self, problem: Problem, result: Result) -> None:
        self.joint = LogJoint(problem)
        self.data = self.joint.data
        white = np.concatenate([np.ravel(q.mean[0]) for q in result.posterior])
        known = {"learnt": result.parameters, "white": white}
        self.start: Position = as_arrays(known, problem.options.dtype)

    def log_density(self, position: Position, data: Any) -> Float[Array, ""]:
        """The log joint density."""
        learnt, white, joint = position["learnt"], position["white"], self.joint
        prior = joint.log_prior(learnt) + log_volume(joint.problem.program, learnt) - 0.5 * jnp.sum(white**2)
        return joint.log_likelihood(learnt, white, data) + prior

    def at(self, position: Position) -> Result:
        """Latents that are known at the rows."""
        q = [Whitened(mean, np.zeros((*mean.shape, 1), mean.dtype)) for mean in self.joint.apart(position["white"])]
        inducing = as_numpy(self.joint.problem.inducing)
        return Result(as_numpy(dict(position["learnt"])), inducing, q, np.ones(1), float("nan"), float("nan"))


# Several chains of the No-U-Turn sampler at once, with steps and scales from a warm-up, by BlackJAX.
#
# Hoffman and Gelman (2014); the warm-up is that of Stan. What chains agree about is told by the rank-normalised R-hat
# and effective numbers of draws of Vehtari et al. (2021).

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
    statistics: Mapping[str, Shaped[np.ndarray, "chains draws"]]
    """What the sampler says of each draw, under the names that ArviZ has for it."""

    @property
    def shape(self) -> tuple[int, int]:
        """Chains, and draws of each."""
        chains, draws = self.statistics["diverging"].shape
        return chains, draws

    @property
    def divergences(self) -> int:
        """How many draws diverged."""
        return int(self.statistics["diverging"].sum())

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
            return state, (state.position, _statistics(state, info, size))

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
    return Chains(*jax.tree.map(lambda *parts: np.concatenate(parts, axis=1)[:, :draws], *found))


def _statistics(state: Any, info: Any, size: Array) -> dict[str, Array]:
    numbers = state.logdensity, info.energy, info.acceptance_rate, size
    counts = info.num_integration_steps, info.num_trajectory_expansions
    return dict(zip(STATISTICS, (info.is_divergent.astype(int), *numbers, *counts), strict=True))


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


CHAINS, WARM_UP, DRAWS = 4, 500, 500
"""By default, of each chain the last two."""

KEPT = 400
"""Draws of latents, evenly spaced and as many of each chain, that predictions average over; parameters keep all."""

LARGEST = 3000
"""Rows of a posterior that chains are to move in: each step factorises a matrix of all of them."""

NONE_KEPT = "interrupted before the chains had ended: no draw was kept, and these are the values that the search found"

AGREED, APART, ENOUGH = 1.01, 1.1, 400
"""R-hat up to which chains agree, and effective draws from which quantiles are steady (Vehtari et al. 2021)."""


def plan_mcmc(others: Sequence[Planner], program: Program, data: Data, options: Options, start: Start | None) -> Plan:
    """The plan, by other engines, of the search that the chains begin with."""
    reason = _against(program, data, options)
    if reason:
        raise GpdslError(f"engine = mcmc does not cover this fit: {reason}")
    plain = replace(options, engine="vi", inducing=options.inducing or 0, batch=0, hyperparameters="point")
    planned = next(found for each in others if (found := each(program, data, plain, start)) is not None)
    if planned.engine.profiled is None:
        raise GpdslError(f"engine = mcmc begins with natural gradients, and not with {planned.engine.name}")
    return replace(planned, engine=replace(planned.engine, target=Collapsed if planned.choice.exact else Joint))


def _against(program: Program, data: Data, options: Options) -> str:
    """Why chains cannot be had; empty where they can."""
    if program.opaque or program.fields:
        return "it differentiates densities, of latents row by row"
    if options.batch:
        return "chains move in the latents at all rows: leave batch out"
    if data.rows > LARGEST and not options.inducing:
        return (
            f"{data.rows} rows, where each step of a chain factorises a matrix of all: take {LARGEST} of them, or "
            "inducing points, as inducing = 100"
        )
    if options.inducing and program.sampled:
        return "what inducing points leave open of an observation would be sampled in every step: leave inducing out"
    if options.posterior != "auto" or options.optimizer != "auto" or options.schedule != "joint":
        return "it has no family of q and no optimiser of its own: leave posterior, optimizer and schedule out"
    return ""


def sampled(result: Result, options: Options, rows: int, monitor: Monitor) -> Result:
    """The result of the search with the draws of chains; Ctrl-C leaves it as it is."""
    if result.interrupted or result.target is None or not (result.parameters or result.posterior):
        return result
    count, warm_up, draws = options.chains or CHAINS, options.warm_up or WARM_UP, options.draws or DRAWS
    try:
        with machine_for(rows):
            target = result.target()
            chains = sample(target, count, warm_up, draws, options.seed, partial(monitor.explored, stage="sampling"))
            kept = np.unique(np.linspace(0, draws - 1, max(KEPT // count, 1)).astype(int))
            results = tuple(target.at(chains.at(chain, int(draw))) for chain in range(count) for draw in kept)
    except KeyboardInterrupt:
        return replace(result, interrupted=True, notes=(*result.notes, NONE_KEPT))
    found = agreement({str(n): leaf for n, leaf in enumerate(jax.tree.leaves(chains.positions))})
    about, doubts = told(chains, found)
    every = {name: np.asarray(values) for name, values in chains.positions["learnt"].items()}
    weights = np.full(len(results), 1.0 / len(results))
    said = chains.statistics
    integrated = Integrated(
        weights, results, float("nan"), found.bulk, 0, about=about, chains=every, statistics=said, kept=kept
    )
    return replace(result, integrated=integrated, notes=(*result.notes, *doubts))


def told(chains: Chains, found: Agreement) -> tuple[str, tuple[str, ...]]:
    """What the chains did in a line, and what is doubtful about them, with a remedy."""
    count, draws = chains.shape
    worst = (
        f"R-hat at most {found.r_hat:.3f}, effective draws at least {found.bulk:.0f} (bulk), {found.tail:.0f} (tail)"
    )
    about = f"{count} chains of {draws} draws: {worst}, {chains.divergences} divergences"
    doubts = []
    if round(found.r_hat, 3) > AGREED and count > 1:
        more = "ask for more draws"
        if found.r_hat > APART:
            more = f"{more}; where signs or exchanges of latents are open, chains stay apart: try posterior = corrected"
        doubts.append(f"the chains do not agree (R-hat {found.r_hat:.3f}, trusted up to {AGREED}): {more}")
    if min(found.bulk, found.tail) < ENOUGH:
        few = min(found.bulk, found.tail)
        doubts.append(f"{few:.0f} effective draws are few for quantiles, which need {ENOUGH}: ask for more draws")
    if chains.divergences:
        doubts.append(
            f"{chains.divergences} draws diverged, so that a part of the posterior may be missing: priors that keep "
            "scales away from 0 help, or a longer warm_up"
        )
    return about, tuple(doubts)


# Elliptical slice sampling: one move of z under a log density times N(z; 0, I), without a step size or a gradient.
#
# Murray, Adams and MacKay (2010), figure 2.


def moved(density: Callable[[Array], Array], z: Float[Array, " D"], key: Array) -> Float[Array, " D"]:
    """The next place of a chain that keeps the distribution."""
    aside, level, angle, rest = jax.random.split(key, 4)
    other = jax.random.normal(aside, z.shape, z.dtype)
    least = density(z) + jnp.log(jax.random.uniform(level, dtype=z.dtype))
    first = 2 * jnp.pi * jax.random.uniform(angle, dtype=z.dtype)

    def at(angle: Array) -> Array:
        return z * jnp.cos(angle) + other * jnp.sin(angle)

    def below(state: Any) -> Array:
        return ~(density(at(state[0])) > least)

    def shrunk(state: Any) -> Any:
        angle, low, high, key = state
        low, high = jnp.where(angle < 0, angle, low), jnp.where(angle < 0, high, angle)
        key, own = jax.random.split(key)
        return low + (high - low) * jax.random.uniform(own, dtype=z.dtype), low, high, key

    found, *_ = jax.lax.while_loop(below, shrunk, (first, first - 2 * jnp.pi, first, rest))
    return at(found)
