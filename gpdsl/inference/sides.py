"""Rows at a lower maximum of their own: a last look from all sides where a likelihood is not log-concave.

With q the product of a row's cavity N(c) and its site, the bound of the row, E_q[log p] - KL(q, cavity), has one
maximum in its marginal N(m, v) if p is log-concave. If not, it may have several, and which of them a search ends at is
chance. So every row is looked at from starts all over its cavity; where it is higher elsewhere, q is moved there, and
the search goes on. What it finds is kept only if the whole bound is higher.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from gpdsl.inference.bound import views, whitened_marginals
from gpdsl.inference.expected_log_likelihood import log_density
from gpdsl.inference.natural.sites import Setting, Sites, site_target, whitened_posterior
from gpdsl.inference.posteriors.family import Full, Linear, Whitened
from gpdsl.inference.problem import Problem, Result, as_arrays, tidy
from gpdsl.inference.resolution import begun_at, prior_widths
from gpdsl.program.evaluation import prior_means
from gpdsl.program.joint import Marginals
from gpdsl.program.program import take_rows
from gpdsl.program.rows import Rows, Scope, row_count
from gpdsl.symbolic.concavity import log_concavity

HIGHER = 0.05
"""Nats by which a row's bound has to be higher elsewhere for a search from there."""

ROUNDS = 4
"""Searches from elsewhere, at most."""

MEANS = tuple(float(each) for each in np.linspace(-4, 4, 17))
WIDTHS = (0.8, 0.2, 0.05)
"""Where a row's own search starts: means and widths, in standard deviations of its cavity."""

PEAKS = 3
"""So many of the highest are searched from."""

STEPS, SHARE = 30, 0.5
"""Steps of such a search, and the share of a natural-gradient step that each goes."""

SEVERAL = "several maxima"
"""What the notes of a search speak of where others may be higher."""

FLATTEST = 0.1
"""Least precision of a marginal, as a share of its cavity's."""


@dataclass(frozen=True)
class Elsewhere:
    """By how much a row's bound would be higher elsewhere, and the sites there; and those of the search's end."""

    gain: Float[np.ndarray, "rows columns"]
    there: Sites
    here: Sites


def from_all_sides(problem: Problem, result: Result, engine: Callable[[Problem], Result]) -> Result:
    """The result, or that of a search from where rows have a higher bound, if the whole bound is higher."""
    if not _may_have_sides(problem, result):
        return result
    monitor, history = problem.monitor, list(problem.monitor.history)
    try:
        for _ in range(ROUNDS):
            seen = _elsewhere(problem, result)
            found = _best_from(problem, result, engine, seen)
            if found is None:
                monitor.history[:] = history
                return replace(result, notes=(*result.notes, *_doubts(seen, problem.options.beta)))
            result, history = found, list(monitor.history)
            if found.interrupted:
                break
    except KeyboardInterrupt:  # between two searches
        return replace(result, interrupted=True)
    return result


def _may_have_sides(problem: Problem, result: Result) -> bool:
    program = problem.program
    if not result.posterior:
        return False
    plain = problem.at_once and not (program.coupled or program.sampled or program.opaque or problem.choice.batch)
    q = isinstance(problem.layout.family, Full | Linear) and problem.layout.family.components == 1
    rows = not any(group.per_row for group in program.groups)
    ended = np.isfinite(result.elbo) and not result.interrupted
    if not (plain and q and rows and ended):
        return False
    return log_concavity(program.translator, program.observations).verdict != "proved"


def _doubts(seen: Elsewhere, beta: float) -> tuple[str, ...]:
    count = int(np.sum(np.any(seen.gain > HIGHER, axis=1)))
    if not count:
        return ()
    return (
        f"the bound has {SEVERAL}: of {count} row(s) it is up to {beta * seen.gain.max():.2g} nats higher where q "
        "is elsewhere, though that of all rows together was not higher from there; other starts may find more",
    )


def _best_from(problem: Problem, result: Result, engine: Callable[[Problem], Result], seen: Elsewhere) -> Result | None:
    """A result from where rows are moved that gain by it, or the one that gains most, if the whole bound is higher."""
    chosen = seen.gain > HIGHER
    for moved in (chosen, seen.gain == seen.gain.max())[: min(int(chosen.sum()), 2)]:
        q = _moved(problem, result, seen, moved)
        if not all(np.all(np.isfinite(each.root)) for each in q):
            continue
        found = engine(replace(problem, **begun_at(problem, replace(result, posterior=q)), continued=True))
        if found.elbo > result.elbo + HIGHER:
            count = int(np.sum(moved.any(axis=1)))
            message = f"{found.message}; from where the bound of {count} row(s) is higher"
            return replace(found, message=message, notes=tuple(dict.fromkeys((*result.notes, *found.notes))))
        if found.interrupted:
            raise KeyboardInterrupt
    return None


def _elsewhere(problem: Problem, result: Result) -> Elsewhere:
    given = _given(problem, result)
    compiled = problem.shared(_searching, given, problem.rows, brief=True)
    gain, there, here = compiled(given, problem.rows)
    return Elsewhere(np.nan_to_num(np.asarray(gain), nan=0.0, posinf=0.0, neginf=0.0), there, here)


def _given(problem: Problem, result: Result) -> Any:
    return as_arrays((result.parameters, result.inducing, list(result.posterior)), problem.options.dtype)


def _searching(problem: Problem, _: Any, given: Any, rows: Rows) -> tuple[Array, Sites, Sites]:
    """What the bound of every row and column gains elsewhere, the sites there, and those of q."""
    program, dense = problem.program, problem.layout.dense
    learnt, inducing, posterior = given
    parameters = program.parameters.constrain(learnt)
    seen = views(program, parameters, inducing, rows, dense, problem.jitter)
    q = whitened_marginals(seen, posterior)

    def expected(q: Marginals) -> Array:
        return seen.expected(q)[0]

    here = site_target(q, jax.grad(lambda q: jnp.sum(expected(q)))(q))

    def look(column: Array) -> tuple[Array, Array, Array]:
        def expected_at(mean: Array, variance: Array) -> Array:
            at = q.mean.at[0, :, column].set(mean), q.variance.at[0, :, column].set(variance)
            return expected(Marginals(*at))

        mean, variance = q.mean[0, :, column], q.variance[0, :, column]
        cavity = 1.0 / variance - here.precision[:, column], mean / variance - here.linear[:, column]
        return _highest(expected_at, q.mean[0, :, column], q.variance[0, :, column], *cavity)

    gain, linear, precision = jax.lax.map(look, jnp.arange(q.mean.shape[-1]))
    return gain.T, Sites(linear.T, precision.T), here


def _highest(
    expected: Callable[[Array, Array], Array],
    mean: Float[Array, "rows"],
    variance: Float[Array, "rows"],
    precision: Float[Array, "rows"],
    linear: Float[Array, "rows"],
) -> tuple[Array, Array, Array]:
    """What every row gains where its own bound is highest, and the site there, from its marginals and its cavity."""
    proper = precision > 0
    wide = 1.0 / jnp.where(proper, precision, 1.0)
    centre = wide * linear

    def own(mean: Array, variance: Array) -> Array:
        ratio = variance / wide
        return expected(mean, variance) - 0.5 * (ratio + (mean - centre) ** 2 / wide - 1.0 - jnp.log(ratio))

    def profile(shift: Array) -> tuple[Array, Array]:
        values = jax.lax.map(
            lambda w: own(centre + shift * jnp.sqrt(wide), w**2 * wide), jnp.asarray(WIDTHS, wide.dtype)
        )
        return jnp.max(values, axis=0), jnp.asarray(WIDTHS, wide.dtype)[jnp.argmax(values, axis=0)]

    shifts = jnp.asarray(MEANS, wide.dtype)
    heights, widths = jax.lax.map(profile, shifts)
    around = jnp.pad(heights, ((1, 1), (0, 0)), constant_values=-jnp.inf)
    peaks = jnp.where((heights >= around[:-2]) & (heights >= around[2:]), heights, -jnp.inf)
    _, places = jax.lax.top_k(peaks.T, PEAKS)

    def climb(place: Array) -> tuple[Array, Array, Array]:
        own_width = jnp.take_along_axis(widths, place[None], axis=0)[0]
        begin = centre + shifts[place] * jnp.sqrt(wide), own_width**2 * wide

        def step(_: int, at: tuple[Array, Array]) -> tuple[Array, Array]:
            mean, variance = at
            slope, curve = jax.grad(lambda m, v: jnp.sum(expected(m, v)), (0, 1))(mean, variance)
            target = jnp.maximum(1.0 / wide - 2.0 * curve, FLATTEST / wide)
            linear = centre / wide + slope + (target - 1.0 / wide) * mean
            moved = (1.0 - SHARE) / variance + SHARE * target
            return ((1.0 - SHARE) * mean / variance + SHARE * linear) / moved, 1.0 / moved

        mean, variance = jax.lax.fori_loop(0, STEPS, step, begin)
        return own(mean, variance), mean, variance

    values, means, variances = jax.lax.map(climb, places.T)
    best = jnp.argmax(jnp.nan_to_num(values, nan=-jnp.inf), axis=0)[None]
    value, m, v = (jnp.take_along_axis(each, best, axis=0)[0] for each in (values, means, variances))
    gain = jnp.where(proper, value - own(mean, variance), 0.0)
    return gain, m / v - centre / wide, 1.0 / v - 1.0 / wide


def _moved(
    problem: Problem, result: Result, seen: Elsewhere, chosen: Bool[np.ndarray, "rows columns"]
) -> list[Whitened]:
    """q where the chosen rows have the sites of elsewhere."""
    arguments = _given(problem, result), problem.rows, seen.there, seen.here, jnp.asarray(chosen)
    return tidy(problem.shared(_moving, *arguments, brief=True)(*arguments))


def _moving(
    problem: Problem, _: Any, given: Any, rows: Rows, there: Sites, here: Sites, chosen: Array
) -> list[Whitened]:
    program = problem.program
    learnt, inducing, _ = given
    sites = jax.tree.map(lambda a, b: jnp.where(chosen, a, b), there, here)
    at = Setting.at(program, learnt, inducing, rows, problem.layout.dense, problem.jitter)
    return whitened_posterior(at, sites)


# Whether rows say several things of a latent: a likelihood times the prior with two peaks of about the same height.
#
# Which of them q is at is chance then, and rows may hold each other at the worse ones: searches from elsewhere tell.

ROWS = 100
"""Rows looked at, spread evenly."""

NORMALS = np.linspace(-4.0, 4.0, 81)
"""Where each latent is put, in prior standard deviations about its mean, the others at theirs."""

CLOSE, VALLEY = 3.0, 0.5
"""Nats that a peak may be lower than the highest to count, and that it has to stand above the valley between."""


def rows_have_peaks(problem: Problem) -> bool:
    """Whether some row has two peaks in one of its latents, at the start."""
    program = problem.program
    fixed = program.sampled or program.opaque or program.conjugate or problem.choice.batch or problem.rows.mesh
    if fixed or not program.groups or log_concavity(program.translator, program.observations).holds:
        return False
    step = max(problem.count // ROWS, 1)
    some = problem.rows if step == 1 else take_rows(problem.rows, slice(None, None, step))
    given = as_arrays(problem.parameters, problem.options.dtype), some
    widths = prior_widths(problem, program.parameters.constrain(given[0]), some)
    profiles = np.asarray(problem.shared(_profiles, *given, widths, brief=True)(*given, widths), float)
    return any(_two_peaks(profile) for profile in profiles.reshape(len(NORMALS), -1).T)


def _profiles(
    problem: Problem, _: Any, learnt: dict[str, Array], rows: Rows, widths: Float[Array, " columns"]
) -> Array:
    """Log density of each row times the prior's, along each of its latents."""
    program = problem.program
    parameters, count = program.parameters.constrain(learnt), row_count(rows)
    means = prior_means(program.evaluator, program.groups, parameters, rows, count)
    normals = jnp.asarray(NORMALS, widths.dtype)
    moves = normals[:, None, None] * jnp.diag(widths)  # [grid, which, columns]
    scope = Scope(parameters, rows, means + moves[:, :, None, :])
    shape = (len(normals), len(widths), count)
    return log_density(program, scope, shape) - 0.5 * normals[:, None, None] ** 2


def _two_peaks(profile: Float[np.ndarray, " grid"]) -> bool:
    """Whether a second peak comes near the highest, with a valley between them."""
    if not np.isfinite(profile).any():
        return False
    values = np.nan_to_num(profile, nan=-np.inf)
    top = int(np.argmax(values))
    for side in (values[top::-1], values[top:]):
        lowest = np.minimum.accumulate(side)
        if np.any((side > lowest + VALLEY) & (side > side[0] - CLOSE)):
            return True
    return False
