"""Spherical harmonics as inducing features: Dutordoir, Durrande and Hensman (2020), for kernels that see an angle.

Kernels k(x, x') = |z|^s |z'|^s h(angle of z and z'), z = z(x) in R^d, have the features u_lj = sqrt(lambda_l) times the
coefficients of |z|^s H_lj(z / |z|) in f, where lambda_l are those of h (`harmonics`): they are independent with unit
variance, and cov(u_lj, f(x)) = sqrt(lambda_l) |z|^s H_lj(z / |z|), wherever x is. Such are

    ArcCosine     z = (sqrt(weight) x, sqrt(bias)), s = order: lambda is 0 for every other degree above the order,
    Polynomial    z = (x / ell, sqrt(offset)), s = degree: h = cos^degree, whose degrees are those of its parity,
    Periodic      z the place on a circle whose length is the period, s = 0,

and stationary kernels of columns that lie on a sphere about 0, whatever the inputs: of distances between its points,
which are chords, the angle is a function.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import sympy as sp
from jaxtyping import Array, Float

from gpdsl.kernels.families import arc_cosine_of_angle
from gpdsl.kernels.form import Base, On, block_of
from gpdsl.kernels.fourier import Basis, Unsuited
from gpdsl.kernels.harmonics import first_of_each, funk_hecke, harmonics, number_of
from gpdsl.symbolic.numeric import evaluate

SPHERICAL = "spherical"
"""The family: `count` says below which degree all harmonics are features."""

MOST = 4_000
"""Features of a kernel: a step takes their number cubed."""

CHORDS = ("RBF", "Matern12", "Matern32", "Matern52", "RationalQuadratic")
"""Kernels of the distance, which see an angle where their columns lie on a sphere."""

Points = Float[Array, "n D"]
Between = Callable[[Points, Float[Array, "m D"]], Float[Array, "n m"]]
"""The kernel, at two arrays of what it sees."""


@dataclass(frozen=True)
class _Zonal:
    """A kernel that sees an angle: z / |z| in so many dimensions, |z|^s, h at angles, and degrees it may have."""

    dimension: int
    place: Callable[[Points], tuple[Array, Array | None]]
    profile: Callable[[Float[np.ndarray, "Q"]], Array | np.ndarray]
    has: Callable[[int], bool]


def spherical(
    form: Base, arguments: Mapping[str, Any], corners: Points, count: int, between: Between, rounded: bool
) -> Basis:
    """All harmonics of degrees below `count` that a kernel has, of columns that are `rounded` on a sphere or not.

    `corners` are any points as the kernel sees them, `arguments` its parameters by name. Raises Unsuited for a kernel
    that sees no angle, for too many features, and for none.
    """
    seen = _zonal(form, arguments, corners, between, rounded)
    degrees = _degrees(seen, form.name, count)
    angles, weights = funk_hecke(seen.dimension, degrees)
    values = seen.profile(angles)
    if isinstance(values, np.ndarray):  # no parameter enters: digits of double precision
        root = jnp.asarray(_root(weights @ values, np), corners.dtype)
    else:
        root = _root(jnp.asarray(weights, corners.dtype) @ values, jnp)

    def functions(points: Points) -> Float[Array, "n M"]:
        unit, size = seen.place(points)
        found = harmonics(unit, degrees)
        return found if size is None else size[:, None] * found

    scale = root[first_of_each(degrees, seen.dimension)]
    return Basis(scale, jnp.eye(len(scale), dtype=corners.dtype), functions)


def _root(eigenvalues: Any, library: Any) -> Any:
    """Their roots, 0 for those that are rounding."""
    there = eigenvalues > 4.0 * float(jnp.finfo(eigenvalues.dtype).eps)
    return library.where(there, library.sqrt(library.where(there, eigenvalues, 1.0)), 0.0)


def _degrees(seen: _Zonal, kernel: str, count: int) -> tuple[int, ...]:
    """Those below `count` that there are. Raises Unsuited for too many features, or none."""
    found: list[int] = []
    features = 0
    for degree in range(min(count, 2 * MOST + 3)):  # beyond, any kernel has too many of them, or no more
        before = features
        features += number_of(degree, seen.dimension) if seen.has(degree) else 0
        if features > MOST:
            raise Unsuited(
                f"{kernel} has more than {MOST:,} harmonics of degrees below {count:,} on the sphere in "
                f"{seen.dimension} dimensions, which are too many: {SPHERICAL}({degree}) are {before:,}"
            )
        found += [degree] if features > before else []
    if not found:
        raise Unsuited(f"this {kernel} has no harmonics of degrees below {count}: ask for more")
    return tuple(found)


def _zonal(form: Base, arguments: Mapping[str, Any], corners: Points, between: Between, rounded: bool) -> _Zonal:
    width = corners.shape[1]
    match form.name:
        case "ArcCosine":
            order, weight, bias = int(arguments["order"]), arguments["weight"], arguments["bias"]
            lifted = functools.partial(_lifted, jnp.sqrt(weight), jnp.sqrt(bias), order)
            profile = functools.partial(_layer, order)
            return _Zonal(width + 1, lifted, profile, lambda k: k <= order or (k - order) % 2 == 1)
        case "Polynomial":
            power = int(arguments["degree"])
            lifted = functools.partial(_lifted, 1.0 / arguments["ell"], jnp.sqrt(arguments["offset"]), power)
            parity = lambda k: k <= power and (power - k) % 2 == 0  # noqa: E731
            return _Zonal(width + 1, lifted, lambda angles: np.cos(angles) ** power, parity)
        case "Periodic" if width == 1:
            period = jnp.reshape(jnp.asarray(arguments["period"], corners.dtype), ())
            turn = 2.0 * math.pi / period
            return _Zonal(2, lambda points: (_circle(turn * points[:, 0]), None), _around(period, between), _any)
        case name if name in CHORDS and rounded and width > 1:
            if jnp.ndim(arguments["ell"]):
                raise Unsuited(f"{name} with a length-scale for each column is no function of an angle: give it one")
            radius = jnp.sqrt(jnp.sum(jnp.square(corners[0])))
            return _Zonal(width, lambda points: (points / radius, None), _chords(radius, width, between), _any)
    raise Unsuited(_why(form.name, width))


def _any(_: int) -> bool:
    return True


def _why(name: str, width: int) -> str:
    known = f"spherical harmonics are those of ArcCosine, Polynomial, Periodic of one column, and {', '.join(CHORDS)} "
    known += "of columns that lie on a sphere"
    if name not in CHORDS:
        return f"{known}, not of {name}" + (f" of {width} columns" if name == "Periodic" else "")
    on = "on = [cos(x), sin(x)]" if width == 1 else "on = [cos(x[1]) * cos(x[2]), cos(x[1]) * sin(x[2]), sin(x[1])]"
    return f"{known}, as in {name}(ell, {on}); what {name} sees here need not lie on one"


def _lifted(scale: Array, beside: Array, power: int, points: Points) -> tuple[Array, Array | None]:
    """z / |z| and |z|^power of z = (scale x, beside)."""
    z = jnp.concatenate([scale * points, jnp.broadcast_to(beside, (len(points), 1)).astype(points.dtype)], axis=1)
    length = jnp.sqrt(jnp.sum(z * z, axis=1))
    return z / length[:, None], length**power if power else None


def _layer(order: int, angles: Float[np.ndarray, "Q"]) -> Float[np.ndarray, "Q"]:
    found: np.ndarray = arc_cosine_of_angle(order, np.pi - angles, np.sin(angles), np.cos(angles)) / np.pi
    return found


def _circle(turns: Float[Array, "n"]) -> Float[Array, "n 2"]:
    return jnp.stack([jnp.cos(turns), jnp.sin(turns)], axis=1)


def _around(period: Array, between: Between) -> Callable[[Float[np.ndarray, "Q"]], Array]:
    """A periodic kernel at places on its circle."""

    def profile(angles: Float[np.ndarray, "Q"]) -> Array:
        places = period * jnp.asarray(angles / (2.0 * np.pi), period.dtype)
        return between(jnp.zeros((1, 1), period.dtype), places[:, None])[0]

    return profile


def _chords(radius: Array, width: int, between: Between) -> Callable[[Float[np.ndarray, "Q"]], Array]:
    """A stationary kernel at the chords of a sphere."""

    def profile(angles: Float[np.ndarray, "Q"]) -> Array:
        chords = radius * jnp.asarray(2.0 * np.sin(0.5 * angles), radius.dtype)
        ends = jnp.zeros((len(angles), width), radius.dtype).at[:, 0].set(chords)
        return between(jnp.zeros((1, width), radius.dtype), ends)[0]

    return profile


TRIED = 16
"""Points of which those columns are computed."""


@functools.lru_cache(maxsize=64)
def on_a_sphere(form: On, width: int) -> bool:
    """Whether formulas of `width` columns put every point on one sphere about 0, for any numbers of the model."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(TRIED, width))
    squares = np.zeros(TRIED)
    symbols = {symbol for column in form.columns for symbol in column.free_symbols}
    numbers = {symbol: rng.uniform(0.5, 1.5) for symbol in sorted(symbols, key=str) if block_of(symbol) is None}
    with np.errstate(all="ignore"):
        for column in form.columns:
            squares = squares + _squares(column, numbers, points)
    return bool(np.all(np.isfinite(squares)) and squares[0] > 0 and np.allclose(squares, squares[0], rtol=1e-10))


def _squares(
    column: sp.Expr, numbers: Mapping[sp.Symbol, float], points: Float[np.ndarray, "n D"]
) -> Float[np.ndarray, "n"]:
    """Those of what a formula makes of some columns, added up."""
    values: dict[sp.Symbol, Any] = dict(numbers)
    for symbol in column.free_symbols:
        of = block_of(symbol)
        if of is not None:
            values[symbol] = points[:, slice(*of)]
    found = np.atleast_2d(np.asarray(evaluate(column, values), float))  # one row of a constant
    return np.broadcast_to(np.sum(np.square(found), axis=1), len(points))
