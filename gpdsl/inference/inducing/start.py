"""The inducing functionals of each group: all that its rows look at, or some points of theirs: SAVIGP section 9.2.

Some points are k-means centres, or the rows that explain most of the prior variance one after the other (`greedy`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt64
from scipy.linalg import solve_triangular
from scipy.sparse import csr_matrix

from gpdsl.data import Data, DataError, TooManyInducing
from gpdsl.errors import GpdslWarning
from gpdsl.inference.inducing.featured import featured, few_enough
from gpdsl.inference.plan.options import Choice
from gpdsl.inference.posteriors.features import factorise, sparse_features
from gpdsl.inference.problem import as_arrays
from gpdsl.kernels.covariance import covariance, variance
from gpdsl.kernels.form import telling
from gpdsl.kernels.functionals import Derivatives, Functionals, Integrals, Values, blocks, every_point
from gpdsl.kernels.numerics import jitter_for
from gpdsl.program.cache import jit
from gpdsl.program.evaluation import functionals_at
from gpdsl.program.groups import Group, kernel_values
from gpdsl.program.program import Program, make_rows
from gpdsl.program.rows import Rows
from gpdsl.program.white import white_beside

# Inducing points that explain the prior: greedy conditional variance, which is pivoted Cholesky.
#
# Each point is the row whose value is known least given those at the points before it, under the kernel at the starting
# parameters. Burt, Rasmussen and van der Wilk (2020), Convergence of sparse variational inference, section 4. Points
# are found some at a time, among the rows that are known least, as long as hardly another can be known less: the matrix
# products of a block take a tenth of the time of as many vectors'.

CANDIDATES = 256
"""Rows known least, among which the points of a block are found."""

NEARLY = 0.7
"""Share of the largest variance left in any other row that the next point of a block has at least."""


@dataclass(frozen=True)
class Pivots:
    """Row numbers in the order they were chosen, the mean prior variance, and the share of it open after each."""

    chosen: Int[np.ndarray, "count"]
    prior: float
    open: Float[np.ndarray, "count"]


def greedy_points(
    program: Program, group: Group, points: Float[np.ndarray, "n D"], count: int, dtype: str
) -> Float[np.ndarray, "at_most_count D"]:
    """At most `count` of the points: fewer when these determine all others."""
    return points[pivots(program, group, points, count, dtype).chosen]


def pivots(program: Program, group: Group, points: Float[np.ndarray, "n D"], count: int, dtype: str) -> Pivots:
    """The order in which at most `count` points are chosen, until these determine all others.

    Latents with different kernels share the points; their mean covariance is what the points explain.
    """
    learnt = {name: jnp.asarray(value, dtype) for name, value in program.parameters.unconstrained().items()}
    everywhere = np.asarray(points, dtype)

    def kernels(learnt: dict[str, Array]) -> list[tuple[Array, ...]]:
        kernel = kernel_values(program.evaluator, group, program.parameters.constrain(learnt))
        return [tuple(a[g] for a in kernel.arguments) for g in range(group.factors)]

    def cross(learnt: dict[str, Array], some: Array, points: Array) -> Array:
        found = [covariance(group.form, each, Values(some), Values(points)) for each in kernels(learnt)]
        return jnp.mean(jnp.stack(found), axis=0)

    def prior(learnt: dict[str, Array], points: Array) -> Array:
        return jnp.mean(jnp.stack([variance(group.form, each, Values(points)) for each in kernels(learnt)]), axis=0)

    compiled, diagonal = jit(cross), np.asarray(jit(prior)(learnt, everywhere), float)
    tolerance = jitter_for(jnp.dtype(dtype))
    return pivoted(lambda some: np.asarray(compiled(learnt, everywhere[some], everywhere)), diagonal, count, tolerance)


def pivoted(
    rows_of: Callable[[Int[np.ndarray, "c"]], Float[np.ndarray, "c n"]],
    prior: Float[np.ndarray, "n"],
    count: int,
    tolerance: float,
) -> Pivots:
    """Pivoted Cholesky of a covariance matrix with the diagonal `prior`, by blocks of rows that `rows_of` gives."""
    size, most = len(prior), min(count, len(prior))
    factor, residual, mean = np.empty((most, size)), np.array(prior), float(np.mean(prior))
    chosen: list[int] = []
    left_open: list[float] = []
    while len(chosen) < most:
        known, top = len(chosen), np.argsort(-residual, kind="stable")[:CANDIDATES]
        bound = 0.0 if len(top) == size else NEARLY * float(residual[top[-1]])
        wide, told = rows_of(top), factor[:known, top]
        picks, local = _among(wide[:, top] - told.T @ told, most - known, bound, tolerance * mean)
        if not picks:
            break
        new = solve_triangular(local, wide[picks] - told[:, picks].T @ factor[:known], lower=True)
        factor[known : known + len(picks)] = new
        for row, pick in zip(new, picks, strict=True):
            residual = np.maximum(residual - row**2, 0.0)
            residual[top[pick]] = 0.0
            chosen.append(int(top[pick]))
            left_open.append(float(np.mean(residual)) / mean)
    return Pivots(np.asarray(chosen, int), mean, np.asarray(left_open))


def _among(
    covariance: Float[np.ndarray, "c c"], most: int, bound: float, least: float
) -> tuple[list[int], Float[np.ndarray, "k k"]]:
    """Pivots of a small matrix and their Cholesky factor: while the best has as much left as the others' `bound`.

    One of any that have more than `least` is always there.
    """
    residual, factor = np.diag(covariance).copy(), np.zeros((0, len(covariance)))
    picks: list[int] = []
    while len(picks) < min(most, len(covariance)):
        pivot = int(np.argmax(residual))
        if residual[pivot] <= least or (picks and residual[pivot] < bound):
            break
        row = (covariance[pivot] - factor[:, pivot] @ factor) / np.sqrt(residual[pivot])
        factor = np.vstack([factor, row])
        residual = np.maximum(residual - row**2, 0.0)
        residual[pivot] = 0.0
        picks.append(pivot)
    return picks, factor[:, picks].T


def unexplained(
    program: Program,
    group: Group,
    points: Float[np.ndarray, "n D"],
    inducing: Functionals,
    dtype: str,
) -> float:
    """Mean prior variance at the points that inducing variables leave open, under the start kernel."""
    learnt = {name: jnp.asarray(value, dtype) for name, value in program.parameters.unconstrained().items()}
    jitter = jitter_for(jnp.dtype(dtype))

    def left(learnt: dict[str, Array], points: Array, inducing: Functionals) -> Array:
        kernel = kernel_values(program.evaluator, group, program.parameters.constrain(learnt))
        factor = factorise(group, kernel, inducing, jitter)
        return jnp.mean(sparse_features(group, kernel, inducing, Values(points), factor).residual)

    return float(jit(left)(learnt, *as_arrays((points, inducing), dtype)))


SUBSAMPLE = 20_000


def start_inducing(
    program: Program, data: Data, choice: Choice, seed: int, dtype: str = "float64"
) -> tuple[list[Functionals], bool]:
    """Inducing functionals of each group, and whether they are what the rows read (dense), in the same order."""
    rows, rng = make_rows(program, data), np.random.default_rng(seed)
    found: dict[tuple, tuple[Functionals, bool]] = {}
    found_at = []
    dense = choice.dense
    for place, group in enumerate(program.groups):
        asked = choice.of(group.names[0])
        alike = choice.inducing_start == "kmeans" and not asked.features
        own = 0 if alike else place  # what is best, or known, depends on the kernel
        key = (group.inputs, group.readings, group.per_row, own, asked.inducing)
        if key not in found:
            found[key] = _of_group(program, group, rows, data, asked, rng, dtype, together=choice.dense)
        found_at.append(found[key][0])
        dense &= group.per_row or found[key][1]
    return found_at, dense


MANY_LEVELS = 3000
"""Beside latents that all rows share, levels of which a step takes seconds."""


def _of_group(
    program: Program,
    group: Group,
    rows: Rows,
    data: Data,
    choice: Choice,
    rng: np.random.Generator,
    dtype: str,
    *,
    together: bool,
) -> tuple[Functionals, bool]:
    """`together`: all groups are dense, if this one is."""
    if group.per_row:  # each row has its own, without any inputs
        return placed(np.zeros((data.rows, 0))), True
    looked_at = functionals_at(group, group.readings.atoms, rows)
    points = np.asarray(every_point(looked_at))
    if choice.features:
        features = featured(program, group, choice.features, data, points, partial(kmeans_centres, rng=rng), rng)
        return few_enough(program, group, choice.features, features), False
    levels = telling(group.form, points.shape[1])
    if levels and len(levels) == points.shape[1]:  # values at the levels of labels determine all
        single = np.unique(points, axis=0)
        if len(single) > MANY_LEVELS:
            named = ", ".join(f"`{name}`" for name in group.names)
            said = (
                f"values of {named} at {len(single)} levels are one matrix, which each step factorises: its time grows"
            )
            remedy = (
                "with their cube. Estimate them, as in `param a[s] : real ~ StudentT(30, 0, 1)`, or take fewer levels"
            )
            warnings.warn(f"{said} {remedy}", GpdslWarning, stacklevel=2)
        return placed(single), False
    if not choice.dense and levels:  # centres between levels say nothing of any
        return placed(greedy_points(program, group, distinct(points, SUBSAMPLE), choice.inducing, dtype)), False
    if not choice.dense:
        return placed(_chosen_points(program, group, points, choice, rng, dtype)), False
    if not together and isinstance(looked_at, Values):
        return placed(np.unique(points, axis=0)), False
    noisy = any(map(white_beside, program.groups))  # values at equal inputs differ
    bent = any(isinstance(part, (Derivatives, Integrals)) for block in blocks(looked_at) for _, part in block)
    if not noisy and not bent:
        single = np.unique(points, axis=0)
        # the values at a few points tell all differences between them, and those of repeated rows
        repeated = isinstance(looked_at, Values) and len(single) < _worth(choice) * len(looked_at)
        if repeated or (not isinstance(looked_at, Values) and len(single) <= len(looked_at)):
            return placed(single), False
    return looked_at, group.readings.atoms == group.readings.all


def _worth(choice: Choice) -> float:
    """Share of distinct rows below which repeated ones are left out of a dense posterior.

    Any, where values are independent of each other in q: equal values are not.
    """
    return 1.0 if choice.posterior == "diagonal" or choice.posterior.startswith("mixture(") else 0.9


def _chosen_points(
    program: Program, group: Group, points: np.ndarray, choice: Choice, rng: np.random.Generator, dtype: str
) -> np.ndarray:
    """Some of the points, or centres of them; `best` compares both by what they leave of the prior variance."""
    some, found = distinct(points, SUBSAMPLE), []
    if choice.inducing_start != "greedy":
        found.append(kmeans_centres(points, choice.inducing, rng))
    if choice.inducing_start != "kmeans":
        found.append(greedy_points(program, group, some, choice.inducing, dtype))
    if len(found) == 1:
        return found[0]
    return min(found, key=lambda inducing: unexplained(program, group, some, placed(inducing), dtype))


def placed(points: np.ndarray) -> Values:
    """Values at points that are still on the host, in full precision."""
    return Values(points)  # type: ignore[arg-type]


def kmeans_centres(inputs: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` centres [count, D] of the rows [rows, D]. Raises DataError when there are fewer rows than centres."""
    if count > inputs.shape[0]:
        raise DataError(TooManyInducing(count, inputs.shape[0]))
    rows = distinct(inputs, SUBSAMPLE)
    if rows.shape[0] <= count:  # every distinct row is a centre; duplicates would make Kuu singular
        return rows
    middle, scale = rows.mean(axis=0), rows.std(axis=0)
    scale[scale == 0] = 1.0
    centres = middle + scale * lloyd((rows - middle) / scale, count, rng)
    inside = np.clip(centres, rows.min(axis=0), rows.max(axis=0))  # where single precision has rounded outwards
    return _separate(inside, rows, rng)


def _separate(centres: np.ndarray, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Replace repeated centres by rows not among them: two equal inducing points make Kuu singular."""
    unique = np.unique(centres, axis=0)
    missing = centres.shape[0] - unique.shape[0]
    if missing:
        spare = rows[rng.permutation(rows.shape[0])]
        taken = {tuple(c) for c in unique}
        extra = [row for row in spare if tuple(row) not in taken][:missing]
        unique = np.concatenate([unique, np.asarray(extra)])
    return unique


def spanning_rows(covariance: np.ndarray, tolerance: float) -> np.ndarray:
    """Rows whose values determine all the others: pivoted Cholesky until no conditional variance exceeds `tolerance`.

    `covariance` [n, n] has unit scale; the result lists row numbers, each time the one with the largest variance left.
    A smooth kernel on many rows is spanned by few of them.
    """
    return np.asarray(_among(covariance, len(covariance), 0.0, tolerance)[0], int)


# --- kmeans ----------------------------------------------------------------------------------------------------------


ITERATIONS = 10
"""Enough for centres that spread like the rows; inducing points need no more."""

ROWS_AT_ONCE = 4096


def lloyd(rows: Float[np.ndarray, "n D"], count: int, rng: np.random.Generator) -> Float[np.ndarray, "count D"]:
    """Centres of `rows`, in single precision: around zero and of unit scale, so that it tells which centre is nearest.

    They start at distinct rows at random; a centre that loses all its rows starts at another.
    """
    rows = rows.astype(np.float32)
    ones = np.ones(len(rows), np.float32)
    centres = rows[rng.choice(len(rows), count, replace=False)]
    for _ in range(ITERATIONS):
        squares = 0.5 * np.sum(centres**2, axis=1)
        parts = [rows[i : i + ROWS_AT_ONCE] for i in range(0, len(rows), ROWS_AT_ONCE)]
        nearest = np.concatenate([np.argmin(squares - part @ centres.T, axis=1) for part in parts])
        members = np.bincount(nearest, minlength=count)
        sums = csr_matrix((ones, (nearest, np.arange(len(rows)))), (count, len(rows))) @ rows
        centres = sums / np.maximum(members, 1, dtype=np.float32)[:, None]
        empty = np.flatnonzero(members == 0)
        centres[empty] = rows[rng.choice(len(rows), len(empty), replace=False)]
    return centres


# --- canonical -------------------------------------------------------------------------------------------------------


ODD = 0x9E3779B97F4A7C15
MIXERS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
"""Constants of SplitMix64 (Steele, Lea and Flood, 2014)."""


def hashes(rows: Float[np.ndarray, "n D"]) -> UInt64[np.ndarray, "n"]:
    """A number for each row that looks random, equal for equal rows: the ranks of its values in their columns, mixed.

    Ranks are the same in any units, and in single precision, but for values that it does not tell apart.
    """
    mixed = np.full(len(rows), ODD, np.uint64)
    for column in np.asarray(rows).T:
        mixed ^= np.unique(column, return_inverse=True)[1].astype(np.uint64)
        mixed += np.uint64(ODD)
        for shift, factor in MIXERS:
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(31)
    return mixed


def distinct(rows: Float[np.ndarray, "n D"], most: int | None = None) -> Float[np.ndarray, "at_most_n D"]:
    """The distinct rows, or so many of them, in an order that looks random and that no order of the rows changes."""
    return rows[first_numbers(rows)[:most]]


def first_numbers(rows: Float[np.ndarray, "n D"]) -> Int[np.ndarray, "at_most_n"]:
    """The numbers of the distinct rows, in that order."""
    return np.unique(hashes(rows), return_index=True)[1]
