"""The checked declaration: what `check` makes of a syntax tree. No arrays, no JAX.

Every name is resolved, every expression knows its axes, every call has its arguments by name. Sizes left free
(`real[D]`, `index p in 1..P`) stay letters until data bind them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from gpdsl.language.source import Source, Span

# --- axes -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Axis:
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


@dataclass(frozen=True)
class Expression:
    """A checked expression; `axes` are the named dimensions it varies along (rows are always implied)."""

    span: Span
    axes: tuple[Axis, ...]


@dataclass(frozen=True)
class Number(Expression):
    """A literal; also `pi`."""

    value: float | int


@dataclass(frozen=True)
class IndexValue:
    """Subscript `layer`, `layer - 1`: the running value of an index, shifted."""

    index: str
    offset: int = 0


@dataclass(frozen=True)
class Fixed:
    """Subscript `2`: one element, counted from 1."""

    position: int


@dataclass(frozen=True)
class Whole:
    """No subscript on an axis without an index name: the whole axis, as in `RBF(ell)` with `ell : positive[D]`."""

    axis: Axis


Subscript = IndexValue | Fixed | Whole


@dataclass(frozen=True)
class Read(Expression):
    """A declared quantity, one subscript per declared axis.

    A name written without subscripts reads every element: the checker fills in its own indices
    (`depth` becomes `depth[layer]`, with axes (layer,)).
    """

    name: str
    subscripts: tuple[Subscript, ...] = ()


@dataclass(frozen=True)
class IndexNumber(Expression):
    """An index used as a number: `2 * layer` (counted from 1)."""

    index: str


@dataclass(frozen=True)
class Operation(Expression):
    """`+ - * / ^`, unary `neg`, or an elementary function by its name (`exp`, `log`, `tanh`, ...)."""

    operator: str
    operands: tuple[Expression, ...]


@dataclass(frozen=True)
class Reduction(Expression):
    """`sum(q, body)`, `prod(q, body)`: over all values of one index."""

    operator: str
    index: str
    body: Expression


@dataclass(frozen=True)
class ExternalCall(Expression):
    """A call of an opaque forward model; arguments in declared order, axes those of its declared result."""

    function: str
    arguments: tuple[Expression, ...]


# --- kernels ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kernel:
    """A covariance function, as written."""

    span: Span


@dataclass(frozen=True)
class KernelCall(Kernel):
    """A kernel of the table by name; `arguments` by parameter name."""

    name: str
    arguments: Mapping[str, Expression]


@dataclass(frozen=True)
class KernelScale(Kernel):
    """`variance * kernel`."""

    factor: Expression
    kernel: Kernel


@dataclass(frozen=True)
class KernelSum(Kernel):
    """Sum of two or more covariance functions."""

    terms: tuple[Kernel, ...]


@dataclass(frozen=True)
class KernelProduct(Kernel):
    """Product of two or more covariance functions (a power is a product)."""

    factors: tuple[Kernel, ...]


# --- declarations -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Declaration:
    """A declared name and where."""

    name: str
    span: Span


@dataclass(frozen=True)
class Index(Declaration):
    """`index p in 1..4`, `index c in 1..C`, `index c in {4, 7, 9}` (levels)."""

    axis: Axis
    levels: tuple[int | float | str, ...] | None = None


@dataclass(frozen=True)
class Input(Declaration):
    """Known per-row quantity; `axes` empty for a scalar. `kind` is real, positive or count."""

    axes: tuple[Axis, ...]
    kind: str = "real"


@dataclass(frozen=True)
class Output(Declaration):
    """Observed per-row quantity. `kind` is real, positive, count, binary or label; `label` the axis of its levels."""

    kind: str
    axes: tuple[Axis, ...]
    label: Axis | None = None


@dataclass(frozen=True)
class Const(Declaration):
    """A constant array; `values` is nested tuples following `axes` (a float when there are none)."""

    axes: tuple[Axis, ...]
    values: float | tuple


@dataclass(frozen=True)
class Param(Declaration):
    """Point-estimated parameter. `constraint` is real, positive or unit; `initial` a float or nested tuples."""

    constraint: str
    axes: tuple[Axis, ...]
    initial: float | tuple
    fixed: bool = False
    prior: DistributionCall | None = None


@dataclass(frozen=True)
class Latent(Declaration):
    """`latent f[c](x) ~ GP(mean, kernel)`: independent GPs, one per value of `axes`, over the named inputs."""

    axes: tuple[Axis, ...]
    arguments: tuple[str, ...]
    mean: Expression
    kernel: Kernel


@dataclass(frozen=True)
class Guard:
    """Which values of an index a case covers: `operator` is one of `all == < <= > >= !=`, against `value`."""

    index: str
    operator: str = "all"
    value: int = 0


@dataclass(frozen=True)
class Case:
    """One right-hand side of a `let`, valid where every guard (one per axis) holds."""

    guards: tuple[Guard, ...]
    body: Expression
    span: Span


@dataclass(frozen=True)
class Let(Declaration):
    """Deterministic quantity; several cases when it is defined by parts or by recursion along an index."""

    axes: tuple[Axis, ...]
    cases: tuple[Case, ...]


@dataclass(frozen=True)
class ExternalArgument:
    """An argument of an external: its name and the dimensions it is passed with."""

    name: str
    axes: tuple[Axis, ...]


@dataclass(frozen=True)
class External(Declaration):
    """`external g(a: real[4], b: real) -> real[4]`."""

    arguments: tuple[ExternalArgument, ...]
    result: tuple[Axis, ...]


@dataclass(frozen=True)
class ExternalLikelihood(Declaration):
    """`external likelihood g(y: real[4] | a: real[4])`; `observed` names the arguments left of the bar."""

    observed: tuple[ExternalArgument, ...]
    arguments: tuple[ExternalArgument, ...]


@dataclass(frozen=True)
class DistributionCall:
    """A distribution by name, or an external likelihood (`external` true, arguments then in declared order)."""

    name: str
    arguments: Mapping[str, Expression]
    span: Span
    external: bool = False


@dataclass(frozen=True)
class Observation:
    """`y[p] ~ Distribution(...)`; `outputs` has several names only for an external likelihood (`(t, u) ~ g(...)`).

    `subscripts` has one entry per declared axis of the output when there is one output: `y[2, p] ~ ...` observes
    only the elements with first index 2 (`Fixed(2)`, `IndexValue("p")`), and `axes` are those that remain.
    """

    outputs: tuple[str, ...]
    axes: tuple[Axis, ...]
    distribution: DistributionCall
    span: Span
    subscripts: tuple[Subscript, ...] = ()


@dataclass(frozen=True)
class Infer:
    """Defaults for inference: `posterior = mixture(2), inducing = 100, samples = 100` as plain values.

    A posterior with a number is text, `"mixture(2)"`.
    """

    options: Mapping[str, int | float | str | bool] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class Declarations:
    """A checked model: declarations in source order, by kind; every mapping is by name."""

    name: str
    title: str
    source: Source
    indices: Mapping[str, Index]
    inputs: Mapping[str, Input]
    outputs: Mapping[str, Output]
    consts: Mapping[str, Const]
    params: Mapping[str, Param]
    latents: Mapping[str, Latent]
    lets: Mapping[str, Let]
    externals: Mapping[str, External]
    likelihoods: Mapping[str, ExternalLikelihood]
    observations: tuple[Observation, ...]
    infer: Infer = field(default_factory=Infer)

    def axes_of(self, name: str) -> tuple[Axis, ...]:
        """The declared axes of any quantity."""
        for table in (self.inputs, self.outputs, self.consts, self.params, self.latents, self.lets):
            if name in table:
                return table[name].axes
        raise KeyError(name)
