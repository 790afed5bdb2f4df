"""What is said of one thing that was looked at, and of all; and what a look costs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gpdsl.data import Data
from gpdsl.errors import needed, plural, preformatted
from gpdsl.inference.diagnosis import Curvature
from gpdsl.inference.driver import OUT_OF_STEPS
from gpdsl.inference.inducing.loss import Loss
from gpdsl.inference.integrated import Profile
from gpdsl.language.warnings.report import unused_names
from gpdsl.results.table import subscript
from gpdsl.symbolic.coupling import without_slope

if TYPE_CHECKING:
    from gpdsl.results.fit import Fit


SKIPPED, POINTS, UNFINISHED = "not looked at", "inducing points", "unfinished"
EVIDENCE, EXCHANGED, PLUGGED = "evidence for latents", "symmetry of parameters", "parameters plugged in"
"""Names of findings."""

OF_PARAMETERS = {"parameters", "end of the search", EXCHANGED, PLUGGED}
"""Names of what the evidence as a function of parameters tells."""

STANDING = {"note", "symmetry", UNFINISHED}
"""Names of doubts that too few inducing points do not explain."""


class Kind(StrEnum):
    """What a finding is, where its name does not say that."""

    PLAIN = "plain"
    CUT = "cut"
    """The search had too few steps, which explains that latents have little evidence yet."""
    PATTERN = "pattern"
    """Residuals follow an input, which the model may not read."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; `remedy` is what to do where it is doubtful."""

    name: str
    number: float
    doubtful: bool
    said: str
    remedy: str = ""
    kind: Kind = Kind.PLAIN

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
        columns = ["name", "number", "doubtful", "said", "remedy"]
        return frame([[getattr(each, name) for name in columns] for each in self.findings], columns)


def skipped(said: str, number: float = np.nan) -> Finding:
    """What was not looked at, and why."""
    return Finding(SKIPPED, number, False, said)


NEEDLESS = ("nothing was learnt", "parameters are averaged over, with standard deviations")
"""Why there is no curvature where nobody misses it."""


def unmade(left: Sequence[str], failed: Sequence[str], lacking: str) -> Iterator[Finding]:
    """A line for what takes longer than the fit pays for, each look that failed, and why there is no curvature."""
    if left:
        yield skipped(f"{', '.join(left)}, as that takes longer: fit.diagnose(data) does")
    for each in failed:
        yield skipped(f"{each}, as that failed")
    if lacking and lacking not in NEEDLESS:
        yield skipped(f"parameters, end of the search, as {lacking}")


def frame(lines: list, columns: list[str]) -> Any:
    """A pandas frame. Raises GpdslError where pandas is not installed."""
    return needed("pandas", "to_frame", "data").DataFrame(lines, columns=columns)


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

EXPECTATIONS, COMPILED = 16, 10.0
"""Passes of all rows through layers that expectations without samples take as long as; seconds of compiling a search
over layers, whose looks have programs as long."""

EVALUATIONS = 24
"""Of the evidence and its gradient, for standard errors, which are made whatever the search has taken."""

PROGRAMS = 0.5
"""Seconds of compiling what one look needs of its own."""


def evaluation(fit: Fit) -> float:
    """Seconds of the evidence, or its bound, and its gradient at all rows of a step, about."""
    return fit.at_rows.multiplications(fit.choice.visited(fit.rows)) / SPEED


def affordable(fit: Fit) -> float:
    """Seconds that looks may cost which are not asked for; no bound of them where all are, by `diagnose = full`."""
    if fit.options.diagnose == "full":
        return np.inf
    if fit.program.inner and len(fit.history):  # one entry for some steps
        steps = float(fit.history[-1][0]) * (fit.choice.samples or EXPECTATIONS)
        return min(SHARE * (COMPILED + steps * evaluation(fit)), MOST)
    passes = PASSES if fit.choice.optimizer == "natural" else 1
    return min(SHARE * passes * len(fit.history) * evaluation(fit), MOST)


def allows_errors(fit: Fit, evaluations: int) -> bool:
    """Whether so many evaluations of the evidence may be made for standard errors without being asked for."""
    if fit.options.diagnose == "full":
        return True
    return evaluations <= max(EVALUATIONS, SHARE * len(fit.history)) and evaluations * evaluation(fit) <= MOST


# What a fit is worth by itself, as it is kept: standard errors of what was learnt, and what is to be doubted.


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
        return tuple(each for each in self.findings if each.name in OF_PARAMETERS)

    @property
    def diagnosis(self) -> Diagnosis:
        """The findings, and what was not looked at."""
        return Diagnosis((*self.findings, *unmade(self.left, self.failed, self.lacking)))

    def plain(self) -> dict[str, Any]:
        """As plain values, for a file."""
        errors = {name: [_plain(each) for each in np.ravel(value)] for name, value in self.errors.items()}
        findings = [[_plain(each) for each in astuple(finding) if each is not Kind.PLAIN] for finding in self.findings]
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
        findings = tuple(
            Finding(str(name), _number(number, np.nan), bool(doubtful), str(text), str(remedy), *map(Kind, kind))
            for name, number, doubtful, text, remedy, *kind in said["findings"]
        )
        looks = tuple(map(str, said["left"])), tuple(map(str, said.get("failed", ())))
        return cls(errors, str(said["lacking"]), findings, *looks)


def _plain(value: Any) -> Any:
    if isinstance(value, (str, bool)):
        return str(value) if isinstance(value, str) else value
    return float(value) if np.isfinite(value) else None


def _number(value: Any, lacking: float) -> float:
    return lacking if value is None else float(value)


@dataclass(frozen=True, eq=False)
class Ended:
    """What an inspection is made of: the data as the fit knows them, and what inference has found."""

    data: Data
    profile: Callable[[], Profile] | None
    bound: float
    learnt: Mapping[str, np.ndarray]

    @cached_property
    def evidence(self) -> Profile:
        """As a function of the learnt parameters, if there is a `profile`: compiled once for all that looks at it."""
        assert self.profile is not None
        return self.profile()


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
        return self.known or Inspection({}, "diagnose = no")


NEVER = Inspected()
"""Of a fit that cannot be asked."""


# How far the data determine the learnt parameters: standard errors, flat directions, and ends that are no maximum.

LEFT, TOGETHER = 0.1, 0.3
"""Nats that another step of a search would gain, from which it has stopped too early; and the share of the largest
element of a direction from which another one is named with it."""

RISEN = 1e-3
"""Nats a row by which the bound of a search that has ended may still rise."""

EDGE = 1e-3
"""Share of the distance between the bounds of a parameter from which it is at one of them."""

NAMED, LISTED = 4, 8
"""Elements that are named of one direction, and of all that are open by themselves."""


def of_curvature(found: Curvature, ended: set[str], gone: Collection[str] = ()) -> Iterator[Finding]:
    """Directions in which the evidence is flat, in the names of parameters, and whether the search has ended at all.

    Not those that move most what has `ended` where the evidence is flat on the real line; `gone` are next to 0.
    """
    values, vectors = found.directions()
    flat, alone = int(np.sum(values < 1.0)), dict[str, float]()
    moved = [
        (float(value), vector, _moved(vector)) for value, vector in zip(values[:flat], vectors.T[:flat], strict=True)
    ]
    named = [(value, vector[at], [found.names[i] for i in at]) for value, vector, at in moved]
    named = [each for each in named if each[2][0] not in ended]
    for value, _, names in named:
        if sum(set(names) >= set(other) for *_, other in named) >= len(names):  # in all of their directions
            alone |= {name: alone.get(name, value) for name in names}
    for value, vector, names in named:
        if not set(names) <= set(alone):
            yield _confounded(list(dict.fromkeys(names)), value, vector)
    if alone:
        yield _open(alone, gone)
    if not flat:
        widest = float(1.0 / np.sqrt(values[0])) if len(values) else 0.0
        said = f"all are determined, the least of them to {widest:.0%} of what would be open"
        yield Finding("parameters", widest, False, said)
    said = f"another step would gain {plural(found.left, 'nat', '.2g')}"
    remedy = "go on with fit(data, start=fit), with a smaller tolerance, or more steps"
    yield Finding("end of the search", found.left, found.left > LEFT, said, remedy)


def _moved(vector: np.ndarray) -> list[int]:
    """The elements that a direction moves most."""
    order = np.argsort(-np.abs(vector))
    return [int(i) for i in order if np.abs(vector[i]) >= TOGETHER * np.abs(vector[order[0]])][:NAMED]


def _open(alone: dict[str, float], gone: Collection[str]) -> Finding:
    """Elements along which the evidence hardly falls, with their curvatures."""
    names, flattest = [f"`{name}`" for name in alone], min(alone.values())
    if len(names) == 1:
        said = f"{names[0]} is not determined by the data: its value is where the search has ended"
        remedy = "it is next to 0: leave out what it scales, or " if {*alone} & {*gone} else ""
        remedy += f"give {names[0]} a prior that says more, or bounds, or fix it"
        return Finding("parameters", flattest, True, said, remedy)
    left = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    listed = ", ".join(names[:LISTED]) + left if left else f"{', '.join(names[:-1])} and {names[-1]}"
    said = f"{listed} are not determined by the data: their values are where the search has ended"
    return Finding("parameters", flattest, True, said, "give them priors or bounds, or fix them")


def _confounded(names: list[str], value: float, moved: np.ndarray) -> Finding:
    """A direction of several elements along which the evidence hardly falls."""
    how = "together" if len({*np.sign(moved)}) == 1 else "against each other"
    listed = " and ".join(f"`{name}`" for name in names)
    said = f"{listed} are confounded: moved {how}, they change next to nothing"
    return Finding("parameters", value, True, said, f"fix one of {listed}, or give them priors")


def cut_short(fit: Fit) -> Iterator[Finding]:
    """Of a search that `steps` has ended: whether its bound, as reported on the way, still rose in its second half.

    Noise is told from the trend by second differences, whose variance is six times its own.
    """
    if not fit.message.startswith(OUT_OF_STEPS) or fit.options.steps is None or fit.interrupted:
        return
    late = fit.history[max(len(fit.history) // 2 - 1, 0) :, 1]
    half = len(late) // 2
    noise = float(np.std(np.diff(late, 2)) / np.sqrt(3.0 * half)) if len(late) > 3 else 0.0
    rise = float(np.mean(late[-half:]) - np.mean(late[:half])) if half else np.inf
    few = len(late) < 4  # too short to see how the rise falls off
    if rise > (LEFT if few else max(1.0, RISEN * fit.rows, 3.0 * noise)):
        why = "before it could rest" if few else f"the bound rose by {plural(rise, 'nat', ',.0f')} near the end"
        said = f"ended by `steps`: {why}, and parameters and posterior are on their way"
        remedy = "go on with model.fit(data, start=fit), or leave `steps` out"
        yield Finding(UNFINISHED, rise, True, said, remedy, Kind.CUT)


def at_edges(fit: Fit) -> Iterator[tuple[Finding, set[str]]]:
    """Parameters at the bounds of their domain, or read only in jumps, with the names of their elements there."""
    program = fit.program
    for name in without_slope(program.translator, program.observations, list(program.parameters.initial)):
        said = f"`{name}` is read only where values jump, in conditions or `floor`: no search by slopes moves it"
        remedy = f"write a step whose width is learnt too, `sigmoid((x - {name}) / width)`, or compare the bounds of "
        here = {name + subscript(i + 1 for i in at) for at in np.ndindex(np.shape(fit.parameters[name]))}
        yield Finding("parameters", 0.0, True, said, remedy + "fits at several values that are `fixed`"), here
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
            share = "the data want none or all of its part: leave it out, or write a prior, `Beta(2, 2)`"
            wider = "widen the bounds, or ask whether the model suits the data"
            bounded = param.lower is not None or param.upper is not None
            remedy = wider if bounded else share
            yield Finding("parameters", nearest, True, said, remedy), {name + subscript(at + 1) for at in there}


def judged(fit: Fit, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings, first that a fit is unfinished, then lost evidence; without doubts that much of either explains."""
    lost = [each for each in findings if each.name == POINTS and each.doubtful]
    first = [*(each for each in findings if each.name == UNFINISHED), *lost]
    early = any(each.kind is Kind.CUT for each in first)
    others = [each for each in findings if each not in first and not (early and each.name == EVIDENCE)]
    if any(Loss(each.number, fit.rows).much for each in lost):
        others = [each for each in others if not each.doubtful or each.name in STANDING]
    unused = {getattr(each, "name", "") for each in unused_names(fit.program.declarations)}
    unread = " and ".join(f"`{name}`" for name in fit.program.declarations.inputs if name in unused)
    for i, each in enumerate(others):
        if unread and each.doubtful and each.kind is Kind.PATTERN:
            remedy = f"the model reads no {unread}: let a latent see it, or a mean that grows with it; or {each.remedy}"
            others[i] = replace(each, remedy=remedy)
    return (*first, *others)
