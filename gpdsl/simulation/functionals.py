"""What the model asks of each latent: every functional read anywhere, so that all of them are drawn jointly."""

from __future__ import annotations

from collections.abc import Iterator

from gpdsl.language import model as m
from gpdsl.simulation.interpreter import Interpreter, resolved


def functionals_of(interpreter: Interpreter) -> dict[str, tuple[m.Functional, ...]]:
    """The functionals of each latent, its value at the row's own inputs first."""
    declarations = interpreter.declarations
    found: dict[str, dict[m.Functional, None]] = {name: {m.VALUE: None} for name in declarations.latents}
    for expression in _expressions(declarations):
        for read in _reads(expression):
            if read.name in found:
                found[read.name] |= dict.fromkeys(_written_out(interpreter, read.functional))
    return {name: tuple(functionals) for name, functionals in found.items()}


def shown(declarations: m.Declarations, name: str, functional: m.Functional) -> str:
    """A functional as the model writes it: `f(a)`, `D(f, x[1])`."""
    arguments = functional.at or declarations.latents[name].arguments
    value = f"{name}({', '.join(functional.at)})" if functional.at else name
    directions = []
    for each in functional.derivative:
        argument = arguments[each.argument]
        directions.append(f"{argument}[{each.column}]" if declarations.axes_of(argument) else argument)
    return f"D({', '.join([value, *directions])})" if directions else value


def _written_out(interpreter: Interpreter, functional: m.Functional) -> Iterator[m.Functional]:
    """A derivative along `x[d]` for every value of `d`."""
    indices = [each.column.index for each in functional.derivative if isinstance(each.column, m.IndexValue)]
    axes = tuple(interpreter.declarations.indices[index].axis for index in indices)
    for element in interpreter.positions(axes):
        yield resolved(functional, dict(zip(indices, element, strict=True)))


def _expressions(declarations: m.Declarations) -> Iterator[m.Expression]:
    for let in declarations.lets.values():
        yield from (case.body for case in let.cases)
    for latent in declarations.latents.values():
        yield latent.mean
    for observation in declarations.observations:
        yield from observation.distribution.expressions()
        if observation.transform is not None:
            yield observation.transform


def _reads(expression: m.Expression) -> Iterator[m.Read]:
    if isinstance(expression, m.Read):
        yield expression
    for part in m.parts(expression):
        yield from _reads(part)
