"""With how many inducing variables a fit goes on, and which: points, or features where these leave less open.

Points are chosen greedily, or as centres of clusters; features reach over the rows. What either leaves of the prior
variance is compared under the kernel that the fit before has found, or that patches of rows find where it is bent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from gpdsl.data import Data
from gpdsl.errors import GpdslError
from gpdsl.inference.driver import Task
from gpdsl.inference.inducing.featured import featured
from gpdsl.inference.inducing.loss import Loss
from gpdsl.inference.inducing.start import distinct, first_numbers, kmeans_centres, pivots, unexplained
from gpdsl.inference.infer import infer
from gpdsl.inference.plan.options import Choice, Options, choose_batch
from gpdsl.inference.plan.planning import LARGEST
from gpdsl.inference.problem import Found, Result, as_arrays
from gpdsl.kernels.functionals import Functionals, Values, every_point
from gpdsl.program.evaluation import functionals_at
from gpdsl.program.groups import Group
from gpdsl.program.program import Program, at_values, make_rows
from gpdsl.program.white import training

BUDGET = 6e9
"""Rows times squared inducing points, of all latents together, of one evaluation on all rows: two to three seconds on
two cores, and a warm fit takes about twenty."""

BATCH_BUDGET = 2e8
"""The same of a step on a minibatch, of which there are up to a thousand."""

CUBES = 2.0
"""Cubes of the number of points in a step on a minibatch."""

ONCE, SUMMED_CUBES = 40.0, 4.0
"""Budgets for summing up all rows, once a fit, and cubes of the number of features in an evaluation from the sums."""

MOST_TIMES, LEAST_TIMES = 4.0, 1.25
"""Times as many points as before: more than that a kernel that too few points have bent cannot tell."""

STEPS = (0.5, 0.7)
"""Shares of the most features that may be enough."""

CLEARLY = 0.9
"""Of what points leave open, that as many features leave at most where these are taken."""

ROUNDING = 8.0
"""Points are chosen under parameters rounded to so many parts of one (on the real line): what the order of the rows
changes in the last digits of a fit does not change its points."""

LOOKED_AT = 5_000
"""Rows among which points are chosen greedily."""


def affordable(program: Program, choice: Choice, rows: int, times: float = 1.0) -> int:
    """Most inducing points of each latent within as many budgets of work of an evaluation, or one of a step."""
    if choice.summed:
        return int(min((BUDGET / SUMMED_CUBES) ** (1 / 3), (ONCE * BUDGET / rows) ** 0.5))
    latents = sum(group.size for group in program.groups if not group.per_row)
    if choice.posterior == "coupled":
        return int(min(LARGEST / latents, (times * BUDGET / rows) ** 0.5 / latents))
    if not choice.batch:
        return int((times * BUDGET / (rows * latents)) ** 0.5)
    budget, count = BATCH_BUDGET / latents, np.arange(1, 10_000, dtype=float)
    return int(np.searchsorted(choice.batch * count**2 + CUBES * count**3, budget))


def choose_more(
    kernels: Sequence[Program], data: Data, options: Options, best: Found, loss: Loss, times: float
) -> list[Functionals] | None:
    """As many of each group as make the loss slight, at least twice as many as there are, within so many budgets.

    Of each group under the program whose kernel asks for most: patches of neighbours see what too few points have taken
    for noise, and the fit what rows have in common that are far from each other. None where no group has more to give.
    Features only within one budget: layers go on from points.
    """
    result, _, choice, _ = best
    program = kernels[0]
    now = max(len(z) for group, z in zip(program.groups, result.inducing, strict=True) if not group.per_row)
    most = int(min(affordable(program, choice, data.rows, times), MOST_TIMES * now, data.rows))
    if most < LEAST_TIMES * now:
        return None
    programs = [training(_rounded(each), dense=False) for each in kernels]
    rows, rng, found = make_rows(program, data), np.random.default_rng(options.seed), []
    for group, old in zip(programs[0].groups, result.inducing, strict=True):
        if group.per_row:
            found.append(old)
            continue
        every = np.asarray(every_point(functionals_at(group, group.readings.atoms, rows)))
        some = distinct(every, LOOKED_AT)
        both = [_Seen(each, group, data, every, some, options.dtype, rng) for each in programs]
        left_open = [each.left_open(old) for each in both]
        seen, goal = both[int(np.argmax(left_open))], 0.5 * loss.slight / loss.nats * max(left_open)
        if choice.summed:
            chosen = seen.waves(most, goal)
            if seen.left_open(chosen) > goal:  # rows may stand close together, where no wave is so short
                count = min(_as_points(program, choice, data.rows), len(chosen))
                chosen = min(chosen, seen.points(count, goal, 1), key=seen.left_open)
        else:
            chosen = seen.points(most, goal, 2 * len(old))
            chosen = (seen.features(chosen, goal) if times == 1.0 else None) or chosen
        found.append(chosen if len(chosen) > len(old) or type(chosen) is not type(old) else old)
    more = any(new is not old for new, old in zip(found, result.inducing, strict=True))
    return found if more else None


def _as_points(program: Program, choice: Choice, rows: int) -> int:
    """Most points where features let rows be summed up: fewer, but where the rows are."""
    return affordable(program, replace(choice, features="", batch=choose_batch(rows, 0)[0]), rows)


def _rounded(program: Program) -> Program:
    """The program at rounded parameters."""
    known = program.parameters
    rounded = {name: np.round(np.asarray(u) * ROUNDING) / ROUNDING for name, u in known.unconstrained().items()}
    return at_values(program, known.constrain(as_arrays(rounded, float)))


@dataclass(frozen=True, eq=False)
class _Seen:
    """One group at all rows, and at some of them that differ."""

    program: Program
    group: Group
    data: Data
    every: np.ndarray
    some: np.ndarray
    dtype: str
    rng: np.random.Generator

    def left_open(self, inducing: Functionals) -> float:
        """Mean prior variance of the rows that inducing variables leave open."""
        return unexplained(self.program, self.group, self.some, inducing, self.dtype)

    def points(self, most: int, goal: float, least: int) -> Functionals:
        """Points chosen greedily, or centres, whichever leave less open."""
        order = pivots(self.program, self.group, self.some, most, self.dtype)
        wanted = int(np.searchsorted(-order.open, -goal / order.prior)) + 1
        count = min(max(wanted, least), most, len(self.some))
        greedy = self.some[order.chosen[:count]]
        # where fewer determine all rows, and much is lost all the same, the kernel is bent
        if len(greedy) < min(count, 0.5 * LEAST_TIMES * least) and count < len(self.some):
            return Values(kmeans_centres(self.every, count, self.rng))  # type: ignore[arg-type]
        found = [Values(greedy)]  # type: ignore[arg-type]
        if len(greedy) < len(self.some):
            found.append(Values(kmeans_centres(self.every, len(greedy), self.rng)))  # type: ignore[arg-type]
        return min(found, key=self.left_open)

    def features(self, points: Functionals, goal: float) -> Functionals | None:
        """Eigen features that leave clearly less open than as many points; fewer where these reach the goal."""
        most = self.sized("eigen", len(points))
        if most is None or self.left_open(most) > CLEARLY * self.left_open(points):
            return None
        return self.fewest("eigen", len(points), goal, most)

    def waves(self, most: int, goal: float) -> Functionals:
        """Fourier features that reach the goal, or as many as there may be."""
        every = self.sized("fourier", most)
        assert every is not None  # a fit with some has gone before
        return self.fewest("fourier", most, goal, every)

    def fewest(self, family: str, most: int, goal: float, every: Functionals) -> Functionals:
        """A share of the features that reaches the goal, or `every` one of them."""
        fewer = (self.sized(family, int(share * most)) for share in STEPS)
        return next((each for each in fewer if each is not None and self.left_open(each) <= goal), every)

    def sized(self, family: str, size: int) -> Functionals | None:
        """Features of a family, at most so many; None where the kernel has none that are so few."""
        centres, count = partial(kmeans_centres, rng=self.rng), size
        while count:
            written = f"{family}({count})"
            try:
                found = featured(self.program, self.group, written, self.data, self.every, centres, self.rng)
            except GpdslError:
                return None
            if len(found) <= size:
                return found
            power = math.log(count) / math.log(len(found))  # of kernels side by side, or products
            count = min(count - 1, int(size**power))
        return None


# How far too few inducing points have bent the hyperparameters, by dense inference on patches of rows.
#
# Inducing points that cannot follow a function explain it as noise, over longer length-scales: at such hyperparameters
# they leave little open and seem to lose little (a Matern 3/2 series over 1000 length-scales, 200 points: 100 nats, and
# 3,000 in fact). Rows that lie side by side tell: dense inference on them finds other hyperparameters, and a higher
# evidence than those of the fit give the same rows. What it gains in a row all rows would, if patches are like the
# rest.

REGIONS, REGION = 6, 50
"""Patches of neighbouring rows, and rows in each."""

FEW = 600
"""Rows up to which dense inference looks at all of them, and says what is lost by itself."""

SHORT = 40
"""Most steps of a search on the patches, which need not end at the last digit."""


@dataclass(frozen=True)
class Bending:
    """Nats that all rows would gain by hyperparameters that dense inference on patches finds, and a program there."""

    nats: float
    program: Program


def bending(program: Program, data: Data, options: Options, choice: Choice) -> Bending:
    """For a program whose parameters start where a fit has put them; nothing where it learns none."""
    if not program.parameters.initial:
        return Bending(0.0, program)
    index = patches(data)
    some, quick, known = data.take(index), _quick(options, choice), program.parameters
    held = replace(program, parameters=replace(known, initial={}, held={**known.held, **known.initial}))
    try:
        here, found = (infer(Task(each, some, quick)).result for each in (held, program))
    except GpdslError:  # nothing that can be said of patches: what is lost is what is open
        return Bending(0.0, program)
    gained = found.elbo - here.elbo - sum(np.size(value) for value in known.initial.values())
    if not (np.isfinite(gained) and gained > 0):
        return Bending(0.0, program)
    return Bending(float(gained) * data.rows / len(index), _at(program, found, options))


def dense_gain(program: Program, data: Data, options: Options, choice: Choice, elbo: float) -> Bending | None:
    """What dense inference gains on all rows, where these are few; None where they are not, or it fails."""
    if data.rows > FEW:
        return None
    try:
        found = infer(Task(program, data, _quick(options, choice))).result
    except GpdslError:
        return None
    return Bending(max(found.elbo - elbo, 0.0), _at(program, found, options)) if np.isfinite(found.elbo) else None


def _quick(options: Options, choice: Choice) -> Options:
    """Dense inference, not to the last digit."""
    posterior = "full" if choice.posterior == "coupled" else choice.posterior
    dense = replace(options, inducing=0, batch=0, learn_inducing=False, devices=None)
    return replace(dense, posterior=posterior, steps=SHORT, tolerance=1e-6)


def _at(program: Program, found: Result, options: Options) -> Program:
    """The program, whose parameters start where a search has ended."""
    return at_values(program, program.parameters.constrain(as_arrays(found.parameters, options.dtype)))


def patches(data: Data) -> Int[np.ndarray, "rows"]:
    """Numbers of rows in some patches: neighbours of rows that their values choose, by columns of unit spread."""
    columns: list[Any] = [np.asarray(a, float).reshape(data.rows, -1) for a in jax.tree.leaves(dict(data.inputs))]
    inputs = np.concatenate(columns, axis=1) if columns else np.zeros((data.rows, 1))
    spread = inputs.std(axis=0)
    scaled = inputs / np.where(spread > 0, spread, 1.0)
    found: list[np.ndarray] = []
    for middle in first_numbers(inputs)[:REGIONS]:
        far = np.sum((scaled - scaled[middle]) ** 2, axis=1)
        found.append(np.argpartition(far, min(REGION, data.rows - 1))[:REGION])
    return np.unique(np.concatenate(found))
