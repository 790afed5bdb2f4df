"""Natural gradients on minibatches: a full Gaussian by tied sites (t-SVGP), hyperparameters by Adam on the same rows.

A natural-gradient step of length rho moves the sites to (1 - rho) t + rho t*, t* estimated from the minibatch. Nothing
is forgotten in the first 1 / rho steps, so that t then has the weight of all rows. In the end rho is at most the share
of rows in a minibatch, with which every row's site is as old as its last visit.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from gpdsl.data import minibatches
from gpdsl.inference.driver import ALL_DONE
from gpdsl.inference.natural.profiled import outer_point
from gpdsl.inference.natural.site_starts import departed
from gpdsl.inference.natural.sweep import End, Point, Sweep, carried, ended, sweep
from gpdsl.inference.natural.tied import Tied, definite, no_sites
from gpdsl.inference.problem import Problem, Result
from gpdsl.kernels.numerics import chosen
from gpdsl.program.program import take_rows
from gpdsl.program.rows import Rows

# Lengths of steps on minibatches: full pace, and a gentle end as soon as the bound no longer rises.

LARGEST_SHARE = 0.5
"""Longest natural-gradient step: a full one overshoots when the likelihood is not Gaussian."""

QUICK = 1.2
"""Times the root of a minibatch's share of the rows: the length of natural-gradient steps while hyperparameters move.

Sites that follow them closely are worth their noise. It goes when the pace falls, and the length with it: at the end to
the share, or less when there is time to average over more.
"""

WARMING = 0.2
"""Share of its steps in which a search that goes on from another rises to full pace."""

WINDOW = 100
"""Steps at least whose mean bound is compared with that of as many before, in whole passes over the data."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Pace:
    """Of each step: Adam's length, what the sites keep, and how much of their targets they gain."""

    length: Float[Array | np.ndarray, "steps"]
    keep: Float[Array | np.ndarray, "steps"]
    gain: Float[Array | np.ndarray, "steps"]


class Schedule:
    """When which step is how long; `end` is the number of the last one.

    Half of the steps are made at full pace, in the other half it falls like a cosine: what the noise of full pace keeps
    from the optimum has as long to reach it as it had to come near. A search that is `going_on` from another has sites
    with the weight of all rows, and rises to full pace: Adam does not know yet how far it may go.
    """

    def __init__(self, steps: int, share: float, rate: float, *, going_on: bool = False) -> None:
        self.rate, self.share = rate, min(share, LARGEST_SHARE)
        self.warming = max(int(WARMING * steps), 1) if going_on else 0
        self.cooling = max(steps // 2, 1)
        self.end = steps
        self.shortened = False

    def paces(self, done: int, count: int, dtype: str = "float64") -> Pace:
        """Of the `count` steps after the first `done` ones."""
        number = np.arange(done, done + count)
        left = np.clip((self.end - number) / self.cooling, 0.0, 1.0)
        fall = 0.5 - 0.5 * np.cos(np.pi * left)
        if self.warming:
            fall = fall * np.minimum((number + 1) / self.warming, 1.0)
        quick = min(max(self.share, QUICK * self.share**0.5), LARGEST_SHARE)
        slow = min(self.share, 2.0 / self.cooling)
        gain = slow + (quick - slow) * fall
        gathering = (number * quick < 1.0 - 1e-9) & (not self.warming)  # until the sites have all their weight
        keep = np.where(gathering, 1.0, 1.0 - gain)
        return Pace(*(np.asarray(a, dtype) for a in (self.rate * fall, keep, gain)))

    def finish_from(self, done: int) -> None:
        """Cool down from here on, in as many steps as have been made, unless that is under way."""
        if done < self.end - self.cooling:
            self.cooling = done
            self.end, self.shortened = done + self.cooling, True

    def slow_down(self) -> None:
        """Shorter steps: the last ones led to numbers that are not finite."""
        self.rate *= 0.3


def settled(trace: Sequence[float], epoch: int = 1) -> bool:
    """Whether the mean bound of the last third of the steps exceeds that of the third before by no more than its noise,
    two standard errors.

    `epoch` steps see every row about once: their means are free of the noise of which rows were drawn, which would hide
    a slow rise.
    """
    thirds = max(-(-WINDOW // epoch), len(trace) // (3 * epoch))
    whole = len(trace) // epoch
    if whole < 3 * thirds:
        return False
    means = np.reshape(trace[: whole * epoch], (whole, epoch)).mean(axis=1)
    last, before = means[-thirds:], means[-2 * thirds : -thirds]
    error = np.sqrt((last.var(ddof=1) + before.var(ddof=1)) / thirds) if thirds > 1 else 0.0
    return bool(last.mean() - before.mean() < 2.0 * error)


INNER = 5
"""Steps between two changes of the sites' coordinates; hyperparameters move little in that time."""

ROUNDS = 10
"""Times `INNER` steps that one call of the compiled program makes at most."""

CHUNK = ROUNDS * INNER
"""Steps between which there is progress, and checks."""

CALL_SECONDS = 2.0
"""Seconds that a call should take. Each gets its working memory anew, which takes a tenth as long as five steps (500
inducing inputs); but Ctrl-C waits for its end."""

ADAM = optax.scale_by_adam()

FAINT = 1e-6
"""Weight of what the first look at the rows says: enough to be seen, too little to move the posterior."""

RETRIES = 6
"""Times a chunk that ends in numbers that are not finite is tried again with smaller steps."""

Where = tuple[Point, list[Array]]
"""A point of the search, and the Cholesky factors of the kernels there."""

State = tuple[Any, Any, list[Tied], list[Array], Any]
"""Point of the search, memory of Adam, sites, the scales of the kernels that they were last used with, and the inducing
inputs whose values they are functions of, where these are learnt."""


def _end(state: State) -> End:
    point, _, sites, scales, _ = state
    return End(point, [definite(tied, scale) for tied, scale in zip(sites, scales, strict=True)], scales)


class MinibatchSearch:
    """Sites by natural gradients, and the rest by Adam, on the same minibatches."""

    def __init__(self, problem: Problem) -> None:
        # The same problem with samples in antithetic pairs. A precision is the mean of slope times sample; what the
        # slopes of a pair have in common is noise, and drops out. Without that the precisions of a few rows are mostly
        # noise, and their sum need not be positive definite.
        problem = replace(problem, options=replace(problem.options, sampling="antithetic"))
        self.problem, self.held = problem, problem.inducing
        self.share = min(problem.choice.batch / problem.data_rows, 1.0)
        self.size = -(-min(CHUNK, problem.choice.steps) // INNER) * INNER
        known = problem.begun is not None and all(q is not None for q in problem.begun.posterior)
        self.schedule = Schedule(problem.choice.steps, self.share, problem.choice.learning_rate, going_on=known)
        self.key = jax.random.key(problem.options.seed)
        self.draws = _batches(problem)
        self.at = _prior(problem)
        self.units = _units(self.at[0], self.held, problem.options.dtype)
        self.first: State | None = None
        """Where it starts, when that is another fit."""
        self.trace: list[float] = []
        self.rounds = 1
        self.compiled = problem.compiled(_steps(problem), *self._arguments(self.at, 0, 1, self._paces(0)))

    def run(self) -> str:
        """From the start that the data give, until the bound no longer rises."""
        self._begin()
        return self._all_steps()

    def state(self) -> Result:
        """The state so far."""
        return ended(self.problem, None, _end(self.at))

    def finish(self) -> Result:
        """The end of the search, or its start where that is another fit and better, with the bound of all rows."""
        first = None if self.first is None else _end(self.first)
        return ended(self.problem, first, _end(self.at))

    def _begin(self) -> None:
        """The posterior that is known, or the prior, but for latents that nothing would pull away from it.

        Steps of no length say which those are.
        """
        point, memory, prior, scales, anchors = self.at
        still = np.zeros(INNER, self.problem.options.dtype)
        faint = Pace(still, still + 1.0, np.where(np.arange(INNER) < INNER - 1, still, FAINT).astype(still.dtype))

        def look(sites: list[Tied]) -> tuple[list[Tied], list[Array]]:
            state = self.compiled(*self._arguments((point, memory, sites, scales, anchors), 0, 1, faint))[0]
            return state[2], state[3]

        begun = self.problem.begun
        sites, scales = departed(self.problem.program.groups, prior, look, self.problem.options.seed, begun)
        self.at = point, memory, sites, scales, anchors
        self.first = None if begun is None else self.at
        self.draws = _batches(self.problem)  # so that the first step begins a pass over the rows

    def _all_steps(self) -> str:
        """Chunk after chunk, until the bound no longer rises beyond its noise and the steps have become small."""
        done = retries = 0
        while done < self.schedule.end:
            state, values = self._chunk(done)
            if not _sound(state, values):
                retries += 1
                if retries > RETRIES:
                    return "stopped: the bound is not a finite number, however small the steps"
                self.schedule.slow_down()
                continue
            self.at, done = state, done + self.size
            mean = float(np.nanmean(values))
            self.trace += np.where(np.isfinite(values), values, mean).tolist()
            self.problem.monitor.report(min(done, self.schedule.end), mean)
            if settled(self.trace, self.problem.epoch):
                self.schedule.finish_from(done)
        rested = self.schedule.shortened
        return "converged: the bound no longer rises beyond its sampling error" if rested else ALL_DONE

    def _chunk(self, done: int) -> tuple[State, np.ndarray]:
        """The state and the bounds after the steps that follow the first `done` ones."""
        state, paces, found = self.at, self._paces(done), []
        whole, begun = self.size // INNER, 0
        while begun < whole:
            rounds, start = min(self.rounds, whole - begun), time.perf_counter()
            some = jax.tree.map(lambda a, at=begun * INNER: a[at:], paces)
            state, values = self.compiled(*self._arguments(state, done + begun * INNER, rounds, some))
            found.append(np.asarray(values, float)[:rounds].ravel())
            begun += rounds
            self.rounds = int(np.clip(CALL_SECONDS * rounds / (time.perf_counter() - start), 1, ROUNDS))
        return state, np.concatenate(found)

    def _arguments(self, state: State, done: int, rounds: int, paces: Pace) -> tuple[Any, ...]:
        """What the compiled steps take: the next minibatches, the numbers of the steps, and their paces."""
        index = np.stack([*itertools.islice(self.draws, rounds * INNER)])
        numbers = np.arange(done, done + rounds * INNER)
        few = jax.tree.map(lambda a: _in_rounds(a[: rounds * INNER]), paces)
        each = _in_rounds(index), _in_rounds(numbers), few
        return state, np.int32(rounds), *each, self.key, self.units, self.problem.rows, self.held

    def _paces(self, done: int) -> Pace:
        return self.schedule.paces(done, self.size, self.problem.options.dtype)


def _in_rounds(each: np.ndarray) -> np.ndarray:
    """Of the steps of some rounds, by rounds; zeros where there could be more of them."""
    found = np.zeros((ROUNDS, INNER, *each.shape[1:]), each.dtype)
    found.reshape(CHUNK, *each.shape[1:])[: len(each)] = each
    return found


def _batches(problem: Problem) -> Iterator[np.ndarray]:
    return minibatches(problem.data_rows, problem.choice.batch, problem.options.seed + 1)


def _sound(state: State, values: np.ndarray) -> bool:
    """Whether a chunk ended well; a step here and there may have been refused."""
    finite = all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(state))
    return finite and bool(np.isfinite(values[-1])) and np.isfinite(values).mean() > 0.5


def _prior(problem: Problem) -> State:
    """Sites that say nothing, in coordinates that do not matter yet."""
    point, dtype = outer_point(problem, problem.parameters, problem.inducing), problem.options.dtype
    sites, scales = [], []
    for group, functionals in zip(problem.program.groups, problem.inducing, strict=True):
        identity = np.eye(len(functionals), dtype=dtype)
        factor = jnp.asarray(np.broadcast_to(identity, (group.factors, *identity.shape)))
        sites.append(no_sites(group.size, factor))
        scales.append(jnp.asarray(np.ones(group.size, dtype)))
    # Adam remembers nothing yet; zeros made on the host need no programs
    memory = jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), jax.eval_shape(ADAM.init, point))
    return point, memory, sites, scales, point["inducing"]


@dataclass(frozen=True)
class _Step:
    """What changes from step to step but the state."""

    index: Array
    key: Array
    pace: Pace
    units: Point


def _steps(problem: Problem) -> Callable[..., tuple[State, Array]]:
    """Several rounds of steps as one program, for the row numbers, numbers and paces of each."""

    def steps(
        state: State,
        rounds: Array,
        index: Array,
        numbers: Array,
        paces: Pace,
        key: Array,
        units: Point,
        rows: Rows,
        held: Any,
    ) -> tuple[State, Array]:
        def step(carry: tuple[State, Where], at: tuple[Array, Array, Pace]) -> tuple[Any, Array]:
            index, number, pace = at
            here = _Step(index, jax.random.fold_in(key, number), pace, units)
            return _step(problem, *carry, here, rows, held)

        def one_round(number: Array, carry: tuple[State, Array]) -> tuple[State, Array]:
            state, values = carry
            here = {**state[0], "inducing": state[4]}, [tied.factor for tied in state[2]]
            at = jax.tree.map(lambda a: a[number], (index, numbers, paces))
            ((point, memory, sites, scales, anchors), (last, factors)), found = jax.lax.scan(step, (state, here), at)
            moved = carried(problem, last, anchors, sites, factors)
            return (point, memory, moved, scales, last["inducing"]), values.at[number].set(found)

        nothing = jnp.zeros(numbers.shape, problem.options.dtype)
        return jax.lax.fori_loop(0, rounds, one_round, (state, nothing))

    return steps


def _step(
    problem: Problem, state: State, here: Where, at: _Step, rows: Rows, held: Any
) -> tuple[tuple[State, Where], Array]:
    """One minibatch: sites a natural-gradient step, the rest a step of Adam. `here` is where the step before was made.

    Where anything is not finite the point stays, and the sites lose half of their weight: a precision that is not
    positive definite comes closer to the prior's, which is.
    """
    point, memory, sites, scales, anchors = state
    batch = take_rows(rows, at.index)
    seen = sweep(problem, point, held, sites, batch, problem.normals(at.key, at.index.shape[0]))
    sound = jax.lax.optimization_barrier(_finite(seen))  # else worked out for every element that it guards
    updates, moved = ADAM.update(seen.gradient, memory)
    updates = jax.tree.map(lambda u, unit: at.pace.length * unit * u, updates, at.units)
    keep = partial(chosen, sound)
    targets = zip(sites, seen.linear, seen.precision, strict=True)
    followed = [_blend(tied, linear, precision, at.pace) for tied, linear, precision in targets]
    new = optax.apply_updates(point, updates), moved
    state = *keep(new, (point, memory)), keep(followed, _halved(sites)), keep(seen.scales, scales), anchors
    return (state, keep((point, seen.factors), here)), jnp.where(sound, seen.elbo, jnp.nan)


def _units(point: Point, held: Any, dtype: str) -> Point:
    """Of the steps: inducing inputs move in units of their spread at the start, which is that of the data's columns.

    A step of a twentieth in each of 784 pixels, which hardly vary, would lead away from all images.
    """

    def spread(points: Array) -> np.ndarray:
        each = np.std(np.asarray(points), axis=0)
        typical = np.sqrt(np.mean(each**2)) or 1.0
        return np.where(each > 0, each, typical).astype(dtype)

    parameters = jax.tree.map(lambda a: np.ones(np.shape(a), dtype), point["parameters"])
    return {"parameters": parameters, "inducing": jax.tree.map(spread, held) if point["inducing"] else []}


def _finite(seen: Sweep) -> Array:
    """One number to look at: nothing times anything is nothing, but for what is not finite."""
    leaves = jax.tree.leaves((seen.gradient, seen.linear))
    return jnp.isfinite(seen.elbo + jnp.sum(0.0 * jnp.concatenate([leaf.ravel() for leaf in leaves])))


def _blend(tied: Tied, linear: Array, precision: Array, pace: Pace) -> Tied:
    keep, gain = jnp.asarray(pace.keep), jnp.asarray(pace.gain)
    return Tied(keep * tied.linear + gain * linear, keep * tied.precision + gain * precision, tied.factor)


def _halved(sites: Sequence[Tied]) -> list[Tied]:
    return [Tied(0.5 * tied.linear, 0.5 * tied.precision, tied.factor) for tied in sites]
