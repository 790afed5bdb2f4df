"""The numbers of a system: observed values in units of their noise, and the covariance of what they read of latents."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.inference.exact.system import Part, Statement, System
from gpdsl.kernels.covariance import covariance, variance
from gpdsl.kernels.functionals import Functionals, every_point
from gpdsl.program.evaluation import functionals_at, prior_means
from gpdsl.program.groups import Group, KernelValues, kernel_values
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows, Scope, observed_mask


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Whitened:
    """One part in units of its noise: `z` [values], and `loadings` [columns, elements, rows] of all its rows."""

    z: Float[Array | np.ndarray, " values"]
    loadings: Float[Array | np.ndarray, "columns elements rows"]


def whitened(system: System, learnt: Mapping[str, Array], rows: Rows) -> tuple[list[Whitened], Array]:
    """Every part, and the constant of the log density with the log priors, at unconstrained parameters."""
    program = system.program
    parameters = program.parameters.constrain(learnt)
    count = next(iter(rows.observed.values())).shape[0]
    mean = prior_means(program.evaluator, program.groups, parameters, rows, count)
    read = [_read(program, each, Scope(parameters, rows, mean)) for each in system.statements]
    residuals, loadings = (jnp.concatenate(all_of, axis=-1) for all_of in list(zip(*read, strict=True))[:2])
    constant = sum((jnp.sum(constants) for _, _, constants in read), start=jnp.zeros((), mean.dtype))
    first = np.cumsum([0, *[residual.shape[-1] for residual, _, _ in read]])
    found = []
    for part in system.parts:
        places = np.asarray([first[s] + number for s, number in part.elements])
        z, slopes = residuals.T[places][:, part.rows].ravel(), jnp.swapaxes(loadings, 1, 2)[np.asarray(part.columns)]
        found.append(Whitened(z if part.kept is None else z[part.kept], slopes[:, places][..., part.rows]))
    return found, constant + program.log_prior(parameters)


def _read(program: Program, each: Statement, scope: Scope) -> tuple[Array, Array, Array]:
    """Residuals [rows, elements], loadings [columns, rows, elements] and constants of observed values alone."""
    axes, mask = each.observation.axes, observed_mask(scope.rows, each.observation)
    assert scope.latents is not None
    latents = scope.latents
    count, columns = latents.shape

    def flat(value: Any) -> Array:
        return jnp.broadcast_to(jnp.asarray(value, latents.dtype), mask.shape).reshape(count, -1)

    def signal(values: Array) -> Array:
        return flat(program.evaluator(each.signal, Scope(scope.parameters, scope.rows, values), axes))

    def slope(column: Array) -> Array:
        return jax.jvp(signal, (latents,), (jnp.broadcast_to(column, latents.shape),))[1]

    loadings = jax.vmap(slope)(jnp.eye(columns, dtype=latents.dtype))
    residual = flat(program.evaluator(each.residual, scope, axes))
    constants = flat(program.evaluator(each.constant, scope, axes))
    seen = mask.reshape(count, -1) > 0  # what stands in the place of a missing value does not count
    return residual, loadings, jnp.where(seen, constants, 0.0)


def functionals(program: Program, rows: Rows) -> list[Functionals]:
    """What the rows read of each group, without the sums that tell covariances."""
    return [functionals_at(group, group.readings.basis, rows) for group in program.groups]


def at_rows(functionals: Functionals, numbers: np.ndarray) -> Functionals:
    """The functionals of some rows."""
    return jax.tree.map(lambda points: points if len(points) == len(numbers) else points[numbers], functionals)


def signal_covariance(
    program: Program,
    part: Part,
    loadings: Float[Array, "columns elements rows"],
    parameters: Mapping[str, Array],
    read: Sequence[Functionals],
) -> Float[Array, "values values"]:
    """H K H', the covariance of the values of a part without their noise.

    `parameters` are constrained, and `read` is what all rows read of each group (`functionals`).
    """
    total: Array | float = 0.0
    _, elements, count = loadings.shape
    padded = with_nothing(loadings)
    for group, of_all in zip(program.groups, read, strict=True):
        at = at_rows(of_all, part.rows)
        kernel = kernel_values(program.evaluator, group, parameters, every_point(at).shape[-1])
        for kind in kinds(group, part.columns):
            known = covariance(group.form, kernel_arguments(kernel, kind.factor), at)
            for (first, left), (second, right) in itertools.product(kind.columns.items(), repeat=2):
                block = known[first * count : (first + 1) * count, second * count : (second + 1) * count]
                total = total + _between(kernel, kind, (padded[left], padded[right]), block)
    total = jnp.asarray(total).reshape(elements * count, elements * count)
    return total if part.kept is None else total[part.kept][:, part.kept]


def largest_variance(
    program: Program,
    part: Part,
    loadings: Float[Array | np.ndarray, "columns elements rows"],
    parameters: Mapping[str, Array],
    read: Sequence[Functionals],
) -> Float[Array, ""]:
    """The largest variance of a value of a part without its noise; that of several readings of a latent from above."""
    total: Array | float = 0.0
    padded = with_nothing(jnp.asarray(loadings))
    for group, of_all in zip(program.groups, read, strict=True):
        at = at_rows(of_all, part.rows)
        kernel = kernel_values(program.evaluator, group, parameters, every_point(at).shape[-1])
        for kind in kinds(group, part.columns):
            own = variance(group.form, kernel_arguments(kernel, kind.factor), at).reshape(-1, len(part.rows))
            deviations = sum(jnp.abs(padded[at]) * jnp.sqrt(own[r]) for r, at in kind.columns.items())
            total = total + jnp.sum(kernel.scale[kind.processes, None, None] * jnp.square(deviations), axis=0)
    return jnp.max(jnp.asarray(total))


def with_nothing(loadings: Float[Array, "columns ..."]) -> Float[Array, "columns+1 ..."]:
    """Loadings with those of a reading that no value reads at the end, place -1 of a `Kind`."""
    return jnp.concatenate([loadings, jnp.zeros_like(loadings[:1])])


@dataclass(frozen=True)
class Kind:
    """Processes of a group with one covariance matrix up to scale, which a part reads.

    `columns`: of each reading, the places among the part's columns, process by process; -1 where it is not read.
    """

    factor: int
    processes: np.ndarray
    columns: Mapping[int, np.ndarray]


def kinds(group: Group, columns: Sequence[int]) -> list[Kind]:
    """The different covariance matrices of a group among some columns of the marginals."""
    places = {column: place for place, column in enumerate(columns)}
    inside = [c - group.start for c in columns if group.start <= c < group.stop]
    inside = [c for c in inside if c // group.size < len(group.readings.basis)]
    found: list[Kind] = []
    processes = sorted({c % group.size for c in inside})
    shared = [processes] if group.factors == 1 and processes else [[each] for each in processes]
    for some in shared:
        readings = sorted({c // group.size for c in inside if c % group.size in some})
        whole = {r: np.asarray([places.get(group.start + r * group.size + j, -1) for j in some]) for r in readings}
        found.append(Kind(0 if group.factors == 1 else some[0], np.asarray(some), whole))
    return found


def kernel_arguments(kernel: KernelValues, factor: int) -> list[Array]:
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
    kernel: KernelValues,
    kind: Kind,
    loadings: tuple[Float[Array, "processes elements rows"], Float[Array, "processes elements rows"]],
    block: Float[Array, "rows rows"],
) -> Float[Array, "elements rows elements rows"]:
    """sum_j scale_j h_j h_j' times a covariance, for two readings."""
    scale = kernel.scale[kind.processes]
    left, right = loadings
    _, elements, rows = left.shape
    if len(kind.processes) == elements == 1:
        return between_factors(scale[0] * left[0, 0], block, right[0, 0])[None, :, None, :]
    if len(kind.processes) == 1:
        weights = (scale[0] * left[0])[:, :, None, None] * right[0][None, None]
    else:
        flat = (left * scale[:, None, None]).reshape(len(scale), -1).T @ right.reshape(len(scale), -1)
        weights = flat.reshape(elements, rows, elements, rows)
    return weights * block[None, :, None, :]
