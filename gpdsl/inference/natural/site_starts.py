"""Where sites on all rows start: at the prior, at the fit that another one goes on from, or off a saddle."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from gpdsl.inference.blocks import block_rows
from gpdsl.inference.bound import GroupView, by_reading, views
from gpdsl.inference.estimators.expected_log_likelihood import expected_log_likelihood
from gpdsl.inference.natural.sites import Sites, coupled_sites, initial_sites, scales, site_marginals
from gpdsl.inference.natural.tied_starts import Chosen, Direction, departures, directions, slopeless
from gpdsl.inference.posteriors.family import project
from gpdsl.inference.posteriors.features import RowFeatures
from gpdsl.inference.problem import Problem, as_arrays
from gpdsl.inference.starts import principal
from gpdsl.inference.warm import site_start
from gpdsl.program.compilation import jit
from gpdsl.program.groups import Group
from gpdsl.program.joint import Marginals
from gpdsl.program.rows import Rows

Begun = tuple[Sites, list[Bool[Array, "latents"]]]
"""Sites, and which latents of each group they leave without a slope."""


def start_sites(problem: Problem) -> Sites:
    """Sites at the start of any site-based engine."""
    if problem.program.coupled:
        return coupled_sites(start_sites(problem.factorised()))
    groups, some = problem.program.groups, _looked_at(problem)
    given = problem.parameters, problem.inducing, problem.rows

    def toward(chosen: Chosen) -> list[Direction] | None:
        if not chosen:
            return None
        sizes = [problem.count if g.per_row else len(z) for g, z in zip(groups, problem.inducing, strict=True)]
        return as_arrays(directions(groups, chosen, sizes, problem.options.seed), problem.options.dtype)

    @functools.cache
    def begun(chosen: Chosen) -> Begun:
        arguments = *given, toward(chosen)
        if problem.begun is not None:  # a constant of the program
            return problem.compiled(_start(problem, some), *arguments, brief=True)(*arguments)
        return problem.shared(_start, *arguments, context=some, brief=True)(*arguments)

    chosen = departures(groups, lambda trial: [np.asarray(flat) for flat in begun(trial)[1]])
    sites, moved = begun(chosen)[0], toward(chosen)
    if moved is None or some == problem.count:
        return sites
    return _in_blocks(problem, sites, moved, some)


def _looked_at(problem: Problem) -> int:
    """How many rows are looked at for slopes: all, where their features are no burden."""
    if problem.layout.dense or any(group.per_row for group in problem.program.groups):
        return problem.count
    return block_rows(problem.program, problem.inducing, problem.count) or problem.count


def _start(problem: Problem, some: int) -> Callable[..., Begun]:
    """Sites of all rows, displaced if the first `some` are all; and which latents of each group those leave flat."""
    program, dense, jitter, groups = problem.program, problem.layout.dense, problem.jitter, problem.program.groups
    key = jax.random.key(problem.options.seed)
    normals = problem.normals(key) if some == problem.count else None
    unseen = some < problem.count and program.sampled

    def start(parameters: Any, inducing: Any, rows: Rows, toward: list[Direction] | None) -> Begun:
        constrained = program.parameters.constrain(parameters)
        first = jax.tree.map(lambda a: a[:some], rows)
        seen = views(program, constrained, inducing, first, dense, jitter)
        sites = initial_sites(program, constrained, rows, scales(seen))
        nowhere = [jnp.zeros(group.size, bool) for group in groups]
        if unseen or program.opaque:  # no slopes to look at before the first evaluations
            return sites, nowhere
        if problem.begun is not None and some == problem.count:
            begun = site_start(program, constrained, rows, seen, problem.begun, normals)
            _, known, _ = site_marginals(program, constrained, rows, seen, begun)
            return jax.tree.map(lambda a, b: jnp.where(jnp.isfinite(known), a, b), begun, sites), nowhere
        near = jax.tree.map(lambda a: a[:some], sites)
        moved = near if toward is None else _displaced(near, _functions(seen, toward))
        q, _, _ = site_marginals(program, constrained, first, seen, moved)

        def expected(q: Marginals) -> Array:
            return jnp.sum(expected_log_likelihood(program, constrained, first, q, normals, None))

        flat = _by_group(groups, _slopeless(q, jax.grad(expected)(q)))
        return (moved if some == problem.count else sites), flat

    return start


def _displaced(sites: Sites, functions: Float[Array, "rows columns"]) -> Sites:
    """Sites whose means are moved by the values of some functions."""
    return Sites(sites.linear + sites.precision * functions, sites.precision)


def _in_blocks(problem: Problem, sites: Sites, toward: list[Direction], size: int) -> Sites:
    """The sites displaced, with the features of so many rows at a time."""
    program = problem.program

    def functions(parameters: Any, inducing: Any, rows: Rows, toward: list[Direction]) -> Array:
        constrained = program.parameters.constrain(parameters)
        return _functions(views(program, constrained, inducing, rows, problem.layout.dense, problem.jitter), toward)

    compiled, found = jit(functions, brief=True), []
    for begin in range(0, problem.count, size):
        index = np.minimum(np.arange(begin, begin + size), problem.count - 1)
        rows = jax.tree.map(lambda a, index=index: a[index], problem.rows)
        found.append(compiled(problem.parameters, problem.inducing, rows, toward))
    return _displaced(sites, jnp.concatenate(found)[: problem.count])


def _functions(seen: Sequence[GroupView], toward: Sequence[Direction]) -> Float[Array, "rows columns"]:
    """Values at the rows of the functions that latents are displaced to, without the prior's mean."""
    found = []
    for view, (leading, draws) in zip(seen, toward, strict=True):
        features = view.features
        values = jnp.asarray(draws)
        if not isinstance(features, RowFeatures):
            whitened = principal(features.factor) * leading[:, None] + values
            values = project(features, whitened[None])[0]
        values = jnp.sqrt(view.kernel.scale)[:, None] * values
        found.append(by_reading(view.group, values[None])[0].T)
    return jnp.concatenate(found, axis=1)


def _slopeless(q: Marginals, slope: Marginals) -> Bool[Array, "columns"]:
    """Which columns have no slope in their means, by the gradients in all means and variances."""
    steepest = jnp.max(jnp.abs(slope.mean[0]) * jnp.sqrt(q.variance[0]), axis=0)
    curved = jnp.max(jnp.abs(slope.variance[0]) * q.variance[0], axis=0)
    return slopeless(steepest, curved)


def _by_group(groups: Sequence[Group], columns: Bool[Array, "columns"]) -> list[Bool[Array, "latents"]]:
    """Of each group's latents, what all of their readings have in common."""
    return [
        jnp.all(columns[group.start : group.stop].reshape(len(group.readings.all), group.size), axis=0)
        for group in groups
    ]
