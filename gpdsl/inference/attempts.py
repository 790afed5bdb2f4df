"""Several searches where one is not to be trusted: from starts of the data, and off places where symmetry holds it.

A search ends at a maximum, at a place where latents explain nothing (the start was in other units than the data), or
where it was held by symmetry: at a loading of zero, or at two parameters that could be exchanged, and are equal. The
last two look converged. So a result is judged: by a glance at q and the parameters, which costs nothing, and by what
unrelated rows are worth, where the glance leaves doubts. Only what is doubtful is tried again, from elsewhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpdsl.inference.problem import Problem, Result, as_arrays
from gpdsl.inference.resolution import begun_at
from gpdsl.inference.sides import SEVERAL, rows_have_peaks
from gpdsl.inference.unrelated_rows import best_levels, missing_level, value_of_nothing
from gpdsl.program.groups import Group, kernel_values
from gpdsl.program.program import Program
from gpdsl.program.starts import loadings
from gpdsl.symbolic.concavity import log_concavity

# Where symmetry may hold a search: parameters that have not moved or gone the same way, latents that are alike.

TIED = 1e-6
"""Relative difference of parameters that have gone the same way."""

UNMOVED = 1e-9
"""Change of a coordinate of size one that no slope has moved."""


def held_by_symmetry(problem: Problem, result: Result) -> dict[str, np.ndarray]:
    """Elements of learnt parameters that symmetry may hold where they are.

    Those of either sign that have not moved at all, and those that are equal to others that they could be exchanged
    for, along one axis of their parameter, or between parameters.
    """
    parameters = problem.program.parameters
    found: dict[str, np.ndarray] = {}
    start = {n: np.asarray(v, float) for n, v in problem.parameters.items()}
    data = parameters.data
    for name in parameters.initial:
        if name in data.levels:  # what is added is held by no symmetry
            continue
        here = np.asarray(result.parameters[name], float)
        if here.shape != start[name].shape:
            continue
        held = np.zeros(here.shape, bool)
        if name in data.random:
            held |= np.abs(here - start[name]) <= UNMOVED * (1.0 + np.abs(start[name]))
        for axis in range(here.ndim):
            held |= _repeated(here, axis)
        if held.any():
            found[name] = held
    return found


def _repeated(values: np.ndarray, axis: int) -> np.ndarray:
    """Where the slices along an axis are repeated."""
    slices = np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)
    scale = np.abs(slices).max(axis=0) + 1e-3
    same = np.array([[np.all(np.abs(a - b) <= TIED * scale) for b in slices] for a in slices])
    which = same.sum(axis=1) > 1
    shape = [1] * values.ndim
    shape[axis] = -1
    return np.broadcast_to(which.reshape(shape), values.shape)


def exchangeable(problem: Problem) -> bool:
    """Whether latents that are declared apart, start alike and meet in one observation can be told apart in many ways.

    Each way is a maximum of the bound then, unless the log likelihood is concave in all of them. Where it is quadratic,
    the kernels' parameters are what remains alike.
    """
    program = problem.program
    groups = [group for group in program.groups if len(group.members) > 1 and not group.per_row]
    if not any(_alike(problem, group) for group in groups):
        return False
    return program.conjugate or not log_concavity(program.translator, program.observations).holds


def _alike(problem: Problem, group: Group) -> bool:
    """Whether two declared latents of a group start with the same kernel."""
    program = problem.program
    kernel = kernel_values(program.evaluator, group, program.parameters.constrain(problem.parameters))
    arguments = [np.asarray(a, float).reshape(group.factors, -1) for a in kernel.arguments]
    numbers = np.concatenate([np.asarray(kernel.scale, float)[:, None], *_per_latent(arguments, group.size)], axis=1)
    declared = np.repeat(np.arange(len(group.members)), [member.count for member in group.members])
    pairs = itertools.combinations(range(group.size), 2)
    return any(declared[a] != declared[b] and np.allclose(numbers[a], numbers[b]) for a, b in pairs)


def _per_latent(arguments: list[np.ndarray], size: int) -> list[np.ndarray]:
    return [np.broadcast_to(a, (size, a.shape[1])) for a in arguments]


Engine = Callable[[Problem], Result]
Parameters = dict[str, np.ndarray]

NOTHING = 0.5
"""Nats that latents have to be worth: with less, the result is taken to be the model without them."""

LITTLE = 30.0
"""Divergence of q from the prior, in nats, below which latents may explain nothing."""

DIAGONAL = 1e-6
"""Largest correlation in q's root of latents whose values have nothing to do with each other."""

SAME = 0.1
"""Nats between results of searches that have found the same maximum."""

DRAWS, EXACT_DRAWS = 4, 6
"""Random starts where a symmetry has to be broken, as long as no two of them end at the same maximum."""

NARROW = 0.3
"""Share of the last q's width that q has at a draw from the prior: wide as it was, it would see both peaks again."""

AGREED = 2 / 3
"""Share of the random starts that have to end at the best maximum for it to be taken for the highest."""

EXACT_TIED = 3
"""Of these, how many have to end no higher before equal parameters are taken to be equal at the maximum."""

DECADES = 1.5
"""Powers of ten below the scale of a column that length-scales of random starts are drawn from."""

SHORTER = 0.2
"""Length-scales are tried that much shorter where those of the data's scale lead to nothing."""

OFTEN = 0.3
"""The same of a first draw of latents with peaks at both signs: a function that changes its sign often looks like noise
at the length-scale of the column."""

CYCLES = "cycles of the outputs"

ALIKE = 0.01
"""Nats by which another start has to end higher than the cycles of the outputs: at even distances faster ones look like
these to the last digit, and are others between the rows."""

JUDGED = ("converged", "all steps done", "stopped: the line search", "stopped by rounding")
"""How messages of searches begin that went to their ends."""


@dataclass(frozen=True)
class Attempt:
    """A search that was made: from where, in words, its result, and its history."""

    start: str
    result: Result
    history: tuple[tuple[int, float, float], ...]


def attempt(problem: Problem, engine: Engine) -> Result:
    """The result of one search, or the best of several where the first is doubtful, and says so."""
    program = problem.program
    alone = problem.continued or program.opaque or bool(program.inner) or problem.choice.weights is not None
    if alone or not (problem.parameters or rows_have_peaks(problem)):
        return engine(problem)
    data = problem.program.parameters.data
    if names := [n for n in data.levels if n not in data.given and n in program.parameters.initial]:
        # Levels that have no value begin where the data put them.
        begin = best_levels(program, problem.rows, program.parameters.unconstrained(), names)
        problem = replace(problem, parameters=as_arrays(begin, problem.options.dtype))
    tried = [_searched(problem, engine, "the first start")]
    first = tried[0].result
    if first.interrupted or not first.message.startswith(JUDGED) or not np.isfinite(first.elbo):
        return tried[0].result
    try:
        # The best of further searches as well, where the first is doubtful; those made are added to `tried`.
        if data.cycles:
            bijectors, begin = program.parameters.bijectors, {n: np.asarray(v) for n, v in problem.parameters.items()}
            begin |= {n: bijectors[n].inverse(v) for n, v in data.cycles.items()}
            tried.append(_again(problem, engine, CYCLES, begin))
        worthless = _worthless(problem, _best(tried).result)
        if data.far or (worthless is not None and data.given):
            tried.append(_again(problem, engine, "the scales of the data", _from_data(problem)))
            worthless = _worthless(problem, _best(tried).result)
        if worthless is not None and data.lengths and not tried[-1].result.interrupted:
            short = _shorter(problem, _from_data(problem))
            tried.append(_again(problem, engine, "short length-scales", short))
            worthless = _worthless(problem, _best(tried).result)
        drawn = not tried[-1].result.interrupted and _symmetric(problem, engine, tried)
        worthless = None if worthless is None else _worthless(problem, _best(tried).result)  # a draw may be better
        problem.monitor.history[:] = _best(tried).history
        more = 0.0 if worthless is None else problem.options.beta * (worthless - _best(tried).result.elbo)
        nothing = "" if worthless is None else _of_nothing(problem.program, more)
        return _concluded(problem, tried, nothing, drawn)
    except KeyboardInterrupt:  # between two searches
        problem.monitor.history[:] = _best(tried).history
        return replace(_concluded(problem, tried, "", False), interrupted=True)


def _again(problem: Problem, engine: Engine, start: str, parameters: Parameters) -> Attempt:
    """Another search, from these parameters on the real line."""
    return _searched(replace(problem, parameters=as_arrays(parameters, problem.options.dtype)), engine, start)


def _searched(problem: Problem, engine: Engine, start: str) -> Attempt:
    """One search, with a history of its own."""
    problem.monitor.history.clear()
    result = engine(problem)
    problem.monitor.ended(result)
    return Attempt(start, result, tuple(problem.monitor.history))


def _best(tried: list[Attempt]) -> Attempt:
    values = [each.result.elbo + ALIKE * (each.start == CYCLES) for each in tried]
    return tried[int(np.argmax(np.nan_to_num(values, nan=-np.inf)))]


# --- starts -----------------------------------------------------------------------------------------------------


def _from_data(problem: Problem) -> Parameters:
    """Every learnt parameter at the scale of the data, and levels where the data put them."""
    parameters = problem.program.parameters
    values = {**parameters.initial, **parameters.data.values}
    begin = replace(parameters, initial={n: values[n] for n in parameters.initial}).unconstrained()
    return best_levels(problem.program, problem.rows, begin, parameters.data.levels)


def _shorter(problem: Problem, begin: Parameters, share: float = SHORTER) -> Parameters:
    """The same with shorter length-scales; cycles are no longer for being short."""
    bijectors, data = problem.program.parameters.bijectors, problem.program.parameters.data
    found = dict(begin)
    for name in (each for each in data.lengths if each not in data.steps):
        number: Any = np.asarray(begin[name], float)
        value = np.asarray(bijectors[name].forward(number)) * share
        if bijectors[name].contains(value):
            found[name] = bijectors[name].inverse(value)
    return found


def _scattered(problem: Problem, begin: Parameters, tied: Mapping[str, np.ndarray], number: int) -> Parameters:
    """The same with the elements that are held by symmetry somewhere near, at random."""
    parameters, found = problem.program.parameters, dict(begin)
    rng = np.random.default_rng([problem.options.seed, number])
    for name, held in tied.items():
        value = np.asarray(parameters.bijectors[name].forward(as_arrays(begin[name], float)))
        if name in parameters.data.levels or not held.any():
            continue
        if problem.program.declarations.params[name].constraint == "real":
            unit = np.broadcast_to(parameters.data.units.get(name, 1.0), value.shape)
            moved = np.where(held, unit * loadings(value.shape, rng), value)
        elif name in parameters.data.lengths:
            unit = np.broadcast_to(parameters.data.units.get(name, 1.0), value.shape)
            moved = np.where(held, unit * _scales(value.shape, rng), value)  # several scales have several maxima
        elif problem.program.declarations.params[name].constraint == "positive":
            moved = np.where(held, value * np.exp(0.5 * rng.standard_normal(value.shape)), value)
        else:
            continue
        if parameters.bijectors[name].contains(moved):
            found[name] = parameters.bijectors[name].inverse(moved)
    return found


def _scales(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Random shares of a column's scale, as different from each other as there are many."""
    size = int(np.prod(shape))
    return np.exp(-DECADES * np.log(10) * (rng.permutation(size) + rng.random(size)) / max(size, 1)).reshape(shape)


# --- judgement --------------------------------------------------------------------------------------------------


def _worthless(problem: Problem, result: Result) -> float | None:
    """What unrelated rows are worth, where the result is worth no more; None where it is, or where nobody knows."""
    learns = problem.program.groups and problem.parameters
    if not learns or (result.posterior and not _may_be_worthless(result)):
        return None
    value = value_of_nothing(problem.program, problem.rows, result.parameters)
    return None if value is None or result.elbo > value + NOTHING else value


def _may_be_worthless(result: Result) -> bool:
    """Whether q is near the prior, or its values at different points have nothing to do with each other."""
    total = 0.0
    for q in result.posterior:
        mean, root = np.asarray(q.mean, float), np.asarray(q.root, float)
        if root.ndim < 4 or root.shape[-1] != root.shape[-2]:
            return True
        diagonal = np.diagonal(root, axis1=-2, axis2=-1)
        rest = np.abs(root).sum() - np.abs(diagonal).sum()
        if rest > DIAGONAL * np.abs(diagonal).sum():
            total += 0.5 * float(
                np.sum(root**2) + np.sum(mean**2) - diagonal.size - 2 * np.sum(np.log(np.abs(diagonal)))
            )
    return total < LITTLE


def _symmetric(problem: Problem, engine: Engine, tried: list[Attempt]) -> bool:
    """Searches off the symmetries of the first ones, if there are any; whether there were.

    They end when two random starts have found the best maximum: the first search, where symmetry may have held it, and
    one that begins as it did confirm nothing.
    """
    best, data = _best(tried), problem.program.parameters.data
    begin = {n: np.asarray(v, float) for n, v in problem.parameters.items()}
    drawn = [n for n in data.random if n in begin]
    held, several = held_by_symmetry(problem, best.result), bool(problem.program.mixing) and exchangeable(problem)
    at_random = bool(drawn) and (len(tried) > 1 or not set(drawn) <= data.given)
    if best.result.interrupted:
        return False
    known = held or several or at_random
    # `attempt` has looked where nothing is learnt; an exact posterior has one peak.
    peaks = not (known or problem.choice.exact) and (not problem.parameters or rows_have_peaks(problem))
    if not (known or peaks):
        return False
    moved = dict(held) | {n: np.ones(np.shape(begin[n]), bool) for n in (begin if several else drawn)}
    if problem.program.mixing:
        moved |= {n: np.ones(np.shape(begin[n]), bool) for n in data.lengths if n in begin}
    counted = 0 if drawn and not set(drawn) <= data.given else 1
    for number in range(1, (EXACT_DRAWS if problem.choice.exact else DRAWS) + 1):
        if peaks:
            drawn_at = _from_prior_draw(problem, _best(tried).result, number)
            if number == 1:
                short = as_arrays(_shorter(problem, begin, OFTEN), problem.options.dtype)
                drawn_at = replace(drawn_at, parameters=short)
            tried.append(_searched(drawn_at, engine, f"draw {number}"))
        else:
            other = _other_seed(problem, number) if several else problem
            tried.append(_again(other, engine, f"draw {number}", _scattered(problem, begin, moved, number)))
        if tried[-1].result.interrupted:
            break
        tied = held and not drawn and not several and number == (EXACT_TIED if problem.choice.exact else 1)
        if tied and all(each.result.elbo < best.result.elbo + SAME for each in tried[-number:]):
            return False  # a maximum with equal parameters
        top = _best(tried).result.elbo
        if sum(each.result.elbo > top - SAME for each in tried[counted:]) > 1:
            break
    return True


def _from_prior_draw(problem: Problem, result: Result, number: int) -> Problem:
    """The problem from where a search has ended, but with latents at a draw from their prior."""
    rng = np.random.default_rng([problem.options.seed, number])
    q = result.posterior
    drawn = [replace(each, mean=rng.standard_normal(np.shape(each.mean)), root=NARROW * each.root) for each in q]
    return replace(problem, **begun_at(problem, replace(result, posterior=drawn)))


def _other_seed(problem: Problem, number: int) -> Problem:
    """The same problem, whose q starts elsewhere; not where samples depend on the seed."""
    if problem.program.sampled:
        return problem
    return replace(problem, options=replace(problem.options, seed=problem.options.seed + number))


# --- what was done ----------------------------------------------------------------------------------------------


def _of_nothing(program: Program, more: float) -> str:
    """That the latents are worth no more than none: by how many nats, since those of standardised data are others."""
    known = program.declarations.inputs
    inputs = [known[name] for group in program.groups for name in group.inputs if name in known]
    groups = inputs and all(each.label is not None for each in inputs)
    found = "the groups differ by no more than chance" if groups else "the latents explain nothing"
    level = missing_level(program)
    worth = f"{abs(more):.1f} nats {'more' if more > 0 else 'less'}" if round(more, 1) else "as much"
    return f"{found}: unrelated rows are worth {worth}{'; ' * bool(level)}{level}"


def _concluded(problem: Problem, tried: list[Attempt], nothing: str, drawn: bool) -> Result:
    """The best result; its message says what was done, its notes what remains doubtful."""
    best = _best(tried).result
    message, notes = best.message, list(best.notes)
    if len(tried) > 1:
        below = [round(problem.options.beta * (best.elbo - each.result.elbo), 1) + 0.0 for each in tried]
        ended = ", ".join(f"{nats} from {each.start}" for nats, each in zip(below, tried, strict=True))
        message += f"; best of {len(tried)} starts (nats below it: {ended})"
    if nothing:
        notes.append(nothing)
    draws = [each for each in tried if each.start.startswith("draw")]
    agreed = sum(each.result.elbo > best.elbo - SAME for each in draws)
    if drawn and agreed < AGREED * len(draws):
        alone = sum(each.result.elbo > best.elbo - SAME for each in tried) == 1
        found = "no two starts" if alone else f"{agreed} of {len(draws)} random starts"
        notes.append(f"there are {SEVERAL}, and {found} ended at this one: another seed may end higher")
    stopped = any(each.result.interrupted for each in tried)
    ends = tuple(each.result.parameters for each in tried if each.result is not best)
    return replace(best, message=message, notes=tuple(notes), ends=ends, interrupted=stopped)
