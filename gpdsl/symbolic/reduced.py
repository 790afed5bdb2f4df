"""Reductions over the points of a field, kept as one symbol: hundreds of terms are computed as one array.

Elsewhere a reduction is written out, for its expectation to be found in closed form. Expectations over fields are
averages over samples, which need values only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import sympy as sp

from gpdsl.language import model as m
from gpdsl.symbolic.conditions import choose
from gpdsl.symbolic.functions import floor
from gpdsl.symbolic.references import Environment, NeedsElements, Reduced, Ref, axis_key

if TYPE_CHECKING:
    from gpdsl.symbolic.translate import Translator

OPERATORS = frozenset({"sum", "prod", "mean", "max", "min", "norm", "logsumexp"})

PLAIN = frozenset({"latent", "input", "const", "index", "param"})
"""Kinds of what may be read inside; observed values, and results of opaque functions, are written out."""


def reduced(translator: Translator, reduction: m.Reduction, env: Environment) -> sp.Symbol | None:
    """The symbol of a reduction along the points of a field; None for any other, which is to be written out."""
    points = {field.over for field in translator.declarations.fields}
    if reduction.axis not in points or reduction.operator not in OPERATORS:
        return None
    key = axis_key(reduction.axis)
    try:
        body = translator.scalar(reduction.body, {name: at for name, at in env.items() if name != key})
    except NeedsElements:
        return None
    if body.has(choose, floor) or any(translator.references[s].kind not in PLAIN for s in body.free_symbols):
        return None
    found = Reduced(reduction.operator, key, translator.size(reduction.axis), body)
    name = next((name for name, each in translator.reduced.items() if each == found), None)
    name = f"{reduction.operator}#{len(translator.reduced) + 1}" if name is None else name
    translator.reduced[name] = found
    return translator.symbol(Ref("reduced", name))


def elements_of(translator: Translator, found: Reduced, symbol: sp.Symbol) -> list[sp.Symbol]:
    """What a symbol inside a reduction stands for: one symbol for each element along its axis."""
    ref = translator.references[symbol]
    if found.axis not in ref.positions:
        return [symbol]
    places = (tuple(k if each == found.axis else each for each in ref.positions) for k in range(1, found.count + 1))
    return [translator.symbol(Ref(ref.kind, ref.name, place, ref.reading)) for place in places]
