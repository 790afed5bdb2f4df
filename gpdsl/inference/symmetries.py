"""Exchanges and open signs of learnt parameters, with those of latents: what the evidence does not change under.

Variances and length-scales of two kernels that are added may be exchanged, and b in b * f may change its sign, f with
it. Such a change P of the numbers z leaves a density as it is, and takes its gradient along: g(P z) = P g(z). So where
all numbers that are alike are equal, those that may be exchanged have equal derivatives, which hardly any others have;
one of two moved up, and the other one down, or the reverse, tells what has to change with them, and what is found is
looked at where all numbers are random: an identity of analytic functions that holds there holds everywhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import jax
import numpy as np
from jaxtyping import Array, Float

from gpdsl.inference.ascent.lbfgs import flat, unflat
from gpdsl.inference.images import Change, Images, changes_of_latents, generated, images
from gpdsl.inference.log_joint import Learnt, LogJoint, log_prior
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.problem import Problem, Result
from gpdsl.program.parameters import Parameters
from gpdsl.program.program import Program

if TYPE_CHECKING:
    from gpdsl.inference.integrated import Profile

MANY = 40
"""Learnt numbers beyond which nothing is looked for."""

TRIED = 24
"""Pairs of numbers that are moved apart, at most."""

MOVED = 0.3
"""On the real line, and in standard deviations of whitened values."""

EQUAL, NOTHING = 1e-6, 1e-9
"""Relative difference of derivatives that are equal, and a share of the largest that is nothing."""

SAME = 1e-8
"""Relative difference of values that are equal: with single precision none are."""

Vector = Float[np.ndarray, " numbers"]
Slopes = Sequence[np.ndarray]
"""A gradient, by atoms."""


class Density(Protocol):
    """A log density of numbers, up to a constant, and its gradient."""

    def __call__(self, at: Vector) -> tuple[float, Vector]:
        """Both at a place."""

    def value(self, at: Vector) -> float:
        """The first alone."""


@dataclass(frozen=True)
class Atoms:
    """What changes as one: learnt `numbers`, and then latents, each with all its values.

    Those of one of the `kinds` may be exchanged; those that are `open` have a zero between their signs, and `centred`
    ones are a range about it.
    """

    widths: tuple[int, ...]
    kinds: tuple[Hashable, ...]
    open: tuple[bool, ...]
    centred: tuple[bool, ...]
    numbers: int

    @classmethod
    def of(cls, program: Program, learnt: Learnt, sizes: Sequence[tuple[int, int]] = ()) -> Atoms:
        """Those of the learnt parameters, and of groups of so many latents, of so many values each."""
        kinds: list[Hashable] = []
        ranges: list[bool] = []
        for name in sorted(learnt):
            param, bijector = program.declarations.params[name], program.parameters.bijectors[name]
            shape, bounds = np.shape(learnt[name]), (param.lower, param.upper)
            ranged = None not in bounds or param.constraint == "unit"
            ranged |= param.constraint == "simplex" and shape[-1:] == (1,)
            units = np.broadcast_to(1.0 if bijector.units is None else bijector.units, shape)
            for at in np.ndindex(*shape):
                alone = (name, at) if bijector.vector and not ranged else None
                kinds.append((param.constraint, *bounds, float(units[at]), alone))
                ranges.append(ranged)
        real = [kind[:3] == ("real", None, None) for kind in kinds]  # type: ignore[index]
        latents = [(number, width) for number, (count, width) in enumerate(sizes) for _ in range(count)]
        none = [False] * len(latents)
        return cls(
            widths=(*[1] * len(kinds), *(width for _, width in latents)),
            kinds=(*kinds, *latents),
            open=(*np.logical_or(real, ranges), *np.logical_not(none)),
            centred=(*ranges, *none),
            numbers=len(kinds),
        )

    @property
    def may_change(self) -> bool:
        """Whether any learnt number has another one of its kind, or an open sign."""
        kinds = self.kinds[: self.numbers]
        return self.numbers <= MANY and (len(set(kinds)) < len(kinds) or any(self.open[: self.numbers]))

    def apart(self, values: Vector) -> list[np.ndarray]:
        """The values of each."""
        return np.split(values, np.cumsum(self.widths)[:-1])


def changes_of(density: Density, atoms: Atoms, start: Vector) -> list[Change]:
    """Changes that generate all those found, from a density's gradients."""
    return _Search(density, atoms, start).run()


class _Search:
    """For changes around a start, of which `found` hold."""

    def __init__(self, density: Density, atoms: Atoms, start: Vector) -> None:
        self.density, self.atoms, self.start, self.found = density, atoms, start, list[Change]()
        rng = np.random.default_rng(0)
        self.away = [MOVED * (1.0 + rng.random(width)) for width in atoms.widths]
        self.drawn = rng.standard_normal(len(start))
        learnt, places = np.arange(len(start)) < atoms.numbers, rng.standard_normal((2, len(start)))
        self.places, self.values = np.where(learnt, start + MOVED * places, places), list[float]()

    def run(self) -> list[Change]:
        """Exchanges, and then signs."""
        kinds = self.atoms.kinds
        alike = [(a, b) for a, b in itertools.combinations(range(len(kinds)), 2) if kinds[a] == kinds[b]]
        if any(a < self.atoms.numbers for a, _ in alike):
            self._exchanges(alike)
        if any(self.atoms.open[: self.atoms.numbers]):
            self._signs()
        return self.found

    def _slopes(self, at: Slopes) -> list[np.ndarray]:
        return self.atoms.apart(self.density(np.concatenate(at))[1])

    def _exchanges(self, alike: Sequence[tuple[int, int]]) -> None:
        """Of numbers, and latents, of one kind."""
        even = self._even()
        slopes = self._slopes(even)
        scale = _scale(slopes)
        read = [bool(np.max(np.abs(each)) > NOTHING * scale) for each in slopes]
        equal = [(a, b) for a, b in alike if read[a] and _equal(slopes[a], slopes[b], scale)]
        for a, b in equal[:TRIED]:
            if b not in self._reached(a):
                here, there = (self._slopes(self._moved(even, {a: side, b: -side})) for side in (1.0, -1.0))
                self._holds(_matched(here, there, self.atoms, {a: b, b: a}, equal))

    def _signs(self) -> None:
        """Of numbers about zero, with those of other numbers, and of latents."""
        atoms, start = self.atoms, self.atoms.apart(self.start)
        middle = [np.zeros_like(each) if signed else each for each, signed in zip(start, atoms.open, strict=True)]
        slopes = self._slopes(middle)
        scale = _scale(slopes)
        for place in np.flatnonzero(atoms.open[: atoms.numbers]).tolist():
            known = any(signs[place] < 0 for _, signs in self.found)
            if known or not np.all(np.abs(slopes[place]) <= NOTHING * scale):
                continue
            here, there = (self._slopes(self._moved(middle, {place: side})) for side in (1.0, -1.0))
            if (change := _matched(here, there, atoms, {place: place}, ())) is None:
                continue
            beside = [(change[0], _flipped(change[1], each)) for each in range(atoms.numbers, len(atoms.widths))]
            any(self._holds(each) for each in (change, *beside))

    def _even(self) -> list[np.ndarray]:
        """All of a kind at one place, and ranges at their middle."""
        atoms, start, drawn = self.atoms, self.atoms.apart(self.start), self.atoms.apart(self.drawn)
        found = []
        for place, kind in enumerate(atoms.kinds):
            same = [other for other, its in enumerate(atoms.kinds) if its == kind]
            mean = np.mean([start[other] for other in same], axis=0)
            found.append(drawn[same[0]] if place >= atoms.numbers else mean * (not atoms.centred[place]))
        return found

    def _moved(self, at: Slopes, sides: Mapping[int, float]) -> list[np.ndarray]:
        """Some atoms, by the same to one side or the other."""
        away = self.away[min(sides)]
        return [each + sides[place] * away if place in sides else each for place, each in enumerate(at)]

    def _reached(self, place: int) -> set[int]:
        """Where the changes that are found take an atom."""
        reached, new = {place}, {place}
        while new:
            new = {places[each] for each in new for places, _ in self.found} - reached
            reached |= new
        return reached

    def _holds(self, change: Change | None) -> bool:
        """Whether values at random places stay as they are: a change that is new is kept then."""
        if change is None or change in self.found:
            return False
        self.values = self.values or [self.density.value(each) for each in self.places]
        turned = images([change], self.atoms.widths).of(self.places)[:, 0]
        same = all(
            abs(self.density.value(each) - value) <= SAME * (1.0 + abs(value))
            for each, value in zip(turned, self.values, strict=True)
        )
        self.found += [change] * same
        return same


def _scale(slopes: Slopes) -> float:
    return float(max(np.max(np.abs(each)) for each in slopes))


def _equal(a: np.ndarray, b: np.ndarray, scale: float) -> bool:
    return bool(np.all(np.abs(a - b) <= EQUAL * (np.abs(a) + np.abs(b)) + NOTHING * scale))


def _flipped(signs: Sequence[int], place: int) -> tuple[int, ...]:
    return tuple(-sign if other == place else sign for other, sign in enumerate(signs))


def _matched(
    here: Slopes, there: Slopes, atoms: Atoms, known: Mapping[int, int], equal: Sequence[tuple[int, int]]
) -> Change | None:
    """The change that takes the gradient at one place to that at another; an atom `known` to stay changes its sign."""
    scale, count = max(_scale(here), _scale(there)), len(here)
    places, signs = [known.get(each, each) for each in range(count)], [1] * count
    for each in range(count):
        others = [b if a == each else a for a, b in equal if each in (a, b)]
        free = [other for other in others if other not in known and places[other] == other]
        if each in known:
            signs[each] = -1 if known[each] == each else 1
        elif places[each] != each or _equal(here[each], there[each], scale):
            continue
        elif atoms.open[each] and _equal(here[each], -there[each], scale):
            signs[each] = -1
        elif fits := [
            other
            for other in free
            if _equal(here[each], there[other], scale) and _equal(here[other], there[each], scale)
        ]:
            places[each], places[fits[0]] = fits[0], each
        else:
            return None
    return tuple(places), tuple(signs)


class OfProfile:
    """The evidence of learnt numbers in a row: Jacobians are as symmetric as priors."""

    def __init__(self, profile: Profile, learnt: Learnt) -> None:
        self.profile, self._learnt = profile, partial(unflat, dict(learnt))

    def __call__(self, at: Vector) -> tuple[float, Vector]:
        """At a place, with its gradient."""
        value, slope = self.profile(self._learnt(at))
        return value, flat(dict(slope))

    def value(self, at: Vector) -> float:
        """Alone."""
        return self.profile.value(self._learnt(at))


class OfJoint:
    """The log joint density of learnt numbers and whitened latents, in a row."""

    def __init__(self, joint: LogJoint, learnt: Learnt) -> None:
        self._like = dict(learnt), joint.start()
        self._data = joint.data
        self._sloped = joint.problem.shared(_sloped, *self._like, self._data, brief=True)

    def __call__(self, at: Vector) -> tuple[float, Vector]:
        """At a place, with its gradient."""
        value, slopes = self._sloped(*unflat(self._like, at), self._data)
        return float(value), flat(slopes)

    def value(self, at: Vector) -> float:
        """Alone."""
        return self(at)[0]


def _sloped(problem: Problem, _: Any, *at: Any) -> tuple[Array, Any]:
    joint = LogJoint(problem)

    def of(learnt: Learnt, white: Array, data: Any) -> Array:
        return joint.log_likelihood(learnt, white, data) + log_prior(problem.program, learnt)

    return jax.value_and_grad(of, argnums=(0, 1))(*at)


# All that the changes of a density make of one setting of the learnt parameters.


@dataclass(frozen=True)
class Symmetry:
    """Changes of learnt numbers, and of latents with them; the first changes nothing. `told`: in words."""

    atoms: Atoms
    changes: tuple[Change, ...]
    told: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.changes)

    @property
    def numbers(self) -> Images:
        """What they make of learnt numbers."""
        count = self.atoms.numbers
        return images([(places[:count], signs[:count]) for places, signs in self.changes], [1] * count)

    def of(self, result: Result, which: int) -> Result:
        """A result with a posterior of whitened latents, changed."""
        places, signs = (np.asarray(each) for each in self.changes[which])
        first, posterior = self.atoms.numbers, []
        for q in result.posterior:
            own = slice(first, first + q.mean.shape[1])
            order, sides = places[own] - first, signs[own, None]
            root = np.asarray(q.root)[:, order]
            if root.shape[-1] > root.shape[-2]:  # of all latents together: roots of others know no signs
                root = root * sides[..., None]
            posterior.append(Whitened(np.asarray(q.mean)[:, order] * sides, root))
            first = own.stop
        moved = self.numbers.of(flat(result.parameters))[which]
        return replace(result, parameters=unflat(result.parameters, moved), posterior=posterior)


def symmetry_of(program: Program, profile: Profile, learnt: Learnt) -> Symmetry:
    """What an evidence of learnt parameters, and q of latents where they do not determine it, does not change under.

    Of several changes that are one to the learnt parameters one is kept.
    """
    joint, start = profile.joint, flat(dict(learnt))
    atoms = Atoms.of(program, learnt, [] if joint is None else joint.sizes)
    if not atoms.may_change:
        found = []
    elif joint is None:
        found = changes_of(OfProfile(profile, learnt), atoms, start)
    else:
        found = changes_of(OfJoint(joint, learnt), atoms, np.concatenate([start, np.zeros(joint.dimension)]))
    own, every = slice(atoms.numbers), dict[Change, Change]()
    for places, signs in generated(len(atoms.widths), found):
        every.setdefault((places[own], signs[own]), (places, signs))
    names = (*element_names(program.parameters, learnt), *program.latent_names) if found else ()
    return Symmetry(atoms, tuple(every.values()), tuple(_told(each, atoms, names) for each in found))


def images_of_all(joint: LogJoint, learnt: Learnt) -> Images:
    """All changes of learnt numbers and whitened latents that are found, in a row, those of latents alone included."""
    atoms = Atoms.of(joint.problem.program, learnt, joint.sizes)
    count, found = atoms.numbers, list[Change]()
    for places, signs in changes_of_latents(joint, learnt):
        found.append(((*range(count), *(count + place for place in places)), (*[1] * count, *signs)))
    if atoms.may_change:
        start = np.concatenate([flat(dict(learnt)), np.zeros(joint.dimension)])
        found += changes_of(OfJoint(joint, learnt), atoms, start)
    return images(generated(len(atoms.widths), found), atoms.widths)


def element_names(parameters: Parameters, learnt: Learnt) -> tuple[str, ...]:
    """Of all numbers in the order of `flat`; those of a simplex and the like have the name of the whole."""
    found: list[str] = []
    for name in sorted(learnt):
        own = np.shape(learnt[name]) == np.shape(parameters.initial[name])
        places = np.ndindex(*np.shape(learnt[name]))
        found += [f"{name}[{','.join(str(i + 1) for i in at)}]" if own and at else name for at in places]
    return tuple(found)


def _told(change: Change, atoms: Atoms, names: Sequence[str]) -> str:
    """A change in words."""
    pairs = [f"`{names[a]}` with `{names[b]}`" for a, b in enumerate(change[0]) if a < b]
    turned = [a for a, sign in enumerate(change[1]) if sign < 0]
    signed, ranges = ([f"`{names[a]}`" for a in turned if atoms.centred[a] == each] for each in (False, True))
    said = [f"exchanging {' and '.join(pairs)}"] if pairs else []
    said += [f"changing the sign{'s' * (len(signed) > 1)} of {' and '.join(signed)}"] if signed else []
    said += [f"turning {' and '.join(ranges)} to the other side of the middle"] if ranges else []
    return ", ".join(said)
