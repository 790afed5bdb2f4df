"""What simulation-based calibration has found: coverage of intervals, tests of uniformity, a table, a picture."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from gpdsl.calibration.uniformity import band, combined_p, uniform_p
from gpdsl.errors import GpdslError, preformatted, quoted
from gpdsl.replacing import replacing
from gpdsl.results.pictures.style import plain, save, wrapped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVELS = (0.5, 0.9)
SIGNIFICANT = 0.05
"""Of all names together: a name is told where its own probability is below this over their number."""


class Row(NamedTuple):
    """What is said of a name: coverage of 50 and 90 % intervals, with standard errors, and the test of uniformity."""

    name: str
    entries: int
    half: float
    half_se: float
    ninety: float
    ninety_se: float
    p: float
    verdict: str


@dataclass(frozen=True, eq=False)
class Calibration:
    """P(quantity < its true value) by the posteriors of many simulated data sets: uniform where these are right.

    `shares` is [runs, entries] by name: parameters, latents at some rows, and outputs there that were not fitted;
    `failures` says, by the number of a run, why it gave nothing. `interrupted` tells that some runs were not made.
    """

    model: str
    rows: int
    asked: int
    seed: int
    options: Mapping[str, Any]
    shares: Mapping[str, Float[np.ndarray, "runs entries"]]
    failures: Mapping[int, str]
    seconds: float
    interrupted: bool = False

    @property
    def runs(self) -> int:
        """Those that count."""
        return max((len(each) for each in self.shares.values()), default=0)

    def coverage(self, name: str, level: float = 0.9) -> tuple[float, float]:
        """The share of true values in central intervals, and its standard error over runs."""
        shares = self._of(name)
        inside = np.where(np.isnan(shares), np.nan, np.abs(shares - 0.5) <= 0.5 * level)
        each = np.nanmean(inside[~np.isnan(inside).all(axis=1)], axis=1)
        return float(np.mean(each)), float(np.std(each, ddof=1) / np.sqrt(len(each))) if len(each) > 1 else np.nan

    def p_value(self, name: str) -> float:
        """The probability that a posterior that is right would look so uneven; entries are tested and combined."""
        return combined_p(np.array([uniform_p(each[~np.isnan(each)]) for each in self._of(name).T]))

    def _of(self, name: str) -> np.ndarray:
        if name not in self.shares:
            raise GpdslError(f"there is no {quoted(name)} among what was calibrated: {', '.join(self.shares)}")
        return self.shares[name]

    @cached_property
    def table(self) -> tuple[Row, ...]:
        """A row for each name."""
        return tuple(self._row(name) for name in self.shares)

    @property
    def doubtful(self) -> tuple[str, ...]:
        """Names whose posteriors are told to be wrong."""
        return tuple(row.name for row in self.table if row.verdict)

    def _row(self, name: str) -> Row:
        (half, half_se), (ninety, ninety_se) = (self.coverage(name, level) for level in LEVELS)
        p = self.p_value(name)
        verdict = self._verdict(name, ninety, ninety_se) if p < SIGNIFICANT / len(self.shares) else ""
        return Row(name, self.shares[name].shape[1], half, half_se, ninety, ninety_se, p, verdict)

    def _verdict(self, name: str, ninety: float, se: float) -> str:
        """In which way a posterior is wrong."""
        if abs(ninety - LEVELS[1]) > 2 * se:
            return "too narrow" if ninety < LEVELS[1] else "too wide"
        means = np.nanmean(self.shares[name], axis=1)
        away, error = np.mean(means) - 0.5, np.std(means) / np.sqrt(len(means))
        if abs(away) > 2 * error:
            return "true values lie higher" if away > 0 else "true values lie lower"
        return "uneven"

    def summary(self) -> str:
        """The table as text, and what failed."""
        failed = f", {len(self.failures)} failed" if self.failures else ""
        stopped = f"; interrupted, {self.asked} were asked for" if self.interrupted else ""
        lines = [f"{self.model}: calibration by {self.runs} runs of {self.rows} rows{failed}{stopped}"]
        lines += [f"  {name} = {value}" for name, value in self.options.items()]
        width = max(len(name) for name in (*self.shares, "name"))
        lines.append(f"  {'name':<{width}}  entries  in 50%          in 90%          p")
        for row in self.table:
            coverages = f"{row.half:.3f} ± {row.half_se:.3f}   {row.ninety:.3f} ± {row.ninety_se:.3f}"
            verdict = f"  {row.verdict}" if row.verdict else ""
            lines.append(f"  {row.name:<{width}}  {row.entries:>7}  {coverages}   {row.p:.2g}{verdict}")
        kinds = {text.split("\n")[0]: number for number, text in reversed(list(self.failures.items()))}
        lines += [f"  run {number} failed: {text}" for text, number in sorted(kinds.items(), key=lambda k: k[1])[:5]]
        return "\n".join(lines)

    def __repr__(self) -> str:
        found = f"doubtful: {', '.join(self.doubtful)}" if self.doubtful else "nothing doubtful"
        return f"<gpdsl.Calibration of {self.model}: {self.runs} runs, {found}>"

    def _repr_html_(self) -> str:
        return preformatted(self.summary())

    def save(self, path: str | Path) -> None:
        """Write everything as JSON. Raises GpdslError when that cannot be done."""
        about = {name: getattr(self, name) for name in ("model", "rows", "asked", "seed", "seconds", "interrupted")}
        table = [row._asdict() for row in self.table]
        failures = {str(number): text for number, text in self.failures.items()}
        shares = {name: _plain(each) for name, each in self.shares.items()}
        kept = {**about, "options": dict(self.options), "table": table, "failures": failures, "shares": shares}
        try:
            with replacing(path) as file:
                json.dump(kept, file, indent=1, default=_plain)
                file.write("\n")
        except OSError as problem:
            raise GpdslError(f"cannot write {path}: {problem.strerror}") from problem

    def plot(self, path: str | Path | None = None) -> Figure:
        """Distribution functions of the shares less those of uniform ones, a line for each entry, with a 95% band.

        Only one line in twenty leaves the band anywhere, where posteriors are right.
        """
        figure, panels = wrapped(len(self.table), 3.2, 2.5, self.model)
        at, low, high = band(self.runs, 0.95)
        for panel, row in zip(panels, self.table, strict=True):
            for entry in self.shares[row.name].T:
                shares = np.sort(entry[~np.isnan(entry)])
                panel.plot(at, np.searchsorted(shares, at, side="right") / max(len(shares), 1) - at, lw=0.9)
            panel.fill_between(at, low - at, high - at, color="0.85", zorder=0)
            panel.set(title=plain(f"{row.name}: p = {row.p:.2g}"), xlim=(0, 1), xlabel="P(below the truth)")
        if path is not None:
            save(figure, Path(path))
        return figure


def _plain(values: Any) -> Any:
    """Arrays as lists, in JSON's own numbers; a missing value as null."""
    if not isinstance(values, np.ndarray | np.generic):
        return str(values)
    numbers = np.asarray(values).astype(object)
    numbers[np.isnan(values)] = None
    return numbers.tolist()
