"""How far the data determine the learnt parameters: standard errors, flat directions, and ends that are no maximum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from gpdsl.inference.curvature import Curvature
from gpdsl.results.criticism.finding import Finding
from gpdsl.results.table import subscript

if TYPE_CHECKING:
    from gpdsl.results.fit import Fit

LEFT = 0.1
"""Nats that another step of a search would gain, from which it has stopped too early."""

TOGETHER = 0.3
"""Share of the largest element of a direction from which another one is named with it."""

EDGE = 1e-3
"""Share of the distance between the bounds of a parameter from which it is at one of them."""

NAMED = 4
"""Elements that are named."""


def of_curvature(found: Curvature, ended: set[str]) -> Iterator[Finding]:
    """Directions in which the evidence is flat, in the names of parameters, and whether the search has ended at all.

    Not those of elements that have `ended` at a bound, where the evidence is flat on the real line.
    """
    values, vectors = found.directions()
    flat = int(np.sum(values < 1.0))
    for value, vector in zip(values[:flat], vectors.T[:flat], strict=True):
        chosen = _moved(vector)
        if not {found.names[i] for i in chosen} <= ended:
            yield _flat([found.names[i] for i in chosen], float(value), vector[chosen])
    if not flat:
        widest = float(1.0 / np.sqrt(values[0])) if len(values) else 0.0
        yield Finding(
            "parameters", widest, False, f"all are determined, the least of them to {widest:.0%} of what would be open"
        )
    yield Finding(
        "end of the search",
        found.left,
        found.left > LEFT,
        f"another step would gain {found.left:.2g} nats",
        "go on with fit(data, start=fit), with a smaller tolerance, or more steps",
    )


def _moved(vector: np.ndarray) -> list[int]:
    """The elements that a direction moves most."""
    order = np.argsort(-np.abs(vector))
    return [int(i) for i in order if np.abs(vector[i]) >= TOGETHER * np.abs(vector[order[0]])][:NAMED]


def _flat(elements: list[str], value: float, moved: np.ndarray) -> Finding:
    """A direction along which the evidence hardly falls."""
    names = list(dict.fromkeys(elements))
    signs = {"together" if len({*np.sign(moved)}) == 1 else "against each other"}
    if len(names) == 1:
        said = f"`{names[0]}` is not determined by the data: its value is where the search has ended"
        return Finding("parameters", value, True, said, f"give `{names[0]}` a prior or bounds, or fix it")
    listed = " and ".join(f"`{name}`" for name in names)
    said = f"{listed} are confounded: moved {signs.pop()}, they change next to nothing"
    return Finding("parameters", value, True, said, f"fix one of {listed}, or give them priors")


def at_edges(fit: Fit) -> Iterator[tuple[Finding, set[str]]]:
    """Parameters that have gone to the bounds of their domain, with the names of their elements there."""
    for name in fit.program.parameters.initial:
        param, value = fit.program.declarations.params[name], np.asarray(fit.parameters[name], float)
        low = 0.0 if param.lower is None and param.constraint in {"positive", "unit"} else param.lower
        high = 1.0 if param.upper is None and param.constraint == "unit" else param.upper
        if low is None or high is None or not value.size:
            continue
        near = np.minimum(value - low, high - value) / (high - low)
        nearest, there = float(np.min(near)), np.argwhere(near < EDGE)
        if len(there):
            said = f"`{name}` is at the edge of its domain, {low:g} to {high:g}"
            remedy = "widen the bounds, or ask whether the model suits the data"
            yield Finding("parameters", nearest, True, said, remedy), {name + subscript(at + 1) for at in there}
