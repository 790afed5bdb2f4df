"""`latent f[c](x) ~ GP(mean, kernel)`."""

from __future__ import annotations

import math

from gpdsl.language import syntax
from gpdsl.language.checker.axes import declared_axes
from gpdsl.language.checker.build import match_arguments, number, require_axes
from gpdsl.language.checker.domains import Domain
from gpdsl.language.checker.expressions import check_expression
from gpdsl.language.checker.group_reads import over_levels
from gpdsl.language.checker.groups import check_labels_seen, latent_of_levels, refuse_levels_in_kernel, whole
from gpdsl.language.checker.kernels import check_kernel
from gpdsl.language.checker.layers import points_index, refuse_field
from gpdsl.language.checker.lets import reads
from gpdsl.language.checker.scope import SORTS, IndexRange, Left, Place, Scope
from gpdsl.language.errors.axes import SeveralAxes
from gpdsl.language.errors.calls import NotAProcess, RepeatedArgument
from gpdsl.language.errors.functionals import FieldInRow
from gpdsl.language.errors.names import ArgumentNotInput, NotReadable
from gpdsl.language.model import Axis, Expression, Kernel, Latent
from gpdsl.language.vocabulary import PROCESS

_SIGNATURE = "GP(mean, kernel)"
_IN_MEAN = frozenset({"const", "param", "input", "row", "latent"})
_ARGUMENTS = ("input", "row", "latent", "const")
_IN_KERNEL = frozenset({"const", "param"})


def check_latent(scope: Scope, statement: syntax.LatentStatement) -> None:
    """Check the axes, the inputs, the mean and the kernel of a latent; all mistakes among them are reported."""
    declared = statement.declared
    name = declared.name.text
    every = declared_axes(scope, declared.name, declared.indices, ())
    levels = over_levels(scope, every) if scope.labels else ()
    axes = tuple(axis for axis in every if axis not in levels)
    inputs, wrong = _inputs(scope, statement)
    over = points_index(scope, statement, inputs) if not wrong else None
    brackets = f"[{', '.join(each.text for each in declared.indices)}]" if declared.indices else ""
    text = f"latent {name}{brackets}({', '.join(each.text for each in statement.arguments)})"
    domain = Domain(axes, None if wrong else _input_axis(scope, inputs), inputs, text, over=over)
    left = Left("latent", name, text, tuple(each.text for each in declared.indices))
    mean, kernel = _process(scope, statement.process, left, domain, wrong, levels)
    latent = Latent(name, declared.name.span, axes, inputs, mean, kernel, over)
    if levels:
        columns = tuple(whole(statement.span, each, argument_axes(scope, each)) for each in inputs)
        latent = latent_of_levels(scope, latent, every, columns)
    if scope.labels:
        check_labels_seen(scope, latent)
    scope.latents[name] = latent


def _inputs(scope: Scope, statement: syntax.LatentStatement) -> tuple[tuple[str, ...], bool]:
    """The names of the arguments (inputs, row variables, other latents), and whether one of them is wrong."""
    found: list[str] = []
    for argument in statement.arguments:
        with scope.problems.contained():
            sort = scope.sort_of(argument)
            if sort not in _ARGUMENTS:
                scope.problems.fail(ArgumentNotInput(argument.span, argument.text, SORTS[sort]))
            refuse_field(scope, argument)
            axes = argument_axes(scope, argument.text)
            if argument.text in found:
                name = statement.declared.name.text
                scope.problems.fail(RepeatedArgument(argument.span, name, argument.text, f"latent {name}(x)"))
            if len(axes) > 1:
                shown = ", ".join(axis.describe() for axis in axes)
                scope.problems.fail(SeveralAxes(argument.span, argument.text, shown, _flat(scope, argument.text)))
            found.append(argument.text)
    return tuple(found), len(found) < len(statement.arguments)


def _flat(scope: Scope, name: str) -> str:
    """What to do about an argument that is a matrix."""
    if name in scope.inputs:
        sizes = [axis.size for axis in scope.inputs[name].axes]
        flat = "D" if None in sizes else math.prod(filter(None, sizes))
        return f"declare one axis, `input {name} : real[{flat}]`, or several inputs: `latent f(x, t) ~ ...`"
    return f"declare `{name}` along one index, or pass several latents: `latent f(g, h) ~ ...`"


def argument_axes(scope: Scope, name: str) -> tuple[Axis, ...]:
    """The axes of what a latent is a function of, at one point. Gives up when that could not be checked itself."""
    if name in scope.consts:
        return scope.consts[name].axes[1:]
    for table in (scope.inputs, scope.rows, scope.latents):
        if name in table:
            return table[name].axes  # type: ignore[attr-defined]
    return scope.problems.give_up()


def _input_axis(scope: Scope, inputs: tuple[str, ...]) -> Axis | None:
    """The axis of the columns a kernel sees: that of the only input, or all columns of several side by side."""
    axes = [argument_axes(scope, name) for name in inputs]
    if len(axes) == 1:
        return axes[0][0] if axes[0] else None
    sizes = [each[0].size if each else 1 for each in axes]
    if None in sizes:
        return Axis(None, dimension="columns")
    return Axis(None, size=sum(size for size in sizes if size))


def _process(
    scope: Scope, formula: syntax.Formula, left: Left, domain: Domain, wrong: bool, levels: tuple[Axis, ...]
) -> tuple[Expression, Kernel]:
    if not isinstance(formula, syntax.Call) or formula.function.text != PROCESS:
        scope.problems.fail(NotAProcess(formula.span))
    matched = match_arguments(scope, formula, ("mean", "kernel"), _SIGNATURE, required=("kernel",))
    bound = {axis.name: IndexRange.of(axis) for axis in domain.axes if axis.name is not None}
    points = {} if domain.over is None else {domain.over.name: IndexRange.of(domain.over)}
    mean: Expression | None = None
    kernel: Kernel | None = None
    with scope.problems.contained():
        here = Place("the mean of a latent", _IN_MEAN, left, {**bound, **points})  # type: ignore[dict-item]
        mean = _mean(scope, formula, matched.get("mean"), here, domain)
    with scope.problems.contained():
        place = Place("a kernel", _IN_KERNEL, left, bound)
        if levels:
            refuse_levels_in_kernel(scope, matched["kernel"], left.name, levels)
        # Without its inputs the axes of a kernel cannot be judged.
        kernel = check_kernel(scope, place, matched["kernel"], domain) if not wrong else None
    return (mean, kernel) if mean is not None and kernel is not None else scope.problems.give_up()


def _mean(scope: Scope, call: syntax.Call, formula: syntax.Formula | None, place: Place, domain: Domain) -> Expression:
    if formula is None:
        return number(scope, call.span, 0, "0")
    mean = check_expression(scope, place, formula)
    require_axes(scope, place.left, mean, domain.axes if domain.over is None else (*domain.axes, domain.over))
    for each in reads(mean):
        if domain.over is not None and scope.sorts[each.name] == "input":
            scope.problems.fail(FieldInRow(each.span, place.left.name, f"`{each.name}` differs between rows"))
        if each.name in (scope.rows.keys() | scope.latents.keys()) - set(domain.arguments):
            what, advice = SORTS[scope.sorts[each.name]], "only the arguments of the latent itself have values here"
            scope.problems.fail(NotReadable(each.span, each.name, what, place.words, advice))
    return mean
