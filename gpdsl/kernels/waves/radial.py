"""Frequencies from an isotropic spectral density: a direction at random, and a radius by a table of its distribution.

The table is made from the density at the parameters' values, so that frequencies have derivatives in them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import gamma, log, pi

import jax.numpy as jnp
import numpy as np
import sympy as sp
from jaxtyping import Array, Float

from gpdsl.kernels.counters import Stream
from gpdsl.kernels.waves.algebra import Points, Waves
from gpdsl.lowering.table import evaluate
from gpdsl.symbolic import numeric
from gpdsl.symbolic.spectral import FREQUENCY

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
