"""`parameters = gaussian`: from the end of a search to q over the learnt parameters, its bound, and draws of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from gpdsl.inference.ascent.joint import initial_state
from gpdsl.inference.best_gaussian import Gaussian, Valued, ascended, averaged, normals, start
from gpdsl.inference.driver import whole_bound
from gpdsl.inference.integrated import UNTRUSTED, Explored, Integrated, Learnt, Profile, explored
from gpdsl.inference.log_joint import log_volume
from gpdsl.inference.plan.options import Options
from gpdsl.inference.problem import Monitor, Problem, Rest, Result, as_numpy
from gpdsl.inference.proposals import mode_of, smoothed
from gpdsl.inference.sampling import sum_and_error
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows

# The log likelihood and the log priors of a model without latents, as functions of its parameters alone.

AT_ONCE, PLACES = 1_000_000, 256
"""Rows times places whose densities are held at once, and places at most: one program does for any number of them."""

BRIEF = 2_000
"""Rows up to which it counts more how soon that program is compiled than how fast it is."""


class ParametersProfile:
    """log p(y, theta) of a model whose evidence nothing has to be integrated for, one place or many at a time."""

    joint = None

    def __init__(self, problem: Problem, _: Result) -> None:
        self.problem, self._state = problem, initial_state(problem)
        self._slope = problem.compiling(jax.value_and_grad(self._value))
        each = jax.vmap(jax.value_and_grad(self._density), in_axes=(0, None))
        self._many = problem.compiling(each, brief=problem.count <= BRIEF)
        self.rows, self._size = problem.rows, min(max(AT_ONCE // max(problem.count, 1), 1), PLACES)

    def __call__(self, learnt: Learnt) -> tuple[float, Learnt]:
        """The value and its gradient."""
        value, gradient = self._slope(dict(learnt), self.rows)
        return float(value), gradient

    def value(self, learnt: Learnt) -> float:
        """The value, without the gradient, which is cheap here."""
        return self(learnt)[0]

    def several(
        self, learnt: Mapping[str, np.ndarray]
    ) -> tuple[Float[np.ndarray, " places"], Mapping[str, np.ndarray]]:
        """Log densities of the numbers themselves, at many places along the first axis of each, and gradients."""
        count, size = len(next(iter(learnt.values()))), self._size
        padded = {name: np.resize(each, (-(-count // size) * size, *each.shape[1:])) for name, each in learnt.items()}
        parts = [
            as_numpy(self._many({name: jnp.asarray(each[at : at + size]) for name, each in padded.items()}, self.rows))
            for at in range(0, count, size)
        ]
        whole = jax.tree.map(lambda *some: np.concatenate(some)[:count], *parts)
        return whole[0], whole[1]

    def at(self, learnt: Learnt) -> Result:
        """What the parameters are there: nothing else is unknown."""
        return Result(as_numpy(dict(learnt)), [], [], np.ones(1), float("nan"), 0.0)

    def _value(self, learnt: Learnt, rows: Rows) -> Array:
        rest = Rest(rows, [], None, self.problem.jitter)
        return whole_bound(self.problem, {**self._state, "parameters": learnt}, rest)

    def _density(self, learnt: Learnt, rows: Rows) -> Array:
        return self._value(learnt, rows) + log_volume(self.problem.program, learnt)


# `parameters = gaussian`: from the end of a search to q over the learnt parameters, its bound, and draws of it.

FULL = 200
"""Numbers up to which q has all covariances between them."""

FEW, MANY, ROOM = 64, 512, 10_000_000
"""Samples of a set, with latents and without: an evaluation costs an inference of the latents there, and next to
nothing here, unless the rows are many: then the second is as many as make so many rows, and the first at least."""

EACH = 10
"""Samples for each number at least."""

FRESH, FRESH_DIAGONAL = 2, 12
"""Sets that q is moved by after the first; numbers that are independent in q have few samples each."""

SEARCHED = 50, 500
"""Most iterations of L-BFGS over q, with latents and without."""

REPLICATES = 4
"""Sets that tell the bound in the end; twice as many without latents."""

DRAWS = 256
"""Draws of q that predictions average over."""

FAR = 0.25
"""Nats between the bound and the evidence from which standard deviations may be off by a quarter."""

APART = 7919
"""Between the seeds of sets of samples."""

EVEN = 1e-6
"""Of log p - log q, relative to its size: a scatter up to which q is the posterior."""

OPEN = 0.9
"""Share of the largest standard deviation from which a parameter counts as left open by the data."""

STAGE = "q of parameters"

NONE_KEPT = (
    "interrupted while q of the parameters was found: these are their most probable values, as the search left them"
)

UNSETTLED = "q of the parameters had not come to rest, and its bound would still rise: give parameters closer priors"


def explain_gaussian(program: Program) -> str:
    """What the plan says of q."""
    size = _size(program)
    if not size:
        return "\n\nq of parameters\n  none: nothing is learnt"
    spread = "with all covariances" if size <= FULL else f"independent of each other (more than {FULL})"
    lines = [
        f"  one Gaussian of {size} numbers on the real line, {spread}",
        "  by natural gradients",
    ]
    lacking = ", ".join(name for name in program.parameters.initial if name not in program.priors)
    lines += [f"  flat on the real line, without a prior: {lacking}"] if lacking else []
    return "\n".join(["\n", "q of parameters", *lines])


def _size(program: Program) -> int:
    return int(sum(np.size(value) for value in program.parameters.unconstrained().values()))


class Everywhere:
    """log p(theta, y) on the real line and its gradient, at many points."""

    def __init__(self, program: Program, profile: Profile, learnt: Learnt, report: Callable[[int, int], None]) -> None:
        self.one = Explored(program, profile, learnt, report)
        self._many = profile.several if isinstance(profile, ParametersProfile) else None
        self.quick, self.samples = self._many is not None, FEW
        if isinstance(profile, ParametersProfile):
            self.samples = int(np.clip(ROOM // max(profile.problem.count, 1), FEW, MANY))
        self._apart = jax.vmap(ravel_pytree(dict(learnt))[1])

    def __call__(self, points: Float[np.ndarray, "S d"]) -> Valued:
        """Values, -inf where there is none, and gradients."""
        if self._many is None:
            found = [self.one(each) for each in points]
            return np.array([value for value, _ in found]), np.stack([slope for _, slope in found])
        self.one.count(len(points))
        values, slopes = self._many(self._apart(jnp.asarray(points)))
        told = np.concatenate([np.reshape(slopes[name], (len(points), -1)) for name in sorted(slopes)], axis=1)
        return np.where(np.isfinite(values), values, -np.inf).astype(float), told.astype(float)


def gaussian(program: Program, result: Result, options: Options, rows: int, monitor: Monitor) -> Result:
    """The result with draws of q over what is learnt, and its bound; Ctrl-C leaves it as it is."""

    def find(profile: Profile, learnt: Learnt) -> Result:
        report = partial(monitor.explored, stage=STAGE)
        integrated, (bound, error), doubts = _found(program, profile, learnt, options.seed, report)
        notes = (*result.notes, *integrated.doubts, *doubts)
        return replace(result, integrated=integrated, elbo=bound, elbo_se=error, notes=notes)

    return explored(result, options, rows, find, NONE_KEPT)


def _found(
    program: Program, profile: Profile, learnt: Learnt, seed: int, report: Callable[[int, int], None]
) -> tuple[Integrated, tuple[float, float], tuple[str, ...]]:
    """Draws of q, its bound with a standard error, and what is doubtful about it."""
    density = Everywhere(program, profile, learnt, report)
    one, size = density.one, len(density.one.start)
    widest, diagonal = np.where(one.known, np.inf, one.widest), size > FULL
    sets, count = FRESH_DIAGONAL if diagonal else FRESH, density.samples
    if not diagonal:
        count = max(count, EACH * size)
    q = start(density, mode_of(one, one.start)[0], diagonal=diagonal).within(widest)
    q, settled = ascended(density, q, normals(count, size, seed), widest, SEARCHED[density.quick])
    q = averaged(density, q, widest, lambda number: normals(count, size, seed + number), sets)
    bound, gap = _assessed(density, q, seed + sets + 1)
    z = normals(DRAWS, size, seed + sets + 2)
    results = tuple(profile.at(one.learnt(point)) for point in q.points(z))
    lacking = _left_open(one, q, widest)
    spread = "independent of each other" if q.diagonal else "with all covariances"
    about = f"{len(results)} draws of one Gaussian of {size} numbers, {spread}, {gap.told}"
    weights = np.full(len(results), 1.0 / len(results))
    found = Integrated(weights, results, float("nan"), float(len(results)), one.evaluations, lacking, about)
    return found, bound, _doubts(gap, settled or bool(lacking))


@dataclass(frozen=True)
class Gap:
    """Nats between the bound and the evidence, as weights p / q of samples tell it, and Pareto's k of these.

    It is KL[q || p]: 0 where q is the posterior. Weights of uneven tails tell too little of it.
    """

    nats: float
    shape: float

    @property
    def told(self) -> str:
        """In words."""
        if not self.nats:
            return "which is the posterior itself"
        few = "at least " if self.shape > UNTRUSTED else ""
        return f"{few}{self.nats:.2g} nats from the posterior (Pareto k {self.shape:.2f})"


def _assessed(density: Everywhere, q: Gaussian, seed: int) -> tuple[tuple[float, float], Gap]:
    """The bound with its standard error, from sets of samples that q has not seen, and the gap above it."""
    ratios = []
    for number in range(2 * REPLICATES if density.quick else REPLICATES):
        z = normals(density.samples, len(q.mean), seed + APART * (number + 1), plain=True)
        ratios.append(density(q.points(z))[0] - q.log_density(z))
    every = np.stack(ratios)
    mean = float(np.mean(every))
    if np.ptp(every) < EVEN * (1.0 + abs(mean)):
        return (mean, 0.0), Gap(0.0, -np.inf)
    nats = float(np.logaddexp.reduce(every.ravel()) - np.log(every.size)) - mean
    return sum_and_error(every.mean(axis=1)[:, None]), Gap(nats, smoothed(every.ravel())[1])


def _left_open(one: Explored, q: Gaussian, widest: Float[np.ndarray, " d"]) -> tuple[str, ...]:
    """Parameters without a prior that are as uncertain as they may become."""
    wide = one.learnt((q.sds > OPEN * widest).astype(float))
    return tuple(name for name, each in wide.items() if bool(jnp.any(each > 0)))


def _doubts(gap: Gap, settled: bool) -> tuple[str, ...]:
    found: tuple[str, ...] = () if settled else (UNSETTLED,)
    if gap.nats > FAR:
        found += (
            f"one Gaussian of the parameters is {gap.told}: standard deviations may be off; compare with "
            "hyperparameters = integrated where parameters are few",
        )
    return found
