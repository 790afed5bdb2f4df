"""The syntax tree: what the text says, before any name has been looked up. Frozen, a span on every node."""

from __future__ import annotations

from dataclasses import dataclass

from gpdsl.language.errors.base import Mistake
from gpdsl.language.source import Source, Span


@dataclass(frozen=True)
class Node:
    """Anything with a place in the text."""

    span: Span


@dataclass(frozen=True)
class Identifier(Node):
    """A word standing for something."""

    text: str


# --- expressions ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Literal(Node):
    """A number, as written and as a value: int when written as a short whole number, else float."""

    text: str
    value: int | float


@dataclass(frozen=True)
class Subscript(Node):
    """`p`, `p - 1`, `2`; with a comparison, `p > 1`, `comparison` and `against` are set."""

    value: Formula
    comparison: str | None = None
    against: Formula | None = None


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
class Binary(Node):
    """`a + b`; operator is one of `+ - * / ^`."""

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


Formula = Literal | Name | Call | Binary | Negation | Array


# --- parts of declarations --------------------------------------------------------------------------------------


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
    """`real`, `positive[D]`, `label[c]`."""

    word: Identifier
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


# --- statements -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelStatement(Node):
    """`model coal_mining "title"`."""

    name: Identifier
    title: str


@dataclass(frozen=True)
class IndexStatement(Node):
    """`index p in 1..4`: `start` and `stop`; `index c in {4, 7}`: `levels`."""

    name: Identifier
    start: Literal | None = None
    stop: Size | None = None
    levels: tuple[tuple[int | float | str, Span], ...] = ()


@dataclass(frozen=True)
class InputStatement(Node):
    """`input x : real[13]`."""

    declared: Declared
    type: Type


@dataclass(frozen=True)
class OutputStatement(Node):
    """`output y[p] : count`."""

    declared: Declared
    type: Type


@dataclass(frozen=True)
class ConstStatement(Node):
    """`const a[p] = [1, 2]`."""

    declared: Declared
    value: Formula


@dataclass(frozen=True)
class ParamStatement(Node):
    """`param s : positive = 0.1 fixed ~ Gamma(2, 1)`."""

    declared: Declared
    type: Type
    value: Formula | None
    fixed: bool
    prior: Formula | None


@dataclass(frozen=True)
class LatentStatement(Node):
    """`latent f[c](x) ~ GP(mean, kernel)`."""

    declared: Declared
    arguments: tuple[Identifier, ...]
    process: Formula


@dataclass(frozen=True)
class LetStatement(Node):
    """`let g[p] = ...`; one of several cases when the name comes again."""

    name: Identifier
    subscripts: tuple[Subscript, ...] | None
    value: Formula


@dataclass(frozen=True)
class ExternalStatement(Node):
    """`external g(a: real[4]) -> real[4]`."""

    name: Identifier
    arguments: tuple[Passed, ...]
    result: Type


@dataclass(frozen=True)
class ExternalLikelihoodStatement(Node):
    """`external likelihood g(y: real | a: real[4])`."""

    name: Identifier
    observed: tuple[Passed, ...]
    arguments: tuple[Passed, ...]


@dataclass(frozen=True)
class ObservationStatement(Node):
    """`y[p] ~ Normal(f[p], s)`; `left` has several parts in `(t, u) ~ g(a)`."""

    left: tuple[Formula, ...]
    distribution: Formula


@dataclass(frozen=True)
class InferStatement(Node):
    """`infer vi: samples = 100`."""

    engine: Identifier
    options: tuple[Option, ...]


Statement = (
    ModelStatement
    | IndexStatement
    | InputStatement
    | OutputStatement
    | ConstStatement
    | ParamStatement
    | LatentStatement
    | LetStatement
    | ExternalStatement
    | ExternalLikelihoodStatement
    | ObservationStatement
    | InferStatement
)


@dataclass(frozen=True)
class SyntaxTree:
    """The statements that could be read, in source order, and what could not.

    `mistakes` holds the syntax errors; `lost` the names that a broken statement may have declared or observed, about
    which nothing more is said.
    """

    source: Source
    statements: tuple[Statement, ...]
    mistakes: tuple[Mistake, ...] = ()
    lost: frozenset[str] = frozenset()
