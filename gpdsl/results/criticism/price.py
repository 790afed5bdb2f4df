"""What a look at a fit costs beside the fit, counted and not timed: the same fit is looked at alike on a busy machine.

Costs are seconds of a processor that nothing else keeps busy, from the sizes of matrices and the steps of the search. A
look that is made of numbers at hand, or of matrices of a few rows, costs nothing; one that needs programs of its own
costs what compiling them takes, though they may be there already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from gpdsl.results.fit import Fit

SHARE, MOST = 0.1, 3.0
"""Of the seconds of the search, and at most so many, that looks may cost which are not asked for."""

SPEED = 5e9
"""Multiplications a second, in products of matrices."""

PASSES = 5
"""Of all rows in each step of a search by natural gradients, at least."""

EVALUATIONS = 24
"""Of the evidence and its gradient, for standard errors, which are made whatever the search has taken."""

PROGRAMS = 0.5
"""Seconds of compiling what one look needs of its own."""


def evaluation(fit: Fit) -> float:
    """Seconds of the evidence, or its bound, and its gradient at all rows of a step, about."""
    return fit.at_rows.multiplications(fit.choice.batch or fit.rows) / SPEED


def affordable(fit: Fit) -> float:
    """Seconds that looks may cost which are not asked for; no bound of them where all are, by `diagnose = full`."""
    if fit.options.diagnose == "full":
        return np.inf
    passes = PASSES if fit.choice.optimizer == "natural" else 1
    return min(SHARE * passes * len(fit.history) * evaluation(fit), MOST)


def allows_errors(fit: Fit, evaluations: int) -> bool:
    """Whether so many evaluations of the evidence may be made for standard errors without being asked for."""
    if fit.options.diagnose == "full":
        return True
    return evaluations <= max(EVALUATIONS, SHARE * len(fit.history)) and evaluations * evaluation(fit) <= MOST
