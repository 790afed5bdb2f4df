"""What a fit is worth by itself, as it is kept: standard errors of what was learnt, and what is to be doubted.

It is found when first asked for, so that a fit that nobody asks takes no longer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpdsl.data import Data
from gpdsl.inference.integrated.profile import Profile
from gpdsl.results.criticism.finding import Diagnosis, Finding

if TYPE_CHECKING:
    from gpdsl.results.fit import Fit


@dataclass(frozen=True, eq=False)
class Inspection:
    """Standard errors of learnt parameters in their domains, infinite where the data leave them open; or why there are
    none, in words; and everything that was looked at. `left` are names of what there was no time for."""

    errors: Mapping[str, np.ndarray]
    lacking: str
    findings: tuple[Finding, ...] = ()
    left: tuple[str, ...] = ()

    @property
    def of_parameters(self) -> tuple[Finding, ...]:
        """Those that the evidence as a function of parameters tells."""
        return tuple(each for each in self.findings if each.name in {"parameters", "end of the search"})

    @property
    def diagnosis(self) -> Diagnosis:
        """The findings."""
        return Diagnosis(self.findings)

    def plain(self) -> dict[str, Any]:
        """As plain values, for a file."""
        errors = {name: [_plain(each) for each in np.ravel(value)] for name, value in self.errors.items()}
        findings = [[_plain(each) for each in astuple(finding)] for finding in self.findings]
        return {"errors": errors, "lacking": self.lacking, "findings": findings, "left": list(self.left)}

    @classmethod
    def of_plain(cls, said: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> Inspection:
        """From a file, with the shapes of parameters. Raises ValueError and the like for what is none."""
        errors = {
            name: np.reshape([_number(each, np.inf) for each in value], shapes[name])
            for name, value in said["errors"].items()
        }
        if any(np.any(np.isnan(each)) or np.any(each < 0) for each in errors.values()):
            raise ValueError("a standard error is below 0")
        findings = tuple(_finding(*each) for each in said["findings"])
        return cls(errors, str(said["lacking"]), findings, tuple(map(str, said["left"])))


def _plain(value: Any) -> Any:
    if isinstance(value, (str, bool)):
        return value
    return float(value) if np.isfinite(value) else None


def _number(value: Any, lacking: float) -> float:
    return lacking if value is None else float(value)


def _finding(name: Any, number: Any, doubtful: Any, said: Any, remedy: Any) -> Finding:
    return Finding(str(name), _number(number, float("nan")), bool(doubtful), str(said), str(remedy))


@dataclass(frozen=True, eq=False)
class Ended:
    """What an inspection is made of: the data as the fit knows them, and what inference has found."""

    data: Data
    profile: Callable[[], Profile] | None
    bound: float
    learnt: Mapping[str, np.ndarray]


OFF = "diagnose = no"


@dataclass(eq=False)
class Inspected:
    """An inspection that is known, or made when it is first asked for; what it is made of is dropped then."""

    ended: Ended | None = None
    known: Inspection | None = None

    def of(self, fit: Fit) -> Inspection:
        """The inspection of a fit."""
        if self.known is None and self.ended is not None:
            from gpdsl.results.criticism.inspection import inspect

            self.known, self.ended = inspect(fit, self.ended), None
        return self.known or Inspection({}, OFF)


NEVER = Inspected()
"""Of a fit that cannot be asked."""
