"""Mistakes that show only once a model's sizes are known and its definitions are written out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpdsl.language.errors.base import Mistake


@dataclass(frozen=True)
class TooLarge(Mistake):
    """An expression that explodes once definitions and sums are written out."""

    what: str
    limit: int
    code: ClassVar = "E501"
    message: ClassVar = "written out, {what} has more than {limit} operations"
    label: ClassVar = "too large to compile"
    help: ClassVar = "shorten the index, or compute it in an `external` function"


@dataclass(frozen=True)
class TooDeep(Mistake):
    """An expression whose operations stand one inside the other too often."""

    what: str
    limit: int
    code: ClassVar = "E502"
    message: ClassVar = "written out, {what} nests more than {limit} operations"
    label: ClassVar = "too deep to compile"
    help: ClassVar = "shorten the index, or compute it in an `external` function"


@dataclass(frozen=True)
class NotReal(Mistake):
    """An operation whose value is infinite or not a real number, whatever the data."""

    what: str
    code: ClassVar = "E503"
    message: ClassVar = "{what} is not a finite real number"
    label: ClassVar = "overflow, division by zero or outside the function's domain"
    help: ClassVar = "correct the formula, or the constants it reads"


@dataclass(frozen=True)
class NoCase(Mistake):
    """An element of a `let` by cases that none of the cases defines, at the size the data gave its index."""

    element: str
    code: ClassVar = "E504"
    message: ClassVar = "no case defines `{element}`"
    label: ClassVar = "the data made the index this long"
    help: ClassVar = "add a case for it"
