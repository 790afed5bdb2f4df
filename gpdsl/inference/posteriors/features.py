"""Inducing functionals of each group of latents and what follows from them: whitened features of the rows.

With Kuu = L L', a latent is f(x) = mean(x) + sqrt(scale) (phi(x)'w + r), phi = L^-1 Kuf, w ~ N(0, I) a priori, r the
part of the prior the inducing values do not explain (SAVIGP eqs. 4-6, whitened). When the rows are the inducing points
themselves (dense, section 6.1), phi is L and nothing is left unexplained.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from gpdsl.kernels.averages import Arguments, Averages, Columns, averages, has_averages
from gpdsl.kernels.covariance import covariance, variance
from gpdsl.kernels.functionals import Functionals, Values
from gpdsl.kernels.numerics import cholesky, solve_lower_apart, with_jitter
from gpdsl.language import model as m
from gpdsl.program.groups import Group, KernelValues
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows, row_count
from gpdsl.symbolic.readings import OWN

Tree = TypeVar("Tree")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Features:
    """Whitened features of some rows for one group; the leading axis is 1 when the group shares its factor.

    `phi` [g, rows, M], unexplained prior variance `residual` [g, rows], both for unit scale; `factor` [g, M, M].
    """

    phi: Float[Array, "g rows M"]
    residual: Float[Array, "g rows"]
    factor: Float[Array, "g M M"]


def factorise(
    group: Group, values: KernelValues, inducing: Functionals, jitter: Array | float
) -> Float[Array, "g M M"]:
    """Cholesky factors of Kuu, one per different kernel of the group."""

    def one(arguments: tuple[Array, ...]) -> Array:
        return cholesky(_among(group, arguments, inducing), jitter)

    return of_each_kernel(group, one, values)


def inducing_covariances(
    group: Group, values: KernelValues, inducing: Functionals, jitter: Array | float
) -> Float[Array, "g M M"]:
    """Kuu with jitter, for unit scale."""
    return of_each_kernel(group, lambda a: with_jitter(_among(group, a, inducing), jitter), values)


def _among(group: Group, arguments: tuple[Array, ...], inducing: Functionals) -> Float[Array, "M M"]:
    """Covariances among inducing functionals; as between two sets of them, white noise apart has no part in these."""
    return covariance(group.form, arguments, inducing, inducing if group.apart else None)


def dense_features(factor: Float[Array, "g M M"]) -> Features:
    """Features of the inducing points themselves."""
    return Features(factor, jnp.zeros(factor.shape[:2], factor.dtype), factor)


def sparse_features(
    group: Group,
    values: KernelValues,
    inducing: Functionals,
    at: Functionals,
    factor: Float[Array, "g M M"],
    shards: int = 1,
) -> Features:
    """Features of other functionals, such as the values at the rows' inputs, which lie on so many devices."""
    cross = of_each_kernel(group, lambda a: covariance(group.form, a, inducing, at), values)
    prior = prior_variances(group, values, at)
    phi = jnp.swapaxes(solve_lower_apart(factor, cross, shards), -1, -2)
    return Features(phi, jnp.maximum(prior - jnp.sum(phi**2, axis=-1), 0.0), factor)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Covariances:
    """What features are made of, for unit scale: Kuu with jitter, Kuf, and the prior variances of the rows."""

    inducing: Float[Array, "g M M"]
    cross: Float[Array, "g M rows"]
    prior: Float[Array, "g rows"]


def covariances(
    group: Group, values: KernelValues, inducing: Functionals, at: Functionals, jitter: Array | float
) -> Covariances:
    """Covariances among inducing functionals and those of some rows, one set per different kernel of the group."""
    return Covariances(
        inducing_covariances(group, values, inducing, jitter),
        of_each_kernel(group, lambda a: covariance(group.form, a, inducing, at), values),
        prior_variances(group, values, at),
    )


def prior_variances(group: Group, values: KernelValues, at: Functionals) -> Float[Array, "g rows"]:
    """Prior variances of some functionals, for unit scale."""
    return of_each_kernel(group, lambda a: variance(group.form, a, at), values)


def prior_covariances(group: Group, values: KernelValues, at: Functionals) -> Float[Array, "g n n"]:
    """Prior covariances among some functionals, for unit scale; each has white noise of its own."""
    return of_each_kernel(group, lambda a: covariance(group.form, a, at), values)


def of_each_kernel(group: Group, function: Callable[[tuple[Array, ...]], Tree], values: KernelValues) -> Tree:
    """`function` of the arguments of each different kernel of the group: its arrays have an axis of these in front."""
    if group.factors == 1:
        return jax.tree.map(lambda a: a[None], function(tuple(a[0] for a in values.arguments)))
    return jax.vmap(lambda *a: function(a))(*values.arguments)


# The posterior of row variables: one Gaussian per row and element, in units of the prior's standard deviation.
#
# They are independent a priori, so nothing is projected from inducing values: a row's marginal is its own factor of q,
# and at new rows it is the prior. The KL term runs over all rows of the data, whatever rows a minibatch holds.


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RowFeatures:
    """Which rows of the training data are looked at; `numbers` is None for `new` rows that were not among them."""

    numbers: Float[Array | np.ndarray, "rows"] | None
    new: Float[Array, "rows"]


def row_features(rows: Rows, dtype: jnp.dtype) -> RowFeatures:
    """The numbers of some rows."""
    tables = (rows.inputs, rows.outputs)
    count = next(values.shape[0] for table in tables for values in table.values())
    return RowFeatures(rows.numbers, jnp.zeros(count, dtype))


def row_moments(
    mean: Float[Array, "K latents N"], variance: Float[Array, "K latents N"], features: RowFeatures
) -> tuple[Float[Array, "K latents rows"], Float[Array, "K latents rows"]]:
    """Moments of the rows' own factors; of the prior at new rows."""
    if features.numbers is None:
        shape = (*mean.shape[:-1], features.new.shape[0])
        return jnp.zeros(shape, mean.dtype), jnp.ones(shape, mean.dtype)
    index = features.numbers.astype(int)
    return mean[..., index], variance[..., index]


@dataclass(frozen=True)
class RowSites:
    """q of row variables given their sites: mean and root of the precision of each row's factor, and the KL."""

    mean: Float[Array, "latents N"]
    factor: Float[Array, "latents N"]
    row_mean: Float[Array, "latents N"]
    row_variance: Float[Array, "latents N"]
    divergence: Float[Array, ""]


def row_sites(linear: Float[Array, "latents N"], precision: Float[Array, "latents N"]) -> RowSites:
    """A standard normal prior times one site per row. All NaN where the product is no Gaussian."""
    total = 1.0 + precision
    factor = jnp.sqrt(total)
    mean, variance = linear / total, 1.0 / factor**2
    divergence = 0.5 * jnp.sum(variance + mean**2 - 1.0 + 2.0 * jnp.log(factor))
    return RowSites(mean, factor, mean, variance, divergence)


# Moments of latents at Gaussian arguments in closed form: no samples of row variables (Titsias and Lawrence, 2010).
#
# With h ~ N(m, diag(v)), inducing points z, Kuu = L L', f(h) = sqrt(scale) (k(h, z)' L^-T w + r) and w ~ N(mu, S),
#
#     E f   = sqrt(scale) psi1' L^-T mu,
#     E f^2 = scale (psi0 - tr(Kuu^-1 psi2) + tr(L^-T (S + mu mu') L^-1 psi2)),
#
# by the averages of kernels (`gpdsl.kernels.averages`). A likelihood that is quadratic in one latent at a time asks for
# nothing else.


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


def information(features: Features, weights: Float[Array, "latents reads"]) -> Float[Array, "latents M M"]:
    """Sums of weights_n phi_n phi_n'."""
    shared = features.phi.shape[0] == 1

    def one(phi: Array, weight: Array) -> Array:
        return (phi.T * weight) @ phi

    return jax.vmap(one, in_axes=(None if shared else 0, 0))(features.phi[0] if shared else features.phi, weights)


def inverse_root(information: Float[Array, "latents M M"]) -> Float[Array, "latents M M"]:
    """A root R, RR' = (I + information)^-1; NaN where that is not positive definite."""
    identity = jnp.eye(information.shape[-1], dtype=information.dtype)
    factor = jnp.linalg.cholesky(identity + information)
    return jax.vmap(lambda f: solve_triangular(f, identity, lower=True, trans=1))(factor)
