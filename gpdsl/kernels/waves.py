"""`waves(form, parameters, points, stream)`: random waves of any covariance function that has them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import sympy as sp
from jaxtyping import Array, Float

from gpdsl.kernels import wave_families as families
from gpdsl.kernels.columns import selected
from gpdsl.kernels.counters import Stream
from gpdsl.kernels.form import Base, ByFormula, Form, On, Patches, Product, Scaled, Sum, block_of, count, inside
from gpdsl.kernels.formula import number_of
from gpdsl.kernels.wave_families import STANDING, WAVES, Points, Waves, mixture, product
from gpdsl.lowering.table import evaluate
from gpdsl.symbolic.functions import expanded
from gpdsl.symbolic.kernel_formula import DISTANCE, Formula
from gpdsl.symbolic.kernel_values import elements_read
from gpdsl.symbolic.spectral import spectral_density

# Random waves of a covariance by formula: from its spectral density where symbolic analysis finds one.
#
# A formula of the distance is a product of parts: cosines have one frequency, exp(-c sin(b r)^2) is an RBF kernel on a
# circle, a rational quadratic is a mixture of RBF kernels, and whatever remains has a density by a table.

Numbers = Mapping[str, Array]


@dataclass(frozen=True)
class Wave:
    """cos(rate r), in one column."""

    rate: sp.Expr


@dataclass(frozen=True)
class Circle:
    """exp(-size sin(rate r)^2), in one column."""

    size: sp.Expr
    rate: sp.Expr


@dataclass(frozen=True)
class Quadratic:
    """(1 + r^2 / (2 alpha ell^2))^-alpha."""

    ell: sp.Expr
    alpha: sp.Expr


@dataclass(frozen=True)
class Density:
    """A profile with this spectral density."""

    density: sp.Expr


Piece = Wave | Circle | Quadratic | Density
Term = tuple[sp.Expr, tuple[Piece, ...]]
"""A factor that is not negative, and what it multiplies: each is 1 at distance zero but for a density."""


def formula_waves(formula: Formula, parameters: Sequence[Array], points: Points, stream: Stream) -> Waves:
    """Random waves of a formula that `terms` knows."""
    numbers = elements_read(formula, dict(zip(formula.parameters, parameters, strict=True)), {})
    if formula.weights != 1:
        points = points * _value(sp.sqrt(formula.weights), numbers)
    found = terms(formula.expression, points.shape[1])
    assert found is not None, "`unsuited` refuses it before"
    choice = stream.choices(len(found)) if len(found) > 1 else None
    each = [_term(term, numbers, points, stream) for term in found]
    return each[0] if choice is None else mixture(each, choice)


@functools.lru_cache(maxsize=256)
def terms(profile: sp.Expr, columns: int) -> tuple[Term, ...] | None:
    """The profile as a sum of products of pieces with random waves, or None when none is found."""
    # A table of a density would have to be fine enough for the narrow lines that cosines put into it.
    density = None if profile.has(sp.cos, sp.sin) else _as_density(profile, columns)
    if density is not None:
        return ((sp.Integer(1), (density,)),)
    whole = _factors(profile, columns)
    parts = (whole,) if whole is not None else _sum(profile, columns)
    if parts is not None or not profile.has(sp.cos, sp.sin):
        return parts
    density = _as_density(profile, columns)
    return None if density is None else ((sp.Integer(1), (density,)),)


def _sum(profile: sp.Expr, columns: int) -> tuple[Term, ...] | None:
    found = []
    for each in sp.Add.make_args(expanded(profile)):
        term = _factors(each, columns)
        if term is None:
            return None
        found.append(term)
    return tuple(found)


def _as_density(profile: sp.Expr, columns: int) -> Density | None:
    density = spectral_density(profile, DISTANCE, columns)
    if (
        density is None
        or density.has(sp.DiracDelta, sp.Sum, sp.besselk, sp.gamma)
        or not families.suited(density, columns)
    ):
        return None
    return Density(density)


def _factors(term: sp.Expr, columns: int) -> Term | None:
    """One term as a product, or None when a factor has no waves or its sign is not known."""
    coefficient, rest = term.as_independent(DISTANCE, as_Add=False)
    if not coefficient.is_nonnegative:
        return None
    pieces: list[Piece] = []
    others = sp.Integer(1)
    for factor in sp.Mul.make_args(_exponentials_apart(rest)):
        piece, scale = _piece(factor, columns)
        coefficient = coefficient * scale
        if piece is None:
            others = others * factor
        else:
            pieces += piece
    if others != 1:
        density = _as_density(others, columns)
        if density is None:
            return None
        pieces.append(density)
    return coefficient, tuple(pieces)


def _exponentials_apart(expression: sp.Expr) -> sp.Expr:
    """exp(a + b) as exp(a) exp(b) where only one of them has a sine."""
    factors: list[sp.Expr] = []
    for factor in sp.Mul.make_args(expression):
        if isinstance(factor, sp.exp):
            parts = sp.Add.make_args(expanded(factor.args[0]))
            waving = [p for p in parts if p.has(sp.sin)]
            plain = [p for p in parts if not p.has(sp.sin)]
            factors += [sp.exp(p) for p in waving] + ([sp.exp(sp.Add(*plain))] if plain else [])
        else:
            factors.append(factor)
    return sp.Mul(*factors, evaluate=False)


def _piece(factor: sp.Expr, columns: int) -> tuple[list[Piece] | None, sp.Expr]:
    """The pieces that a factor is, with what multiplies them; None when it is of no known form."""
    one = sp.Integer(1)
    if columns == 1:
        base, power = factor.as_base_exp()
        rate = _rate(base.args[0]) if isinstance(base, sp.cos) else None
        if rate is not None and power.is_Integer and power > 0:
            return [Wave(rate)] * int(power), one
        circle = _circle(factor)
        if circle is not None:
            return [circle], one
    return _quadratic(factor)


def _rate(angle: sp.Expr) -> sp.Expr | None:
    rate = expanded(angle / DISTANCE)
    return None if DISTANCE in rate.free_symbols else rate


def _circle(factor: sp.Expr) -> Circle | None:
    if not isinstance(factor, sp.exp):
        return None
    size, wave = factor.args[0].as_independent(DISTANCE, as_Add=False)
    if not (isinstance(wave, sp.Pow) and wave.exp == 2 and isinstance(wave.base, sp.sin) and (-size).is_nonnegative):
        return None
    rate = _rate(wave.base.args[0])
    return None if rate is None else Circle(-size, rate)


def _quadratic(factor: sp.Expr) -> tuple[list[Piece] | None, sp.Expr]:
    """(p + q r^2)^-alpha = p^-alpha (1 + r^2 / (2 alpha ell^2))^-alpha with ell^2 = p / (2 alpha q)."""
    none = None, sp.Integer(1)
    if not isinstance(factor, sp.Pow) or DISTANCE in factor.exp.free_symbols or not (-factor.exp).is_positive:
        return none
    alpha, base = -factor.exp, expanded(factor.base)
    start, slope = base.coeff(DISTANCE, 0), base.coeff(DISTANCE, 2)
    if expanded(base - start - slope * DISTANCE**2) != 0 or not (start.is_positive and slope.is_positive):
        return none
    return [Quadratic(sp.sqrt(start / (2 * alpha * slope)), alpha)], start**-alpha


def _term(term: Term, numbers: Numbers, points: Points, stream: Stream) -> Waves:
    coefficient, pieces = term
    scaled = Waves(_value(coefficient, numbers) * families.ones(stream))
    return product([scaled, *[_piece_waves(piece, numbers, points, stream) for piece in pieces]])


def _piece_waves(piece: Piece, numbers: Numbers, points: Points, stream: Stream) -> Waves:
    match piece:
        case Wave(rate=rate):
            signs = jnp.where(stream.uniforms(1) < 0.5, -1.0, 1.0)
            return Waves(families.ones(stream), ((points, signs * _value(rate, numbers) / families.TURN),))
        case Circle(size=size, rate=rate):
            ell, period = sp.sqrt(2 / size), sp.pi / rate
            return families.periodic(points, stream, _value(ell, numbers), _value(period, numbers))
        case Quadratic(ell=ell, alpha=alpha):
            return families.rational_quadratic(points, stream, _value(ell, numbers), _value(alpha, numbers))
        case Density(density=density):
            return families.density_waves(density, lambda s: number_of(s, numbers), points, stream)


def _value(expression: sp.Expr, numbers: Numbers) -> Array:
    return jnp.asarray(evaluate(expression, lambda s: number_of(s, numbers)))


# `waves(form, parameters, points, stream)`: random waves of any covariance function that has them.


def waves(form: Form, parameters: Sequence[Float[Array, "..."]], points: Points, stream: Stream) -> Waves:
    """Random waves of a covariance function with these parameters, in the form's order; differentiable in them.

    What a wave is made of depends on its index and the stream's seed alone.
    """
    return _waves(form, iter(parameters), points, stream)


def _waves(form: Form, parameters: Iterator[Array], points: Points, stream: Stream) -> Waves:
    match form:
        case Base():
            arguments = {name: next(parameters) for name in form.parameters} | dict(form.static)
            return WAVES[form.name](points, stream, **arguments)
        case ByFormula(formula=formula):
            return formula_waves(formula, [next(parameters) for _ in range(count(form))], points, stream)
        case On(numbers=numbers, kernel=kernel):
            return _waves(kernel, parameters, selected(form, [next(parameters) for _ in numbers], points), stream)
        case Scaled(kernel=kernel):
            factor = next(parameters)
            inner = _waves(kernel, parameters, points, stream)
            return Waves(factor * inner.power, inner.parts, inner.amplitude)
        case Product(factors=factors):
            return product([_waves(factor, parameters, points, stream) for factor in factors])
        case Sum(terms=terms):
            choice = stream.choices(len(terms))
            return mixture([_waves(term, parameters, points, stream) for term in terms], choice)
    raise TypeError(form)


def turning(form: Form) -> bool:
    """Whether any of the waves turns; where none does, their sines are zero and only cosines are features."""
    known = [part for part in inside(form) if isinstance(part, (Base, ByFormula))]
    return any(isinstance(part, ByFormula) or part.name not in STANDING for part in known)


# Which part of a covariance function has no random waves, and why.


def unsuited(form: Form, columns: int) -> str | None:
    """The first part without random waves over this many columns of input, in words; None when all have them."""
    match form:
        case Base(name="White"):
            return "`White` is no function of the input: put independent noise into the likelihood"
        case Base(name="ArcCosine", static=static) if dict(static)["order"] == 0:
            return "the waves of `ArcCosine(order = 0)` are steps, without a derivative in its parameters"
        case Base(name=name):
            return None if name in WAVES else f"`{name}` has no known spectral density"
        case ByFormula(formula=formula, name=name):
            if not formula.radial or formula.levels:
                return f"`{name}` is a formula that does not depend on the distance between its points alone"
            known = terms(formula.expression, columns) is not None
            return None if known else f"no spectral density of the formula `{name}` is known that is nowhere negative"
        case Patches():
            return "`Patch` is a mean over patches, of which no single frequency is drawn"
        case On(columns=some, kernel=kernel):
            return unsuited(kernel, sum(map(_width, some)))
        case Scaled(kernel=kernel):
            return unsuited(kernel, columns)
        case Sum(terms=parts) | Product(factors=parts):
            return next((why for part in parts if (why := unsuited(part, columns)) is not None), None)


def _width(column: sp.Expr) -> int:
    """How many columns one expression of `on` gives."""
    blocks = [found for symbol in column.free_symbols if (found := block_of(symbol)) is not None]
    return max((stop - start for start, stop in blocks), default=1)
