"""Log densities of a location and a scale: distributions that are one, moved and stretched, are integrated once.

What is found is proved: y is written as a + c z, and whatever the log density then still reads, besides terms without
z, is what the distribution of z depends on. Candidates for a and c stand in the formula, as in y - m and r*y.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import sympy as sp

from gpdsl.symbolic import functions as f
from gpdsl.symbolic.conditions import less, less_equal
from gpdsl.symbolic.counts import Array, Curve, LogDensity
from gpdsl.symbolic.curves import LINES, Panels, curve
from gpdsl.symbolic.kinks import cuts_of, terms_of
from gpdsl.symbolic.numeric import evaluate

KEPT = 64
"""As many distributions of z are kept for the next that ask for the same."""


@dataclass(frozen=True)
class Standard:
    """y = `location` + `scale` * z, where z has the log density `formula`, in y's symbol, but for a constant."""

    formula: sp.Expr
    location: sp.Expr
    scale: sp.Expr


def curve_of(log_density: sp.Expr, symbol: sp.Symbol, known: Mapping[sp.Symbol, Array], size: int, kind: str) -> Curve:
    """The distributions of an output by its log density, for values [n] of its other symbols, n = `size`."""
    standard = standard_of(log_density, symbol, kind) if size > 1 else None
    found = None if standard is None else _moved(standard, log_density, symbol, known, size, kind)
    return found or _each(log_density, symbol, known, size, kind)


def _each(log_density: sp.Expr, symbol: sp.Symbol, known: Mapping[sp.Symbol, Array], size: int, kind: str) -> Curve:
    of = functools.partial(_of, symbol=symbol, known=known)
    terms = terms_of(log_density, symbol) if kind in LINES else []
    cuts = cuts_of(log_density, symbol, known, size, kind)
    return curve(of(log_density), size, kind, cuts, [of(each) for each in terms if len(terms) > 1])


def _of(formula: sp.Expr, symbol: sp.Symbol, known: Mapping[sp.Symbol, Array]) -> LogDensity:
    return lambda y: np.broadcast_to(evaluate(formula, {**known, symbol: y}), y.shape)


def _moved(
    standard: Standard, log_density: sp.Expr, symbol: sp.Symbol, known: Mapping[sp.Symbol, Array], size: int, kind: str
) -> Curve | None:
    """The distributions by those of z, where these are few, and all numbers are."""
    read = tuple(sorted(standard.formula.free_symbols - {symbol}, key=lambda each: each.name))
    rows = np.stack([np.broadcast_to(known[each], size) for each in read]) if read else np.zeros((0, size))
    different, columns = (
        np.unique(rows, axis=1, return_inverse=True) if read else (np.zeros((0, 1)), np.zeros(size, int))
    )
    location, scale = (np.broadcast_to(evaluate(each, known), size) for each in (standard.location, standard.scale))
    if 2 * different.shape[1] > size or not np.isfinite([location, scale]).all() or np.any(scale <= 0):
        return None
    given = tuple(map(tuple, different.tolist()))
    one = (_kept if different.shape[1] <= KEPT else _kept.__wrapped__)(standard.formula, symbol, read, given, kind)
    assert isinstance(one, Panels)
    columns = columns.reshape(-1)
    at = np.take_along_axis(one.values, np.argmax(one.mass, axis=0)[None], axis=0)[0][columns]
    own = _of(log_density, symbol, known)((location + scale * at)[None])[0]
    z = _of(standard.formula, symbol, dict(zip(read, different[:, columns], strict=True)))(at[None])[0]
    return one.moved(columns, location, scale, own - z + np.log(scale))


@functools.lru_cache(maxsize=16)
def _kept(
    formula: sp.Expr, symbol: sp.Symbol, read: tuple[sp.Symbol, ...], given: tuple[tuple[float, ...], ...], kind: str
) -> Curve:
    known = {each: np.asarray(values) for each, values in zip(read, given, strict=True)}
    return _each(formula, symbol, known, len(given[0]) if read else 1, kind)


@functools.lru_cache(maxsize=64)
def standard_of(log_density: sp.Expr, y: sp.Symbol, kind: str) -> Standard | None:
    """How a log density is that of fewer symbols; None where it is not, or an output of this kind cannot be moved."""
    if kind not in ("real", "positive"):
        return None
    found = Standard(_plain(log_density, y), sp.Integer(0), sp.Integer(1))
    start = found.formula.free_symbols
    for candidates in ([_locations] if kind == "real" else []) + [_scales]:
        tried = (
            _tried(found, candidate, y, located=candidates is _locations) for candidate in candidates(found.formula, y)
        )
        found = min((found, *tried), key=lambda each: len(each.formula.free_symbols))
    return found if found.formula.free_symbols < start else None


def _tried(found: Standard, by: sp.Expr, y: sp.Symbol, *, located: bool) -> Standard:
    other = y + by if located else by * y
    formula = _plain(found.formula.xreplace({y: other}), y)
    return Standard(formula, by, found.scale) if located else Standard(formula, found.location, by)


def _locations(formula: sp.Expr, y: sp.Symbol) -> Iterator[sp.Expr]:
    """Where sums are zero that are linear in y."""
    sums = [each for each in formula.atoms(sp.Add) if each.has(y)]
    for each in sorted(sums, key=lambda each: (each.count_ops(), str(each))):
        rest, of_y = each.as_independent(y, as_Add=True)
        slope = sp.Mul(*[factor for factor in sp.Mul.make_args(of_y) if factor != y])
        if rest.free_symbols and of_y == slope * y and not slope.has(y):
            yield -rest / slope


def _scales(formula: sp.Expr, y: sp.Symbol) -> Iterator[sp.Expr]:
    """What products of powers of y and others are one by; and sums of log y and others, zero."""
    found = dict[sp.Expr, None]()
    for each in sorted(formula.atoms(sp.Mul, sp.Add), key=lambda each: (each.count_ops(), str(each))):
        rest, of_y = each.as_independent(y, as_Add=each.is_Add)
        base, power = of_y.as_base_exp()
        if not rest.free_symbols:
            continue
        if each.is_Add and of_y == sp.log(y):
            found[sp.exp(-rest)] = None
        rest = -rest if rest.is_negative else rest
        if each.is_Mul and rest.is_positive and base in (y, f.absolute(y)) and not power.has(y):
            found[rest ** (-1 / power)] = None
    return iter(found)


def _plain(formula: sp.Expr, y: sp.Symbol) -> sp.Expr:
    """Without the terms that do not read y, and with its positive factors outside of magnitudes and comparisons."""
    terms = sp.Add.make_args(_collected(formula, y))
    return sp.Add(*[each for each in terms if each.has(y)])


def _collected(node: sp.Expr, y: sp.Symbol) -> sp.Expr:
    if not node.has(y) or node == y:
        return node
    own = node.func(*[_collected(each, y) for each in node.args])
    if isinstance(own, less | less_equal):
        difference = sp.expand_mul(own.args[0] - own.args[1])
        return own.func(_split(sp.factor_terms(difference))[1], sp.Integer(0))
    if isinstance(own, f.absolute):
        factor, rest = _split(sp.factor_terms(own.args[0]))
        return factor * f.absolute(-rest if rest.could_extract_minus_sign() else rest)
    if isinstance(own, sp.log):
        return sp.expand_log(own)
    if isinstance(own, sp.Pow):
        return sp.expand_power_base(own)
    return sp.expand_mul(own) if own.is_Add or own.is_Mul else own


def _split(value: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
    """Positive factors, and the others."""
    factors = sp.Mul.make_args(value)
    positive = [each for each in factors if each.is_positive and each.free_symbols]
    return sp.Mul(*positive), sp.Mul(*[each for each in factors if each not in positive])
