"""One Gaussian of many numbers that maximises E_q[log p(theta, y)] + entropy, by natural gradients over samples.

Natural-gradient steps are those of Khan and Rue (2023), section 3: with q = N(m, R R') and theta = m + R z,

    R' E_q[-d^2 log p] R = E_q[-z (R' g)'],   g = d log p / d theta   (Stein's lemma),

is the precision to go to in units of q, and R' E_q[g] the way of the mean. The samples z are mirrored and, where they
are many for the numbers, turned so that their mean is 0 and their covariance 1: where log p is quadratic, a single step
is exact then. One set of samples makes the bound a function, of which every step is a step upwards, and which L-BFGS
goes on with where whole steps fail; afterwards fresh sets, each with its share of an average, take out what q owes to
the first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy
from jaxtyping import Float
from scipy.special import ndtri

from gpdsl.inference.ascent.lbfgs import ENDINGS, maximise

Valued = tuple[Float[np.ndarray, " S"], Float[np.ndarray, "S d"]]
Density = Callable[[Float[np.ndarray, "S d"]], Valued]
"""Log densities at points, up to a constant, and their gradients."""

SETTLED, ROUGHLY = 1e-4, 1e-3
"""Nats that the next natural-gradient step has to promise, or the last to have gained; and an iteration of L-BFGS."""

FAREST = 30.0
"""Logarithm of the factor by which L-BFGS looks at other standard deviations at most."""

STEPS, HALVINGS = 20, 8
"""Most natural-gradient steps on the first set of samples, and halvings of a start."""

WIDER = 9.0
"""Times by which a variance may grow or shrink in a step."""

TURNED = 4
"""Samples for each number from which they are given the covariance 1, and not each number a variance of 1."""

NEAR, STEP, FLATTEST, WIDEST = 1e-3, 0.5, 0.05, 10.0
"""Of the curvature at the start: the first differences on the real line, then those in standard deviations; the least
of it in units in which each number alone is curved by one, and the largest standard deviation."""


@dataclass(frozen=True, eq=False)
class Gaussian:
    """`root` is a root of the covariance, or standard deviations where numbers are independent."""

    mean: Float[np.ndarray, " d"]
    root: Float[np.ndarray, " d *e"]

    @property
    def diagonal(self) -> bool:
        """Whether numbers are independent."""
        return self.root.ndim == 1

    @property
    def sds(self) -> Float[np.ndarray, " d"]:
        """Of each number."""
        found: Float[np.ndarray, " d"] = np.sqrt(np.sum(self.root.reshape(len(self.mean), -1) ** 2, axis=1))
        return found

    @property
    def log_volume(self) -> float:
        """log |det R|."""
        return float(np.sum(np.log(np.abs(self.root)))) if self.diagonal else float(np.linalg.slogdet(self.root)[1])

    def points(self, z: Float[np.ndarray, "S d"]) -> Float[np.ndarray, "S d"]:
        """m + R z."""
        return self.mean + (z * self.root if self.diagonal else z @ self.root.T)

    def log_density(self, z: Float[np.ndarray, "S d"]) -> Float[np.ndarray, " S"]:
        """At these points."""
        found: Float[np.ndarray, " S"] = -0.5 * np.sum(z**2 + np.log(2.0 * np.pi), axis=1) - self.log_volume
        return found

    def within(self, widest: Float[np.ndarray, " d"]) -> Gaussian:
        """No wider than this many standard deviations along any direction, in units of them."""
        if np.all(np.isinf(widest)):
            return self
        if self.diagonal:
            return Gaussian(self.mean, np.clip(self.root, -widest, widest))
        units = np.minimum(widest, 1e3 * self.sds)  # what is far from its limit has a finite one
        left, lengths, right = np.linalg.svd(self.root / units[:, None], full_matrices=False)
        if np.all(lengths <= 1.0):
            return self
        return Gaussian(self.mean, units[:, None] * ((left * np.minimum(lengths, 1.0)) @ right))


@dataclass(frozen=True, eq=False)
class Way:
    """Where the next step goes, in units of q: `ahead` = R' E[g], and `precision` = R' E[-d^2 log p] R."""

    ahead: Float[np.ndarray, " d"]
    precision: Float[np.ndarray, " d *e"]

    @classmethod
    def of(cls, q: Gaussian, z: Float[np.ndarray, "S d"], slopes: Float[np.ndarray, "S d"]) -> Way:
        """From gradients at samples."""
        if q.diagonal:
            own = slopes * q.root
            return cls(own.mean(axis=0), -np.mean(z * own, axis=0))
        own = slopes @ q.root
        among = -(z.T @ own) / len(z)
        return cls(own.mean(axis=0), 0.5 * (among + among.T))

    @property
    def promised(self) -> float:
        """Nats that a step gains, about."""
        unit = np.eye(len(self.ahead)) if self.precision.ndim == 2 else 1.0
        return float(0.5 * np.sum(self.ahead**2) + 0.25 * np.sum((self.precision - unit) ** 2))

    def taken(self, q: Gaussian, share: float) -> Gaussian:
        """q after such a share of the step."""
        if q.diagonal:
            after = np.clip(1.0 + share * (self.precision - 1.0), 1.0 / WIDER, WIDER)
            return Gaussian(q.mean + q.root * share * self.ahead / after, q.root / np.sqrt(after))
        values, axes = np.linalg.eigh(self.precision)
        after = np.clip(1.0 + share * (values - 1.0), 1.0 / WIDER, WIDER)
        forward = axes @ (share * (axes.T @ self.ahead) / after)
        return Gaussian(q.mean + q.root @ forward, q.root @ ((axes / np.sqrt(after)) @ axes.T))


def normals(count: int, size: int, seed: int, *, plain: bool = False) -> Float[np.ndarray, "S d"]:
    """So many quasi-random samples of as many numbers; mirrored, with mean 0 and covariance 1, unless `plain`."""
    wanted = count if plain else (count + 1) // 2
    uniform = scipy.stats.qmc.Sobol(size, seed=seed).random_base2(max(int(wanted - 1).bit_length(), 0))[:wanted]
    tiny = np.finfo(float).eps
    drawn: Float[np.ndarray, "S d"] = ndtri(np.clip(uniform, tiny, 1.0 - tiny))
    if plain:
        return drawn
    if wanted >= TURNED * size:
        drawn = np.linalg.solve(np.linalg.cholesky(drawn.T @ drawn / wanted), drawn.T).T
    else:
        drawn = drawn / np.sqrt(np.mean(drawn**2, axis=0))
    return np.concatenate([drawn, -drawn])


def start(density: Density, mode: Float[np.ndarray, " d"], *, diagonal: bool) -> Gaussian:
    """The Gaussian of the curvature at a mode: differences of gradients, over half a standard deviation at last."""
    steps = np.full(len(mode), NEAR)
    for _ in range(2):
        curvature = _curvature(density, mode, steps)
        scales = 1.0 / np.sqrt(np.maximum(np.diag(curvature), WIDEST**-2))
        steps = STEP * scales
    if diagonal:
        return Gaussian(mode, scales)
    scaled = curvature * scales * scales[:, None]
    values, axes = np.linalg.eigh(scaled)
    return Gaussian(mode, scales[:, None] * axes / np.sqrt(np.maximum(values, FLATTEST)))


def _curvature(density: Density, mode: Float[np.ndarray, " d"], steps: Float[np.ndarray, " d"]) -> np.ndarray:
    """Minus the Hessian; 1 on the diagonal where it is no number."""
    _, slopes = density(np.concatenate([mode - np.diag(steps), mode + np.diag(steps)]))
    below, above = np.split(slopes, 2)
    found = (below - above) / (2.0 * steps[:, None])
    found = np.where(np.isfinite(found), found, np.eye(len(mode)))
    return 0.5 * (found + found.T)


def ascended(
    density: Density, q: Gaussian, z: Float[np.ndarray, "S d"], widest: Float[np.ndarray, " d"], most: int
) -> tuple[Gaussian, bool]:
    """q at the top of the bound over these samples, and whether it has come to rest.

    Natural gradients as long as whole steps go upwards, which is a few times; then L-BFGS, where log p is far from
    quadratic, or q from its place, for `most` iterations.
    """
    q, value, slopes = _begun(density, q, z)
    for _ in range(STEPS):
        way = Way.of(q, z, slopes)
        if way.promised < SETTLED:
            return q, True
        after = way.taken(q, 1.0).within(widest)
        found, told = _bound(density, after, z)
        if not found > value:
            break
        settled = found - value < SETTLED
        q, value, slopes = after, found, told
        if settled:
            return q, True
    return _searched(density, q, z, widest, most)


def _searched(
    density: Density, q: Gaussian, z: Float[np.ndarray, "S d"], widest: Float[np.ndarray, " d"], most: int
) -> tuple[Gaussian, bool]:
    """L-BFGS over the mean m + R a and the root R B of q, B triangular with a positive diagonal, from a = 0, B = 1."""
    size = len(q.mean)
    places = (np.arange(size),) * 2 if q.diagonal else np.tril_indices(size)
    on_diagonal = places[0] == places[1]

    def at(x: Float[np.ndarray, " n"]) -> tuple[Gaussian, np.ndarray]:
        numbers = np.where(on_diagonal, np.exp(np.clip(x[size:], -FAREST, FAREST)), x[size:])
        if q.diagonal:
            return Gaussian(q.mean + q.root * x[:size], q.root * numbers), numbers
        inner = np.zeros((size, size))
        inner[places] = numbers
        return Gaussian(q.mean + q.root @ x[:size], q.root @ inner), numbers

    def objective(x: Float[np.ndarray, " n"]) -> tuple[float, Float[np.ndarray, " n"]]:
        here, numbers = at(np.asarray(x, float))
        value, slopes = _bound(density, here, z)
        own = slopes * q.root if q.diagonal else slopes @ q.root
        of_root = np.mean(own * z, axis=0) if q.diagonal else ((own.T @ z) / len(z))[places]
        return value, np.concatenate([own.mean(axis=0), np.where(on_diagonal, of_root * numbers + 1.0, of_root)])

    begin = np.zeros(size + len(places[0]))
    found = maximise(objective, begin, steps=most, tolerance=ROUGHLY, report=lambda *_: None, size=1.0)
    return at(np.asarray(found.point, float))[0].within(widest), found.message == ENDINGS[0]


def _begun(density: Density, q: Gaussian, z: Float[np.ndarray, "S d"]) -> tuple[Gaussian, float, np.ndarray]:
    """q, narrower where the density is no number at some of the samples, with its bound and the gradients."""
    for _ in range(HALVINGS):
        value, slopes = _bound(density, q, z)
        if np.isfinite(value):
            break
        q = Gaussian(q.mean, 0.5 * q.root)
    return q, value, slopes


def _bound(density: Density, q: Gaussian, z: Float[np.ndarray, "S d"]) -> tuple[float, np.ndarray]:
    """E_q[log p] + log |det R|."""
    values, slopes = density(q.points(z))
    return float(np.mean(values)) + q.log_volume, slopes


def averaged(
    density: Density,
    q: Gaussian,
    widest: Float[np.ndarray, " d"],
    fresh: Callable[[int], Float[np.ndarray, "S d"]],
    sets: int,
) -> Gaussian:
    """q moved by so many fresh sets of samples, each of which counts as much as the one that it came from."""
    for number in range(sets):
        z = fresh(number + 1)
        _, slopes = density(q.points(z))
        if not np.all(np.isfinite(slopes)):
            continue
        q = Way.of(q, z, slopes).taken(q, 1.0 / (number + 2.0)).within(widest)
    return q
