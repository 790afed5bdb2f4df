"""How often a process with a given kernel can be differentiated (mean-square; Rasmussen and Williams 2006, 4.1.1)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gpdsl.language.model import (
    Kernel,
    KernelCall,
    KernelFormula,
    KernelProduct,
    KernelScale,
    KernelSum,
    reads_of,
)

DERIVATIVES: Mapping[str, int] = MappingProxyType(
    {"White": 0, "Matern12": 0, "ArcCosine": 0, "Coregion": 0, "Matern32": 1, "Matern52": 2}
)
"""Kernels whose processes have only so many derivatives; all others have every one."""

_WHY = MappingProxyType(
    {
        "White": "white noise is nowhere continuous",
        "Coregion": "a Coregion kernel compares levels, which are not points of a line",
        "ArcCosine": "a covariance of threshold units has a kink where its two points meet",
    }
)

Roughness = tuple[str, str, str]
"""The kernel's name, why there is no derivative, and what to do."""


def roughness(kernel: Kernel, order: int, along: frozenset[str] | None = None) -> Roughness | None:
    """What keeps the process from having derivatives of this order, or None when it has them.

    `along` are the arguments that it is differentiated along, all of them by default.
    """
    match kernel:
        case KernelCall(on=on) | KernelFormula(on=on) if (
            on and along is not None and along.isdisjoint(read.name for each in on for read in reads_of(each))
        ):
            return None
        case KernelCall(name=name):
            inner = (found for each in kernel.kernels if (found := roughness(each, order, along)) is not None)
            return _of_family(name, order) or next(inner, None)
        case KernelFormula(name=name, points=points):
            return None if len(points) == 2 else _of_formula(name)
        case KernelScale(kernel=inside):
            return roughness(inside, order, along)
        case KernelSum(terms=inside) | KernelProduct(factors=inside):
            return next((found for each in inside if (found := roughness(each, order, along)) is not None), None)
    return None


def _of_family(name: str, order: int) -> Roughness | None:
    known = DERIVATIVES.get(name)
    if known is None or known >= order:
        return None
    times = "once" if known == 1 else "twice"
    why = _WHY.get(name) or (
        "a process with this kernel has no derivative at all"
        if known == 0
        else f"a process with this kernel can be differentiated only {times}"
    )
    apart = "; put noise into the likelihood" if name == "White" else ""
    return name, why, f"use a smoother kernel, such as `RBF` or `Matern52`{apart}"


def _of_formula(name: str) -> Roughness:
    why = "a formula in the distance may have a kink at distance zero, and none is ruled out"
    return name, why, f"write the formula in the two points instead: `kernel {name}(a, b) = ...`"
