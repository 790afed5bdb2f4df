"""Kernels averaged over Gaussian arguments in closed form (Titsias and Lawrence, 2010).

With h ~ N(m, diag(v)) and points z: psi0 = E k(h, h), psi1 = E k(h, z), psi2 = E k(h, z) k(h, z)'. Inputs that are
known are columns without variance. A kernel is a sum of products of Gaussians (RBF) and of at most one line (Linear);
products of two such terms are Gaussians times lines in h again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain, product
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import sympy as sp
from jaxtyping import Array, Bool, Float

from gpdsl.kernels.columns import selected
from gpdsl.kernels.covariance import covariance, variance
from gpdsl.kernels.form import Base, Form, On, Product, Scaled, Sum, block_of, columns_read, count, has_white, picked
from gpdsl.kernels.functionals import Values

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
    """The arguments of a kernel of some columns, or of straight lines in the uncertain ones."""
    columns = picked(form)
    if columns is not None:
        return [space[d] for d in columns]
    found = []
    for line in form.columns:
        blocks = _blocks(line)
        if any(stop - start > 1 for start, stop in blocks.values()):
            return None
        open_ = [symbol for symbol, (start, _) in blocks.items() if space[start].columns]
        if any(sp.diff(line, a, b) != 0 for a in open_ for b in open_):
            return None
        found.append(Reads(frozenset().union(*[space[blocks[symbol][0]].columns for symbol in open_])))
    return found


def _blocks(line: sp.Expr) -> dict[sp.Symbol, tuple[int, int]]:
    """The columns that each symbol of a formula stands for, without numbers."""
    known = {symbol: block_of(symbol) for symbol in line.free_symbols}
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
    columns = picked(form)
    if columns is not None:
        return [space[d] for d in columns]
    numbers = parameters[: len(form.numbers)]
    at, points = jnp.stack([u.mean for u in space], 1), jnp.stack([u.points for u in space], 1)
    mean = selected(form, numbers, at)
    spread = jnp.zeros_like(mean)
    open_ = [d for d in columns_read(form, len(space)) if space[d].open]
    for d in open_:
        slopes = selected(form, numbers, at.at[:, d].add(1.0)) - mean
        spread = spread + slopes**2 * space[d].variance[:, None]
    reads = [any(start in open_ for start, _ in _blocks(line).values()) for line in form.columns]
    return [Argument(*each) for each in zip(mean.T, spread.T, selected(form, numbers, points).T, reads, strict=True)]


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
        narrow, middle = _both(u, a, b)
        spread = narrow * u.variance[:, None, None]
        if u in a.narrow and u in b.narrow:
            away = away - 0.5 * a.narrow[u] * b.narrow[u] / narrow * (u.points[:, None] - u.points) ** 2
        off = u.mean[:, None, None] - middle / narrow
        away = away - 0.5 * narrow * off**2 / (1.0 + spread) - 0.5 * jnp.log1p(spread)
    found = a.known[:, :, None] * b.known[:, None, :] * jnp.exp(away)
    if not (a.slopes or b.slopes):
        return found
    first, second, beside = jnp.zeros(()), jnp.zeros(()), jnp.zeros(())
    for u in a.slopes | b.slopes:
        narrow, middle = _both(u, a, b)
        v = u.variance[:, None, None] / (1.0 + u.variance[:, None, None] * narrow)  # where these are the density
        mean = u.mean[:, None, None] + v * (middle - narrow * u.mean[:, None, None])
        left, right = (each.slopes.get(u, jnp.zeros(())) for each in (a, b))
        left, right = left * u.points[:, None], right * u.points
        first, second, beside = first + left * mean, second + right * mean, beside + left * right * v
    return found * (first * second + beside if a.slopes and b.slopes else first + second)


def _both(u: Argument, a: Term, b: Term) -> tuple[Array, Array]:
    """How narrow two terms are in an argument, and the sum of its inducing points by these, [M M] or with ones."""
    places = ((a, u.points[:, None]), (b, u.points[None, :]))
    told = [(term.narrow[u], z) for term, z in places if u in term.narrow]
    return sum((p for p, _ in told), jnp.zeros(())), sum((p * z for p, z in told), jnp.zeros(()))
