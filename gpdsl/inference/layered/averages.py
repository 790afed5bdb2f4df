"""Moments of latents at Gaussian arguments in closed form: no samples of row variables (Titsias and Lawrence, 2010).

With h ~ N(m, diag(v)), inducing points z, Kuu = L L', f(h) = sqrt(scale) (k(h, z)' L^-T w + r) and w ~ N(mu, S),

    E f   = sqrt(scale) psi1' L^-T mu,
    E f^2 = scale (psi0 - tr(Kuu^-1 psi2) + tr(L^-T (S + mu mu') L^-1 psi2)),

by the averages of kernels (`gpdsl.kernels.averages`). A likelihood that is quadratic in one latent at a time asks for
nothing else.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from gpdsl.inference.posteriors.features import factorise, of_each_kernel
from gpdsl.kernels.averages import Arguments, Averages, Columns, averages, has_averages
from gpdsl.kernels.functionals import Functionals, Values
from gpdsl.language import model as m
from gpdsl.program.groups import Group, KernelValues
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows, row_count
from gpdsl.symbolic.readings import OWN


def moments_at(
    group: Group,
    kernel: KernelValues,
    inducing: Functionals,
    q: tuple[Float[Array, "latents M"], Float[Array, "latents M M"]],
    at: tuple[Float[Array, "rows D"], Float[Array, "rows D"], Columns],
    jitter: Array | float,
) -> tuple[Float[Array, "latents rows"], Float[Array, "latents rows"]]:
    """Means and variances of a group at Gaussian arguments and unit scale, for q by its mean and its covariance."""
    assert isinstance(inducing, Values)
    mean, spread = q
    arguments = Arguments(at[0], at[1], inducing.points, at[2])

    def one(parameters: tuple[Array, ...]) -> Averages:
        return averages(group.form, parameters, arguments)

    found = of_each_kernel(group, one, kernel)
    factor = factorise(group, kernel, inducing, jitter)
    identity = jnp.eye(factor.shape[-1], dtype=factor.dtype)
    inverse = solve_triangular(factor, jnp.broadcast_to(identity, factor.shape), lower=True)  # L^-1
    back = jnp.swapaxes(inverse, -1, -2)
    first = (found.cross @ (back @ mean[..., None]))[..., 0]
    told = back @ (spread + mean[:, :, None] * mean[:, None, :] - identity) @ inverse
    flat = found.square.reshape(*found.square.shape[:2], -1)
    squares = (flat @ told.reshape(len(told), -1, 1))[..., 0]
    return first, jnp.maximum(found.own + squares - first**2, 0.0)


# Where they are used: row variables as arguments, one layer, a likelihood that is quadratic in one latent at a time.


def averaged(program: Program) -> str:
    """Why the moments of the latents at row variables have no formula, or nothing where they have."""
    rows = program.declarations.rows
    if program.inner - rows.keys():
        return "layers below are sampled"
    if program.sharp:
        return f"`{min(program.sharp)}` is read beside the latents that are functions of it"
    if not program.conjugate or program.mixing:
        return "the likelihood is not quadratic in one latent at a time"
    for group in program.groups:
        if group.per_row:
            continue
        if group.readings.all != (OWN,):
            return f"`{group.names[0]}` is read at other places than the row's own"
        if any(_mean_reads(program, member.latent) & program.inner for member in group.members):
            return f"the mean of `{group.names[0]}` is a function of a row variable"
        if not has_averages(group.form, open_columns(program, group)):
            return f"the kernel of `{group.names[0]}` has no average under Gaussian arguments"
    return ""


def open_columns(program: Program, group: Group) -> Columns:
    """Which columns of the arguments of a group are row variables."""
    shape, columns_of = program.translator.shape, program.declarations.columns_of
    widths = [math.prod(shape(columns_of(name))) for name in group.inputs]
    return np.repeat([name in program.inner for name in group.inputs], widths)


def _mean_reads(program: Program, latent: m.Latent) -> set[str]:
    """Names in the mean of a latent."""
    translator = program.translator
    return {translator.references[symbol].name for symbol in translator.scalar(latent.mean).free_symbols}


def gaussian_arguments(
    program: Program, group: Group, rows: Rows, moments: tuple[Array, Array]
) -> tuple[Float[Array, "rows D"], Float[Array, "rows D"], Columns]:
    """Means and variances of the arguments of a group, and which of them vary.

    Row variables have theirs in `moments`, the means and variances [rows, columns] of all that is random.
    """
    means, variances = [], []
    for name in group.inputs:
        if name in program.inner:
            own = slice(*program.evaluator.columns[name, OWN])
            mean, variance = (each[:, own] for each in moments)
        else:
            mean = rows.inputs[name].reshape(row_count(rows), -1)
            variance = jnp.zeros_like(mean)
        means.append(mean)
        variances.append(variance)
    return jnp.concatenate(means, axis=1), jnp.concatenate(variances, axis=1), open_columns(program, group)
