"""Moments of latents at Gaussian arguments in closed form: no samples of row variables (Titsias and Lawrence, 2010).

With h ~ N(m, diag(v)), inducing points z, Kuu = L L', f(h) = sqrt(scale) (k(h, z)' L^-T w + r) and w ~ N(mu, S),

    E f   = sqrt(scale) psi1' L^-T mu,
    E f^2 = scale (psi0 - tr(Kuu^-1 psi2) + tr(L^-T (S + mu mu') L^-1 psi2)),

psi0 = E k(h, h), psi1 = E k(h, z), psi2 = E k(h, z) k(h, z)'. A likelihood that is quadratic in one latent at a time
asks for nothing else. Inputs that are known are columns without variance. A kernel is a sum of products of Gaussians
(RBF) and of at most one line (Linear); products of two such terms are Gaussians times lines in h again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain, product
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import sympy as sp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float

from gpdsl.inference.posteriors.features import factorise, of_each_kernel
from gpdsl.kernels.columns import selected
from gpdsl.kernels.covariance import covariance, variance
from gpdsl.kernels.form import (
    Base,
    Form,
    On,
    Product,
    Scaled,
    Sum,
    block_of,
    columns_read,
    columns_taken,
    count,
    has_white,
)
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


# Which kernels have a formula: sums of products of Gaussians and of at most one linear kernel, in arguments that are
# independent given the row.


@dataclass(frozen=True, eq=False)
class Reads:
    """An argument of kernels, by the uncertain columns that it is a function of; none of what is known."""

    columns: frozenset[int]


class Asks(NamedTuple):
    """What a kernel is a function of, and the most linear kernels of uncertain arguments in one product."""

    read: frozenset[Reads]
    linear: int


def has_averages(form: Form, open_: Columns) -> bool:
    """Whether the averages of a kernel have a formula here, where these columns are uncertain."""
    asks = _asks(form, [Reads(frozenset({d}) if each else frozenset()) for d, each in enumerate(open_)])
    if asks is None or asks.linear > 1:
        return False
    apart = [each.columns for each in asks.read]
    return sum(map(len, apart)) == len(frozenset().union(*apart))


def _asks(form: Form, space: Sequence[Reads]) -> Asks | None:
    """Nothing where there is no formula."""
    read = frozenset(space[d] for d in columns_read(form, len(space)) if space[d].columns)
    if not read:
        return None if has_white(form) else Asks(read, 0)
    match form:
        case Base(name="RBF" | "Linear" as name):
            return Asks(read, int(name == "Linear"))
        case Scaled(kernel=kernel):
            return _asks(kernel, space)
        case On(kernel=kernel):
            inside = _inside(form, space)
            return None if inside is None else _asks(kernel, inside)
        case Sum(terms=parts) | Product(factors=parts):
            found = [each for part in parts if (each := _asks(part, space)) is not None]
            if len(found) == len(parts):
                most = max if isinstance(form, Sum) else sum
                return Asks(frozenset.union(*[each.read for each in found]), most(each.linear for each in found))
    return None


def _inside(form: On, space: Sequence[Reads]) -> list[Reads] | None:
    """The arguments of a kernel of some columns, or of one straight line in them."""
    columns = columns_taken(form)
    if columns is not None:
        return [space[d] for d in columns]
    (line, *others), blocks = form.columns, _blocks(form)
    if others or any(stop - start > 1 for start, stop in blocks.values()):
        return None
    open_ = [symbol for symbol, (start, _) in blocks.items() if space[start].columns]
    if any(sp.diff(line, a, b) != 0 for a in open_ for b in open_):
        return None
    return [Reads(frozenset().union(*[space[blocks[symbol][0]].columns for symbol in open_]))]


def _blocks(form: On) -> dict[sp.Symbol, tuple[int, int]]:
    """The columns that each symbol of the first formula stands for, without numbers."""
    known = {symbol: block_of(symbol) for symbol in form.columns[0].free_symbols}
    return {symbol: block for symbol, block in known.items() if block is not None}


# The averages, from kernels as sums of terms.


@dataclass(frozen=True, eq=False)
class Argument:
    """A number that kernels read, N(mean, variance) at each row, and what it is at inducing points."""

    mean: Float[Array, "rows"]
    variance: Float[Array, "rows"]
    points: Float[Array, "M"]
    open: bool


Weights = dict[Argument, Array]
"""Numbers of arguments, by the inverse squares of length-scales."""


class Term(NamedTuple):
    """known(x, z) prod_u exp(-narrow_u (u - z_u)^2 / 2), times sum_u slopes_u u z_u if there are any.

    At z = the row itself it is `own`, times sum_u slopes_u u^2.
    """

    own: Float[Array, "rows"]
    known: Float[Array, "rows M"]
    narrow: Weights
    slopes: Weights


def _times(a: Term, b: Term) -> Term:
    """Their product: only one of them has slopes."""
    narrow = a.narrow | b.narrow | {u: a.narrow[u] + b.narrow[u] for u in a.narrow.keys() & b.narrow.keys()}
    return Term(a.own * b.own, a.known * b.known, narrow, a.slopes | b.slopes)


def averages(form: Form, parameters: Parameters, at: Arguments) -> Averages:
    """psi0, psi1 and psi2 of a kernel that `has_averages`, at unit scale."""
    columns = zip(at.mean.T, at.variance.T, at.points.T, at.open, strict=True)
    terms = _terms(form, parameters, [Argument(m, v, z, bool(o)) for m, v, z, o in columns])
    square: Array | float = 0.0
    for place, a in enumerate(terms):
        square = square + _square(a, a)
        for b in terms[:place]:
            both = _square(a, b)
            square = square + both + jnp.swapaxes(both, 1, 2)
    own, cross = sum(map(_own, terms)), sum(map(_cross, terms))
    return Averages(own, cross, square)  # type: ignore[arg-type]


def _terms(form: Form, parameters: Parameters, space: Sequence[Argument]) -> list[Term]:
    """The kernel as their sum."""
    read = [space[d] for d in sorted(columns_read(form, len(space)))]
    if not any(each.open for each in read):
        known, points = jnp.stack([u.mean for u in space], 1), jnp.stack([u.points for u in space], 1)
        cross = covariance(form, parameters, Values(known), Values(points))
        return [Term(variance(form, parameters, Values(known)), cross, {}, {})]
    match form:
        case Base(name=name):
            narrow = jnp.broadcast_to(parameters[0] ** -2.0, (len(space),))
            weights: Weights = {}
            for u, each in zip(space, narrow, strict=True):
                weights[u] = weights.get(u, jnp.zeros(())) + each
            return _linear(weights) if name == "Linear" else [_gaussian(weights)]
        case Scaled(kernel=kernel):
            inner = _terms(kernel, parameters[1:], space)
            return [each._replace(own=parameters[0] * each.own, known=parameters[0] * each.known) for each in inner]
        case On(numbers=numbers, kernel=kernel):
            return _terms(kernel, parameters[len(numbers) :], _arguments(form, parameters, space))
        case Sum(terms=parts):
            return list(chain(*_of_parts(parts, parameters, space)))
        case Product(factors=parts):
            return [reduce(_times, each) for each in product(*_of_parts(parts, parameters, space))]
    raise TypeError(form)


def _of_parts(parts: Sequence[Form], parameters: Parameters, space: Sequence[Argument]) -> list[list[Term]]:
    ends = np.cumsum([count(part) for part in parts])
    return [_terms(part, parameters[end - count(part) : end], space) for part, end in zip(parts, ends, strict=True)]


def _arguments(form: On, parameters: Parameters, space: Sequence[Argument]) -> list[Argument]:
    """Those of the kernel inside: of a straight line, the variance is that of its slopes."""
    columns = columns_taken(form)
    if columns is not None:
        return [space[d] for d in columns]
    numbers = parameters[: len(form.numbers)]
    at, points = jnp.stack([u.mean for u in space], 1), jnp.stack([u.points for u in space], 1)
    mean = selected(form, numbers, at)[:, 0]
    spread = jnp.zeros_like(mean)
    for start, _ in _blocks(form).values():
        if space[start].open:
            slope = selected(form, numbers, at.at[:, start].add(1.0))[:, 0] - mean
            spread = spread + slope**2 * space[start].variance
    return [Argument(mean, spread, selected(form, numbers, points)[:, 0], True)]


def _gaussian(weights: Weights) -> Term:
    """What is known is a factor of its own: it costs nothing for pairs of inducing points."""
    ones, away = _ones(weights)
    for u, narrow in weights.items():
        away = away if u.open else away + 0.5 * narrow * (u.mean[:, None] - u.points) ** 2
    return Term(ones, jnp.exp(-away), {u: narrow for u, narrow in weights.items() if u.open}, {})


def _linear(weights: Weights) -> list[Term]:
    """What is known is a term of its own."""
    (ones, known), own = _ones(weights), jnp.zeros(())
    for u, narrow in weights.items():
        if not u.open:
            own, known = own + narrow * u.mean**2, known + narrow * u.mean[:, None] * u.points
    open_ = {u: narrow for u, narrow in weights.items() if u.open}
    line = Term(ones, jnp.ones_like(known), {}, open_)
    return [line] if len(open_) == len(weights) else [line, Term(own, known, {}, {})]


def _ones(weights: Weights) -> tuple[Float[Array, "rows"], Float[Array, "rows M"]]:
    """Ones at the rows, and zeros beside inducing points."""
    (u, *_) = weights
    return jnp.ones_like(u.mean), jnp.zeros((len(u.mean), len(u.points)), u.mean.dtype)


def _own(term: Term) -> Float[Array, "rows"]:
    if not term.slopes:
        return term.own
    return term.own * sum(slope * (u.mean**2 + u.variance) for u, slope in term.slopes.items())


def _cross(term: Term) -> Float[Array, "rows M"]:
    """Products over arguments of Gaussians in m - z; a slope is one of the mean where these are the density."""
    away: Array | float = 0.0
    for u, narrow in term.narrow.items():
        spread = (narrow * u.variance)[:, None]
        away = away - 0.5 * narrow * (u.mean[:, None] - u.points) ** 2 / (1.0 + spread) - 0.5 * jnp.log1p(spread)
    found = term.known * jnp.exp(away)
    if not term.slopes:
        return found
    line: Array | float = 0.0
    for u, slope in term.slopes.items():
        narrow, v = term.narrow.get(u, jnp.zeros(())), u.variance[:, None]
        line = line + slope * u.points * (u.mean[:, None] + v * narrow * u.points) / (1.0 + v * narrow)
    return found * line


def _square(a: Term, b: Term) -> Float[Array, "rows M M"]:
    """Products of Gaussians in m - the middle of z and z', by how narrow both are, and in z - z'."""
    away: Array | float = 0.0
    for u in a.narrow | b.narrow:
        p, q, middle = _both(u, a, b)
        spread, off = (p + q) * u.variance[:, None, None], u.mean[:, None, None] - middle / (p + q)
        away = away - 0.5 * p * q / (p + q) * (u.points[:, None] - u.points) ** 2
        away = away - 0.5 * (p + q) * off**2 / (1.0 + spread) - 0.5 * jnp.log1p(spread)
    found = a.known[:, :, None] * b.known[:, None, :] * jnp.exp(away)
    if not (a.slopes or b.slopes):
        return found
    first, second, beside = jnp.zeros(()), jnp.zeros(()), jnp.zeros(())
    for u in a.slopes | b.slopes:
        p, q, middle = _both(u, a, b)
        v = u.variance[:, None, None] / (1.0 + u.variance[:, None, None] * (p + q))  # where these are the density
        mean = u.mean[:, None, None] + v * (middle - (p + q) * u.mean[:, None, None])
        left, right = (each.slopes.get(u, jnp.zeros(())) for each in (a, b))
        left, right = left * u.points[:, None], right * u.points
        first, second, beside = first + left * mean, second + right * mean, beside + left * right * v
    return found * (first * second + beside if a.slopes and b.slopes else first + second)


def _both(u: Argument, a: Term, b: Term) -> tuple[Array, Array, Float[Array, "M M"]]:
    """How narrow two terms are in an argument, and the sum of its inducing points by these."""
    p, q = (each.narrow.get(u, jnp.zeros(())) for each in (a, b))
    return p, q, p * u.points[:, None] + q * u.points


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
