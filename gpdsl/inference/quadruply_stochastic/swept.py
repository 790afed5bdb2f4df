"""Estimators of the bound from blocks of basis functions, and sweeps that sample no sum over them.

QSGP Theorems 1 to 3 and Proposition 3: blocks I and J of k functions are drawn independently of each other
(`weights.block`). A sum over all m functions is estimated by m / k times the sum over a block, a product of two sums by
the product of the estimates from I and from J. Estimators are per row; n times their mean over drawn rows estimates the
sum over all.

QSGP estimates Phi_l mu at the rows l of a batch from some of its m terms, and the noise of that is what its control
variate reduces: the running expectation a = Phi_p mu of Proposition 3, which costs O(1) a step for rows p that stay.
Here p is the batch itself. A sweep is a pass over all blocks of basis functions: every step moves the weights of one
block by Phi_p' of a change that rows p have found, for which Phi_p mu and Phi_p Phi_p' are known exactly, and adds the
block's share to those of the rows p' of the next sweep. So every step costs the same whatever n and m are, and what a
batch finds is the best that there is given all other rows (`duals`), for any likelihood: no sum stands inside a concave
function (Theorem 3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from gpdsl.inference.expected_log_likelihood import expected_log_likelihood
from gpdsl.inference.quadruply_stochastic.sums import (
    Held,
    Running,
    Seen,
    best_length,
    inputs_of,
    newton_step,
    part_of,
    slab,
    slabs,
    with_part,
)
from gpdsl.inference.quadruply_stochastic.weights import Features, Index, Lengths, Weights, divergence, log_diagonal
from gpdsl.program.evaluation import prior_means
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows


def quadratic_likelihood(site: Slopes, first: Seen, second: Seen, scale: float) -> Float[Array, "n"]:
    """Theorems 1 and 2: unbiased for E_q[log p(y | f)] where log p is quadratic in f. `scale` is m / k.

    (Phi mu)^2 and (Phi c_r)^2 are products of two sums, Phi^2 c_ii^2 is one.
    """
    one, two = scale * first.projected, scale * second.projected
    linear = 0.5 * site.slope * (one[:, 0] + two[:, 0])
    square = jnp.sum(one * two, axis=1) + 0.5 * scale * (first.spread + second.spread)
    return site.value + linear - 0.5 * site.precision * square


def control_variate(
    form: Float[Array, "p p"],
    first: Seen,
    second: Seen,
    running: Float[Array, "p columns"],
    scale: float,
) -> Float[Array, ""]:
    """QSGP eq. 3 from support rows p, whose mean over I and J is zero: what Theorems 1 and 2 get wrong there.

    `running` is a = Phi_p [mu, C_1..r] (Proposition 3), which is known exactly, and the quadratic form is a'A a / 2
    with A the symmetric `form` (`support`). Its gradient is sparse and unbiased, as in F.1: that in the drawn weights,
    times m / k.
    """
    one, two = scale * first.projected, scale * second.projected
    known = jax.lax.stop_gradient(running)
    pulled = form @ known
    tangent = jnp.sum(pulled * (one + two))
    return 0.5 * (jnp.sum((form @ one) * two) - tangent + jax.lax.stop_gradient(tangent) - jnp.sum(pulled * known))


def concave_likelihood(
    program: Program, learnt: Mapping[str, Array], rows: Rows, seen: Seen, scale: float
) -> Float[Array, "n"]:
    """Theorem 3, with the standard deviation of phi'w: its mean is at most E_q[log p(y | f)] where log p is concave.

    Under q, phi'w = phi'mu + phi'C z with z ~ N(0, I), which is linear in what is summed over basis functions. So its
    estimate from a block is unbiased for every z, and Jensen's inequality applies inside the expectation over z. For a
    given block that is a Gaussian again, of variance |(m / k) phi_I'C_I|^2: one expectation in one dimension.
    """
    projected = scale * seen.projected
    variance = scale**2 * seen.spread + jnp.sum(projected[:, 1:] ** 2, axis=1)
    return expected(program, learnt, rows, projected[:, 0], variance)


def dense_divergence(first: Seen, second: Seen, cross: Float[Array, "k k"], scale: float) -> Float[Array, ""]:
    """Theorems 1 and 2 for a dense S: unbiased for KL(q || N(0, S^-1)) less the constant -(m + log |S|) / 2.

    `cross` holds rows I and columns J of S.
    """
    squares = scale**2 * jnp.sum((first.q.vectors @ cross) * second.q.vectors)
    total = 0.5 * squares
    for seen in (first, second):
        alone = 0.5 * seen.precision * seen.q.deviation(seen.precision, seen.index) ** 2
        total = total + 0.5 * scale * jnp.sum(alone - log_diagonal(seen.q, seen.precision, seen.index))
    return total


def diagonal_divergence(first: Seen, second: Seen, scale: float) -> Float[Array, ""]:
    """Theorems 1 and 2 and Proposition 2 for a diagonal S: unbiased for KL(q || N(0, S^-1)), by one sum over each."""
    shares = [jnp.sum(divergence(seen.q, seen.precision, seen.index)) for seen in (first, second)]
    return 0.5 * scale * (shares[0] + shares[1])


# --- likelihood ------------------------------------------------------------------------------------------------------


Values = Float[Array, "n"]

FLATTEST = 1e-6
"""Least weight of a row, in units of the largest."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Slopes:
    """E_q[log p(y | f)] of each row, its derivative in the mean of f, and -2 times that in the variance.

    By Price's theorem the last is the expected precision -E_q[d^2 log p / df^2].
    """

    value: Values
    slope: Values
    precision: Values

    @property
    def weight(self) -> Values:
        """The precision, where it is positive: a log likelihood that is not concave there counts as nearly flat."""
        return jnp.maximum(self.precision, FLATTEST * jnp.max(jnp.abs(self.precision)))


def expected(program: Program, learnt: Mapping[str, Array], rows: Rows, shift: Values, variance: Values) -> Values:
    """E_q[log p(y | f)] of each row where f is Gaussian; `shift` is how far its mean is from the prior mean."""
    parameters = program.parameters.constrain(learnt)
    prior = prior_means(program.evaluator, program.groups, parameters, rows, shift.shape[0])
    q = Marginals((prior[:, 0] + shift)[None, :, None], variance[None, :, None])
    return expected_log_likelihood(program, parameters, rows, q)[0]


def slopes(program: Program, learnt: Mapping[str, Array], rows: Rows, shift: Values, variance: Values) -> Slopes:
    """The expected log likelihood and what a step needs of it."""

    def total(shift: Values, variance: Values) -> tuple[Array, Values]:
        value = expected(program, learnt, rows, shift, variance)
        return jnp.sum(value), value

    (slope, bend), value = jax.grad(total, argnums=(0, 1), has_aux=True)(shift, variance)
    return Slopes(value, slope, -2.0 * bend)


def quadratic(program: Program, learnt: Mapping[str, Array], rows: Rows) -> Slopes:
    """The coefficients of a log density that is quadratic in f, around the prior mean.

    log p(y | f) = value + slope h - precision h^2 / 2 where f is h above its prior mean: exact, as is the expectation,
    which replaces h^2 by E[h]^2 + V[h] (QSGP eq. 2 for any Gaussian observation of an affine function of f).
    """
    count = next(iter(rows.observed.values())).shape[0]
    nothing = jnp.zeros(count, next(iter(rows.observed.values())).dtype)
    return slopes(program, learnt, rows, nothing, nothing)


LONGEST = 50
"""Sweeps that averages over batches remember: the hyperparameters move."""

LATE = 0.5
"""How much of all sweeps the average of the weights remembers, until it remembers a pass over the rows."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """What a sweep changes. `running` belongs to the rows of the next sweep.

    What is `held` now is S^-1 (E + Phi' `duals`) with a column of duals for the mean and for each solution, and E that
    has zeros for the mean and unit vectors for the solutions. `slope` adds up that of the bound in what is learnt.
    """

    held: Held
    duals: Float[Array, "n columns"]
    lengths: Lengths
    learnt: dict[str, Array]
    slope: dict[str, Array]
    running: Running
    number: Array

    @property
    def variance(self) -> Float[Array, "n"]:
        """phi' C C' phi at the rows of the next sweep."""
        dense = self.lengths.columns(self.running.average[:, 1:].T)
        return self.running.spread + jnp.sum(dense**2, axis=0)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Batches:
    """Rows of this sweep and of the next, and which of all rows those of this sweep are."""

    here: Rows
    following: Rows
    index: Int[Array, "b"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Sums:
    """What a sweep adds up over blocks: the sums at the next rows, X'SX, and the bound's KL with its slopes."""

    running: Running
    solutions: Float[Array, "r r"]
    divergence: Array
    slope: dict[str, Array]


@dataclass(frozen=True)
class _Visit:
    """What a sweep does to every block alike: the change of the duals, and the slopes of q's bound at the rows.

    `forget` and `recent` are shares of averages that are replaced: of those over batches, and of the weights.
    """

    x: Float[Array, "b d"]
    following: Float[Array, "b d"]
    known: Slopes
    change: Float[Array, "b columns"]
    pull: Float[Array, "b columns"]
    forget: Array
    recent: Array


@dataclass(frozen=True)
class Sweeps:
    """Sweeps over blocks of `size` basis functions, for batches out of `count` rows."""

    program: Program
    features: Features
    size: int
    count: int

    @property
    def steps(self) -> int:
        """Steps of one sweep."""
        return slabs(self.features.count, self.size)

    def sweep(self, state: State, batches: Batches, *, learning: bool) -> tuple[State, Array]:
        """The state after a pass over all basis functions, and the bound before it, as its rows tell.

        `learning`: its slope in the hyperparameters is wanted. Numbers that are not finite move nothing.
        """
        # Before any block: where the rows' latents are, and what their duals want.
        here, running = batches.here, state.running
        known = slopes(self.program, state.learnt, here, running.average[:, 0], state.variance)
        change = self._change(state, here, state.duals[batches.index])
        dense = state.lengths.columns(running.average[:, 1:].T).T
        pull = jnp.concatenate([known.slope[:, None], -known.precision[:, None] * dense], axis=1)
        number = state.number.astype(change.dtype)
        forget = 1.0 / (1.0 + jnp.minimum(number, LONGEST))
        recent = 1.0 / (1.0 + jnp.minimum(number * LATE, self.count // change.shape[0] - 1))
        x, following = inputs_of(self.program, here), inputs_of(self.program, batches.following)
        visit = _Visit(x, following, known, change, pull, forget, recent)
        zero = jax.tree.map(jnp.zeros_like, (state.running, state.lengths.prior, visit.forget, state.learnt))
        step = self._step(visit, state, learning)
        first = part_of(state.held, jnp.zeros((), int), self.size)
        (held, _, sums), _ = jax.lax.scan(step, (state.held, first, _Sums(*zero)), jnp.arange(self.steps))
        slope = self._slope(state, batches.here, sums.slope) if learning else state.slope
        after = State(
            held,
            state.duals.at[batches.index].add(visit.change),
            self._lengths(state, visit, sums.solutions),
            state.learnt,
            slope,
            sums.running,
            state.number + 1,
        )
        log_prior = self.program.log_prior(self.program.parameters.constrain(state.learnt))
        return after, self.count * jnp.mean(visit.known.value) - sums.divergence + log_prior

    def _change(self, state: State, rows: Rows, duals: Float[Array, "b columns"]) -> Float[Array, "b columns"]:
        """The step of the rows' duals to where they are best, given all others."""
        running = state.running
        known = slopes(self.program, state.learnt, rows, running.now[:, 0], state.variance)
        wanted = jnp.concatenate([known.slope[:, None], -known.weight[:, None] * running.now[:, 1:]], axis=1)
        change = newton_step(running.gram, known.weight, wanted - duals)
        if not self.program.conjugate:

            def gain(moved: Float[Array, "b"]) -> Float[Array, "b"]:
                shift = running.now[:, 0] + moved
                return expected(self.program, state.learnt, rows, shift, state.variance) - known.value

            change = change.at[:, 0].multiply(best_length(gain, running.gram, duals[:, 0], change[:, 0]))
        return jnp.where(jnp.all(jnp.isfinite(change)), change, 0.0)

    def _lengths(self, state: State, visit: _Visit, prior: Float[Array, "r r"]) -> Lengths:
        """Those of the new solutions, from the values of these at the rows."""
        running = state.running
        there = (running.now + running.gram @ visit.change - running.average)[:, 1:]
        there = running.average[:, 1:] + visit.recent * there
        found = self.count / there.shape[0] * (there.T * visit.known.weight) @ there
        old = state.lengths.likelihood
        return Lengths(prior, old + visit.forget * (found - old))

    def _slope(self, state: State, rows: Rows, slope: dict[str, Array]) -> dict[str, Array]:
        """The sum of slopes with that of this sweep: `slope` comes through basis functions, the rest directly."""

        def likelihood(learnt: dict[str, Array]) -> Array:
            values = expected(self.program, learnt, rows, state.running.average[:, 0], state.variance)
            return self.count * jnp.mean(values) + self.program.log_prior(self.program.parameters.constrain(learnt))

        found = jax.tree.map(jnp.add, slope, jax.grad(likelihood)(state.learnt))
        sound = jnp.all(jnp.asarray([jnp.all(jnp.isfinite(each)) for each in jax.tree.leaves(found)]))
        return jax.tree.map(lambda total, each: total + jnp.where(sound, each, 0.0), state.slope, found)

    def _step(self, visit: _Visit, state: State, learning: bool) -> Callable[..., Any]:
        """One block: its share of the bound, the move, and its share of the next rows' sums.

        Every block is read after the one before it is written: else XLA would copy all numbers before it writes any.
        """
        features, learnt = self.features, state.learnt

        def step(carry: tuple[Held, Held, _Sums], number: Array) -> tuple[tuple[Held, Held, _Sums], None]:
            held, old, sums = carry
            index, live = slab(number, self.size, features.count)
            q = state.lengths.weights(old.average, index)
            share = partial(self._share, visit=visit, index=index, live=live, q=q)
            if learning:
                (_, (values, kl)), slope = jax.value_and_grad(share, has_aux=True)(learnt)
                sums = replace(sums, slope=jax.tree.map(jnp.add, sums.slope, slope))
            else:
                _, (values, kl) = share(learnt)
            precision = features.precision(learnt, index)
            new = self._moved(old, visit, values, precision, live)
            later = features.consecutive(learnt, visit.following, index) * live
            own = jnp.asarray(new.average.vectors[1:]) * live
            sums = replace(
                sums,
                running=sums.running.joined(Seen(index, later, new.average, precision), new.now),
                solutions=sums.solutions + (own * precision) @ own.T,
                divergence=sums.divergence + kl,
            )
            held = with_part(held, new, index[0])
            return (held, part_of(held, slab(number + 1, self.size, features.count)[0][0], self.size), sums), None

        return step

    def _moved(
        self, old: Held, visit: _Visit, values: Float[Array, "b k"], precision: Float[Array, "k"], live: Array
    ) -> Held:
        """A block after the change of the duals; `live` says which of its functions no block before it has."""
        found = self.count * jnp.mean(visit.known.precision[:, None] * values**2, axis=0)
        curvature = old.average.curvature + visit.forget * live * (found - old.average.curvature)
        now = old.now + visit.change.T @ values / precision
        average = old.average.vectors + visit.recent * live * (now - old.average.vectors)
        return Held(now, Weights(average, curvature))

    def _share(
        self, learnt: dict[str, Array], visit: _Visit, index: Index, live: Float[Array, "k"], q: Weights
    ) -> tuple[Array, tuple[Float[Array, "n k"], Array]]:
        """The block's share of the bound to first order in its values at the rows: its slope is the bound's own.

        With it the values, and the block's share of the divergence.
        """
        values = self.features.consecutive(learnt, visit.x, index) * live
        precision = self.features.precision(learnt, index)
        seen = Seen(index, values, q, precision)
        scale = self.count / visit.x.shape[0]
        kl = jnp.sum(divergence(q, precision, index) * live)
        likelihood = jnp.sum(visit.pull * seen.projected) - 0.5 * jnp.sum(visit.known.precision * seen.spread)
        return scale * likelihood - kl, (values, kl)
