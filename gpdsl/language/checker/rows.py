"""`row w[q] ~ Normal(0, 1)`: one unobserved variable per row of the data."""

from __future__ import annotations

from gpdsl.language import syntax
from gpdsl.language.checker.axes import declared_axes
from gpdsl.language.checker.distributions import check_distribution
from gpdsl.language.checker.lets import reads
from gpdsl.language.checker.place import IndexRange, Left, Place
from gpdsl.language.checker.scope import SORTS, Scope
from gpdsl.language.errors.calls import UnknownType
from gpdsl.language.errors.functionals import RowNotNormal
from gpdsl.language.errors.names import NotReadable
from gpdsl.language.model import At, Expression, Row

NORMAL = "Normal"
_READABLE = frozenset({"const", "param", "input"})


def check_row(scope: Scope, statement: syntax.RowStatement) -> None:
    """Check the axes of a row variable and its prior: a Normal about constants, parameters and inputs."""
    declared, call = statement.declared, statement.distribution
    sizes: tuple[syntax.Size, ...] = ()
    if statement.type is not None:
        if statement.type.word.text != "real" or statement.type.bounds:
            scope.problems.fail(UnknownType(statement.type.span, statement.type.word.text, "a row variable", "`real`"))
        sizes = statement.type.sizes
    axes = declared_axes(scope, declared.name, declared.indices, sizes)
    if not isinstance(call, syntax.Call) or call.function.text != NORMAL:
        scope.problems.fail(RowNotNormal(call.span, declared.name.text))
    indices = tuple(each.text for each in declared.indices)
    brackets = f"[{', '.join(indices)}]" if indices else ""
    left = Left("row", declared.name.text, f"row {declared.name.text}{brackets}", indices)
    bound = {axis.name: IndexRange.of(axis) for axis in axes if axis.name is not None}
    place = Place("the prior of a row variable", _READABLE, left, bound)
    distribution = check_distribution(scope, place, call, axes)
    _same_in_every_row(scope, left, distribution.arguments["sd"])
    scope.rows[declared.name.text] = Row(declared.name.text, declared.name.span, axes, distribution)


def _same_in_every_row(scope: Scope, left: Left, sd: Expression) -> None:
    """The spread of a row variable is a factor of white noise, which inputs have no part in."""
    for read in reads(sd):
        levels = [each.input for each in read.subscripts if isinstance(each, At)]
        for name in [*levels, *([read.name] if scope.sorts[read.name] == "input" else [])]:
            advice = f"write `{left.text} ~ Normal(0, 1)`, and multiply `{left.name}` where it is used"
            words = "the standard deviation of a row variable"
            scope.problems.fail(NotReadable(read.span, name, SORTS["input"], words, advice))
