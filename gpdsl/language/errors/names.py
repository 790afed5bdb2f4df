"""E201 to E219: names that mean nothing, or not what is needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpdsl.language.errors.base import Mistake


@dataclass(frozen=True)
class UnknownName(Mistake):
    """A name the file does not declare."""

    name: str
    suggestion: str = ""
    first: str = "declare it"
    habit: str = ""
    code: ClassVar = "E201"
    message: ClassVar = "unknown name `{name}`"
    label: ClassVar = "nothing of this name is declared in this file"
    help: ClassVar = (
        "{first}: `input {name} : real` for data, `param {name} : real` to estimate it, "
        "`const {name} = ...` if it is known"
    )


@dataclass(frozen=True)
class DeclaredTwice(Mistake):
    """A second declaration of a name."""

    name: str
    first_line: str
    code: ClassVar = "E202"
    message: ClassVar = "`{name}` is declared twice"
    label: ClassVar = "first declared on line {first_line}"
    help: ClassVar = "rename or remove one of the two"


@dataclass(frozen=True)
class UsedBeforeDefined(Mistake):
    """A `let` that uses a later one, or itself."""

    name: str
    line: int
    code: ClassVar = "E207"
    message: ClassVar = "`{name}` is used before it is defined"
    label: ClassVar = "defined on line {line}"
    help: ClassVar = "a `let` uses quantities above it, so none can depend on itself: move `let {name} = ...` up"


@dataclass(frozen=True)
class NeverObserved(Mistake):
    """An output without a `~`."""

    name: str
    code: ClassVar = "E208"
    message: ClassVar = "output `{name}` is never observed"
    label: ClassVar = "declared here, but no line `{name} ~ ...` follows"
    help: ClassVar = "add an observation such as `{name} ~ Normal(f, sigma)`, or remove the output"


@dataclass(frozen=True)
class NothingObserved(Mistake):
    """A model without observations."""

    code: ClassVar = "E209"
    message: ClassVar = "the model observes nothing"
    label: ClassVar = "no line has a `~` that ties an output to the latents"
    help: ClassVar = "declare `output y : real` and add an observation such as `y ~ Normal(f, sigma)`"


@dataclass(frozen=True)
class ObservedTwice(Mistake):
    """Two observations of the same elements."""

    name: str
    first_line: int
    code: ClassVar = "E210"
    message: ClassVar = "`{name}` is observed twice"
    label: ClassVar = "already observed on line {first_line}"
    help: ClassVar = "keep one of the two; several lines may observe different elements, `{name}[1] ~ ...`"


@dataclass(frozen=True)
class ShadowsBuiltin(Mistake):
    """A declaration with the name of a function, kernel or distribution."""

    name: str
    what: str
    code: ClassVar = "E211"
    message: ClassVar = "`{name}` is already the name of a {what}"
    label: ClassVar = "cannot be declared"
    help: ClassVar = "choose another name, such as `{name}_`"


@dataclass(frozen=True)
class NotAnIndex(Mistake):
    """A word in brackets of a declaration that is not an index."""

    name: str
    advice: str
    suggestion: str = ""
    code: ClassVar = "E212"
    message: ClassVar = "`{name}` is not an index"
    label: ClassVar = "no `index {name}` is declared"
    help: ClassVar = "{advice}"


@dataclass(frozen=True)
class UnknownFunction(Mistake):
    """A call of something that cannot be called."""

    name: str
    example: str
    suggestion: str = ""
    habit: str = ""
    code: ClassVar = "E217"
    message: ClassVar = "unknown function `{name}`"
    label: ClassVar = "neither a function of the language nor an external of this file"
    help: ClassVar = "if it is a program of yours, declare it: `external {example}`"


@dataclass(frozen=True)
class NotReadable(Mistake):
    """A name of the wrong sort for this place."""

    name: str
    what: str
    place: str
    advice: str
    code: ClassVar = "E218"
    message: ClassVar = "`{name}` is {what} and cannot be used in {place}"
    label: ClassVar = "not possible here"
    help: ClassVar = "{advice}"


@dataclass(frozen=True)
class ArgumentNotInput(Mistake):
    """A latent over something that has no value in each row."""

    name: str
    what: str
    code: ClassVar = "E219"
    message: ClassVar = "the argument `{name}` of a latent is {what}, not an input"
    label: ClassVar = "expected the name of an input, or of a row variable or another latent"
    help: ClassVar = "a latent is a function of inputs: declare `input x : real` and write `latent f(x) ~ ...`"
