"""A fit by sweeps: which rows each sees, and what the weights are where the hyperparameters have moved."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from gpdsl.data import minibatches
from gpdsl.inference.problem import Problem
from gpdsl.inference.quadruply_stochastic.basis import PRECISION, repositioned
from gpdsl.inference.quadruply_stochastic.choice import FROZEN
from gpdsl.inference.quadruply_stochastic.estimators import slopes
from gpdsl.inference.quadruply_stochastic.sums import (
    Held,
    Running,
    added,
    gathered,
    inputs_of,
    located,
    moments,
    nothing_seen,
    surveyed,
)
from gpdsl.inference.quadruply_stochastic.swept import Batches, State, Sweeps
from gpdsl.inference.quadruply_stochastic.weights import Features, Lengths, Weights, first_functions, solutions_of
from gpdsl.program.cache import jit
from gpdsl.program.program import take_rows
from gpdsl.program.rows import Rows

SLOWEST = 0.01
"""What is left of the hyperparameters' rate at the end, to which it falls like a cosine."""


class SweptFit:
    """Sweeps. Hyperparameters move after each pass over the rows, and the weights are added up again for them."""

    def __init__(self, problem: Problem, features: Features, q: Weights, learnt: dict[str, Array]) -> None:
        self.problem, self.features = problem, features
        choice = problem.choice.weights
        assert choice is not None
        self.sweeps = Sweeps(problem.program, features, choice.block, problem.count)
        self.total = max(-(-problem.choice.steps // self.sweeps.steps), 1)
        self._batches = minibatches(problem.count, problem.choice.batch, problem.options.seed + 1)
        self._here, self._next = next(self._batches), next(self._batches)
        self._survey, self._add = jit(self._surveyed), jit(self._added, given=(0,))
        sweeps = (partial(self._swept, learning=learning) for learning in (False, True))
        self._still, self._learning = (problem.compiling(each, given=(0,)) for each in sweeps)
        self._repositioned = jit(repositioned) if PRECISION in learnt else None
        self.state = self._begun(q, learnt)
        self._optimiser = optax.adam(problem.choice.learning_rate)
        self._memory, self._step = self._optimiser.init(self.state.learnt), jit(self._stepped)

    @property
    def q(self) -> Weights:
        """The posterior so far."""
        index = jnp.arange(self.features.count)
        return self.state.lengths.weights(self.state.held.average, index)

    @property
    def learnt(self) -> dict[str, Array]:
        """The learnt parameters so far, on the real line."""
        return self.state.learnt

    def advance(self) -> tuple[int, float]:
        """One sweep."""
        number = int(self.state.number)
        rate = self._rate(number)
        sweep = self._still if rate is None else self._learning
        self.state, bound = sweep(self.state, *self._places())
        self._here, self._next = self._next, next(self._batches)
        if (number + 1) % self.problem.epoch == 0:
            self._passed(rate if number + 1 < self.total else None)
        return (number + 1) * self.sweeps.steps, float(bound)

    def _passed(self, rate: float | None) -> None:
        """After a pass over the rows: what is learnt moves, and the weights follow."""
        if self._repositioned is not None:
            self.state = self._surveyed_again(self._repositioned(self.state))
        if rate is not None:
            learnt, self._memory = self._step(self.state.learnt, self.state.slope, self._memory, rate)
            slope = jax.tree.map(jnp.zeros_like, learnt)
            self.state = self._surveyed_again(self._renewed(replace(self.state, learnt=learnt, slope=slope)))

    def working_memory(self) -> int:
        """Bytes that a sweep takes besides the state, which it changes in place."""
        arguments = self.state, *self._places()
        compiled: Any = self.problem.compiled(partial(self._swept, learning=True), *arguments, given=(0,))
        return int(compiled.memory_analysis().temp_size_in_bytes)

    def _places(self) -> tuple[Rows, Array, Array, Array]:
        """Rows that hold those of this sweep and of the next, where these are there, and which of all the first are."""
        rows, (here, following) = located(self.problem, self._here, self._next)
        return rows, here, following, jnp.asarray(self._here)

    def _rate(self, number: int) -> float | None:
        """A factor of the hyperparameters' steps, None where they stay."""
        done = number / self.total
        if done < FROZEN or not self.problem.program.parameters.initial:
            return None
        return SLOWEST + (1.0 - SLOWEST) * 0.5 * (1.0 + float(np.cos(np.pi * min(done, 1.0))))

    def _stepped(
        self, learnt: dict[str, Array], slope: dict[str, Array], memory: Any, rate: Array
    ) -> tuple[dict[str, Array], Any]:
        descent = jax.tree.map(lambda each: -each, slope)
        updates, memory = self._optimiser.update(descent, memory, learnt)
        return optax.apply_updates(learnt, jax.tree.map(lambda each: (each * rate).astype(each.dtype), updates)), memory

    def _swept(
        self, state: State, rows: Rows, here: Array, following: Array, index: Array, *, learning: bool
    ) -> tuple[State, Array]:
        batches = Batches(take_rows(rows, here), take_rows(rows, following), index)
        return self.sweeps.sweep(state, batches, learning=learning)

    def _begun(self, q: Weights, learnt: dict[str, Array]) -> State:
        """The state before the first sweep; a posterior to go on from is told by the duals that it gives every row."""
        q, learnt = jax.tree.map(jnp.copy, (q, learnt))  # the state's own: sweeps use up its memory
        fresh = not np.any(q.vectors[0])
        average, lengths = solutions_of(q, fresh=fresh)
        held = Held(jnp.copy(average.vectors), average)
        duals = jnp.zeros((self.problem.count, 1 + q.columns), q.vectors.dtype)
        number = jnp.zeros((), int)
        running = nothing_seen(len(self._here), q.columns, duals.dtype)
        state = State(held, duals, lengths, learnt, jax.tree.map(jnp.zeros_like, learnt), running, number)
        if not fresh:
            find = jit(self._found_duals)
            parts = [find(q, lengths, learnt, gathered(self.problem, part)) for part in self._parts()]
            state = self._renewed(replace(state, duals=jnp.concatenate(parts)))
        return self._surveyed_again(state)

    def _found_duals(
        self, q: Weights, lengths: Lengths, learnt: dict[str, Array], rows: Rows
    ) -> Float[Array, "b columns"]:
        """The duals of rows that agree with a posterior."""
        projected, variance = moments(self.features, learnt, inputs_of(self.problem.program, rows), q, self.sweeps.size)
        known = slopes(self.problem.program, learnt, rows, projected[:, 0], variance)
        solved = projected[:, 1:] @ lengths.root.T
        return jnp.concatenate([known.slope[:, None], -known.weight[:, None] * solved], axis=1)

    def _parts(self) -> list[np.ndarray]:
        """All rows, a batch at a time."""
        return np.split(np.arange(self.problem.count), range(len(self._here), self.problem.count, len(self._here)))

    def _renewed(self, state: State) -> State:
        """The state with the weights that its duals have where the basis functions are now.

        The average, whose duals are not known, moves along.
        """
        now, average = first_functions(state.held.average), state.held.average
        for part in self._parts():
            now = self._add(now, state.learnt, gathered(self.problem, part), state.duals[part])
        moved = average.vectors + (now - state.held.now)
        return replace(state, held=Held(now, replace(average, vectors=moved)))

    def _added(self, vectors: Array, learnt: dict[str, Array], rows: Rows, duals: Float[Array, "b columns"]) -> Array:
        x = inputs_of(self.problem.program, rows)
        return added(self.features, learnt, x, vectors, duals, self.sweeps.size)

    def _surveyed_again(self, state: State) -> State:
        """The state with the sums at the rows of the next sweep for the weights as they are."""
        return replace(state, running=self._survey(state.held, state.learnt, gathered(self.problem, self._here)))

    def _surveyed(self, held: Held, learnt: dict[str, Array], rows: Rows) -> Running:
        return surveyed(self.features, learnt, inputs_of(self.problem.program, rows), held, self.sweeps.size)
