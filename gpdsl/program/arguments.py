"""The joint Gaussian law of what an integral is over: latents, or linear functions of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import sympy as sp
from jaxtyping import Array

from gpdsl.program.joint import Marginals, Table, deviation, lower_root, moment_values
from gpdsl.program.program import Program
from gpdsl.symbolic.gaussian import joint_moments_of
from gpdsl.symbolic.joint import Correlated, correlated, root_symbol


@dataclass(frozen=True)
class Gaussian:
    """Joint Gaussians of some symbols, row by row: mean_i + sum_j root_ij z_j for independent standard normals z.

    Entries of the root that are zero are left out.
    """

    symbols: tuple[sp.Symbol, ...]
    means: Sequence[Array]
    root: Sequence[Mapping[int, Array]]

    def values(self, normals: Sequence[Array | None]) -> dict[sp.Symbol, Array]:
        """Values of the symbols at normals, those that are None at zero."""
        found = {}
        for symbol, mean, row in zip(self.symbols, self.means, self.root, strict=True):
            found[symbol] = mean + sum(entry * z for j, entry in row.items() if (z := normals[j]) is not None)
        return found

    def still(self) -> Gaussian:
        """Without derivatives."""
        means, root = jax.lax.stop_gradient((list(self.means), list(self.root)))
        return Gaussian(self.symbols, means, root)


def gaussian_of(program: Program, latents: Sequence[sp.Symbol], q: Marginals, axes: tuple[str, ...]) -> Gaussian:
    """The law of readings under the marginals."""
    moments, known = joint_moments_of(latents), moment_values(program, latents, q, axes)
    places = {s: place for place, s in enumerate(latents)}
    root = {s: {place: deviation(known[moments.variance[s]])} for s, place in places.items()}
    for symbols, table in _dependent(program, latents, q, known):
        for i, s in enumerate(symbols):
            root[s] = {places[t]: table[i][j] for j, t in enumerate(symbols[: i + 1])}
    return Gaussian(tuple(latents), [known[moments.mean[s]] for s in latents], list(root.values()))


def gaussian_along(symbols: Sequence[sp.Symbol], lines: Sequence[tuple[Array, list[Array]]]) -> Gaussian:
    """The law of linear functions of standard normals, each of a level and slopes, as one of as many normals."""
    slopes = [s for _, s in lines]
    covariance = [[jnp.asarray(sum(a * b for a, b in zip(s, t, strict=True))) for t in slopes] for s in slopes]
    root = [dict(enumerate(row)) for row in lower_root(covariance)]
    return Gaussian(tuple(symbols), [level for level, _ in lines], root)


def _dependent(
    program: Program, latents: Sequence[sp.Symbol], q: Marginals, known: Mapping[sp.Symbol, Array]
) -> list[tuple[Correlated, Table]]:
    """The sets of reads that are not independent of each other, with the roots of their covariances."""
    if q.covariance is None:
        sets = correlated(program.translator, latents)
        tables = [[[root_symbol(s, t) for t in each[: i + 1]] for i, s in enumerate(each)] for each in sets]
        roots = [[[known[entry] for entry in row] for row in table] for table in tables]
        return list(zip(sets, roots, strict=True))
    if len(latents) < 2:
        return []
    moments = joint_moments_of(latents)
    return [(tuple(latents), lower_root([[known[moments.symbol(s, t)] for t in latents] for s in latents]))]
