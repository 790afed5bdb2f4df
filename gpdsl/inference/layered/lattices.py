"""Normals in two or three dimensions that averages over few of them tell of: points of lattices within a ball.

A weighted sum over the points of a lattice is the rule of trapezoids in several dimensions. Of a smooth function of
normals it is right but for frequencies that the reciprocal lattice has: as exactly as numbers are, with cells about
as large as a standard deviation. The best lattices are those whose reciprocals are the densest packings of balls:
triangles in the plane, and body-centred cubes in space.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

CELLS = {
    2: np.array([[1.0, 0.0], [0.5, 0.75**0.5]]),
    3: np.array([[-1.0, 1.0, 1.0], [1.0, -1.0, 1.0], [1.0, 1.0, -1.0]]),
}
"""The edges of a cell, by dimension."""

SETS, PLACE = 2, {2: (1, 0), 3: (1, 1, 1)}
"""Lattices that a lattice consists of, of rectangles or cubes; and what tells of a point the one that it is in: whether
so many times its multiples of the edges, added up, are even.
"""

RADIUS = {2: 4.5, 3: 4.0}
"""Of the ball, in standard deviations."""

REACH = {2: 16, 3: 14}
"""Multiples of edges among which the nearest points are."""

OUTERMOST = 8
"""The power of the radius by which weights are raised in place of what lies beyond the ball: the outermost ones are."""


def lattice(
    count: int, finer: Float[np.ndarray, " dimensions"]
) -> tuple[Float[np.ndarray, "count dimensions"], Float[np.ndarray, " count"]]:
    """Points and their weights, which add up to one and have nearly the moments of normals up to the second.

    The points are those nearest to the origin in each of the `SETS`, one of these after the other. Along some axes
    they lie `finer` than along others, by a factor.
    """
    dimensions = len(finer)
    generator = np.random.default_rng(dimensions)
    turned = CELLS[dimensions] @ np.linalg.qr(generator.standard_normal((dimensions, dimensions)))[0]
    reach = np.arange(-REACH[dimensions], REACH[dimensions] + 1)
    multiples = np.stack(np.meshgrid(*[reach] * dimensions, indexing="ij"), axis=-1).reshape(-1, dimensions)
    points = (multiples + generator.random(dimensions)) @ turned / (finer / np.prod(finer) ** (1.0 / dimensions))
    square = np.sum(points**2, axis=1)
    place = multiples @ np.array(PLACE[dimensions]) % SETS
    nearest = np.argsort(square, kind="stable")
    chosen = np.concatenate([nearest[place[nearest] == each][: count // SETS] for each in range(SETS)])
    share = square[chosen] / np.max(square[chosen])
    points, square = (
        points[chosen] * RADIUS[dimensions] / np.sqrt(np.max(square[chosen])),
        share * RADIUS[dimensions] ** 2,
    )
    plain = np.exp(-0.5 * square)
    # sum of plain * (1 + c share^4) * (square - dimensions) = 0
    more = -np.sum(plain * (square - dimensions)) / np.sum(plain * share ** (OUTERMOST // 2) * (square - dimensions))
    weights = plain * (1.0 + more * share ** (OUTERMOST // 2))
    return points, weights / weights.sum()
