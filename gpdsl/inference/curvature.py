"""How far the data determine what is learnt: the curvature of the evidence at the end of a search.

It is the matrix -d^2 log Z / du^2 over the learnt parameters u on the real line, with log Z the evidence or its bound
maximised over q, log priors included, by central differences of its gradient: the inverse is the covariance of a normal
approximation of p(u | y). The bound at a q that stays would be far too steep.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Float

from gpdsl.inference.ascent.lbfgs import flat
from gpdsl.inference.integrated.explore import WIDEST
from gpdsl.inference.integrated.profile import Learnt, Profile
from gpdsl.program.compilation import jit
from gpdsl.program.parameters import Parameters
from gpdsl.program.program import Program

STEP = 1e-3
"""Of a difference, on the real line: parameters are in units of the data, positive ones by their logarithms."""

WIDEST_REAL = 100.0
"""The same of parameters of either sign as `WIDEST` of others, in the units in which they are searched for."""

OTHER = 1e-3
"""Nats an observed value by which the bound may differ from that of the search, if it is the same maximum over q."""


MOVED = 0.1
"""Share of a flat direction from which it leaves an element open."""


class Unknown(Exception):
    """Why there is no curvature, in words for the user."""


@dataclass(frozen=True, eq=False)
class Curvature:
    """At `place`, the learnt parameters on the real line: the matrix, and the gradient of the evidence.

    `names` are those of the elements, `widest` the standard deviations on the real line beyond which an element is not
    determined.
    """

    names: tuple[str, ...]
    place: Float[np.ndarray, " d"]
    matrix: Float[np.ndarray, "d d"]
    slope: Float[np.ndarray, " d"]
    widest: Float[np.ndarray, " d"]

    def directions(self) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d d"]]:
        """Curvatures in units of `widest`, smallest first, and their directions, as columns: flat ones are below 1."""
        values, vectors = np.linalg.eigh(self.matrix * self.widest * self.widest[:, None])
        return values, vectors

    @property
    def covariance(self) -> Float[np.ndarray, "d d"]:
        """Of the normal approximation; infinite where a flat direction moves an element."""
        values, vectors = self.directions()
        known = values >= 1.0
        axes = vectors[:, known] * self.widest[:, None]
        found = (axes / values[known]) @ axes.T
        moved = np.any(np.abs(vectors[:, ~known]) > MOVED, axis=1)
        found[moved, :] = found[:, moved] = np.nan
        found[moved, moved] = np.inf
        return found

    @property
    def left(self) -> float:
        """Nats that a step of Newton's method would still gain, along what is determined."""
        values, vectors = self.directions()
        along = (self.slope * self.widest) @ vectors
        return float(0.5 * np.sum(along[values >= 1.0] ** 2 / values[values >= 1.0]))


def curvature(
    program: Program, profile: Profile, learnt: Learnt, bound: float | None, rows: int, seconds: float
) -> Curvature:
    """At the end of a search, by two evaluations of the gradient for each element, in so many seconds at most.

    `bound` is what the search has ended with, None where that is a mean over other samples. Raises Unknown.
    """
    place, unravel = flat(dict(learnt)), ravel_pytree(dict(learnt))[1]

    def slope(at: np.ndarray) -> tuple[float, np.ndarray]:
        found, gradient = profile(unravel(jnp.asarray(at)))
        told = flat(dict(gradient))
        if not (np.isfinite(found) and np.all(np.isfinite(told))):
            raise Unknown("the evidence is not finite beside the end of the search")
        return float(found), told

    slope(place)  # what is compiled, or found anew, is found once
    begun = time.perf_counter()
    here, gradient = slope(place)
    needed = 2 * len(place) * (time.perf_counter() - begun)
    if bound is not None and not abs(here - bound) < OTHER * rows:
        raise Unknown(f"the bound has another maximum over q at its end: {here:.6g} and not {bound:.6g} nats")
    if needed > seconds:
        raise Unknown(f"{2 * len(place)} evaluations would take about {needed:.1g} s; ask for diagnose = full")
    steps = STEP * np.eye(len(place))
    rows_of = np.asarray([(slope(place - step)[1] - slope(place + step)[1]) / (2 * STEP) for step in steps])
    declared = program.declarations.params
    real = {n for n in learnt if (p := declared[n]).constraint == "real" and p.lower is None and p.upper is None}
    widest = flat({n: np.full(np.shape(v), WIDEST_REAL if n in real else WIDEST) for n, v in learnt.items()})
    return Curvature(_names(program.parameters, learnt), place, 0.5 * (rows_of + rows_of.T), gradient, widest)


def _names(parameters: Parameters, learnt: Learnt) -> tuple[str, ...]:
    """Of all elements in the order of `flat`; those of a simplex and the like have the name of the whole."""
    found: list[str] = []
    for name in sorted(learnt):
        own = np.shape(learnt[name]) == np.shape(parameters.initial[name])
        places = np.ndindex(*np.shape(learnt[name]))
        found += [f"{name}[{','.join(str(i + 1) for i in at)}]" if own and at else name for at in places]
    return tuple(found)


def natural_errors(parameters: Parameters, found: Curvature, learnt: Learnt) -> dict[str, np.ndarray]:
    """Standard errors of the learnt parameters in their domains, by the delta method; infinite where undetermined."""
    unravel = ravel_pytree(dict(learnt))[1]
    constrain = jit(parameters.constrain, brief=True)
    moved = [
        {name: np.asarray(value, float) for name, value in constrain(unravel(jnp.asarray(found.place + step))).items()}
        for step in np.concatenate([STEP * np.eye(len(found.place)), -STEP * np.eye(len(found.place))])
    ]
    count, covariance = len(found.place), found.covariance
    errors = {}
    for name in parameters.initial:
        slopes = np.stack([moved[i][name] - moved[count + i][name] for i in range(count)], axis=-1) / (2 * STEP)
        errors[name] = _spread(slopes.reshape(-1, count), covariance).reshape(slopes.shape[:-1])
    return errors


def _spread(slopes: Float[np.ndarray, "elements d"], covariance: Float[np.ndarray, "d d"]) -> np.ndarray:
    """Standard deviations of what is linear with these slopes."""
    spread = np.empty(len(slopes))
    for number, each in enumerate(slopes):
        own = np.flatnonzero(each)
        spread[number] = np.sqrt(each[own] @ covariance[np.ix_(own, own)] @ each[own])
    return np.where(np.isnan(spread), np.inf, spread)
