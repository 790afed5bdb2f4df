"""The checked expressions: axes, values read, operations on them, and covariance functions.

Every name is resolved and every expression knows its axes. Sizes left free (`real[D]`) stay letters until data bind
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from types import MappingProxyType

from gpdsl.language.vocabulary import Record, Span

# --- axes -------------------------------------------------------------------------------------------------------


class Axis(Record):
    """One named dimension of a quantity.

    `name` is the index that declares it (`layer`), or None for a dimension written as a bare size (`real[13]`,
    `real[D]`). Either `size` is known or `dimension` holds the letter that data bind (`D`).
    """

    name: str | None
    size: int | None = None
    dimension: str | None = None

    def describe(self) -> str:
        """How an error message names this axis."""
        return self.name or (self.dimension if self.size is None else str(self.size)) or "?"


def same_axis(a: Axis, b: Axis) -> bool:
    """Whether two axes are the same: by name; a bare size matches any axis of the same size or letter."""
    if a.name is not None and b.name is not None:
        return a.name == b.name
    return (a.size, a.dimension) == (b.size, b.dimension)


# --- expressions ------------------------------------------------------------------------------------------------


class Expression(Record):
    """A checked expression; `axes` are the named dimensions it varies along (rows are always implied)."""

    span: Span
    axes: tuple[Axis, ...]


class Number(Expression):
    """A literal; also `pi`."""

    value: float | int


class IndexValue(Record):
    """Subscript `layer`, `layer - 1`: the running value of an index, shifted."""

    index: str
    offset: int = 0


class Fixed(Record):
    """Subscript `2`: one element, counted from 1."""

    position: int


class Whole(Record):
    """No subscript on an axis without an index name: the whole axis, as in `RBF(ell)` with `ell : positive[D]`."""

    axis: Axis


class Slice(Record):
    """Subscript `2..4`: some elements, from `start`; `axis` is the axis of those chosen, a bare size."""

    axis: Axis
    start: int


class At(Record):
    """Subscript `site`: in each row the element that an input of levels says, `input site : label[s]`."""

    input: str


class Level(Record):
    """Subscript `d` in `kernel k[d, e](a, b) = ...`: the element of the level that one of the two points is at."""

    name: str


Subscript = IndexValue | Fixed | Whole | Slice | At | Level


class Direction(Record):
    """A column of one argument of a latent, to differentiate along: `x[2]` is `Direction(0, 2)`, a scalar `x` has 1.

    `x[d]` is `Direction(0, IndexValue("d"))`: the derivative then varies along `d`.
    """

    argument: int
    column: int | IndexValue


class Functional(Record):
    """What is asked of a latent at a row: its value at the inputs `at` (its own when empty), differentiated.

    `f` is `Functional()`, `f(a)` is `Functional(("a",))`, `D(f, x[1])` is `Functional((), (Direction(0, 1),))`. What is
    `integrated` is so from the first of `at` to the second, each an input or a number: `integral(f, a, b)` and
    `integral(f, 0, b)` are `Functional(("a", "b"), integrated=True)` and `Functional(("0", "b"), integrated=True)`.
    """

    at: tuple[str, ...] = ()
    derivative: tuple[Direction, ...] = ()
    integrated: bool = False


def is_number(end: str) -> bool:
    """Whether the end of an interval is written as a number, and not the name of an input."""
    return not end.isidentifier()


VALUE = Functional()
"""The value at the row's own inputs."""


class Read(Expression):
    """A declared quantity, one subscript per declared axis.

    A name written without subscripts reads every element: the checker fills in its own indices
    (`depth` becomes `depth[layer]`, with axes (layer,)). `functional` matters for latents only.
    """

    name: str
    subscripts: tuple[Subscript, ...] = ()
    functional: Functional = VALUE


class IndexNumber(Expression):
    """An index used as a number: `2 * layer` (counted from 1)."""

    index: str


class Operation(Expression):
    """`+ - * / ^`, unary `neg`, or an elementary function by its name (`exp`, `log`, `tanh`, ...).

    `if` has three operands, the first a condition: one of `< <= > >= == !=` with two operands, `and`, `or`, `not`.
    """

    operator: str
    operands: tuple[Expression, ...]


class Reduction(Expression):
    """`sum(q, body)`, `prod(q, body)`: over all values of one axis, an index or a bare size (`sum(x)`)."""

    operator: str
    axis: Axis
    body: Expression


class FunctionCall(Expression):
    """A call of a `function` of the file; `body` is its formula with the arguments put in."""

    function: str
    arguments: tuple[Expression, ...]
    body: Expression


class Local(Expression):
    """An argument inside the definition of a `function`, `kernel` or `density`, before any call puts a value in."""

    name: str
    subscripts: tuple[Subscript, ...] = ()


class ExternalCall(Expression):
    """A call of an opaque forward model; arguments in declared order, axes those of its declared result."""

    function: str
    arguments: tuple[Expression, ...]


def parts(expression: Expression) -> tuple[Expression, ...]:
    """The expressions directly inside another."""
    match expression:
        case Operation(operands=inside) | ExternalCall(arguments=inside):
            return inside
        case Reduction(body=body) | FunctionCall(body=body):
            return (body,)
    return ()


def every_part(*expressions: Expression) -> Iterator[Expression]:
    """Expressions and all that is inside them, in order of reading."""
    waiting = [*reversed(expressions)]
    while waiting:
        each = waiting.pop()
        yield each
        waiting.extend(reversed(parts(each)))


def reads_of(*expressions: Expression) -> Iterator[Read]:
    """Every value read inside expressions, in order of reading."""
    return (each for each in every_part(*expressions) if isinstance(each, Read))


# --- kernels ----------------------------------------------------------------------------------------------------


class Kernel(Record):
    """A covariance function, as written."""

    span: Span


class KernelCall(Kernel):
    """A kernel of the table by name; `arguments` by parameter name.

    `kernels` are those passed as arguments (`ChangePoint(RBF(1), Linear(1), at = 3)`). `on` holds the expressions of
    the inputs that the kernel sees instead of all columns as they are (`on = x[1..3]`, `on = log(x)`); empty: all.
    `sizes` are the arguments that are lists of whole numbers (`image = [28, 28]`).
    """

    name: str
    arguments: Mapping[str, Expression]
    kernels: tuple[Kernel, ...] = ()
    on: tuple[Expression, ...] = ()
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))


class KernelFormula(Kernel):
    """A covariance function by formula. `points` names its two points (`a`, `b`) or its distance (`r`).

    `body` is the formula, in which the points and the arguments are `Local`; the bare axis of a point, and of an
    argument with one value per column, are the columns of the input. `levels` name the values of an index at either
    point, which are then the last column of `on`; `arrays` are the arguments read by them, with the axes that their
    subscripts stand along.
    """

    name: str
    arguments: Mapping[str, Expression]
    points: tuple[str, ...]
    body: Expression
    on: tuple[Expression, ...] = ()
    levels: tuple[str, ...] = ()
    arrays: Mapping[str, tuple[Axis, ...]] = field(default_factory=lambda: MappingProxyType({}))


class KernelScale(Kernel):
    """`variance * kernel`."""

    factor: Expression
    kernel: Kernel


class KernelSum(Kernel):
    """Sum of two or more covariance functions."""

    terms: tuple[Kernel, ...]


class KernelProduct(Kernel):
    """Product of two or more covariance functions (a power is a product)."""

    factors: tuple[Kernel, ...]


def kernels_in(kernel: Kernel) -> tuple[Kernel, ...]:
    """The covariance functions directly inside another."""
    match kernel:
        case KernelCall(kernels=inside) | KernelSum(terms=inside) | KernelProduct(factors=inside):
            return inside
        case KernelScale(kernel=inner):
            return (inner,)
    return ()


def every_kernel(kernel: Kernel) -> Iterator[Kernel]:
    """A covariance function and all that are inside it, from the outside in."""
    yield kernel
    for each in kernels_in(kernel):
        yield from every_kernel(each)
