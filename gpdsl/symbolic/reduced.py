"""Reductions over the points of a field, kept as one symbol: hundreds of terms are computed as one array.

Elsewhere a reduction is written out, for its expectation to be found in closed form. Expectations over fields are
averages over samples, which need values only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import sympy as sp

from gpdsl.language import model as m
from gpdsl.symbolic.conditions import choose
from gpdsl.symbolic.dependence import reads_of, row_quantities
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


# --- The opaque functions of a model with fields, and which of their arguments have a value in each row --------------


def field_calls(declarations: m.Declarations) -> Mapping[str, tuple[bool, ...]]:
    """Whether each argument of an opaque function differs between rows, by function; nothing without fields.

    A field is the same in all rows of the data, and so is what is computed from it: it is passed once, and one call
    gives the results of all rows. Of an external likelihood the observed values come first.
    """
    if not declarations.fields:
        return {}
    varying, found = row_quantities(declarations), dict[str, tuple[bool, ...]]()
    for name, observed, arguments in opaque_calls(declarations):
        differ = (any(read.name in varying for read in reads_of(each)) for each in arguments)
        rows = (*[True] * observed, *differ)
        found[name] = tuple(a or b for a, b in zip(found.get(name, rows), rows, strict=True))
    return found


def field_quantities(declarations: m.Declarations) -> frozenset[str]:
    """Fields, and the `let`s that are the same in every row because they read nothing that differs.

    Without fields there are none: predictions of a `let` of parameters alone have rows, as all others have.
    """
    if not declarations.fields:
        return frozenset()
    return frozenset({*declarations.latents, *declarations.lets} - row_quantities(declarations))


def opaque_calls(declarations: m.Declarations) -> Iterator[tuple[str, int, tuple[m.Expression, ...]]]:
    """Every call of an opaque function: its name, how many observed values it takes, and its other arguments."""
    waiting: list[m.Expression] = [case.body for let in declarations.lets.values() for case in let.cases]
    for observation in declarations.observations:
        call = observation.distribution
        waiting += call.expressions()
        waiting += [observation.transform] if observation.transform is not None else []
        if call.external:
            yield call.name, len(observation.outputs), tuple(call.arguments.values())
    while waiting:
        expression = waiting.pop()
        if isinstance(expression, m.ExternalCall):
            yield expression.function, 0, expression.arguments
        waiting.extend(m.parts(expression))
