"""What a fit is worth by itself, as it is kept: standard errors of what was learnt, and what is to be doubted.

It is found when first asked for, so that a fit that nobody asks takes no longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpdsl.data import Data
from gpdsl.errors import plural
from gpdsl.inference.diagnosis import Curvature
from gpdsl.inference.integrated import Profile
from gpdsl.results.criticism.finding import Diagnosis, Finding, unmade
from gpdsl.results.table import subscript

if TYPE_CHECKING:
    from gpdsl.results.fit import Fit


@dataclass(frozen=True, eq=False)
class Inspection:
    """Standard errors of learnt parameters in their domains, infinite where the data leave them open; or why there are
    none, in words; and everything that was looked at. `left` are names of looks that cost too much to be made without
    being asked for, `failed` those that ended in an error, with what it says."""

    errors: Mapping[str, np.ndarray]
    lacking: str
    findings: tuple[Finding, ...] = ()
    left: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    @property
    def of_parameters(self) -> tuple[Finding, ...]:
        """Those that the evidence as a function of parameters tells."""
        return tuple(each for each in self.findings if each.name in {"parameters", "end of the search"})

    @property
    def diagnosis(self) -> Diagnosis:
        """The findings, and what was not looked at."""
        return Diagnosis((*self.findings, *unmade(self.left, self.failed, self.lacking)))

    def plain(self) -> dict[str, Any]:
        """As plain values, for a file."""
        errors = {name: [_plain(each) for each in np.ravel(value)] for name, value in self.errors.items()}
        findings = [[_plain(each) for each in astuple(finding)] for finding in self.findings]
        looks = {"left": list(self.left), "failed": list(self.failed)}
        return {"errors": errors, "lacking": self.lacking, "findings": findings, **looks}

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
        looks = tuple(map(str, said["left"])), tuple(map(str, said.get("failed", ())))
        return cls(errors, str(said["lacking"]), findings, *looks)


def _plain(value: Any) -> Any:
    if isinstance(value, (str, bool)):
        return value
    return float(value) if np.isfinite(value) else None


def _number(value: Any, lacking: float) -> float:
    return lacking if value is None else float(value)


def _finding(name: Any, number: Any, doubtful: Any, said: Any, remedy: Any) -> Finding:
    return Finding(str(name), _number(number, np.nan), bool(doubtful), str(said), str(remedy))


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
            from gpdsl.results.criticism.findings import inspect

            self.known, self.ended = inspect(fit, self.ended), None
        return self.known or Inspection({}, OFF)


NEVER = Inspected()
"""Of a fit that cannot be asked."""


# How far the data determine the learnt parameters: standard errors, flat directions, and ends that are no maximum.

LEFT = 0.1
"""Nats that another step of a search would gain, from which it has stopped too early."""

TOGETHER = 0.3
"""Share of the largest element of a direction from which another one is named with it."""

EDGE = 1e-3
"""Share of the distance between the bounds of a parameter from which it is at one of them."""

NAMED, LISTED = 4, 8
"""Elements that are named of one direction, and of all that are open by themselves."""


def of_curvature(found: Curvature, ended: set[str]) -> Iterator[Finding]:
    """Directions in which the evidence is flat, in the names of parameters, and whether the search has ended at all.

    Not those of elements that have `ended` at a bound, where the evidence is flat on the real line.
    """
    values, vectors = found.directions()
    flat, alone = int(np.sum(values < 1.0)), dict[str, float]()
    for value, vector in zip(values[:flat], vectors.T[:flat], strict=True):
        chosen = _moved(vector)
        names = list(dict.fromkeys(found.names[i] for i in chosen))
        if set(names) <= ended:
            continue
        if len(names) == 1:
            alone.setdefault(names[0], float(value))
        else:
            yield _confounded(names, float(value), vector[chosen])
    if alone:
        yield _open(alone)
    if not flat:
        widest = float(1.0 / np.sqrt(values[0])) if len(values) else 0.0
        yield Finding(
            "parameters", widest, False, f"all are determined, the least of them to {widest:.0%} of what would be open"
        )
    yield Finding(
        "end of the search",
        found.left,
        found.left > LEFT,
        f"another step would gain {plural(found.left, 'nat', '.2g')}",
        "go on with fit(data, start=fit), with a smaller tolerance, or more steps",
    )


def _moved(vector: np.ndarray) -> list[int]:
    """The elements that a direction moves most."""
    order = np.argsort(-np.abs(vector))
    return [int(i) for i in order if np.abs(vector[i]) >= TOGETHER * np.abs(vector[order[0]])][:NAMED]


def _open(alone: dict[str, float]) -> Finding:
    """Elements along which the evidence hardly falls, with their curvatures."""
    names, flattest = [f"`{name}`" for name in alone], min(alone.values())
    if len(names) == 1:
        said = f"{names[0]} is not determined by the data: its value is where the search has ended"
        return Finding("parameters", flattest, True, said, f"give {names[0]} a prior or bounds, or fix it")
    left = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    listed = ", ".join(names[:LISTED]) + left if left else f"{', '.join(names[:-1])} and {names[-1]}"
    said = f"{listed} are not determined by the data: their values are where the search has ended"
    return Finding("parameters", flattest, True, said, "give them priors or bounds, or fix them")


def _confounded(names: list[str], value: float, moved: np.ndarray) -> Finding:
    """A direction of several elements along which the evidence hardly falls."""
    signs = {"together" if len({*np.sign(moved)}) == 1 else "against each other"}
    listed = " and ".join(f"`{name}`" for name in names)
    said = f"{listed} are confounded: moved {signs.pop()}, they change next to nothing"
    return Finding("parameters", value, True, said, f"fix one of {listed}, or give them priors")


def at_edges(fit: Fit) -> Iterator[tuple[Finding, set[str]]]:
    """Parameters that have gone to the bounds of their domain, with the names of their elements there."""
    for name in fit.program.parameters.initial:
        param, value = fit.program.declarations.params[name], np.asarray(fit.parameters[name], float)
        low = 0.0 if param.lower is None and param.constraint in {"positive", "unit"} else param.lower
        high = 1.0 if param.upper is None and param.constraint == "unit" else param.upper
        if low is None or high is None or not value.size:
            continue
        near = np.minimum(value - low, high - value) / (high - low)
        nearest, there = float(np.min(near)), np.argwhere(near < EDGE)
        if len(there):
            said = f"`{name}` is at the edge of its domain, {low:g} to {high:g}"
            remedy = "widen the bounds, or ask whether the model suits the data"
            yield Finding("parameters", nearest, True, said, remedy), {name + subscript(at + 1) for at in there}
