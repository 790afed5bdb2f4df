"""Outputs that read other outputs: which statement each value comes from, and their law when that is unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import sympy as sp

from gpdsl.symbolic.laws import Law
from gpdsl.symbolic.terms import Formula, ObservationTerms, Warp
from gpdsl.symbolic.translate import Position, Ref, Translator

Read = tuple[str, tuple[Position, ...]]


def source(translator: Translator, observations: Sequence[ObservationTerms], read: Read) -> ObservationTerms | None:
    """The statement that describes one observed value, for exactly the element that is read; None for several."""
    name, positions = read
    for each in observations:
        if name not in each.outputs or len(each.positions) != len(positions):
            continue
        pairs = list(zip(each.positions, positions, strict=True))
        if all(isinstance(own, str) or own == wanted for own, wanted in pairs):
            where = {own: wanted for own, wanted in pairs if isinstance(own, str) and own != wanted}
            return _at(translator, each, where) if where else each
    return None


def _at(translator: Translator, o: ObservationTerms, where: Mapping[str, Position]) -> ObservationTerms:
    """The same statement for a particular element along some axes."""

    def moved(expression: sp.Expr) -> sp.Expr:
        return expression.xreplace({s: _symbol(translator, s, where) for s in expression.free_symbols})

    def symbol(each: sp.Symbol) -> sp.Symbol:
        return _symbol(translator, each, where)

    warp, formula = o.warp, o.formula
    if warp is not None:
        warp = Warp(symbol(warp.symbol), moved(warp.value), moved(warp.slope), warp.direction, warp.kind)
    if formula is not None:
        formula = Formula(symbol(formula.symbol), moved(formula.log_density), formula.kind)
    return replace(
        o,
        positions=_positions(o.positions, where),
        axes=tuple(each for each in o.axes if each not in where),
        log_density=moved(o.log_density),
        law=None if o.law is None else o.law.map(moved),
        warp=warp,
        formula=formula,
        reads=tuple((name, _positions(positions, where)) for name, positions in o.reads),
    )


def _positions(positions: tuple[Position, ...], where: Mapping[str, Position]) -> tuple[Position, ...]:
    return tuple(where.get(each, each) if isinstance(each, str) else each for each in positions)


def _symbol(translator: Translator, symbol: sp.Symbol, where: Mapping[str, Position]) -> sp.Expr:
    ref = translator.references[symbol]
    positions = _positions(ref.positions, where)
    if positions == ref.positions:
        return symbol
    if ref.kind == "index":
        return sp.Integer(positions[0]) if isinstance(positions[0], int) else symbol
    return translator.symbol(replace(ref, positions=positions), positive=bool(symbol.is_positive))


def marginal(
    translator: Translator, observations: Sequence[ObservationTerms], o: ObservationTerms
) -> ObservationTerms | None:
    """The statement with what it reads integrated out: exact for chains of normals, each linear in one value before it.

    If t = m + c*r + noise and r is normal given the latents, then so is t. None when it is not so.
    """
    if not o.reads:
        return o
    if o.law is None or o.law.name != "Normal" or len(o.reads) != 1:
        return None
    before = source(translator, observations, o.reads[0])
    if before is None:
        return None
    known = marginal(translator, observations, before)
    if known is None or known.law is None or known.law.name != "Normal" or known.warp is not None:
        return None
    name, positions = o.reads[0]
    read = next(s for s in o.log_density.free_symbols if translator.references[s] == Ref("output", name, positions))
    mean, sd = o.law.arguments["mean"], o.law.arguments["sd"]
    slope = sp.diff(mean, read)
    if sd.has(read) or slope.has(read):
        return None
    inner = known.law.arguments
    law = Law(
        "Normal", {"mean": mean.xreplace({read: inner["mean"]}), "sd": sp.sqrt(sd**2 + slope**2 * inner["sd"] ** 2)}
    )
    return replace(o, law=law, reads=())
