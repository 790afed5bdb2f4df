"""Initial length-scales against the spread of the inputs they belong to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpdsl.language import model as m
from gpdsl.language.errors.base import Mistake
from gpdsl.language.warnings.cautions import ScaleFarFromData
from gpdsl.language.warnings.numbers import flat, value_of

SHORT, LONG = 30.0, 1 / 100
"""Standard deviations of the input per length-scale: beyond them all rows look unrelated, or all alike."""


def far_from_data(declarations: m.Declarations, spreads: Mapping[str, tuple[float, ...]]) -> Iterator[Mistake]:
    """A warning for each kernel whose length-scale starts far from the spread of its input; none without data."""
    for latent in declarations.latents.values():
        columns = [(name, spread) for name in latent.arguments for spread in spreads.get(name, ())]
        if not columns or any(name not in spreads for name in latent.arguments):
            continue
        for kernel in _kernels(latent.kernel):
            if isinstance(kernel, m.KernelCall) and not kernel.on and "ell" in kernel.arguments:
                yield from _compared(declarations, kernel, columns)


def _compared(
    declarations: m.Declarations, kernel: m.KernelCall, columns: list[tuple[str, float]]
) -> Iterator[Mistake]:
    scales = _initial(declarations, kernel.arguments["ell"])
    if not scales or len(scales) not in (1, len(columns)):
        return
    own = scales * len(columns) if len(scales) == 1 else scales
    ratios = [spread / scale if scale else 1.0 for (_, spread), scale in zip(columns, own, strict=True)]
    for worst in (max(range(len(ratios)), key=ratios.__getitem__), min(range(len(ratios)), key=ratios.__getitem__)):
        name, spread = columns[worst]
        if spread > 0 and not LONG < ratios[worst] < SHORT:
            look = "unrelated" if ratios[worst] >= SHORT else "all alike"
            consequence = f"rows look {look}, and the fit may stay there"
            remedy = f"scale the column, or start near it: `param ell : positive = {_rounded(spread)}`"
            place = kernel.arguments["ell"].span if kernel.arguments["ell"].span != kernel.span else kernel.span
            yield ScaleFarFromData(place, name, f"{own[worst]:g}", _rounded(spread), consequence, remedy)
            return


def _rounded(value: float) -> str:
    """Two digits that matter, without an exponent where that can be read."""
    return f"{float(f'{value:.2g}'):g}"


def _initial(declarations: m.Declarations, expression: m.Expression) -> list[float]:
    if isinstance(expression, m.Read) and expression.name in declarations.params:
        if all(isinstance(each, m.Whole) for each in expression.subscripts):
            return flat(declarations.params[expression.name].initial)
        return []
    value = value_of(declarations, expression)
    return [] if value is None else [value]


def _kernels(kernel: m.Kernel) -> Iterator[m.Kernel]:
    match kernel:
        case m.KernelScale(kernel=inside):
            yield from _kernels(inside)
        case m.KernelSum(terms=several) | m.KernelProduct(factors=several):
            for each in several:
                yield from _kernels(each)
        case _:
            yield kernel
