"""What simulation-based calibration has found: coverage of intervals, tests of uniformity, a table, a picture."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy
from jaxtyping import Float, Int

from gpdsl.errors import GpdslError, plural, preformatted, quoted
from gpdsl.language.calls import spoken
from gpdsl.replacing import written
from gpdsl.results.pictures.style import plain, save, wrapped

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# Whether numbers between 0 and 1 are uniform: their distribution function against simultaneous bands.
#
# Säilynoja, Bürkner and Vehtari (2022), with the distribution of their statistic by simulation.

SIMULATED = 4000
MOST_PLACES = 200
"""Places at which distribution functions are compared, where the numbers are more."""


def uniform_p(shares: Float[np.ndarray, " runs"]) -> float:
    """The probability that uniform numbers would look so uneven, or more; NaN without any."""
    if not len(shares):
        return float("nan")
    counts = _counts(shares[None])
    return float((1 + np.sum(_null(len(shares)) <= _statistic(counts, len(shares))[0])) / (SIMULATED + 1))


def combined_p(several: Float[np.ndarray, " tests"]) -> float:
    """One probability for tests that may depend on one another, by sums of Cauchy variates: Liu and Xie (2020)."""
    known = np.clip(several[~np.isnan(several)], 0.0, 1.0 - 0.5 / SIMULATED)
    if not len(known):
        return float("nan")
    return float(0.5 - np.arctan(np.mean(np.tan((0.5 - known) * np.pi))) / np.pi)


def band(count: int, level: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places, and between what the distribution function of so many uniform numbers stays everywhere."""
    at, tail = _places(count), 0.5 * np.quantile(_null(count), 1.0 - level)
    return at, scipy.stats.binom.ppf(tail, count, at) / count, scipy.stats.binom.ppf(1.0 - tail, count, at) / count


def _places(count: int) -> Float[np.ndarray, " places"]:
    steps = max(min(count, MOST_PLACES), 2)
    return np.arange(1, steps) / steps


def _counts(shares: Float[np.ndarray, "sets runs"]) -> Int[np.ndarray, "sets places"]:
    """How many lie at or below each place."""
    steps = len(_places(shares.shape[1])) + 1
    cells = np.clip(np.ceil(shares * steps).astype(int) - 1, 0, steps - 1)
    found = np.zeros((len(shares), steps), int)
    np.add.at(found, (np.arange(len(shares))[:, None], cells), 1)
    return np.cumsum(found, axis=1)[:, :-1]


def _statistic(counts: Int[np.ndarray, "sets places"], count: int) -> Float[np.ndarray, " sets"]:
    """Twice the smallest tail of a binomial distribution over all places: their eq. 9."""
    at = _places(count)[:, None]
    below = scipy.stats.binom.cdf(np.arange(count + 1), count, at)
    above = scipy.stats.binom.sf(np.arange(count + 1) - 1, count, at)
    tails = np.minimum(below, above)
    return 2.0 * np.min(tails[np.arange(len(at)), counts], axis=1)


@lru_cache(maxsize=32)
def _null(count: int) -> Float[np.ndarray, " simulated"]:
    """The statistic of uniform numbers."""
    return _statistic(_counts(np.random.default_rng(0).uniform(size=(SIMULATED, count))), count)


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


@spoken
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
        """The share of true values in central intervals, and its standard error over runs.

        Of n runs that all agree the error is 1 / (n + 1), as if one more did not.
        """
        shares = self._of(name)
        inside = np.where(np.isnan(shares), np.nan, np.abs(shares - 0.5) <= 0.5 * level)
        each = np.nanmean(inside[~np.isnan(inside).all(axis=1)], axis=1)
        error = float(np.std(each, ddof=1) / np.sqrt(len(each))) if len(each) > 1 else np.nan
        return float(np.mean(each)), error or 1.0 / (len(each) + 1)

    def p_value(self, name: str) -> float:
        """The probability that a posterior that is right would look so uneven; entries are tested and combined."""
        return combined_p(np.array([uniform_p(each[~np.isnan(each)]) for each in self._of(name).T]))

    def _of(self, name: str) -> np.ndarray:
        if name not in self.shares:
            raise GpdslError(f"there is no {quoted(name)} among what was calibrated: {', '.join(self.shares)}")
        return self.shares[name]

    @cached_property
    def table(self) -> tuple[Row, ...]:
        """A row for each name: what intervals of 50% and of 90% hold, with errors, `p_value` and a verdict in words."""
        return tuple(self._row(name) for name in self.shares)

    @property
    def doubtful(self) -> tuple[str, ...]:
        """Names whose posteriors are wrong: with a `p_value` below 0.05 divided by the number of names."""
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
        lines = [
            f"{self.model}: calibration by {plural(self.runs, 'run')} of {plural(self.rows, 'row')}{failed}{stopped}"
        ]
        lines += [f"  {name} = {value}" for name, value in self.options.items()]
        width = max(len(name) for name in (*self.shares, "name"))
        lines.append(f"  {'name':<{width}}  entries  in 50%          in 90%          p")
        for row in self.table:
            shares = (row.half, row.half_se), (row.ninety, row.ninety_se)
            coverages = "   ".join(
                f"{share:.3f} ± {se:.3f}".replace("± nan", " " * 7) for share, se in shares
            )  # of one run
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
        with written(path) as file:
            json.dump(kept, file, indent=1, default=_plain)
            file.write("\n")

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
