"""What depends on what, and the order of latents over latents: a deep Gaussian process has layers, and no cycle."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from gpdsl.language import syntax
from gpdsl.language.checker.scope import Scope
from gpdsl.language.errors.functionals import BadLattice, FieldInRow, LatentCycle, NotALevel, PointsWithoutIndex
from gpdsl.language.errors.limits import TooManyLayers
from gpdsl.language.model import Axis, Latent, same_axis
from gpdsl.language.vocabulary import MAX_AXIS, MAX_LAYERS

_SHOWN = 5

Edge = TypeVar("Edge")


def followed(edges: Mapping[str, Sequence[tuple[str, Edge]]]) -> Iterator[tuple[str, Edge | None, list[str]]]:
    """Depth first along edges, each with its end: a name with no cycle once all that it leads to has been told.

    An edge that leads back comes with its end, and the names of the cycle from there on. Without recursion: a file may
    stack thousands.
    """
    entered: dict[str, bool] = {}  # True while what a name leads to is being followed
    for start in edges:
        path = [] if start in entered else [(start, iter(edges[start]))]
        entered.setdefault(start, True)
        while path:
            name, rest = path[-1]
            end, edge = next(rest, (None, None))
            if end is None:
                path.pop()
                entered[name] = False
                yield name, None, []
            elif end not in entered:
                entered[end] = True
                path.append((end, iter(edges.get(end, ()))))
            elif entered[end]:
                names = [each for each, _ in path]
                yield end, edge, names[names.index(end) :]


def in_layers(scope: Scope, statements: Sequence[syntax.LatentStatement]) -> list[syntax.LatentStatement]:
    """Latents after those they are functions of. Every cycle is reported once, and its latents are left out."""
    by_name = {each.declared.name.text: each for each in statements}
    inside = {name: [a.text for a in each.arguments if a.text in by_name] for name, each in by_name.items()}
    ordered: list[str] = []
    for name, _, cycle in followed({name: [(each, None) for each in own] for name, own in inside.items()}):
        if cycle and name not in scope.lost:
            _report(scope, by_name, cycle)
        # A latent over one that cannot be checked cannot be checked either.
        if not cycle and any(each in scope.lost for each in inside[name]):
            scope.lost.add(name)
        if not cycle and name not in scope.lost:
            ordered.append(name)
    # Without those stacked too high; what follows layer by layer may then do so by recursion.
    depth: dict[str, int] = {}
    for name in ordered:
        depth[name] = 1 + max((depth.get(each, 0) for each in inside[name]), default=0)
        if depth[name] == MAX_LAYERS + 1:
            scope.problems.add(TooManyLayers(by_name[name].declared.name.span, name, MAX_LAYERS))
        if depth[name] > MAX_LAYERS:
            scope.lost.add(name)
    return [by_name[name] for name in ordered if name not in scope.lost]


def _report(scope: Scope, by_name: Mapping[str, syntax.LatentStatement], cycle: list[str]) -> None:
    first = min(cycle, key=lambda name: by_name[name].span.line)
    turned = cycle[cycle.index(first) :] + cycle[: cycle.index(first)]
    links = [f"`{name}`" for name in (*turned[1:], first)]
    shown = links if len(links) <= _SHOWN else [*links[:_SHOWN], "... and so on", links[-1]]
    text = f"`{first}` is a function of {', which is a function of '.join(shown)}"
    argument = next(each for each in by_name[first].arguments if each.text in cycle)
    scope.problems.add(LatentCycle(argument.span, first, text))
    scope.lost.update(cycle)


# Latents over points that are the same in every row, and `lattice(lower, upper, points)`, a regular grid of them.

LATTICE = "lattice"
_SEVERAL = "the arguments of a field are constants along the same index"


def points_index(scope: Scope, statement: syntax.LatentStatement, arguments: Sequence[str], constant: str) -> Axis:
    """The index that numbers the points of a field, a latent over constants, of which `constant` is the first."""
    name = statement.declared.name.text
    first = scope.consts[constant].axes
    for argument in statement.arguments:
        axes = scope.consts[argument.text].axes if argument.text in scope.consts else ()
        if not axes or axes[0].name is None:
            plain = argument.text in scope.consts
            why = "its values have no index" if plain else _SEVERAL
            remedy = f"declare `index g in 1..G` and `const {argument.text}[g] = ...`" if plain else "leave it out"
            scope.problems.fail(PointsWithoutIndex(argument.span, name, argument.text, why, remedy))
        if not same_axis(axes[0], first[0]):
            remedy = f"declare it along `{first[0].name}`: `const {argument.text}[{first[0].name}] = ...`"
            scope.problems.fail(PointsWithoutIndex(argument.span, name, argument.text, _SEVERAL, remedy))
    if any(each.text == first[0].name for each in statement.declared.indices):
        why = f"`{first[0].name}` numbers its points already"
        remedy = f"leave out the brackets: `latent {name}({', '.join(arguments)})`"
        scope.problems.fail(PointsWithoutIndex(statement.declared.name.span, name, arguments[0], why, remedy))
    return first[0]


def refuse_as_argument(scope: Scope, argument: syntax.Identifier, latent: Latent) -> None:
    """A field has no value of its own in a row, and a latent over an index no one reading: no latents are over them."""
    if latent.levels:
        name, index = latent.name, str(latent.levels[0].name)
        why = "a latent that is a function of it would read several of its values at once, which cannot be fitted yet"
        inputs = ", ".join(each for each in latent.arguments if each not in scope.indices)
        remedy = f"make it independent latents, `latent {name}[{index}]({inputs})`, or mix these in the likelihood"
        scope.problems.fail(NotALevel(argument.span, name, index, why, remedy))
    if latent.over is not None:
        scope.problems.fail(FieldInRow(argument.span, argument.text, "no latent is a function of it"))


def lattice(scope: Scope, formula: syntax.Formula, name: str, evaluate: Callable[..., float | tuple]) -> tuple:
    """The points of a regular grid, its last coordinate running fastest; plain numbers along a line.

    `evaluate` gives the value of an argument.
    """
    assert isinstance(formula, syntax.Call)
    if len(formula.arguments) != 3 or any(each.name is not None for each in formula.arguments):
        scope.problems.fail(BadLattice(formula.span, "it has a lower corner, an upper corner and numbers of points"))
    corners = [evaluate(scope, each.value, name) for each in formula.arguments]
    lower, upper, counts = (_coordinates(scope, formula, each) for each in corners)
    if not len(lower) == len(upper) == len(counts):
        scope.problems.fail(BadLattice(formula.span, "its corners and numbers of points have different lengths"))
    if any(count != math.floor(count) or count < 2 for count in counts):
        scope.problems.fail(BadLattice(formula.span, "along each coordinate it has a whole number of points from 2"))
    if math.prod(counts) > MAX_AXIS:
        scope.problems.fail(BadLattice(formula.span, f"it has {math.prod(counts):.0f} points, more than {MAX_AXIS}"))
    if any(a >= b for a, b in zip(lower, upper, strict=True)):
        scope.problems.fail(BadLattice(formula.span, "its upper corner lies above its lower one in every coordinate"))
    steps = [[a + (b - a) * k / (n - 1) for k in range(int(n))] for a, b, n in zip(lower, upper, counts, strict=True)]
    points = tuple(itertools.product(*steps))
    return points if isinstance(corners[0], tuple) else tuple(point[0] for point in points)


def _coordinates(scope: Scope, formula: syntax.Formula, value: float | tuple) -> tuple[float, ...]:
    found = value if isinstance(value, tuple) else (value,)
    if any(isinstance(each, tuple) for each in found):
        scope.problems.fail(BadLattice(formula.span, "a corner is a number or a plain list of numbers"))
    return found
