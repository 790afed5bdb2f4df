"""Where sites on all rows start: at the prior, at the fit that another one goes on from, or off a saddle."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from gpdsl.inference.blocks import block_rows
from gpdsl.inference.bound import GroupView, Views, by_reading, views
from gpdsl.inference.natural.sites import Sites, coupled_sites, initial_sites, scales, site_marginals
from gpdsl.inference.natural.tied import Tied, no_sites
from gpdsl.inference.posteriors.family import Whitened, project
from gpdsl.inference.posteriors.features import RowFeatures
from gpdsl.inference.problem import Problem, as_arrays
from gpdsl.inference.starts import principal
from gpdsl.inference.warm import Carried, pulled, site_start
from gpdsl.program.cache import jit
from gpdsl.program.groups import Group
from gpdsl.program.joint import Marginals
from gpdsl.program.rows import Rows

# Where sites on minibatches start: at what is known, or at the prior, but for latents that would never leave it.

Added = tuple[list[Tied], list[Array]]
"""What some rows add to given sites, faintly, and the scales of the kernels."""


def departed(
    groups: Sequence[Group],
    prior: list[Tied],
    add: Callable[[list[Tied]], Added],
    seed: int,
    begun: Carried | None = None,
) -> Added:
    """Sites that are one as far as rows pull the latents, and mean displacements alone elsewhere; and the scales.

    Groups whose posterior is known have the sites that it takes.
    """
    added, scales = add(prior)
    known = [None] * len(groups) if begun is None else begun.heaviest
    if all(q is not None for q in known):
        return _known(known, added, scales), scales
    nothing = [no_sites(group.size, now.factor) for group, now in zip(groups, added, strict=True)]

    def displaced(chosen: Chosen) -> list[Tied]:
        toward = directions(groups, chosen, [tied.linear.shape[1] for tied in nothing], seed)
        return [_toward(tied, *each, scale) for tied, each, scale in zip(nothing, toward, scales, strict=True)]

    def look(chosen: Chosen) -> list[Bool[np.ndarray, "latents"]]:
        return _flat(*(add(displaced(chosen)) if chosen else (added, scales)))

    return _known(known, displaced(departures(groups, look)), scales), scales


def _known(known: Sequence[Whitened | None], others: list[Tied], scales: list[Array]) -> list[Tied]:
    """The sites of what is known, and the others."""
    found = zip(known, others, scales, strict=True)
    return [tied if q is None else _sites_of(q, tied.factor, scale) for q, tied, scale in found]


def _sites_of(q: Whitened, factor: Array, scale: Array) -> Tied:
    """The t(u) whose posterior q is, in the coordinates of `factor`: G = (S^-1 - I) / s, h = S^-1 m / sqrt(s)."""
    root, scales = np.asarray(q.root[0], float), np.asarray(scale, float)[:, None]
    inverse = np.linalg.inv(root)
    precision = np.swapaxes(inverse, -1, -2) @ inverse
    linear = np.einsum("jab,jb->ja", precision, np.asarray(q.mean[0], float)) / np.sqrt(scales)
    told = (precision - np.eye(root.shape[-1])) / scales[..., None]
    return Tied(jnp.asarray(linear, factor.dtype), jnp.asarray(told, factor.dtype), factor)


def _toward(tied: Tied, leading: np.ndarray, draws: np.ndarray, scale: Array) -> Tied:
    """Sites that displace some latents, if any."""
    if not (leading.any() or draws.any()):
        return tied
    whitened = leading[:, None] * np.asarray(jit(principal)(tied.factor)) + draws
    return replace(tied, linear=jnp.asarray(whitened / np.sqrt(np.asarray(scale))[:, None], tied.linear.dtype))


def _flat(added: Sequence[Tied], scales: Sequence[Array]) -> list[Bool[np.ndarray, "latents"]]:
    """Which latents of each group get no slope in their means, though there is one in their variances."""
    found = []
    for tied, scale in zip(added, scales, strict=True):
        steepest = np.max(np.abs(tied.linear), axis=1) * np.sqrt(scale)
        curved = np.max(np.abs(np.diagonal(tied.precision, axis1=1, axis2=2)), axis=1) * np.asarray(scale)
        found.append(np.asarray(slopeless(steepest, curved)))
    return found


# Leaving a start from which no step leads anywhere, by as few latents as that takes.
#
# In a Gaussian process regression network, y[p] = w[p] g, E[w g] has the gradient E[g] in the mean of w and E[w] in
# that of g: with both priors at zero the symmetric q is a stationary point, and hyperparameters learnt there explain
# all as noise. A start at draws from the prior makes g change its sign, and every w[p] has to follow at the same
# places: it ends at poor optima. One latent that starts elsewhere can be enough to give slopes to all others; it is
# looked for, and starts at the function that its prior varies along most, which has one sign wherever covariances are
# positive.


FLAT = 1e-8
"""Largest slope in the means, relative to that in the variances, of a latent that nothing pulls away from its start."""

ONE_BY_ONE = 8
"""Latents that are displaced one after the other; if more have to be, the rest is displaced at once."""

Latent = tuple[int, int]
"""A latent: the place of its group, and its number there."""

Chosen = tuple[Latent, ...]
"""Latents that are displaced, in the order in which they were found."""

Direction = tuple[Float[np.ndarray, "latents"], Float[np.ndarray, "latents M"]]
"""Where the latents of a group are displaced to: so many times the leading function, and a draw in whitened values."""

Look = Callable[[Chosen], Sequence[Bool[np.ndarray, "latents"]]]
"""Which latents of each group have no slope in their means, though in their variances, when some are displaced."""


def departures(groups: Sequence[Group], look: Look) -> Chosen:
    """The latents to displace."""
    chosen: Chosen = ()
    flat = look(chosen)
    for _ in range(ONE_BY_ONE):
        if not any(each.any() for each in flat):
            return chosen
        trials = [(*chosen, latent) for latent in _first(groups, flat)]
        left = [[a & b for a, b in zip(flat, look(trial), strict=True)] for trial in trials]
        best = int(np.argmin([sum(each.sum() for each in rest) for rest in left]))
        chosen, flat = trials[best], left[best]
    return (*chosen, *((place, int(latent)) for place, each in enumerate(flat) for latent in np.flatnonzero(each)))


def _first(groups: Sequence[Group], flat: Sequence[Bool[np.ndarray, "latents"]]) -> Iterator[Latent]:
    """The first flat element of every latent: elements of one latent differ in data alone."""
    for place, (group, each) in enumerate(zip(groups, flat, strict=True)):
        before = 0
        for member in group.members:
            own = np.flatnonzero(each[before : before + member.count])
            if own.size:
                yield place, before + int(own[0])
            before += member.count


def slopeless(steepest: Array, curved: Array) -> Array:
    """Where the largest slope in the means is nothing beside that in the variances."""
    return (steepest <= FLAT * curved) & (curved > 0)


def directions(groups: Sequence[Group], chosen: Chosen, sizes: Sequence[int], seed: int) -> list[Direction]:
    """Where the latents of each group start.

    The first chosen of a group starts at the leading function, others at a draw from the prior, as do row variables.
    """
    found = [(np.zeros(group.size), np.zeros((group.size, size))) for group, size in zip(groups, sizes, strict=True)]
    for place, latent in chosen:
        leading, draws = found[place]
        if groups[place].per_row or leading.any():
            draws[latent] = np.random.default_rng([seed, place, latent]).standard_normal(draws.shape[1])
        else:
            leading[latent] = 1.0
    return found


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
            return problem.compiled(partial(_start, problem, some), *arguments, brief=True)(*arguments)
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


def _start(
    problem: Problem, some: int, parameters: Any, inducing: Any, rows: Rows, toward: list[Direction] | None
) -> Begun:
    """Sites of all rows, displaced if the first `some` are all; and which latents of each group those leave flat."""
    program, dense, jitter, groups = problem.program, problem.layout.dense, problem.jitter, problem.program.groups
    key = jax.random.key(problem.options.seed)
    normals = problem.normals(key) if some == problem.count else None
    unseen = some < problem.count and program.sampled

    def _begun(begun: Carried, seen: Views, first: Sites) -> Sites:
        """Those of the posterior to begin with; where these are no Gaussian, others near it; and else the first."""
        own = site_start(seen, begun, normals)
        for sites in (pulled(seen, begun, own), own):
            _, known, _ = site_marginals(seen, sites)
            first = jax.tree.map(lambda a, b, known=known: jnp.where(jnp.isfinite(known), a, b), sites, first)
        return first

    constrained = program.parameters.constrain(parameters)
    first = jax.tree.map(lambda a: a[:some], rows)
    seen = views(program, constrained, inducing, first, dense, jitter)
    sites = initial_sites(program, constrained, rows, scales(seen))
    nowhere = [jnp.zeros(group.size, bool) for group in groups]
    if unseen or program.opaque:  # no slopes to look at before the first evaluations
        return sites, nowhere
    if problem.begun is not None and some == problem.count:
        return _begun(problem.begun, seen, sites), nowhere
    near = jax.tree.map(lambda a: a[:some], sites)
    moved = near if toward is None else _displaced(near, _functions(seen, toward))
    q, _, _ = site_marginals(seen, moved)
    slope = jax.grad(lambda q: jnp.sum(seen.expected(q, normals)))(q)
    # Of each group's latents, what all of their readings have in common.
    columns = _slopeless(q, slope)
    flat = [
        jnp.all(columns[group.start : group.stop].reshape(len(group.readings.all), group.size), axis=0)
        for group in groups
    ]
    return (moved if some == problem.count else sites), flat


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
