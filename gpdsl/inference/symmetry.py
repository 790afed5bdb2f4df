"""Where symmetry may hold a search: parameters that have not moved or gone the same way, latents that are alike."""

from __future__ import annotations

import itertools

import numpy as np

from gpdsl.inference.problem import Problem, Result
from gpdsl.program.groups import Group, columns_of, kernel_values
from gpdsl.symbolic.concavity import log_concavity

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
    if not program.mixing:
        return False
    groups = [group for group in program.groups if len(group.members) > 1 and not group.per_row]
    if not any(_alike(problem, group) for group in groups):
        return False
    return program.conjugate or not log_concavity(program.translator, program.observations).holds


def _alike(problem: Problem, group: Group) -> bool:
    """Whether two declared latents of a group start with the same kernel."""
    program, points = problem.program, columns_of(group, problem.program.translator)
    kernel = kernel_values(program.evaluator, group, program.parameters.constrain(problem.parameters), points)
    arguments = [np.asarray(a, float).reshape(group.factors, -1) for a in kernel.arguments]
    numbers = np.concatenate([np.asarray(kernel.scale, float)[:, None], *_per_latent(arguments, group.size)], axis=1)
    declared = np.repeat(np.arange(len(group.members)), [member.count for member in group.members])
    pairs = itertools.combinations(range(group.size), 2)
    return any(declared[a] != declared[b] and np.allclose(numbers[a], numbers[b]) for a, b in pairs)


def _per_latent(arguments: list[np.ndarray], size: int) -> list[np.ndarray]:
    return [np.broadcast_to(a, (size, a.shape[1])) for a in arguments]
