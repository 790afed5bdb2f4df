"""How far a round may go on what evaluations have told, and what it must have kept of the bound to be accepted.

q is measured by distances between its row marginals, hyperparameters on their unconstrained scales. Both need a limit:
what surrogates leave unexplained is known where q was, to first order around it, and at the hyperparameters there. At a
noise ten times smaller a residual counts a hundred times, right or wrong, and its estimate may well be negative where
it cannot be: a bound without a maximum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from gpdsl.inference.opaque.evaluations import Gaussian
from gpdsl.program.bijectors import BIJECTORS, Bijector

WIDEST = 3.0
"""Growth of the standard deviations in one round that is allowed."""

MOST_REFUSED = 10

LARGEST, SMALLEST = 5.0, 0.01
"""Bounds on the reach."""

STRIDE = 0.3
"""Of the reach: how far numbers on logarithmic and logistic scales may go in a round."""

CERTAIN = 3.0
"""Standard errors by which a bound has to be lower for it to have fallen."""

MOST_ERROR, NATS = 4.0, 1.0
"""A standard error so many times that of the best place, and by so many nats, excuses no bound that is lower."""

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

    def around(self, point: Any, bijectors: Mapping[str, Bijector]) -> tuple[Any, Any]:
        """The least and the greatest hyperparameters of a round; those on a scale of their own, as real ones, are free.

        `point` holds unconstrained `parameters`, and inducing inputs.
        """
        free = jax.tree.map(lambda a: jnp.full_like(a, jnp.inf), point)
        limited = {
            name: step if bijectors[name] is BIJECTORS["real"] else jnp.full_like(step, STRIDE * self.reach)
            for name, step in free["parameters"].items()
        }
        steps = {**free, "parameters": limited}
        return jax.tree.map(jnp.subtract, point, steps), jax.tree.map(jnp.add, point, steps)

    def grown(self) -> Trust:
        """After a round that kept its promise."""
        return Trust(min(2.0 * self.reach, LARGEST))

    def shrunk(self) -> Trust:
        """After a round in which the bound fell."""
        return Trust(max(0.25 * self.reach, SMALLEST), self.refused + 1)


@dataclass(frozen=True)
class Judged:
    """A bound as it was estimated, with its standard error."""

    value: float = -np.inf
    error: float = 0.0

    @property
    def known(self) -> bool:
        """Whether there is a number to compare others with."""
        return bool(np.isfinite(self.value))

    @property
    def least(self) -> float:
        """What it is at least, for all that is known."""
        return self.value - CERTAIN * self.error if np.isfinite(self.error) else -np.inf

    def below(self, best: Judged) -> bool:
        """Whether this is lower than the best by more than errors explain, or so uncertain that it says nothing.

        Its own error excuses it up to a few times that of the best, so that a place where anything could be is refused.
        """
        if not self.known or np.isfinite(best.error) > np.isfinite(self.error):
            return True
        own, other = (each if np.isfinite(each) else np.inf for each in (float(self.error), float(best.error)))
        allowed = min(own, MOST_ERROR * other + NATS) + other
        return bool(self.value < best.value - CERTAIN * allowed)


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
