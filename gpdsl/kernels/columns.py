"""The columns that a kernel sees, and checked kernels as forms of what they see."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import jax.numpy as jnp
import sympy as sp
from jaxtyping import Array, Float

from gpdsl.kernels.form import Base, ByFormula, Form, On, Patches, Product, Scaled, Sum, block, block_of
from gpdsl.language import model as m
from gpdsl.language.vocabulary import KERNELS
from gpdsl.lowering.table import evaluate
from gpdsl.symbolic.errors import ImageSize
from gpdsl.symbolic.kernel_formula import formula_of, require_variance
from gpdsl.symbolic.translate import NeedsElements, Ref, Translator, axis_key


@dataclass(frozen=True)
class Space:
    """The columns of a latent's arguments side by side, `width` of them, and the axes of the latent itself.

    `starts` are the first columns of the arguments, by name.
    """

    translator: Translator
    starts: Mapping[str, int]
    axes: tuple[m.Axis, ...]
    width: int

    @classmethod
    def of(cls, translator: Translator, latent: m.Latent) -> Space:
        """All columns of a latent."""
        shape, declared = translator.shape, translator.declarations
        widths = [math.prod(shape(declared.columns_of(name))) for name in latent.arguments]
        starts = dict(zip(latent.arguments, itertools.accumulate(widths, initial=0), strict=False))
        return cls(translator, starts, latent.axes, sum(widths))

    def of_width(self, width: int) -> Space:
        """Other columns, `width` of them."""
        return replace(self, width=width)

    def own(self, axes: Iterable[m.Axis]) -> tuple[m.Axis, ...]:
        """Those axes that are not the latent's."""
        keys = {axis_key(axis) for axis in self.axes}
        return tuple(axis for axis in axes if axis_key(axis) not in keys)

    def shape(self, expression: m.Expression) -> tuple[int, ...]:
        """Sizes of an expression for one element of the latent."""
        return self.translator.shape(self.own(expression.axes))


Selection = tuple[tuple[sp.Expr, ...], tuple[m.Expression, ...], int]
"""Columns in the symbols of `form.block` and `number1`, ...; what the numbers are; and how many columns result."""


def selection(expressions: Iterable[m.Expression], space: Space) -> Selection:
    """What `on = [...]` says: blocks of columns, and formulas of them. Raises ModelError for a missing column."""
    found: list[sp.Expr] = []
    numbers: dict[m.Expression, sp.Symbol] = {}
    width = 0
    for expression in expressions:
        own = space.own(expression.axes)
        width += math.prod(space.translator.shape(own))
        for formula in _formulas(expression, own, space.translator):
            pairs = {}
            for symbol in formula.free_symbols:
                ref = space.translator.references[symbol]
                if ref.name in space.starts and ref.kind != "param":
                    pairs[symbol] = _block(ref, space)
                else:
                    read = _reading(ref, expression, space)
                    # what another column reads, too, is the same number: columns on a sphere are so for no two of them
                    read = next((each for each in numbers if replace(each, span=read.span) == read), read)
                    pairs[symbol] = numbers.setdefault(
                        read, sp.Symbol(f"number{len(numbers) + 1}", **symbol.assumptions0)
                    )
            found.append(formula.xreplace(pairs))
    return tuple(_merged(found)), tuple(numbers), width


def _formulas(expression: m.Expression, own: tuple[m.Axis, ...], translator: Translator) -> tuple[sp.Expr, ...]:
    """One formula for all elements along its own axis, or else one each."""
    try:
        return (translator.scalar(expression),)
    except NeedsElements:
        axis = own[0]
        keys = range(1, translator.size(axis) + 1)
        return tuple(translator.scalar(expression, {axis_key(axis): i}) for i in keys)


def _block(ref: Ref, space: Space) -> sp.Symbol:
    start = space.starts[ref.name]
    sizes = space.translator.shape(space.translator.declarations.axes_of(ref.name))
    if not sizes:
        return block(start, start + 1)
    position = ref.positions[0]
    if isinstance(position, int):
        return block(start + position - 1, start + position)
    return block(start, start + sizes[0])


def _reading(ref: Ref, expression: m.Expression, space: Space) -> m.Expression:
    """The expression that gives the number a symbol stands for."""
    if ref.kind == "index":
        axis = space.translator.declarations.indices[ref.name].axis
        return m.IndexNumber(expression.span, (axis,), ref.name)
    axes = space.translator.declarations.axes_of(ref.name)
    subscripts: list[m.Subscript] = []
    kept: list[m.Axis] = []
    for position, axis in zip(ref.positions, axes, strict=True):
        if isinstance(position, int):
            subscripts.append(m.Fixed(position))
            continue
        kept.append(axis)
        subscripts.append(m.IndexValue(axis.name) if axis.name is not None else m.Whole(axis))
    return m.Read(expression.span, tuple(kept), ref.name, tuple(subscripts))


def _merged(columns: list[sp.Expr]) -> list[sp.Expr]:
    """Neighbouring blocks as one: `x[1], x[2], x[3]` is a slice."""
    merged: list[sp.Expr] = []
    for each in columns:
        here = block_of(each) if isinstance(each, sp.Symbol) else None
        last = block_of(merged[-1]) if merged and isinstance(merged[-1], sp.Symbol) else None
        if here is not None and last is not None and last[1] == here[0]:
            merged[-1] = block(last[0], here[1])
        else:
            merged.append(each)
    return merged


# The columns of `on = ...` at some points: slices of the input's columns, and formulas of them.


def selected(form: On, numbers: Sequence[Array], points: Float[Array, "n D"]) -> Float[Array, "n d"]:
    """What the kernel inside sees; `numbers` are those of the formulas, one per column where they have several."""
    known = dict(zip(form.numbers, numbers, strict=True))

    def load(symbol: sp.Symbol) -> Array:
        columns = block_of(symbol)
        return known[symbol.name] if columns is None else points[:, slice(*columns)]

    values = [jnp.asarray(evaluate(column, load), points.dtype) for column in form.columns]
    wide = [jnp.broadcast_to(v, (points.shape[0], v.shape[-1] if v.ndim else 1)) for v in values]
    return wide[0] if len(wide) == 1 else jnp.concatenate(wide, axis=1)


# Checked kernels to forms: the overall variance comes out, everything else keeps its order.


@dataclass(frozen=True)
class Canonical:
    """`variance × form`: every factor that multiplies the whole kernel is taken out of it.

    Latents whose forms and parameters agree then share one factorisation, whatever their variances.
    """

    factors: tuple[m.Expression, ...]
    form: Form
    arguments: tuple[m.Expression, ...]


def canonical(kernel: m.Kernel, space: Space) -> Canonical:
    """Split a checked kernel over the columns of `space` into its overall variance, form and parameter expressions.

    Raises ModelError when the kernel does not fit these columns.
    """
    match kernel:
        case m.KernelCall(name="ChangePoint"):
            return canonical(_change(kernel), space)
        case m.KernelCall() | m.KernelFormula() if not kernel.on:
            return _seen(kernel, space)
        case m.KernelCall() | m.KernelFormula():
            columns, numbers, width = selection(kernel.on, space)
            part = _seen(kernel, space.of_width(width))
            names = tuple(f"number{i}" for i in range(1, len(numbers) + 1))
            return Canonical(part.factors, On(columns, names, part.form), (*numbers, *part.arguments))
        case m.KernelScale(factor=factor, kernel=inner):
            part = canonical(inner, space)
            return Canonical((factor, *part.factors), part.form, part.arguments)
        case m.KernelProduct(factors=factors):
            parts = [canonical(f, space) for f in factors]
            return Canonical(
                tuple(f for p in parts for f in p.factors),
                Product(tuple(p.form for p in parts)),
                tuple(a for p in parts for a in p.arguments),
            )
        case m.KernelSum(terms=terms):
            inside = [_within_sum(canonical(t, space)) for t in terms]
            return Canonical((), Sum(tuple(form for form, _ in inside)), tuple(a for _, group in inside for a in group))
    raise TypeError(f"not a kernel: {type(kernel).__name__}")


def _seen(kernel: m.KernelCall | m.KernelFormula, space: Space) -> Canonical:
    if isinstance(kernel, m.KernelFormula):
        formula, arguments = formula_of(kernel, space.translator, space.width - bool(kernel.levels))
        require_variance(formula, kernel.name, kernel.body.span, space.translator)
        return Canonical((), ByFormula(formula, kernel.name), arguments)
    if kernel.name == "Patch":
        return _patch(kernel, space)
    family = KERNELS.get(kernel.name)  # the halves of a `ChangePoint` have no entry of their own
    literal = {p.name for p in family.parameters if p.literal} if family is not None else set()
    arrays = {p.name for p in family.parameters if p.array} if family is not None else set()
    static = tuple((k, _integer(a)) for k, a in kernel.arguments.items() if k in literal)
    numeric = {k: a for k, a in kernel.arguments.items() if k not in literal}
    shapes = tuple(space.shape(a) for k, a in numeric.items() if k in arrays)
    return Canonical((), Base(kernel.name, tuple(numeric), static, shapes), tuple(numeric.values()))


def _patch(kernel: m.KernelCall, space: Space) -> Canonical:
    (height, width), (rows, columns) = kernel.sizes["image"], kernel.sizes["patch"]
    if space.width != height * width:
        mistake = ImageSize(kernel.span, height, width, space.width, pixels=height * width)
        raise space.translator.failure(mistake)
    inner = canonical(kernel.kernels[0], space.of_width(rows * columns))
    weights = tuple(kernel.arguments.values())  # the only numbers of it
    form = Patches(inner.form, (height, width), (rows, columns), bool(weights))
    return Canonical(inner.factors, form, (*weights, *inner.arguments))


def _change(kernel: m.KernelCall) -> m.Kernel:
    """`ChangePoint` in terms of its two halves: k = (1 - s(x)) (1 - s(x')) before + s(x) s(x') after."""
    halves = [
        m.KernelProduct(kernel.span, (m.KernelCall(kernel.span, name, kernel.arguments, (), kernel.on), inner))
        for name, inner in zip(("Before", "After"), kernel.kernels, strict=True)
    ]
    return m.KernelSum(kernel.span, tuple(halves))


def _within_sum(part: Canonical) -> tuple[Form, tuple[m.Expression, ...]]:
    form = part.form
    for _ in part.factors:
        form = Scaled(form)
    return form, (*part.factors, *part.arguments)


def _integer(expression: m.Expression) -> int:
    if isinstance(expression, m.Number) and float(expression.value).is_integer():
        return int(expression.value)
    raise TypeError("the checker admits only literal integers here")
