"""Moments of latents at Gaussian arguments in closed form: no samples of row variables (Titsias and Lawrence, 2010).

With h ~ N(m, diag(v)), inducing points z, Kuu = L L', f(h) = sqrt(scale) (k(h, z)' L^-T w + r) and w ~ N(mu, S),

    E f   = sqrt(scale) psi1' L^-T mu,
    E f^2 = scale (psi0 - tr(Kuu^-1 psi2) + tr(L^-T (S + mu mu') L^-1 psi2)),

psi0 = E k(h, h), psi1 = E k(h, z), psi2 = E k(h, z) k(h, z)'. A likelihood that is quadratic in one latent at a time
asks for nothing else. Inputs that are known are columns without variance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float

from gpdsl.inference.posteriors.features import factorise, of_each_kernel
from gpdsl.kernels.covariance import covariance, variance
from gpdsl.kernels.form import Base, Form, On, Product, Scaled, Sum, columns_read, columns_taken, count, has_white
from gpdsl.kernels.functionals import Functionals, Values
from gpdsl.language import model as m
from gpdsl.program.groups import Group, KernelValues
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows, row_count
from gpdsl.symbolic.readings import OWN

Columns = Bool[np.ndarray, " D"]
"""Which columns of the arguments are uncertain."""

Parameters = Sequence[Array]


class Averages(NamedTuple):
    """psi0, psi1 and psi2 of some rows."""

    own: Float[Array, "rows"]
    cross: Float[Array, "rows M"]
    square: Float[Array, "rows M M"]


@dataclass(frozen=True)
class Arguments:
    """Gaussian arguments of some rows, means and variances of their columns, beside inducing points.

    Which columns are uncertain is told by `open`; the variances of others are zero.
    """

    mean: Float[Array, "rows D"]
    variance: Float[Array, "rows D"]
    points: Float[Array, "M D"]
    open: Columns

    def of(self, columns: list[int]) -> Arguments:
        """Some of the columns."""
        return Arguments(self.mean[:, columns], self.variance[:, columns], self.points[:, columns], self.open[columns])


def has_averages(form: Form, open_: Columns) -> bool:
    """Whether the averages of a kernel have a formula here, where these columns are uncertain."""
    if not _open(form, open_):
        return not has_white(form)
    match form:
        case Base(name=name):
            return name in ("RBF", "Linear")
        case Scaled(kernel=kernel):
            return has_averages(kernel, open_)
        case On(kernel=kernel):
            columns = columns_taken(form)
            return columns is not None and len(set(columns)) == len(columns) and has_averages(kernel, open_[columns])
        case Sum(terms=parts) | Product(factors=parts):
            apart = [_open(part, open_) for part in parts]
            return all(has_averages(p, open_) for p in parts) and not any(a & b for a, b in combinations(apart, 2))
    return False


def _open(form: Form, open_: Columns) -> frozenset[int]:
    """The uncertain columns that a kernel reads."""
    return columns_read(form, len(open_)) & set(np.flatnonzero(open_).tolist())


def averages(form: Form, parameters: Parameters, at: Arguments) -> Averages:
    """psi0, psi1 and psi2 of a kernel that `has_averages`, at unit scale."""
    if not _open(form, at.open):
        known = Values(at.mean)
        cross = covariance(form, parameters, known, Values(at.points))
        return Averages(variance(form, parameters, known), cross, _outer(cross, cross))
    match form:
        case Base(name="RBF"):
            return _rbf(at, parameters[0])
        case Base(name="Linear"):
            return _linear(at, parameters[0])
        case Scaled(kernel=kernel):
            own, cross, square = averages(kernel, parameters[1:], at)
            return Averages(parameters[0] * own, parameters[0] * cross, parameters[0] ** 2 * square)
        case On(kernel=kernel):
            columns = columns_taken(form)
            assert columns is not None
            return averages(kernel, parameters, at.of(columns))
        case Product(factors=parts):
            return Averages(*(reduce(jnp.multiply, each) for each in zip(*_parts(parts, parameters, at), strict=True)))
        case Sum(terms=parts):
            return _sum(_parts(parts, parameters, at))
    raise TypeError(form)


def _parts(parts: Sequence[Form], parameters: Parameters, at: Arguments) -> list[Averages]:
    ends = np.cumsum([count(part) for part in parts])
    return [averages(part, parameters[end - count(part) : end], at) for part, end in zip(parts, ends, strict=True)]


def _sum(parts: Sequence[Averages]) -> Averages:
    """Of kernels of different columns, which are independent: the mean of a product is that of means."""
    square = sum(each.square for each in parts)
    for a, b in combinations(parts, 2):
        both = _outer(a.cross, b.cross)
        square = square + both + jnp.swapaxes(both, 1, 2)
    return Averages(sum(each.own for each in parts), sum(each.cross for each in parts), square)  # type: ignore[arg-type]


def _outer(a: Float[Array, "rows M"], b: Float[Array, "rows M"]) -> Float[Array, "rows M M"]:
    return a[:, :, None] * b[:, None, :]


def _rbf(at: Arguments, ell: Array) -> Averages:
    """Products over columns of Gaussians in m - z, and in m - (z + z') / 2 and z - z'."""
    rows, width = at.mean.shape
    squares = jnp.broadcast_to(ell * ell, (width,))
    once: Array | float = 0.0
    twice: Array | float = 0.0
    for d in range(width):
        l2, v, m, z = squares[d], at.variance[:, d], at.mean[:, d], at.points[:, d]
        away = m[:, None] - z
        middle = m[:, None, None] - 0.5 * (z[:, None] + z)
        once = once - 0.5 * away**2 / (l2 + v)[:, None] - 0.5 * jnp.log1p(v / l2)[:, None]
        twice = twice - 0.25 * (z[:, None] - z) ** 2 / l2 - middle**2 / (l2 + 2.0 * v)[:, None, None]
        twice = twice - 0.5 * jnp.log1p(2.0 * v / l2)[:, None, None]
    return Averages(jnp.ones(rows, at.mean.dtype), jnp.exp(once), jnp.exp(twice))


def _linear(at: Arguments, ell: Array) -> Averages:
    squares = jnp.broadcast_to(ell * ell, at.mean.shape[1:])
    slopes = at.points / squares
    cross = at.mean @ slopes.T
    spread = jnp.einsum("ad,nd,bd->nab", slopes, at.variance, slopes)
    return Averages(jnp.sum((at.mean**2 + at.variance) / squares, axis=1), cross, _outer(cross, cross) + spread)


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
