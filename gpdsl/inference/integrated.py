"""Learnt parameters integrated over: many settings of them with weights, each with a posterior of the latents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, Shaped

from gpdsl.errors import plural
from gpdsl.inference import modes, proposals
from gpdsl.inference.ascent.lbfgs import flat, unflat
from gpdsl.inference.blocks import machine_for
from gpdsl.inference.images import Images
from gpdsl.inference.log_joint import LogJoint, at_places, log_prior, log_volume, vectorised
from gpdsl.inference.modes import ERROR, EVEN, UNEVEN, Drawn
from gpdsl.inference.plan.options import Options
from gpdsl.inference.problem import Monitor, Problem, Result, as_arrays
from gpdsl.inference.symmetries import Symmetry, symmetry_of
from gpdsl.program.program import Program

# The evidence as a function of the learnt parameters alone, as an engine computes it: what integration explores.

Learnt = Mapping[str, Array]
"""Learnt parameters on the real line."""


class Profile(Protocol):
    """The log evidence of the data, or its bound at the best q, at any values of the learnt parameters."""

    @property
    def joint(self) -> LogJoint | None:
        """The log joint density with whitened latents, where parameters do not determine q; None where they do."""

    def __call__(self, learnt: Learnt) -> tuple[float, Learnt]:
        """Value, log priors of parameters included, and gradient; a value that is not finite where there is none."""

    def value(self, learnt: Learnt) -> float:
        """The value alone, at a place whose posterior may be asked for later."""

    def at(self, learnt: Learnt) -> Result:
        """The posterior of the latents there."""


Profiled = Callable[[Problem, Result], Profile]
"""The profile of a problem around what a search has found."""


STATISTICS = "diverging", "lp", "energy", "acceptance_rate", "step_size", "n_steps", "tree_depth"
"""Of every draw of chains, as ArviZ calls them: `lp` is the log density on the real line, up to a constant."""

UNTRUSTED = 0.7
"""Pareto's k above which averages are not to be trusted (Vehtari et al. 2024)."""


@dataclass(frozen=True, eq=False)
class Integrated:
    """Settings of the learnt parameters with weights that add up to 1, and what each says of the latents.

    `shape` is Pareto's k of the weights: above 0.7 no average over them is to be trusted. `effective` is how many
    equally weighted settings would be worth as much. `evaluations` of the evidence were made.
    """

    weights: Float[np.ndarray, " settings"]
    results: tuple[Result, ...]
    shape: float
    effective: float
    evaluations: int
    flat: tuple[str, ...] = ()
    """Parameters without a prior that the data leave open on one side or both."""
    about: str = ""
    """How they were found, in a line."""
    modes: tuple[float, ...] = (1.0,)
    """Shares of the maxima of the density that were found: first of that at which the search has ended."""
    chains: Mapping[str, Float[np.ndarray, "chains draws *axes"]] = field(default_factory=dict)
    """All draws of the learnt parameters, on the real line, where chains were made."""
    statistics: Mapping[str, Shaped[np.ndarray, "chains draws"]] = field(default_factory=dict)
    """What the sampler says of each of these draws."""
    kept: Int[np.ndarray, " kept"] = field(default_factory=lambda: np.zeros(0, int))
    """Numbers of the draws of each chain that `results` are, chain by chain."""

    @property
    def doubts(self) -> tuple[str, ...]:
        """What is doubtful about the settings, in sentences for the user."""
        found = []
        if self.flat:
            names, verb = " and ".join(f"`{name}`" for name in self.flat), "are" if len(self.flat) > 1 else "is"
            found.append(f"{names} {verb} hardly determined by the data: a prior is needed, as averages depend on it")
        if self.modes[0] < 0.5:
            found.append(
                f"{self.modes[0]:.2f} of the probability is around the values of `parameters`, and "
                f"{1 - self.modes[0]:.2f} around other maxima: averages have all of them"
            )
        if self.shape > UNTRUSTED:
            found.append(
                f"the settings averaged over have uneven weights (Pareto k {self.shape:.2f}, trusted up to "
                f"{UNTRUSTED}), and standard deviations may be off: compare with engine = mcmc"
            )
        return tuple(found)


# Settings of the learnt parameters, with weights: quasi-random points under a split t density around the mode.
#
# The idea is that of INLA (Rue, Martino and Chopin 2009, section 3), for whatever evidence an engine has: the mode of
# p(theta | y) on the real line, axes from its curvature, the standard deviation on either side of each axis from how
# far the log density falls there, and weights that make up for what this density is not (importance sampling, smoothed
# after Vehtari et al. 2024). What a mode and its surroundings do not show (a long tail, a second mode where latents
# explain nothing) is looked for by points over the whole prior, and along it for each parameter, through where the
# evidence is highest when that is large. Where weights are uneven, or averages have long tails, more are drawn
# near those that matter for means and standard deviations; all count under the mixture of all densities.
#
# A parameter without a prior is flat on the real line on which it is learnt: 1/theta for a positive one.

WIDEST, WIDEST_REAL = 2.0, 1e6
"""Standard deviation on the real line beyond which a direction counts as flat: a factor of 50 either way, at two; that
of parameters that are on it themselves has no such meaning."""

ROUNDS = 6
"""Most times that points are drawn."""

NONE_KEPT = (
    "interrupted while parameters were integrated over: these are their most probable values, as the search left them"
)

LEAST = 1e-3
"""Share of the weight, and of a point's part in standard deviations, below which it is left out."""


SETTINGS = 1000
"""That are averaged over at most, with images."""

TOLD = 0.01
"""Share of a maximum above which it is told of."""


def widest_of(program: Program, learnt: Learnt, real: float) -> Float[np.ndarray, " d"]:
    """The standard deviation on the real line beyond which each number is open; `real` where it is that line's own."""
    declared = program.declarations.params
    own = {n for n in learnt if (p := declared[n]).constraint == "real" and p.lower is None and p.upper is None}
    return flat({n: np.full(np.shape(v), real if n in own else WIDEST) for n, v in learnt.items()})


WORTH, AFFORDABLE = 1.05, 10.0
"""Of `hyperparameters = auto`: times as wide as a latent has to become, and seconds that it may take, about."""


def evaluations_of(dimensions: int) -> int:
    """Of the evidence, that an exploration is expected to take."""
    return 22 * dimensions + 2 * proposals.points_of(dimensions)


def explain_auto(program: Program, profiled: Profiled | None) -> str:
    """What the plan says of `hyperparameters = auto`."""
    said = "at their most probable values, as nothing here has their evidence alone"
    if profiled is not None and program.parameters.initial:
        said = (
            f"averaged over where that makes standard deviations of a latent or output {WORTH:g} times as large or "
            f"more, by the curvature of the evidence, and takes {AFFORDABLE:g} s or less"
        )
    return f"\n\nlearnt parameters\n  {said}"


class Explored:
    """log p(theta | y) on the real line, up to a constant, as a function of a vector."""

    def __init__(self, program: Program, profile: Profile, start: Learnt, report: Callable[[int, int], None]) -> None:
        declared = program.declarations.params
        self.learnt = partial(unflat, as_arrays(dict(start), jnp.result_type(float)))
        self.widest = widest_of(program, start, WIDEST_REAL)
        steps = program.parameters.data.steps
        self.steps = flat({n: np.full(np.shape(v), steps.get(n, 1.0)) for n, v in start.items()})
        """How far to go at first: a radian of periods."""
        self.start, self.profile, self.report = flat(dict(start)), profile, report
        self.evaluations = 0
        self._told = partial(at_places, vectorised(program, start, _told, _with_slopes))
        self.known = flat({n: np.full(np.shape(v), n in program.priors) for n, v in start.items()}).astype(bool)
        """Which numbers belong to parameters with priors."""
        positive = {n for n in start if declared[n].constraint == "positive" and declared[n].upper is None}
        self.growing = flat({n: np.full(np.shape(v), n in positive) for n, v in start.items()}).astype(bool)
        """Which are logarithms."""
        self.images = Images.of_nothing(len(self.start))
        """Places of the same value."""

    def most_moved(self, direction: Float[np.ndarray, " d"]) -> str:
        """The parameter that moves most, as far as it may."""
        moved = self.learnt(direction / self.widest)
        return max(moved, key=lambda name: float(np.max(np.abs(moved[name]))))

    def prior(self, at: Float[np.ndarray, " d"]) -> tuple[float, Float[np.ndarray, " d"]]:
        """The log prior density on the real line, and its gradient."""
        found = self._told(at[None])[0]
        return float(found[0]), found[2 : 2 + len(at)]

    def measured(self, points: Float[np.ndarray, "n d"]) -> tuple[np.ndarray, Float[np.ndarray, " n"]]:
        """The parameters in their own units, all in a row in the order of their names; log |d theta / d u|."""
        found = self._told(points)
        return found[:, 2 + 2 * points.shape[1] :], found[:, 1]

    @property
    def most(self) -> int:
        """Evaluations that are to be expected."""
        return evaluations_of(len(self.start))

    def count(self, evaluations: int) -> None:
        """Report what was done, before so many more."""
        self.report(self.evaluations, max(self.most, self.evaluations))
        self.evaluations += evaluations

    def __call__(self, at: Float[np.ndarray, " d"]) -> tuple[float, Float[np.ndarray, " d"]]:
        """Value and gradient; -inf where the evidence has no finite value."""
        self.count(1)
        found, gradient = self.profile(self.learnt(at))
        told, size = self._told(at[None])[0], len(at)
        value, slope = float(found) + float(told[1]), flat(dict(gradient)) + told[2 + size : 2 + 2 * size]
        return (value if np.isfinite(value) else -np.inf), slope

    def value(self, at: Float[np.ndarray, " d"]) -> float:
        """The value alone."""
        return float(self.values(at[None])[0])

    def values(self, points: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """Values alone, one after the other."""
        return self.beside(points, self.measured(points)[1])

    def beside(self, points: Float[np.ndarray, "n d"], volumes: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """The same where log |d theta / d u| is known."""
        found = np.array(volumes)
        for place, each in enumerate(points):
            self.count(1)
            found[place] += self.profile.value(self.learnt(each))
        return np.where(np.isfinite(found), found, -np.inf)


def _told(program: Program, learnt: Learnt) -> Array:
    """The log prior density on the real line, log |d theta / d u|, and parameters in their own units."""
    known = program.parameters.constrain(dict(learnt))
    own = ravel_pytree({name: known[name] for name in learnt})[0]
    return jnp.concatenate([jnp.stack([log_prior(program, learnt), log_volume(program, learnt)]), own])


def _with_slopes(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """What is told at many places: two numbers, their gradients, and the rest."""

    def one(vector: Array) -> Array:
        found, pull = jax.vjp(function, vector)
        slopes = [pull(jnp.zeros_like(found).at[place].set(1.0))[0] for place in (0, 1)]
        return jnp.concatenate([found[:2], *slopes, found[2:]])

    return jax.vmap(one)


def integrated(
    program: Program, result: Result, options: Options, rows: int, monitor: Monitor, why: str = ""
) -> Result:
    """The result with the settings to average over, where something is learnt; Ctrl-C leaves it as it is.

    `why` they are averaged over, if nobody has asked for it, is said with how they were found.
    """

    def find(profile: Profile, learnt: Learnt) -> Result:
        ends = [flat(each) for each in result.ends]
        found = integrate(program, profile, learnt, options.seed, monitor.explored, ends)
        found = replace(found, about=f"as {why} so: {found.about}") if why else found
        return replace(result, integrated=found, notes=(*result.notes, *found.doubts))

    return explored(result, options, rows, find, NONE_KEPT)


def explored(
    result: Result, options: Options, rows: int, find: Callable[[Profile, Learnt], Result], interrupted: str
) -> Result:
    """What is found from the evidence and what is learnt; where nothing is, or on Ctrl-C, the result as it is."""
    if result.interrupted or result.profile is None or not result.parameters:
        return result
    try:
        with machine_for(rows):
            return find(result.profile(), as_arrays(result.parameters, options.dtype))
    except KeyboardInterrupt:
        return replace(result, interrupted=True, notes=(*result.notes, interrupted))


def integrate(
    program: Program,
    profile: Profile,
    start: Learnt,
    seed: int,
    report: Callable[[int, int], None],
    ends: Sequence[Float[np.ndarray, " d"]] = (),
) -> Integrated:
    """The settings around the mode next to `start`, and others, such as those next to `ends`.

    `report` is told how many evaluations were made, and will be.
    """
    density = Explored(program, profile, start, report)
    symmetry = symmetry_of(program, profile, start)
    density.images = symmetry.numbers
    mode, top = proposals.mode_of(density, density.start, density.steps)
    split, open_ended = modes.around(density, mode, top)
    known = density.known
    prior = proposals.over_prior(density, (mode, split.sds))
    # Where noise is small, latents of short length-scales may be in its place.
    low = proposals.tops_along(density, prior, known, mode, -1) if known.any() else ()
    others = modes.others(density, program, split, top, [*ends, *low])
    drawn = Drawn(density, split, _averaged(program, start, open_ended))
    count = proposals.points_of(len(mode))
    drawn.add(split, proposals.uniform_points(len(mode), count, seed, 0))
    for other in others:
        drawn.add(other, proposals.uniform_points(len(mode), count // 2, seed, 0))
    weights, shape, error = _more(drawn, split, prior, seed)
    shares = modes.shares((split, *others), density.images, drawn.points, weights)
    effective, parts = proposals.worth(weights), drawn.parts(weights)
    kept = (weights > LEAST * weights.max()) | (parts > LEAST * parts.max())
    chosen = weights[kept] / weights[kept].sum()
    results = [profile.at(density.learnt(each)) for each in drawn.points[kept]]
    about = (
        f"over {len(chosen)} settings of the parameters, worth {effective:.0f}, Pareto k {shape:.2f}, "
        f"standard deviations within {100 * error:.0f}%"
    )
    several = sorted((share for share in shares if share > TOLD), reverse=True)
    if len(several) > 1:
        about += f", {len(several)} maxima ({', '.join(f'{share:.2f}' for share in several)})"
    if len(symmetry) > 1:
        about += f", each with {plural(len(symmetry) - 1, 'image')} of equal density: {'; '.join(symmetry.told)}"
        chosen, results = _with_images(symmetry, profile, density, chosen, results)
    lacking = tuple(name for name in open_ended if name not in program.priors)
    return Integrated(chosen, tuple(results), shape, effective, density.evaluations, lacking, about, shares)


def _with_images(
    symmetry: Symmetry,
    profile: Profile,
    density: Explored,
    weights: Float[np.ndarray, " settings"],
    results: Sequence[Result],
) -> tuple[Float[np.ndarray, " images"], list[Result]]:
    """Settings with what changes of the parameters make of them: all, or some of each in turn where that is many."""
    count = min(len(symmetry), max(SETTINGS // len(weights), 1))
    found = []
    for place, result in enumerate(results):
        for which in (place * count + np.arange(count)) % len(symmetry):
            image = symmetry.of(result, int(which))
            known = which == 0 or profile.joint is not None
            found.append(image if known else profile.at(density.learnt(flat(image.parameters))))
    return np.repeat(weights / count, count), found


def _more(
    drawn: Drawn, split: proposals.Split, prior: proposals.Split, seed: int
) -> tuple[Float[np.ndarray, " points"], float, float]:
    """Points over the prior, and others until averages are good enough: weights, Pareto's k, and the error left."""
    density, mode, size, count = drawn.density, split.mode, len(split.mode), proposals.points_of(len(split.mode))
    covariance = split.covariance
    known, half = density.known, count // 2 if density.known.any() else count
    if known.any():
        tilted = prior.tilted(density.growing)
        tops = proposals.tops_along(density, tilted, known, mode)
        prior = proposals.as_wide_at(density, tops, prior)
        drawn.add(prior, proposals.uniform_points(size, count // 4, seed, ROUNDS))
        prior = prior.tilted(density.growing)
    for number in range(ROUNDS):
        weights, shape = drawn.weights()
        if number == 1 and known.any() and (alone := drawn.alone(count, weights)) is not None:
            return alone
        effective, error = proposals.worth(weights), proposals.error_of_spread(drawn.own, weights)
        first = number < 2 and bool(known.any())  # a tail that no point has reached is in no error
        enough = effective >= EVEN * count and not shape > UNEVEN and error <= ERROR and not first
        if enough or number == ROUNDS - 1:
            break
        weighted = proposals.Weighted(drawn.points, 0.5 * (weights + drawn.parts(weights)), covariance)
        if known.any():
            along = proposals.Sweeps.around(prior, known, weighted, half, tops)
            drawn.add(along, proposals.uniform_points(size, half, seed, 2 * ROUNDS + number))
        if number or not first:
            around = proposals.Kernels.around(weighted, half)
            drawn.add(around, proposals.uniform_points(size, half, seed, 1 + number))
    return weights, shape, error


def _averaged(program: Program, start: Learnt, open_ended: Sequence[str]) -> Bool[np.ndarray, " values"]:
    """Which numbers of parameters in their own units are of those that have an end."""
    shapes = jax.eval_shape(program.parameters.constrain, dict(start))
    each = {name: np.full(shapes[name].shape, name not in open_ended) for name in start}
    return np.concatenate([np.ravel(each[name]) for name in sorted(each)])
