"""Predictions of the exact posterior of values on a grid, from the eigenvectors of its sides.

What is read at a new row has covariances C = c_0 x c_1 x ... x c_d with the values, one vector for each side, or is a
sum of such. With p_i = Q_i'c_i, w = 1 / (1 + l) and b = w Q'z (`evidence`), it has the mean sum b p_0 ... p_d and
loses the covariance sum w p_0 q_0 ... p_d q_d with what has the vectors q: O(N) for each row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.errors import GpdslError, need
from gpdsl.inference.bound import GroupView
from gpdsl.inference.exact import evidence, predictive
from gpdsl.inference.exact.grids import Grid, Side, grid_of, points_of
from gpdsl.inference.exact.parts import kinds
from gpdsl.inference.exact.system import Prior
from gpdsl.inference.plan.options import Choice, Options
from gpdsl.inference.posteriors.coupled import Block, left_open, unexplained
from gpdsl.inference.posteriors.family import Inverse, Whitened
from gpdsl.inference.posteriors.posterior import ROWS_AT_ONCE
from gpdsl.inference.problem import as_arrays
from gpdsl.kernels.functionals import Derivatives, Elementary, Functionals, Values, blocks
from gpdsl.program.cache import jit
from gpdsl.program.evaluation import functionals_at, prior_means
from gpdsl.program.groups import kernel_values
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Turned:
    """The data in the directions of eigenvectors: Q_0, ..., Q_d, w, and b.

    `outputs` are covariances of processes with outputs, `sides` the loadings of the values of each side.
    """

    vectors: list[Float[Array, "n n"]]
    weights: evidence.Cells
    told: evidence.Cells
    outputs: Float[Array, "processes outputs"]
    sides: list[Float[Array, " n"]]

    @property
    def processes(self) -> Float[Array, "processes outputs"]:
        """p_0 of every process."""
        return self.outputs @ self.vectors[0]


Vectors = list[Float[Array, "new n"]]
"""p_1, ..., p_d of some rows."""

Reach = list[tuple[float, Vectors]]
"""What is read at some rows, as a weighted sum."""


@dataclass(frozen=True, eq=False)
class Gridded(predictive.Exact):
    """Held by the data as an exact posterior is; its matrices are those of the sides of a grid."""

    @staticmethod
    def suits(program: Program, choice: Choice) -> bool:
        return bool(choice.grid)

    @cached_property
    def grid(self) -> Grid:
        """Where the values stand. Raises ValueError where they stand on no grid."""
        parts, groups = self.held.parts, self.program.groups
        need(len(parts) == len(groups) == 1, NO_GRID)
        (read,), known = self.inducing, parts[0].grid
        need(all(isinstance(each[0][1], Values) for each in blocks(read)), NO_GRID)
        found = None if known is None else grid_of(groups[0], parts[0], np.asarray(points_of(read)))
        if found is None or known is None or not 0 < known[0] < len(found.shape):
            raise ValueError(NO_GRID)
        return found

    def check(self, choice: Choice, options: Options) -> None:
        super().check(choice, options)
        need(self.grid.lengths == choice.grid, "choice: grid is not that of the data")

    def support(self, choice: Choice, rows: int) -> str:
        return f"{super().support(choice, rows)}, on a grid of {' x '.join(map(str, choice.grid))}"

    def _at_inducing(self, jitter: float) -> list[Whitened]:
        raise GpdslError(
            f"the exact posterior of {sum(self.held.sizes)} values on a grid starts no fit that is variational: that "
            "would take a matrix of all of them; start from its parameters, with init = fit.parameters"
        )

    @cached_property
    def numbers(self) -> tuple[Any, tuple[Turned, list[Functionals]]]:
        """The parameters, and the data turned there. Raises GpdslError where B is not positive within rounding."""
        parameters, read = as_arrays((dict(self.parameters), list(self.inducing)), self.dtype)
        (part,), (held,), grid, program = self.held.parts, self.held.values, self.grid, self.program

        def turn(loadings: Array, z: Array, parameters: Any, read: Any) -> Turned:
            prior = Prior(program, parameters, read)
            vectors, values = evidence.spectra(evidence.covariances(prior, part, grid, loadings))
            kernel = kernel_values(program.evaluator, program.groups[0], parameters)
            of_outputs, of_sides = evidence.weights(part, grid, loadings)
            (kind,), size = kinds(program.groups[0], part.columns), program.groups[0].size
            loaded = evidence.scales(program, part, kernel)[:, None] * of_outputs
            of_processes = jnp.zeros((size, grid.outputs), loaded.dtype).at[kind.processes[0]].set(loaded)
            left = 1.0 / (1.0 + evidence.outer(values))
            told = left * evidence.turned(evidence.in_cells(grid, z[0]), vectors)
            return Turned(vectors, left, told, of_processes, of_sides)

        given = *as_arrays((held.loadings, held.z), self.dtype), parameters, read
        found: Turned = self.compiled.setdefault(("turned",), jit(turn))(*given)
        if not np.all(np.asarray(found.weights) > 0):
            raise GpdslError(
                "the covariance of the data is not positive definite at the fitted parameters: a kernel by formula is "
                "none, or the noise is too small beside the signal for this precision; fix it at a larger value"
            )
        return parameters, (found, read)

    def rows_at_once(self, program: Program) -> int:
        (group,), cells, longest = program.groups, math.prod(self.grid.shape), max(self.grid.shape[1:])
        tensors = group.size ** (2 if program.coupled else 1) * (cells // self.grid.outputs // longest)
        vectors = len(group.readings.all) * sum(self.grid.shape)
        return min(ROWS_AT_ONCE, max(1, predictive.NUMBERS_AT_ONCE // max(tensors, vectors)))

    def marginals_at(self, program: Program, rows: Rows, parameters: Mapping[str, Array], numbers: Any) -> Marginals:
        """With covariances among all that is read where the program asks for these."""
        known, read = numbers
        view = predictive.prior_view(program, program.groups[0], rows, parameters)
        reach, size = self._reached(view, known, read, rows), view.group.size
        variance = predictive.prior_variance_of_rows([view])
        mean = prior_means(program.evaluator, program.groups, parameters, rows, len(variance))
        covariance = unexplained([view], mean) if program.coupled else None
        own = known.processes
        told = jnp.tensordot(own, known.told, axes=1)
        alone = jnp.tensordot(own**2, known.weights, axes=1)
        every = jnp.einsum("je,ke,e...->jk...", own, own, known.weights)
        every = every.reshape(-1, *every.shape[2:])
        for number, each in enumerate(reach):
            here = np.arange(number * size, (number + 1) * size)
            mean = mean.at[:, here].add(_along(told, each).T)
            variance = variance.at[:, here].add(-_between(alone, each, each).T)
            if covariance is None:
                continue
            for second, other in enumerate(reach):
                across = _between(every, each, other).T.reshape(-1, size, size)
                covariance = covariance.at[:, here[:, None], np.arange(size) + second * size].add(-across)
        return predictive.marginals_told(mean, variance, covariance)

    def blocks_at(self, program: Program, rows: Rows, parameters: Mapping[str, Array], numbers: Any) -> list[Block]:
        """The prior covariances of the latents that the values tell about less V V', V = C Q sqrt(w), and of others."""
        (known, read), program = numbers, program.without_sums()
        view = predictive.prior_view(program, program.groups[0], rows, parameters)
        (kind,), group = kinds(self.program.groups[0], self.held.parts[0].columns), view.group
        reach, processes = self._reached(view, known, read, rows), kind.processes[0]
        longest = int(np.argmax([len(side) for side in known.sides]))
        rest = [[outer_rows(p, longest) for _, p in each] for each in reach]
        shares = [np.asarray([w for w, _ in each]) for each in reach]
        loaded, cells = known.processes[processes], jnp.moveaxis(known.weights, longest + 1, 0)

        def add(total: Array, at: tuple[Array, list[list[Array]]]) -> tuple[Array, None]:
            """Of the cells at one value of the longest side."""
            weight, ends = at
            parts = zip(shares, ends, rest, strict=True)
            of_rows = [sum(w * e[:, None] * r for w, e, r in zip(*each, strict=True)) for each in parts]
            values = loaded[:, None, None, :, None] * jnp.stack(of_rows)[:, :, None]
            values = values * jnp.sqrt(weight.reshape(weight.shape[0], -1))
            flat = values.reshape(len(total), -1)
            return total + flat @ flat.T, None

        size = len(processes) * len(reach) * len(rest[0][0])
        ends = [[p[longest].T for _, p in each] for each in reach]
        lost, _ = jax.lax.scan(add, jnp.zeros((size, size), cells.dtype), (cells, ends))
        columns = [group.start + a * group.size + int(j) for j in processes for a in range(len(reach))]
        lost = lost.reshape(len(columns), -1, len(columns), size // len(columns))
        return predictive.blocks_told({tuple(columns): -lost}, [view], [left_open(view, rows)])

    def inverses(self) -> Iterator[Inverse]:
        _, (known, _) = self.numbers
        first, *sides = known.vectors
        pairs = jnp.einsum("oe,pe->eop", first, first)
        squares = evidence.turned(known.weights, [pairs, *(jnp.square(each).T for each in sides)])
        alpha = evidence.turned(known.told, [each.T for each in known.vectors])
        ones = evidence.turned(jnp.ones_like(known.weights), known.vectors)
        spread = jnp.sum(1.0 / known.weights) - jnp.sum(ones**2 / known.weights) / ones.size
        _, rows, elements = self.held.parts[0].rows_of(0)
        rows, elements = rows[self.grid.order], elements[self.grid.order]
        own = np.moveaxis(np.asarray(squares, float), 1, -1).reshape(len(rows), len(first))
        own = own[:, np.argsort(elements.reshape(len(first), -1)[:, 0])]
        yield Inverse(own, np.asarray(alpha, float).ravel(), float(spread), rows, elements)

    def dual(self, number: int, left: Float[Array, "1 draws values"]) -> Float[Array, "draws outputs *sides"]:
        """b of every draw."""
        _, (known, _) = self.numbers
        return known.weights * jax.vmap(lambda z: evidence.turned(z, known.vectors))(
            evidence.in_cells(self.grid, left[0])
        )

    def _drawn_at(
        self, program: Program, rows: Rows, parameters: Mapping[str, Array], drawn: predictive.Conditioned
    ) -> Float[Array, "draws rows columns"]:
        """What is read at rows of drawn functions, around their prior means."""
        view, (duals,) = predictive.prior_view(program, program.groups[0], rows, parameters), drawn.duals
        told = jnp.einsum("je,de...->jd...", drawn.known.processes, duals)
        told = told.reshape(-1, *told.shape[2:])
        found = jnp.stack([_along(told, each) for each in self._reached(view, drawn.known, drawn.read, rows)])
        apart = jnp.transpose(found.reshape(len(found), view.group.size, len(duals), -1), (2, 3, 0, 1))
        return predictive.prior_at([view], rows, drawn.prior) + apart.reshape(*apart.shape[:2], -1)

    def _reached(self, view: GroupView, known: Turned, read: Sequence[Functionals], rows: Rows) -> list[Reach]:
        """The vectors p_1, ..., p_d of all that is read of the latents at some rows."""
        group, points = view.group, points_of(read[0])
        found: list[Reach] = []
        for reading in blocks(functionals_at(group, group.readings.all, rows)):
            own = []
            for weight, part in reading:
                sides = zip(self.grid.sides, known.sides, known.vectors[1:], strict=True)
                crossed = [
                    (evidence.along(side, view.kernel, _seen_by(side, part), Values(points[side.where])) * loading)
                    @ turn
                    for side, loading, turn in sides
                ]
                own.append((weight, crossed))
            found.append(own)
        return found


NO_GRID = "the data of an exact fit stand on no grid"


def _seen_by(side: Side, part: Elementary) -> Elementary:
    """What of a functional a factor that reads some columns sees: derivatives along these."""
    if not isinstance(part, (Values, Derivatives)):
        raise GpdslError("an integral of a latent on a grid has no closed form: ask for values, or slopes")
    columns = tuple(c for c in part.columns if c in side.columns) if isinstance(part, Derivatives) else ()
    return Derivatives(part.points, columns) if columns else Values(part.points)


def _along(tensor: Float[Array, "m *sides"], each: Reach) -> Float[Array, "m new"]:
    """sum tensor p of what is read at each row."""
    found = [weight * contracted(tensor, p) for weight, p in each]
    return sum(found[1:], start=found[0])


def _between(tensor: Float[Array, "m *sides"], one: Reach, other: Reach) -> Float[Array, "m new"]:
    """sum tensor p q of two things that are read at each row."""
    found = [
        first * second * contracted(tensor, [a * b for a, b in zip(p, q, strict=True)])
        for first, p in one
        for second, q in other
    ]
    return sum(found[1:], start=found[0])


def contracted(tensor: Float[Array, "m *sides"], vectors: Vectors) -> Float[Array, "m new"]:
    """sum tensor p_1 ... p_d for each row: the longest side by a product of matrices, the others after it."""
    order = sorted(range(len(vectors)), key=lambda side: -vectors[side].shape[1])
    turned_round = jnp.moveaxis(tensor, [1 + side for side in order], range(1, 1 + len(order)))
    found = jnp.tensordot(turned_round, vectors[order[0]], axes=([1], [1]))
    for side in order[1:]:
        own = vectors[side].T
        found = jnp.sum(found * own.reshape(own.shape[0], *[1] * (found.ndim - 3), own.shape[1]), axis=1)
    return found


def outer_rows(vectors: Vectors, but: int) -> Float[Array, "new values"]:
    """All products of the elements of vectors but those of one side, for each row."""
    found = jnp.ones_like(vectors[but][:, :1])
    for each in vectors[:but] + vectors[but + 1 :]:
        found = (found[:, :, None] * each[:, None, :]).reshape(len(each), -1)
    return found
