"""The syntax of expressions: numbers, names, calls and operations as written, a span on every node."""

from __future__ import annotations

from dataclasses import dataclass

from gpdsl.language.source import Span


@dataclass(frozen=True)
class Node:
    """Anything with a place in the text."""

    span: Span


@dataclass(frozen=True)
class Identifier(Node):
    """A word standing for something."""

    text: str


@dataclass(frozen=True)
class Literal(Node):
    """A number, as written and as a value: int when written as a short whole number, else float."""

    text: str
    value: int | float


@dataclass(frozen=True)
class Subscript(Node):
    """`p`, `p - 1`, `2`; `p > 1`: `comparison` and `against` are set; `1..3`: `stop` is set."""

    value: Formula
    comparison: str | None = None
    against: Formula | None = None
    stop: Literal | None = None


@dataclass(frozen=True)
class Name(Node):
    """A name, with subscripts or (None) without."""

    identifier: Identifier
    subscripts: tuple[Subscript, ...] | None = None


@dataclass(frozen=True)
class Argument(Node):
    """An argument of a call, named (`ell = 2`) or by position."""

    name: Identifier | None
    value: Formula


@dataclass(frozen=True)
class Call(Node):
    """`exp(f)`, `RBF(ell)`, `Normal(f, s)`, `sum(q, ...)`."""

    function: Identifier
    arguments: tuple[Argument, ...]


@dataclass(frozen=True)
class Elsewhere(Node):
    """`f[site](b)`: an element of a latent, at other inputs."""

    element: Name
    inputs: tuple[Identifier, ...]


@dataclass(frozen=True)
class Binary(Node):
    """`a + b`; operator is one of `+ - * / ^ @`."""

    operator: str
    left: Formula
    right: Formula


@dataclass(frozen=True)
class Negation(Node):
    """`-a`."""

    operand: Formula


@dataclass(frozen=True)
class Array(Node):
    """`[1, 2, 3]`, the value of a constant or parameter."""

    items: tuple[Formula, ...]


@dataclass(frozen=True)
class Comparison(Node):
    """`a < b`; operator is one of `== != <= >= < >`."""

    operator: str
    left: Formula
    right: Formula


@dataclass(frozen=True)
class Logical(Node):
    """`and` and `or` of two conditions, `not` of one."""

    operator: str
    operands: tuple[Condition, ...]


Condition = Comparison | Logical


@dataclass(frozen=True)
class Conditional(Node):
    """`if y > 0 then a else b`."""

    condition: Condition
    then: Formula
    otherwise: Formula


Formula = Literal | Name | Call | Elsewhere | Binary | Negation | Array | Conditional


# Parts of declarations in the syntax tree: names with their indices, types, options.


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
