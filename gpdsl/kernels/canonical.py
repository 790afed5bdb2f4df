"""Checked kernels to forms: the overall variance comes out, everything else keeps its order."""

from __future__ import annotations

from dataclasses import dataclass

from gpdsl.kernels.columns import Space, selection
from gpdsl.kernels.form import Base, ByFormula, Form, On, Patches, Product, Scaled, Sum
from gpdsl.language import model as m
from gpdsl.language.vocabulary import KERNELS
from gpdsl.symbolic.kernel_calculus import ImageSize
from gpdsl.symbolic.kernel_formula import formula_of, require_variance


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
        case m.KernelCall() | m.KernelFormula():
            return _call(kernel, space)
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


def _call(kernel: m.KernelCall | m.KernelFormula, space: Space) -> Canonical:
    """A call seen through its columns: those that `on` makes, or all as they are."""
    if not kernel.on:
        return _seen(kernel, space)
    columns, numbers, width = selection(kernel.on, space)
    part = _seen(kernel, space.of_width(width))
    names = tuple(f"number{i}" for i in range(1, len(numbers) + 1))
    return Canonical(part.factors, On(columns, names, part.form), (*numbers, *part.arguments))


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
