"""Dense fits of nearly as many rows share their programs: rows in which nothing is observed fill them up.

Compiling takes longer than such a fit, and the folds of a cross-validation differ by a row. Copies of the first come
last, and nothing is observed in them: q is the prior's there given the others, and says nothing of these. What a result
holds of the first rows is what it would hold without the copies.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from gpdsl.inference.blocks import first_again, unobserved_after
from gpdsl.inference.natural.row_space import in_row_space
from gpdsl.inference.problem import Problem, Result, as_arrays
from gpdsl.kernels.functionals import Values

EACH = 16
"""Rows are filled up to a multiple of so many."""

LEAST, FEW = 128, 2000
"""Rows below which so many more would be a tenth of them, and above which no program takes as long as its runs."""


def filled_up(problem: Problem) -> Problem:
    """The problem with more rows, where it is one whose programs depend on how many there are; else as it is."""
    more = -problem.count % EACH
    plain = all(isinstance(each, Values) and len(each) == problem.count for each in problem.inducing)
    fits = LEAST <= problem.count <= FEW and plain and not problem.program.sampled and in_row_space(problem)
    if not more or not fits:
        return problem
    longer = unobserved_after(problem.rows, more), first_again(problem.inducing, more)
    rows, inducing = as_arrays(longer, problem.options.dtype)
    return replace(problem, rows=rows, count=problem.count + more, inducing=inducing)


def of_first(result: Result, rows: int) -> Result:
    """What a result says of the first rows, which the later ones have not touched."""

    def first(tree: Any) -> Any:
        return jax.tree.map(lambda a: np.asarray(a)[:rows], tree)

    posterior = [replace(q, mean=q.mean[..., :rows], root=q.root[..., :rows, :rows]) for q in result.posterior]
    return replace(result, inducing=first(result.inducing), posterior=posterior, sites=first(result.sites))
