"""The bound of all rows at the end of a search that saw some of them at a time, exact but for the samples it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from jaxtyping import Array

from gpdsl.inference.bound import elbo
from gpdsl.inference.problem import Problem
from gpdsl.kernels.functionals import Functionals
from gpdsl.program.rows import Rows

STAYED = "stopped where it started: these steps found nothing better"
"""Message of a fit that goes on from another and ends below it."""


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
    return _assessing(problem)(state)


def better(
    problem: Problem, first: Mapping[str, Any] | None, last: Mapping[str, Any]
) -> tuple[Mapping[str, Any], tuple[float, float], bool]:
    """The end of a search, or its start from another fit (if it is one) where that has the higher bound of all rows.

    With that bound, its standard error, and whether it is the start. Samples are the same for both.
    """
    assess = _assessing(problem)
    at_last = assess(last)
    if first is None:
        return last, at_last, False
    at_first = assess(first)
    return (last, at_last, False) if at_last[0] >= at_first[0] else (first, at_first, True)


def _assessing(problem: Problem) -> Callable[[Mapping[str, Any]], tuple[float, float]]:
    bound = problem.compiling(partial(whole_bound, problem))

    def assess(state: Mapping[str, Any]) -> tuple[float, float]:
        given = state, problem.rows, problem.inducing
        if problem.program.sampled:
            return problem.reassessed(lambda n: bound(*given, n, problem.jitter), 0.0)
        return float(bound(*given, None, problem.jitter)), 0.0

    return assess
