"""Draws of one Gaussian q(w), weighted by the joint density over q, or moved to it where weights do not do.

With z = (w - m) R^-1 standard normal under q, weights are r(w) = p(y, w) / q'(w), where q' is the mean of q over all
images of w under the symmetries of p: draws of q under images at random have this density. Where the weights are too
uneven, the draws go to p through q r^t with t from 0 to 1 (annealed importance sampling with resampling, Neal 2001, Del
Moral et al. 2006), moved by elliptical slice sampling about q (Murray et al. 2010; Nishihara et al. 2014).

Weights do not see what q never visits. So draws move on about a Gaussian that is wider than they are themselves, twice
as often each time, until their means and squares stay; and weighted draws are believed where some of them, moved, stay.
Other modes are found by draws that go from the prior to the joint density in the same way: they find the same evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from gpdsl.inference.images import Images
from gpdsl.inference.log_joint import Learnt, LogJoint
from gpdsl.program.cache import jit

EVEN = 0.5
"""Effective share of the draws that a step of t leaves."""

MOVES = 20
"""Of each draw after a step of t, and at first beyond the last one."""

ROUNDS = 5
"""Most times that draws are moved at the end, each time twice as often as before."""

BEYOND = 1.5
"""Times as wide as the draws is the Gaussian about which they are moved at the end."""

STAYS = 1.5
"""Standard errors, as a root mean square over all means and squares, within which draws have stayed."""

LEAST = 32
"""Weighted draws of which is looked whether they stay, at least."""

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

    def prior(self) -> Around:
        """The prior of w in place of q."""
        mean, unit = jnp.zeros_like(self.numbers[1]), jnp.eye(len(self.numbers[1]), dtype=self.numbers[1].dtype)
        return Around((self.learnt, mean, unit, unit, 0.0))


@dataclass(frozen=True)
class Drawn:
    """Draws of w with log weights whose mean is the evidence p(y | parameters), p(parameters) included.

    `settled` says whether they stayed where they were when moved on; None where nobody has looked.
    """

    white: Float[np.ndarray, "draws D"]
    log_weights: Float[np.ndarray, " draws"]
    settled: bool | None = None

    @property
    def log_evidence(self) -> float:
        """The logarithm of the mean weight."""
        return float(np.logaddexp.reduce(self.log_weights) - np.log(len(self.log_weights)))


class Weighing:
    """Draws about any q, compiled once."""

    def __init__(self, joint: LogJoint, images: Images, draws: int) -> None:
        self.joint, self.images, self.draws = joint, images, draws
        self._log_ratios = jit(jax.vmap(self._log_ratio, (0, None, None)))
        self._moved = jit(self._all_moved)
        self._moved_on = jit(self._all_moved_on)

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
            z = self._moved(z[kept], reached, jax.random.fold_in(key, stage), q.numbers, self.joint.data)
            if reached >= 1.0 - 1e-12:
                break
            log_ratios = np.asarray(self._log_ratios(z, q.numbers, self.joint.data), float)
        z, settled = self._until_settled(q, z, jax.random.fold_in(key, STAGES))
        return Drawn(self._white(q, z), np.full(self.draws, evidence), settled)

    def stays(self, q: Around, drawn: Drawn, most: int, key: Array) -> tuple[bool, Float[np.ndarray, "moved D"]]:
        """Whether draws of q, `most` or as many as they are worth, stay when moved, and where they then are."""
        _, mean, _, inverse, _ = q.numbers
        weights = np.exp(drawn.log_weights - np.max(drawn.log_weights))
        weights /= weights.sum()
        count = int(min(most, max(1.0 / np.sum(weights**2), LEAST)))
        kept = resampled(weights, count, np.random.default_rng(np.asarray(jax.random.key_data(key))))
        before = jnp.asarray((drawn.white[kept] - np.asarray(mean)) @ np.asarray(inverse).T)
        after = self._on(q, before, key)
        return self._stayed(before, after), self._white(q, after)

    def _until_settled(self, q: Around, z: Float[Array, "draws D"], key: Array) -> tuple[Float[Array, "draws D"], bool]:
        """Draws moved on until twice as many moves change nothing, and whether that came to pass."""
        for number in range(ROUNDS):
            before = z
            for own in jax.random.split(jax.random.fold_in(key, number), 2**number):
                z = self._on(q, z, own)
            if self._stayed(before, z):
                return z, True
        return z, False

    def _on(self, q: Around, z: Float[Array, "draws D"], key: Array) -> Float[Array, "draws D"]:
        """Moved about a Gaussian with the draws' mean and covariance, wider; few draws are no narrower than q says."""
        count, size = z.shape
        share, mean = count / (count + size), jnp.mean(z, axis=0)
        spread = share * jnp.atleast_2d(jnp.cov(z.T)) + (1 - share) * jnp.eye(size)
        return self._moved_on(z, mean, BEYOND * jnp.linalg.cholesky(spread), key, q.numbers, self.joint.data)

    @staticmethod
    def _stayed(before: Float[Array, "draws D"], after: Float[Array, "draws D"]) -> bool:
        """Whether means and squares about the mean are as before, within what so many independent draws differ by."""
        centre = np.mean(before, axis=0)
        old, new = (np.concatenate([np.asarray(z), (np.asarray(z) - centre) ** 2], axis=1) for z in (before, after))
        apart = (new.mean(axis=0) - old.mean(axis=0)) / np.sqrt((np.var(new, axis=0) + np.var(old, axis=0)) / len(old))
        return bool(np.sqrt(np.mean(apart**2)) <= STAYS)

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
        return _moves(lambda z: reached * self._log_ratio(z, q, data), z, key)

    def _all_moved_on(
        self,
        z: Float[Array, "draws D"],
        mean: Float[Array, " D"],
        root: Float[Array, "D D"],
        key: Array,
        q: tuple[Any, ...],
        data: Any,
    ) -> Float[Array, "draws D"]:
        def density(u: Float[Array, " D"]) -> Float[Array, ""]:
            z = mean + root @ u
            return self._log_ratio(z, q, data) + 0.5 * (u @ u - z @ z)

        u = jax.scipy.linalg.solve_triangular(root, (z - mean).T, lower=True).T
        return mean + _moves(density, u, key) @ root.T


def _moves(
    density: Callable[[Float[Array, " D"]], Float[Array, ""]], z: Float[Array, "draws D"], key: Array
) -> Float[Array, "draws D"]:
    """All draws, moved under a density over N(0, I)."""

    def once(z: Float[Array, "draws D"], key: Array) -> tuple[Float[Array, "draws D"], None]:
        return jax.vmap(lambda own, k: moved(density, own, k))(z, jax.random.split(key, len(z))), None

    found, _ = jax.lax.scan(once, z, jax.random.split(key, MOVES))
    return found


# Elliptical slice sampling: one move of z under a log density times N(z; 0, I), without a step size or a gradient.
#
# Murray, Adams and MacKay (2010), figure 2.


def moved(density: Callable[[Array], Array], z: Float[Array, " D"], key: Array) -> Float[Array, " D"]:
    """The next place of a chain that keeps the distribution."""
    aside, level, angle, rest = jax.random.split(key, 4)
    other = jax.random.normal(aside, z.shape, z.dtype)
    least = density(z) + jnp.log(jax.random.uniform(level, dtype=z.dtype))
    first = 2 * jnp.pi * jax.random.uniform(angle, dtype=z.dtype)

    def at(angle: Array) -> Array:
        return z * jnp.cos(angle) + other * jnp.sin(angle)

    def below(state: Any) -> Array:
        return ~(density(at(state[0])) > least)

    def shrunk(state: Any) -> Any:
        angle, low, high, key = state
        low, high = jnp.where(angle < 0, angle, low), jnp.where(angle < 0, high, angle)
        key, own = jax.random.split(key)
        return low + (high - low) * jax.random.uniform(own, dtype=z.dtype), low, high, key

    found, *_ = jax.lax.while_loop(below, shrunk, (first, first - 2 * jnp.pi, first, rest))
    return at(found)


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
