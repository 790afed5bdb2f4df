"""Whether rows say several things of a latent: a likelihood times the prior with two peaks of about the same height.

Which of them q is at is chance then, and rows may hold each other at the worse ones: searches from elsewhere tell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.inference.estimators.expected_log_likelihood import log_density
from gpdsl.inference.fineness import prior_widths
from gpdsl.inference.problem import Problem, as_arrays
from gpdsl.program.evaluation import prior_means
from gpdsl.program.program import take_rows
from gpdsl.program.rows import Rows, Scope, row_count
from gpdsl.symbolic.concavity import log_concavity

ROWS = 100
"""Rows looked at, spread evenly."""

NORMALS = np.linspace(-4.0, 4.0, 81)
"""Where each latent is put, in prior standard deviations about its mean, the others at theirs."""

CLOSE, VALLEY = 3.0, 0.5
"""Nats that a peak may be lower than the highest to count, and that it has to stand above the valley between."""


def rows_have_peaks(problem: Problem) -> bool:
    """Whether some row has two peaks in one of its latents, at the start."""
    program = problem.program
    fixed = program.sampled or program.opaque or program.conjugate or problem.choice.batch or problem.rows.mesh
    if fixed or not program.groups or log_concavity(program.translator, program.observations).holds:
        return False
    step = max(problem.count // ROWS, 1)
    some = problem.rows if step == 1 else take_rows(problem.rows, slice(None, None, step))
    given = as_arrays(problem.parameters, problem.options.dtype), some
    widths = jnp.asarray(prior_widths(problem, program.parameters.constrain(given[0]), some))
    profiles = np.asarray(problem.shared(_profiles, *given, widths, brief=True)(*given, widths), float)
    return any(_two_peaks(profile) for profile in profiles.reshape(len(NORMALS), -1).T)


def _profiles(problem: Problem, _: Any) -> Callable[..., Float[Array, "grid columns rows"]]:
    """Log density of each row times the prior's, along each of its latents."""
    program = problem.program

    def profiles(learnt: dict[str, Array], rows: Rows, widths: Float[Array, " columns"]) -> Array:
        parameters, count = program.parameters.constrain(learnt), row_count(rows)
        means = prior_means(program.evaluator, program.groups, parameters, rows, count)
        normals = jnp.asarray(NORMALS, widths.dtype)
        moves = normals[:, None, None] * jnp.diag(widths)  # [grid, which, columns]
        scope = Scope(parameters, rows, means + moves[:, :, None, :])
        shape = (len(normals), len(widths), count)
        return log_density(program, scope, shape) - 0.5 * normals[:, None, None] ** 2

    return profiles


def _two_peaks(profile: Float[np.ndarray, " grid"]) -> bool:
    """Whether a second peak comes near the highest, with a valley between them."""
    if not np.isfinite(profile).any():
        return False
    values = np.nan_to_num(profile, nan=-np.inf)
    top = int(np.argmax(values))
    for side in (values[top::-1], values[top:]):
        lowest = np.minimum.accumulate(side)
        if np.any((side > lowest + VALLEY) & (side > side[0] - CLOSE)):
            return True
    return False
