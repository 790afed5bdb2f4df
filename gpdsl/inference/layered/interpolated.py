"""Moments of many passes from those of few, where one number is all that the arguments of a row differ in.

A latent of a row variable, f(x, w), is asked for its moments at hundreds of values of w in each row, the same ones in
all. As functions of w they are as smooth as the kernel: a polynomial through Chebyshev points has all of their digits,
or coefficients that do not fall tell that it has not. Then there are no numbers, and who asked computes every pass: a
program for that is made when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.inference.layered.propagation import Layers
from gpdsl.kernels.functionals import Functionals, Values
from gpdsl.program.groups import Group

Moments = tuple[Float[Array, "latents points"], Float[Array, "latents points"]]

FEW, MANY = 64, 128
"""Chebyshev points in place of four times as many passes, and of eight times as many."""

LAST, NOTHING = 8, 4e-12
"""What part of the coefficients is looked at, the last ones, and how small these are where more change nothing."""


def column_of(layers: Layers, group: Group) -> int | None:
    """The column of the one row variable, a number, that the arguments of a group differ in; None for others."""
    program, sampled = layers.program, set(group.inputs) & layers.program.inner
    if group.per_row or len(group.readings.all) > 1 or not sampled <= program.declarations.rows.keys():
        return None
    columns = [c for g in program.groups if sampled & set(g.names) for c in range(g.start, g.stop) if len(g.names) == 1]
    return columns[0] if len(sampled) == len(columns) == 1 else None


def points_for(passes: int) -> int:
    """Chebyshev points in place of so many passes; 0 where these are too few."""
    return 0 if passes < 4 * FEW else FEW if passes < 8 * MANY else MANY


def interpolated(
    moments: Callable[[Functionals], Moments], at: Functionals, deviates: Float[np.ndarray, " S"]
) -> Moments:
    """Moments at the points [S * rows], of one pass after the other, that are linear in the deviate of the pass.

    NaN where few passes do not tell those of all.
    """
    assert isinstance(at, Values)
    passes, count = len(deviates), points_for(len(deviates))
    points = at.points.reshape(passes, -1, at.points.shape[-1])
    low, high = int(np.argmin(deviates)), int(np.argmax(deviates))
    reach = float(np.max(np.abs(deviates)))
    slope = (points[high] - points[low]) / (deviates[high] - deviates[low])
    middle = points[low] - slope * deviates[low]
    angles = np.pi * (np.arange(count) + 0.5) / count
    chosen = middle + slope * jnp.asarray(reach * np.cos(angles), points.dtype)[:, None, None]
    values = jnp.stack(moments(Values(chosen.reshape(-1, points.shape[-1]))))
    values = values.reshape(*values.shape[:2], count, -1)
    orders = np.arange(count)
    analysis = 2.0 / count * np.cos(orders[:, None] * angles) / np.where(orders == 0, 2.0, 1.0)[:, None]
    synthesis = np.cos(np.arccos(np.clip(deviates / reach, -1.0, 1.0))[:, None] * orders)
    last = jnp.einsum("kc,mlcn->mlkn", jnp.asarray(analysis[-count // LAST :]), values)
    right = jnp.max(jnp.abs(last)) <= NOTHING * jnp.maximum(1.0, jnp.max(jnp.abs(values)))

    found = jnp.einsum("sc,mlcn->mlsn", jnp.asarray(synthesis @ analysis), values)
    found = jnp.where(right, found.reshape(*values.shape[:2], -1), jnp.nan)
    return found[0], jnp.maximum(found[1], 0.0)
