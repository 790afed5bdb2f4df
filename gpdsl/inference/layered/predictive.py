"""Predictions of layers: many passes of new rows, which are the components of a mixture.

A latent of a row variable, f(x, w), is asked for its moments at hundreds of values of w in each row, the same ones in
all. As functions of w they are as smooth as the kernel: a polynomial through Chebyshev points has all of their digits,
or coefficients that do not fall tell that it has not. Then there are no numbers, and who asked computes every pass: a
program for that is made when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from gpdsl.inference.layered.joint import composed, covariances, drawn_together, passes_together, roots_together
from gpdsl.inference.layered.propagation import Drawn, Layers, OneGroup, row_moments
from gpdsl.inference.plan.options import Choice
from gpdsl.inference.posteriors import features
from gpdsl.inference.posteriors.coupled import Block
from gpdsl.inference.posteriors.family import Roots
from gpdsl.inference.posteriors.posterior import Functions, Given, Paths, Posterior
from gpdsl.inference.sampling import even_normals
from gpdsl.kernels.covariance import covariance
from gpdsl.kernels.functionals import Functionals, Values
from gpdsl.program.evaluation import functionals_at
from gpdsl.program.groups import Group, KernelValues, kernel_values
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program, take_rows
from gpdsl.program.rows import Rows, row_count

Moments = tuple[Float[Array, "latents points"], Float[Array, "latents points"]]

FEW, MANY = 64, 128
"""Chebyshev points in place of four times as many passes, and of eight times as many."""

LAST, NOTHING = 8, 4e-12
"""What part of the coefficients is looked at, the last ones, and how small these are where more change nothing."""


def column_of(layers: Layers, group: Group) -> int | None:
    """The column of the one row variable, a number, that the arguments of a group differ in; None for others."""
    program, sampled = layers.program, set(group.inputs) & layers.program.inner
    if group.per_row or len(group.readings.all) > 1 or not sampled <= program.declarations.rows.keys():
        return None
    columns = [c for g in program.groups if sampled & set(g.names) for c in range(g.start, g.stop) if len(g.names) == 1]
    return columns[0] if len(sampled) == len(columns) == 1 else None


def points_for(passes: int) -> int:
    """Chebyshev points in place of so many passes; 0 where these are too few."""
    return 0 if passes < 4 * FEW else FEW if passes < 8 * MANY else MANY


def interpolated(
    moments: Callable[[Functionals], Moments], at: Functionals, deviates: Float[np.ndarray, " S"]
) -> Moments:
    """Moments at the points [S * rows], of one pass after the other, that are linear in the deviate of the pass.

    NaN where few passes do not tell those of all.
    """
    assert isinstance(at, Values)
    passes, count = len(deviates), points_for(len(deviates))
    points = at.points.reshape(passes, -1, at.points.shape[-1])
    low, high = int(np.argmin(deviates)), int(np.argmax(deviates))
    reach = float(np.max(np.abs(deviates)))
    slope = (points[high] - points[low]) / (deviates[high] - deviates[low])
    middle = points[low] - slope * deviates[low]
    angles = np.pi * (np.arange(count) + 0.5) / count
    chosen = middle + slope * jnp.asarray(reach * np.cos(angles), points.dtype)[:, None, None]
    values = jnp.stack(moments(Values(chosen.reshape(-1, points.shape[-1]))))
    values = values.reshape(*values.shape[:2], count, -1)
    orders = np.arange(count)
    analysis = 2.0 / count * np.cos(orders[:, None] * angles) / np.where(orders == 0, 2.0, 1.0)[:, None]
    synthesis = np.cos(np.arccos(np.clip(deviates / reach, -1.0, 1.0))[:, None] * orders)
    last = jnp.einsum("kc,mlcn->mlkn", jnp.asarray(analysis[-count // LAST :]), values)
    right = jnp.max(jnp.abs(last)) <= NOTHING * jnp.maximum(1.0, jnp.max(jnp.abs(values)))

    found = jnp.einsum("sc,mlcn->mlsn", jnp.asarray(synthesis @ analysis), values)
    found = jnp.where(right, found.reshape(*values.shape[:2], -1), jnp.nan)
    return found[0], jnp.maximum(found[1], 0.0)


DRAWS, WITH_VARIABLES, OF_DENSITIES = 256, 1024, 4096
"""Passes of every row; where latents are functions of several row variables, or of others besides; and for densities
where they are functions of any, since narrow noise shows how far apart passes are.
"""

WIDER, FARTHEST = 1.5, 8.25
"""Standard deviations of up to `VARIABLES` row variables in these passes, which weights make up for: tails count. Of
one, where passes are evenly spaced, how far out they go.
"""

VARIABLES, SETS = 3, 8


def pass_count(program: Program, densities: bool = False) -> int:
    """Passes of every row."""
    _, variables = _inner(program)
    if not variables:
        return DRAWS
    if densities:
        return OF_DENSITIES
    return DRAWS if _alone(program) else WITH_VARIABLES


def _inner(program: Program) -> tuple[list[int], int]:
    """Columns of the latents that others are functions of, those of row variables first, and how many of these."""
    inner = [group for group in program.groups if program.inner & set(group.names)]
    columns = [c for g in sorted(inner, key=lambda g: not g.per_row) for c in range(g.start, g.stop)]
    return columns, sum(group.stop - group.start for group in inner if group.per_row)


def _alone(program: Program) -> bool:
    """Whether one number of each row is all that passes differ in."""
    columns, variables = _inner(program)
    return len(columns) == variables == 1


def passes(program: Program, densities: bool = False) -> tuple[Float[np.ndarray, "S latents"], Float[np.ndarray, "S"]]:
    """Normals of the latents that others are functions of, more even than random ones, and the weights of passes.

    Each eighth is such a set on its own. Row variables, which come first, are drawn wider than they are; where one is
    all that latents are functions of, passes are the nodes of the trapezoidal rule.
    """
    columns, variables = _inner(program)
    count = pass_count(program, densities)
    if _alone(program):
        drawn = np.linspace(-FARTHEST, FARTHEST, count).reshape(-1, SETS).T.reshape(-1, 1)
        logs = -0.5 * drawn[:, 0] ** 2
    else:
        drawn, logs = even_normals(count, len(columns)), np.zeros(count)
        if 0 < variables <= VARIABLES:
            drawn[:, :variables] *= WIDER
            logs = -0.5 * (1.0 - WIDER**-2) * np.sum(drawn[:, :variables] ** 2, axis=1)
    normals = np.zeros((count, program.latents))
    normals[:, columns] = drawn
    weights = np.exp(logs)
    return normals, weights / weights.sum()


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Told:
    """What a posterior tells of one group, at unit kernel scale, for as many points as are asked for.

    Of a whitened root R, I - R R' = V diag(c) V'. With a(x) = V' L^-1 k(z, x) for Kuu = L L' the variance is
    k(x, x) - sum_i c_i a_i(x)^2: one product of matrices for each latent, where features and what the posterior makes
    of them would be a triangular solve and another product.
    """

    across: Float[Array, "latents M M"]
    """L^-T V."""
    told: Float[Array, "latents M"]
    """c."""
    mean: Float[Array, "latents M"]
    """L^-T m."""


def told_of(group: Group, kernel: KernelValues, inducing: Functionals, q: Any, jitter: Array | float) -> Told:
    """The same of the whitened inducing values `q` of a group."""
    root, factor = jnp.asarray(q.root)[0], features.factorise(group, kernel, inducing, jitter)
    told, axes = jnp.linalg.eigh(jnp.eye(root.shape[-1], dtype=root.dtype) - root @ jnp.swapaxes(root, -1, -2))
    factor = jnp.broadcast_to(factor, axes.shape)
    across = solve_triangular(factor, axes, lower=True, trans=1)
    mean = solve_triangular(factor, jnp.asarray(q.mean)[0][..., None], lower=True, trans=1)[..., 0]
    return Told(across, told, mean)


@dataclass(frozen=True)
class Predicted(Layers):
    """Layers whose posteriors are `Told` beforehand.

    Many points are taken `POINTS_AT_ONCE`; where all that passes differ in is one number, the `normals` [S, latents] of
    the passes are, moments at some of its values tell those at all (`interpolated`).
    """

    normals: Float[np.ndarray, "S latents"] | None = field(default=None, compare=False)

    def _unscaled(
        self, given: OneGroup, rows: Rows
    ) -> tuple[Array, Array, features.Features | features.RowFeatures | None]:
        group, kernel, inducing, q, _ = given
        if group.per_row:
            return super()._unscaled(given, rows)

        def moments(read: Functionals) -> tuple[Array, Array]:
            # points come first: a kernel whose rows are points is computed where products read it
            cross = features.of_each_kernel(group, lambda a: covariance(group.form, a, read, inducing), kernel)
            cross = jnp.broadcast_to(cross, (len(q.mean), *cross.shape[1:]))
            told = jnp.einsum("lnk,lk->ln", (cross @ q.across) ** 2, q.told)
            variance = jnp.maximum(features.prior_variances(group, kernel, read) - told, 0.0)
            return jnp.einsum("lnm,lm->ln", cross, q.mean), variance

        at = functionals_at(group, group.readings.all, rows)
        deviates = self._deviates(group, at)
        if deviates is None:
            mean, variance = _in_blocks(moments, at)
        else:
            mean, variance = interpolated(partial(_in_blocks, moments), at, deviates)
        return mean[None], variance[None], None

    def _deviates(self, group: Group, at: Functionals) -> Float[np.ndarray, " S"] | None:
        """The one number that the arguments of a group differ in, in all passes, where moments at few of them do."""
        column = column_of(self, group)
        if column is None or self.normals is None or not points_for(len(self.normals)):
            return None
        plain = isinstance(at, Values) and at.points.dtype == self.normals.dtype
        return self.normals[:, column] if plain else None


POINTS_AT_ONCE = 256
"""Points whose covariances are computed together: those with a hundred inducing points stay near the processor."""


def _in_blocks(moments: Callable[[Functionals], tuple[Array, Array]], at: Functionals) -> tuple[Array, Array]:
    """Means and variances [latents, points], of some points after the other where these are plain."""
    whole = len(at) // POINTS_AT_ONCE * POINTS_AT_ONCE
    if not isinstance(at, Values) or len(at) <= POINTS_AT_ONCE:
        return moments(at)
    blocks = jax.tree.map(lambda a: a[:whole].reshape(-1, POINTS_AT_ONCE, *a.shape[1:]), at)
    found = jax.tree.map(lambda a: jnp.moveaxis(a, 0, 1).reshape(a.shape[1], -1), jax.lax.map(moments, blocks))
    if whole == len(at):
        return found  # type: ignore[no-any-return]
    rest = moments(jax.tree.map(lambda a: a[whole:], at))
    return jax.tree.map(lambda *a: jnp.concatenate(a, axis=1), found, rest)  # type: ignore[no-any-return]


PASSES_AT_ONCE = 1 << 17
"""Passes of rows through layers that are computed together."""


@dataclass(frozen=True, eq=False)
class Layered(Posterior):
    """Of latents that are functions of others, or of row variables: rows are sampled through the layers."""

    whitened = False
    densities: bool = False
    every: bool = False
    """Whether moments are computed in every pass, and none interpolated."""

    @staticmethod
    def suits(program: Program, choice: Choice) -> bool:
        return bool(program.inner)

    def for_densities(self) -> Layered:
        """Of other passes, where there are variables of rows."""
        return replace(self, densities=True, compiled={}) if _inner(self.program)[1] else self

    def shares(self, program: Program) -> Float[np.ndarray, " S"]:
        return passes(program, self.densities)[1]

    def deviates(self, program: Program) -> Float[np.ndarray, "S latents"]:
        return passes(program, self.densities)[0]

    def rows_at_once(self, program: Program) -> int:
        return max(1, PASSES_AT_ONCE // pass_count(program, self.densities))

    def marginals(self, program: Program, rows: Rows, count: int) -> Marginals:
        """All new rows are alike where there are no inputs."""
        if rows.inputs or rows.numbers is not None:
            return self._told(program, rows, count)
        one = self._told(program, take_rows(rows, slice(0, 1)), 1)
        return jax.tree.map(lambda a: np.broadcast_to(a, (len(a), count, *a.shape[2:])), one)

    def _told(self, program: Program, rows: Rows, count: int) -> Marginals:
        """From few passes where these tell of all, else from every pass."""
        found = super().marginals(program, rows, count)
        if self.every or not np.isnan(found.mean).any():
            return found
        return super(Layered, replace(self, every=True, compiled={})).marginals(program, rows, count)

    @cached_property
    def numbers_at_rows(self) -> tuple[Any, Any]:
        return self._compiled("told_at", self.program, brief=True)(*self.numbers)  # type: ignore[no-any-return]

    def told_at(self, program: Program, parameters: Mapping[str, Array], numbers: Any) -> tuple[Any, Any]:
        """The parameters, and what the posterior tells of each group, which many rows have in common."""
        (q, inducing), found = numbers, []
        for group, points, known in zip(program.groups, inducing, q, strict=True):
            kernel = kernel_values(program.evaluator, group, parameters)
            found.append(known if group.per_row else told_of(group, kernel, points, known, self.jitter))
        return parameters, (found, inducing)

    def marginals_at(self, program: Program, rows: Rows, parameters: Mapping[str, Array], numbers: Any) -> Marginals:
        """One component for each pass, with the weights of `passes`.

        The passes are the same for every row: what is said of a row depends on no other.
        """
        (posterior, inducing), known = numbers, passes(program, self.densities)[0]
        layers, dtype = (
            Predicted(program, program.sharp, normals=None if self.every else known),
            jax.tree.leaves(inducing)[0].dtype,
        )
        shared = jnp.asarray(known, dtype)[:, None]
        normals = jnp.broadcast_to(shared, (len(shared), row_count(rows), program.latents))
        white = {}
        for place, group in enumerate(program.groups):
            if group.per_row and program.inner & set(group.names):
                mean, sd = row_moments(posterior[place], rows, dtype)
                white[place] = mean + sd * normals[..., group.start : group.stop]
        drawn = Drawn(normals, white)
        return layers.marginals(parameters, inducing, dict(enumerate(posterior)), rows, drawn, self.jitter)

    def blocks(self, program: Program, rows: Rows, count: int) -> list[Block]:
        """One block of all latents, estimated from `JOINT_DRAWS` draws of those that others are functions of."""
        found, shares = self.marginals(program, rows, count), self.shares(program)
        mean = np.tensordot(shares, np.asarray(found.mean), axes=1)
        variances = np.tensordot(shares, np.asarray(found.variance) + (np.asarray(found.mean) - mean) ** 2, axes=1)
        return [covariances(self, program, rows, variances)]

    def paths(self, component: np.ndarray, rng: np.random.Generator, seed: int) -> Paths:
        return composed(self, component, rng, seed)

    def functions(
        self, program: Program, rows: Rows, variables: Float[np.ndarray, "rows latents"] | None = None
    ) -> Functions:
        """Each draw (SGPVI eq. 79) has one function of each layer, at all its arguments.

        Drawing raises GpdslError for more rows than have room for their covariances, and for latents read in other
        ways.
        """
        return partial(drawn_together, self, program, rows, variables)

    def roots(self, program: Program, rows: Rows, variables: Float[np.ndarray, "rows latents"]) -> Iterator[Roots]:
        return roots_together(self, program, rows, variables)

    def passes_together(
        self, program: Program, rows: Rows, count: int, rng: np.random.Generator
    ) -> Iterator[tuple[Float[np.ndarray, "S rows latents"], Given]]:
        return passes_together(self, program, rows, count, rng)
