"""E315 to E317 and E320 to E324: values of constants, parameters and options that do not fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpdsl.language.errors.base import Mistake


@dataclass(frozen=True)
class NotANumber(Mistake):
    """A name in the value of a constant or parameter."""

    name: str
    what: str
    code: ClassVar = "E315"
    message: ClassVar = "the value of {what} is made of numbers"
    label: ClassVar = "`{name}` is not a number"
    help: ClassVar = "write numbers, + - * / ^, exp, log, sqrt and pi; use `let` for quantities computed from others"


@dataclass(frozen=True)
class WrongShape(Mistake):
    """A list of the wrong length or nesting."""

    name: str
    expected: str
    given: str
    code: ClassVar = "E316"
    message: ClassVar = "`{name}` needs {expected}, not {given}"
    label: ClassVar = "{given} here"
    help: ClassVar = "list one value per element along each axis, or write one number for all of them"


@dataclass(frozen=True)
class OutsideDomain(Mistake):
    """A number that violates a constraint."""

    what: str
    value: str
    domain: str
    remedy: str
    code: ClassVar = "E317"
    message: ClassVar = "{what} must be {domain}, not {value}"
    label: ClassVar = "must be {domain}"
    help: ClassVar = "write a value that is {domain}{remedy}"


@dataclass(frozen=True)
class UnknownOption(Mistake):
    """An option of `infer` that does not exist."""

    name: str
    known: str
    suggestion: str = ""
    code: ClassVar = "E320"
    message: ClassVar = "unknown option `{name}`"
    label: ClassVar = "not an option of `infer`"
    help: ClassVar = "options: {known}"


@dataclass(frozen=True)
class BadOption(Mistake):
    """An option with a value it cannot have."""

    name: str
    expected: str
    example: str
    suggestion: str = ""
    code: ClassVar = "E321"
    message: ClassVar = "the option `{name}` cannot have this value"
    label: ClassVar = "expected {expected}"
    help: ClassVar = "for example `{example}`"


@dataclass(frozen=True)
class NotOfThisEngine(Mistake):
    """An option that the engine of the line does not read."""

    name: str
    engine: str
    engines: str
    example: str
    code: ClassVar = "E327"
    message: ClassVar = "engine `{engine}` has no option `{name}`"
    label: ClassVar = "an option of {engines}"
    help: ClassVar = "leave it out, or write `infer {example}: ...`"


@dataclass(frozen=True)
class RepeatedOption(Mistake):
    """An option or statement given twice."""

    name: str
    first_line: int
    code: ClassVar = "E322"
    message: ClassVar = "`{name}` is given twice"
    label: ClassVar = "first given on line {first_line}"
    help: ClassVar = "keep one of the two"


@dataclass(frozen=True)
class UnknownEngine(Mistake):
    """An inference engine that does not exist."""

    name: str
    known: str
    suggestion: str = ""
    code: ClassVar = "E323"
    message: ClassVar = "unknown inference engine `{name}`"
    label: ClassVar = "expected {known}"
    help: ClassVar = (
        "write `infer vi: ...` for variational inference, `infer ep: ...` for expectation propagation, "
        "`infer qsgp: ...` for weights of basis functions, `infer mcmc: ...` for Markov chains; "
        "an engine of your own is registered first, "
        "`gpdsl.register_engine`, on the command line by a file: `--forward file.py`"
    )


@dataclass(frozen=True)
class NotWhole(Mistake):
    """A number that must be whole and written out."""

    what: str
    smallest: int
    largest: int
    code: ClassVar = "E324"
    message: ClassVar = "{what} must be a whole number written here, from {smallest} to {largest}"
    label: ClassVar = "expected a number from {smallest} to {largest}"
    help: ClassVar = "write the number itself, such as 2"
