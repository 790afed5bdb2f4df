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

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
from jaxtyping import Array, Float, Int
from scipy.special import gammaln, roots_legendre

from gpdsl.kernels.families import arc_cosine_of_angle
from gpdsl.kernels.form import Base, On, block_of
from gpdsl.kernels.fourier import Basis, Unsuited
from gpdsl.symbolic.numeric import evaluate

# Spherical harmonics in any number of dimensions, and what a function of the angle is in terms of them.

EXTRA = 96
"""Nodes of the quadrature beside three for each degree: a kernel may be as narrow as a millionth of the sphere."""


def number_of(degree: int, dimension: int) -> int:
    """How many harmonics of a degree there are in so many dimensions."""
    below = math.comb(degree + dimension - 3, dimension - 1) if degree > 1 else 0
    return math.comb(degree + dimension - 1, dimension - 1) - below


def harmonics(points: Float[Array, "n d"], degrees: tuple[int, ...]) -> Float[Array, "n M"]:
    """All harmonics of these degrees, in their order, at points of the unit sphere; d is at least 2.

    Their products have the mean 1 with themselves, and 0 with others, over the sphere.
    """
    dimension, most = points.shape[1], max(degrees)
    x = points.T
    orders, (every, *levels) = np.arange(most + 1), _levels(dimension, degrees)
    found = _powers(x[-2], x[-1], most)[every]
    for size, (k, m, below) in zip(range(3, dimension + 1), levels, strict=True):
        own = x[dimension - size :]
        table = _gegenbauer(own[0], jnp.sum(own * own, axis=0), 0.5 * size - 1.0 + orders, size, most)
        found = table[k, m] * found[below]
    return found.T


@functools.lru_cache(maxsize=64)
def _levels(dimension: int, degrees: tuple[int, ...]) -> list:
    """Which functions of the circle there are, then for each further dimension k, m and the number of H_m.

    As numbers of 32 bits, which stay what they are in single precision too.
    """
    every = tuple(range(max(degrees) + 1))
    kept = degrees if dimension == 2 else every
    found: list = [np.asarray([i for m in kept for i in ([2 * m, 2 * m + 1] if m else [0])])]
    known = np.asarray([m for m in kept for _ in range(2 if m else 1)])
    for size in range(3, dimension + 1):
        parts = [(degree, np.flatnonzero(known <= degree)) for degree in (degrees if size == dimension else every)]
        below = np.concatenate([part for _, part in parts])
        own = np.concatenate([np.full(len(part), degree) for degree, part in parts])
        found.append((own - known[below], known[below], below))
        known = own
    return jax.tree.map(lambda each: each.astype(np.int32), found)


def _powers(x: Float[Array, "n"], y: Float[Array, "n"], most: int) -> Float[Array, "functions n"]:
    """1, 0, then the real and the imaginary part of sqrt(2) (x + i y)^m, m up to the most."""
    one, none = jnp.ones_like(x), jnp.zeros_like(x)

    def turned(last: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        new = x * last[0] - y * last[1], x * last[1] + y * last[0]
        return new, new

    rest = jax.lax.scan(turned, (one, none), None, length=most)[1]
    both = math.sqrt(2.0) * jnp.stack(rest, axis=1).reshape(2 * most, len(x))
    return jnp.concatenate([jnp.stack([one, none]), both])


def _gegenbauer(
    t: Float[Array, "n"], squares: Float[Array, "n"], a: Float[np.ndarray, "orders"], size: int, most: int
) -> Float[Array, "degrees orders n"]:
    """p_k of each index a, k up to the most, and at least to 1."""
    orders = np.arange(most + 1)
    mean = gammaln(0.5 * (size - 1) + orders) - gammaln(0.5 * size + orders)  # of |y|^(2 m), but for a factor
    begun = np.exp(-0.5 * (mean - mean[0]))
    k = np.arange(1, max(most, 1) + 1)[:, None]
    steps = jnp.asarray(np.sqrt(k * (k + 2 * a - 1) / (4 * (k + a) * (k + a - 1))), t.dtype)[:, :, None]
    first = jnp.broadcast_to(jnp.asarray(begun, t.dtype)[:, None], (most + 1, len(t)))
    second = t[None, :] * first / steps[0]

    def following(known: tuple[Array, Array], step: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        (before, last), (own, after) = known, step
        new = (t[None, :] * last - own * squares[None, :] * before) / after
        return (last, new), new

    rest = jax.lax.scan(following, (first, second), (steps[:-1], steps[1:]))[1]
    return jnp.concatenate([first[None], second[None], rest])


@functools.lru_cache(maxsize=64)
def funk_hecke(dimension: int, degrees: tuple[int, ...]) -> tuple[Float[np.ndarray, "Q"], Float[np.ndarray, "L Q"]]:
    """Angles, and weights with which values of a function at these add up to its lambda_l.

    In the angle, kernels with a kink where two points meet have derivatives of all orders between 0 and pi.
    """
    most = max(degrees)
    nodes, each = roots_legendre(3 * most + EXTRA)
    halves = 0.5 * (nodes + 1.0)
    angles = np.pi * halves**3  # denser where points meet
    log_size = gammaln(0.5 * dimension) - gammaln(0.5 * (dimension - 1)) - 0.5 * math.log(math.pi)
    density = 1.5 * np.pi * halves**2 * each * math.exp(log_size) * np.sin(angles) ** (dimension - 2)
    legendre = [np.ones_like(angles), np.cos(angles)]
    for k in range(1, most):
        step = (2 * k + dimension - 2) * np.cos(angles) * legendre[k] - k * legendre[k - 1]
        legendre.append(step / (k + dimension - 2))
    return angles, np.stack([density * legendre[k] for k in degrees])


def first_of_each(degrees: tuple[int, ...], dimension: int) -> Int[np.ndarray, "M"]:
    """For each harmonic, which of the degrees it has, from 0."""
    return np.repeat(np.arange(len(degrees)), [number_of(degree, dimension) for degree in degrees])


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

            # A stationary kernel at the chords of a sphere.
            def at_chords(angles: Float[np.ndarray, "Q"]) -> Array:
                chords = radius * jnp.asarray(2.0 * np.sin(0.5 * angles), radius.dtype)
                ends = jnp.zeros((len(angles), width), radius.dtype).at[:, 0].set(chords)
                return between(jnp.zeros((1, width), radius.dtype), ends)[0]

            return _Zonal(width, lambda points: (points / radius, None), at_chords, _any)
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
            # Those of what a formula makes of some columns, added up.
            values: dict[sp.Symbol, Any] = dict(numbers)
            for symbol in column.free_symbols:
                of = block_of(symbol)
                if of is not None:
                    values[symbol] = points[:, slice(*of)]
            found = np.atleast_2d(np.asarray(evaluate(column, values), float))  # one row of a constant
            squares = squares + np.broadcast_to(np.sum(np.square(found), axis=1), len(points))
    return bool(np.all(np.isfinite(squares)) and squares[0] > 0 and np.allclose(squares, squares[0], rtol=1e-10))
