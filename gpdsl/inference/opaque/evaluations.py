"""Evaluations of opaque functions so far, what they are worth where q is now, and the surrogates fitted to them.

Points were drawn where q was when they were evaluated. They count for where it is now by importance weights against the
mixture of all densities they were drawn from (Veach and Guibas 1995: no weight exceeds the number of batches), and a
batch whose weights are worth too few of its points is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Float
from scipy.special import ndtri

from gpdsl.inference.opaque.surrogate import hermite, hermite_slopes
from gpdsl.inference.sampling import least_squares
from gpdsl.program.parameters import BIJECTORS, Bijector

WORTH = 0.3
"""Share of a batch's points that its weights must be worth, on average over the rows, for it to be used again."""

KEPT = 32
"""Batches that are looked at, the last ones."""

AT_A_TIME = 1024
"""Points taken off the Sobol sequence together: a power of two keeps it balanced."""


class Points:
    """Standard normals from a scrambled Sobol sequence, shifted anew for every row, round after round."""

    def __init__(self, rows: int, width: int, seed: int | np.ndarray) -> None:
        self.shift = np.random.default_rng(seed).random((rows, width))
        self.sobol = scipy.stats.qmc.Sobol(width, scramble=True, seed=np.random.default_rng(seed))
        self.ready = np.empty((0, width))

    def next(self, size: int) -> Float[np.ndarray, "S rows J"]:
        """The next points."""
        while len(self.ready) < size:
            self.ready = np.concatenate([self.ready, self.sobol.random(AT_A_TIME)])
        taken, self.ready = self.ready[:size], self.ready[size:]
        return ndtri(np.clip((taken[:, None, :] + self.shift) % 1.0, 1e-12, 1.0 - 1e-12))


@dataclass(frozen=True)
class Gaussian:
    """Where points were drawn: x = mean + root z, row by row."""

    mean: Float[np.ndarray, "rows J"]
    root: Float[np.ndarray, "rows J J"]

    @property
    def inverse(self) -> Float[np.ndarray, "rows J J"]:
        """R^-1."""
        return np.linalg.inv(self.root)

    def at(self, z: Float[np.ndarray, "S rows J"]) -> Float[np.ndarray, "S rows J"]:
        """Points from standard normals."""
        return self.mean + np.einsum("nij,snj->sni", self.root, z)

    def log_density(self, x: Float[np.ndarray, "S rows J"]) -> Float[np.ndarray, "S rows"]:
        """Without the constant of 2 pi."""
        z = whiten(self, x)
        return -0.5 * np.sum(z**2, -1) - np.sum(np.log(np.diagonal(self.root, axis1=1, axis2=2)), -1)


def whiten(q: Gaussian, x: Float[np.ndarray, "S rows J"]) -> Float[np.ndarray, "S rows J"]:
    """z = R^-1 (x - m)."""
    return np.einsum("nij,snj->sni", q.inverse, x - q.mean)


@dataclass(frozen=True)
class Batch:
    """Points evaluated together, and what every opaque call gave there."""

    drawn_from: Gaussian
    x: Float[np.ndarray, "S rows J"]
    values: Mapping[str, Float[np.ndarray, "S rows values"]]
    failed: Float[np.ndarray, "S rows"] | None = None
    """1 where a function failed and its failures are penalised: such a point tells a surrogate nothing."""
    slopes: Mapping[str, Float[np.ndarray, "S rows values J"]] | None = None
    """Derivatives of the values in x, where the functions give them."""
    blind: Float[np.ndarray, "S rows"] | None = None
    """1 where a gradient failed, whose derivatives are 0 instead: such a point tells a surrogate nothing either."""

    @property
    def sound(self) -> Float[np.ndarray, "S rows"]:
        """1 for points that nothing failed at, else 0."""
        whole = np.ones(self.x.shape[:2])
        for lost in (self.failed, self.blind):
            whole = whole if lost is None else whole * (1.0 - lost)
        return whole

    def slopes_in(self, q: Gaussian) -> dict[str, Float[np.ndarray, "S rows J values"]]:
        """Derivatives in the z of another Gaussian."""
        assert self.slopes is not None
        return {key: np.einsum("snvi,nij->snjv", slope, q.root) for key, slope in self.slopes.items()}


@dataclass(frozen=True)
class Regression:
    """Surrogates at one Gaussian: coefficients by call, and for every point used its weight, z and cross-validation.

    `held_out` is what the surrogate fitted without a point says there: its value, and with slopes its derivatives in
    z. `batches` are those used, in order; points of all of them follow each other. Weights are 1 on average in a row.
    """

    coefficients: Mapping[str, Float[np.ndarray, "rows F values"]]
    batches: Sequence[Batch]
    weights: Float[np.ndarray, "P rows"]
    z: Float[np.ndarray, "P rows J"]
    held_out: Mapping[str, Float[np.ndarray, "P rows E values"]]

    def held_out_by_batch(self) -> Iterator[dict[str, Float[np.ndarray, "S rows E values"]]]:
        """`held_out`, batch by batch."""
        start = 0
        for batch in self.batches:
            yield {key: values[start : start + len(batch.x)] for key, values in self.held_out.items()}
            start += len(batch.x)

    def moments(
        self, r: Float[np.ndarray, "P rows"], slopes: Float[np.ndarray, "P rows J"] | None, seed: int
    ) -> Moments:
        """Moments of a residual, row by row, from its values or, where they are known, its slopes in z.

        Means are taken off first, the control variate of SAVIGP appendix F.
        """
        level = np.mean(self.weights * r, axis=0)
        left = self.weights * (r - level)
        signs = np.random.default_rng(seed).choice([-1.0, 1.0], left.shape)
        error = float(np.sqrt(np.sum(np.mean(left**2, axis=0)) / len(r)))
        if slopes is None:
            return Moments(level, *self._stein(left), *self._stein(left * signs), error)
        first = np.mean(self.weights[..., None] * slopes, axis=0)
        spread = self.weights[..., None] * (slopes - first)
        flipped = spread * signs[..., None]
        return Moments(level, first, self._crossed(spread), np.mean(flipped, axis=0), self._crossed(flipped), error)

    def _stein(self, left: Float[np.ndarray, "P rows"]) -> tuple[np.ndarray, np.ndarray]:
        """Means of left z and of left (z z' - I)."""
        first = np.einsum("pn,pni->ni", left, self.z) / len(left)
        products = self._crossed(self.z * left[..., None])
        return first, products - np.mean(left, axis=0)[:, None, None] * np.eye(self.z.shape[-1])

    def _crossed(self, left: Float[np.ndarray, "P rows J"]) -> Float[np.ndarray, "rows J J"]:
        """The symmetric part of the mean of left z'."""
        products = np.moveaxis(left, 0, -1) @ np.swapaxes(self.z, 0, 1) / len(left)
        return 0.5 * (products + np.swapaxes(products, 1, 2))


@dataclass(frozen=True)
class Moments:
    """E[r], E[r z] and E[r (z z' - I)] of a residual in every row, and the standard error of the sum of the first.

    By Stein's identities the last two are E[dr/dz] and E[dr/dz z'].

    `noise_first` and `noise_second` are the two gradients with random signs on the points: as wrong as the others are.
    """

    level: Float[np.ndarray, "rows"]
    first: Float[np.ndarray, "rows J"]
    second: Float[np.ndarray, "rows J J"]
    noise_first: Float[np.ndarray, "rows J"]
    noise_second: Float[np.ndarray, "rows J J"]
    error: float


@dataclass
class Evaluations:
    """All batches, with the log density of every point under every Gaussian that points were drawn from."""

    batches: list[Batch] = field(default_factory=list)
    densities: list[list[np.ndarray]] = field(default_factory=list)

    @property
    def points(self) -> int:
        """Points in a row."""
        return sum(len(batch.x) for batch in self.batches)

    def add(self, batch: Batch) -> None:
        """Keep a batch."""
        for known, row in zip(self.batches, self.densities, strict=True):
            row.append(batch.drawn_from.log_density(known.x))
        self.batches.append(batch)
        self.densities.append([each.drawn_from.log_density(batch.x) for each in self.batches])

    def weights(self, q: Gaussian) -> tuple[list[int], Float[np.ndarray, "P rows"]]:
        """The batches worth using under q (the last always is), and the weights of their points."""
        used = list(range(len(self.batches)))[-KEPT:]
        target = {i: q.log_density(self.batches[i].x) for i in used}
        last = used[-1]
        while True:
            sizes = np.array([len(self.batches[i].x) for i in used], float)
            share = np.log(sizes / sizes.sum())
            found = [np.exp(target[i] - _mixture([self.densities[i][j] for j in used], share)) for i in used]
            worth = [np.mean(w.sum(0) ** 2 / np.maximum((w**2).sum(0), 1e-300)) / len(w) for w in found]
            poor = [i for i, value in zip(used, worth, strict=True) if value < WORTH and i != last]
            if not poor:
                weights = np.concatenate(found)
                return used, weights / np.maximum(weights.mean(axis=0), 1e-300)
            used.remove(poor[0])

    def worth(self, q: Gaussian) -> float:
        """How many points drawn from q those known are worth in a row, the median over the rows."""
        weights = self.weights(q)[1]
        return float(np.median(weights.sum(axis=0) ** 2 / np.maximum((weights**2).sum(axis=0), 1e-300)))

    def regress(self, q: Gaussian, quadratic: bool) -> Regression:
        """Weighted least squares of every call's values, and slopes where there are any, on polynomials of z."""
        used, weights = self.weights(q)
        batches = [self.batches[i] for i in used]
        z = np.concatenate([whiten(q, batch.x) for batch in batches])
        slopes = all(batch.slopes is not None for batch in batches)
        features = hermite(z, quadratic)[:, :, None]
        if slopes:
            features = np.concatenate([features, hermite_slopes(z, quadratic)], axis=2)
        targets = {key: _swapped(_targets(q, batches, key, slopes)) for key in batches[0].values}
        sound = np.swapaxes(weights * np.concatenate([batch.sound for batch in batches]), 0, 1)
        coefficients, said = least_squares(_swapped(features), sound, targets)
        return Regression(coefficients, batches, weights, z, {key: _swapped(each) for key, each in said.items()})


def _swapped(array: np.ndarray) -> np.ndarray:
    """Rows first, or points first."""
    return np.swapaxes(array, 0, 1)


def _targets(q: Gaussian, batches: Sequence[Batch], key: str, slopes: bool) -> Float[np.ndarray, "P rows E D"]:
    """Values at all points, and their derivatives in z."""
    values = np.concatenate([batch.values[key] for batch in batches])[:, :, None]
    if not slopes:
        return values
    return np.concatenate([values, np.concatenate([batch.slopes_in(q)[key] for batch in batches])], axis=2)


def _mixture(densities: Sequence[np.ndarray], share: Float[np.ndarray, "batches"]) -> np.ndarray:
    """Log density of the mixture."""
    return np.logaddexp.reduce([density + s for density, s in zip(densities, share, strict=True)])


# How far a round may go on what evaluations have told, and what it must have kept of the bound to be accepted.
#
# q is measured by distances between its row marginals, hyperparameters on their unconstrained scales. Both need a
# limit: what surrogates leave unexplained is known where q was, to first order around it, and at the hyperparameters
# there. At a noise ten times smaller a residual counts a hundred times, right or wrong, and its estimate may well be
# negative where it cannot be: a bound without a maximum.

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
