"""Rows left out of fits whose latents are functions of others, or of variables of rows.

Given the functions of all layers, rows are independent: p(y_n | functions) = E[p(y_n | f(x_n, w_n))] over the prior of
the row's variables w_n, which is what they are before y_n is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from gpdsl.data import Data
from gpdsl.program.cache import precision
from gpdsl.results.criticism.at_nodes import at_nodes, densities_at_nodes
from gpdsl.results.criticism.passes import LeftOut, at_passes, densities_at_passes

if TYPE_CHECKING:
    from gpdsl.results.fit import Fit


def rows_left_out(fit: Fit, bound: Data, some: Int[np.ndarray, " rows"]) -> LeftOut:
    """What the others say of some of the rows that were fitted."""
    with precision(fit.options.dtype):
        return at_nodes(fit, bound, some) if _has_variables(fit) else at_passes(fit, bound.take(some))


def drawn_densities(fit: Fit, bound: Data, some: Int[np.ndarray, " rows"]) -> Float[np.ndarray, "draws rows"]:
    """log p(y_n | functions) of draws of functions."""
    with precision(fit.options.dtype):
        if _has_variables(fit):
            return densities_at_nodes(fit, bound, some)
        return densities_at_passes(fit, bound.take(some))


def _has_variables(fit: Fit) -> bool:
    return any(group.per_row for group in fit.program.groups)
