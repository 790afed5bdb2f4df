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

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from gpdsl.inference.log_joint import Learnt, LogJoint
from gpdsl.inference.mcmc.chains import moved
from gpdsl.program.cache import jit
from gpdsl.program.program import Program

# What a joint density over whitened values does not change under: signs and exchanges of latents.
#
# In f * g both may change sign, and be exchanged if they have one kernel; in f^2 the sign is open. Each such change of
# w ~ N(0, I) is measure-preserving, and whether it is one of the density is told by identity testing: an identity of
# analytic functions that holds at random places holds everywhere.

EVERY = 7
"""Latents up to which all sets of them are tried to change sign together."""

MOST = 64
"""Images that are kept."""

AT_ONCE = 128
"""Changes that are tried together."""

SAME = 1e-9
"""Relative difference of log densities that are equal."""

PLACES = 2
"""Random places at which densities are compared, with parameters that are moved as well."""

MOVED = 0.1
"""On the real line."""

Change = tuple[tuple[int, ...], tuple[int, ...]]
"""The latent that each one's values come from, and their signs."""


@dataclass(frozen=True)
class Images:
    """Changes of w [images, D]: values come from `places` and have `signs`; the first changes nothing."""

    places: np.ndarray
    signs: Float[np.ndarray, "images D"]

    def __len__(self) -> int:
        return len(self.signs)

    def of(self, white: Float[Array, " D"]) -> Float[Array, "images D"]:
        """A place and all its images."""
        return white[self.places] * self.signs

    def at_random(self, white: Float[np.ndarray, "draws D"], rng: np.random.Generator) -> Float[np.ndarray, "draws D"]:
        """Of every place one of its images."""
        which = rng.integers(len(self), size=len(white))
        return np.take_along_axis(white, self.places[which], axis=1) * self.signs[which]


def images_of(joint: LogJoint, learnt: Learnt) -> Images:
    """All changes that leave the joint density of everything as it is, for parameters around these."""
    program, sizes = joint.problem.program, joint.sizes
    widths = [size for latents, size in sizes for _ in range(latents)]
    holds, candidates, found = _holding(joint, learnt, widths), list(_candidates(program, widths)), []
    for start in range(0, len(candidates), AT_ONCE):
        chunk = candidates[start : start + AT_ONCE]
        found += [change for change, same in zip(chunk, holds(chunk), strict=True) if same]
    every = _generated(len(widths), found)
    places, signs = zip(*(_on_values(change, widths) for change in every), strict=True)
    return Images(np.stack(places), np.stack(signs))


def _candidates(program: Program, widths: Sequence[int]) -> Iterator[Change]:
    """Signs of sets of latents, and exchanges of two."""
    count, own = len(widths), tuple(range(len(widths)))
    sets = [set(some) for size in (1, 2) for some in itertools.combinations(own, size)]
    if count <= EVERY:
        sets = [set(some) for size in range(1, count + 1) for some in itertools.combinations(own, size)]
    for some in (*sets, *_along_axes(program)):
        yield own, tuple(-1 if each in some else 1 for each in own)
    start = 0
    for group in program.groups:
        for a, b in itertools.combinations(range(start, start + group.size), 2):
            yield tuple({a: b, b: a}.get(each, each) for each in own), (1,) * count
        start += group.size


def _along_axes(program: Program) -> list[set[int]]:
    """All latents that have one position along a named axis: w[p, q] and g[q] of one q."""
    found: dict[tuple[str, int], set[int]] = {}
    start = 0
    for group in program.groups:
        for member in group.members:
            shape = program.translator.shape(member.latent.axes)
            for number, at in enumerate(np.ndindex(*shape)):
                for axis, place in zip(member.latent.axes, at, strict=True):
                    found.setdefault((str(axis.name), place), set()).add(start + number)
            start += member.count
    return [some for some in found.values() if len(some) > 2]


def _holding(joint: LogJoint, learnt: Learnt, widths: Sequence[int]) -> Callable[[Sequence[Change]], list[bool]]:
    """Whether each of some changes leaves the log likelihood as it is at random places."""
    keys = jax.random.split(jax.random.key(0), PLACES)
    leaves, tree = jax.tree.flatten(dict(learnt))
    compute = jit(
        lambda learnt, places, data: jax.vmap(lambda white: joint.log_likelihood(learnt, white, data))(places)
    )

    def holds(changes: Sequence[Change]) -> list[bool]:
        places, signs = zip(*(_on_values(change, widths) for change in changes), strict=True)
        same = np.ones(len(changes), bool)
        for key in keys:
            own, *rest = jax.random.split(key, 1 + len(leaves))
            white = np.asarray(jax.random.normal(own, (joint.dimension,)))
            moved = [v + MOVED * jax.random.normal(k, v.shape, v.dtype) for v, k in zip(leaves, rest, strict=True)]
            tried = np.concatenate([white[None], white[np.stack(places)] * np.stack(signs)])
            here, *there = np.asarray(compute(jax.tree.unflatten(tree, moved), jnp.asarray(tried), joint.data))
            same &= np.abs(np.asarray(there) - here) <= SAME * (1.0 + abs(here))
        return list(same)

    return holds


def _generated(count: int, found: Sequence[Change]) -> list[Change]:
    """All that changes give one after the other, as far as there is room."""
    nothing = tuple(range(count)), (1,) * count
    every: dict[Change, None] = {nothing: None}
    own: list[Change] = []
    for change in found:
        if change in every:
            continue
        closed = _closed([*own, change], nothing)
        if len(closed) <= MOST:
            every, own = closed, [*own, change]
    return list(every)


def _closed(own: Sequence[Change], nothing: Change) -> dict[Change, None]:
    """The group that some changes generate; more than `MOST` of them where there are more."""
    every, new = {nothing: None}, [nothing]
    while new and len(every) <= MOST:
        more = {_after(each, change): None for each in new for change in own}
        new = [each for each in more if each not in every]
        every |= more
    return every


def _after(first: Change, second: Change) -> Change:
    places = tuple(second[0][each] for each in first[0])
    return places, tuple(sign * second[1][each] for each, sign in zip(*first, strict=True))


def _on_values(change: Change, widths: Sequence[int]) -> tuple[np.ndarray, Float[np.ndarray, " D"]]:
    """The change of latents as one of their whitened values."""
    ends = np.cumsum([0, *widths])
    places = [np.arange(ends[each], ends[each + 1]) for each in change[0]]
    return np.concatenate(places), np.repeat(np.asarray(change[1], float), widths)


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
