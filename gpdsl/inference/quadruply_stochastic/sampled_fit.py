"""A fit by the paper's steps: many of them in one compiled loop, with rates that fall exponentially."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from gpdsl.inference.problem import Problem
from gpdsl.inference.quadruply_stochastic.choice import FROZEN
from gpdsl.inference.quadruply_stochastic.features import Features
from gpdsl.inference.quadruply_stochastic.located import gathered, located
from gpdsl.inference.quadruply_stochastic.reading import inputs_of, moments
from gpdsl.inference.quadruply_stochastic.sampled import Pace, SampledSteps, State, Support, no_support, support_at
from gpdsl.inference.quadruply_stochastic.weights import Weights
from gpdsl.program.compilation import jit
from gpdsl.program.program import take_rows
from gpdsl.program.rows import Rows

CHUNK = 200
"""Steps of one compiled call: progress, interruption and checks happen between calls."""

LAST = 0.01
"""What is left of the rates at the end."""


class SampledFit:
    """Steps of `SampledSteps`, a chunk at a time, in the memory of the state before it."""

    def __init__(self, problem: Problem, features: Features, q: Weights, learnt: dict[str, Array]) -> None:
        self.problem = problem
        choice = problem.choice.weights
        assert choice is not None
        exact = problem.program.conjugate
        optimiser = optax.adam(problem.choice.learning_rate)
        self.steps = SampledSteps(
            problem.program, features, problem.count, problem.choice.batch, choice.block, exact, optimiser
        )
        rng = np.random.default_rng(problem.options.seed)
        places = rng.choice(problem.count, choice.support if exact else 1, replace=False)
        x = inputs_of(problem.program, gathered(problem, places))
        self.support = support_at(problem, features, learnt, x, rng) if exact else no_support(x, learnt)
        there = partial(moments, features, size=choice.block)
        running, _ = jit(there)(learnt, x, q)
        q, learnt = jax.tree.map(jnp.copy, (q, learnt))  # the state's own: steps use up its memory
        self.state = State(q, jnp.zeros_like(q.vectors), running, learnt, optimiser.init(learnt))
        self.done = 0
        self._key, self._rng = jax.random.key(problem.options.seed), rng
        arguments = (self.state, *self._drawn(), self.support, self._key, 0)
        self._chunk: Any = problem.compiled(self._several, *arguments, given=(0,))

    @property
    def q(self) -> Weights:
        """The posterior so far."""
        return self.state.q

    @property
    def learnt(self) -> dict[str, Array]:
        """The learnt parameters so far, on the real line."""
        return self.state.learnt

    def advance(self) -> tuple[int, float]:
        """A chunk of steps, and the mean of their estimates of the bound."""
        self.state, values = self._chunk(self.state, *self._drawn(), self.support, self._key, self.done)
        self.done += min(CHUNK, self.problem.choice.steps)
        return self.done, float(jnp.mean(values))

    def working_memory(self) -> int:
        """Bytes that a chunk takes besides the state, which it changes in place."""
        return int(self._chunk.memory_analysis().temp_size_in_bytes)

    def _drawn(self) -> tuple[Rows, Array]:
        """The rows of a chunk's steps, drawn with replacement, and where they stand: [steps, batch]."""
        steps = min(CHUNK, self.problem.choice.steps)
        rows, (index,) = located(self.problem, self._rng.integers(self.problem.count, size=(steps, self.steps.batch)))
        return rows, index

    def _several(
        self, state: State, rows: Rows, index: Array, support: Support, key: Array, done: Array
    ) -> tuple[State, Array]:
        total = self.problem.choice.steps

        def step(state: State, each: tuple[Array, Array]) -> tuple[State, Array]:
            number, here = each
            share = number / total
            rate = LAST**share
            learning = jnp.where(share < FROZEN, 0.0, rate)
            dtype = state.q.vectors.dtype
            pace = Pace(rate.astype(dtype), learning.astype(dtype), number.astype(dtype))
            return self.steps.step(state, take_rows(rows, here), support, jax.random.fold_in(key, number), pace)

        return jax.lax.scan(step, state, (done + jnp.arange(len(index)), index))
