"""Maximising the exact log evidence: L-BFGS over the learnt parameters, and the posterior that follows from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from gpdsl.data import Data
from gpdsl.inference.ascent.lbfgs import Outcome, Remembered, maximise, maximise_off_saddles
from gpdsl.inference.bound import Layout
from gpdsl.inference.driver import Plan, ProfileSearch, searching
from gpdsl.inference.exact import system as linear
from gpdsl.inference.exact.evidence import Evidence, Learnt, evidence_of
from gpdsl.inference.exact.grids import EIGEN, gridded, may_be_grid, near_grid, work
from gpdsl.inference.exact.parts import falls_apart
from gpdsl.inference.exact.posterior import Regression
from gpdsl.inference.modes import cycles_beside
from gpdsl.inference.plan.options import SAMPLES, STEPS, Choice, Options
from gpdsl.inference.plan.planning import quantity
from gpdsl.inference.posteriors.family import Full
from gpdsl.inference.problem import Problem, Result, as_numpy
from gpdsl.inference.resolution import rounding_note
from gpdsl.inference.warm import Start
from gpdsl.program.cycles import too_fast
from gpdsl.program.program import Program, make_rows, take_rows
from gpdsl.program.rows import Rows
from gpdsl.symbolic.numeric import written

# Where a search on many rows begins: at the end of one on some of them, in the coordinates of the curvature there.
#
# An evaluation on a quarter of the rows costs a 64th. The log evidence of all is about four times as curved, so that
# coordinates in which the curvature of some is the unit matrix leave the search on all rows little to find out.

SAMPLED_FROM, SHARE, ROUGHLY = 1000, 4, 1e-6
"""Rows from which a search begins on one of so many of them, to this gain in nats for each observed value.

Measured at 1000 rows of five columns: within 0.001 nats after 4 evaluations of all rows, 26 from the start itself.
"""

STEP = 1e-4
"""Of differences of gradients, in unconstrained parameters."""

ALIKE = 0.01
"""Nats by which the end of a later search is to be higher: at even distances faster cycles look like slower ones."""

LENGTHS, SEARCHED = (0.3, 0.1, 0.03, 0.01), 2
"""Multiples of the length-scales that the data suggest which are looked at, and how many of them begin a search."""

MOST = 100
"""Learnt numbers up to which their curvature is worked out, by two evaluations each."""


@dataclass(frozen=True)
class OnSome:
    """The end of a search on some rows, and a root of the inverse curvature that all rows should have there."""

    outcome: Outcome
    root: Float[np.ndarray, "d d"]

    @property
    def origin(self) -> Any:
        """Where the search on all rows begins, in its own coordinates."""
        return jnp.zeros(len(self.root))

    def place(self, at: Float[Array, " d"]) -> Learnt:
        """The parameters at some coordinates."""
        flat, unravel = ravel_pytree(self.outcome.point)
        return unravel(flat + jnp.asarray(self.root @ np.asarray(at, float), flat.dtype))

    def conditioned(self, evidence: Evidence) -> Evidence:
        """The evidence in these coordinates."""

        def of(at: Float[Array, " d"]) -> tuple[float, Array]:
            value, gradient = evidence(self.place(at))
            return value, jnp.asarray(self.root.T @ np.asarray(ravel_pytree(gradient)[0], float))

        return of  # type: ignore[return-value]


@dataclass(frozen=True, eq=False)
class SomeRows:
    """A problem about a random share of the rows, and their evidence."""

    problem: Problem
    evidence: Remembered

    def searched(self) -> OnSome | None:
        """The end of a rough search; None where that says nothing."""
        found = rough_search(self.problem, self.evidence, starts(self.problem, self.evidence))
        return OnSome(found, _root(self.evidence, found.point)) if np.isfinite(found.value) else None


def some_rows(problem: Problem) -> SomeRows | None:
    """A random share of the rows; None where that says nothing."""
    rng = np.random.default_rng(problem.options.seed)
    numbers = np.sort(rng.choice(problem.count, problem.count // SHARE, replace=False))
    some = replace(problem, rows=take_rows(problem.rows, numbers), count=len(numbers))
    system = linear.make_system(some.program, some.rows)
    if system is None or not system.parts:
        return None
    return SomeRows(some, Remembered(evidence_of(some, system), some.parameters))


def starts(problem: Problem, evidence: Evidence) -> list[Learnt]:
    """Where searches begin: at the start and, where no length-scale or period has a given value, at the best shorter
    length-scales, and parts and multiples of periods.

    A signal of several scales has a maximum at each of them, and from the longest a search takes the rest for noise. A
    few evaluations tell which of these places are worth a search.
    """
    program, learnt, declared = problem.program, problem.parameters, problem.program.declarations.params
    data = program.parameters.data
    if data.given & set(data.lengths):
        return [learnt]
    names = [n for n in data.lengths if n in learnt and n not in data.steps]
    free = [n for n in names if declared[n].lower is declared[n].upper is None]
    short = [n for n in free if declared[n].constraint == "positive"]
    known = as_numpy(dict(learnt))  # on the host, where no program is compiled for a sum
    others: list[Learnt] = [
        {n: v + np.log(factor) if n in short else v for n, v in known.items()} for factor in LENGTHS if short
    ]
    for n in data.cycles:
        forward, columns = program.parameters.bijectors[n].forward, as_numpy(problem.rows.inputs)
        beside = [at for _, at in cycles_beside(program, known, n, data.others[n].ravel())]
        told = partial(too_fast, program.declarations, columns, n)
        others += [at for at in beside if not told(np.asarray(forward(at[n])))]
    values = np.nan_to_num([evidence(at)[0] for at in others], nan=-np.inf)
    return [learnt, *(others[place] for place in np.argsort(-values)[:SEARCHED])]


def rough_search(problem: Problem, evidence: Evidence, begin: Sequence[Learnt]) -> Outcome:
    """The best end of rough searches from several places."""
    best = Outcome(problem.parameters, -np.inf, "no value", 0)
    for at in begin:
        found = maximise(evidence, at, **{**problem.asked, "tolerance": ROUGHLY, "report": lambda step, value: None})
        best = found if found.value > best.value + ALIKE else best
    return best


def _root(evidence: Evidence, point: Learnt) -> Float[np.ndarray, "d d"]:
    """A root of the inverse of minus the Hessian, times the share; where that is flat, steps of one remain."""
    flat, unravel = ravel_pytree(point)
    size = len(flat)
    if size > MOST:
        return np.eye(size)

    def slope(at: np.ndarray) -> np.ndarray:
        return np.asarray(ravel_pytree(evidence(unravel(jnp.asarray(at, flat.dtype)))[1])[0], float)

    centre, steps = np.asarray(flat, float), STEP * np.eye(size)
    hessian = np.stack([slope(centre + step) - slope(centre - step) for step in steps]) / (2.0 * STEP)
    if not np.all(np.isfinite(hessian)):
        return np.eye(size)
    curvature, directions = np.linalg.eigh(-0.5 * SHARE * (hessian + hessian.T))
    return directions / np.sqrt(np.maximum(np.abs(curvature), 1.0))


EXACT_VALUES = 4000
"""Up to so many observed values the default is exact inference, where that is possible: an evaluation of the evidence
and its gradient takes a second. Parts that share no latent count as one matrix that takes as long as all of theirs."""

EXACT_PARTS = 24
"""Parts that are not alike up to which it is the default: each has its place in the compiled programs."""

EXACT_NUMBERS = 4 * EXACT_VALUES**2
"""Numbers in all matrices together, and in the loadings of all values on all latents, up to which it is: 512 MB."""

GRID_VALUES, GRID_WORK = 1000, 4.0 * EXACT_VALUES**3
"""Observed values from which a grid is looked for, and work of an evaluation up to which it is the default."""


def plan_exact(program: Program, data: Data, options: Options, _: Start | None = None) -> Plan | None:
    """The choice of exact inference and what the rows read of each group; None where something else is asked or due."""
    many = data.rows > EXACT_VALUES and data.telling > EXACT_VALUES and not all(map(falls_apart, program.groups))
    # Whether the options ask for something that exact inference is not.
    suited = {"auto", "coupled"} if program.mixing else {"auto", "full", "coupled"}
    other = options.inducing or options.batch or options.learn_inducing or (options.devices or 1) > 1
    usual = options.engine == "vi" and options.schedule == "joint" and options.optimizer == "auto"
    usual = usual and options.beta == 1  # with beta the best q is not the posterior
    if other or not usual or options.expectations == "sampled" or options.posterior not in suited:
        return None
    longest = data.rows if options.inducing == 0 else int((GRID_WORK / EIGEN) ** (1 / 3))
    looked = sum(each.size for each in data.outputs.values()) >= GRID_VALUES and may_be_grid(program, data, longest)
    if options.inducing is None and many and not looked:
        return None
    rows = make_rows(program, data)
    system = linear.make_system(program, rows)
    if system is None or not system.parts:
        return None
    sizes = np.asarray(system.sizes, float)
    numbers = max(float(np.sum(sizes**2)), float(np.sum(sizes)) * program.latents)
    afforded = len(system.parts) <= EXACT_PARTS and numbers <= EXACT_NUMBERS and np.sum(sizes**3) <= EXACT_VALUES**3
    on_grid = _on_grid(system, rows, options) if looked else None
    if options.inducing is None and on_grid is None and (many or not afforded):
        return None
    system = on_grid or system
    read = linear.functionals(program, rows)
    reason = "observations are normal about linear functions of the latents, so that the evidence has a closed form"
    if program.mixing:
        reason += f"; {', '.join(f'`{name}`' for name in program.mixing)} mixes latents, which makes them correlated"
    if on_grid is None and sum(system.sizes) >= GRID_VALUES:
        reason += near_grid(program, data)
    reasons = {"posterior": reason, "optimizer": "the evidence itself, without q"}
    posterior = "coupled" if program.mixing else "full"
    lengths = () if system.grid is None else system.grid.lengths
    samples, steps = options.samples or SAMPLES, options.steps or STEPS
    rate = Choice.learning_rate if options.learning_rate is None else options.learning_rate
    choice = Choice(True, 0, 0, samples, "lbfgs", steps, reasons, posterior, rate, exact=system.sizes, grid=lengths)
    return Plan(choice, Layout(Full(), True), read, EXACT)


def _on_grid(system: linear.System, rows: Rows, options: Options) -> linear.System | None:
    """The system as one on a grid, where that costs less and is afforded."""
    found = gridded(system, rows, options.dtype)
    if found is None or found.grid is None or sum(length > 1 for length in found.grid.lengths) < 2:
        return None
    needed, otherwise = work(found.grid.lengths), sum(float(size) ** 3 for size in system.sizes)
    most = max(float(np.prod(found.grid.shape)) * system.program.latents, max(found.grid.shape) ** 2)
    afforded = needed <= GRID_WORK and most <= EXACT_NUMBERS
    return found if needed < otherwise and (afforded or options.inducing == 0) else None


class ExactProfile:
    """The evidence at any parameters, and the exact posterior there."""

    joint = None

    def __init__(self, problem: Problem, _: Result | None = None) -> None:
        system = linear.make_system(problem.program, problem.rows, on_grid=bool(problem.choice.grid))
        assert system is not None  # the plan has seen to it
        self.problem, self.system, self.evidence = problem, system, evidence_of(problem, system)
        self._inducing: list[Any] = as_numpy(linear.functionals(problem.program, as_numpy(problem.rows)))
        self._ended: Callable[..., tuple[list[linear.Whitened], list[Array]]] | None = None

    def __call__(self, learnt: Learnt) -> tuple[float, Learnt]:
        """Log evidence, log priors included, and gradient."""
        return self.evidence(learnt)

    def value(self, learnt: Learnt) -> float:
        """The same, without the gradient."""
        return self.evidence(learnt, False)[0]

    def at(self, learnt: Learnt) -> Result:
        """The posterior there, which takes no evidence: its value is NaN."""
        problem, system = self.problem, self.system
        if self._ended is None:
            self._ended = problem.shared(_ended, learnt, problem.rows, context=system, brief=True)
        numbers, variances = as_numpy(self._ended(learnt, problem.rows))
        notes = rounding_note(list(map(float, variances)), max(system.sizes), problem.options.dtype)
        held, point = Regression(system.parts, tuple(numbers)), as_numpy(learnt)
        return Result(point, self._inducing, [], np.ones(1), float("nan"), 0.0, held=held, notes=notes)


class ExactSearch(ProfileSearch):
    """The parameters of greatest evidence (times their priors); on some of the rows first, where they are many."""

    on_some: Remembered | None = None
    """The evidence of some rows, where the search began on them."""

    def run(self) -> str:
        """L-BFGS, from several places or from the end on some rows."""
        problem, start = self.problem, self.problem.parameters
        evidence: Evidence = self.bound
        if not start:
            return super().run()
        if not problem.continued and (problem.count < SAMPLED_FROM or problem.choice.grid):
            begin = starts(problem, evidence)
            start = rough_search(problem, evidence, begin if len(begin) > 1 else ()).point
        elif not problem.continued:
            some = some_rows(problem)
            self.on_some = None if some is None else some.evidence
            there = None if some is None else some.searched()
            if there is not None and evidence(there.outcome.point)[0] >= evidence(start)[0]:
                evidence, start = there.conditioned(evidence), there.origin
        search = maximise_off_saddles if problem.may_have_saddles else maximise
        return search(evidence, start, **problem.asked).message

    def state(self) -> Result:
        """At the best parameters so far, those of some rows before those of all have any."""
        best = self.bound.best
        if self.on_some is not None and not np.isfinite(best.value) and np.isfinite(self.on_some.best.value):
            self.bound(self.on_some.best.point)
        return super().state()

    finish = state


def _ended(_: Problem, system: linear.System, at: Learnt, rows: Rows) -> tuple[list[linear.Whitened], list[Array]]:
    """What the posterior is made of, and the largest prior variances of the parts."""
    numbers, prior = linear.whitened(system, at, rows)[0], linear.prior_at(system.program, at, rows)
    pairs = zip(system.parts, numbers, strict=True)
    return numbers, [prior.largest_variance(part, jnp.asarray(w.loadings)) for part, w in pairs]


EXACT = searching(
    "exact", lambda problem: ExactSearch(problem, ExactProfile(problem)), refined=False, profiled=ExactProfile
)


# What `explain` says of exact inference.

NUMBERS = {"float64": 8, "float32": 4}
"""Bytes of a number."""


def explain_exact(
    program: Program, choice: Choice, optimiser: Sequence[str], notes: Sequence[Sequence[str]], options: Options
) -> list[str]:
    """The posterior, the observations with what was found out of each, the optimiser, and what an evaluation costs."""
    lines = ["posterior", f"  exact: {choice.reasons['posterior']}"]
    lines += _matrices(choice)
    lines += ["", "observations, in units of their noise"]
    for observation, noted in zip(program.observations, notes, strict=True):
        found = linear.statement(program, observation)
        assert found is not None
        where = f"[{','.join(map(str, observation.positions))}]" if observation.positions else ""
        lines.append(f"  {observation.outputs[0]}{where} ~ {observation.distribution}: {written(found.residual)}")
        lines += [f"    {each}" for each in noted]
    lines += ["", "optimiser", *optimiser]
    matrices, values = choice.grid or choice.exact, float(sum(choice.exact)) if choice.grid else 0.0
    memory = 4.0 * NUMBERS[options.dtype] * (values + sum(float(size) ** 2 for size in matrices))
    flops = work(choice.grid) if choice.grid else sum(float(size) ** 3 for size in matrices)
    lines += ["", "cost of one evaluation of the evidence and its gradient (estimate)"]
    lines.append(f"  {quantity(flops, 'flop')}, {quantity(memory, 'B')} of working memory in {options.dtype}")
    return lines


def _matrices(choice: Choice) -> list[str]:
    """What is factorised, and for a grid why not otherwise."""
    sizes, no_jitter = choice.exact, "no jitter: the noise makes them positive definite"
    if choice.grid:
        sides, dense = " x ".join(map(str, choice.grid)), quantity(float(sum(sizes)) ** 3, "flop")
        return [
            f"  the {sum(sizes)} values are a complete grid of {sides}, and the kernel is a product over its sides:",
            f"  eigenvectors of a matrix for each side an evaluation, where one of all values takes {dense}; no jitter",
        ]
    if len(sizes) == 1:
        return [f"  one Cholesky factor and one inverse of size {sizes[0]} an evaluation; {no_jitter}"]
    largest, smallest = max(sizes), min(sizes)
    shown = str(largest) if largest == smallest else f"{smallest} to {largest}"
    apart = f"{len(sizes)} parts that share no latent: a Cholesky factor and an inverse each, of size {shown}"
    return [f"  {apart}; {no_jitter}"]
