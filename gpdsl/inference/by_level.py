"""Variational inference of latents that are independent at different levels: a small matrix for each set of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Int

from gpdsl.data import Data
from gpdsl.inference.bound import Layout
from gpdsl.inference.driver import Plan, ProfileSearch, searching
from gpdsl.inference.exact.parts import SMALL, Part, batched, falls_apart, together
from gpdsl.inference.exact.posterior import Regression
from gpdsl.inference.exact.system import Prior, Whitened, functionals, prior_at
from gpdsl.inference.expected_log_likelihood import expected_log_likelihood
from gpdsl.inference.plan.options import Options, decide
from gpdsl.inference.posteriors.family import Full
from gpdsl.inference.problem import Problem, Result, as_numpy
from gpdsl.inference.warm import Start
from gpdsl.program.evaluation import functionals_at, prior_means
from gpdsl.program.joint import Marginals, basis_columns, with_sums
from gpdsl.program.program import Program, make_rows
from gpdsl.program.rows import Rows, observed_mask, row_count
from gpdsl.program.white import white_beside
from gpdsl.symbolic.concavity import log_concavity, one_way

# The bound of a Gaussian posterior by one site for all rows that read the same values of the latents, where those that
# share no level are independent.
#
# In each set the latents f ~ N(m, K) times the sites exp(h_n'f_n - f_n' Lambda_n f_n / 2), Lambda = A A', are
# N(m + K a, K - K A B^-1 A' K) with B = I + A' K A, a = g - A B^-1 A' K g and g = h - Lambda m, and
#
#     KL = (tr B^-1 - v + a' K a + log |B|) / 2.
#
# No K is inverted: it may have a low rank. Optimal sites are those of `natural.sites`, of a likelihood that is not
# log-concave the nearest ones with a positive precision: rows that share all their levels have one together.

Learnt = Mapping[str, Array]

SLIGHT = 1e-12
"""What is added to variances, as a share of them, before they are factorised."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RowSites:
    """h and Lambda, of what is read of the latents without sums: at the first of rows alike, zero at the others."""

    linear: Float[Array, "rows basis"]
    precision: Float[Array, "rows basis basis"]


@dataclass(frozen=True, eq=False)
class Sets:
    """A part, and where its values belong: `row` and `element` of each, and the values `near` it in its row."""

    part: Part
    basis: np.ndarray

    @cached_property
    def columns(self) -> Int[np.ndarray, " elements"]:
        """The places of its elements among what is read without sums."""
        return np.searchsorted(self.basis, self.part.columns[0])

    @cached_property
    def _rows_of(self) -> np.ndarray:
        return np.asarray(self.part.sizes)[:, None] // len(self.columns)

    @cached_property
    def inside(self) -> np.ndarray:
        """Which values [sets, values] are none that fill a set up."""
        return np.arange(self.part.width) < self._rows_of * len(self.columns)

    @cached_property
    def element(self) -> np.ndarray:
        """[sets, values]"""
        return np.where(self.inside, np.arange(self.part.width) // self._rows_of, 0)

    @cached_property
    def row(self) -> np.ndarray:
        """The number of the row of each value, [sets, values]."""
        return np.take_along_axis(self.part.rows, np.arange(self.part.width) % self._rows_of, 1)

    @cached_property
    def near(self) -> np.ndarray:
        """Of each value the values of its row, element by element: [sets, values, elements]."""
        number = np.arange(self.part.width) % self._rows_of
        places = number[..., None] + np.arange(len(self.columns)) * self._rows_of[..., None]
        return np.minimum(places, self.part.width - 1)

    def gathered(self, values: Float[Array, "rows basis"]) -> Float[Array, "sets values"]:
        """What each value has, zero for those that fill up."""
        return jnp.where(self.inside, _at(values, self.row, self.columns[self.element]), 0.0)

    def root(self, precision: Float[Array, "rows basis basis"]) -> Float[Array, "rows elements elements"]:
        """A with A A' = Lambda among its own elements; where that is not positive, of what is."""
        own = precision[:, self.columns[:, None], self.columns[None, :]]
        if len(self.columns) == 1:
            return jnp.sqrt(jnp.maximum(own, 0.0))
        values, vectors = jnp.linalg.eigh(own)
        return vectors * jnp.sqrt(jnp.maximum(values, 0.0))[:, None, :]

    def blocks(self, root: Float[Array, "rows elements elements"]) -> Float[Array, "sets values values"]:
        """A of a whole set: a block for each row."""
        own = jnp.where(self.inside[..., None], _at(root, self.row, self.element), 0.0)
        sets, values = np.ix_(*map(range, self.row.shape))
        zero = jnp.zeros((*self.row.shape, self.part.width), root.dtype)
        return zero.at[sets[..., None], values[..., None], self.near].add(own, mode="promise_in_bounds")


def observed_rows(program: Program, rows: Rows) -> Int[np.ndarray, " some"]:
    """The numbers of the rows in which any output is."""
    seen = [np.asarray(observed_mask(rows, o)) > 0 for o in program.observations]
    return np.flatnonzero(np.any([mask.reshape(len(mask), -1).any(axis=1) for mask in seen], axis=0))


def levels_of(program: Program, rows: Rows, *, coupled: bool) -> Levels:
    """Rows that share no level apart: of all latents together, or group by group."""
    known, basis, found = observed_rows(program, rows), basis_columns(program), []
    # Of each row the first `known` one that reads the same values of all latents, itself where it is not known.
    read = [functionals_at(group, (one,), rows) for group in program.groups for one in group.readings.basis]
    points = np.concatenate([np.asarray(leaf)[known] for leaf in jax.tree.leaves(read)], axis=1)
    first = np.arange(row_count(rows))
    _, chosen, alike = np.unique(points, axis=0, return_index=True, return_inverse=True)
    first[known] = known[chosen[alike.ravel()]]

    known = np.unique(first[known])
    for groups in [list(program.groups)] if coupled else [[group] for group in program.groups]:
        columns = np.asarray([c for c in basis if any(g.start <= c < g.stop for g in groups)])
        elements = np.stack([np.zeros(len(columns), int), np.arange(len(columns))], axis=-1)
        apart = [Part(elements[None], columns[None], some[None], None) for some in together(groups, rows, known)]
        found += [Sets(part, basis) for part in batched(program.groups, apart)]
    return Levels(program, tuple(found), first)


@dataclass(frozen=True, eq=False)
class Levels:
    """A program whose rows fall into sets; q correlates all latents of a row, or those of a group alone."""

    program: Program
    sets: tuple[Sets, ...]
    first: Int[np.ndarray, " rows"]
    """Of each row the one that stands for it."""

    @cached_property
    def concave(self) -> bool:
        """Whether every precision is positive."""
        return log_concavity(self.program.translator, self.program.observations).holds

    def moments(
        self, learnt: Learnt, rows: Rows, sites: RowSites
    ) -> tuple[Float[Array, "rows basis"], Float[Array, "rows basis basis"], Float[Array, ""]]:
        """Means and covariances of every first row under q, and the KL divergence."""
        known, prior = prior_at(self.program, learnt, rows), self._prior(learnt, rows)
        away = sites.linear - jnp.einsum("nab,nb->na", sites.precision, prior)
        mean, total = prior, jnp.zeros(())
        among = jnp.broadcast_to(jnp.eye(prior.shape[1]), (*prior.shape, prior.shape[1]))
        for own in self.sets:
            signal = _covariance(known, own, prior.dtype)
            roots = own.blocks(own.root(sites.precision))
            loaded = jnp.swapaxes(roots, 1, 2) @ signal
            factor = jnp.linalg.cholesky(jnp.eye(own.part.width) + loaded @ roots)
            lost = _solved(factor, loaded)
            told = own.gathered(away)
            alpha = told - (roots @ _solved(factor, _solved(factor, loaded @ told[..., None]), 1))[..., 0]
            moved = (signal @ alpha[..., None])[..., 0]
            inverse = _solved(factor, jnp.broadcast_to(jnp.eye(own.part.width), factor.shape))
            diagonal = jnp.diagonal(factor, axis1=1, axis2=2)
            total += 0.5 * (jnp.sum(inverse**2) - inverse.shape[0] * inverse.shape[1] + jnp.sum(alpha * moved))
            total += jnp.sum(jnp.log(diagonal))
            at = jnp.where(own.inside, own.row, len(prior)), own.columns[own.element]
            mean = mean.at[at].add(moved, mode="drop")
            covariance = signal - jnp.swapaxes(lost, 1, 2) @ lost
            of_row = jnp.take_along_axis(covariance, own.near, axis=2, mode="promise_in_bounds")
            among = among.at[at[0][..., None], at[1][..., None], own.columns].set(of_row, mode="drop")
        return mean, among, total

    def bound(self, learnt: Learnt, rows: Rows, sites: RowSites) -> Float[Array, ""]:
        """The bound at these sites, with the log priors of parameters."""
        mean, among, divergence = self.moments(learnt, rows, sites)
        return (
            self.expected(learnt, rows, mean, among)
            - divergence
            + self.program.log_prior(self.program.parameters.constrain(learnt))
        )

    def expected(self, learnt: Learnt, rows: Rows, mean: Array, among: Array) -> Float[Array, ""]:
        """The expected log likelihood, from the moments of first rows."""
        program, prior = self.program, self._prior(learnt, rows)
        mean, among = mean[self.first] + prior - prior[self.first], among[self.first]
        every = with_sums(program, jnp.eye(mean.shape[-1], dtype=mean.dtype))
        whole = jnp.einsum("ca,ncd,db->nab", every, among, every)[None]
        variance = jnp.diagonal(whole, axis1=2, axis2=3)
        q = Marginals((mean @ every)[None], variance, whole if program.coupled else None)
        return jnp.sum(expected_log_likelihood(program, program.parameters.constrain(learnt), rows, q))

    def target(self, learnt: Learnt, rows: Rows, sites: RowSites) -> tuple[Float[Array, ""], RowSites]:
        """The bound at some sites, and those that a full natural-gradient step leads to."""
        mean, among, divergence = self.moments(learnt, rows, sites)
        found, (slope, bend) = jax.value_and_grad(self.expected, argnums=(2, 3))(learnt, rows, mean, among)
        precision = self._positive(-(bend + jnp.swapaxes(bend, 1, 2)), among)
        prior = self.program.log_prior(self.program.parameters.constrain(learnt))
        linear = slope + jnp.einsum("nab,nb->na", precision, mean)
        return found - divergence + prior, RowSites(linear, precision)

    def _positive(self, precision: Array, among: Array) -> Float[Array, "rows basis basis"]:
        """The nearest precisions that are positive, in units of the posterior: X = R' Lambda R where R R' = S."""
        if self.concave:
            return precision
        for own in self.sets:
            at = np.ix_(np.unique(own.part.rows), own.columns, own.columns)
            spread = among[at]
            slight = SLIGHT * jnp.eye(len(own.columns)) * spread
            root = jnp.linalg.cholesky(spread + slight)
            values, vectors = jnp.linalg.eigh(jnp.swapaxes(root, 1, 2) @ precision[at] @ root)
            lacking = _solved(root, vectors, 1) * jnp.sqrt(jnp.maximum(-values, 0.0))[:, None, :]
            precision = precision.at[at].add(lacking @ jnp.swapaxes(lacking, 1, 2))
        return precision

    def whitened(self, learnt: Learnt, rows: Rows, sites: RowSites) -> list[Whitened]:
        """The sites as values with unit noise, z = A'f + e, of which the posterior is that of exact inference."""
        found, away = [], sites.linear - jnp.einsum("nab,nb->na", sites.precision, self._prior(learnt, rows))
        for own in self.sets:
            root = own.root(sites.precision)
            squares = jnp.sum(root**2, axis=1)
            z = jnp.einsum("nae,na->ne", root, away[:, own.columns]) / jnp.where(squares > 0, squares, 1.0)
            z = jnp.where(own.inside, _at(z, own.row, own.element), 0.0)
            found.append(Whitened(z, jnp.moveaxis(root[own.part.rows], 1, -1)))
        return found

    def _prior(self, learnt: Learnt, rows: Rows) -> Float[Array, "rows basis"]:
        program, count = self.program, next(iter(rows.observed.values())).shape[0]
        parameters = program.parameters.constrain(learnt)
        means = prior_means(program.evaluator, program.groups, parameters, rows, count)
        return means[:, basis_columns(program)]


def _covariance(prior: Prior, own: Sets, dtype: Any) -> Array:
    """K of a part: what unit loadings see."""
    count = len(own.columns)
    shape = len(own.part.rows), count, count, own.part.rows.shape[1]
    return prior.signal(own.part, jnp.broadcast_to(jnp.eye(count, dtype=dtype)[None, :, :, None], shape))


def _at(values: Array, *places: np.ndarray) -> Array:
    """values[places], which need not be looked at: the compiler would do so, for many rows slowly."""
    return values.at[places].get(mode="promise_in_bounds")


def _solved(factor: Array, values: Array, trans: int = 0) -> Array:
    return jax.vmap(lambda a, b: solve_triangular(a, b, lower=True, trans=trans))(factor, values)


# The bound over the sites of rows in sets, maximised: natural gradients inside, L-BFGS over the parameters outside.

ROWS, VALUES, WIDEST, PARTS = 1000, 200, SMALL, 24
"""Rows or values of latents from which this is the default, values of the largest set up to which it is, and parts that
are not alike."""

STEPS, AT_REST = 100, 1e-7
"""Natural-gradient steps at one place of the parameters at most, and the gain in nats that ends them."""


def plan_by_level(program: Program, data: Data, options: Options, _: Start | None = None) -> Plan | None:
    """The choice of sites in sets; None where something else is asked for or due."""
    plain = options.engine == "vi" and options.schedule == "joint" and options.optimizer == "auto"
    asked = not plain or options.inducing is not None or options.batch or options.learn_inducing
    asked = asked or options.expectations == "sampled" or options.posterior not in {"auto", "full", "coupled"}
    if asked or (options.devices or 1) > 1 or not _suited(program):
        return None
    rows, mixed = make_rows(program, data), program.mixing and options.posterior != "full"
    kinds = (True, False) if mixed else (False,)
    found = [(coupled, levels_of(program, rows, coupled=coupled).sets) for coupled in kinds]
    afforded = [(coupled, sets) for coupled, sets in found if _afforded(sets, data.rows)]
    if not afforded or (options.posterior == "coupled" and not afforded[0][0]):
        return None
    posterior = "coupled" if afforded[0][0] else "full"
    decided = replace(options, inducing=0, batch=0, posterior=posterior, optimizer="natural")
    choice = decide(decided, data.rows, opaque=False)
    reasons = {
        "posterior": "rows that share no level of a label are independent: each set of them is a small matrix",
        "optimizer": "natural gradients for q, L-BFGS for the rest",
    }
    plan = Layout(Full(), True)
    sizes = tuple(size for own in afforded[0][1] for size in own.part.sizes)
    return Plan(replace(choice, reasons=reasons, sets=sizes), plan, functionals(program, rows), BY_LEVEL)


def _suited(program: Program) -> bool:
    """Whether all latents are independent at different levels, and no two modes of a level are alike."""
    if program.fields or program.opaque or program.sampled or not program.groups:
        return False
    apart = all(falls_apart(group) and not (group.per_row or white_beside(group)) for group in program.groups)
    asked = program.translator, program.observations
    return apart and (log_concavity(*asked).holds or one_way(*asked))


def _afforded(sets: Sequence[Sets], rows: int) -> bool:
    many = rows >= ROWS or sum(sum(own.part.sizes) for own in sets) >= VALUES
    return many and len(sets) <= PARTS and all(own.part.width <= WIDEST for own in sets)


class LevelsProfile:
    """The bound maximised over the sites at any learnt parameters; the sites begin where they ended before."""

    joint = None

    def __init__(self, problem: Problem, _: Result | None = None) -> None:
        self.problem = problem
        self.levels = levels_of(problem.program, problem.rows, coupled=problem.program.coupled)
        size = len(basis_columns(problem.program))
        dtype = jnp.dtype(problem.options.dtype)
        self.sites = RowSites(jnp.zeros((problem.count, size), dtype), jnp.zeros((problem.count, size, size), dtype))
        begin = problem.parameters, problem.rows, self.sites
        self.target = problem.compiled(self.levels.target, *begin)
        self.slope = problem.compiled(jax.grad(self.levels.bound), *begin)
        self.whitened = problem.compiling(self.levels.whitened)

    def __call__(self, learnt: Learnt) -> tuple[float, Learnt]:
        """The bound, log priors included, and its gradient."""
        return self.value(learnt), self.slope(learnt, self.problem.rows, self.sites)

    def value(self, learnt: Learnt) -> float:
        """The bound alone."""
        rows, sites, step = self.problem.rows, self.sites, 1.0
        value, target = self.target(learnt, rows, sites)
        if not np.isfinite(value):
            sites = jax.tree.map(jnp.zeros_like, sites)
            value, target = self.target(learnt, rows, sites)
        for _ in range(STEPS):
            tried = jax.tree.map(lambda old, new, step=step: old + step * (new - old), sites, target)
            found, following = self.target(learnt, rows, tried)
            gain = float(found - value)
            if np.isfinite(gain) and gain > -AT_REST:
                sites, value, target = tried, found, following
                if step == 1.0 and gain < AT_REST:
                    break
                step = min(1.0, 2.0 * step)
            elif step < 1e-6:
                break
            else:
                step *= 0.5
        if np.isfinite(value):
            self.sites = sites
        return float(value)

    def at(self, learnt: Learnt) -> Result:
        """The best q there."""
        problem, value = self.problem, self.value(learnt)
        values = as_numpy(self.whitened(learnt, problem.rows, self.sites))
        held = Regression(tuple(own.part for own in self.levels.sets), tuple(values))
        read = as_numpy(functionals(problem.program, problem.rows))
        return Result(as_numpy(dict(learnt)), read, [], np.ones(1), value, 0.0, held=held)


BY_LEVEL = searching(
    "by level", lambda problem: ProfileSearch(problem, LevelsProfile(problem)), refined=False, profiled=LevelsProfile
)
