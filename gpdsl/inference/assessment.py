"""The bound of all rows at the end of a search that saw some of them at a time, exact but for the samples it needs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from jaxtyping import Array

from gpdsl.inference.bound import elbo
from gpdsl.inference.problem import Problem
from gpdsl.kernels.functionals import Functionals
from gpdsl.program.rows import Rows


def complete(state: Mapping[str, Any], held: list[Functionals]) -> dict[str, Any]:
    """The state with the inducing inputs that do not move."""
    return {"inducing": held, **state}


def whole_bound(
    problem: Problem, state: Mapping[str, Any], rows: Rows, held: list[Functionals], normals: Any, jitter: Any
) -> Array:
    """The bound from all rows, block by block where they are many; `normals` are samples of all of them, if any."""
    return elbo(problem.program, problem.layout, complete(state, held), rows, problem.count, normals, None, jitter)


def assessed(problem: Problem, state: Mapping[str, Any]) -> tuple[float, float]:
    """The bound of all rows at a state and its standard error, 0 where nothing is sampled. Nothing may be opaque."""
    given = state, problem.rows, problem.inducing
    bound = problem.compiling(partial(whole_bound, problem))
    if problem.program.sampled:
        return problem.reassessed(lambda n: bound(*given, n, problem.jitter), 0.0)
    return float(bound(*given, None, problem.jitter)), 0.0
