"""Weighted least squares, row by row, with what each fit would say of a point that it has not seen."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

RIDGE = 1e-8
"""Relative addition to the normal equations of a regression, whose polynomials have about unit size."""

CLOSED = 1e-3
"""Least share of its own values that a regression leaves open at a point; with less, it says nothing without them."""


def least_squares(
    features: Float[np.ndarray, "rows P E F"],
    weights: Float[np.ndarray, "rows P"],
    targets: Mapping[str, Float[np.ndarray, "rows P E D"]],
) -> tuple[dict[str, Float[np.ndarray, "rows F D"]], dict[str, Float[np.ndarray, "rows P E D"]]]:
    """Coefficients of each target, and its values at every point by the regression without that point.

    A point has E equations: its value, and its derivatives where they are known. What a regression without a point says
    follows from the one with it: residuals (I - H)^-1 e, with the point's own block H of the projection.
    """
    rows, points, equations, count = features.shape
    weighted = (features * (weights / points)[:, :, None, None]).reshape(rows, -1, count)
    gram = np.swapaxes(features.reshape(rows, -1, count), 1, 2) @ weighted + RIDGE * np.eye(count)
    influence = np.linalg.solve(gram, np.swapaxes(weighted, 1, 2))  # [rows, F, P E]
    by_point = np.moveaxis(influence.reshape(rows, count, points, equations), 2, 1)
    left_open = np.eye(equations) - features @ by_point
    if equations == 1:
        inverse = 1.0 / np.maximum(left_open, CLOSED)
    else:
        inverse = np.linalg.inv(left_open + CLOSED * np.eye(equations))
    coefficients, held_out = {}, {}
    for key, values in targets.items():
        coefficients[key] = influence @ values.reshape(rows, points * equations, -1)
        residual = values - features @ coefficients[key][:, None]
        held_out[key] = values - inverse @ residual
    return coefficients, held_out
