"""Rows that took as many evaluations of opaque functions, with the polynomials that these gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.inference.opaque.surrogate import column_covariance
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program
from gpdsl.results.responses import Polynomials, regress

Externals = dict[str, Array]


@dataclass(frozen=True)
class Whitening:
    """u = map (x - mean): independent standard normals behind what is read, 0 along what the posterior leaves no room.

    `N` rows, those of all components of a mixture behind each other.
    """

    mean: Float[np.ndarray, "N J"]
    map: Float[np.ndarray, "N J J"]

    @classmethod
    def of(cls, mean: Float[np.ndarray, "N J"], covariance: Float[np.ndarray, "N J J"]) -> Whitening:
        """From moments."""
        sizes, directions = np.linalg.eigh(covariance)
        least = 1e-10 * np.max(sizes, axis=-1, initial=0.0, keepdims=True)
        scales = np.where(sizes > least, 1.0 / np.sqrt(np.maximum(sizes, 1e-300)), 0.0)
        return cls(mean, scales[..., None] * np.swapaxes(directions, -1, -2))

    def __call__(self, x: Float[np.ndarray, "N S J"]) -> Float[np.ndarray, "N S J"]:
        """The standard normals behind points."""
        return np.einsum("nij,nsj->nsi", self.map, x - self.mean[:, None])

    def part(self, index: np.ndarray) -> Whitening:
        """Of some of the rows."""
        return Whitening(self.mean[index], self.map[index])


@dataclass(frozen=True, eq=False)
class Piece:
    """Rows that took as many points: `values` [S, K, rows, *dims] of every call at `latents`, and their polynomials."""

    rows: np.ndarray
    latents: Float[np.ndarray, "S K rows latents"]
    values: Mapping[str, np.ndarray]
    polynomials: Polynomials
    whitening: Whitening

    def said(self) -> Externals:
        """What polynomials fitted without each point say there."""
        missed = self.polynomials.residuals
        return {k: jnp.asarray(v - by_point(missed[k], v.shape[1], v.shape[3:])) for k, v in self.values.items()}


@dataclass(frozen=True, eq=False)
class Known:
    """What is known of a part of the rows: in pieces, and of rows that are `direct` values at the samples."""

    pieces: Sequence[Piece]
    direct: np.ndarray
    count: int
    values: Mapping[str, Float[np.ndarray, "S K direct *dims"]]


def make_piece(
    program: Program,
    columns: tuple[int, ...],
    marginals: Marginals,
    rows: np.ndarray,
    latents: Float[np.ndarray, "S K all latents"],
    values: Mapping[str, np.ndarray],
) -> Piece:
    """The piece of some rows, whose marginals these are; `latents` are of all rows, `values` of these."""
    latents, whitening = latents[:, :, rows], _whitening(program, columns, marginals)
    flat = {key: by_row(np.asarray(value, float)) for key, value in values.items()}
    u = whitening(by_row(np.asarray(latents[..., np.asarray(columns, int)], float)))
    return Piece(rows, latents, dict(values), regress(u, flat), whitening)


def _whitening(program: Program, columns: tuple[int, ...], marginals: Marginals) -> Whitening:
    components, rows, _ = marginals.mean.shape
    if not columns:
        return Whitening(np.zeros((components * rows, 0)), np.zeros((components * rows, 0, 0)))
    covariances = []
    for k in range(components):
        one = jax.tree.map(lambda a, k=k: a[k : k + 1], marginals)
        covariances.append(np.asarray(column_covariance(program, one, columns), float))
    mean = np.asarray(marginals.mean[..., np.asarray(columns)], float).reshape(-1, len(columns))
    return Whitening.of(mean, np.concatenate(covariances))


def of_rows(piece: Piece, chosen: np.ndarray) -> Piece:
    """Some of the rows of a piece."""
    components = piece.latents.shape[1]
    flat = (np.arange(components)[:, None] * piece.rows.size + chosen).ravel()
    values = {key: value[:, :, chosen] for key, value in piece.values.items()}
    polynomials, whitening = piece.polynomials.part(flat), piece.whitening.part(flat)
    return Piece(piece.rows[chosen], piece.latents[:, :, chosen], values, polynomials, whitening)


def by_row(values: np.ndarray) -> np.ndarray:
    """[S, K, rows, *dims] to [K rows, S, D]."""
    moved = np.moveaxis(values, 0, 2)
    return moved.reshape(moved.shape[0] * moved.shape[1], moved.shape[2], int(np.prod(moved.shape[3:])))


def by_point(values: np.ndarray, components: int, dims: tuple[int, ...]) -> np.ndarray:
    """[K rows, S, D] to [S, K, rows, *dims]."""
    return np.moveaxis(values.reshape(components, -1, values.shape[1], *dims), 2, 0)
