"""Observations that are normal about linear functions of the latents, in units of their noise: z = H (f - mean) + e.

Each observed value y with t(y) ~ Normal(c + h'f, s) becomes z = (t(y) - c - h'mean(f)) / s, loadings h / s, and a
constant log|t'(y)| - log s - log(2 pi)/2 of the log density; e is standard normal. With K the prior covariance of what
is read of the latents, z ~ N(0, B) with B = I + H K H'. There is no jitter: the noise itself makes B positive definite,
in whatever units the data are. Values that share no latent with others have a B of their own (`parts`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
from jaxtyping import Array, Float

from gpdsl.inference.exact.grids import Grid, gridded
from gpdsl.inference.exact.parts import Kind, Part, batched, kinds, over_sets, together
from gpdsl.kernels.covariance import covariance, variance
from gpdsl.kernels.form import Form
from gpdsl.kernels.functionals import Functionals
from gpdsl.program.evaluation import functionals_at, prior_means
from gpdsl.program.groups import KernelValues, kernel_values
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows, Scope, observed_mask
from gpdsl.symbolic.expectations import combined, latents_in
from gpdsl.symbolic.laws import Law
from gpdsl.symbolic.terms import ObservationTerms, output_value

LAWS: Mapping[str, Any] = {"Normal": lambda y: y, "LogNormal": sp.log}
"""What of a value is normal, by law."""


@dataclass(frozen=True)
class Statement:
    """One observation statement: t(y) ~ Normal(mean, sd), in the symbols of the program."""

    observation: ObservationTerms
    residual: sp.Expr
    """(t(y) - mean) / sd"""
    signal: sp.Expr
    """mean / sd, whose slopes in the latents are the loadings"""
    constant: sp.Expr
    """log |t'(y)| - log sd - log(2 pi) / 2"""


def statement(program: Program, observation: ObservationTerms) -> Statement | None:
    """The observation in this form; None where it is not written so."""
    law: Law | None = observation.law
    if law is None or law.name not in LAWS or law.components:
        return None
    value = output_value(program.translator, observation)
    normal, mean, sd = LAWS[law.name](value), law.arguments["mean"], law.arguments["sd"]
    constant = -sp.log(sd) - sp.log(2 * sp.pi) / 2
    constant += observation.warp.log_slope() if observation.warp is not None else 0
    constant -= sp.log(value) if law.name == "LogNormal" else 0
    signal, read = _as_read(program, mean / sd), _as_read(program, mean)
    if signal is None or read is None:
        return None
    # One quotient: y / sd - mean / sd would lose what large values with a small spread differ in.
    return Statement(observation, (normal - read) / sd, signal, constant)


def _as_read(program: Program, signal: sp.Expr) -> sp.Expr | None:
    """The signal in the readings that the program computes: combinations of values may be read as one."""
    for written in (signal, combined(program.translator, signal)):
        refs = [program.translator.references[symbol] for symbol in latents_in(program.translator, written)]
        if all((ref.name, ref.reading) in program.evaluator.columns for ref in refs):
            return written
    return None


@dataclass(frozen=True, eq=False)
class System:
    """All observations of a program with some rows: what is linear, and how it falls into parts."""

    program: Program
    statements: tuple[Statement, ...]
    parts: tuple[Part, ...]
    reads: Mapping[tuple[int, int], frozenset[int]]
    """The columns of the marginals that each element of a statement reads."""
    grid: Grid | None = None
    """Where its values stand on one: there is one part then."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the matrices to be factorised."""
        return tuple(size for part in self.parts for size in part.sizes)


def make_system(program: Program, rows: Rows, *, on_grid: bool = False) -> System | None:
    """The system of some rows, None where an observation is not normal about a linear function of the latents.

    `on_grid` asks for the one part on a grid that the plan has found.
    """
    if program.fields or program.opaque or not program.conjugate or any(group.per_row for group in program.groups):
        return None
    found = [statement(program, observation) for observation in program.observations]
    statements = tuple(each for each in found if each is not None)
    if len(statements) < len(found):
        return None
    masks = [np.asarray(observed_mask(rows, each.observation)) > 0 for each in statements]
    flat = [mask.reshape(mask.shape[0], -1) for mask in masks]
    reads = {
        (s, number): _columns_read(program, each, dict(zip(each.observation.axes, position, strict=True)))
        for s, each in enumerate(statements)
        for number, position in enumerate(itertools.product(*[range(1, n + 1) for n in masks[s].shape[1:]]))
    }
    apart = [part for elements in _sharing(program, reads) for part in _parts(program, rows, elements, reads, flat)]
    parts = tuple(part for part in apart if part.width)
    if len(parts) > 1:
        parts = batched(program.groups, parts)
    system = System(program, statements, parts, reads)
    return gridded(system, rows) if on_grid else system


def _parts(
    program: Program,
    rows: Rows,
    elements: tuple[tuple[int, int], ...],
    reads: Mapping[tuple[int, int], frozenset[int]],
    masks: Sequence[np.ndarray],
) -> Iterator[Part]:
    """The values of some elements, those of rows that share no level apart."""
    seen = np.stack([masks[s][:, number] for s, number in elements])
    columns = np.asarray(sorted(set().union(*[reads[each] for each in elements])), int)
    known = np.flatnonzero(seen.any(axis=0))
    groups = [group for group in program.groups if np.any((columns >= group.start) & (columns < group.stop))]
    labelled = any(each.label is not None for each in program.declarations.inputs.values())
    for some in together(groups, rows, known) if labelled else [known]:
        kept = seen[:, some].ravel()
        places = None if kept.all() else np.flatnonzero(kept)[None]
        yield Part(np.asarray(elements)[None], columns[None], some[None], places)


def _sharing(program: Program, reads: Mapping[tuple[int, int], frozenset[int]]) -> list[tuple[tuple[int, int], ...]]:
    """Elements that are linked by the latent processes they read, in order; those that read none are left out."""
    # The first column of the process that a column of the marginals is read of: its name, so to say.
    process = {c: g.start + (c - g.start) % g.size for g in program.groups for c in range(g.start, g.stop)}
    sets: list[tuple[set[int], list[tuple[int, int]]]] = []
    for element, columns in reads.items():
        own, members = {process[c] for c in columns}, [element]
        for other in [each for each in sets if each[0] & own]:
            sets.remove(other)
            own |= other[0]
            members = other[1] + members
        if own:
            sets.append((own, members))
    return sorted(tuple(sorted(members)) for _, members in sets)


def _columns_read(program: Program, each: Statement, position: Mapping[str, int]) -> frozenset[int]:
    """Columns of the marginals that an element of a statement reads."""
    translator, found = program.translator, set()
    for symbol in latents_in(translator, each.signal):
        ref = translator.references[symbol]
        start, _ = program.evaluator.columns[ref.name, ref.reading]
        shape = translator.shape_at(ref)
        choices: list[Iterable[int]] = []
        for where, size in zip(ref.positions, shape, strict=True):
            known = where if isinstance(where, int) else position.get(where)
            choices.append(range(size) if known is None else (int(known) - 1,))
        for place in itertools.product(*choices):
            found.add(start + (int(np.ravel_multi_index(place, shape)) if shape else 0))
    return frozenset(found)


# The numbers of a system: observed values in units of their noise, and the covariance of what they read of latents.


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Whitened:
    """One part in units of its noise: `z` of its values, and `loadings` of all its rows."""

    z: Float[Array | np.ndarray, "sets values"]
    loadings: Float[Array | np.ndarray, "sets columns elements rows"]


def whitened(system: System, learnt: Mapping[str, Array], rows: Rows) -> tuple[list[Whitened], Array]:
    """Every part, and the constant of the log density with the log priors, at unconstrained parameters."""
    program = system.program
    parameters = program.parameters.constrain(learnt)
    count = next(iter(rows.observed.values())).shape[0]
    mean = prior_means(program.evaluator, program.groups, parameters, rows, count)
    read = [read_by(program, each, Scope(parameters, rows, mean)) for each in system.statements]
    residuals, loadings = (jnp.concatenate(all_of, axis=-1) for all_of in list(zip(*read, strict=True))[:2])
    constant = sum((jnp.sum(constants) for _, _, constants in read), start=jnp.zeros((), mean.dtype))
    first = np.cumsum([0, *[residual.shape[-1] for residual, _, _ in read]])
    slopes = jnp.swapaxes(loadings, 1, 2)

    def of_set(columns: Array, places: Array, rows: Array) -> tuple[Array, Array]:
        return residuals.T[places][:, rows].ravel(), slopes[columns][:, places][..., rows]

    found = []
    for part in system.parts:
        z, own = over_sets(of_set, part.columns, first[part.elements[..., 0]] + part.elements[..., 1], part.rows)
        found.append(Whitened(part.values_of(z), own))
    return found, constant + program.log_prior(parameters)


def read_by(program: Program, each: Statement, scope: Scope) -> tuple[Array, Array, Array]:
    """Residuals [rows, elements], loadings [columns, rows, elements] and constants of observed values alone."""
    axes, mask = each.observation.axes, observed_mask(scope.rows, each.observation)
    assert scope.latents is not None
    latents = scope.latents
    count, columns = latents.shape

    def flat(value: Any) -> Array:
        return jnp.broadcast_to(jnp.asarray(value, latents.dtype), mask.shape).reshape(count, -1)

    def signal(values: Array) -> Array:
        return flat(program.evaluator(each.signal, Scope(scope.parameters, scope.rows, values), axes))

    slope = partial(jax.jvp, signal, (latents,))
    unit = jnp.eye(columns, dtype=latents.dtype)
    loadings = jax.vmap(lambda column: slope((jnp.broadcast_to(column, latents.shape),))[1])(unit)
    residual = flat(program.evaluator(each.residual, scope, axes))
    constants = flat(program.evaluator(each.constant, scope, axes))
    seen = mask.reshape(count, -1) > 0  # what stands in the place of a missing value does not count
    return residual, loadings, jnp.where(seen, constants, 0.0)


def functionals(program: Program, rows: Rows) -> list[Functionals]:
    """What the rows read of each group, without the sums that tell covariances."""
    return [functionals_at(group, group.readings.basis, rows) for group in program.groups]


def at_rows(functionals: Functionals, numbers: Any) -> Functionals:
    """The functionals of some rows."""
    count = len(jax.tree.leaves(functionals)[0])
    whole = isinstance(numbers, np.ndarray) and np.array_equal(numbers, np.arange(count))
    return functionals if whole else jax.tree.map(lambda points: points[numbers], functionals)


FEW = 3
"""Readings of one latent up to which each pair of them is a term of its own: no more than two products of matrices."""


@dataclass(frozen=True, eq=False)
class _Processes:
    """What a part reads of processes of one kind: `columns` of it by reading, `of_all` what all rows read of them."""

    form: Form
    kernel: KernelValues
    of_all: Functionals
    columns: Mapping[int, tuple[int, ...]]

    def signal(
        self, loadings: Float[Array, "columns elements rows"], rows: Any, factor: Any, processes: Any
    ) -> Float[Array, "elements rows elements rows"]:
        """What they add to the covariance of one set's values."""
        total: Array | float = 0.0
        padded, count = with_nothing(loadings), loadings.shape[-1]
        known = covariance(self.form, kernel_arguments(self.kernel, factor), at_rows(self.of_all, rows))
        if len(self.columns) > FEW:
            apart = known.reshape(known.shape[0] // count, count, known.shape[1] // count, count)
            asked = np.asarray(list(self.columns))
            weights = jnp.stack([padded[np.asarray(places)] for places in self.columns.values()])
            halfway = jnp.einsum("rjen,rnsm->jensm", weights, apart[asked][:, :, asked])
            return jnp.einsum("jensm,sjfm,j->enfm", halfway, weights, self.kernel.scale[processes])
        for (first, left), (second, right) in itertools.product(self.columns.items(), repeat=2):
            block = known[first * count : (first + 1) * count, second * count : (second + 1) * count]
            factors = padded[np.asarray(left)], padded[np.asarray(right)]
            total = total + _between(self.kernel.scale[processes], factors, block)
        return jnp.asarray(total)

    def variances(
        self, loadings: Float[Array, "columns elements rows"], rows: Any, factor: Any, processes: Any
    ) -> Float[Array, "elements rows"]:
        """What they add to the variances of one set's values, at most."""
        padded = with_nothing(loadings)
        known = variance(self.form, kernel_arguments(self.kernel, factor), at_rows(self.of_all, rows))
        known = known.reshape(-1, loadings.shape[-1])
        deviations = sum(jnp.abs(padded[np.asarray(at)]) * jnp.sqrt(known[r]) for r, at in self.columns.items())
        return jnp.sum(self.kernel.scale[processes][:, None, None] * jnp.square(deviations), axis=0)


HIDDEN = 4.0
"""Rounding makes eigenvalues of n values' signal negative by about this times the root of n times the precision, in its
largest variances: a noise below that is one by chance."""


def hidden(signal: Any) -> Any:
    """The noise variances, in units of theirs, that values of this covariance hide: [..., values]."""
    own = signal.diagonal(axis1=-2, axis2=-1)
    return HIDDEN * own.shape[-1] ** 0.5 * float(np.finfo(own.dtype).eps) * own


@dataclass(frozen=True, eq=False)
class Prior:
    """That of the latents at constrained parameters; `read` is what all rows read of each group (`functionals`)."""

    program: Program
    parameters: Mapping[str, Array]
    read: Sequence[Functionals]

    def signal(
        self, part: Part, loadings: Float[Array, "sets columns elements rows"]
    ) -> Float[Array, "sets values values"]:
        """H K H', the covariance of the values of a part without their noise, but for what rounding adds to it.

        Noise below that would leave I + H K H' to chance: there the evidence is that of the least noise that counts.
        """
        total: Array | float = 0.0
        for each, kind in self._reads(part):
            total = total + over_sets(each.signal, loadings, part.rows, kind.factor, kind.processes)
        size = loadings.shape[-1] * loadings.shape[-2]
        found = part.values_of(jnp.asarray(total).reshape(-1, size, size), (-2, -1))
        least = jnp.maximum(hidden(found) - 1.0, 0.0)
        return found + least[..., None] * jnp.eye(found.shape[-1], dtype=found.dtype)

    def largest_variance(self, part: Part, loadings: Float[Array, "sets columns elements rows"]) -> Float[Array, ""]:
        """The largest one of a part's values without noise; that of several readings of a latent from above."""
        total: Array | float = 0.0
        for each, kind in self._reads(part):
            total = total + over_sets(each.variances, loadings, part.rows, kind.factor, kind.processes)
        return jnp.max(jnp.asarray(total))

    def _reads(self, part: Part) -> Iterator[tuple[_Processes, Kind]]:
        """What a part reads of each kind of processes."""
        for group, of_all in zip(self.program.groups, self.read, strict=True):
            kernel = kernel_values(self.program.evaluator, group, self.parameters)
            for kind in kinds(group, part.columns):
                yield _Processes(group.form, kernel, of_all, kind.columns), kind


def prior_at(program: Program, learnt: Mapping[str, Array], rows: Rows) -> Prior:
    """At unconstrained parameters and some rows."""
    return Prior(program, program.parameters.constrain(learnt), functionals(program, rows))


def with_nothing(loadings: Float[Array, "columns ..."]) -> Float[Array, "columns+1 ..."]:
    """Loadings with those of a reading that no value reads at the end, place -1 of a `Kind`."""
    return jnp.concatenate([loadings, jnp.zeros_like(loadings[:1])])


def kernel_arguments(kernel: KernelValues, factor: Any) -> list[Array]:
    """The parameters of one of a group's different kernels."""
    return [argument[factor] for argument in kernel.arguments]


@jax.custom_vjp
def between_factors(
    left: Float[Array, " rows"], matrix: Float[Array, "rows rows"], right: Float[Array, " rows"]
) -> Float[Array, "rows rows"]:
    """diag(left) matrix diag(right). Its slopes in both factors come from one product of two matrices, made once."""
    return left[:, None] * right[None, :] * matrix


def _factors_forward(left: Array, matrix: Array, right: Array) -> tuple[Array, tuple[Array, Array, Array]]:
    return between_factors(left, matrix, right), (left, matrix, right)


def _factors_backward(kept: tuple[Array, Array, Array], slope: Array) -> tuple[Array, Array, Array]:
    left, matrix, right = kept
    product = jax.lax.optimization_barrier(slope * matrix)
    return product @ right, slope * left[:, None] * right[None, :], left @ product


between_factors.defvjp(_factors_forward, _factors_backward)


def _between(
    scale: Float[Array, " processes"],
    loadings: tuple[Float[Array, "processes elements rows"], Float[Array, "processes elements rows"]],
    block: Float[Array, "rows rows"],
) -> Float[Array, "elements rows elements rows"]:
    """sum_j scale_j h_j h_j' times a covariance, for two readings."""
    left, right = loadings
    processes, elements, rows = left.shape
    if processes == elements == 1:
        return between_factors(scale[0] * left[0, 0], block, right[0, 0])[None, :, None, :]
    if processes == 1:
        weights = (scale[0] * left[0])[:, :, None, None] * right[0][None, None]
    else:
        flat = (left * scale[:, None, None]).reshape(processes, -1).T @ right.reshape(processes, -1)
        weights = flat.reshape(elements, rows, elements, rows)
    return weights * block[None, :, None, :]
