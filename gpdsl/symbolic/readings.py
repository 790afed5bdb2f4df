"""What is read of a latent at a row, as a linear combination of functionals: values, derivatives, integrals."""

from __future__ import annotations

from collections.abc import Iterable

from gpdsl.language import model as m

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
