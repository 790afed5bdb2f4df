"""How far q may move on what evaluations have told, and how far it has moved: distances between its row marginals."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gpdsl.inference.evaluations import Gaussian

WIDEST = 3.0
"""Growth of the standard deviations in one round that is allowed."""

LARGEST, SMALLEST = 5.0, 0.05
"""Bounds on the reach."""


@dataclass(frozen=True)
class Trust:
    """A trust region: root mean square over the rows of the distance of the means, in standard deviations of q."""

    reach: float = LARGEST

    def covers(self, q: Gaussian, there: Gaussian) -> bool:
        """Whether q may go there in one round."""
        if not (np.all(np.isfinite(there.root)) and np.all(np.isfinite(there.mean))):
            return False
        inverse = q.inverse
        shift = np.einsum("nij,nj->ni", inverse, there.mean - q.mean)
        growth = np.mean(np.sum((inverse @ there.root) ** 2, axis=-1))
        return bool(np.sqrt(np.mean(shift**2)) <= self.reach and growth <= WIDEST**2)

    def grown(self) -> Trust:
        """After a round that kept its promise."""
        return replace(self, reach=min(2.0 * self.reach, LARGEST))

    def shrunk(self) -> Trust:
        """After a round in which the bound fell."""
        return replace(self, reach=max(0.25 * self.reach, SMALLEST))


def distance(q: Gaussian, there: Gaussian) -> float:
    """Root mean square over rows and latents of the changes of means, in sds, and of the logarithms of the sds."""
    before, after = (np.sqrt(np.sum(each.root**2, axis=-1)) for each in (q, there))
    return float(np.sqrt(np.mean(((there.mean - q.mean) / after) ** 2 + np.log(after / before) ** 2)))
