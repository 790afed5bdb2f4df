"""The best Gaussian q at fixed hyperparameters: natural-gradient steps, accelerated, and never downhill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.inference.ascent.lbfgs import Enough
from gpdsl.inference.blocks import Draws
from gpdsl.inference.bound import Views
from gpdsl.inference.natural import sites as natural
from gpdsl.inference.natural.site_blocks import Stride, newton_target, value_and_target
from gpdsl.inference.opaque.surrogate import Surrogate
from gpdsl.inference.problem import Problem
from gpdsl.kernels.numerics import chosen
from gpdsl.program.joint import Marginals, same_latent

# Anderson acceleration of a fixed-point iteration: the next point from a least-squares fit to the last few steps.
#
# Natural-gradient steps move along a ridge of the bound (a depth and a velocity whose ratio alone is observed) at a
# linear rate; a few remembered steps are enough to see where they lead. Walker and Ni (2011), SIAM J. Numer. Anal. 49.

MEMORY = 10
RIDGE = 1e-10


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Memory:
    """Differences of the last points and of their residuals; `filled` counts those that are meant."""

    points: Float[Array, "memory n"]
    residuals: Float[Array, "memory n"]
    filled: Array


def empty(length: int, dtype: jnp.dtype) -> Memory:
    """Nothing remembered."""
    zeros = jnp.zeros((MEMORY, length), dtype)
    return Memory(zeros, zeros, jnp.asarray(0))


def remember(memory: Memory, point: Array, residual: Array) -> Memory:
    """Add one difference, dropping the oldest."""
    return Memory(
        jnp.roll(memory.points, 1, axis=0).at[0].set(point),
        jnp.roll(memory.residuals, 1, axis=0).at[0].set(residual),
        jnp.minimum(memory.filled + 1, MEMORY),
    )


def propose(memory: Memory, point: Float[Array, "n"], residual: Float[Array, "n"]) -> Float[Array, "n"]:
    """The accelerated next point; the plain step `point + residual` while nothing is remembered."""
    used = (jnp.arange(MEMORY) < memory.filled).astype(point.dtype)
    columns = memory.residuals * used[:, None]
    gram = columns @ columns.T
    size = jnp.trace(gram) * RIDGE + jnp.finfo(point.dtype).tiny
    weights = jnp.linalg.solve(gram + size * jnp.eye(MEMORY, dtype=point.dtype), columns @ residual) * used
    return point + residual - weights @ (memory.points + memory.residuals)


SMALLEST_STEP = 1e-6
"""Shortest step, as a share of the way to its target, or of the size of the sites where that is farther away.

From a prior far below counts of 1e7, a target is 1e7 times as far, and a step of 1e-7 is long.
"""

ROUNDING = 8
"""Rounding errors of the bound, in units of the last place: single precision cannot tell smaller gains from none."""

STALLED = 30
"""Iterations in a row that together gain less than the tolerance, short steps and refused ones among them.

At a point that symmetry makes stationary, every step of some length is refused and every shorter one gains nothing.
"""

FALLEN, SURE = 4.0, 10.0
"""How many times shorter, squared, a step has to have become in the last one to tell from its gain what is left to be
gained, and how many times less than the tolerance that has to be: measured, it is told up to five times too small."""

SETTLED = 1e-9
"""Relative change of the sites below which there is nothing left to do (a Gaussian likelihood: after one step)."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Progress:
    """The accepted sites, where a natural-gradient step leads from them, and how the next trial is made.

    Before the first iteration nothing is known: its trial is the start itself, so that the bound is compiled only once.
    `length` is that of the way there (`step_lengths`). `plain` asks for an unaccelerated step of length `step`; `quiet`
    counts accepted steps that gained next to nothing, `idle` all iterations since the bound was `low`, if it has not
    risen by the tolerance since. `stride` is there where the means are found by Newton's method.
    """

    sites: natural.Sites
    target: natural.Sites
    length: Float[Array, ""]
    stride: Stride | None
    elbo: Float[Array, ""]
    step: Float[Array, ""]
    plain: Array
    memory: Memory
    quiet: Array
    idle: Array
    low: Float[Array, ""]
    iterations: Array
    done: Array


def refine(
    setting: natural.Setting,
    sites: natural.Sites,
    normals: Array | Draws | None,
    tolerance: float,
    iterations: Array | int,
    coupling: Array | float = 1.0,
    surrogate: Surrogate | None = None,
    newton: bool = False,
) -> Progress:
    """Ascend in q until the bound rises by less than `tolerance` nats a step, three times in a row.

    With `coupling` 0, sites that a row has for all latents together leave different latents independent. `newton` finds
    the means by Newton's method, unless the rows are taken block by block.
    """
    size = setting.block(sites.coupled)
    seen = setting.views(jax.tree.map(lambda a: a[:1], setting.rows) if size else None)
    evaluate: Evaluate
    if size:

        def evaluate(sites: natural.Sites, stride: Stride | None) -> Seen:
            return *value_and_target(setting, sites, size, normals), None

    else:
        assert not isinstance(normals, Draws)
        evaluate = _evaluator(seen, normals, coupling, surrogate)
    units = natural.site_units(seen, sites)

    def advance(p: Progress) -> Progress:
        trial = next_trial(p, units)
        return judged(p, trial, evaluate(trial, p.stride), units, tolerance)

    start = before_any(sites, Stride.first(sites.linear) if newton and not size else None)
    return jax.lax.while_loop(lambda p: ~p.done & (p.iterations < iterations), advance, start)


def before_any(sites: natural.Sites, stride: Stride | None = None) -> Progress:
    """Before the first iteration."""
    dtype = sites.linear.dtype
    return Progress(
        sites,
        sites,
        jnp.asarray(jnp.inf, dtype),
        stride,
        jnp.asarray(-jnp.inf, dtype),
        jnp.asarray(1.0, dtype),
        jnp.asarray(False),
        empty(sites.linear.size + sites.precision.size, dtype),
        jnp.asarray(0),
        jnp.asarray(0),
        jnp.asarray(-jnp.inf, dtype),
        jnp.asarray(0),
        jnp.asarray(False),
    )


Seen = tuple[Array, natural.Sites, Array, Array | None]
"""The bound at some sites, the target of a full step from there, its length, and the bend of shorter Newton steps."""

Evaluate = Callable[[natural.Sites, Stride | None], Seen]
"""What is seen at given sites."""


def _evaluator(seen: Views, normals: Array | None, coupling: Array | float, surrogate: Surrogate | None) -> Evaluate:
    within = same_latent(seen.program)

    def expected(q: Marginals) -> Array:
        return jnp.sum(seen.expected(q, normals, surrogate))

    def evaluate(sites: natural.Sites, stride: Stride | None) -> Seen:
        q, divergence, posteriors = natural.site_marginals(seen, sites)
        value, gradient = jax.value_and_grad(expected)(q)
        target = natural.site_target(q, gradient, coupling * (1.0 - within) + within)
        if stride is None:
            return value - divergence, target, jnp.sum(natural.step_lengths(q, sites, target)), None

        def slope(mean: Array) -> Array:
            return jax.grad(expected)(replace(q, mean=mean[None])).mean[0]

        target, bend = newton_target(seen, posteriors, q, slope, sites, target, stride.reach)
        return value - divergence, target, jnp.asarray(jnp.inf, value.dtype), bend

    return evaluate


def next_trial(p: Progress, units: natural.Sites) -> natural.Sites:
    """The sites to look at next."""
    here = natural.flatten_sites(p.sites, units)
    residual = natural.flatten_sites(p.target, units) - here
    fast = natural.unflatten_sites(propose(p.memory, here, residual), units, p.sites)
    plain = natural.blend(p.sites, p.target, p.step)
    return chosen(p.plain, plain if p.stride is None else p.stride.along(plain, p.step), fast)


def judged(p: Progress, trial: natural.Sites, seen: Seen, units: natural.Sites, tolerance: float) -> Progress:
    """What follows from what is seen at a trial."""
    value, target, length, bend = seen
    here = natural.flatten_sites(p.sites, units)
    residual = natural.flatten_sites(p.target, units) - here
    rounding = max(1e-12, ROUNDING * float(jnp.finfo(value.dtype).eps)) * jnp.abs(p.elbo)
    better = jnp.isfinite(value) & ((value >= p.elbo - rounding) | ~jnp.isfinite(p.elbo))
    there = natural.flatten_sites(trial, units)
    moved = remember(p.memory, there - here, natural.flatten_sites(target, units) - there - residual)
    moved = chosen(p.iterations > 0, moved, p.memory)
    small = better & (value - p.elbo < jnp.maximum(tolerance, rounding)) & (p.step >= 0.25)
    quiet = jnp.where(better, jnp.where(small, p.quiet + 1, 0), p.quiet)
    # a refused accelerated step is retried plain; a refused plain step is retried at half its length
    step = jnp.where(better, jnp.minimum(1.0, 2.0 * p.step), jnp.where(p.plain, 0.5 * p.step, p.step))
    short = step * jnp.maximum(_change(p.target, p.sites), 1.0) < SMALLEST_STEP
    top = jnp.where(better, value, p.elbo)
    risen = top > p.low + jnp.maximum(tolerance, rounding)  # no comparison with what is no number holds
    low, idle = jnp.where(risen, top, p.low), jnp.where(risen, 0, p.idle + 1)
    # what is left to gain falls as the squared length of the step does, by so much in this one
    fallen = jnp.where(p.step >= 1.0, p.length / length, 0.0)
    near = better & (fallen >= FALLEN) & (SURE * (value - p.elbo) < (fallen - 1.0) * tolerance)
    done = near | (quiet >= 3) | (better & (_change(target, trial) < SETTLED)) | short | (idle >= STALLED)
    stride = None if p.stride is None or bend is None else replace(p.stride, bend=bend)
    accepted = replace(p, sites=trial, target=target, length=length, stride=stride, elbo=value, memory=moved)
    refused = replace(p, memory=chosen(p.plain, p.memory, replace(p.memory, filled=jnp.zeros_like(p.memory.filled))))
    taken = chosen(better, accepted, refused)
    if taken.stride is not None:
        reach = taken.stride.after(better, step >= 1.0, p.plain)
        taken = replace(taken, stride=replace(taken.stride, reach=reach))
    return replace(
        taken,
        step=step,
        plain=~better | (step < 1.0),
        quiet=quiet,
        idle=idle,
        low=low,
        iterations=p.iterations + 1,
        done=done,
    )


def _change(a: natural.Sites, b: natural.Sites) -> Array:
    """Largest change between sites, relative to their size."""
    size = jnp.max(jnp.abs(b.precision)) + jnp.max(jnp.abs(b.linear)) + jnp.finfo(b.linear.dtype).tiny
    change = jnp.maximum(jnp.max(jnp.abs(a.precision - b.precision)), jnp.max(jnp.abs(a.linear - b.linear)))
    return change / size


# The best point of a search over the hyperparameters, when a ridge ends it, and which of several ends is attained.

RIDGE_ITERATIONS = 300
"""Most iterations on a ridge, by Newton's method."""

LITTLE, TRIALS, MOST = 1.0, 3, 20
"""A search ends where sites do not settle, at so many points in a row that gain less than so many nats, or so many in
all."""


FOLLOWED = (
    "latents are left independent of each other, because with their correlation q follows the errors of {samples} "
    "samples to a lower bound on fresh ones: ask for more samples, or posterior = full"
)


@dataclass
class Best:
    """The best point of a search, its sites and its bound."""

    point: Any
    sites: natural.Sites
    elbo: float = -np.inf
    idle: int = 0
    unsettled: int = 0
    """Points where the sites had not settled: in a row without a gain, and in all."""
    reason: str = ""
    """What makes ridges in this problem."""
    message: str = ""
    """How the search ended."""

    def see(self, point: Any, sites: natural.Sites, elbo: float, settled: bool) -> None:
        """Keep what is better. Raises Enough on a ridge that leads nowhere, or on and on."""
        self.idle = 0 if settled or elbo > self.elbo + LITTLE else self.idle + 1
        self.unsettled += not settled
        if elbo > self.elbo:
            self.point, self.sites, self.elbo = point, sites, elbo
        if self.idle == TRIALS or self.unsettled == MOST:
            why = f": {self.reason}" if self.reason else ""
            raise Enough(
                f"stopped on a ridge of the bound, where q does not settle in {RIDGE_ITERATIONS} iterations{why}; a "
                "fit with start= this one goes on"
            )


def why_ridges(problem: Problem) -> str:
    """What may make a ridge of the bound, as far as the model tells."""
    if problem.program.sampled:
        return f"it follows the errors of {problem.choice.samples} samples there, and more samples help"
    program, translator = problem.program, problem.program.translator
    symbols = set().union(*(o.log_density.free_symbols for o in program.observations))
    refs = [translator.references[symbol] for symbol in symbols]
    noisy = any(ref.name in program.parameters.initial for ref in refs)
    return "a noise that goes to zero makes such ridges" if noisy else ""


def attained(
    problem: Problem, ends: Sequence[Best], bound: Callable[[Any, natural.Sites, Any], Array]
) -> tuple[Best, str, tuple[float, float]]:
    """The last of the ends of searches, unless it follows its samples so far that an earlier one has a higher bound.

    With it, what is to be said of it if not what its search says, its bound and the standard error of that.
    """

    def assessed(best: Best) -> tuple[float, float]:
        return problem.reassessed(lambda normals: bound(best.point, best.sites, normals), best.elbo)

    *others, chosen = ((best, "", assessed(best)) for best in ends)
    for best, _, found in others if problem.program.sampled else ():
        if found[0] > chosen[2][0]:
            chosen = best, f"{best.message}; {FOLLOWED.format(samples=problem.choice.samples)}", found
    return chosen
