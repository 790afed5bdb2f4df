"""Steps in which no sum over basis functions is sampled: two batches of rows take turns, and one pass serves both.

QSGP estimates Phi_l mu at the rows l of a batch from some of its m terms, and the noise of that is what its control
variate reduces: the running expectation a = Phi_p mu of Proposition 3, which costs O(1) a step for rows p that stay.
Here p is the batch itself. A sweep is a pass over all blocks of basis functions: every step moves the weights of one
block along the gradient at rows p, for which Phi_p mu is known exactly, and adds the block's share to Phi_p' mu of the
rows p' of the next sweep. So every step costs the same whatever n and m are, gradients have the noise of the rows
alone, and they are those of the bound itself for any likelihood: no sum stands inside a concave function (Theorem 3).

Steps are preconditioned as in EigenPro (Ma and Belkin 2017): by (1 + tau) I + kappa Phi_s' Phi_s from the functions'
values at support rows s, block by block; tau is the largest curvature that is left of a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Float

from gpdsl.inference.quadruply_stochastic.features import Features
from gpdsl.inference.quadruply_stochastic.likelihood import Slopes, expected, slopes
from gpdsl.inference.quadruply_stochastic.preconditioner import preconditioner
from gpdsl.inference.quadruply_stochastic.reading import Seen, inputs_of, slab, slabs
from gpdsl.inference.quadruply_stochastic.weights import Index, Weights, divergence, own_column
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows

LONGEST = 50
"""Sweeps that the average curvature of a weight remembers: the hyperparameters move."""

COLUMNS = 0.5
"""Pace of the dense columns, whose diagonal elements and others move at once, each as if the rest stood still."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Running:
    """Sums over all basis functions at the rows of a batch: Phi [mu, C_1..r], and the variance of the other columns."""

    projected: Float[Array, "n 1+r"]
    spread: Float[Array, "n"]

    @property
    def variance(self) -> Float[Array, "n"]:
        """phi' C C' phi."""
        return self.spread + jnp.sum(self.projected[:, 1:] ** 2, axis=1)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """What a sweep changes. `running` belongs to the rows of the next sweep."""

    q: Weights
    learnt: dict[str, Array]
    memory: Any
    running: Running
    number: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Pace:
    """How far a sweep goes: the `rate` of the weights, the damping tau, and a factor of the hyperparameters' steps."""

    rate: Array
    damping: Array
    learning: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Batches:
    """Rows of this sweep and of the next, and the inputs of the support rows."""

    here: Rows
    following: Rows
    support: Float[Array, "s d"]


@dataclass(frozen=True)
class Sweeps:
    """Sweeps over blocks of `size` basis functions, for batches out of `count` rows."""

    program: Program
    features: Features
    size: int
    count: int
    optimiser: optax.GradientTransformation

    @property
    def steps(self) -> int:
        """Steps of one sweep."""
        return slabs(self.features.count, self.size)

    def sweep(self, state: State, batches: Batches, pace: Pace) -> tuple[State, tuple[Array, Array]]:
        """The state after a pass over all basis functions; the bound before it, and its standard error."""
        here = batches.here
        known = slopes(self.program, state.learnt, here, state.running.projected[:, 0], state.running.variance)
        batch = known.value.shape[0]
        step = self._step(state, batches, known, pace)
        following = jax.tree.map(jnp.zeros_like, state.running)
        zero = jax.tree.map(jnp.zeros_like, state.learnt), jnp.zeros((), known.value.dtype)
        carry, _ = jax.lax.scan(step, (state.q, following, zero), jnp.arange(self.steps))
        q, following, (gradient, divergences) = carry
        direct = jax.grad(self._likelihood)(state.learnt, here, state.running)
        gradient = jax.tree.map(lambda a, b: -(a + b) * pace.learning, gradient, direct)
        updates, memory = self.optimiser.update(gradient, state.memory, state.learnt)
        moved = optax.apply_updates(state.learnt, jax.tree.map(lambda u: u * pace.learning, updates))
        prior = self.program.log_prior(self.program.parameters.constrain(state.learnt))
        bound = self.count * jnp.mean(known.value) - divergences + prior
        error = self.count * jnp.std(known.value) / jnp.sqrt(float(batch))
        return State(q, moved, memory, following, state.number + 1), (bound, error)

    def _likelihood(self, learnt: dict[str, Array], rows: Rows, running: Running) -> Array:
        """What the hyperparameters of the likelihood, the prior mean and their priors add to the bound, with q held."""
        values = expected(self.program, learnt, rows, running.projected[:, 0], running.variance)
        return self.count * jnp.mean(values) + self.program.log_prior(self.program.parameters.constrain(learnt))

    def _step(self, state: State, batches: Batches, known: Slopes, pace: Pace) -> Callable[..., Any]:
        """One block: its gradient at the rows of this sweep, the move, and its share of the next rows' sums."""
        program, features = self.program, self.features
        x, following_x = inputs_of(program, batches.here), inputs_of(program, batches.following)
        pull = _pull(known, state.running) * (self.count / known.value.shape[0])
        stiffness = self.count * jnp.mean(known.precision)

        def step(carry: Any, number: Array) -> tuple[Any, None]:
            q, following, (gradient, divergences) = carry
            index, live = slab(number, self.size, features.count)
            start = index[0]
            old = _slice(q, start, self.size)
            precision = features.precision(state.learnt, index)

            def share(learnt: dict[str, Array]) -> tuple[Array, tuple[Array, Array]]:
                return self._share(learnt, x, index, live, old, known, pull)

            (_, (values, kl)), moved = jax.value_and_grad(share, has_aux=True)(state.learnt)
            support = features.values(state.learnt, batches.support, index) * live
            slope = pull.T @ values - precision * old.vectors
            ridge = (1.0 + pace.damping) * (self.size / features.count) * support.shape[0] / stiffness
            direction = preconditioner(support, ridge, pace.damping).directions(slope, index)
            direction = direction + _diagonal_move(old, slope, precision, index)
            paces = jnp.where(jnp.arange(slope.shape[0]) > 0, COLUMNS, 1.0)[:, None] * pace.rate
            new = replace(old, vectors=old.vectors + paces * direction * live)
            seen_curvature = self.count * jnp.mean(known.precision[:, None] * values**2, axis=0)
            forget = live / (1.0 + jnp.minimum(state.number, LONGEST).astype(values.dtype))
            new = replace(new, curvature=old.curvature + forget * (seen_curvature - old.curvature))
            later = features.values(state.learnt, following_x, index) * live
            seen = Seen(index, later, new, precision)
            following = Running(following.projected + seen.projected, following.spread + seen.spread)
            totals = jax.tree.map(jnp.add, gradient, moved), divergences + kl
            return (_put(q, new, start), following, totals), None

        return step

    def _share(
        self,
        learnt: dict[str, Array],
        x: Float[Array, "n d"],
        index: Index,
        live: Float[Array, "k"],
        q: Weights,
        known: Slopes,
        pull: Float[Array, "n 1+r"],
    ) -> tuple[Array, tuple[Float[Array, "n k"], Array]]:
        """The block's share of the bound to first order in its values at the rows: its slope is the bound's own.

        With it the values, and the block's share of the divergence.
        """
        values = self.features.values(learnt, x, index) * live
        precision = self.features.precision(learnt, index)
        seen = Seen(index, values, q, precision)
        bend = 0.5 * known.precision * (self.count / x.shape[0])
        kl = jnp.sum(divergence(q, precision, index) * live)
        return jnp.sum(pull * seen.projected) - jnp.sum(bend * seen.spread) - kl, (values, kl)


def _pull(known: Slopes, running: Running) -> Float[Array, "n 1+r"]:
    """Derivatives of the expected log likelihood in Phi mu and in Phi C."""
    return jnp.concatenate([known.slope[:, None], -known.precision[:, None] * running.projected[:, 1:]], axis=1)


def _diagonal_move(
    q: Weights, slope: Float[Array, "1+r k"], precision: Float[Array, "k"], index: Index
) -> Float[Array, "1+r k"]:
    """From the diagonal elements of dense columns to where the bound is largest in them alone.

    With H = S + sum_n p_n phi_n phi_n' and b = sum_(j != r) H_rj c_jr that is the positive root of H_rr c^2 + b c = 1;
    `slope` is -H c, which leaves out that of log c.
    """
    stiff = precision + q.curvature
    rest = -slope - stiff * q.vectors
    target = 0.5 * (jnp.sqrt(rest**2 + 4.0 * stiff) - rest) / stiff
    own = own_column(q.columns, index)
    return jnp.concatenate([jnp.zeros_like(slope[:1]), own * (target - q.vectors)[1:]])


def _slice(q: Weights, start: Array, size: int) -> Weights:
    return jax.tree.map(lambda a: jax.lax.dynamic_slice_in_dim(a, start, size, -1), q)


def _put(q: Weights, part: Weights, start: Array) -> Weights:
    return jax.tree.map(lambda a, b: jax.lax.dynamic_update_slice_in_dim(a, b, start, -1), q, part)


def damping(
    program: Program, features: Features, state: State, batches: Batches, count: int, size: int
) -> Float[Array, ""]:
    """tau, so that a whole step at the preconditioned gradient of one batch does not overshoot.

    It is the largest eigenvalue of (n / b) D^1/2 (K_pp - K_ps (K_ss + nu I)^-1 K_sp) D^1/2 of the batch, with kernel
    matrices from `size` functions, and nu that of the preconditioner with this tau: a few rounds of both.
    """
    index, _ = slab(0, min(size, features.count), features.count)
    scale = jnp.sqrt(features.count / index.shape[0])
    known = slopes(program, state.learnt, batches.here, state.running.projected[:, 0], state.running.variance)
    p = features.values(state.learnt, inputs_of(program, batches.here), index) * scale
    s = features.values(state.learnt, batches.support, index) * scale
    weight = count * jnp.mean(known.precision)
    cross, identity = s @ p.T, jnp.eye(s.shape[0], dtype=s.dtype)
    own, among = p @ p.T, s @ s.T
    # Where support rows are nearly the same, the ridge is what the factorisation needs in this precision.
    least = ROUNDING * jnp.finfo(s.dtype).eps * jnp.trace(among) * weight / s.shape[0]
    tau = least
    for _ in range(ROUNDS):
        ridge = (1.0 + tau) * s.shape[0] / weight
        left = own - cross.T @ cho_solve(cho_factor(among + ridge * identity, lower=True), cross)
        tau = jnp.maximum(weight / p.shape[0] * _largest(left), least)
    return tau


ROUNDS = 4
ROUNDING = 10.0
POWERS = 20


def _largest(matrix: Float[Array, "n n"]) -> Float[Array, ""]:
    """The largest eigenvalue, by the power method."""

    def turn(vector: Array, _: Any) -> tuple[Array, None]:
        vector = matrix @ vector
        return vector / jnp.linalg.norm(vector), None

    vector, _ = jax.lax.scan(turn, jnp.ones(matrix.shape[0], matrix.dtype), None, length=POWERS)
    return jnp.linalg.norm(matrix @ vector)
