"""E330 to E339, E384: functions and densities by formula, transformed left sides, outputs that read other outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpdsl.language.errors.base import Mistake


@dataclass(frozen=True)
class CallsItself(Mistake):
    """A function that is defined by itself, perhaps through others."""

    name: str
    path: str
    code: ClassVar = "E330"
    message: ClassVar = "`{name}` is defined by itself: {path}"
    label: ClassVar = "this call never ends"
    help: ClassVar = "a function is a formula of its arguments; recursion along an index is written with `let`"


@dataclass(frozen=True)
class InsideCall(Mistake):
    """A formula that does not fit the arguments of one call."""

    name: str
    line: str
    why: str
    remedy: str
    code: ClassVar = "E331"
    message: ClassVar = "inside `{name}`: {why}"
    label: ClassVar = "with these arguments; `{name}` is defined on line {line}"
    help: ClassVar = "{remedy}"


@dataclass(frozen=True)
class CallsTooDeep(Mistake):
    """Functions of functions of functions."""

    name: str
    limit: int
    code: ClassVar = "E332"
    message: ClassVar = "written out, `{name}` nests more than {limit} operations"
    label: ClassVar = "each call puts its arguments inside a formula"
    help: ClassVar = "give part of it a name, `let part = {name}(...)`, and go on from `part`"


@dataclass(frozen=True)
class CallsTooMany(Mistake):
    """Calls that add up to more than can be written out."""

    limit: int
    code: ClassVar = "E333"
    message: ClassVar = "written out, the calls of this file have more than {limit} terms together"
    label: ClassVar = "calls are written out no further than this"
    help: ClassVar = "compute what is used often once, with `let part = ...`"


@dataclass(frozen=True)
class LeftSide(Mistake):
    """A transformed left side that is no function of one output."""

    why: str
    remedy: str
    code: ClassVar = "E334"
    message: ClassVar = "left of `~` stands a function of one output, but {why}"
    label: ClassVar = "expected one output, transformed: `log(y)`, `(y - m)/s`"
    help: ClassVar = "{remedy}"


@dataclass(frozen=True)
class NotMonotone(Mistake):
    """`y^2 ~ ...` for an output of either sign."""

    output: str
    why: str
    remedy: str
    code: ClassVar = "E335"
    message: ClassVar = "the left side does not tell `{output}` from its value: {why}"
    label: ClassVar = "not strictly increasing or decreasing in `{output}`"
    help: ClassVar = "{remedy}"


@dataclass(frozen=True)
class NotDefinedEverywhere(Mistake):
    """`log(y)` for a real output."""

    operator: str
    output: str
    kind: str
    line: int
    needs: str
    remedy: str
    code: ClassVar = "E336"
    message: ClassVar = "`{operator}` needs {needs}, but `{output}` is `{kind}`"
    label: ClassVar = "not defined for every value of `{output}`, declared on line {line}"
    help: ClassVar = "{remedy}"


@dataclass(frozen=True)
class OutputCycle(Mistake):
    """An output that depends on itself."""

    name: str
    path: str
    code: ClassVar = "E337"
    message: ClassVar = "`{name}` depends on itself: {path}"
    label: ClassVar = "no order in which these can be drawn"
    help: ClassVar = (
        "let each output use others only, or strictly earlier elements of its own along one index: "
        "`{name}[1] ~ ...`, `{name}[p > 1] ~ Normal({name}[p-1] + ..., s)`"
    )


@dataclass(frozen=True)
class NotObservedElements(Mistake):
    """Elements of an output that no line observes, although others do under conditions."""

    name: str
    example: str
    code: ClassVar = "E338"
    message: ClassVar = "the observations of `{name}` leave out `{name}[{example}]`"
    label: ClassVar = "this condition leaves elements out"
    help: ClassVar = "add a line for them, `{name}[{example}] ~ ...`, or widen a condition"


@dataclass(frozen=True)
class CountTransformed(Mistake):
    """`log(n) ~ Normal(...)` for a count."""

    output: str
    kind: str
    line: int
    code: ClassVar = "E339"
    message: ClassVar = "only real and positive outputs can be transformed, but `{output}` is `{kind}`"
    label: ClassVar = "`{output}` is declared `{kind}` on line {line}"
    help: ClassVar = "observe it as it is, `{output} ~ ...`, with a distribution for {kind} outputs"


@dataclass(frozen=True)
class NotReached(Mistake):
    """`sqrt(y) ~ Normal(...)`: probability where no value of the output leads."""

    shown: str
    reached: str
    distribution: str
    allowed: str
    output: str
    remedy: str
    code: ClassVar = "E384"
    message: ClassVar = (
        "`{shown}` has values {reached} only, but `{distribution}` has probability {allowed}: no density of `{output}`"
    )
    label: ClassVar = "{reached}, whatever `{output}` is"
    help: ClassVar = "{remedy}"
