"""How far q may move on what evaluations have told, and how far it has moved: distances between its row marginals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from gpdsl.inference.opaque.evaluations import Gaussian

WIDEST = 3.0
"""Growth of the standard deviations in one round that is allowed."""

MOST_REFUSED = 10

LARGEST, SMALLEST = 5.0, 0.01
"""Bounds on the reach."""

LEAST_SHARE = 0.2
"""Of a step, however much it undoes the one before."""


@dataclass(frozen=True)
class Trust:
    """A trust region: root mean square over the rows of the distance of the means, in standard deviations of q."""

    reach: float = LARGEST
    refused: int = 0
    """Steps in a row that lowered the bound."""

    @property
    def exhausted(self) -> bool:
        """Whether there is no point in trying on."""
        return self.refused >= MOST_REFUSED

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
        return Trust(min(2.0 * self.reach, LARGEST))

    def shrunk(self) -> Trust:
        """After a round in which the bound fell."""
        return Trust(max(0.25 * self.reach, SMALLEST), self.refused + 1)


def change(q: Gaussian, there: Gaussian) -> Float[np.ndarray, "numbers"]:
    """Changes of the means of all rows and latents, in standard deviations, and of the logarithms of these."""
    before, after = (np.sqrt(np.sum(each.root**2, axis=-1)) for each in (q, there))
    return np.concatenate([((there.mean - q.mean) / after).ravel(), np.log(after / before).ravel()])


def distance(q: Gaussian, there: Gaussian) -> float:
    """Root mean square of the changes of means and of those of standard deviations together."""
    return float(np.sqrt(2.0 * np.mean(change(q, there) ** 2)))


@dataclass(frozen=True)
class Damping:
    """How much of a step is taken: less where steps undo each other, as they do about a fixed point that repels.

    `led` is where the last step led, of which `taken` was taken. With steps that follow a linear map the next share is
    that of a secant (Barzilai and Borwein 1988).
    """

    taken: float = 1.0
    led: np.ndarray | None = None

    def after(self, led: Float[np.ndarray, "numbers"]) -> Damping:
        """The share of a step that leads there."""
        if self.led is None:
            return Damping(1.0, led)
        turned = led - self.led
        secant = -self.taken * float(self.led @ turned) / max(float(turned @ turned), 1e-300)
        return Damping(min(max(secant, LEAST_SHARE), 1.0), led)
