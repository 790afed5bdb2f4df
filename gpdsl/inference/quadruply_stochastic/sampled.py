"""The steps of the paper: rows and two blocks of basis functions drawn at random, AdaGrad for their weights.

A step gathers the drawn weights and AdaGrad's sums for them, and writes both back; nothing else of q is touched, so its
cost depends on the sizes of the draws alone. The running expectation of the control variate follows (Proposition 3).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from gpdsl.inference.problem import Problem
from gpdsl.inference.quadruply_stochastic import swept
from gpdsl.inference.quadruply_stochastic.choice import FROZEN
from gpdsl.inference.quadruply_stochastic.sums import Seen, gathered, inputs_of, located, moments, see
from gpdsl.inference.quadruply_stochastic.weights import Features, Index, Weights, below_diagonal, block, own_column
from gpdsl.program.cache import jit
from gpdsl.program.program import Program, take_rows
from gpdsl.program.rows import Rows

RATE = 0.1
"""AdaGrad's first step: QSGP appendix I.1."""

TINY = 1e-12
SHRINK = 0.5
"""Share of its value that the diagonal element of a dense column keeps at least in one step."""

LONGEST = 20.0
"""Visits of a weight that its average curvature remembers."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """What a step changes: q, AdaGrad's sums of squares, the running expectation, hyperparameters and Adam's memory."""

    q: Weights
    squares: Float[Array, "columns m"]
    running: Float[Array, "p columns"]
    learnt: dict[str, Array]
    memory: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Pace:
    """Factors of the steps in the weights and in the hyperparameters, and the number of this step."""

    rate: Array
    learning: Array
    number: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Drawn:
    """What a step draws: rows, and two blocks of basis functions."""

    rows: Rows
    first: Index
    second: Index


Parts = tuple[Weights, Weights]
"""The numbers of q for the functions of both blocks."""


@dataclass(frozen=True)
class SampledSteps:
    """Steps on `batch` rows of `count`, and two blocks of `size` functions. `exact`: log p is quadratic in f."""

    program: Program
    features: Features
    count: int
    batch: int
    size: int
    exact: bool
    optimiser: optax.GradientTransformation

    @property
    def scale(self) -> float:
        """m / k."""
        return self.features.count / self.size

    def draw(self, key: Array, rows: Rows) -> Drawn:
        """Two independent blocks of basis functions for rows that were drawn with replacement: O(batch + size)."""
        starts = [jax.random.randint(each, (), 0, self.features.count) for each in jax.random.split(key)]
        first, second = (block(start, self.size, self.features.count) for start in starts)
        return Drawn(rows, first, second)

    def estimate(
        self,
        learnt: dict[str, Array],
        parts: Parts,
        running: Float[Array, "p columns"],
        drawn: Drawn,
        support: Support,
    ) -> Float[Array, ""]:
        """The bound, unbiased (a lower bound of it where log p is not quadratic), as a function of what is learnt."""
        first, second = self._seen(learnt, inputs_of(self.program, drawn.rows), parts, drawn)
        if self.exact:
            site = swept.quadratic(self.program, learnt, drawn.rows)
            values = swept.quadratic_likelihood(site, first, second, self.scale)
            first_there, second_there = self._seen(support.learnt, support.x, parts, drawn)
            noise = swept.control_variate(support.form, first_there, second_there, running, self.scale)
            likelihood = self.count * jnp.mean(values) + noise
        else:
            both = [swept.concave_likelihood(self.program, learnt, drawn.rows, s, self.scale) for s in (first, second)]
            likelihood = self.count * 0.5 * jnp.mean(both[0] + both[1])
        if self.features.diagonal:
            kl = swept.diagonal_divergence(first, second, self.scale)
        else:
            cross = self.features.cross_precision(learnt, drawn.first, drawn.second)
            kl = swept.dense_divergence(first, second, cross, self.scale)
        return likelihood - kl + self.program.log_prior(self.program.parameters.constrain(learnt))

    def _seen(self, learnt: dict[str, Array], x: Array, parts: Parts, drawn: Drawn) -> list[Seen]:
        """Both blocks at the points x."""
        blocks = zip((drawn.first, drawn.second), parts, strict=True)
        return [see(self.features, learnt, x, index, part) for index, part in blocks]

    def step(self, state: State, rows: Rows, support: Support, key: Array, pace: Pace) -> tuple[State, Array]:
        """One step; where the estimate is not finite nothing moves.

        What is read of q is read at once, before anything is written: else XLA would copy all of q.
        """
        drawn = self.draw(key, rows)
        both = state.q.at(jnp.concatenate([drawn.first, drawn.second]))
        parts = both.at(jnp.arange(self.size)), both.at(self.size + jnp.arange(self.size))
        value, (slope, moves) = jax.value_and_grad(self.estimate, argnums=(0, 1))(
            state.learnt, parts, state.running, drawn, support
        )
        sound = jnp.all(jnp.asarray([jnp.all(jnp.isfinite(each)) for each in jax.tree.leaves((value, slope, moves))]))
        for index, gradient in zip((drawn.first, drawn.second), moves, strict=True):
            state = self._moved(state, index, jnp.where(sound, gradient.vectors, 0.0), support, pace)
        state = self._settled(state, drawn, parts[0], pace)
        descent = jax.tree.map(lambda g: jnp.where(sound, -g, 0.0) * pace.learning, slope)
        updates, memory = self.optimiser.update(descent, state.memory, state.learnt)
        learnt = optax.apply_updates(state.learnt, jax.tree.map(lambda u: u * pace.learning, updates))
        return replace(state, learnt=learnt, memory=memory), value

    def _moved(self, state: State, index: Index, gradient: Array, support: Support, pace: Pace) -> State:
        """AdaGrad in one block, and the running expectation after it."""
        old, columns = state.q.vectors[:, index], state.q.columns
        squares = state.squares[:, index] + gradient**2
        new = old + RATE * pace.rate * gradient / jnp.sqrt(squares + TINY)
        if columns:
            own = own_column(columns, index) > 0
            dense = jnp.where(own, jnp.maximum(new[1:], SHRINK * old[1:]), new[1:]) * below_diagonal(columns, index)
            new = jnp.concatenate([new[:1], dense])
        there = self.features.values(support.learnt, support.x, index)
        return replace(
            state,
            q=replace(state.q, vectors=jnp.asarray(state.q.vectors).at[:, index].set(new)),
            squares=state.squares.at[:, index].set(squares),
            running=state.running + there @ (new - old).T,
        )

    def _settled(self, state: State, drawn: Drawn, part: Weights, pace: Pace) -> State:
        """Proposition 1 with an average over visits for phi_i'phi_i, for the functions of the first block."""
        seen = see(self.features, state.learnt, inputs_of(self.program, drawn.rows), drawn.first, part)
        if self.exact:
            known = swept.quadratic(self.program, state.learnt, drawn.rows)
        else:
            projected = self.scale * seen.projected
            variance = self.scale * seen.spread + jnp.sum(projected[:, 1:] ** 2, axis=1)
            known = swept.slopes(self.program, state.learnt, drawn.rows, projected[:, 0], variance)
        found = self.count * jnp.mean(known.precision[:, None] * seen.values**2, axis=0)
        visits = jnp.minimum(pace.number / self.scale, LONGEST)
        moved = seen.q.curvature + (found - seen.q.curvature) / (1.0 + visits)
        kept = jnp.where(jnp.isfinite(moved), moved, seen.q.curvature)
        return replace(state, q=replace(state.q, curvature=jnp.asarray(state.q.curvature).at[drawn.first].set(kept)))


# The control variate's support: some rows, and a quadratic form in the values there that stands for that of all rows.
#
# QSGP eq. 3 takes (n / p) times the precisions of the p rows themselves. A latent is known at all rows from its values
# at some by w_l = K_pp^-1 k_p(x_l), but for what they leave of its variance, so that
#
#     sum_l precision_l (phi_l' mu)^2  is close to  a' A a,   A = sum_l precision_l w_l w_l',   a = Phi_p mu.
#
# That takes twice as much of the variance away (kin40k, rank 300). Any A leaves the estimate unbiased.


RIDGE = 1e-3
"""Added to K_pp, in units of the prior variance: weights of points that are close to each other stay moderate."""

MOST_ROWS = 100_000
ROWS_AT_ONCE = 5_000


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Support:
    """The rows of the control variate, fixed before the first step: inputs, A, and the parameters then."""

    x: Float[Array, "p d"]
    form: Float[Array, "p p"]
    learnt: dict[str, Array]


def no_support(x: Float[Array, "p d"], learnt: dict[str, Array]) -> Support:
    """A control variate that is zero."""
    return Support(x, jnp.zeros((x.shape[0], x.shape[0]), x.dtype), learnt)


def support_at(
    problem: Problem, features: Features, learnt: dict[str, Array], x: Float[Array, "p d"], rng: np.random.Generator
) -> Support:
    """The support at the points x: sums over all rows, or over `MOST_ROWS` of them drawn at random.

    The prior of the weights joins where its precision is dense: its Nyström approximation is K_pp^-1 (appendix F.2).
    """

    def squares(learnt: dict[str, Array], x: Array, rows: Rows) -> Array:
        cross = features.latent.covariance(learnt, x, inputs_of(problem.program, rows))
        return (cross * swept.quadratic(problem.program, learnt, rows).precision) @ cross.T

    taken = np.arange(problem.count)
    if problem.count > MOST_ROWS:
        taken = np.sort(rng.choice(problem.count, MOST_ROWS, replace=False))
    add_up, total = jit(squares), np.zeros((x.shape[0], x.shape[0]))
    for part in np.split(taken, range(ROWS_AT_ONCE, len(taken), ROWS_AT_ONCE)):
        total += np.asarray(add_up(learnt, x, gathered(problem, part)), float)
    covariance = np.asarray(jit(features.latent.covariance)(learnt, x), float)
    scale = np.mean(np.diagonal(covariance))
    inverse = np.linalg.inv(covariance + RIDGE * scale * np.eye(x.shape[0]))
    form = inverse @ (problem.count / len(taken) * total) @ inverse
    if not features.diagonal:
        form = form + inverse
    return Support(x, jnp.asarray(form, x.dtype), learnt)


# A fit by the paper's steps: many of them in one compiled loop, with rates that fall exponentially.

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
