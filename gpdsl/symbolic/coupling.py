"""How observations hang together: which couple latents in the posterior, and which read what others observe."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import sympy as sp

from gpdsl.language.model import reads_of
from gpdsl.language.writing import Writer
from gpdsl.symbolic.conditions import choose, condition
from gpdsl.symbolic.dependence import kernel_expressions
from gpdsl.symbolic.expectations import has_external, latents_in, split_terms
from gpdsl.symbolic.functions import floor
from gpdsl.symbolic.laws import Law
from gpdsl.symbolic.numeric import evaluate
from gpdsl.symbolic.terms import Formula, ObservationTerms, Warp
from gpdsl.symbolic.translate import NeedsElements, Position, Ref, Translator, axis_key


def coupled_observations(
    translator: Translator, observations: Sequence[ObservationTerms], expectations: str
) -> tuple[ObservationTerms, ...]:
    """The same observations, with their terms computed under one Gaussian of all latents."""
    return tuple(
        replace(each, terms=split_terms(translator, each.log_density, expectations, coupled=True))
        for each in observations
    )


# Which latents may change their signs together without a change of any density: a posterior has as many modes then.
#
# Densities are compared at random values of everything they read, which is quicker than a proof and as good: an
# equation between analytic functions that holds at random points holds.

POINTS, NEEDED = 12, 3
"""Random values of everything, and of how many a density has to be finite."""

SAME = 1e-9
"""Relative difference up to which densities are the same."""

MOST = 6
"""Latents of which all sets are tried; of more, one and two at a time."""


def mirrored(translator: Translator, observations: Sequence[ObservationTerms]) -> list[tuple[str, ...]]:
    """The smallest sets of declared latents, of those with mean zero, whose signs change no density."""
    densities = [each.log_density for each in observations]
    if any(has_external(translator, each) for each in densities):
        return []
    symbols = {s for density in densities for s in latents_in(translator, density)}
    read = {translator.references[s].name for s in symbols}
    names = [n for n, latent in translator.declarations.latents.items() if n in read and centred(translator, latent)]
    found: list[tuple[str, ...]] = []
    for size in range(1, (len(names) if len(names) <= MOST else 2) + 1):
        for some in itertools.combinations(names, size):
            if any(set(each) <= set(some) for each in found):
                continue
            flipped = {s for s in symbols if translator.references[s].name in some}
            if _same(translator, densities, symbols, {s: (s, -1) for s in flipped}):
                found.append(some)
    return found


Element = tuple[str, tuple[int, ...]]
"""A declared latent and a position along its axes; none: all of it."""


def exchanged(translator: Translator, observations: Sequence[ObservationTerms]) -> list[tuple[Element, Element]]:
    """Pairs of latents with one prior whose exchange changes no density."""
    densities = [each.log_density for each in observations]
    if any(has_external(translator, each) for each in densities):
        return []
    symbols = {s for density in densities for s in latents_in(translator, density)}
    refs, writer = translator.references, Writer(translator.declarations)
    priors: dict[Element, tuple] = {}
    for name, own in translator.declarations.latents.items():
        read = {refs[s].positions for s in symbols if refs[s].name == name}
        if read:
            words = writer.kernel(own.kernel), writer.expression(own.mean)
            priors[name, ()] = (*words, own.arguments, own.axes, own.over, own.levels)
        single = [tuple(p for p in at if isinstance(p, int)) for at in read if own.axes]
        for at in sorted(each for each in single if len(each) == len(own.axes))[:MOST]:
            place = {axis_key(axis): element for axis, element in zip(own.axes, at, strict=True)}
            with contextlib.suppress(NeedsElements):
                numbers = [translator.scalar(e, place) for e in (own.mean, *kernel_expressions(own.kernel))]
                priors[name, at] = (name, *numbers)
    found, places = list[tuple[Element, Element]](), {refs[s]: s for s in symbols}
    for one, other in itertools.combinations(priors, 2):
        if priors[one] != priors[other]:
            continue
        pairs = dict[sp.Symbol, sp.Symbol | None]()
        for s in symbols:
            for (name, at), (there, to) in ((one, other), (other, one)):
                if refs[s].name == name and at in ((), refs[s].positions):
                    pairs[s] = places.get(replace(refs[s], name=there, positions=to or refs[s].positions))
        known = {s: (t, 1) for s, t in pairs.items() if t is not None}
        if len(known) == len(pairs) and _same(translator, densities, symbols, known):
            found.append((one, other))
    return found


def centred(translator: Translator, latent: object) -> bool:
    """Whether the prior mean of a latent is zero."""
    environment = {axis_key(axis): axis_key(axis) for axis in latent.axes}  # type: ignore[attr-defined]
    return bool(translator.scalar(latent.mean, environment) == 0)  # type: ignore[attr-defined]


def without_slope(translator: Translator, observations: Sequence[ObservationTerms], learnt: Sequence[str]) -> list[str]:
    """Learnt parameters that are read only in jumps that no latent smooths: the density is flat in them elsewhere."""
    latents, refs = translator.declarations.latents.values(), translator.references
    read = [each.log_density for each in observations]
    read += [translator.scalar(each.mean, {axis_key(axis): axis_key(axis) for axis in each.axes}) for each in latents]
    jumps = {e for each in read for e in each.atoms(condition, floor) if not latents_in(translator, e)}
    plain = sp.Tuple(*read).xreplace(dict.fromkeys(jumps, sp.Integer(1))).free_symbols if jumps else set()
    steps = {refs[each].name for jump in jumps for each in jump.free_symbols} - {refs[each].name for each in plain}
    kernels = {each.name for latent in latents for e in kernel_expressions(latent.kernel) for each in reads_of(e)}
    return [name for name in learnt if name in steps - kernels and all(refs[each].kind != "reduced" for each in plain)]


def _same(
    translator: Translator,
    densities: Sequence[sp.Expr],
    latents: Collection[sp.Symbol],
    moved: Mapping[sp.Symbol, tuple[sp.Symbol, int]],
) -> bool:
    """Whether every density is the same where these latents have the values of others, with a sign."""
    rng = np.random.default_rng(0)
    for density in itertools.chain.from_iterable(_branches(each, latents) for each in densities):
        symbols = {*density.free_symbols}
        if not moved.keys() & symbols:
            continue
        symbols |= {other for s, (other, _) in moved.items() if s in symbols}
        drawn = {s: _values(translator, s, s in latents, rng) for s in sorted(symbols, key=str)}
        other = {s: moved[s][1] * drawn[moved[s][0]] if s in moved else v for s, v in drawn.items()}
        try:
            here, there = (np.broadcast_to(evaluate(density, each), (POINTS,)) for each in (drawn, other))
        except LookupError:  # something that has no value in NumPy
            return False
        known = np.isfinite(here)
        if known.sum() < NEEDED or not np.array_equal(known, np.isfinite(there)):
            return False
        if np.any(np.abs(here[known] - there[known]) > SAME * (1.0 + np.abs(here[known]))):
            return False
    return True


def _branches(density: sp.Expr, latents: Collection[sp.Symbol]) -> list[sp.Expr]:
    """A density with its conditions on anything but latents set: values drawn at random would meet few of them.

    All of them hold, or none, or each alone.
    """
    conditions = sorted({each.args[0] for each in density.atoms(choose)}, key=str)
    own = [each for each in conditions if not each.free_symbols & set(latents)]
    if not own:
        return [density]
    alone = [[each == one for each in own] for one in own]
    choices = [[True] * len(own), [False] * len(own), *alone]
    return [density.xreplace({c: sp.Integer(v) for c, v in zip(own, each, strict=True)}) for each in choices]


def _values(translator: Translator, symbol: sp.Symbol, latent: bool, rng: np.random.Generator) -> np.ndarray:
    """Random values: latents of either sign, anything else positive, and outputs that are counted whole."""
    if latent:
        return rng.standard_normal(POINTS)
    ref = translator.references.get(symbol)
    kind = translator.declarations.outputs[ref.name].kind if ref is not None and ref.kind == "output" else ""
    if kind in {"count", "binary", "label", "ordinal"}:
        return rng.integers(0, 2, POINTS).astype(float)
    return 0.1 + 0.8 * rng.random(POINTS)


# Outputs that read other outputs: which statement each value comes from, and their law when that is unknown.

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
