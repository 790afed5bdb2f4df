"""Latents over points that are the same in every row, and `lattice(lower, upper, points)`, a regular grid of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from gpdsl.language import syntax
from gpdsl.language.checker.scope import Scope
from gpdsl.language.errors.fields import BadLattice, FieldInRow, PointsWithoutIndex
from gpdsl.language.limits import MAX_AXIS
from gpdsl.language.model import Axis, same_axis

LATTICE = "lattice"
_SEVERAL = "the arguments of a field are constants along the same index"


def points_index(scope: Scope, statement: syntax.LatentStatement, arguments: Sequence[str]) -> Axis | None:
    """The index that numbers the points of a field; None for a latent over inputs, row variables or latents."""
    constants = [each for each in statement.arguments if each.text in scope.consts]
    if not constants:
        return None
    name = statement.declared.name.text
    first = scope.consts[constants[0].text].axes
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


def refuse_field(scope: Scope, argument: syntax.Identifier) -> None:
    """A field has no value of its own in a row, and so no latent is a function of it."""
    latent = scope.latents.get(argument.text)
    if latent is not None and latent.over is not None:
        scope.problems.fail(FieldInRow(argument.span, argument.text, "no latent is a function of it"))


def is_lattice(formula: syntax.Formula) -> bool:
    """Whether a value is written as `lattice(...)`."""
    return isinstance(formula, syntax.Call) and formula.function.text == LATTICE


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
