"""Draws of one Gaussian q(w), weighted by the joint density over q, or moved to it where weights do not do.

With z = (w - m) R^-1 standard normal under q, weights are r(w) = p(y, w) / q'(w), where q' is the mean of q over all
images of w under the symmetries of p: draws of q under images at random have this density. Where the weights are too
uneven, the draws go to p through q r^t with t from 0 to 1 (annealed importance sampling with resampling, Neal 2001, Del
Moral et al. 2006), moved by elliptical slice sampling about q (Murray et al. 2010; Nishihara et al. 2014).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from gpdsl.inference.corrected.images import Images
from gpdsl.inference.log_joint import Learnt, LogJoint
from gpdsl.inference.mcmc.slices import moved
from gpdsl.program.compilation import jit

EVEN = 0.5
"""Effective share of the draws that a step of t leaves."""

MOVES = 20
"""Of each draw after a step of t; as many once more at the end."""

STAGES = 40
"""Most steps of t."""


@dataclass(frozen=True)
class Around:
    """q at a setting of the parameters: these on the real line, mean m, root R and its inverse, and log |R|."""

    numbers: tuple[Learnt, Float[Array, " D"], Float[Array, "D D"], Float[Array, "D D"], float]

    @property
    def learnt(self) -> Learnt:
        """The parameters."""
        return self.numbers[0]


@dataclass(frozen=True)
class Drawn:
    """Draws of w with log weights whose mean is the evidence p(y | parameters), p(parameters) included."""

    white: Float[np.ndarray, "draws D"]
    log_weights: Float[np.ndarray, " draws"]


class Weighing:
    """Draws about any q, compiled once."""

    def __init__(self, joint: LogJoint, images: Images, draws: int) -> None:
        self.joint, self.images, self.draws = joint, images, draws
        self._log_ratios = jit(jax.vmap(self._log_ratio, (0, None, None)))
        self._moved = jit(self._all_moved)

    def weighed(self, q: Around, key: Array) -> Drawn:
        """Draws of q with the weights that correct them."""
        z, log_ratios = self._start(q, key)
        return Drawn(self._white(q, z), log_ratios)

    def _start(self, q: Around, key: Array) -> tuple[Float[Array, "draws D"], Float[np.ndarray, " draws"]]:
        z = jax.random.normal(key, (self.draws, len(q.numbers[1])), q.numbers[1].dtype)
        return z, np.asarray(self._log_ratios(z, q.numbers, self.joint.data), float)

    def tempered(self, q: Around, key: Array) -> Drawn:
        """Draws with equal weights that went from q to the joint density in steps."""
        reached, evidence, rng = 0.0, 0.0, np.random.default_rng(np.asarray(jax.random.key_data(key)))
        z, log_ratios = self._start(q, key)
        for stage in range(STAGES):
            step = _step(log_ratios, 1.0 - reached)
            weights = np.exp(step * (log_ratios - np.max(log_ratios)))
            evidence += step * float(np.max(log_ratios)) + float(np.log(np.mean(weights)))
            reached += step
            kept = resampled(weights / weights.sum(), self.draws, rng)
            ends = reached >= 1.0 - 1e-12
            own = jax.random.split(jax.random.fold_in(key, stage), 2 if ends else 1)
            z = z[kept]
            for each in own:
                z = self._moved(z, reached, each, q.numbers, self.joint.data)
            if ends:
                break
            log_ratios = np.asarray(self._log_ratios(z, q.numbers, self.joint.data), float)
        return Drawn(self._white(q, z), np.full(self.draws, evidence))

    @staticmethod
    def _white(q: Around, z: Float[Array, "draws D"]) -> Float[np.ndarray, "draws D"]:
        _, mean, root, *_ = q.numbers
        return np.asarray(mean + z @ root.T)

    def _log_ratio(self, z: Float[Array, " D"], q: tuple[Any, ...], data: Any) -> Float[Array, ""]:
        learnt, mean, root, inverse, log_det = q
        white, joint = mean + root @ z, self.joint
        value = joint.log_likelihood(learnt, white, data) + joint.log_prior(learnt) - 0.5 * jnp.sum(white**2)
        apart = (self.images.of(white) - mean) @ inverse.T
        density = logsumexp(-0.5 * jnp.sum(apart**2, axis=1)) - jnp.log(len(self.images)) - log_det
        return jnp.where(jnp.isfinite(value), value - density, -jnp.inf)

    def _all_moved(
        self, z: Float[Array, "draws D"], reached: Array, key: Array, q: tuple[Any, ...], data: Any
    ) -> Float[Array, "draws D"]:
        def density(z: Float[Array, " D"]) -> Float[Array, ""]:
            return reached * self._log_ratio(z, q, data)

        def once(z: Float[Array, "draws D"], key: Array) -> tuple[Float[Array, "draws D"], None]:
            return jax.vmap(lambda own, k: moved(density, own, k))(z, jax.random.split(key, len(z))), None

        found, _ = jax.lax.scan(once, z, jax.random.split(key, MOVES))
        return found


def resampled(weights: Float[np.ndarray, " n"], count: int, rng: np.random.Generator) -> np.ndarray:
    """Numbers of draws, as often as their weights say, by one random number (systematic resampling)."""
    places = (rng.random() + np.arange(count)) / count
    return np.minimum(np.searchsorted(np.cumsum(weights), places), len(weights) - 1)


def _step(log_ratios: Float[np.ndarray, " draws"], most: float) -> float:
    """The longest step of t that leaves the weights even enough."""

    def share(step: float) -> float:
        weights = np.exp(step * (log_ratios - np.max(log_ratios)))
        return float(weights.sum() ** 2 / np.sum(weights**2) / len(weights))

    if share(most) >= EVEN:
        return most
    low, high = 0.0, most
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if share(middle) >= EVEN else (low, middle)
    return max(low, 1e-3 * most)
