"""The log evidence of values on a grid and its gradient: an eigendecomposition for each side.

In units of noise z ~ N(0, B) with B = K_0 x K_1 x ... x K_d + I: K_0 is of the outputs, the others of the sides. With
K_i = Q_i diag(l_i) Q_i', Q the product of all Q_i, l that of all l_i, w = 1 / (1 + l), a = Q'z and b = w a,

    log p(z) = -(sum w a^2 + sum log(1 + l)) / 2,
    d log p / dK_i = Q_i (b_i diag(l of the others) b_i' - diag(sums of w (l of the others) over these)) Q_i' / 2,
    d log p / dz = -Q b,

where b_i has b with side i first and all others in one. Eigenvectors are not differentiated: they have no slope where
eigenvalues meet, and the evidence has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gpdsl.inference.exact.grids import Grid, Side, points_of
from gpdsl.inference.exact.parts import Part, kinds
from gpdsl.inference.exact.system import System
from gpdsl.inference.exact.whitening import functionals, kernel_arguments, whitened
from gpdsl.kernels.covariance import covariance
from gpdsl.kernels.functionals import Functionals, Values
from gpdsl.program.groups import KernelValues, kernel_values
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows

Cells = Float[Array, "outputs *sides"]
Matrices = Sequence[Float[Array, "n n"]]


def log_evidence_on_grid(system: System, grid: Grid, learnt: Mapping[str, Array], rows: Rows) -> Array:
    """With the log priors, at unconstrained parameters."""
    program, (part,) = system.program, system.parts
    (found,), constant = whitened(system, learnt, rows)
    (read,) = functionals(program, rows)
    parameters = program.parameters.constrain(learnt)
    matrices = covariances(program, part, grid, jnp.asarray(found.loadings), parameters, read)
    return constant + log_normal(matrices, in_cells(grid, jnp.asarray(found.z[0])))


def in_cells(grid: Grid, values: Float[Array, "*lead values"]) -> Float[Array, "*lead outputs *sides"]:
    """Values of a part in the cells where they stand."""
    return values[..., grid.order].reshape(*values.shape[:-1], *grid.shape)


def weights(
    part: Part, grid: Grid, loadings: Float[Array, "1 columns elements rows"]
) -> tuple[Float[Array, "processes outputs"], list[Float[Array, " n"]]]:
    """Loadings as a product: of every process on every output, and of the values of each side."""
    assert part.grid is not None
    ones = [jnp.ones(n, loadings.dtype) for n in grid.shape[1:]]
    if grid.mixes(part):
        return loadings[0, :, :, 0], ones
    along, elements = int(part.grid[0]), loadings.shape[2]
    own = in_cells(grid, loadings[0, part.grid[1:], jnp.arange(elements)].ravel())
    ones[along - 1] = own[tuple(slice(None) if k == along else 0 for k in range(own.ndim))]
    return jnp.ones((1, 1), loadings.dtype), ones


def covariances(
    program: Program,
    part: Part,
    grid: Grid,
    loadings: Float[Array, "1 columns elements rows"],
    parameters: Mapping[str, Array],
    read: Functionals,
) -> list[Float[Array, "n n"]]:
    """K_0, of outputs, and K_1, ..., of sides, in units of noise. `parameters` are constrained."""
    points = points_of(read)
    kernel = kernel_values(program.evaluator, program.groups[0], parameters, points.shape[-1])
    of_outputs, of_sides = weights(part, grid, loadings)
    found = [of_outputs.T @ (scales(program, part, kernel)[:, None] * of_outputs)]
    for side, own in zip(grid.sides, of_sides, strict=True):
        at = Values(points[side.where])
        found.append(own[:, None] * along(side, kernel, at) * own)
    return found


def scales(program: Program, part: Part, kernel: KernelValues) -> Float[Array, " columns"]:
    """Variances of the processes that a part reads."""
    (kind,) = kinds(program.groups[0], part.columns)
    return kernel.scale[kind.processes[0]]


def along(side: Side, kernel: KernelValues, a: Functionals, b: Functionals | None = None) -> Float[Array, "n m"]:
    """The covariance that a side of a grid contributes."""
    return covariance(side.form, side.arguments(kernel_arguments(kernel, 0)), a, b)


# --- Eigenvectors, and what follows from them -----------------------------------------------------------------------


def spectra(matrices: Matrices) -> tuple[list[Float[Array, "n n"]], list[Float[Array, " n"]]]:
    """Eigenvectors and eigenvalues of every matrix.

    Negative ones within rounding are zero, so that they stay so in units of little noise.
    """
    values, vectors = [], []
    for each in matrices:
        own, columns = jnp.linalg.eigh(each, symmetrize_input=False)
        rounding = len(own) * float(jnp.finfo(own.dtype).eps) * jnp.max(jnp.abs(own))
        values.append(jnp.where((own < 0) & (own > -rounding), 0.0, own))
        vectors.append(columns)
    return vectors, values


def outer(vectors: Sequence[Float[Array, " n"]]) -> Array:
    """All products, along one axis for each."""
    return reduce(lambda one, other: one[..., None] * other, vectors)


def turned(cells: Array, matrices: Sequence[Float[Array, "n m"]]) -> Array:
    """The product of all M_i', one for each axis in turn, times an array."""
    return reduce(lambda found, each: jnp.tensordot(found, each, axes=([0], [0])), matrices, cells)


@jax.custom_vjp
def log_normal(matrices: Matrices, z: Cells) -> Float[Array, ""]:
    """log N(z; 0, B) but for the constant."""
    return _forward(matrices, z)[0]


def _forward(matrices: Matrices, z: Cells) -> tuple[Array, Any]:
    vectors, own = spectra(matrices)
    inside, values = turned(z, vectors), outer(own)
    told = inside / (1.0 + values)
    return -0.5 * (jnp.sum(inside * told) + jnp.sum(jnp.log1p(values))), (vectors, own, told)


def _backward(kept: Any, slope: Array) -> tuple[list[Array], Array]:
    vectors, own, told = kept
    found, values = [], outer(own)
    for axis, each in enumerate(vectors):
        rest = [own[k] if k != axis else jnp.ones_like(own[k]) for k in range(len(own))]
        first = lambda cells, axis=axis: jnp.moveaxis(cells, axis, 0).reshape(cells.shape[axis], -1)  # noqa: E731
        others, here = first(outer(rest)), first(told)
        lost = jnp.sum(others / (1.0 + first(values)), axis=1)
        found.append(0.5 * slope * each @ ((here * others) @ here.T - jnp.diag(lost)) @ each.T)
    return found, -slope * turned(told, [each.T for each in vectors])


log_normal.defvjp(_forward, _backward)
