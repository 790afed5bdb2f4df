"""What is said of one thing that was looked at, and of all; and what a look costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from gpdsl.errors import GpdslError, preformatted

if TYPE_CHECKING:
    from gpdsl.results.fit import Fit


SKIPPED = "not looked at"
"""The name of findings that tell what was left out, and why."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; `remedy` is what to do where it is doubtful."""

    name: str
    number: float
    doubtful: bool
    said: str
    remedy: str = ""

    @property
    def verdict(self) -> str:
        """In a word."""
        if self.name == SKIPPED:
            return "open"
        return "doubtful" if self.doubtful else "ok"

    @property
    def doubt(self) -> str:
        """What was seen and what to do."""
        return "; ".join(filter(None, (f"{self.name}: {self.said}", self.remedy)))

    def __str__(self) -> str:
        return f"{self.verdict:<8}  {self.doubt if self.doubtful else f'{self.name}: {self.said}'}"


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """All that was looked at."""

    findings: tuple[Finding, ...]

    @property
    def doubtful(self) -> tuple[Finding, ...]:
        """What is to be doubted."""
        return tuple(each for each in self.findings if each.doubtful)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __repr__(self) -> str:
        return "\n".join(map(str, self.findings))

    def _repr_html_(self) -> str:
        return preformatted(repr(self))

    def to_frame(self) -> Any:
        """A pandas frame with a line for each. Raises GpdslError where pandas is not installed."""
        return frame([astuple(each) for each in self.findings], [each.name for each in fields(Finding)])


NEEDLESS = ("nothing was learnt", "parameters are averaged over, with standard deviations")
"""Why there is no curvature where nobody misses it."""


def unmade(left: Sequence[str], failed: Sequence[str], lacking: str) -> Iterator[Finding]:
    """A line for what takes longer than the fit pays for, each look that failed, and why there is no curvature."""
    if left:
        said = f"{', '.join(left)}, as that takes longer: fit.diagnose(data) does"
        yield Finding(SKIPPED, np.nan, False, said)
    for each in failed:
        yield Finding(SKIPPED, np.nan, False, f"{each}, as that failed")
    if lacking and lacking not in NEEDLESS:
        yield Finding(SKIPPED, np.nan, False, f"parameters, end of the search, as {lacking}")


def frame(lines: list[tuple], columns: list[str]) -> Any:
    """A pandas frame. Raises GpdslError where pandas is not installed."""
    try:
        import pandas
    except ImportError as problem:
        raise GpdslError("to_frame needs pandas: install gpdsl[data]") from problem
    return pandas.DataFrame(lines, columns=columns)


# What a look at a fit costs beside the fit, counted and not timed: the same fit is looked at alike on a busy machine.
#
# Costs are seconds of a processor that nothing else keeps busy, from the sizes of matrices and the steps of the search.
# A look that is made of numbers at hand, or of matrices of a few rows, costs nothing; one that needs programs of its
# own costs what compiling them takes, though they may be there already.

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
