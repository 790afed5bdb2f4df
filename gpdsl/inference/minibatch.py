"""Natural gradients on minibatches: a full Gaussian by tied sites (t-SVGP), hyperparameters by Adam on the same rows.

A natural-gradient step of length rho moves the sites to (1 - rho) t + rho t*, t* estimated from the minibatch. Nothing
is forgotten in the first 1 / rho steps, so that t then has the weight of all rows. In the end rho is at most the share
of rows in a minibatch, with which every row's site is as old as its last visit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from gpdsl.data import minibatches
from gpdsl.inference.expected_log_likelihood import expected_log_likelihood
from gpdsl.inference.problem import Problem, Result, as_numpy, tidy
from gpdsl.inference.profiled import outer_point, split_point
from gpdsl.inference.saddle import slopeless
from gpdsl.inference.schedule import Pace, Schedule, mean_and_error, settled
from gpdsl.inference.sweep import Sweep, factors, prior_marginals, sweep
from gpdsl.inference.tied import Tied, no_sites, posterior_of, transported, whitened
from gpdsl.program.compilation import jit
from gpdsl.program.joint import Marginals
from gpdsl.program.program import take_rows
from gpdsl.program.rows import Rows

INNER = 5
"""Steps between two changes of the sites' coordinates; hyperparameters move little in that time."""

CHUNK = 10 * INNER
"""Steps per compiled call: progress, interruption and checks happen between chunks."""

RETRIES = 6
"""Times a chunk that ends in numbers that are not finite is tried again with smaller steps."""

State = tuple[Any, Any, list[Tied]]
"""Point of the search, memory of Adam, and sites."""


def fit_minibatch_natural(problem: Problem) -> Result:
    """Maximise the bound. It is reported as the mean over the last tenth of the steps, with its standard error."""
    run = _Run(_in_pairs(problem))
    message, interrupted = "all steps done", False
    try:
        message = run.all_steps()
    except KeyboardInterrupt:
        message, interrupted = "interrupted", True
    return _result(problem, run, message, interrupted)


def _in_pairs(problem: Problem) -> Problem:
    """The same problem with samples in antithetic pairs.

    A precision is the mean of slope times sample; what the slopes of a pair have in common is noise, and drops out.
    Without that the precisions of a few rows are mostly noise, and their sum need not be positive definite.
    """
    return replace(problem, options=replace(problem.options, sampling="antithetic"))


class _Run:
    """The moving parts of one fit."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.held = problem, problem.inducing
        self.share = min(problem.choice.batch / problem.count, 1.0)
        self.size = -(-min(CHUNK, problem.choice.steps) // INNER) * INNER
        self.schedule = Schedule(problem.choice.steps, self.share, problem.choice.learning_rate)
        self.key = jax.random.key(problem.options.seed)
        self.draws = _batches(problem)
        self.state = _start(problem, next(self.draws))
        self.trace: list[float] = []
        chunk, first = _chunk(problem), (self._indices(self.size), self._keys(0), self._paces(0))
        self.compiled = problem.compiled(chunk, self.state, *first, problem.rows, self.held)

    def all_steps(self) -> str:
        """Chunk after chunk, until the bound no longer rises beyond its noise and the steps have become small."""
        done = retries = 0
        while done < self.schedule.end:
            paces = self._paces(done)
            state, values = self.compiled(
                self.state, self._indices(self.size), self._keys(done), paces, self.problem.rows, self.held
            )
            values = np.asarray(values, float)
            if not _sound(state, values):
                retries += 1
                if retries > RETRIES:
                    return "stopped: the bound is not a finite number, however small the steps"
                self.schedule.slow_down()
                continue
            self.state, done = state, done + self.size
            self.trace += [float(v) for v in values[np.isfinite(values)]]
            self.problem.monitor.report(min(done, self.schedule.end), float(np.nanmean(values)))
            if settled(self.trace):
                self.schedule.finish_from(done)
        rested = self.schedule.shortened
        return "converged: the bound no longer rises beyond its sampling error" if rested else "all steps done"

    def _indices(self, count: int) -> Array:
        return jnp.asarray(np.stack([*itertools.islice(self.draws, count)]))

    def _paces(self, done: int) -> Pace:
        return self.schedule.paces(done, self.size, self.problem.options.dtype)

    def _keys(self, done: int) -> Array:
        return jax.random.split(jax.random.fold_in(self.key, done + 1), self.size)


def _batches(problem: Problem) -> Iterator[np.ndarray]:
    return minibatches(problem.count, problem.choice.batch, problem.options.seed + 1)


def _sound(state: State, values: np.ndarray) -> bool:
    """Whether a chunk ended well; a step here and there may have been refused."""
    finite = all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(state))
    return finite and bool(np.isfinite(values[-1])) and np.isfinite(values).mean() > 0.5


def _optimiser() -> optax.GradientTransformation:
    return optax.scale_by_adam()


def _start(problem: Problem, number: np.ndarray) -> State:
    """The prior; latents whose means nothing pulls away from it, as in a product of two, start at a draw from it."""
    rng, point = np.random.default_rng(problem.options.seed), outer_point(problem, problem.parameters, problem.inducing)

    def look(point: Any, held: Any, rows: Rows, key: Array) -> Any:
        return factors(problem, point, held), _flat(problem, split_point(point, held)[0], rows, key)

    key = jax.random.key(problem.options.seed)
    known, columns = jit(look)(point, problem.inducing, take_rows(problem.rows, number), key)
    flat = np.asarray(columns)
    sites = []
    for group, (factor, scale) in zip(problem.program.groups, known, strict=True):
        prior = no_sites(group.size, factor)
        own = np.logical_and.reduce(flat[group.start : group.stop].reshape(-1, group.size))
        draw = rng.standard_normal(prior.linear.shape) * own[:, None] / np.sqrt(scale)[:, None]
        sites.append(replace(prior, linear=jnp.asarray(draw, factor.dtype)))
    return point, _optimiser().init(point), sites


def _flat(problem: Problem, parameters: Any, rows: Rows, key: Array) -> Array:
    """Which columns of the marginals have no slope in their means under the prior."""
    program, known = problem.program, problem.program.parameters.constrain(parameters)
    prior = prior_marginals(problem, known, rows)
    normals = problem.normals(key, prior.mean.shape[1])

    def expected(q: Marginals) -> Array:
        return jnp.sum(expected_log_likelihood(program, known, rows, q, normals))

    return slopeless(prior, jax.grad(expected)(prior))


@dataclass(frozen=True)
class _Step:
    """What changes from step to step but the state."""

    number: Array
    key: Array
    pace: Pace


def _chunk(problem: Problem) -> Callable[..., tuple[State, Array]]:
    """Several steps as one program, for the row numbers, random keys and paces of each."""

    def chunk(state: State, index: Array, keys: Array, paces: Pace, rows: Rows, held: Any) -> tuple[State, Array]:
        def step(carry: tuple[State, list[Array]], at: tuple[Array, Array, Pace]) -> tuple[Any, Array]:
            state, here = carry
            return _step(problem, state, here, _Step(*at), rows, held)

        def several(state: State, at: Any) -> tuple[State, Array]:
            start = [tied.factor for tied in state[2]]
            ((point, memory, sites), here), values = jax.lax.scan(step, (state, start), at)
            moved = [transported(tied, factor) for tied, factor in zip(sites, here, strict=True)]
            return (point, memory, moved), values

        grouped = jax.tree.map(lambda a: a.reshape(-1, INNER, *a.shape[1:]), (index, keys, paces))
        state, values = jax.lax.scan(several, state, grouped)
        return state, values.ravel()

    return chunk


def _step(
    problem: Problem, state: State, here: list[Array], at: _Step, rows: Rows, held: Any
) -> tuple[tuple[State, list[Array]], Array]:
    """One minibatch: sites a natural-gradient step, the rest a step of Adam. `here` are the factors of the step before.

    Where anything is not finite the point stays, and the sites lose half of their weight: a precision that is not
    positive definite comes closer to the prior's, which is.
    """
    point, memory, sites = state
    batch = take_rows(rows, at.number)
    seen = sweep(problem, point, held, sites, batch, problem.normals(at.key, at.number.shape[0]))
    sound = _finite(seen)
    updates, moved = _optimiser().update(seen.gradient, memory)
    updates = jax.tree.map(lambda u, unit: at.pace.length * unit * u, updates, _units(point, held))

    def keep(new: Any, old: Any) -> Any:
        return jax.tree.map(lambda a, b: jnp.where(sound, a, b), new, old)

    targets = zip(sites, seen.linear, seen.precision, strict=True)
    followed = [_blend(tied, linear, precision, at.pace) for tied, linear, precision in targets]
    state = keep(optax.apply_updates(point, updates), point), keep(moved, memory), keep(followed, _halved(sites))
    return (state, keep(seen.factors, here)), jnp.where(sound, seen.elbo, jnp.nan)


def _units(point: Any, held: Any) -> Any:
    """Of the steps: inducing inputs move in units of their spread at the start, which is that of the data's columns.

    A step of a twentieth in each of 784 pixels, which hardly vary, would lead away from all images.
    """

    def spread(points: Array) -> Array:
        each = jnp.std(points, axis=0)
        typical = jnp.sqrt(jnp.mean(each**2))
        return jnp.where(each > 0, each, jnp.where(typical > 0, typical, 1.0))

    parameters = jax.tree.map(jnp.ones_like, point["parameters"])
    return {"parameters": parameters, "inducing": jax.tree.map(spread, held) if point["inducing"] else []}


def _finite(seen: Sweep) -> Array:
    leaves = jax.tree.leaves((seen.elbo, seen.gradient, seen.linear))
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))


def _blend(tied: Tied, linear: Array, precision: Array, pace: Pace) -> Tied:
    keep, gain = jnp.asarray(pace.keep), jnp.asarray(pace.gain)
    return Tied(keep * tied.linear + gain * linear, keep * tied.precision + gain * precision, tied.factor)


def _halved(sites: Sequence[Tied]) -> list[Tied]:
    return [Tied(0.5 * tied.linear, 0.5 * tied.precision, tied.factor) for tied in sites]


def _result(problem: Problem, run: _Run, message: str, interrupted: bool) -> Result:
    point, _, sites = run.state

    def whiten(point: Any, sites: list[Tied], held: Any) -> Any:
        found = []
        for tied, (factor, scale) in zip(sites, factors(problem, point, held), strict=True):
            found.append(whitened(posterior_of(transported(tied, factor), scale)))
        return found

    learnt, inducing = split_point(point, run.held)
    posterior = jit(whiten)(point, sites, run.held)
    value, error = mean_and_error(run.trace)
    return Result(as_numpy(learnt), as_numpy(inducing), tidy(posterior), np.ones(1), value, error, message, interrupted)
