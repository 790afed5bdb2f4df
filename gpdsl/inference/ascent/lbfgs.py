"""L-BFGS over a pytree: SciPy's, with values that are not finite or absurd refused, and the best point kept."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
import scipy
from jaxtyping import Float

from gpdsl.inference.watch import honour_interrupts

Tree = Any

ENDINGS = {0: "converged", 1: "stopped at the limit of steps; set a larger steps to go on"}
"""Why SciPy's search ended, by its status."""


NO_BETTER = "stopped: the line search found no better point"

ROUNDED = "stopped by rounding, which hides what further steps would gain"
BY_SINGLE = f"{ROUNDED}: dtype = float64 shows it"

RESTARTS = 4
"""Searches, each without the memory of the one before, where rounding has misled the line search."""


ABYSS = 1e10
"""A value so far below all others counts like none that is finite: line searches interpolate from it to nowhere."""

BEYOND = 0.1
"""Share of the gain that its slope promises, by which a trial without a value lies below where its search began: as
if the function were level there, so that the next trial is a third as far."""


MARGIN = 4.0
"""Times what values have contradicted slopes by: up to so much is left to slopes."""


SHARE = 0.002
"""Of that, what slopes have to tell of a step for another one."""


class Enough(Exception):
    """An objective raises this when it is worth no more evaluations, and says why; the best point is the answer."""


class _Settled(Exception):
    """An iteration has gained next to nothing."""


@dataclass
class Outcome:
    """Best point seen, its value, and why the search ended."""

    point: Tree
    value: float
    message: str
    evaluations: int
    iterations: int = 0


def maximise(
    objective: Callable[[Tree], tuple[float, Tree]],
    start: Tree,
    *,
    steps: int,
    tolerance: float,
    report: Callable[[int, float], None],
    within: tuple[Tree, Tree] | None = None,
    size: float | None = None,
    units: Mapping[str, float] | Vector | None = None,
) -> Outcome:
    """Maximise `objective`, which gives value and gradient. A value that is not finite makes the line search back off.

    `within` are the least and the greatest values that every number of the point may take. `tolerance` is the smallest
    gain worth another iteration: relative to the value, or for each of the `size` observed values that it is a sum
    over. Other units of the outputs move a bound by a constant, and a rule that is relative to it stops elsewhere.
    `units` are lengths of first steps along leaves, by name, where they are not 1, or along every number: where maxima
    are close together.
    `Enough` ends the search with the best point so far. KeyboardInterrupt passes: `Remembered` has that point.
    """
    outcome = Outcome(start, -np.inf, "no finite value", 0)
    scale = units if isinstance(units, np.ndarray) else _lengths(start, units) if units else 1.0
    negative = _Negative(objective, partial(unflat, start), outcome, scale)
    least = 0.0 if size is None else tolerance * max(size, 1.0)
    iteration, reached = 0, -np.inf

    def between(_: np.ndarray) -> None:
        nonlocal iteration, reached
        iteration += 1
        outcome.iterations = iteration
        report(iteration, outcome.value)
        gain, reached = negative.best - reached, negative.best
        if size is not None and gain <= max(least, SHARE * negative.rounding) and not negative.refused:
            raise _Settled
        negative.begin(gain)

    ftol = tolerance if size is None else 0.0
    bounds = None if within is None else np.stack([flat(end) / scale for end in within], axis=1)
    options = {"maxiter": steps, "maxfun": 3 * steps, "ftol": ftol, "gtol": 1e-6, "maxcor": 20}
    try:
        for _ in range(RESTARTS):
            begun = outcome.value
            try:
                given = {"jac": True, "method": "L-BFGS-B", "bounds": bounds, "callback": between, "options": options}
                result = scipy.optimize.minimize(negative, flat(outcome.point) / scale, **given)
                outcome.message = ENDINGS.get(result.status, NO_BETTER)
            except _Settled:
                outcome.message = ENDINGS[0]
            if size is None or outcome.message == ENDINGS[1]:
                break
            settled, blind = outcome.message == ENDINGS[0], negative.contradicted > least
            if (settled and negative.rounding) or (not blind and (settled or outcome.value - begun <= least)):
                break
            reached = negative.by_slopes() if blind else reached
        else:
            outcome.message = rounded_at(outcome.point) if blind else outcome.message
        if not iteration and np.isfinite(outcome.value):  # it started where it ends
            report(1, outcome.value)
    except Enough as reason:
        outcome.message = str(reason)
    return outcome


def rounded_at(point: Tree) -> str:
    """Why a search ended whose values rounding has spoilt. In double precision there is no finer one to ask for."""
    single = any(np.asarray(leaf).dtype == np.float32 for leaf in jax.tree.leaves(point))
    return BY_SINGLE if single else ROUNDED


def flat(tree: Tree) -> np.ndarray:
    """Its numbers in the order of `ravel_pytree`, without its half a millisecond of small programs."""
    leaves = [np.ravel(np.asarray(leaf, dtype=float)) for leaf in jax.tree.leaves(tree)]
    return np.concatenate(leaves) if leaves else np.zeros(0)


def _lengths(tree: Tree, units: Mapping[str, float]) -> np.ndarray:
    """What the numbers of `flat` are counted in: `units` by the names of leaves, else 1."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return np.concatenate([np.full(leaf.size, units.get(getattr(path[-1], "key", ""), 1.0)) for path, leaf in leaves])


def unflat(like: Tree, numbers: Any) -> Tree:
    """The tree whose numbers `flat` gives so, like another one: of arrays of the types of its leaves."""
    leaves, tree = jax.tree.flatten(like)
    ends = np.cumsum([0, *(leaf.size for leaf in leaves)])
    parts = [numbers[start:end] for start, end in itertools.pairwise(ends)]
    found = [part.reshape(leaf.shape).astype(leaf.dtype) for part, leaf in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(tree, found)


@dataclass
class _Negative:
    """What SciPy minimises, on flat vectors; the best point goes into `outcome`.

    Where rounding is larger than what a step gains, values contradict slopes: searches by values end anywhere. Then
    differences of values that are no larger are those that slopes tell, which rounding leaves alone for longer.
    """

    objective: Callable[[Tree], tuple[float, Tree]]
    unravel: Callable[[np.ndarray], Tree]
    outcome: Outcome
    scale: Vector | float = 1.0
    worst: float = 0.0
    best: float = -np.inf
    rounding: float = 0.0
    """The highest value minimised, the best of the objective as it is told, and what rounding may hide."""
    last: _Seen | None = None
    base: _Seen | None = None
    """The last point, and that where the line search under way has begun."""
    refused: bool = False
    contradicted: float = 0.0
    """Whether that has met a point without a value, and by how much values have contradicted slopes since a gain as
    large."""

    def begin(self, gain: float = 0.0) -> None:
        """A line search begins where the last one has ended, after a gain: at the last point that was asked about."""
        self.base, self.refused = self.last, False
        if gain > self.contradicted:
            self.contradicted = 0.0

    def by_slopes(self) -> float:
        """From now on slopes tell differences as small as those that values had wrong. Begins anew, from nothing."""
        self.rounding = max(self.rounding, MARGIN * self.contradicted)
        self.last = self.base = None
        self.best, self.contradicted = -np.inf, 0.0
        return self.best

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        outcome, point = self.outcome, self.unravel(x * self.scale)
        found, gradient = self.objective(point)
        outcome.evaluations += 1
        value, slope = -float(found), -flat(gradient) * self.scale
        fallen = np.isfinite(outcome.value) and value > max(self.worst, 0.0) + ABYSS
        if fallen or not (np.isfinite(value) and np.all(np.isfinite(slope))):
            self.refused = True
            # A value that makes the line search come back from a point without one, and not all the way.
            base, far = self.base, max(self.worst, 0.0) + ABYSS
            level = far if base is None else base.told + BEYOND * abs(float(base.slope @ (x - base.x)))
            return level, np.zeros_like(x)
        self.worst = max(self.worst, value)
        if -value > outcome.value:
            outcome.point, outcome.value = point, -value
        honour_interrupts()
        told, base = value, self.base
        if base is not None:
            step = x - base.x
            by_values, by_slopes = value - base.value, 0.5 * float((base.slope + slope) @ step)
            off, bend = abs(by_values - by_slopes), abs(float((slope - base.slope) @ step))
            if off > bend:  # what smooth functions are not off by
                self.contradicted = max(self.contradicted, off)
            told = base.told + (by_slopes if off <= self.rounding else by_values)
        self.best = max(self.best, -told)
        self.last = _Seen(x.copy(), value, told, slope)
        if base is None:
            self.begin()
        return told, slope


@dataclass(frozen=True)
class _Seen:
    """A point, its value, that which SciPy was told, and its slope."""

    x: np.ndarray
    value: float
    told: float
    slope: np.ndarray


class Remembered:
    """An objective that remembers the best point it was asked about."""

    def __init__(self, objective: Callable[[Tree], tuple[float, Tree]], start: Tree) -> None:
        self.objective = objective
        self.best = Outcome(start, -np.inf, "", 0)

    def __call__(self, point: Tree) -> tuple[float, Tree]:
        value, gradient = self.objective(point)
        if np.isfinite(value) and value > self.best.value and np.all(np.isfinite(flat(gradient))):
            self.best = Outcome(point, float(value), "", 0)
        return value, gradient


def looked_at(
    objective: Callable[[Tree], tuple[float, Tree]], point: Tree, report: Callable[[int, float], None]
) -> Outcome:
    """The outcome where nothing is there to be searched for."""
    outcome = Outcome(point, float(objective(point)[0]), ENDINGS[0], 1)
    report(1, outcome.value)
    return outcome


# Off saddles: where a search has ended, the curvature is looked at, and where it bends upwards the search goes on.
#
# A gradient of zero is no maximum: a loading of zero, or two latents that are equal, hold a search where symmetry has
# put it. A few Lanczos steps, each a difference of two gradients, find the direction in which the objective bends
# upwards most (Golub and Van Loan 2013, section 10.1); a step along it, to the better side, is where the next search
# begins.

LANCZOS = 8
"""Most differences of gradients that one look takes."""

DIFFERENCE = 1e-3
"""Length of the steps that they are taken over, in unconstrained parameters."""

UPWARDS = 1e-4
"""Curvature, as a share of the strongest there is, from which a direction bends upwards."""

STEP, WORTH = 0.3, 0.05
"""Length of the step off a saddle, and nats that it has to promise: rounding bends flat directions upwards too."""

LOOKS = 3
"""Saddles that one search may leave."""

Vector = Float[np.ndarray, "d"]
Objective = Callable[[Tree], tuple[float, Tree]]


def maximise_off_saddles(
    objective: Objective, start: Tree, *, report: Callable[[int, float], None], **asked: Any
) -> Outcome:
    """`maximise`, and again from beside every saddle that it ends at; `asked` are its other arguments."""
    done = 0

    def following(step: int, value: float) -> None:
        report(done + step, value)

    best = maximise(objective, start, report=following, **asked)
    for _ in range(LOOKS):
        if best.message != ENDINGS[0]:
            break
        done += best.iterations
        beside = _beside(objective, best, asked["tolerance"] * max(asked["size"], 1.0))
        if beside is None:
            break
        found = maximise(objective, beside, report=following, **asked)
        if not found.value > best.value:
            return best
        best = found
    return best


def _beside(objective: Objective, at: Outcome, gain: float) -> Tree | None:
    """A point beside a saddle, None where the curvature is that of a maximum as far as a few differences tell."""
    centre, point = flat(at.point), partial(unflat, at.point)

    def slope(where: Vector) -> Vector:
        return flat(objective(point(where))[1])

    found = upwards(slope, centre)
    if found is None or 0.5 * found[1] * STEP**2 < max(gain, WORTH):
        return None
    sides = [point(centre + side * STEP * found[0]) for side in (1.0, -1.0)]
    return max(sides, key=lambda side: np.nan_to_num(objective(side)[0], nan=-np.inf))


def upwards(slope: Callable[[Vector], Vector], centre: Vector) -> tuple[Vector, float] | None:
    """The direction in which a function bends upwards most, and its curvature there; None where it bends down.

    `slope` is its gradient. The directions tried are those of Lanczos's recurrence from a random one, made orthogonal.
    """
    here = slope(centre)
    direction = np.random.default_rng(0).standard_normal(len(centre))
    basis: list[Vector] = []
    images: list[Vector] = []
    for _ in range(min(LANCZOS, len(centre))):
        for known in basis:
            direction = direction - (known @ direction) * known
        length = float(np.linalg.norm(direction))
        if not length > 1e-8:
            break
        basis.append(direction / length)
        images.append((slope(centre + DIFFERENCE * basis[-1]) - here) / DIFFERENCE)
        direction = images[-1]
    whole = np.stack(basis)
    projected = whole @ np.stack(images).T
    if not np.all(np.isfinite(projected)):
        return None
    curvature, combinations = np.linalg.eigh(0.5 * (projected + projected.T))
    if not curvature[-1] > UPWARDS * np.max(np.abs(curvature)):
        return None
    return combinations[:, -1] @ whole, float(curvature[-1])
