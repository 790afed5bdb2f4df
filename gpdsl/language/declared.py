"""Parts of declarations in the syntax tree: names with their indices, types, options."""

from __future__ import annotations

from dataclasses import dataclass

from gpdsl.language.formulas import Argument, Formula, Identifier, Literal, Node


@dataclass(frozen=True)
class Declared:
    """The declared name and the indices in brackets after it."""

    name: Identifier
    indices: tuple[Identifier, ...] = ()


@dataclass(frozen=True)
class Size(Node):
    """A dimension in a type: a number or a word (an index, or a letter that data bind)."""

    value: Literal | Identifier


@dataclass(frozen=True)
class Type(Node):
    """`real`, `positive[D]`, `label[c]`, `real(lower = -1, upper = 1)`."""

    word: Identifier
    bounds: tuple[Argument, ...] = ()
    sizes: tuple[Size, ...] = ()


@dataclass(frozen=True)
class Passed(Node):
    """An argument of an external: `depth: real[4]`."""

    name: Identifier
    type: Type


@dataclass(frozen=True)
class Option(Node):
    """`samples = 100`, `inducing f = points(200)` (then `subject` is `f`)."""

    name: Identifier
    subject: Identifier | None
    value: Formula
