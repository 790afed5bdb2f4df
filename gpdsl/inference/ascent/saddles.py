"""Off saddles: where a search has ended, the curvature is looked at, and where it bends upwards the search goes on.

A gradient of zero is no maximum: a loading of zero, or two latents that are equal, hold a search where symmetry has
put it. A few Lanczos steps, each a difference of two gradients, find the direction in which the objective bends upwards
most (Golub and Van Loan 2013, section 10.1); a step along it, to the better side, is where the next search begins.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Float

from gpdsl.inference.ascent.lbfgs import ENDINGS, Outcome, Tree, maximise

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
    objective: Objective,
    start: Tree,
    *,
    steps: int,
    tolerance: float,
    report: Callable[[int, float], None],
    size: float,
) -> Outcome:
    """`maximise`, and again from beside every saddle that it ends at; `size` is the number of observed values."""
    done = 0

    def following(step: int, value: float) -> None:
        report(done + step, value)

    best = maximise(objective, start, steps=steps, tolerance=tolerance, report=following, size=size)
    for _ in range(LOOKS):
        if best.message != ENDINGS[0]:
            break
        done += best.iterations
        beside = _beside(objective, best, tolerance * max(size, 1.0))
        if beside is None:
            break
        found = maximise(objective, beside, steps=steps, tolerance=tolerance, report=following, size=size)
        if not found.value > best.value:
            return best
        best = found
    return best


def _beside(objective: Objective, at: Outcome, gain: float) -> Tree | None:
    """A point beside a saddle, None where the curvature is that of a maximum as far as a few differences tell."""
    flat, unravel = ravel_pytree(at.point)
    centre = np.asarray(flat, float)

    def point(where: Vector) -> Tree:
        return unravel(jnp.asarray(where, flat.dtype))

    def slope(where: Vector) -> Vector:
        return np.asarray(ravel_pytree(objective(point(where))[1])[0], float)

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
