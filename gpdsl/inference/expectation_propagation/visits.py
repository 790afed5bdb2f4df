"""What a visit to some rows does: their sites, the sum of all sites, and a step of the hyperparameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from gpdsl.inference.blocks import Block, over_blocks
from gpdsl.inference.bound import GroupView, Views, assemble, by_latent
from gpdsl.inference.expectation_propagation.lattices import Normaliser
from gpdsl.inference.expectation_propagation.sites import Cavity, cavities, updated
from gpdsl.inference.expectation_propagation.tilted import Tilted, normaliser
from gpdsl.inference.natural.profiled import split_point
from gpdsl.inference.natural.sites import Sites, blend
from gpdsl.inference.natural.sweep import carried, covariances_at
from gpdsl.inference.natural.tied import Posterior, Tied, no_sites, posterior_of
from gpdsl.inference.posteriors.features import Covariances, Features
from gpdsl.inference.problem import Problem
from gpdsl.kernels.numerics import chosen, inverse_lower, log_det_factor
from gpdsl.program.evaluation import prior_means
from gpdsl.program.groups import KernelValues
from gpdsl.program.joint import Marginals
from gpdsl.program.program import take_rows
from gpdsl.program.rows import Rows

# The sum of all sites as a function of the inducing values: moments of rows under it, and what keeps it up to date.


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """What is learnt, the optimiser's memory, every row's `Sites` (relative to the prior mean), and their sums.

    `anchors` are the inducing inputs that the sums belong to, where these are learnt.
    """

    point: Any
    memory: Any
    sites: Any
    tied: list[Tied]
    anchors: Any


@dataclass(frozen=True)
class Group:
    """One group at some rows and hyperparameters: L, phi = L^-1 Kuf, what is left open, the kernels' scales."""

    factor: Float[Array, "g M M"]
    inverse: Float[Array, "g M M"]
    phi: Float[Array, "g M rows"]
    residual: Float[Array, "g rows"]
    scale: Float[Array, "latents"]


def groups_at(problem: Problem, point: Any, held: Any, rows: Rows) -> list[Group]:
    """Every group at some rows."""
    return [group_of(known, scale) for known, scale in covariances_at(problem, point, held, rows)]


def group_of(known: Covariances, scale: Array) -> Group:
    factor = jnp.linalg.cholesky(known.inducing)
    inverse = inverse_lower(factor)
    phi = inverse @ known.cross
    return Group(factor, inverse, phi, jnp.maximum(known.prior - jnp.sum(phi**2, axis=1), 0.0), scale)


def each_latent(shared: Float[Array, "g ..."], latents: int) -> Float[Array, "latents ..."]:
    """One for each latent of what latents with one kernel share."""
    return jnp.broadcast_to(shared, (latents, *shared.shape[1:]))


Moments = list[tuple[Array, Array]]


def marginals_of(
    problem: Problem, parameters: Mapping[str, Array], rows: Rows, scales: Sequence[Array], moments: Moments
) -> Marginals:
    """Marginals of all columns, from each group's moments at unit scale [latents, rows]."""
    seen = [
        GroupView(group, KernelValues(scale, ()), Features(mean, mean, mean))
        for group, scale, (mean, _) in zip(problem.program.groups, scales, moments, strict=True)
    ]
    there = Views(problem.program, parameters, rows, seen)
    return assemble(there, [(mean[None], variance[None]) for mean, variance in moments])


def block_size(problem: Problem) -> int:
    """Rows at a time in a pass over all of them: those of a visit, so that sampled moments have their points."""
    return min(problem.choice.batch, problem.count)


def moments_at(
    problem: Problem, parameters: Mapping[str, Array], rows: Rows, here: list[Group], posteriors: list[Posterior]
) -> tuple[Marginals, Float[Array, "rows latents"]]:
    """Marginals of the rows, and what the inducing values leave open in them."""
    scales, moments, left = [g.scale for g in here], [], []
    for g, q in zip(here, posteriors, strict=True):
        phi = each_latent(g.phi, q.mean.shape[0])
        residual = each_latent(g.residual, q.mean.shape[0])
        mean = jnp.einsum("jm,jmn->jn", q.mean, phi)
        moments.append((mean, jnp.sum(phi * (q.covariance @ phi), axis=1) + residual))
        left.append((jnp.zeros_like(mean), residual))
    marginals = marginals_of(problem, parameters, rows, scales, moments)
    return marginals, marginals_of(problem, parameters, rows, scales, left).variance[0]


def summed(problem: Problem, tied: list[Tied], here: list[Group], new: Sites, old: Sites) -> list[Tied]:
    """The sums with some rows' sites replaced."""
    linear, precision = new.linear - old.linear, new.precision - old.precision
    found = []
    for group, t, g in zip(problem.program.groups, tied, here, strict=True):
        columns, phi = slice(group.start, group.stop), each_latent(g.phi, group.size)
        moment = jnp.einsum("jn,jmn->jm", by_latent(group, linear[:, columns]), phi)
        gram = (phi * by_latent(group, precision[:, columns])[:, None, :]) @ jnp.swapaxes(phi, 1, 2)
        found.append(Tied(t.linear + moment, t.precision + 0.5 * (gram + jnp.swapaxes(gram, 1, 2)), t.factor))
    return found


def added_up(problem: Problem, state: State, rows: Rows, held: Any) -> list[Tied]:
    """The sums of all sites made anew, block by block."""
    first = groups_at(problem, state.point, held, jax.tree.map(lambda a: a[:1], rows))
    nothing = [no_sites(group.size, g.factor) for group, g in zip(problem.program.groups, first, strict=True)]

    def one(block: Block, _: None) -> tuple[list[Tied], None]:
        sites = jax.tree.map(lambda a: a * block.weight[:, None], block.beside)
        here = groups_at(problem, state.point, held, block.rows)
        found = summed(problem, nothing, here, sites, jax.tree.map(jnp.zeros_like, sites))
        return [replace(t, factor=jnp.zeros(())) for t in found], None

    total, _ = over_blocks(rows, block_size(problem), one, state.sites)
    return [replace(t, factor=n.factor) for t, n in zip(total, nothing, strict=True)]


DAMPING = 0.5
"""The share of the way to its target that a site goes on a visit."""

FAR = 0.05
"""Change of a site's precision that matters, as a share of the marginal's. Where sites settle the largest is 3e-4."""

SHORTEST_STEP = 1e-3
"""Halved further than that, a step is none."""

INDUCING_PACE = 0.5
"""Steps of inducing inputs, as a share of the learning rate times the spread of the inputs."""


@dataclass(frozen=True)
class Seen:
    """Some rows under a posterior: marginals, their sites (absolute, and their `own`), cavities, log Z of these."""

    q: Marginals
    sites: Sites
    own: Sites
    prior: Float[Array, "rows latents"]
    cavity: Cavity
    log_z: Normaliser
    here: list[Group]
    posteriors: list[Posterior]


@dataclass(frozen=True, eq=False)
class Visits:
    """What there is to do at the rows of a problem; `held` are inducing inputs that are not learnt."""

    problem: Problem
    tilted: Tilted
    rows: Rows
    held: Any

    def see(
        self, parameters: Mapping[str, Array], rows: Rows, here: list[Group], posteriors: list[Posterior], own: Sites
    ) -> Seen:
        """Some rows, under posteriors of all groups and with their own sites."""
        program = self.problem.program
        q, residual = moments_at(self.problem, parameters, rows, here, posteriors)
        prior = prior_means(program.evaluator, program.groups, parameters, rows, own.linear.shape[0])
        sites = Sites(own.linear + own.precision * prior, own.precision)
        cavity = cavities(q, residual, sites, prior, self.tilted.power)
        log_z = normaliser(self.tilted, program, parameters, rows, q, cavity.full)
        return Seen(q, sites, own, prior, cavity, log_z, here, posteriors)

    def visit(
        self, optimiser: optax.GradientTransformation, state: State, guarded: Array, numbers: Array, length: Array
    ) -> tuple[State, Array, Array]:
        """Where anything is not finite, the state stays as it was.

        `guarded` says that some site has a negative precision; without one no cavity is lost, and none is looked at.
        """
        problem, batch = self.problem, take_rows(self.rows, numbers)
        parameters = problem.program.parameters.constrain(state.point["parameters"])
        here = groups_at(problem, state.point, self.held, batch)
        tied = carried(problem, state.point, state.anchors, state.tied, [g.factor for g in here])
        posteriors = [posterior_of(t, g.scale) for t, g in zip(tied, here, strict=True)]
        own = Sites(state.sites.linear[numbers], state.sites.precision[numbers])
        seen = self.see(parameters, batch, here, posteriors, own)
        (part, _, improper), target = updated(self.tilted.power, seen.cavity, seen.log_z, seen.sites, 1.0)

        def step(length: Array | float) -> tuple[Sites, list[Tied]]:
            """The sites so far on the way to their targets, and the sums with them."""
            moved = blend(seen.sites, target, length)
            moved = Sites(moved.linear - moved.precision * seen.prior, moved.precision)
            return moved, summed(problem, tied, here, moved, own)

        def lost(length: Array) -> Array:
            """How many rows have no proper cavity after such a step."""
            moved, sums = step(length)
            after = [posterior_of(t, g.scale) for t, g in zip(sums, here, strict=True)]
            return jnp.sum(~self.see(parameters, batch, here, after, moved).cavity.proper)

        guarded = guarded | jnp.any(target.precision < 0)
        moved, sums = step(_proper_length(lost, improper, guarded, part.dtype))
        scaling = problem.data_rows / numbers.shape[0]
        value = scaling * part - sum(p.divergence for p in posteriors)
        gradient = jax.grad(self.expected)(state.point, batch, seen)
        updates, memory = optimiser.update(gradient, state.memory, state.point)
        updates = jax.tree.map(lambda u, unit: length * unit * u, updates, _paces(state.point, self.held))
        point = optax.apply_updates(state.point, updates)
        sound = jnp.isfinite(value) & _all_finite((point, sums, moved))
        after, before = (point, memory, sums, moved), (state.point, state.memory, tied, own)
        point, memory, sums, kept = chosen(sound, after, before)
        sites = jax.tree.map(lambda every, some: every.at[numbers].set(some), state.sites, kept)
        return State(point, memory, sites, sums, state.point["inducing"]), guarded, jnp.where(sound, value, jnp.nan)

    def evidence(self, state: State) -> tuple[Array, Array, Array]:
        """log Z_q of all rows at the sites as they are, block by block, with log priors.

        And how many rows are stuck, and how many have a site that is far from where a full step leads.
        """
        problem, program = self.problem, self.problem.program
        parameters = program.parameters.constrain(split_point(state.point, self.held)[0])
        first = groups_at(problem, state.point, self.held, jax.tree.map(lambda a: a[:1], self.rows))
        posteriors = [posterior_of(t, g.scale) for t, g in zip(state.tied, first, strict=True)]

        def one(block: Block, _: None) -> tuple[tuple[Array, Array, Array], None]:
            here = groups_at(problem, state.point, self.held, block.rows)
            seen = self.see(parameters, block.rows, here, posteriors, block.beside)
            found, target = updated(self.tilted.power, seen.cavity, seen.log_z, seen.sites, block.weight)
            far = jnp.abs(target.precision - seen.sites.precision) * seen.q.variance[0] > FAR
            return (*found[:2], jnp.sum(block.weight * jnp.any(far, axis=1))), None

        (total, stuck, unsettled), _ = over_blocks(self.rows, block_size(problem), one, state.sites)
        return total - sum(p.divergence for p in posteriors) + program.log_prior(parameters), stuck, unsettled

    def expected(self, point: Any, rows: Rows, seen: Seen) -> Float[Array, ""]:
        """E_q[log p(u)] + (N / |B|) sum_n log Z_n / alpha as a function of the hyperparameters, and log priors: eq. 4.

        What is `seen` is held: marginals and sites of the rows, their cavities, q(u), and the directions of the sites.
        """
        problem, program = self.problem, self.problem.program
        parameters = program.parameters.constrain(split_point(point, self.held)[0])
        known = covariances_at(problem, point, self.held, rows)
        total, moments, scales = jnp.zeros((), seen.q.mean.dtype), [], []
        for group, (numbers, scale), was, q in zip(program.groups, known, seen.here, seen.posteriors, strict=True):
            now = group_of(numbers, scale)
            columns = slice(group.start, group.stop)
            sites = by_latent(group, seen.own.linear[:, columns]), by_latent(group, seen.own.precision[:, columns])
            cross, mean, variance = _one_group(self.tilted.power, was, now, q, sites, group.size)
            total = total + cross
            moments.append((mean, variance))
            scales.append(scale)
        cavity = marginals_of(problem, parameters, rows, scales, moments)
        log_z: Normaliser = normaliser(self.tilted, program, parameters, rows, seen.q, seen.cavity.full)
        share = problem.data_rows / cavity.mean.shape[1]
        return total + share * jnp.sum(log_z(cavity)) / self.tilted.power + program.log_prior(parameters)


def several_visits(
    problem: Problem, tilted: Tilted, optimiser: optax.GradientTransformation
) -> Callable[..., tuple[State, Array]]:
    """Visits one after the other, in one compiled call: the state, and the evidence at each.

    The sites come by themselves, ahead of a state without them, so that they can be changed where they are.
    """

    def run(
        sites: Sites, rest: State, numbers: Array, lengths: Array, rows: Rows, held: Any, normals: Any
    ) -> tuple[State, Array]:
        def one(at: tuple[State, Array], now: tuple[Array, Array]) -> tuple[tuple[State, Array], Array]:
            state, guarded, value = visits.visit(optimiser, *at, *now)
            return (state, guarded), value

        visits = Visits(problem, tilted.using(normals), rows, held)
        begin = replace(rest, sites=sites), jnp.any(sites.precision < 0)
        (state, _), values = jax.lax.scan(one, begin, (numbers, lengths))
        return state, values

    return run


def _proper_length(lost: Callable[[Array], Array], before: Array, guarded: Array, dtype: Any) -> Array:
    """Of a step, halved until no more rows than before have lost their cavities; 0 where none is short enough."""

    def halved(at: tuple[Array, Array]) -> tuple[Array, Array]:
        fine = lost(at[0]) <= before
        return jnp.where(fine, at[0], 0.5 * at[0]), fine

    begin = jnp.asarray(DAMPING, dtype), ~guarded
    length, fine = jax.lax.while_loop(lambda at: ~at[1] & (at[0] > SHORTEST_STEP), halved, begin)
    return jnp.where(fine, length, 0.0)


def _paces(point: Any, held: Any) -> Any:
    """Of a step: inducing inputs move in units of their spread, with care, since what their values say changes."""

    def unit(points: Array) -> Array:
        each = jnp.std(points, axis=0)
        return INDUCING_PACE * jnp.where(each > 0, each, 1.0)

    parameters = jax.tree.map(jnp.ones_like, point["parameters"])
    return {"parameters": parameters, "inducing": jax.tree.map(unit, held) if point["inducing"] else []}


def _all_finite(tree: Any) -> Array:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))


def _one_group(
    power: float, was: Group, now: Group, q: Posterior, sites: tuple[Array, Array], latents: int
) -> tuple[Array, Array, Array]:
    """E_q[log p(u)], and moments of the cavities at the rows at unit scale, with q(u) and the cavities of u held."""
    root = jnp.sqrt(was.scale)[:, None]
    old, linear, precision = each_latent(was.phi, latents), *sites
    # u in the old whitened coordinates, and the change to the new ones: w = L_new^-1 L_old w_old sqrt(s_old / s_new)
    change = each_latent(jnp.swapaxes(was.factor, -1, -2) @ jnp.swapaxes(now.inverse, -1, -2), latents)  # transposed
    ratio = jnp.sqrt(was.scale / now.scale)
    direction = change @ each_latent(now.phi, latents)  # the new direction of each row in the old coordinates
    spread = q.covariance @ old
    explained = was.scale[:, None] * jnp.sum(old * spread, axis=1)
    kept = 1.0 - power * precision * explained
    proper = kept > 1e-6
    pull = jnp.where(proper, power * (precision * root * jnp.einsum("jm,jmn->jn", q.mean, old) - linear), 0.0)
    kept = jnp.where(proper, kept, 1.0)
    along = jnp.sum(direction * spread, axis=1)
    weight = jnp.where(proper, power * precision / kept, 0.0)
    mean = jnp.einsum("jm,jmn->jn", q.mean, direction) + root * along * pull / kept
    variance = jnp.sum(direction * (q.covariance @ direction), axis=1) + was.scale[:, None] * weight * along**2
    moved = jnp.swapaxes(change, -1, -2)
    squares = jnp.sum(moved * (moved @ q.covariance), axis=(1, 2)) + jnp.sum(
        (moved @ q.mean[..., None])[..., 0] ** 2, axis=1
    )
    log_det = each_latent(log_det_factor(now.factor), latents) + q.mean.shape[1] * jnp.log(now.scale)
    cross = -0.5 * jnp.sum(log_det + ratio**2 * squares)
    residual = each_latent(now.residual, latents)
    scaled = ratio[:, None]
    return cross, scaled * mean, scaled**2 * variance + residual
