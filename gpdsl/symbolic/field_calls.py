"""The opaque functions of a model with fields, and which of their arguments have a value in each row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpdsl.language import model as m
from gpdsl.symbolic.dependence import reads_of, row_quantities


def field_calls(declarations: m.Declarations) -> Mapping[str, tuple[bool, ...]]:
    """Whether each argument of an opaque function differs between rows, by function; nothing without fields.

    A field is the same in all rows of the data, and so is what is computed from it: it is passed once, and one call
    gives the results of all rows. Of an external likelihood the observed values come first.
    """
    if not declarations.fields:
        return {}
    varying, found = row_quantities(declarations), dict[str, tuple[bool, ...]]()
    for name, observed, arguments in _calls(declarations):
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


def _calls(declarations: m.Declarations) -> Iterator[tuple[str, int, tuple[m.Expression, ...]]]:
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
