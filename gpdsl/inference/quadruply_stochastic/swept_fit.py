"""A fit by sweeps: which rows each sees, and how far it goes."""

from __future__ import annotations

from functools import partial

import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from gpdsl.data import minibatches
from gpdsl.inference.problem import Problem
from gpdsl.inference.quadruply_stochastic.basis import PRECISION
from gpdsl.inference.quadruply_stochastic.choice import FROZEN
from gpdsl.inference.quadruply_stochastic.features import Features
from gpdsl.inference.quadruply_stochastic.located import gathered, located
from gpdsl.inference.quadruply_stochastic.reading import inputs_of, moments
from gpdsl.inference.quadruply_stochastic.relevance import repositioned
from gpdsl.inference.quadruply_stochastic.swept import Batches, Pace, Running, State, Sweeps, damping
from gpdsl.inference.quadruply_stochastic.weights import Weights
from gpdsl.program.compilation import jit
from gpdsl.program.program import take_rows
from gpdsl.program.rows import Rows

REFRESHED = 25
"""Sweeps after which the damping is found again."""

SLOWEST = 0.01
"""What is left of a rate at the end."""

DAMPING_FEATURES = 4_000


class SweptFit:
    """Sweeps with rates that fall like a cosine."""

    def __init__(self, problem: Problem, features: Features, q: Weights, learnt: dict[str, Array]) -> None:
        self.problem, self.features = problem, features
        choice = problem.choice.weights
        assert choice is not None
        optimiser = optax.adam(problem.choice.learning_rate)
        self.sweeps = Sweeps(problem.program, features, choice.block, problem.count, optimiser)
        self.total = max(-(-problem.choice.steps // self.sweeps.steps), 1)
        self._batches = minibatches(problem.count, problem.choice.batch, problem.options.seed + 1)
        rng = np.random.default_rng(problem.options.seed)
        support = rng.choice(problem.count, choice.support, replace=False)
        self._support = inputs_of(problem.program, gathered(problem, support))
        self._here, self._next = next(self._batches), next(self._batches)
        self._running = jit(partial(running, problem, features))
        self.state = self._sound = self._begun(q, learnt)
        self._damping = jit(self._found_damping)
        self._tau = self._damping(self.state, *self._places())
        self._sweep = problem.compiled(self._swept, self.state, *self._places(), self._pace(0))
        self._repositioned = jit(repositioned) if PRECISION in learnt else None

    @property
    def q(self) -> Weights:
        """The posterior so far."""
        return self.state.q

    @property
    def learnt(self) -> dict[str, Array]:
        """The learnt parameters so far, on the real line."""
        return self.state.learnt

    def advance(self) -> tuple[int, float]:
        """One sweep."""
        number = int(self.state.number)
        if number and number % REFRESHED == 0:
            self._tau = self._damping(self.state, *self._places())
        state, (bound, _) = self._sweep(self.state, *self._places(), self._pace(number))
        if np.isfinite(float(bound)):  # the bound is that of the state before the sweep
            self._sound, self.state = self.state, state if self._repositioned is None else self._repositioned(state)
        else:
            self.state = self._sound
        self._here, self._next = self._next, next(self._batches)
        return (number + 1) * self.sweeps.steps, float(bound)

    def _places(self) -> tuple[Rows, Array, Array, Array]:
        rows, (here, following) = located(self.problem, self._here, self._next)
        return rows, here, following, self._support

    def _begun(self, q: Weights, learnt: dict[str, Array]) -> State:
        known = self._running(q, learnt, gathered(self.problem, self._here))
        return State(q, learnt, self.sweeps.optimiser.init(learnt), known, jnp.zeros((), int))

    def _pace(self, number: int) -> Pace:
        done = number / self.total
        rate = SLOWEST + (1.0 - SLOWEST) * 0.5 * (1.0 + np.cos(np.pi * min(done, 1.0)))
        dtype = self.problem.options.dtype
        learning = 0.0 if done < FROZEN else rate
        return Pace(jnp.asarray(rate, dtype), jnp.asarray(self._tau, dtype), jnp.asarray(learning, dtype))

    def _swept(
        self, state: State, rows: Rows, here: Array, following: Array, support: Array, pace: Pace
    ) -> tuple[State, tuple[Array, Array]]:
        return self.sweeps.sweep(state, Batches(take_rows(rows, here), take_rows(rows, following), support), pace)

    def _found_damping(self, state: State, rows: Rows, here: Array, following: Array, support: Array) -> Array:
        batches = Batches(take_rows(rows, here), take_rows(rows, following), support)
        size = DAMPING_FEATURES
        return damping(self.problem.program, self.features, state, batches, self.problem.count, size)


def running(problem: Problem, features: Features, q: Weights, learnt: dict[str, Array], rows: Rows) -> Running:
    """The sums over all basis functions at some rows."""
    assert problem.choice.weights is not None
    x = inputs_of(problem.program, rows)
    projected, variance = moments(features, learnt, x, q, problem.choice.weights.block)
    return Running(projected, variance - jnp.sum(projected[:, 1:] ** 2, axis=1))
