"""The syntax tree: what the text says, before any name has been looked up. Frozen, a span on every node."""

from __future__ import annotations

from dataclasses import dataclass

from gpdsl.language.errors.base import Mistake
from gpdsl.language.formulas import (
    Argument,
    Array,
    Binary,
    Call,
    Comparison,
    Condition,
    Conditional,
    Declared,
    Elsewhere,
    Formula,
    Identifier,
    Literal,
    Logical,
    Name,
    Negation,
    Node,
    Option,
    Passed,
    Size,
    Subscript,
    Type,
)
from gpdsl.language.source import Source, Span

__all__ = [
    "Argument",
    "Array",
    "Binary",
    "Call",
    "Comparison",
    "Condition",
    "Conditional",
    "ConstStatement",
    "Declared",
    "DensityStatement",
    "Elsewhere",
    "ExternalLikelihoodStatement",
    "ExternalStatement",
    "Formula",
    "FunctionStatement",
    "Identifier",
    "IndexStatement",
    "InferStatement",
    "InputStatement",
    "KernelStatement",
    "LatentStatement",
    "LetStatement",
    "Literal",
    "Logical",
    "ModelStatement",
    "Name",
    "Negation",
    "Node",
    "ObservationStatement",
    "Option",
    "OutputStatement",
    "ParamStatement",
    "Passed",
    "RowStatement",
    "Size",
    "Statement",
    "Subscript",
    "SyntaxTree",
    "Type",
    "UseStatement",
]


@dataclass(frozen=True)
class ModelStatement(Node):
    """`model coal_mining "title"`."""

    name: Identifier
    title: str


@dataclass(frozen=True)
class UseStatement(Node):
    """`use "kernels.gpm"`; `place` is where the path stands."""

    path: str
    place: Span


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
    """`latent f[c](x) ~ GP(mean, kernel)`.

    Where it is one of several layers, `h[l > 1]`, `subscripts` are as written, and not in `declared`; where an argument
    has brackets, `h[l - 1]`, all are `given` as written, and not in `arguments`.
    """

    declared: Declared
    arguments: tuple[Identifier, ...]
    process: Formula
    subscripts: tuple[Subscript, ...] | None = None
    given: tuple[Name, ...] | None = None


@dataclass(frozen=True)
class RowStatement(Node):
    """`row w[q] ~ Normal(0, 1)`."""

    declared: Declared
    type: Type | None
    distribution: Formula


@dataclass(frozen=True)
class FunctionStatement(Node):
    """`function t(y; a, b) = ...`: `parameters` are the names after the semicolon."""

    name: Identifier
    arguments: tuple[Identifier, ...]
    parameters: tuple[Identifier, ...]
    value: Formula


@dataclass(frozen=True)
class KernelStatement(Node):
    """`kernel spiral(r; ell, p) = ...` or `kernel k(a, b; ell) = ...`; `levels` are the names in `k[d, e](a, b)`."""

    name: Identifier
    arguments: tuple[Identifier, ...]
    parameters: tuple[Identifier, ...]
    value: Formula
    levels: tuple[Identifier, ...] = ()


@dataclass(frozen=True)
class DensityStatement(Node):
    """`density huber(y | mu, s) = ...`: `observed` stands left of the bar."""

    name: Identifier
    observed: Identifier
    arguments: tuple[Identifier, ...]
    parameters: tuple[Identifier, ...]
    value: Formula


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
    | UseStatement
    | IndexStatement
    | InputStatement
    | OutputStatement
    | ConstStatement
    | ParamStatement
    | LatentStatement
    | RowStatement
    | FunctionStatement
    | KernelStatement
    | DensityStatement
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

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines that its `infer` lines name."""
        return tuple(each.engine.text for each in self.statements if isinstance(each, InferStatement))
