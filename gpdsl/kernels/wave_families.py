"""Random waves of each kernel of the table: how frequencies, powers and amplitudes are drawn."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gamma, log, pi

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
from jaxtyping import Array, Float, Int

from gpdsl.kernels.counters import Stream
from gpdsl.kernels.families import level
from gpdsl.lowering.table import evaluate
from gpdsl.lowering.tails import gamma_quantile
from gpdsl.symbolic import numeric
from gpdsl.symbolic.spectral import FREQUENCY

# What a random wave is, and how waves combine where kernels are multiplied and added.

Points = Float[Array, "n D"]
Part = tuple[Points, Float[Array, "k D"]]


@dataclass(frozen=True)
class Waves:
    """Waves at some points: E[power Re(conj(wave(x)) wave(x'))] = k(x, x').

    The turns are the sum over `parts` of points times frequencies, in whole turns. `amplitude` is g(x), or None for 1.
    """

    power: Float[Array, "k"]
    parts: tuple[Part, ...] = ()
    amplitude: Float[Array, "n k"] | None = None

    def turns(self, start: Float[Array, "k"]) -> Float[Array, "n k"] | Float[Array, "k"]:
        """How often each wave has turned at each point, from `start` on."""
        if not self.parts:
            return start
        first, *others = self.parts
        one = jnp.ones((first[0].shape[0], 1), first[0].dtype)  # one column more costs less than a sum afterwards
        wider = jnp.concatenate([first[0], one], axis=1), jnp.concatenate([first[1], start[:, None]], axis=1)
        return functools.reduce(jnp.add, [points @ frequencies.T for points, frequencies in (wider, *others)])


def product(factors: Sequence[Waves]) -> Waves:
    """Frequencies of the factors add: the spectral density of a product is the convolution of theirs."""
    power = functools.reduce(jnp.multiply, [each.power for each in factors])
    amplitudes = [each.amplitude for each in factors if each.amplitude is not None]
    amplitude = functools.reduce(jnp.multiply, amplitudes) if amplitudes else None
    return Waves(power, _merged(part for each in factors for part in each.parts), amplitude)


def mixture(terms: Sequence[Waves], choice: Int[Array, "k"]) -> Waves:
    """Each wave is one of the terms', as `choice` says, where all are equally likely."""
    chosen = [choice == i for i in range(len(terms))]
    power = _selected(chosen, [len(terms) * each.power for each in terms])
    parts = [
        (points, jnp.where(here[:, None], frequencies, 0.0))
        for here, each in zip(chosen, terms, strict=True)
        for points, frequencies in each.parts
    ]
    amplitudes = [each.amplitude for each in terms]
    if all(each is None for each in amplitudes):
        return Waves(power, _merged(parts))
    return Waves(power, _merged(parts), _selected(chosen, [1.0 if each is None else each for each in amplitudes]))


def _selected(chosen: Sequence[Array], values: Sequence[Array | float]) -> Array:
    return functools.reduce(jnp.add, [jnp.where(here, v, 0.0) for here, v in zip(chosen, values, strict=True)])


def _merged(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Frequencies at the same points, added: one matrix product instead of several."""
    together: dict[int, Part] = {}
    for points, frequencies in parts:
        known = together.get(id(points))
        together[id(points)] = (points, frequencies if known is None else known[1] + frequencies)
    return tuple(together.values())


Parameter = Float[Array, "..."]
TURN = 2.0 * math.pi


def ones(stream: Stream) -> Float[Array, "k"]:
    """The power of a kernel with unit variance."""
    return jnp.ones(stream.index.shape, stream.dtype)


def _gaussian(points: Points, stream: Stream, ell: Parameter) -> Waves:
    return Waves(ones(stream), ((points, stream.normals(points.shape[1]) / (TURN * ell)),))


def _matern(freedom: int) -> Callable[..., Waves]:
    """Of smoothness nu the frequencies are Student's t of 2 nu degrees of freedom (RW 2006, eq. 4.15)."""

    def draw(points: Points, stream: Stream, ell: Parameter) -> Waves:
        normals = stream.normals(points.shape[1] + freedom)
        spread = jnp.sqrt(jnp.mean(jnp.square(normals[:, :freedom]), axis=1, keepdims=True))
        return Waves(ones(stream), ((points, normals[:, freedom:] / (spread * TURN * ell)),))

    return draw


def rational_quadratic(points: Points, stream: Stream, ell: Parameter, alpha: Parameter) -> Waves:
    """A mixture of RBF kernels: 1 / ell^2 has a gamma distribution of shape and rate `alpha` (RW 2006, eq. 4.20)."""
    alpha = jnp.asarray(alpha, stream.dtype)
    above = gamma_quantile(alpha + 1.0, stream.normals(1))
    precision = above * stream.uniforms(1) ** (1.0 / alpha) / alpha
    return Waves(ones(stream), ((points, stream.normals(points.shape[1]) * jnp.sqrt(precision) / (TURN * ell)),))


def periodic(points: Points, stream: Stream, ell: Parameter, period: Parameter) -> Waves:
    """An RBF kernel of the points on circles: |(cos, sin) - (cos', sin')|^2 = 4 sin(pi (x - x') / period)^2.

    No series is cut off, and `ell` and `period` have derivatives, which the choice of a harmonic would not have.
    """
    angle = TURN * points / period
    circles = jnp.concatenate([jnp.cos(angle), jnp.sin(angle)], axis=1)
    return _gaussian(circles, stream, jnp.tile(jnp.broadcast_to(ell, points.shape[1:]), 2))


def cosine(points: Points, stream: Stream, period: Parameter) -> Waves:
    """One frequency, the same along every column."""
    frequency = jnp.broadcast_to(1.0 / jnp.asarray(period, stream.dtype), (*stream.index.shape, points.shape[1]))
    return Waves(ones(stream), ((points, frequency),))


def _spectral_mixture(
    points: Points, stream: Stream, weights: Float[Array, "Q"], means: Parameter, sds: Parameter
) -> Waves:
    """One component of the mixture each; the frequency along every column has either sign."""
    columns, components = points.shape[1], weights.shape[0]
    choice = stream.choices(components)

    def chosen(values: Parameter) -> Float[Array, "k D"]:
        wide = values[:, None] if values.ndim == 1 else values
        return jnp.broadcast_to(wide, (components, columns))[choice]

    signs = jnp.where(stream.uniforms(columns) < 0.5, -1.0, 1.0)
    frequencies = signs * chosen(means) + chosen(sds) * stream.normals(columns)
    return Waves(components * weights[choice], ((points, frequencies),))


def _constant(points: Points, stream: Stream) -> Waves:
    return Waves(ones(stream))


def _linear(points: Points, stream: Stream, ell: Parameter) -> Waves:
    """One of the columns each, D times as strong."""
    columns = points.shape[1]
    return Waves(columns * ones(stream), (), (points / ell)[:, stream.choices(columns)])


def _polynomial(points: Points, stream: Stream, offset: Parameter, ell: Parameter, degree: int) -> Waves:
    """A product of `degree` kernels, each the sum of a constant and of a linear one."""
    factors = []
    for _ in range(degree):
        choice = stream.choices(2)
        factors.append(mixture([Waves(offset * ones(stream)), _linear(points, stream, ell)], choice))
    return product(factors) if factors else Waves(ones(stream))


def _arc_cosine(points: Points, stream: Stream, weight: Parameter, bias: Parameter, order: int) -> Waves:
    """h(w'x + b) for Gaussian weights and biases, h(z) = z^order where z > 0: Cho and Saul (2009), eq. 1."""
    columns = points.shape[1]
    normals = stream.normals(columns + 1)
    inside = points @ (normals[:, :columns] * jnp.sqrt(weight)).T + normals[:, columns] * jnp.sqrt(bias)
    return Waves(2.0 * ones(stream), (), jax.nn.relu(inside) ** order)


def _coregion(points: Points, stream: Stream, W: Float[Array, "P R"], kappa: Float[Array, "P"]) -> Waves:
    """One column each of [W, diag(sqrt(kappa))], of which the covariance between levels is the square."""
    root = jnp.concatenate([W, jnp.diag(jnp.sqrt(kappa))], axis=1)
    columns = root.shape[1]
    return Waves(columns * ones(stream), (), root[level(points, kappa)][:, stream.choices(columns)])


def _same(points: Points, stream: Stream) -> Waves:
    """A sign at each point, independent of those at other points."""
    return Waves(ones(stream), (), stream.signs(points))


def _sigmoid(sign: float) -> Callable[..., Waves]:
    """What weighs a kernel before or after a change: the same in every wave."""

    def draw(points: Points, stream: Stream, at: Parameter, width: Parameter) -> Waves:
        return Waves(ones(stream), (), jax.nn.sigmoid(sign * (points[:, 0] - at) / width)[:, None])

    return draw


WAVES: Mapping[str, Callable[..., Waves]] = {
    "RBF": _gaussian,
    "Matern12": _matern(1),
    "Matern32": _matern(3),
    "Matern52": _matern(5),
    "RationalQuadratic": rational_quadratic,
    "Periodic": periodic,
    "Cosine": cosine,
    "SpectralMixture": _spectral_mixture,
    "Constant": _constant,
    "Linear": _linear,
    "Polynomial": _polynomial,
    "ArcCosine": _arc_cosine,
    "Coregion": _coregion,
    "Same": _same,
    "Before": _sigmoid(-1.0),
    "After": _sigmoid(1.0),
}
"""How waves of each kernel of the table are drawn. `White` has none, and patches are not one wave."""

STANDING = frozenset({"Constant", "Linear", "Polynomial", "ArcCosine", "Coregion", "Same", "Before", "After"})
"""Kernels whose waves do not turn: the sine of theirs is zero."""


# Frequencies from an isotropic spectral density: a direction at random, and a radius by a table of its distribution.
#
# The table is made from the density at the parameters' values, so that frequencies have derivatives in them.

NODES = 4096
"""Of the table, evenly spaced in the logarithm of the radius."""
PROBES = np.geomspace(1e-12, 1e12, 4801)
LEFT_OUT = 1e-8
"""Part of the mass at either end that the table does without."""
SPREAD = 300.0
"""How far parameters may move the density before its table ends: either way, as a factor of the frequency."""


def suited(density: sp.Expr, columns: int) -> bool:
    """Whether the density is nowhere negative and has a finite mass, with every parameter at 1."""
    masses = _masses(density, columns)
    return masses is not None and bool(np.min(masses) >= -1e-9 * np.max(masses))


def density_waves(density: sp.Expr, load: Callable[[sp.Symbol], Array], points: Points, stream: Stream) -> Waves:
    """Waves of the kernel with this density, a function of `FREQUENCY` in radians; its mass is their power."""
    columns = points.shape[1]
    if density.free_symbols == {FREQUENCY}:
        logs, cumulated = (jnp.asarray(each, stream.dtype) for each in _fixed_table(density, columns))
    else:
        logs, cumulated = _table(density, load, columns, stream.dtype)
    power = cumulated[-1]
    radius = jnp.exp(jnp.interp(stream.uniforms(1), cumulated / power, logs))
    frequencies = radius * _directions(stream, columns) / (2.0 * pi)
    return Waves(jnp.broadcast_to(power, stream.index.shape), ((points, frequencies),))


def _table(
    density: sp.Expr, load: Callable[[sp.Symbol], Array], columns: int, dtype: jnp.dtype
) -> tuple[Float[Array, "G"], Float[Array, "G"]]:
    """Logarithms of radii, and the mass within them, at the parameters' values."""
    radii = jnp.asarray(table_radii(density, columns), dtype)
    values = jnp.broadcast_to(evaluate(density, lambda s: radii if s == FREQUENCY else load(s)), radii.shape)
    logs = jnp.log(radii)
    masses = jnp.maximum(values, 0.0).astype(dtype) * _surface(columns) * jnp.exp(columns * (logs - log(2.0 * pi)))
    steps = 0.5 * (masses[1:] + masses[:-1]) * jnp.diff(logs)
    return logs, jnp.concatenate([jnp.zeros(1, dtype), jnp.cumsum(steps)])


@functools.lru_cache(maxsize=256)
def _fixed_table(density: sp.Expr, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """The same of a density without parameters, once: length-scales stand in the points."""
    radii = table_radii(density, columns)
    values, logs = np.asarray(numeric.evaluate(density, {FREQUENCY: radii})), np.log(radii)
    masses = np.maximum(values, 0.0) * _surface(columns) * np.exp(columns * (logs - log(2.0 * pi)))
    return logs, np.concatenate([[0.0], np.cumsum(0.5 * (masses[1:] + masses[:-1]) * np.diff(logs))])


@functools.lru_cache(maxsize=256)
def table_radii(density: sp.Expr, columns: int) -> np.ndarray:
    """Radii between which the mass lies: wherever parameters may move it, when the density has any."""
    masses = _masses(density, columns)
    assert masses is not None, "`suited` says so before"
    share = np.cumsum(masses) / np.sum(masses)
    low, high = PROBES[np.searchsorted(share, LEFT_OUT)], PROBES[np.searchsorted(share, 1.0 - LEFT_OUT)]
    room = SPREAD if density.free_symbols - {FREQUENCY} else 1.02
    return np.geomspace(low / room, high * room, NODES)


def _masses(density: sp.Expr, columns: int) -> np.ndarray | None:
    """Mass in shells of the probes' radii with every parameter at 1, or None where it is not finite."""
    known = {symbol: np.asarray(1.0) for symbol in density.free_symbols} | {FREQUENCY: PROBES}
    with np.errstate(all="ignore"):
        values = np.broadcast_to(numeric.evaluate(density, known), PROBES.shape)
        masses = np.where(values == 0, 0.0, values * np.exp(columns * np.log(PROBES)))
    return masses if np.isfinite(masses).all() and np.max(masses) > 0 else None


def _surface(columns: int) -> float:
    """Of the unit sphere: the mass in a shell is that times S(r) r^D / (2 pi)^D per unit of log radius."""
    return 2.0 * pi ** (columns / 2) / gamma(columns / 2)


def _directions(stream: Stream, columns: int) -> Float[Array, "k D"]:
    if columns == 1:
        return jnp.where(stream.uniforms(1) < 0.5, -1.0, 1.0)
    normals = stream.normals(columns)
    return normals / jnp.linalg.norm(normals, axis=1, keepdims=True)
