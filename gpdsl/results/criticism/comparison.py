"""Fits of the same data side by side, by how well they predict rows that they have not seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpdsl.errors import GpdslError, preformatted, quoted
from gpdsl.inference.integrated.profile import UNTRUSTED
from gpdsl.results.criticism.left_out import LeaveOneOut, leave_one_out
from gpdsl.results.fit import Fit

if TYPE_CHECKING:
    from pandas import DataFrame

CLOSE = 4.0
"""Nats of difference below which its standard error says little (Sivula et al. 2020)."""


@dataclass(frozen=True)
class Compared:
    """One fit: its elpd by leaving rows out, with its standard error, and how far it lies below the best."""

    name: str
    elpd: float
    se: float
    effective_parameters: float
    difference: float
    difference_se: float
    """Of the difference, row by row: smaller than those of its parts, as all fits have the same rows."""
    worst_k: float


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """The table, the best fit first."""

    rows: tuple[Compared, ...]
    loo: Mapping[str, LeaveOneOut]

    def to_frame(self) -> DataFrame:
        """A pandas frame with the names as its index."""
        try:
            import pandas as pd
        except ImportError as problem:
            raise GpdslError("to_frame needs pandas: install gpdsl[data]") from problem
        return pd.DataFrame([vars(each) for each in self.rows]).set_index("name")

    def __repr__(self) -> str:
        width = max(len("fit"), *(len(each.name) for each in self.rows))
        lines = [f"{'fit':<{width}}      elpd      se  difference      se  parameters  worst k"]
        for each in self.rows:
            k = f"{each.worst_k:7.2f}" if np.isfinite(each.worst_k) else "      -"
            lines.append(
                f"{each.name:<{width}}  {each.elpd:8.1f}  {each.se:6.1f}  {each.difference:10.1f}  "
                f"{each.difference_se:6.1f}  {each.effective_parameters:10.1f}  {k}"
            )
        return "\n".join([*lines, *self._notes()])

    def _notes(self) -> list[str]:
        notes = []
        if len(self.rows) > 1 and -self.rows[1].difference < CLOSE:
            notes.append(f"differences below {CLOSE:g} nats tell little")
        if any(each.worst_k > UNTRUSTED for each in self.rows):
            notes.append(f"k above {UNTRUSTED}: single rows move that posterior so much that its elpd is unsure")
        return notes

    def _repr_html_(self) -> str:
        return preformatted(repr(self))


def compare(fits: Mapping[str, Fit] | Sequence[Fit], data: Any) -> Comparison:
    """Fits of the same data by `fit.loo`, the best first, with differences to it and their standard errors.

    fits: by name, or a list, named by their models. Raises GpdslError where fits have other data or outputs: densities
    of different things cannot be compared.
    """
    named = dict(fits) if isinstance(fits, Mapping) else _named(fits)
    if not named or not all(isinstance(each, Fit) for each in named.values()):
        raise GpdslError(f"compare: expected fits by name, or a list of them, got {quoted(repr(fits))}")
    _verify_outputs(named)
    found = {name: leave_one_out(fit, data) for name, fit in named.items()}
    best = max(found, key=lambda name: found[name].elpd)
    rows = [_compared(name, each, found[best]) for name, each in found.items()]
    return Comparison(tuple(sorted(rows, key=lambda each: -each.elpd)), found)


def _named(fits: Sequence[Fit]) -> dict[str, Fit]:
    """By their models; numbered where these have one name."""
    names = [each.program.declarations.name if isinstance(each, Fit) else "" for each in fits]
    single = len(set(names)) == len(names)
    keys = names if single else [f"{name} {place}" for place, name in enumerate(names, 1)]
    return dict(zip(keys, fits, strict=True))


def _verify_outputs(fits: Mapping[str, Fit]) -> None:
    """Raise GpdslError where fits observe different things."""
    first, *others = fits

    def observed(name: str) -> dict[str, str]:
        return {output: each.kind for output, each in fits[name].program.declarations.outputs.items()}

    for other in others:
        if observed(other) != observed(first):
            ours, theirs = (", ".join(f"{n} : {kind}" for n, kind in observed(each).items()) for each in (first, other))
            raise GpdslError(
                f"compare: {quoted(first)} has the outputs {ours}, {quoted(other)} has {theirs}; only densities of the "
                "same outputs can be compared"
            )


def _compared(name: str, each: LeaveOneOut, best: LeaveOneOut) -> Compared:
    apart = each.pointwise - best.pointwise
    apart = apart[np.isfinite(apart)]
    worst = float(np.nanmax(each.k)) if np.isfinite(each.k).any() else float("nan")
    se = float(np.sqrt(len(apart) * np.var(apart)))
    return Compared(name, each.elpd, each.se, each.effective_parameters, float(apart.sum()), se, worst)
