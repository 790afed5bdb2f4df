"""What can be judged only once every statement is checked: unobserved outputs, sizes no data can bind."""

from __future__ import annotations

from gpdsl.language import syntax
from gpdsl.language.checker.functions import nodes
from gpdsl.language.checker.scope import Scope
from gpdsl.language.errors.axes import SizeUnknown
from gpdsl.language.errors.names import NeverObserved, NothingObserved
from gpdsl.language.model import Axis, Observation
from gpdsl.language.source import Span


def check_observed(scope: Scope, statements: tuple[syntax.Statement, ...], seen: list[Observation], end: Span) -> None:
    """Every output is observed; a statement that failed counts as an observation of what stands on its left."""
    attempts = [each for each in statements if isinstance(each, syntax.ObservationStatement)]
    names = [_mentioned(scope, part) for each in attempts for part in each.left]
    mentioned = set().union(*names)
    # An observation of something else was probably meant for the output that lacks one: its own mistake says so.
    astray = any(not each & set(scope.names("output")) for each in names)
    for output in scope.outputs.values():
        if output.name not in mentioned | scope.lost and not astray:
            scope.problems.add(NeverObserved(output.span, output.name))
    if not attempts and not scope.names("output"):
        scope.problems.add(NothingObserved(end))


def _mentioned(scope: Scope, left: syntax.Formula) -> set[str]:
    """The outputs that a left side is about, or the name that stands there instead."""
    if isinstance(left, syntax.Name):
        return {left.identifier.text}
    names = {each.identifier.text for each in nodes(left) if isinstance(each, syntax.Name)}
    return names & set(scope.names("output"))


def outputs_gone_wrong(
    scope: Scope, statements: tuple[syntax.Statement, ...], seen: list[Observation]
) -> frozenset[str]:
    """Outputs that a statement is about which failed, so that what they lack has been said."""
    spans = {each.span for each in seen}
    attempts = [each for each in statements if isinstance(each, syntax.ObservationStatement)]
    failed = [each for each in attempts if each.span not in spans]
    return frozenset(name for each in failed for part in each.left for name in _mentioned(scope, part))


def check_sizes(scope: Scope) -> None:
    """Each free dimension must occur in an input or output, or in a list of numbers whose length says it."""
    known: set[str | None] = set()
    axes = [axis for table in (scope.inputs, scope.outputs) for each in table.values() for axis in each.axes]
    axes += [t.label for table in (scope.inputs, scope.outputs) for t in table.values() if t.label is not None]  # type: ignore[attr-defined]
    lists = [
        *((each.axes, each.values) for each in scope.consts.values()),
        *((each.axes, each.initial) for each in scope.params.values()),
    ]
    axes += [axis for own, values in lists if isinstance(values, tuple) for axis in own]
    known.update(axis.dimension for axis in axes)
    wanted: dict[str, Span] = {}
    for index in scope.indices.values():
        _want(wanted, index.axis, index.span)
    for param in scope.params.values():
        for axis in param.axes:
            _want(wanted, axis, param.span)
    for dimension, span in wanted.items():
        if dimension not in known:
            scope.problems.add(SizeUnknown(span, dimension))


def _want(wanted: dict[str, Span], axis: Axis, span: Span) -> None:
    if axis.size is None and axis.dimension is not None:
        wanted.setdefault(axis.dimension, span)
