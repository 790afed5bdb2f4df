"""What an exact posterior says at a few rows, in NumPy: K - C B^-1 C', with B = I + H K H' and C = K_rf H'."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from gpdsl.inference.exact.parts import Part
from gpdsl.inference.exact.posterior import Regression
from gpdsl.inference.exact.whitening import Whitened
from gpdsl.inference.posteriors.on_host import Covariances, Matrix, Told

Set = tuple[Matrix, dict[int, Matrix], np.ndarray]
"""Of values that share latents: H K H', H K_fr of each latent that they read, by its column, and z.

White noise that is a part of the values' own is taken into it: all are in units of what both are.
"""


def told_by_data(groups: Sequence[Covariances], held: Regression) -> Told:
    """Of latents that are read in one way each, and data that are on no grid."""
    found = {(c, c): matrix for group in groups for c, matrix in group.prior.items()}
    inverses = []
    for part, known in zip(held.parts, held.values, strict=True):
        for signal, cross, z in _sets(part, known, groups):
            factor = cho_factor(np.eye(len(z)) + signal, lower=True)
            lost = {column: solve_triangular(factor[0], each, lower=True) for column, each in cross.items()}
            for a, b in itertools.product(lost, repeat=2):
                found[a, b] = found.get((a, b), 0.0) - lost[a].T @ lost[b]
            inverses.append((np.diagonal(cho_solve(factor, np.eye(len(z)))), cho_solve(factor, z)))
    return Told(found, inverses)


def _sets(part: Part, known: Whitened, groups: Sequence[Covariances]) -> Iterator[Set]:
    """Every set of a part, without what fills it up."""
    white = {group.start + j: variance for group in groups for j, variance in enumerate(group.white)}
    of = {column: (group, which, scale) for group in groups for column, which, scale in group.latents()}
    for number, (columns, rows) in enumerate(zip(part.columns, part.rows, strict=True)):
        loadings, z = np.asarray(known.loadings[number], float), np.asarray(known.z[number], float)
        kept = np.arange(loadings[0].size) if part.kept is None else part.kept[number]
        z, kept = z[kept >= 0], kept[kept >= 0]
        at, signal, cross = np.tile(rows, loadings.shape[1])[kept], np.zeros((len(z), len(z))), dict[int, Matrix]()
        noise = np.ones(len(z))
        for column, own in zip(map(int, columns), loadings, strict=True):
            group, which, scale = of[column]
            weights = own.reshape(-1)[kept]
            signal = signal + scale * weights[:, None] * group.known[which][np.ix_(at, at)] * weights
            cross[column] = scale * weights[:, None] * group.cross[which][at]
            noise += white[column] * weights**2
        unit = np.sqrt(noise)
        yield signal / np.outer(unit, unit), {c: each / unit[:, None] for c, each in cross.items()}, z / unit
