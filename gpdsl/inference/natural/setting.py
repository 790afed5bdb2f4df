"""What the sites of all rows are computed with: a program at some parameters, its inducing values, and the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from jaxtyping import Array

from gpdsl.inference.blocks import block_rows, part_of_block
from gpdsl.inference.bound import GroupView, views
from gpdsl.kernels.functionals import Functionals
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows

Place = tuple[Mapping[str, Array], Sequence[Functionals]]
"""Constrained parameters, and inducing values."""


@dataclass(frozen=True)
class Setting:
    """One place of the search for hyperparameters. `parameters` are constrained; `dense`: the rows are inducing."""

    program: Program
    parameters: Mapping[str, Array]
    inducing: Sequence[Functionals]
    rows: Rows
    dense: bool
    jitter: Array | float

    @classmethod
    def at(
        cls,
        program: Program,
        learnt: Mapping[str, Array],
        inducing: Sequence[Functionals],
        rows: Rows,
        dense: bool,
        jitter: Array | float,
    ) -> Setting:
        """The setting at unconstrained parameters."""
        return cls(program, program.parameters.constrain(learnt), inducing, rows, dense, jitter)

    @property
    def place(self) -> Place:
        """What of it a gradient may be taken in."""
        return self.parameters, self.inducing

    def there(self, place: Place) -> Setting:
        """The same at another place."""
        parameters, inducing = place
        return replace(self, parameters=parameters, inducing=inducing)

    @property
    def count(self) -> int:
        """Number of rows."""
        return next(iter(self.rows.observed.values())).shape[0]

    @property
    def log_prior(self) -> Array | float:
        """Log density of the parameters that have priors."""
        return self.program.log_prior(self.parameters)

    def views(self, rows: Rows | None = None) -> list[GroupView]:
        """Every group's kernel and the features of all rows, or of some."""
        some = self.rows if rows is None else rows
        return views(self.program, self.parameters, self.inducing, some, self.dense, self.jitter)

    def block(self, coupled: bool) -> int:
        """How many rows of each device to take at a time; 0 for all, where they are few or belong together."""
        program = self.program
        if self.dense or coupled or program.opaque or any(group.per_row for group in program.groups):
            return 0
        size = block_rows(program, self.inducing, self.count)
        return size and part_of_block(self.rows, size)
