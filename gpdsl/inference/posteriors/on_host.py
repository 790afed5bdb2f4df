"""What a posterior says of its latents at a few rows, in NumPy, from covariances of the prior: nothing is compiled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg import solve_triangular

from gpdsl.inference.posteriors.family import Whitened

Matrix = Float[np.ndarray, "n m"]


class Told(NamedTuple):
    """Covariances at some rows of two latents, by their columns, but for those that are 0; and `Posterior.inverses`."""

    covariances: dict[tuple[int, int], Matrix]
    inverses: Sequence[tuple[Float[np.ndarray, " values"], Float[np.ndarray, " values"]]] = ()


@dataclass(frozen=True, eq=False)
class Covariances:
    """Of a group whose columns begin at `start`: scales, variances of white noise besides, and covariances at scale 1.

    `known` are those of what its posterior is over, `cross` of that with some rows, `own` of these.
    """

    start: int
    scale: Float[np.ndarray, " latents"]
    white: Float[np.ndarray, " latents"]
    known: Float[np.ndarray, "factors M M"]
    cross: Float[np.ndarray, "factors M rows"]
    own: Float[np.ndarray, "factors rows rows"]

    def latents(self) -> Iterator[tuple[int, int, float]]:
        """Column, kernel and scale of every latent."""
        for j, scale in enumerate(self.scale):
            yield self.start + j, min(j, len(self.known) - 1), float(scale)

    @cached_property
    def prior(self) -> dict[int, Matrix]:
        """Covariances of every latent at the rows, by its column."""
        return {column: scale * self.own[which] for column, which, scale in self.latents()}


def features(
    known: Float[np.ndarray, "M M"], cross: Float[np.ndarray, "M rows"], jitter: float
) -> Float[np.ndarray, "rows M"]:
    """phi = K_ru L'^-1 of whitened values, L L' = K_uu with the jitter of the fit."""
    lifted = known + jitter * np.mean(np.diagonal(known)) * np.eye(len(known))
    return np.asarray(solve_triangular(np.linalg.cholesky(lifted), cross, lower=True).T)


def told_by_values(groups: Sequence[Covariances], q: Sequence[Whitened], coupled: bool, jitter: float) -> Told:
    """By one Gaussian of whitened values, S = R R': K - phi phi' + phi S phi', SAVIGP eqs. 37 to 39 with all of K."""
    loaded, found = dict[int, Matrix](), dict[tuple[int, int], Matrix]()
    for group, each in zip(groups, q, strict=True):
        phis = [features(known, cross, jitter) for known, cross in zip(group.known, group.cross, strict=True)]
        for column, which, scale in group.latents():
            loaded[column] = np.sqrt(scale) * phis[which] @ np.asarray(each.root[0, column - group.start], float)
            found[column, column] = scale * (group.own[which] - phis[which] @ phis[which].T)
    pairs = ((a, b) for a in loaded for b in loaded if coupled or a == b)
    return Told({(a, b): found.get((a, b), 0.0) + loaded[a] @ loaded[b].T for a, b in pairs})
