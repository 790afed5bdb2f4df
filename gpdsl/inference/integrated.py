"""Learnt parameters integrated over: many settings of them with weights, each with a posterior of the latents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, Shaped
from scipy import stats

from gpdsl.inference.ascent.lbfgs import flat, maximise
from gpdsl.inference.machine import machine_for
from gpdsl.inference.monitor import Monitor
from gpdsl.inference.plan.options import Options
from gpdsl.inference.problem import Problem, Result, as_arrays
from gpdsl.program.program import Program

# Importance weights whose largest are replaced by quantiles of a generalised Pareto distribution fitted to them.
#
# Vehtari, Simpson, Gelman, Yao and Gabry (2024), "Pareto smoothed importance sampling"; the fit is that of Zhang and
# Stephens (2009), with the paper's weak prior on the shape.

FEW = 25
"""Weights below which no tail can be fitted: they stay as they are."""


def smoothed(log_ratios: Float[np.ndarray, " draws"]) -> tuple[Float[np.ndarray, " draws"], float]:
    """Log weights that add up to 1, and Pareto's k: NaN of few weights; above 0.7 averages are not to be trusted."""
    found = np.asarray(log_ratios, float)
    found = np.where(np.isfinite(found), found, -np.inf) - np.max(found)
    count = len(found)
    tail = int(np.ceil(min(0.2 * count, 3 * np.sqrt(count))))
    shape = float("nan")
    if count >= FEW and tail >= 5:
        order = np.argsort(found)
        largest, threshold = order[-tail:], found[order[-tail - 1]]
        excess = np.exp(found[largest]) - np.exp(threshold)
        if np.isfinite(threshold) and excess[0] < excess[-1]:
            shape, scale = generalised_pareto(np.maximum(excess, np.finfo(float).tiny))
            places = (np.arange(tail) + 0.5) / tail
            quantiles = scale * (np.expm1(-shape * np.log1p(-places)) / shape if shape else -np.log1p(-places))
            found[largest] = np.minimum(np.log(np.exp(threshold) + quantiles), 0.0)
    return found - np.logaddexp.reduce(found), shape


def generalised_pareto(excess: Float[np.ndarray, " tail"]) -> tuple[float, float]:
    """Shape and scale of excesses in increasing order."""
    count = len(excess)
    candidates = 30 + int(np.sqrt(count))
    quarter = excess[int(count / 4 + 0.5) - 1]
    b = 1 / excess[-1] + (1 - np.sqrt(candidates / (np.arange(candidates) + 0.5))) / (3 * quarter)
    shapes = np.mean(np.log1p(-b[:, None] * excess), axis=1)
    likelihood = count * (np.log(-b / shapes) - shapes - 1)
    weights = np.exp(likelihood - np.logaddexp.reduce(likelihood))
    best = weights @ b
    shape = float(np.mean(np.log1p(-best * excess)))
    scale = -shape / best
    return float((count * shape + 10 * 0.5) / (count + 10)), float(scale)


# The evidence as a function of the learnt parameters alone, as an engine computes it: what integration explores.

Learnt = Mapping[str, Array]
"""Learnt parameters on the real line."""


class Profile(Protocol):
    """The log evidence of the data, or its bound at the best q, at any values of the learnt parameters."""

    def __call__(self, learnt: Learnt) -> tuple[float, Learnt]:
        """Value, log priors of parameters included, and gradient; a value that is not finite where there is none."""

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
# after Vehtari et al. 2024). Where the weights are uneven, the density is fitted to the points so far and more are
# drawn; all points count under the mixture of the densities that they came from.
#
# A parameter without a prior is flat on the real line on which it is learnt: 1/theta for a positive one.

STEP = 0.7
"""Standard deviations between differences of gradients that give the curvature."""

WIDEST, WIDEST_REAL = 2.0, 1e6
"""Standard deviation on the real line beyond which a direction counts as flat: a factor of 50 either way, at two; that
of parameters that are on it themselves has no such meaning."""

LEAST_CURVED = 1e-3
"""Of a ridge, in units in which each parameter alone is curved by one."""

FALL, TRIES = (0.3, 2.5), 24
"""Nats of the fall that tells a width, and the most doublings and halvings to get there."""

ASIDE = np.sqrt(2.0)
"""Standard deviations from the mode at which the density is looked at first: a normal one falls by one nat."""

TAILS = 6.0
"""Degrees of freedom of the density that points are drawn from."""

SETTLED = 1e-4
"""Nats of the density that a step towards its mode has to gain."""

WIDER = 1.2
"""Times as wide as that points are drawn, so that they reach the tails: 128 points for three parameters of a regression
then give standard deviations within one in a hundred, and means within 0.02 of these."""

ROUNDS = 5
"""Most times that points are drawn."""

ERROR = 0.1
"""Share of the standard deviation of a parameter, in its own units, that may be its Monte-Carlo error: what a long tail
takes more points for, such as that of the spread of eight groups."""

EVEN = 0.4
"""Effective share of points that is enough."""

NONE_KEPT = (
    "interrupted while parameters were integrated over: these are their most probable values, as the search left them"
)

UNEVEN = 0.5
"""Pareto's k above which more points are drawn: standard deviations of averages are large."""

LEAST = 1e-3
"""Share of the weight below which a point is left out."""


@dataclass(frozen=True, eq=False)
class Split:
    """A density with its own width on either side of each axis through `mode`: `axes` are columns."""

    mode: Float[np.ndarray, " d"]
    axes: Float[np.ndarray, "d d"]
    below: Float[np.ndarray, " d"]
    above: Float[np.ndarray, " d"]

    def points(self, uniform: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """Points from uniform numbers."""
        share = self.below / (self.below + self.above)
        low = uniform < share
        inside = np.where(low, 0.5 * uniform / share, 0.5 + 0.5 * (uniform - share) / (1.0 - share))
        along = stats.t.ppf(inside, TAILS) * np.where(low, self.below, self.above)
        return self.mode + along @ self.axes.T

    def log_density(self, points: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """At points, normalised."""
        along = np.linalg.solve(self.axes, (points - self.mode).T).T
        scaled = along / np.where(along < 0, self.below, self.above)
        each = stats.t.logpdf(scaled, TAILS) + np.log(2.0 / (self.below + self.above))
        return each.sum(axis=1) - np.linalg.slogdet(self.axes)[1]


class Explored:
    """log p(theta | y) on the real line, up to a constant, as a function of a vector."""

    def __init__(self, program: Program, profile: Profile, start: Learnt, report: Callable[[int, int], None]) -> None:
        declared = program.declarations.params
        self.learnt = ravel_pytree(as_arrays(dict(start), np.float64))[1]
        real = {n for n in start if (p := declared[n]).constraint == "real" and p.lower is None and p.upper is None}
        self.widest = flat({n: np.full(np.shape(v), WIDEST_REAL if n in real else WIDEST) for n, v in start.items()})
        self.start, self.profile, self.report = flat(dict(start)), profile, report
        self.evaluations = 0
        volume = jax.jit(jax.value_and_grad(lambda vector: log_volume(program, self.learnt(vector))))
        self._volume = volume if program.priors else None

    def most_moved(self, direction: Float[np.ndarray, " d"]) -> str:
        """The parameter that moves most, as far as it may."""
        moved = self.learnt(jnp.asarray(direction / self.widest))
        return max(moved, key=lambda name: float(np.max(np.abs(moved[name]))))

    @property
    def most(self) -> int:
        """Evaluations that are to be expected."""
        return 12 * len(self.start) + 2 * points_of(len(self.start))

    def __call__(self, at: Float[np.ndarray, " d"]) -> tuple[float, Float[np.ndarray, " d"]]:
        """Value and gradient; -inf where the evidence has no finite value."""
        self.report(self.evaluations, max(self.most, self.evaluations))
        self.evaluations += 1
        vector = jnp.asarray(at)
        found, gradient = self.profile(self.learnt(vector))
        value, slope = float(found), flat(dict(gradient))
        if self._volume is not None:
            more, widening = self._volume(vector)
            value, slope = value + float(more), slope + np.asarray(widening, float)
        return (value if np.isfinite(value) else -np.inf), slope


def log_volume(program: Program, learnt: Learnt) -> Array:
    """log |d theta / d u| of the parameters that have priors: densities of theta become those of u."""
    total = jnp.zeros(())
    for name in sorted(name for name in learnt if name in program.priors):
        slopes = jax.jacfwd(partial(_measured, program, name))(learnt[name])
        matrix = slopes.reshape(slopes.shape[0], -1)
        total += 0.5 * jnp.linalg.slogdet(matrix.T @ matrix)[1]
    return total


def _measured(program: Program, name: str, numbers: Array) -> Array:
    """What the prior of a parameter is a density of: its elements, or those of the correlation matrix of a factor."""
    values = program.parameters.bijectors[name].forward(numbers)
    if program.declarations.params[name].constraint != "correlation_factor":
        return jnp.ravel(values)
    rows, columns = np.tril_indices(values.shape[-1], -1)
    return jnp.ravel((values @ jnp.swapaxes(values, -1, -2))[..., rows, columns])


def integrated(program: Program, result: Result, options: Options, rows: int, monitor: Monitor) -> Result:
    """The result with the settings to average over, where something is learnt; Ctrl-C leaves it as it is."""
    if result.interrupted or result.profile is None or not result.parameters:
        return result
    try:
        with machine_for(rows):
            learnt = as_arrays(result.parameters, options.dtype)
            found = integrate(program, result.profile(), learnt, options.seed, monitor.explored)
    except KeyboardInterrupt:
        return replace(result, interrupted=True, notes=(*result.notes, NONE_KEPT))
    return replace(result, integrated=found, notes=(*result.notes, *found.doubts))


def integrate(
    program: Program, profile: Profile, start: Learnt, seed: int, report: Callable[[int, int], None]
) -> Integrated:
    """The settings around the mode next to `start`; `report` is told how many evaluations were made, and will be."""
    density = Explored(program, profile, start, report)
    mode, top = _mode(density)
    split, open_ended = _split(density, mode, top)
    size, count = len(mode), points_of(len(mode))
    points, values, densities, own = np.zeros((0, size)), np.zeros(0), [split], []

    @jax.jit
    @jax.vmap
    def measured(point: Array) -> Array:
        known = program.parameters.constrain(density.learnt(point))
        return ravel_pytree({name: known[name] for name in start if name not in open_ended})[0]

    for number in range(ROUNDS):
        drawn = densities[-1].points(_uniform(size, count, seed, number))
        points = np.concatenate([points, drawn])
        values = np.concatenate([values, [density(each)[0] for each in drawn]])
        own.append(np.asarray(measured(drawn)))
        each = np.stack([one.log_density(points) for one in densities])
        log_weights, shape = smoothed(values - np.logaddexp.reduce(each, axis=0))
        weights = np.exp(log_weights)
        effective = float(1.0 / np.sum(weights**2))
        error = _error(np.concatenate(own), weights)
        if (effective >= EVEN * count and not shape > UNEVEN and error <= ERROR) or number == ROUNDS - 1:
            break
        densities.append(_fitted(points, weights, split))
    kept = weights > LEAST * weights.max()
    chosen = weights[kept] / weights[kept].sum()
    results = tuple(profile.at(density.learnt(jnp.asarray(each))) for each in points[kept])
    about = (
        f"over {len(chosen)} settings of the parameters, worth {effective:.0f}, Pareto k {shape:.2f}, "
        f"standard deviations within {100 * error:.0f}%"
    )
    lacking = tuple(name for name in open_ended if name not in program.priors)
    return Integrated(chosen, results, shape, effective, density.evaluations, lacking, about)


def _error(values: Float[np.ndarray, "points d"], weights: Float[np.ndarray, " points"]) -> float:
    """The largest standard error of a standard deviation, as a share of it: of a mean of influences of the points."""
    gap = values - weights @ values
    variance = weights @ gap**2
    influence = 0.5 * (gap**2 / np.where(variance > 0, variance, 1.0) - 1.0)
    return float(np.sqrt(np.max(weights**2 @ influence**2, initial=0.0)))


def _uniform(dimensions: int, count: int, seed: int, number: int) -> Float[np.ndarray, "n d"]:
    """Quasi-random points of the unit cube: along each axis the middles of equal intervals, the first time."""
    if number:
        drawn = stats.qmc.Sobol(dimensions, seed=np.random.default_rng([seed, number])).random(count)
        return np.clip(drawn, 1e-6, 1 - 1e-6)
    return stats.qmc.Sobol(dimensions, scramble=False).random(count) + 0.5 / count


def points_of(dimensions: int) -> int:
    """Points of one round: a power of two, as quasi-random ones like to be."""
    return 64 if dimensions == 1 else 128


def _mode(density: Explored) -> tuple[np.ndarray, float]:
    found = maximise(density, density.start, steps=50, tolerance=SETTLED, report=lambda *_: None, size=1.0)
    return np.asarray(found.point, float), float(found.value)


def _split(density: Explored, mode: np.ndarray, top: float) -> tuple[Split, tuple[str, ...]]:
    """Axes from the curvature around the mode, widths from the fall on either side, and what has no end on one.

    The curvature is that of differences over most of a standard deviation: at the mode itself there may be a kink.
    """
    units = np.eye(len(mode))
    scales = np.array([min(_reach(density, mode, top, side * unit) for side in (-1, 1)) for unit in units])
    scales = np.minimum(scales, density.widest)
    differences = [_slope(density, mode, STEP * scale * unit) for scale, unit in zip(scales, units, strict=True)]
    scaled = -np.asarray(differences) * scales * scales[:, None]
    curvatures, directions = np.linalg.eigh(0.5 * (scaled + scaled.T))
    axes = scales[:, None] * directions / np.sqrt(np.maximum(curvatures, LEAST_CURVED))
    open_ended: list[str] = []
    widths = np.empty((2, len(mode)))
    for place, axis in enumerate(axes.T):
        most = np.min(density.widest / np.maximum(np.abs(axis), 1e-300))
        for side, sign in enumerate((-1, 1)):
            found = _reach(density, mode, top, sign * axis)
            widths[side, place] = min(found, most)
            if found > most:
                open_ended.append(density.most_moved(axis))
    return Split(mode, axes, *(WIDER * widths)), tuple(dict.fromkeys(open_ended))


def _slope(density: Explored, mode: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Of the gradient, by a difference."""
    return (density(mode + step)[1] - density(mode - step)[1]) / (2 * float(np.linalg.norm(step)))


def _reach(density: Explored, mode: np.ndarray, top: float, direction: np.ndarray) -> float:
    """Standard deviations along a direction, in its own length: where the density has fallen by about a nat."""
    at = ASIDE
    for _ in range(TRIES):
        fall = top - density(mode + at * direction)[0]
        if not fall < FALL[1]:
            at *= 0.5
        elif fall < FALL[0]:
            at *= 2.0
        else:
            break
    return float(at / np.sqrt(2 * np.clip(fall, *FALL)))


def _fitted(points: np.ndarray, weights: np.ndarray, before: Split) -> Split:
    """The moments of weighted points, not far from what was there before."""
    mean = weights @ points
    share = 1.0 / np.sum(weights**2) / (1.0 / np.sum(weights**2) + 2 * points.shape[1])
    apart = points - mean
    spread = share * (apart.T * weights) @ apart + (1 - share) * before.axes @ before.axes.T
    ones = np.ones(points.shape[1])
    return Split(share * mean + (1 - share) * before.mode, np.linalg.cholesky(spread), ones, ones)
