"""The checked declaration: what `check` makes of a syntax tree. No arrays, no JAX.

Every name is resolved, every expression knows its axes, every call has its arguments by name. Sizes left free
(`real[D]`, `index p in 1..P`) stay letters until data bind them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any

from gpdsl.language.expressions import *  # noqa: F403  # what reads a model reads its expressions: `m.Read`
from gpdsl.language.expressions import Axis, Expression, Kernel, Read, Subscript, reads_of
from gpdsl.language.vocabulary import Record, Source, Span

# Declarations of what is called (functions, kernels and densities by formula, opaque functions), and defaults.


class Declaration(Record):
    """A declared name and where."""

    name: str
    span: Span


class Function(Declaration):
    """`function t(y; a, b) = ...`: `arguments` and then the `parameters`, which default to quantities of that name.

    `body` is the formula, its arguments as `Local`; calls hold their own copy with the values put in.
    """

    arguments: tuple[str, ...]
    parameters: tuple[str, ...]
    body: Expression


class KernelDefinition(Function):
    """`kernel spiral(r; ell, p) = ...`: `arguments` are the distance, or two points at the `levels` of an index."""

    levels: tuple[str, ...] = ()


class Density(Function):
    """`density huber(y | mu, s) = ...`: the log density of `observed` given the arguments."""

    observed: str = ""


class ExternalArgument(Record):
    """An argument of an external: its name and the dimensions it is passed with."""

    name: str
    axes: tuple[Axis, ...]


class External(Declaration):
    """`external g(a: real[4], b: real) -> real[4]`."""

    arguments: tuple[ExternalArgument, ...]
    result: tuple[Axis, ...]


class ExternalLikelihood(Declaration):
    """`external likelihood g(y: real[4] | a: real[4])`; `observed` names the arguments left of the bar."""

    observed: tuple[ExternalArgument, ...]
    arguments: tuple[ExternalArgument, ...]


class Infer(Record):
    """Defaults for inference: `posterior = mixture(2), inducing = 100, samples = 100` as `fit` takes them.

    A posterior with a number is text, `"mixture(2)"`; `fixed` holds names, `init` values; `standardise` may be unsaid.
    """

    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    standardise: bool | tuple[str, ...] | None = None


class Index(Declaration):
    """`index p in 1..4`, `index c in 1..C`, `index c in {4, 7, 9}` (levels)."""

    axis: Axis
    levels: tuple[int | float | str, ...] | None = None


class Input(Declaration):
    """Known for each row. `kind`: real, positive, count, label (levels along `label`, from 1) or time (in `unit`s)."""

    axes: tuple[Axis, ...]
    kind: str = "real"
    unit: str = ""
    label: Axis | None = None


class Output(Declaration):
    """Observed per-row quantity. `kind` is real, ..., label or ordinal: these two have levels along `label`."""

    kind: str
    axes: tuple[Axis, ...]
    label: Axis | None = None


class Const(Declaration):
    """A constant array; `values` is nested tuples following `axes` (a float when there are none)."""

    axes: tuple[Axis, ...]
    values: float | tuple


class Param(Declaration):
    """Point-estimated parameter. `constraint` is one of `vocabulary.CONSTRAINTS`; `initial` nested tuples.

    Simplex and ordered hold along the last axis. Bounds are never attained. `given`: whether the model has a value.
    """

    constraint: str
    axes: tuple[Axis, ...]
    initial: float | tuple
    fixed: bool = False
    prior: DistributionCall | None = None
    lower: float | None = None
    upper: float | None = None
    given: bool = False

    @property
    def positive(self) -> bool:
        """Whether it can be nothing but positive."""
        return self.constraint in {"positive", "unit", "simplex"} or (self.lower is not None and self.lower >= 0)


class Row(Declaration):
    """`row w[q] ~ Normal(0, 1)`: one unobserved variable per row, independent across rows and elements."""

    axes: tuple[Axis, ...]
    distribution: DistributionCall


class Latent(Declaration):
    """`latent f[c](x) ~ GP(mean, kernel)`: independent GPs, one per value of `axes`, over the named arguments.

    Arguments are inputs, row variables or other latents; or constants, the points of a field: it then has a value at
    each of them, along the index `over`, and the same in every row. An argument may also be an index, `latent f(x, d)`:
    `levels` are the axes of these, and a row reads the one process at several of their values.
    """

    axes: tuple[Axis, ...]
    arguments: tuple[str, ...]
    mean: Expression
    kernel: Kernel
    over: Axis | None = None
    levels: tuple[Axis, ...] = ()

    @property
    def elements(self) -> tuple[Axis, ...]:
        """The axes of what one functional of it gives: its own, and that of its points."""
        return self.axes if self.over is None else (*self.axes, self.over)

    @property
    def values(self) -> tuple[Axis, ...]:
        """The axes of what a read of it gives: also those of the indices among its arguments."""
        return (*self.axes, *(() if self.over is None else (self.over,)), *self.levels)

    def at_levels(self, at: tuple[str, ...], levels: tuple[str, ...]) -> tuple[str, ...]:
        """The arguments `at` (its own when empty), with these in the place of the indices among them."""
        if not self.levels:
            return at
        chosen = dict(zip((str(axis.name) for axis in self.levels), levels, strict=True))
        pairs = zip(self.arguments, at or self.arguments, strict=True)
        return tuple(chosen.get(own, given) for own, given in pairs)


class Guard(Record):
    """Which values of an index a case covers: `operator` is one of `all == < <= > >= !=`, against `value`."""

    index: str
    operator: str = "all"
    value: int = 0


class Case(Record):
    """One right-hand side of a `let`, valid where every guard (one per axis) holds."""

    guards: tuple[Guard, ...]
    body: Expression
    span: Span


class Let(Declaration):
    """Deterministic quantity; several cases when it is defined by parts or by recursion along an index."""

    axes: tuple[Axis, ...]
    cases: tuple[Case, ...]


class DistributionCall(Record):
    """A distribution by name, or an external likelihood (`external` true, arguments then in declared order).

    `components` are the distributions inside `Mixture`, `Truncated` and `Censored`. `log_density` is the formula of a
    `density` of the file with everything put in: what stands left of `~` and the arguments.
    """

    name: str
    arguments: Mapping[str, Expression]
    span: Span
    external: bool = False
    components: tuple[DistributionCall, ...] = ()
    log_density: Expression | None = None

    def expressions(self) -> Iterator[Expression]:
        """Its arguments, its formula, and those of its components."""
        for call in self.calls():
            yield from call.arguments.values()
            if call.log_density is not None:
                yield call.log_density

    def reads(self) -> Iterator[Read]:
        """Every value that its arguments read, those of its components included."""
        return reads_of(*(each for call in self.calls() for each in call.arguments.values()))

    def calls(self) -> Iterator[DistributionCall]:
        """Itself and the distributions inside it."""
        yield self
        for component in self.components:
            yield from component.calls()


class Observation(Record):
    """`y[p] ~ Distribution(...)`; `outputs` has several names only for an external likelihood (`(t, u) ~ g(...)`).

    `subscripts` has one entry per declared axis of the output when there is one output: `y[2, p] ~ ...` observes
    only the elements with first index 2 (`Fixed(2)`, `IndexValue("p")`), and `axes` are those that remain.
    `guards` restrict their values (`t[p > 1] ~ ...`), one per axis of `axes`, or none. `transform` is the left side
    when it is not the output itself, `log(y) ~ ...`: a function of that one output, which `outputs` names.
    """

    outputs: tuple[str, ...]
    axes: tuple[Axis, ...]
    distribution: DistributionCall
    span: Span
    subscripts: tuple[Subscript, ...] = ()
    guards: tuple[Guard, ...] = ()
    transform: Expression | None = None


class Declarations(Record):
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
    rows: Mapping[str, Row] = field(default_factory=lambda: MappingProxyType({}))
    functions: Mapping[str, Function] = field(default_factory=lambda: MappingProxyType({}))
    kernels: Mapping[str, KernelDefinition] = field(default_factory=lambda: MappingProxyType({}))
    densities: Mapping[str, Density] = field(default_factory=lambda: MappingProxyType({}))

    def axes_of(self, name: str) -> tuple[Axis, ...]:
        """The axes of any quantity as it is read, points and levels of a latent among them; an index is one number."""
        if name in self.latents:
            return self.latents[name].values
        if name in self.indices:
            return ()
        for table in (self.inputs, self.outputs, self.consts, self.params, self.rows, self.lets):
            if name in table:
                return table[name].axes
        raise KeyError(name)

    def quantities(self) -> Iterator[tuple[str, tuple[Axis, ...]]]:
        """The names of all that has axes, with these; those of levels once more, with the axis of the levels."""
        for table in (self.inputs, self.outputs, self.consts, self.params, self.rows, self.latents, self.lets):
            for name in table:
                yield name, self.axes_of(name)
        for each in self.labelled:
            if each.label is not None:
                yield each.name, (each.label,)

    @property
    def labelled(self) -> list[Input | Output]:
        """The inputs and outputs of levels."""
        every: list[Input | Output] = [*self.inputs.values(), *self.outputs.values()]
        return [each for each in every if each.label is not None]

    def columns_of(self, argument: str) -> tuple[Axis, ...]:
        """The axes of an argument of a latent at one point: those of a constant without the index of the points."""
        return self.axes_of(argument)[1:] if argument in self.consts else self.axes_of(argument)

    @property
    def fields(self) -> tuple[Latent, ...]:
        """The latents over points that are the same in every row."""
        return tuple(latent for latent in self.latents.values() if latent.over is not None)


# Between which numbers a parameter, or a value of a distribution, lies.


def interval_of(kind: str) -> tuple[float, float]:
    """Between which numbers lies what is `positive`, `unit` or of another kind."""
    return 0.0 if kind in {"positive", "unit"} else -math.inf, 1.0 if kind == "unit" else math.inf


def flat(values: float | tuple) -> list[float]:
    """All numbers of nested tuples."""
    return [each for inside in values for each in flat(inside)] if isinstance(values, tuple) else [float(values)]


def interval(param: Param) -> tuple[float, float]:
    """Between which numbers an element of a parameter lies."""
    low, high = interval_of(param.constraint)
    return low if param.lower is None else param.lower, high if param.upper is None else param.upper
