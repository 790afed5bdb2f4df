"""Whether all rows are taken at once, or minibatches: by the work that either takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpdsl.program.program import Program

if TYPE_CHECKING:
    from gpdsl.inference.plan.options import Options

BATCH_ROWS = 20_000
"""Beyond this many rows the default is stochastic optimisation on minibatches."""

BATCH = 1_000
"""Rows of a minibatch."""

BATCH_STEPS = 1000
"""Most natural-gradient steps on minibatches: the fit ends before, when the bound no longer rises."""

WORTH = 2.0
"""Times the work of all steps on minibatches that all rows at once may take, for a bound without noise."""


def choose_batch(rows: int, learnt: int) -> tuple[int, str]:
    """How many rows to take at a time (0: all), and why.

    A search by L-BFGS takes about 20 evaluations and 6 for every number it learns, each of which looks at every row
    twice: for the sites, and for the gradient. Natural gradients take as many steps on minibatches, whatever is learnt.
    """
    visits = 2 * rows * (20 + 6 * learnt)
    if rows > BATCH_ROWS:
        return BATCH, f"{rows} rows exceed {BATCH_ROWS}"
    if rows > 10 * BATCH and learnt and visits > WORTH * BATCH * BATCH_STEPS:
        return BATCH, f"{learnt} numbers learnt from {rows} rows at once take {visits / 1e6:.2g} million visits to rows"
    return 0, f"{rows} rows fit in one step"


def numbers_learnt(program: Program, options: Options) -> int:
    """How many numbers a search on all rows learns; 0 where minibatches would be another kind of search."""
    natural = options.optimizer in {"auto", "natural"} and options.posterior in {"auto", "full"}
    plain = options.engine == "vi" and options.schedule == "joint" and options.inducing != 0
    apart = program.opaque or program.mixing or any(group.per_row for group in program.groups)
    if not (natural and plain) or apart:
        return 0
    return sum(int(np.size(value)) for value in program.parameters.initial.values())
