"""The bound of an opaque likelihood where steps ended, by evaluations that led none of them, and its standard error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.inference.estimators.expected_log_likelihood import expected_log_likelihood
from gpdsl.inference.estimators.sampling import some_rows_sum_and_error, sum_and_error
from gpdsl.inference.natural.sites import Sites
from gpdsl.inference.opaque.budget import HELD_OUT, assessed_rows, assessing, looks
from gpdsl.inference.opaque.evaluations import Gaussian, Points
from gpdsl.inference.opaque.simulator import Simulator
from gpdsl.inference.opaque.surrogate import Surrogate, hermite
from gpdsl.inference.problem import FRESH_SETS, Problem
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


# The bound of a fit with surrogates, by evaluations that chose neither q nor the surrogates, and its standard error.
#
# What surrogates leave unexplained at the points that they were fitted to, and q with them, understates what they leave
# elsewhere, most of all at a kink. So the last evaluations of a fit are made where it ends:
#
#     E_q[log p] = E_q[log p(surrogate)] + E_q[log p(true) - log p(surrogate)],
#
# the first by samples, which cost nothing, the second by a few sets of points that know nothing of each other.


def held_out_bound(
    simulator: Simulator,
    place: tuple[Any, Sites, Gaussian],
    surrogate: Surrogate,
    points: int,
    normals: Callable[[int], Array | None],
    seed: Sequence[int],
) -> tuple[float, float]:
    """The bound at a place and its standard error; `normals` gives samples for the surrogates by number."""
    point, sites, q = place
    alone = without_residual(surrogate)
    bounds = [simulator.bound(point, sites, normals(number), alone) for number in range(1, FRESH_SETS + 1)]
    return sum_and_error(np.asarray(bounds), _left_open(simulator, point, q, surrogate, points, seed))


def without_residual(surrogate: Surrogate) -> Surrogate:
    """The polynomials alone."""
    names = ("level", "slope", "curvature")
    nothing: dict[str, Any] = {name: jnp.zeros_like(getattr(surrogate, name)) for name in names}
    if surrogate.anchors is not None:
        weights, level = map(jnp.zeros_like, (surrogate.anchors.weights, surrogate.anchors.level))
        nothing["anchors"] = replace(surrogate.anchors, weights=weights, level=level)
    return replace(surrogate, **nothing)


def _left_open(
    simulator: Simulator, point: Any, q: Gaussian, surrogate: Surrogate, points: int, seed: Sequence[int]
) -> Float[np.ndarray, "sets rows"]:
    """What true values add to the log density of the surrogates' in every row, by each set of points.

    Parameters that functions read are where they are, not about it.
    """
    rows, width = q.mean.shape
    sets = min(HELD_OUT, points)
    each, seeds = points // sets, np.random.SeedSequence(seed).spawn(sets)
    z = np.concatenate([Points(rows, width, own.generate_state(2)).next(each) for own in seeds])
    z[..., len(simulator.reads.columns) :] = 0.0
    batch = simulator.evaluate(point, q, z, values_only=True)
    r = simulator.residual(point, batch, _said(surrogate, batch.x))
    return r.reshape(sets, each, rows).mean(axis=1)


def _said(surrogate: Surrogate, x: Float[np.ndarray, "S rows J"]) -> dict[str, Float[np.ndarray, "S rows 1 values"]]:
    """Values of the polynomials."""
    centre, inverse, coefficients = jax.tree.map(
        lambda a: np.asarray(a, float), (surrogate.centre, surrogate.inverse, dict(surrogate.coefficients))
    )
    quadratic = next(iter(coefficients.values())).shape[1] > 1 + x.shape[-1]
    features = hermite(np.einsum("nij,snj->sni", inverse, x - centre), quadratic)
    return {key: np.einsum("snf,nfd->snd", features, each)[:, :, None] for key, each in coefficients.items()}
