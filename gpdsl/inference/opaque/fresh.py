"""The bound of an opaque likelihood where steps ended, by evaluations that led none of them, and its standard error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.inference.estimators.expected_log_likelihood import expected_log_likelihood
from gpdsl.inference.estimators.sampling import some_rows_sum_and_error
from gpdsl.inference.opaque.budget import assessed_rows, assessing, looks
from gpdsl.inference.problem import Problem
from gpdsl.program.joint import Marginals
from gpdsl.program.program import take_rows
from gpdsl.program.rows import Rows

AFTERWARDS = 2_000_000
"""Offset of the random streams of evaluations after the last step."""

Look = Callable[[Rows, Array], tuple[Any, Any]]


def by_halves(
    problem: Problem,
    parameters: Mapping[str, Array],
    rows: Rows,
    q: Marginals,
    weights: Float[Array, "K"],
    normals: Float[Array, "S K rows latents"],
    values: Mapping[str, Array],
) -> Float[Array, "2 rows"]:
    """Each row's expected log likelihood by either half of the samples, which know nothing of each other."""
    half = len(normals) // 2
    found = []
    for part in (slice(0, half), slice(half, None)) if half else (slice(None),):
        some = {key: value[part] for key, value in values.items()}
        found.append(weights @ expected_log_likelihood(problem.program, parameters, rows, q, normals[part], some))
    return jnp.stack(found)


def fresh_bound(problem: Problem, look: Look, seed: int) -> tuple[float, float] | None:
    """The bound and its standard error, as far as the budget goes; None where it allows for no look.

    `look` evaluates the functions at samples of a key, and gives what `by_halves` does and what the bound has besides.
    """
    count, choice, program = problem.count, problem.choice, problem.program
    times = looks(program, assessing(program, choice, count))
    if not times:
        return None
    key, some = jax.random.fold_in(jax.random.key(seed), AFTERWARDS), assessed_rows(choice, count)
    rows = problem.rows
    if some < count:
        rows = take_rows(rows, np.sort(np.random.default_rng([seed, 1]).choice(count, some, replace=False)))
    found = [look(rows, jax.random.fold_in(key, number)) for number in range(times)]
    estimates = np.concatenate([np.asarray(each, float) for each, _ in found])
    total, error = some_rows_sum_and_error(estimates, count)
    return total + float(found[0][1]), error
