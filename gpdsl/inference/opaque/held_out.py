"""The bound of a fit with surrogates, by evaluations that chose neither q nor the surrogates, and its standard error.

What surrogates leave unexplained at the points that they were fitted to, and q with them, understates what they leave
elsewhere, most of all at a kink. So the last evaluations of a fit are made where it ends:

    E_q[log p] = E_q[log p(surrogate)] + E_q[log p(true) - log p(surrogate)],

the first by samples, which cost nothing, the second by a few sets of points that know nothing of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.inference.estimators.sampling import sum_and_error
from gpdsl.inference.natural.sites import Sites
from gpdsl.inference.opaque.budget import HELD_OUT
from gpdsl.inference.opaque.evaluations import Gaussian, Points
from gpdsl.inference.opaque.simulator import Simulator
from gpdsl.inference.opaque.surrogate import Surrogate, hermite
from gpdsl.inference.problem import FRESH_SETS


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
