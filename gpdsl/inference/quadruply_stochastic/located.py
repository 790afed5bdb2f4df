"""Where the rows of a batch are: on the device with all others, or on disk, from which they are read when needed."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from gpdsl.data.table import stays_on_disk
from gpdsl.inference.problem import Problem, as_arrays
from gpdsl.program.program import take_rows
from gpdsl.program.rows import Rows

Index = Int[np.ndarray, "..."]


def located(problem: Problem, *indices: Index) -> tuple[Rows, tuple[Array, ...]]:
    """Rows that hold those of the indices, and the indices there, each in the shape given.

    These are all rows of the problem, or of memory maps the ones asked for.
    """
    if not any(map(stays_on_disk, jax.tree.leaves(problem.rows))):
        return problem.rows, tuple(map(jnp.asarray, indices))
    flat = np.concatenate([np.ravel(index) for index in indices])
    ends = np.cumsum([np.size(index) for index in indices])
    places = np.split(np.arange(len(flat)), ends[:-1])
    shaped = (jnp.asarray(place.reshape(index.shape)) for place, index in zip(places, indices, strict=True))
    return gathered(problem, flat), tuple(shaped)


def gathered(problem: Problem, index: Index) -> Rows:
    """Some rows by themselves, on the device."""
    return as_arrays(take_rows(problem.rows, index), problem.options.dtype)
