"""Where a search on many rows begins: at the end of one on some of them, in the coordinates of the curvature there.

An evaluation on a quarter of the rows costs a 64th. The log evidence of all is about four times as curved, so that
coordinates in which the curvature of some is the unit matrix leave the search on all rows little to find out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from gpdsl.inference.ascent.lbfgs import Outcome, Remembered, maximise
from gpdsl.inference.exact.evidence import Evidence, Learnt, evidence_of
from gpdsl.inference.exact.system import make_system
from gpdsl.inference.problem import Problem
from gpdsl.program.program import take_rows

SAMPLED_FROM, SHARE, ROUGHLY = 1000, 4, 1e-6
"""Rows from which a search begins on one of so many of them, to this gain in nats for each observed value.

Measured at 1000 rows of five columns: within 0.001 nats after 4 evaluations of all rows, 26 from the start itself.
"""

STEP = 1e-4
"""Of differences of gradients, in unconstrained parameters."""

LENGTHS, SEARCHED = (0.3, 0.1, 0.03, 0.01), 2
"""Multiples of the length-scales that the data suggest which are looked at, and how many of them begin a search."""

MOST = 100
"""Learnt numbers up to which their curvature is worked out, by two evaluations each."""


@dataclass(frozen=True)
class OnSome:
    """The end of a search on some rows, and a root of the inverse curvature that all rows should have there."""

    outcome: Outcome
    root: Float[np.ndarray, "d d"]

    @property
    def origin(self) -> Any:
        """Where the search on all rows begins, in its own coordinates."""
        return jnp.zeros(len(self.root))

    def place(self, at: Float[Array, " d"]) -> Learnt:
        """The parameters at some coordinates."""
        flat, unravel = ravel_pytree(self.outcome.point)
        return unravel(flat + jnp.asarray(self.root @ np.asarray(at, float), flat.dtype))

    def conditioned(self, evidence: Evidence) -> Evidence:
        """The evidence in these coordinates."""

        def of(at: Float[Array, " d"]) -> tuple[float, Array]:
            value, gradient = evidence(self.place(at))
            return value, jnp.asarray(self.root.T @ np.asarray(ravel_pytree(gradient)[0], float))

        return of  # type: ignore[return-value]


@dataclass(frozen=True, eq=False)
class SomeRows:
    """A problem about a random share of the rows, and their evidence."""

    problem: Problem
    evidence: Remembered

    def searched(self) -> OnSome | None:
        """The end of a rough search; None where that says nothing."""
        found = rough_search(self.problem, self.evidence, starts(self.problem, self.evidence))
        return OnSome(found, _root(self.evidence, found.point)) if np.isfinite(found.value) else None


def some_rows(problem: Problem) -> SomeRows | None:
    """A random share of the rows; None where that says nothing."""
    rng = np.random.default_rng(problem.options.seed)
    numbers = np.sort(rng.choice(problem.count, problem.count // SHARE, replace=False))
    some = replace(problem, rows=take_rows(problem.rows, numbers), count=len(numbers))
    system = make_system(some.program, some.rows)
    if system is None or not system.parts:
        return None
    return SomeRows(some, Remembered(evidence_of(some, system), some.parameters))


def starts(problem: Problem, evidence: Evidence) -> list[Learnt]:
    """Where searches begin: at the start and, where no length-scale has a given value, at the best shorter ones.

    A signal of several scales has a maximum at each of them, and from the longest a search takes the rest for noise. A
    few evaluations tell which of the shorter ones are worth a search.
    """
    data, learnt = problem.program.parameters.data, problem.parameters
    short = [n for n in data.lengths if n in learnt and _on_log_scale(problem, n)]
    if not short or data.given & set(data.lengths):
        return [learnt]
    shorter = [{n: v + np.log(factor) if n in short else v for n, v in learnt.items()} for factor in LENGTHS]
    values = np.nan_to_num([evidence(at)[0] for at in shorter], nan=-np.inf)
    return [learnt, *(shorter[place] for place in np.argsort(-values)[:SEARCHED])]


def rough_search(problem: Problem, evidence: Evidence, begin: Sequence[Learnt]) -> Outcome:
    """The best end of rough searches from several places."""
    best = Outcome(problem.parameters, -np.inf, "no value", 0)
    for at in begin:
        nothing, size = lambda step, value: None, problem.observed
        found = maximise(evidence, at, steps=problem.choice.steps, tolerance=ROUGHLY, report=nothing, size=size)
        best = found if found.value > best.value else best
    return best


def _on_log_scale(problem: Problem, name: str) -> bool:
    declared = problem.program.declarations.params[name]
    return declared.constraint == "positive" and declared.lower is None and declared.upper is None


def _root(evidence: Evidence, point: Learnt) -> Float[np.ndarray, "d d"]:
    """A root of the inverse of minus the Hessian, times the share; where that is flat, steps of one remain."""
    flat, unravel = ravel_pytree(point)
    size = len(flat)
    if size > MOST:
        return np.eye(size)

    def slope(at: np.ndarray) -> np.ndarray:
        return np.asarray(ravel_pytree(evidence(unravel(jnp.asarray(at, flat.dtype)))[1])[0], float)

    centre, steps = np.asarray(flat, float), STEP * np.eye(size)
    hessian = np.stack([slope(centre + step) - slope(centre - step) for step in steps]) / (2.0 * STEP)
    if not np.all(np.isfinite(hessian)):
        return np.eye(size)
    curvature, directions = np.linalg.eigh(-0.5 * SHARE * (hessian + hessian.T))
    return directions / np.sqrt(np.maximum(np.abs(curvature), 1.0))
