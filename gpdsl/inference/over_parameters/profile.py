"""The log likelihood and the log priors of a model without latents, as functions of its parameters alone."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.inference.ascent.joint import initial_state
from gpdsl.inference.driver import whole_bound
from gpdsl.inference.log_joint import log_volume
from gpdsl.inference.problem import Problem, Result, as_numpy
from gpdsl.program.rows import Rows

Learnt = Mapping[str, Array]

AT_ONCE, PLACES = 1_000_000, 256
"""Rows times places whose densities are held at once, and places at most: one program does for any number of them."""

BRIEF = 2_000
"""Rows up to which it counts more how soon that program is compiled than how fast it is."""


class ParametersProfile:
    """log p(y, theta) of a model whose evidence nothing has to be integrated for, one place or many at a time."""

    def __init__(self, problem: Problem, _: Result) -> None:
        self.problem, self._state = problem, initial_state(problem)
        self._slope = problem.compiling(jax.value_and_grad(self._value))
        each = jax.vmap(jax.value_and_grad(self._density), in_axes=(0, None))
        self._many = problem.compiling(each, brief=problem.count <= BRIEF)
        self.rows, self._size = problem.rows, min(max(AT_ONCE // max(problem.count, 1), 1), PLACES)

    def __call__(self, learnt: Learnt) -> tuple[float, Learnt]:
        """The value and its gradient."""
        value, gradient = self._slope(dict(learnt), self.rows)
        return float(value), gradient

    def value(self, learnt: Learnt) -> float:
        """The value, without the gradient, which is cheap here."""
        return self(learnt)[0]

    def several(
        self, learnt: Mapping[str, np.ndarray]
    ) -> tuple[Float[np.ndarray, " places"], Mapping[str, np.ndarray]]:
        """Log densities of the numbers themselves, at many places along the first axis of each, and gradients."""
        count, size = len(next(iter(learnt.values()))), self._size
        padded = {name: np.resize(each, (-(-count // size) * size, *each.shape[1:])) for name, each in learnt.items()}
        parts = [
            as_numpy(self._many({name: jnp.asarray(each[at : at + size]) for name, each in padded.items()}, self.rows))
            for at in range(0, count, size)
        ]
        whole = jax.tree.map(lambda *some: np.concatenate(some)[:count], *parts)
        return whole[0], whole[1]

    def at(self, learnt: Learnt) -> Result:
        """What the parameters are there: nothing else is unknown."""
        return Result(as_numpy(dict(learnt)), [], [], np.ones(1), float("nan"), 0.0)

    def _value(self, learnt: Learnt, rows: Rows) -> Array:
        problem = self.problem
        return whole_bound(problem, {**self._state, "parameters": learnt}, rows, [], None, problem.jitter)

    def _density(self, learnt: Learnt, rows: Rows) -> Array:
        return self._value(learnt, rows) + log_volume(self.problem.program, learnt)
