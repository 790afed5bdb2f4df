"""The syntax tree: what the text says, before any name has been looked up. Frozen, a span on every node."""

from __future__ import annotations

from gpdsl.language.errors.base import Mistake
from gpdsl.language.vocabulary import Record, Source, Span

# The syntax of expressions: numbers, names, calls and operations as written, a span on every node.


class Node(Record):
    """Anything with a place in the text."""

    span: Span


class Identifier(Node):
    """A word standing for something."""

    text: str


class Literal(Node):
    """A number, as written and as a value: int when written as a short whole number, else float."""

    text: str
    value: int | float


class Subscript(Node):
    """`p`, `p - 1`, `2`; `p > 1`: `comparison` and `against` are set; `1..3`: `stop` is set."""

    value: Formula
    comparison: str | None = None
    against: Formula | None = None
    stop: Literal | None = None


class Name(Node):
    """A name, with subscripts or (None) without."""

    identifier: Identifier
    subscripts: tuple[Subscript, ...] | None = None


class Argument(Node):
    """An argument of a call, named (`ell = 2`) or by position."""

    name: Identifier | None
    value: Formula


class Call(Node):
    """`exp(f)`, `RBF(ell)`, `Normal(f, s)`, `sum(q, ...)`."""

    function: Identifier
    arguments: tuple[Argument, ...]


def called(formula: object) -> str:
    """The function that an expression calls; empty for what is no call."""
    return formula.function.text if isinstance(formula, Call) else ""


class Elsewhere(Node):
    """`f[site](b)`: an element of a latent, at other inputs."""

    element: Name
    inputs: tuple[Identifier, ...]


class Binary(Node):
    """`a + b`; operator is one of `+ - * / ^ @`."""

    operator: str
    left: Formula
    right: Formula


class Negation(Node):
    """`-a`."""

    operand: Formula


class Array(Node):
    """`[1, 2, 3]`, the value of a constant or parameter."""

    items: tuple[Formula, ...]


class Comparison(Node):
    """`a < b`; operator is one of `== != <= >= < >`."""

    operator: str
    left: Formula
    right: Formula


class Logical(Node):
    """`and` and `or` of two conditions, `not` of one."""

    operator: str
    operands: tuple[Condition, ...]


Condition = Comparison | Logical


class Conditional(Node):
    """`if y > 0 then a else b`."""

    condition: Condition
    then: Formula
    otherwise: Formula


Formula = Literal | Name | Call | Elsewhere | Binary | Negation | Array | Conditional


# Parts of declarations in the syntax tree: names with their indices, types, options.


class Declared(Record):
    """The declared name and the indices in brackets after it."""

    name: Identifier
    indices: tuple[Identifier, ...] = ()


class Size(Node):
    """A dimension in a type: a number or a word (an index, or a letter that data bind)."""

    value: Literal | Identifier


class Type(Node):
    """`real`, `positive[D]`, `label[c]`, `real(lower = -1, upper = 1)`."""

    word: Identifier
    bounds: tuple[Argument, ...] = ()
    sizes: tuple[Size, ...] = ()


class Passed(Node):
    """An argument of an external: `depth: real[4]`."""

    name: Identifier
    type: Type


class Option(Node):
    """`samples = 100`, `inducing f = points(200)` (then `subject` is `f`)."""

    name: Identifier
    subject: Identifier | None
    value: Formula


# The syntax tree: what the text says, before any name has been looked up. Frozen, a span on every node.


class ModelStatement(Node):
    """`model coal_mining "title"`."""

    name: Identifier
    title: str


class UseStatement(Node):
    """`use "kernels.gpm"`; `place` is where the path stands."""

    path: str
    place: Span


class IndexStatement(Node):
    """`index p in 1..4`: `start` and `stop`; `index c in {4, 7}`: `levels`."""

    name: Identifier
    start: Literal | None = None
    stop: Size | None = None
    levels: tuple[tuple[int | float | str, Span], ...] = ()


class InputStatement(Node):
    """`input x : real[13]`."""

    declared: Declared
    type: Type


class OutputStatement(Node):
    """`output y[p] : count`."""

    declared: Declared
    type: Type


class ConstStatement(Node):
    """`const a[p] = [1, 2]`."""

    declared: Declared
    value: Formula


class ParamStatement(Node):
    """`param s : positive = 0.1 fixed ~ Gamma(2, 1)`."""

    declared: Declared
    type: Type
    value: Formula | None
    fixed: bool
    prior: Formula | None


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


class RowStatement(Node):
    """`row w[q] ~ Normal(0, 1)`."""

    declared: Declared
    type: Type | None
    distribution: Formula


class FunctionStatement(Node):
    """`function t(y; a, b) = ...`: `parameters` are the names after the semicolon."""

    name: Identifier
    arguments: tuple[Identifier, ...]
    parameters: tuple[Identifier, ...]
    value: Formula


class KernelStatement(Node):
    """`kernel spiral(r; ell, p) = ...` or `kernel k(a, b; ell) = ...`; `levels` are the names in `k[d, e](a, b)`."""

    name: Identifier
    arguments: tuple[Identifier, ...]
    parameters: tuple[Identifier, ...]
    value: Formula
    levels: tuple[Identifier, ...] = ()


class DensityStatement(Node):
    """`density huber(y | mu, s) = ...`: `observed` stands left of the bar."""

    name: Identifier
    observed: Identifier
    arguments: tuple[Identifier, ...]
    parameters: tuple[Identifier, ...]
    value: Formula


class LetStatement(Node):
    """`let g[p] = ...`; one of several cases when the name comes again."""

    name: Identifier
    subscripts: tuple[Subscript, ...] | None
    value: Formula


class ExternalStatement(Node):
    """`external g(a: real[4]) -> real[4]`."""

    name: Identifier
    arguments: tuple[Passed, ...]
    result: Type


class ExternalLikelihoodStatement(Node):
    """`external likelihood g(y: real | a: real[4])`."""

    name: Identifier
    observed: tuple[Passed, ...]
    arguments: tuple[Passed, ...]


class ObservationStatement(Node):
    """`y[p] ~ Normal(f[p], s)`; `left` has several parts in `(t, u) ~ g(a)`."""

    left: tuple[Formula, ...]
    distribution: Formula


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


class SyntaxTree(Record):
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
