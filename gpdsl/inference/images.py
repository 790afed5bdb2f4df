"""What a joint density over whitened values does not change under: signs and exchanges of latents.

In f * g both may change sign, and be exchanged if they have one kernel; in f^2 the sign is open. Each such change of
w ~ N(0, I) is measure-preserving, and whether it is one of the density is told by identity testing: an identity of
analytic functions that holds at random places holds everywhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from gpdsl.inference.log_joint import Learnt, LogJoint
from gpdsl.program.cache import jit
from gpdsl.program.program import Program

EVERY = 7
"""Latents up to which all sets of them are tried to change sign together."""

MOST = 64
"""Images that are kept."""

TOGETHER = 128
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

    @classmethod
    def of_nothing(cls, size: int) -> Images:
        """Of places that have no other."""
        return cls(np.arange(size)[None], np.ones((1, size)))

    def __len__(self) -> int:
        return len(self.signs)

    def of(self, white: Any) -> Any:
        """Places [..., D], of NumPy or JAX, and all their images [..., images, D]."""
        return white[..., self.places] * self.signs

    def at_random(self, white: Float[np.ndarray, "draws D"], rng: np.random.Generator) -> Float[np.ndarray, "draws D"]:
        """Of every place one of its images."""
        which = rng.integers(len(self), size=len(white))
        return np.take_along_axis(white, self.places[which], axis=1) * self.signs[which]


def images_of(joint: LogJoint, learnt: Learnt) -> Images:
    """All changes that leave the joint density of everything as it is, for parameters around these."""
    widths = _widths(joint)
    return images(generated(len(widths), changes_of_latents(joint, learnt)), widths)


def changes_of_latents(joint: LogJoint, learnt: Learnt) -> list[Change]:
    """Those of latents alone that do, among others."""
    program, widths = joint.problem.program, _widths(joint)
    holds, candidates, found = _holding(joint, learnt, widths), list(_candidates(program, widths)), []
    for start in range(0, len(candidates), TOGETHER):
        chunk = candidates[start : start + TOGETHER]
        found += [change for change, same in zip(chunk, holds(chunk), strict=True) if same]
    return found


def _widths(joint: LogJoint) -> list[int]:
    return [size for latents, size in joint.sizes for _ in range(latents)]


def images(changes: Sequence[Change], widths: Sequence[int]) -> Images:
    """Changes of latents, or of numbers, with so many values each."""
    places, signs = zip(*(_on_values(change, widths) for change in changes), strict=True)
    return Images(np.stack(places), np.stack(signs))


def _candidates(program: Program, widths: Sequence[int]) -> Iterator[Change]:
    """Signs of sets of latents, and exchanges of two."""
    count, own = len(widths), tuple(range(len(widths)))
    sets = [set(some) for size in (1, 2) for some in itertools.combinations(own, size)]
    if count <= EVERY:
        sets = [set(some) for size in range(1, count + 1) for some in itertools.combinations(own, size)]
    # All latents that have one position along a named axis: w[p, q] and g[q] of one q.
    found: dict[tuple[str, int], set[int]] = {}
    start = 0
    for group in program.groups:
        for member in group.members:
            shape = program.translator.shape(member.latent.axes)
            for number, at in enumerate(np.ndindex(*shape)):
                for axis, place in zip(member.latent.axes, at, strict=True):
                    found.setdefault((str(axis.name), place), set()).add(start + number)
            start += member.count
    for some in (*sets, *[some for some in found.values() if len(some) > 2]):
        yield own, tuple(-1 if each in some else 1 for each in own)
    start = 0
    for group in program.groups:
        for a, b in itertools.combinations(range(start, start + group.size), 2):
            yield tuple({a: b, b: a}.get(each, each) for each in own), (1,) * count
        start += group.size


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


def generated(count: int, found: Sequence[Change]) -> list[Change]:
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
