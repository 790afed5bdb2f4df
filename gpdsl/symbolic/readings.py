"""What is read of a latent at a row, and what the symbols of a translated model stand for.

A reading is a linear combination of functionals: values, derivatives, integrals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sympy as sp

from gpdsl.language import model as m
from gpdsl.symbolic.conditions import choose
from gpdsl.symbolic.dependence import row_quantities
from gpdsl.symbolic.functions import floor

if TYPE_CHECKING:
    from gpdsl.symbolic.translate import Translator


Reading = tuple[tuple[m.Functional, float], ...]
"""A weighted sum of functionals of one latent element: `f(a) - f(b)`. Equal sums are equal readings."""

OWN: Reading = ((m.VALUE, 1.0),)
"""The value at the row's own inputs."""


def reading(functional: m.Functional) -> Reading:
    """A single functional."""
    return ((functional, 1.0),)


def added(parts: Iterable[tuple[Reading, float]]) -> Reading:
    """The weighted sum of readings; what cancels is left out."""
    total: dict[m.Functional, float] = {}
    for each, weight in parts:
        for functional, inner in each:
            total[functional] = total.get(functional, 0.0) + weight * inner
    kept = [(functional, weight) for functional, weight in total.items() if weight]
    return tuple(sorted(kept, key=lambda each: str(each[0])))


def shown(declarations: m.Declarations, name: str, where: str, asked: Reading) -> str:
    """How `explain` and messages write a reading: `f`, `f[1](a)`, `D(f, x[2])`, `(f(a) - f(b))`."""
    ordered = sorted(asked, key=lambda each: each[1] < 0)  # what is added before what is taken away
    parts = [_term(_functional(declarations, name, where, each), weight) for each, weight in ordered]
    text = " + ".join(parts).replace("+ -", "- ")
    return text if len(parts) == 1 else f"({text})"


def split_levels(
    declarations: m.Declarations, name: str, at: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Where a latent is taken, none for its own inputs, and the values of the indices among its arguments."""
    latent = declarations.latents.get(name)
    if latent is None or not latent.levels or not at:
        return at, ()
    indices = {axis.name for axis in latent.levels}
    pairs = list(zip(latent.arguments, at, strict=True))
    moved = any(own != given for own, given in pairs if own not in indices)
    inputs = tuple(given for own, given in pairs if own not in indices)
    return inputs if moved else (), tuple(given for own, given in pairs if own in indices)


def _term(text: str, weight: float) -> str:
    if weight in (1.0, -1.0):
        return text if weight > 0 else f"-{text}"
    return f"{weight:g}*{text}"


def _functional(declarations: m.Declarations, name: str, where: str, functional: m.Functional) -> str:
    if functional.integrated:
        return f"integral({name}{where}, {', '.join(functional.at)})"
    at, levels = split_levels(declarations, name, functional.at)
    inside = [*filter(None, [where.strip("[]")]), *levels]
    value = f"{name}[{','.join(inside)}]" if inside else name
    value += f"({', '.join(at)})" if at else ""
    if not functional.derivative:
        return value
    arguments = functional.at or declarations.latents[name].arguments
    along = []
    for each in functional.derivative:
        argument = arguments[each.argument]
        along.append(f"{argument}[{each.column}]" if declarations.inputs[argument].axes else argument)
    return f"D({value}, {', '.join(along)})"


# What the symbols of a translated model stand for.

Position = int | str
"""A subscript: an element counted from 1, or the name of an axis along which the expression is generic.

On its way into a reference also `level_of` an input: the element that it says in each row.
"""

LEVEL = "@"
"""Before the name of an input whose levels are a position."""

Environment = Mapping[str, Position]
"""Where each axis stands, by `axis_key`."""

PREFIXED = {"indicator", "index", "observed", "whitening"}
"""Kinds whose symbols would otherwise have the name of another one."""


Element = tuple[str, tuple[Position, ...]]
"""A quantity's name and where in it."""


class DefineFirst(Exception):
    """Another element of a `let` has to be translated before this one, or Python's stack would overflow."""

    def __init__(self, element: Element) -> None:
        super().__init__(element)
        self.element = element


class NeedsElements(Exception):
    """The expression has no generic form along `axis` (a definition by cases): translate it element by element."""

    def __init__(self, axis: str) -> None:
        super().__init__(axis)
        self.axis: str = axis


def shifted(position: Position, offset: int) -> Position:
    """A subscript moved by a number, which needs a number to start from."""
    if isinstance(position, int):
        return position + offset
    if offset:
        raise NeedsElements(position)
    return position


@dataclass(frozen=True)
class Ref:
    """What a symbol stands for. `kind` is input, const, param, latent, output, indicator, index, external, observed,
    whitening, reduced or gathered.

    Row variables are latents too: independent values, one per row. `reading` says what is read of a latent. What is
    gathered is a constant or parameter, at the row's level of the inputs `at` along these of its axes; `positions` are
    those along the others.
    """

    kind: str
    name: str
    positions: tuple[Position, ...] = ()
    reading: Reading = OWN
    at: tuple[tuple[int, str], ...] = ()

    @property
    def places(self) -> tuple[Position, ...]:
        """What stands in its brackets."""
        found = list(self.positions)
        for place, label in self.at:
            found.insert(place, label)
        return tuple(found)


def level_of(label: str) -> Position:
    """The element that an input of levels says."""
    return LEVEL + label


def is_level(position: Position) -> bool:
    """Whether a position is that of `level_of` an input."""
    return isinstance(position, str) and position.startswith(LEVEL)


def gathered(name: str, positions: tuple[Position, ...]) -> Ref:
    """A constant or parameter at levels of the row, which are among the positions."""
    levels = {k: p[1:] for k, p in enumerate(positions) if isinstance(p, str) and is_level(p)}
    rest = tuple(p for k, p in enumerate(positions) if k not in levels)
    return Ref("gathered", name, rest, at=tuple(levels.items()))


@dataclass(frozen=True)
class ExternalUse:
    """One distinct call of an opaque function: its arguments element by element, and the shape of its result.

    Of a function that takes a field, `whole` holds the arguments as formulas that are generic along their axes, where
    there are such formulas: a field of hundreds of values is not written out when it is computed.
    """

    key: str
    function: str
    arguments: tuple[tuple[tuple[int, ...], tuple[sp.Expr, ...]], ...]
    result: tuple[int, ...]
    likelihood: bool = False
    whole: tuple[tuple[tuple[str, ...], sp.Expr] | None, ...] = ()


@dataclass(frozen=True)
class Reduced:
    """A reduction by `operator` over the `count` elements of `body` along `axis`, along which it is generic."""

    operator: str
    axis: str
    count: int
    body: sp.Expr


@dataclass(frozen=True)
class Covariance:
    """The covariance matrix of an output's row, entry by entry; free of latents."""

    output: str
    entries: tuple[tuple[sp.Expr, ...], ...]


def axis_key(axis: m.Axis) -> str:
    """Name under which an environment holds the position along `axis`; bare sizes get a star."""
    return axis.name if axis.name is not None else f"*{axis.describe()}"


OPERATORS = frozenset({"sum", "prod", "mean", "max", "min", "norm", "logsumexp"})

PLAIN = frozenset({"latent", "input", "const", "index", "param"})
"""Kinds of what may be read inside; observed values, and results of opaque functions, are written out."""


# Reductions over the points of a field, kept as one symbol: hundreds of terms are computed as one array.
#
# Elsewhere a reduction is written out, for its expectation to be found in closed form. Expectations over fields are
# averages over samples, which need values only.


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
    """Whether each argument of an opaque function differs between rows, by function, in a model with fields.

    A field is the same in all rows of the data, and so is what is computed from it: it is passed once, and one call
    gives the results of all rows. Of an external likelihood the observed values come first.
    """
    varying, found = row_quantities(declarations), dict[str, tuple[bool, ...]]()
    for name, observed, arguments in opaque_calls(declarations):
        differ = (any(read.name in varying for read in m.reads_of(each)) for each in arguments)
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
    bodies: list[m.Expression] = [case.body for let in declarations.lets.values() for case in let.cases]
    for observation in declarations.observations:
        call = observation.distribution
        bodies += call.expressions()
        bodies += [observation.transform] if observation.transform is not None else []
        if call.external:
            yield call.name, len(observation.outputs), tuple(call.arguments.values())
    for each in m.every_part(*bodies):
        if isinstance(each, m.ExternalCall):
            yield each.function, 0, each.arguments
