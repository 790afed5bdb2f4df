"""Fits in which no sum over basis functions is sampled: by linear algebra where there are few, or by sweeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float
from scipy.linalg import cholesky, qr, solve_triangular

from gpdsl.data import minibatches
from gpdsl.errors import GpdslError
from gpdsl.inference.problem import Problem
from gpdsl.inference.quadruply_stochastic import sums
from gpdsl.inference.quadruply_stochastic.basis import PRECISION, InducingFeatures, repositioned
from gpdsl.inference.quadruply_stochastic.choice import FROZEN
from gpdsl.inference.quadruply_stochastic.sums import Held, gathered, inputs_of, moments, surveyed, whole_divergence
from gpdsl.inference.quadruply_stochastic.swept import Batches, Slopes, State, Sweeps, slopes
from gpdsl.inference.quadruply_stochastic.weights import Features, Lengths, Weights, first_functions, solutions_of
from gpdsl.kernels.numerics import jitters_for
from gpdsl.program.cache import jit
from gpdsl.program.program import take_rows
from gpdsl.program.rows import Rows

# Covariances with points as basis functions, where there are few enough of them: q by linear algebra, not by steps.
#
# With W the expected precisions of the rows, the mean and the covariance of the best q of all Gaussians are
#
#     H = S + Phi'W Phi,   mu + H^-1 (Phi'g - S mu)
#
# for the slopes g at mu: at once where log p is quadratic, by Newton steps on the bound elsewhere. Whitened by S = L
# L', H^-1 = R'R with R = U^-1 L^-1 and U U' = I + L^-1 Phi'W Phi L^-T, and the triangle of R = Q T is the root C = T':
# H itself, whose condition number is the square of that of the kernel's matrix, is never factorised.

ROWS_AT_ONCE = 4_000
SHORTEST = 1e-3
"""Share of a Newton step below which none is taken."""


def steadied(features: InducingFeatures, learnt: Mapping[str, Array], dtype: str) -> InducingFeatures:
    """The functions with the first jitter at which S has a Cholesky factor. Raises GpdslError where none will do."""
    every = jnp.arange(features.count)
    for jitter in jitters_for(dtype):
        found = replace(features, jitter=jitter)
        try:
            cholesky(np.asarray(found.cross_precision(learnt, every, every), float), lower=True)
        except (np.linalg.LinAlgError, ValueError):  # no factor, or no numbers
            continue
        return found
    raise GpdslError(
        f"the covariance matrix of {features.count} points is not positive definite in {dtype}; use fewer features, a "
        "rougher kernel, or engine = vi" + (", or dtype = float64" if dtype == "float32" else "")
    )


@dataclass(frozen=True, eq=False)
class _Site:
    """The data at some q: the bound but for log |S|, Phi'g and Phi'W Phi."""

    bound: float
    pull: Float[np.ndarray, "m"]
    gram: Float[np.ndarray, "m m"]


class SolvedFit:
    """Newton steps: the first is the last where log p is quadratic in the latent."""

    def __init__(self, problem: Problem, features: Features, q: Weights, learnt: dict[str, Array]) -> None:
        assert isinstance(features, InducingFeatures)
        self.problem, self.features, self.q, self.learnt = problem, features, q, learnt
        every = jnp.arange(features.count)
        self._prior = np.asarray(features.cross_precision(learnt, every, every), float)
        self._root = cholesky(self._prior, lower=True)
        self._look = problem.compiling(self._seen)
        self._apart = jit(lambda q: whole_divergence(features, learnt, q, features.count))
        self._here, self._done = self._site(q), 0
        self.message = "all steps done"

    @property
    def constant(self) -> float:
        """What the divergence lacks: (m + log |S|) / 2."""
        return 0.5 * self.features.count + float(np.sum(np.log(np.diagonal(self._root))))

    def advance(self) -> tuple[int, float]:
        """One Newton step, shortened until it raises the bound."""
        before, share = self._here, 1.0
        if not np.isfinite(before.bound):
            return self.problem.choice.steps, float("nan")
        goal = self._best()
        while share > SHORTEST:
            q = goal if share == 1.0 else self._between(goal, share)
            here = self._site(q)
            if here.bound > before.bound or self.problem.program.conjugate:
                self.q, self._here = q, here
                break
            share *= 0.5
        gained = self._here.bound - before.bound
        self._done += 1
        if self.problem.program.conjugate or gained <= self.problem.options.tolerance * (1.0 + abs(before.bound)):
            self.message, self._done = "solved", self.problem.choice.steps
        return self._done, self._here.bound + self.constant

    def _best(self) -> Weights:
        """q with the Newton step's mean, and with the covariance that the curvatures here ask for."""
        inner = solve_triangular(self._root, self._here.gram, lower=True)
        inner = solve_triangular(self._root, inner.T, lower=True)
        upper = cholesky(np.eye(len(inner)) + 0.5 * (inner + inner.T), lower=True)
        precision_root = solve_triangular(
            upper, solve_triangular(self._root, np.eye(len(inner)), lower=True), lower=True
        )
        mean = np.asarray(self.q.vectors[0], float)
        mean = mean + precision_root.T @ (precision_root @ (self._here.pull - self._prior @ mean))
        triangle = qr(precision_root, mode="r")[0]
        triangle = triangle * np.sign(np.diagonal(triangle))[:, None]
        vectors = np.concatenate([mean[None], triangle[: self.q.columns]])
        dtype = self.q.vectors.dtype
        return Weights(jnp.asarray(vectors, dtype), jnp.asarray(np.diagonal(self._here.gram), dtype))

    def _between(self, goal: Weights, share: float) -> Weights:
        """q with a shorter step of the mean and of the root of its covariance."""
        vectors = self.q.vectors + share * (goal.vectors - self.q.vectors)
        return replace(goal, vectors=vectors, curvature=self.q.curvature + share * (goal.curvature - self.q.curvature))

    def _site(self, q: Weights) -> _Site:
        """What all rows say at q, some of them at a time."""
        count, size = self.problem.count, self.features.count
        total, pull, gram = -float(self._apart(q)), np.zeros(size), np.zeros((size, size))
        for part in np.split(np.arange(count), range(ROWS_AT_ONCE, count, ROWS_AT_ONCE)):
            known, phi, weighed = self._look(q, gathered(self.problem, part))
            values = np.asarray(phi, float)
            if not np.all(np.isfinite(known.slope)):
                return _Site(float("nan"), pull, gram)
            total += float(np.sum(np.asarray(known.value, float)))
            pull += values.T @ np.asarray(known.slope, float)
            gram += values.T @ (np.asarray(weighed, float)[:, None] * values)
        return _Site(total, pull, gram)

    def _seen(self, q: Weights, rows: Rows) -> tuple[Slopes, Float[Array, "b m"], Float[Array, "b"]]:
        x = inputs_of(self.problem.program, rows)
        projected, variance = moments(self.features, self.learnt, x, q, self.features.count)
        known = slopes(self.problem.program, self.learnt, rows, projected[:, 0], variance)
        return known, self.features.values(self.learnt, x, jnp.arange(self.features.count)), known.weight


# How wide a q with independent weights is at the rows of the data, beside the best Gaussian over the same functions.
#
# A diagonal is far too wide where there are many more functions than rows, inside the data, and too narrow where there
# are few. The best Gaussian's variances are those of a GP with the covariance G = Phi S^-1 Phi' and noise W^-1:
# diag(W^-1 (G + W^-1)^-1 G), on all rows, or on some where there are many.

LOOKED_AT = 600
"""Rows looked at. What some rows know is less than what all know: the best is narrower still."""

NOTABLE = 1.5
ROUNDING = 1e-6
"""Share of a variance below which the best cannot be told."""


def notes_on_width(problem: Problem, features: Features, q: Weights, learnt: dict[str, Array]) -> tuple[str, ...]:
    """A sentence where standard deviations of q are off by more than half, none where they are not."""
    if not features.diagonal or not np.all(np.isfinite(np.asarray(q.vectors))):
        return ()
    count = min(problem.count, LOOKED_AT)
    index = np.sort(np.random.default_rng([problem.options.seed, 4]).choice(problem.count, count, replace=False))
    factor = width(problem, features, q, learnt, index)
    known = f"{count} of {problem.count} rows" if count < problem.count else f"{count} rows"
    if 1.0 / NOTABLE < factor < NOTABLE or (factor < 1.0 and count < problem.count):
        return ()
    what = "independent weights have" if not q.columns else f"q, with {q.columns} dense columns, has"
    size, than = (factor, "wide") if factor > 1.0 else (1.0 / factor, "narrow")
    least = "at least " if count < problem.count else ""
    return (
        f"{what} standard deviations of the latent {least}{size:.1f} times as {than} as the best Gaussian over these "
        f"functions (median of {known}); means are not affected; a larger chevron helps, and engine = vi",
    )


def width(problem: Problem, features: Features, q: Weights, learnt: dict[str, Array], index: np.ndarray) -> float:
    """Median ratio of the standard deviations of q and of the best Gaussian, at some rows, given these alone."""
    size = min(problem.choice.weights.block if problem.choice.weights else features.count, features.count)

    def look(learnt: dict[str, Array], q: Weights, rows: Rows) -> tuple[Array, Array, Array]:
        told = surveyed(features, learnt, inputs_of(problem.program, rows), Held(jnp.asarray(q.vectors), q), size)
        variance = told.spread + jnp.sum(told.average[:, 1:] ** 2, axis=1)
        weight = slopes(problem.program, learnt, rows, told.average[:, 0], variance).weight
        return told.gram, variance, weight

    gram, own, weight = (np.asarray(a, float) for a in jit(look)(learnt, q, gathered(problem, index)))
    noise = 1.0 / weight
    root = np.sqrt(weight)
    value, vector = np.linalg.eigh(root[:, None] * gram * root)
    shrunk = np.maximum(value, 0.0) / (np.maximum(value, 0.0) + 1.0)  # sums of float32 may round below zero
    best = noise * (vector**2 @ shrunk)
    return float(np.median(np.sqrt(own / np.maximum(best, ROUNDING * own))))


# A fit by sweeps: which rows each sees, and what the weights are where the hyperparameters have moved.

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

    def _places(self) -> tuple[Rows, Array, Array, Array]:
        """Rows that hold those of this sweep and of the next, where these are there, and which of all the first are."""
        rows, (here, following) = sums.located(self.problem, self._here, self._next)
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
        held = sums.Held(jnp.copy(average.vectors), average)
        duals = jnp.zeros((self.problem.count, 1 + q.columns), q.vectors.dtype)
        number = jnp.zeros((), int)
        running = sums.nothing_seen(len(self._here), q.columns, duals.dtype)
        state = State(held, duals, lengths, learnt, jax.tree.map(jnp.zeros_like, learnt), running, number)
        if not fresh:
            find = jit(self._found_duals)
            parts = [find(q, lengths, learnt, sums.gathered(self.problem, part)) for part in self._parts()]
            state = self._renewed(replace(state, duals=jnp.concatenate(parts)))
        return self._surveyed_again(state)

    def _found_duals(
        self, q: Weights, lengths: Lengths, learnt: dict[str, Array], rows: Rows
    ) -> Float[Array, "b columns"]:
        """The duals of rows that agree with a posterior."""
        projected, variance = sums.moments(
            self.features, learnt, sums.inputs_of(self.problem.program, rows), q, self.sweeps.size
        )
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
            now = self._add(now, state.learnt, sums.gathered(self.problem, part), state.duals[part])
        moved = average.vectors + (now - state.held.now)
        return replace(state, held=sums.Held(now, replace(average, vectors=moved)))

    def _added(self, vectors: Array, learnt: dict[str, Array], rows: Rows, duals: Float[Array, "b columns"]) -> Array:
        x = sums.inputs_of(self.problem.program, rows)
        return sums.added(self.features, learnt, x, vectors, duals, self.sweeps.size)

    def _surveyed_again(self, state: State) -> State:
        """The state with the sums at the rows of the next sweep for the weights as they are."""
        return replace(state, running=self._survey(state.held, state.learnt, sums.gathered(self.problem, self._here)))

    def _surveyed(self, held: sums.Held, learnt: dict[str, Array], rows: Rows) -> sums.Running:
        return sums.surveyed(self.features, learnt, sums.inputs_of(self.problem.program, rows), held, self.sweeps.size)
