"""E1xx: text that does not have the form of a statement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpdsl.language.errors.base import Mistake


@dataclass(frozen=True)
class UnknownStatement(Mistake):
    """The first word of a line is none of the statements."""

    word: str
    statements: str
    suggestion: str = ""
    habit: str = ""
    code: ClassVar = "E101"
    message: ClassVar = "unknown statement `{word}`"
    label: ClassVar = "no statement starts with this word"
    help: ClassVar = "a line starts with one of {statements}, or is an observation such as `y ~ Normal(f, sigma)`"


@dataclass(frozen=True)
class Unexpected(Mistake):
    """A word or sign that cannot stand here."""

    found: str
    expected: str
    form: str
    habit: str = ""
    code: ClassVar = "E102"
    message: ClassVar = "`{found}` cannot stand here"
    label: ClassVar = "expected {expected}"
    help: ClassVar = "the statement has the form `{form}`"


@dataclass(frozen=True)
class EndsEarly(Mistake):
    """The statement stops in the middle."""

    expected: str
    form: str
    code: ClassVar = "E103"
    message: ClassVar = "the statement ends too early"
    label: ClassVar = "expected {expected}"
    help: ClassVar = "the statement has the form `{form}`; only an open bracket continues it on the next line"


@dataclass(frozen=True)
class StrangeCharacter(Mistake):
    """A character with no meaning in the language."""

    character: str
    advice: str
    code: ClassVar = "E104"
    message: ClassVar = "the character `{character}` has no meaning here"
    label: ClassVar = "not part of the language"
    help: ClassVar = "{advice}"


@dataclass(frozen=True)
class NeverClosed(Mistake):
    """An opening bracket without its partner."""

    bracket: str
    partner: str
    code: ClassVar = "E105"
    message: ClassVar = "this `{bracket}` is never closed"
    label: ClassVar = "opened here"
    help: ClassVar = "add the missing `{partner}`"


@dataclass(frozen=True)
class NeverOpened(Mistake):
    """A closing bracket without its partner."""

    bracket: str
    advice: str
    code: ClassVar = "E106"
    message: ClassVar = "this `{bracket}` closes nothing"
    label: ClassVar = "no bracket of this kind is open here"
    help: ClassVar = "{advice}"


@dataclass(frozen=True)
class TextNeverClosed(Mistake):
    """A quotation mark without its partner on the same line."""

    code: ClassVar = "E107"
    message: ClassVar = "this text has no closing quotation mark"
    label: ClassVar = "opened here"
    help: ClassVar = 'add the missing `"` on the same line'


@dataclass(frozen=True)
class MissingKeyword(Mistake):
    """`g = f + 1` without `let`."""

    name: str
    code: ClassVar = "E108"
    message: ClassVar = "`{name} = ...` does not say what `{name}` is"
    label: ClassVar = "a value needs a `let`, `const` or `param` before the name"
    help: ClassVar = (
        "write `let {name} = ...` for a quantity computed from others, `const {name} = ...` for a known "
        "number, `param {name} : real = ...` for one to be estimated"
    )


@dataclass(frozen=True)
class ReservedWord(Mistake):
    """A statement word used as a name."""

    name: str
    code: ClassVar = "E109"
    message: ClassVar = "`{name}` starts a statement and cannot be a name"
    label: ClassVar = "reserved word"
    help: ClassVar = "choose another name, such as `{name}_`"


@dataclass(frozen=True)
class PowerSign(Mistake):
    """`**` for a power."""

    code: ClassVar = "E110"
    message: ClassVar = "a power is written `^`, not `**`"
    label: ClassVar = "write `^` here"
    help: ClassVar = "for example `sigma^2`"


@dataclass(frozen=True)
class MissingTilde(Mistake):
    """`y Normal(f, s)` or `y = Normal(f, s)`."""

    name: str
    distribution: str
    code: ClassVar = "E111"
    message: ClassVar = "an observation is written with `~`"
    label: ClassVar = "expected `~` after `{name}`"
    help: ClassVar = "write `{name} ~ {distribution}(...)`"
