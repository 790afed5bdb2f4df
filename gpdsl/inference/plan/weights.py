"""The decisions about a posterior over the weights of basis functions (engine = qsgp)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WeightChoice:
    """How many basis functions and dense columns of the root, and what one step takes.

    A step moves the weights of `block` functions, with `support` rows behind its control variate.
    `sums` over basis functions are `running`, known for the rows of every step, or `sampled` as in the paper.
    `start_rows` are those on which the hyperparameters start, 0 for their declared values.
    """

    features: int
    chevron: int
    block: int
    support: int
    sums: str
    start_rows: int

    @property
    def steps_a_sweep(self) -> int:
        """Steps of a pass over all basis functions."""
        return -(-self.features // self.block)
