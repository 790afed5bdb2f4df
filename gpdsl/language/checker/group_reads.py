"""What is read at the level of a column in each row: `a[site]`, `f[site](b)`, `W[site, q]`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpdsl.language import syntax
from gpdsl.language.checker.axes import read
from gpdsl.language.checker.build import recorded, remember
from gpdsl.language.checker.facts import Fact
from gpdsl.language.checker.scope import ByGroup, Place, Scope
from gpdsl.language.errors.functionals import LabelNotNumber, LevelNotSaid, NotALabel
from gpdsl.language.model import At, Axis, Expression, Functional, Latent, Operation, Read, same_axis

ON = "`on`"
"""Where a kernel may see a label: it is checked which does."""


def over_levels(scope: Scope, axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """Those axes whose values are the levels of a column of the data."""
    return tuple(axis for axis in axes if axis.name in scope.labels)


def levels_of(scope: Scope, latent: Latent) -> int:
    """How many of the arguments of a latent say which level."""
    group = scope.by_group.get(latent.name)
    return 0 if group is None else len(over_levels(scope, group.axes))


def refuse_label(scope: Scope, name: syntax.Identifier) -> None:
    """A label is no number."""
    declared = scope.inputs.get(name.text)
    if declared is not None and declared.label is not None:
        scope.problems.fail(LabelNotNumber(name.span, name.text, declared.label.describe()))


def read_at_level(scope: Scope, place: Place, name: syntax.Name, axes: tuple[Axis, ...]) -> Expression | None:
    """`a[site]`, `f[site]`, `W[site, q]`; None for a name that has nothing to do with levels of columns."""
    text = name.identifier.text
    if place.words != ON:
        refuse_label(scope, name.identifier)
    grouped = scope.by_group.get(text)
    declared = axes if grouped is None else grouped.axes
    given = name.subscripts or ()
    labels = [_label(scope, place, each) for each in given]
    if grouped is None and not any(labels):
        return None
    if grouped is not None and not given:
        _refuse_unsaid(scope, name.identifier, declared)
    found: dict[int, str] = {}
    for position, (axis, subscript, label) in enumerate(zip(declared, given, labels, strict=False)):
        if label:
            _check_label(scope, text, subscript, label, axis)
            found[position] = label
        elif grouped is not None and axis.name in scope.labels:
            _refuse_unsaid(scope, name.identifier, declared)
    rest = tuple(each for position, each in enumerate(given) if position not in found)
    left = tuple(axis for position, axis in enumerate(declared) if position not in found)
    plain = read(scope, place, replace(name, subscripts=rest or None), left)
    if grouped is not None:
        return _of_latent(scope, plain, grouped, tuple(found.values()))
    kept = iter(plain.subscripts)
    subscripts = tuple(At(found[k]) if k in found else next(kept) for k in range(len(declared)))
    return remember(scope, replace(plain, subscripts=subscripts), Fact())


def _label(scope: Scope, place: Place, subscript: syntax.Subscript) -> str:
    """The input that a subscript names, or that says the level of an index `s` in `GP(mu[s], ...)`; empty if none."""
    value = subscript.value
    if not isinstance(value, syntax.Name) or value.subscripts is not None or subscript.stop or subscript.comparison:
        return ""
    text = value.identifier.text
    declared = scope.inputs.get(text)
    if declared is not None and declared.label is not None:
        return text
    own = text in scope.labels and text in place.left.indices and text not in place.bound
    return scope.labels[text] if own else ""


def _check_label(scope: Scope, name: str, subscript: syntax.Subscript, given: str, axis: Axis) -> None:
    label = scope.inputs[given].label
    if label is not None and not same_axis(label, axis):
        what, known, index = f"a label of `{label.describe()}`", scope.labels.get(axis.name or ""), axis.describe()
        remedy = f"write `{name}[{known}]`" if known else f"declare `input {index}1 : label[{index}]`"
        scope.problems.fail(NotALabel(subscript.span, name, given, what, index, remedy))


def refuse_without_level(scope: Scope, name: syntax.Identifier) -> None:
    """`f(b)` of what each level has its own of."""
    group = scope.by_group.get(name.text)
    if group is not None:
        _refuse_unsaid(scope, name, group.axes)


def _refuse_unsaid(scope: Scope, name: syntax.Identifier, declared: tuple[Axis, ...]) -> None:
    shown = ", ".join(scope.labels.get(axis.name or "", axis.describe()) for axis in declared)
    index = next(axis.describe() for axis in declared if axis.name in scope.labels)
    scope.problems.fail(LevelNotSaid(name.span, name.text, index, f"{name.text}[{shown}]"))


def _of_latent(scope: Scope, plain: Read, group: ByGroup, labels: tuple[str, ...]) -> Expression:
    own = scope.latents[group.latent].arguments
    at = (*own[: len(own) - len(labels)], *labels)
    value = recorded(scope, replace(plain, name=group.latent, functional=Functional(() if at == own else at)))
    if not group.log:
        return value
    return remember(scope, Operation(plain.span, value.axes, "exp", (value,)), Fact())
