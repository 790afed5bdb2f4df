"""The kernels of the table as formulas in the coordinates of two points, which analysis needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import sympy as sp

from gpdsl.symbolic.functions import sigmoid

Coordinates = Sequence[sp.Expr]
Argument: TypeAlias = sp.Expr | Sequence
"""One number, one per column, or nested lists for a parameter that is an array."""


class level_covariance(sp.Function):
    """The entry of a Coregion matrix for two levels."""

    nargs = 2
    is_real = True


class patch_mean(sp.Function):
    """The mean over patches of two images."""

    is_real = True


def _each(value: Argument, columns: int) -> list[sp.Expr]:
    return list(value) if isinstance(value, Sequence) else [value] * columns


def _square(a: Coordinates, b: Coordinates, ell: Argument) -> sp.Expr:
    return sp.Add(*[(x - y) ** 2 / e**2 for x, y, e in zip(a, b, _each(ell, len(a)), strict=True)])


def _inner(a: Coordinates, b: Coordinates, ell: Argument) -> sp.Expr:
    return sp.Add(*[x * y / e**2 for x, y, e in zip(a, b, _each(ell, len(a)), strict=True)])


def _rbf(a: Coordinates, b: Coordinates, ell: Argument) -> sp.Expr:
    return sp.exp(-_square(a, b, ell) / 2)


def _matern(times: int) -> Callable[..., sp.Expr]:
    def kernel(a: Coordinates, b: Coordinates, ell: Argument) -> sp.Expr:
        u = sp.sqrt((2 * times + 1) * _square(a, b, ell))
        return [1, 1 + u, 1 + u + u**2 / 3][times] * sp.exp(-u)

    return kernel


def _rational_quadratic(a: Coordinates, b: Coordinates, ell: Argument, alpha: sp.Expr) -> sp.Expr:
    return (1 + _square(a, b, ell) / (2 * alpha)) ** -alpha


def _periodic(a: Coordinates, b: Coordinates, ell: Argument, period: sp.Expr) -> sp.Expr:
    waves = [sp.sin(sp.pi * (x - y) / period) ** 2 / e**2 for x, y, e in zip(a, b, _each(ell, len(a)), strict=True)]
    return sp.exp(-2 * sp.Add(*waves))


def _cosine(a: Coordinates, b: Coordinates, period: sp.Expr) -> sp.Expr:
    return sp.cos(2 * sp.pi * sp.Add(*[x - y for x, y in zip(a, b, strict=True)]) / period)


def _polynomial(a: Coordinates, b: Coordinates, degree: sp.Expr, offset: sp.Expr, ell: Argument) -> sp.Expr:
    return (offset + _inner(a, b, ell)) ** degree


def _arc_cosine(a: Coordinates, b: Coordinates, order: sp.Expr, weight: Argument, bias: sp.Expr) -> sp.Expr:
    def product(p: Coordinates, q: Coordinates) -> sp.Expr:
        return sp.Add(*[w * x * y for x, y, w in zip(p, q, _each(weight, len(a)), strict=True)]) + bias

    size = sp.sqrt(product(a, a) * product(b, b))
    cosine = product(a, b) / size
    sine, rest = sp.sqrt(1 - cosine**2), sp.pi - sp.acos(cosine)
    shapes = [rest, sine + rest * cosine, 3 * sine * cosine + rest * (1 + 2 * cosine**2)]
    return size**order * shapes[int(order)] / sp.pi


def _spectral_mixture(a: Coordinates, b: Coordinates, weights: Argument, means: Argument, sds: Argument) -> sp.Expr:
    total = sp.Integer(0)
    for weight, mean, sd in zip(weights, means, sds, strict=True):  # type: ignore[arg-type, var-annotated]
        columns = zip(a, b, _each(mean, len(a)), _each(sd, len(a)), strict=True)
        waves = [
            sp.exp(-2 * sp.pi**2 * s**2 * (x - y) ** 2) * sp.cos(2 * sp.pi * m * (x - y)) for x, y, m, s in columns
        ]
        total += weight * sp.Mul(*waves)
    return total


def _white(a: Coordinates, b: Coordinates) -> sp.Expr:
    return sp.Mul(*[sp.KroneckerDelta(x, y) for x, y in zip(a, b, strict=True)])


def change(x: sp.Expr, at: sp.Expr, width: sp.Expr) -> sp.Expr:
    """The sigmoid that turns a kernel on."""
    return sigmoid((x - at) / width)


FORMULAS: Mapping[str, Callable[..., sp.Expr]] = {
    "RBF": _rbf,
    "Matern12": _matern(0),
    "Matern32": _matern(1),
    "Matern52": _matern(2),
    "RationalQuadratic": _rational_quadratic,
    "Periodic": _periodic,
    "Cosine": _cosine,
    "Linear": _inner,
    "Polynomial": _polynomial,
    "ArcCosine": _arc_cosine,
    "SpectralMixture": _spectral_mixture,
    "Coregion": lambda a, b, W, kappa: level_covariance(a[0], b[0]),
    "Constant": lambda a, b: sp.Integer(1),
    "Same": _white,
    "White": _white,
}
"""Every kernel of the table but those made of others."""
