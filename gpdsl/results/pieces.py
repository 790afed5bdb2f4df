"""Rows that took as many evaluations of opaque functions, with the polynomials that these gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Array, Float

from gpdsl.inference.opaque.surrogate import column_covariance
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program
from gpdsl.results.responses import Polynomials, Whitening, regress

Externals = dict[str, Array]


@dataclass(frozen=True, eq=False)
class Piece:
    """Rows that took as many points: `values` [S, K, rows, *dims] of every call at `latents`, and their polynomials."""

    rows: np.ndarray
    latents: Float[Array, "S K rows latents"]
    values: Mapping[str, Array]
    polynomials: Polynomials
    whitening: Whitening


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
    latents: Float[Array, "S K all latents"],
    values: Externals,
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
