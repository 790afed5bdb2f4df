"""Kernels by formula, in the distance or in two points: `kernel spiral(r; ell, p) = ...`, `kernel k(a, b; ell) = ...`.

`kernel k[d, e](a, b; width) = ...` also has the values of an index at its two points, so that `width[d]` and `width[e]`
are those of either: the covariance of outputs that differ.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from gpdsl.language import model as m, syntax
from gpdsl.language.checker.axes import alike, all_elements, carrier, contains
from gpdsl.language.checker.build import match_arguments, remember
from gpdsl.language.checker.expressions import check_expression
from gpdsl.language.checker.functions import nodes, texts_of
from gpdsl.language.checker.kernel_calls import ON, Domain, argument_axes, column_axis, fit_argument, own_axes, selected
from gpdsl.language.checker.scope import Fact, Left, Place, Scope, describe_axes
from gpdsl.language.errors import definitions as wrong
from gpdsl.language.errors.axes import KernelAxis
from gpdsl.language.vocabulary import REDUCTIONS

COLUMNS = m.Axis(None, dimension="columns")
"""The axis of a point in a definition that is checked before it is known over which input it will be called."""

LEVELS = m.Axis(None, dimension="levels")
"""The axis along which a definition reads an argument by levels, before it is known of which index."""

_OVER_COLUMNS = frozenset({*REDUCTIONS, "dot", "norm"})
_READABLE = frozenset({"const", "param", "function"})


def check_definition(scope: Scope, statement: syntax.KernelStatement) -> None:
    """Check a definition as it stands, for one column or for any number when its formula says so."""
    name = statement.name.text
    points, parameters, levels = statement.arguments, statement.parameters, statement.levels
    if not 1 <= len(points) <= 2:
        scope.problems.fail(wrong.KernelPoints(points[-1].span if points else statement.span, name, len(points)))
    if len(levels) not in (0, 2):
        names = "1 name" if len(levels) == 1 else f"{len(levels)} names"
        scope.problems.fail(wrong.KernelLevels(levels[-1].span, name, names))
    seen: set[str] = set()
    for each in (*levels, *points, *parameters):
        if each.text in seen:
            scope.problems.fail(wrong.RepeatedName(each.span, each.text))
        seen.add(each.text)
    texts = texts_of(points)
    axis = COLUMNS if len(points) == 2 and _over_columns(statement.value, frozenset(texts)) else None
    arrays = _arrays(scope, statement)
    local = _points(scope, statement, axis)
    local |= {each.text: _local(scope, each, arrays.get(each.text, ())) for each in parameters}
    body = _body(scope, statement, local, axis, None)
    definition = m.KernelDefinition(name, statement.name.span, texts, texts_of(parameters), body, texts_of(levels))
    scope.kernels[name] = definition
    scope.kernel_statements[name] = statement


def check_formula(scope: Scope, place: Place, call: syntax.Call, domain: Domain) -> m.Kernel:
    """A call: parameters given, or else the quantities of the same names; the formula over this call's columns."""
    name = call.function.text
    if name not in scope.kernel_statements:
        scope.problems.give_up()
    statement, definition = scope.kernel_statements[name], scope.kernels[name]
    names = definition.parameters
    signature = f"{name}({', '.join(names)})"
    for argument in call.arguments:
        if argument.name is not None and argument.name.text in (*definition.arguments, *definition.levels):
            scope.problems.fail(wrong.MustBePositional(argument.name.span, name, argument.name.text, signature))
    matched = match_arguments(scope, call, names, signature, required=(), named_only=(ON,))
    on, seen = selected(scope, place, matched[ON], domain) if ON in matched else ((), domain)
    level = None
    if definition.levels:
        on, seen, level = _at_levels(scope, call, definition, on, seen)
    arrays, over = _arrays(scope, statement), _Call(scope, statement, seen, level)

    def passed(parameter: str) -> m.Expression:
        given = matched.get(parameter, syntax.Name(call.span, syntax.Identifier(call.span, parameter)))
        checked = check_expression(scope, place, given)
        if parameter in arrays:
            over.fit_array(parameter, checked, arrays[parameter])
        else:
            over.fit_number(parameter, checked)
        return checked

    arguments = dict(zip(names, scope.problems.each(names, passed), strict=True))
    own = {each: own_axes(arguments[each], seen) for each in arrays}
    body = over.body(call, arguments, own)
    return m.KernelFormula(call.span, name, arguments, definition.arguments, body, on, definition.levels, own)


# The levels of an index at the two points: which column they are, and what is read by them.


def _at_levels(
    scope: Scope, call: syntax.Call, definition: m.KernelDefinition, on: tuple[m.Expression, ...], domain: Domain
) -> tuple[tuple[m.Expression, ...], Domain, m.Axis]:
    """The columns that a call sees with the levels last, the domain of the others, and the axis of the levels."""
    name, (first, _) = definition.name, definition.levels
    if domain.patches:
        scope.problems.fail(wrong.NoInputsHere(call.span, domain.patches))
    columns = on or tuple(all_elements(call.span, each, argument_axes(scope, each)) for each in domain.arguments)
    levels = [(each, axis) for each in columns if (axis := _level_axis(scope, each)) is not None]
    others = tuple(each for each in columns if all(each is not level for level, _ in levels))
    if len(levels) == 1 and others:
        (level, axis) = levels[0]
        return (*others, level), replace(domain, input_axis=column_axis(others, domain)), axis
    shown = ", ".join(f"`{scope.labels.get(each.name, each.name)}`" for each, _ in levels if isinstance(each, m.Read))
    seen, remedy = f"only {shown}", f"add the column that its points are: `on = [x, {first}]`"
    if not levels:
        seen = "no index"
        remedy = f"make an index an argument, `latent f(x, {first})`, or a column, `input task : label[{first}]`"
        remedy += f"; with `on`, name it there: `on = [x, {first}]`"
    elif not on and not others and len(levels) == 1:
        remedy = f"a covariance L L' + diag(k) of {shown} alone is `Coregion(L, k)`"
    elif len(levels) > 1:
        seen, remedy = f"several: {shown}", f"say which one: `on = [x, {first}]`"
    return scope.problems.fail(wrong.LevelNotSeen(call.span, name, seen, domain.latent, remedy))


def _level_axis(scope: Scope, column: m.Expression) -> m.Axis | None:
    """The axis of a column of levels: an index among the arguments, or an input that is a label."""
    if not isinstance(column, m.Read):
        return None
    if column.name in scope.indices:
        return scope.indices[column.name].axis
    return scope.inputs[column.name].label if column.name in scope.inputs else None


def _arrays(scope: Scope, statement: syntax.KernelStatement) -> dict[str, tuple[m.Axis, ...]]:
    """The parameters read by a level or an index, `width[d]`, with the axes that their subscripts stand along."""
    parameters, levels = texts_of(statement.parameters), texts_of(statement.levels)
    found: dict[str, list[m.Axis]] = {}
    by_index: set[str] = set()
    for part in nodes(statement.value):
        name = part.identifier.text if isinstance(part, syntax.Name) else ""
        if name not in parameters or not isinstance(part, syntax.Name) or part.subscripts is None:
            continue
        axes = [_subscripted(scope, levels, each, k) for k, each in enumerate(part.subscripts)]
        by_index |= {name} if any(axis.name is not None or axis == LEVELS for axis in axes) else set()
        # What another place says of the same axis tells more than a number there.
        known = found.setdefault(name, axes)
        for k, axis in enumerate(axes[: len(known)]):
            known[k] = axis if known[k].name is None and known[k] != LEVELS else known[k]
    return {name: tuple(axes) for name, axes in found.items() if name in by_index}


def _subscripted(scope: Scope, levels: tuple[str, ...], subscript: syntax.Subscript, position: int) -> m.Axis:
    value = subscript.value.left if isinstance(subscript.value, syntax.Binary) else subscript.value
    name = value.identifier.text if isinstance(value, syntax.Name) else ""
    if name in levels:
        return LEVELS
    return scope.indices[name].axis if name in scope.indices else m.Axis(None, dimension=f"?{position}")


@dataclass(frozen=True)
class _Call:
    """A formula as one call has it: over the domain that it sees, and the axis of the levels of its points, if any."""

    scope: Scope
    statement: syntax.KernelStatement
    domain: Domain
    level: m.Axis | None

    def fit_array(self, parameter: str, checked: m.Expression, wanted: tuple[m.Axis, ...]) -> None:
        """An argument read by levels has their axis where the formula does, and perhaps that of the columns last."""
        own, columns = own_axes(checked, self.domain), self.domain.input_axis
        expected = [self.level if axis == LEVELS and self.level is not None else axis for axis in wanted]
        rest = own[len(wanted) :]
        fits = len(own) >= len(wanted) and all(
            alike(one, axis) if want == LEVELS in wanted[:k] else one.name is None or m.same_axis(one, axis)
            for k, (one, want, axis) in enumerate(zip(expected, wanted, own, strict=False))
        )
        if rest:
            alone = len(self.statement.arguments) == 2 and columns is not None and len(rest) == 1
            fits = fits and alone and contains((columns,), rest[0])  # type: ignore[arg-type]
        if not fits:
            shown = ", ".join(axis.name or f"q{k}" for k, axis in enumerate(expected, 1))
            words = f"the axes `{shown}`" if len(expected) > 1 else f"one axis, `{shown}`"
            name, given, example = (
                self.statement.name.text,
                describe_axes(own),
                f"param {parameter}[{shown}] : positive",
            )
            self.scope.problems.fail(wrong.ArrayNeeded(checked.span, parameter, name, words, given, example))

    def fit_number(self, parameter: str, checked: m.Expression) -> None:
        """An argument is one number, or in a formula of two points one for each of their columns."""
        statement, domain, columns = self.statement, self.domain, self.domain.input_axis
        if self.level is not None and contains(own_axes(checked, domain), self.level):
            first, second = texts_of(statement.levels)
            one = f"one number: in the formula, read `{parameter}[{first}]` and `{parameter}[{second}]`"
            where = self.level.describe(), domain.describe()
            self.scope.problems.fail(KernelAxis(checked.span, parameter, *where, one))
        points = statement.arguments
        if len(points) == 1 and columns is not None and contains(own_axes(checked, domain), columns):
            name = statement.name.text
            self.scope.problems.fail(wrong.VectorInDistance(checked.span, name, parameter, points[0].text))
        fit_argument(self.scope, checked, domain, vector=len(points) == 2)

    def body(self, call: syntax.Call, arguments: Mapping[str, m.Expression], arrays: Collection[str]) -> m.Expression:
        """The formula over the columns of this call; its points and parameters are `Local`."""
        points, axis = self.statement.arguments, None
        if len(points) == 2:
            over = _over_columns(self.statement.value, frozenset(texts_of(points)))
            axis = self.domain.input_axis or (m.Axis(None, size=1) if over else None)
        local = _points(self.scope, self.statement, axis)
        for parameter in self.statement.parameters:
            own = own_axes(arguments[parameter.text], self.domain)
            if parameter.text not in arrays:
                own = tuple(each for each in own if axis is not None and contains((axis,), each))
            local[parameter.text] = _local(self.scope, parameter, own)
        body = _body(self.scope, self.statement, local, axis, self.level)
        if body.axes:
            name, seen, point = self.statement.name.text, self.domain.describe(), points[0].text
            self.scope.problems.fail(wrong.WrittenForOneColumn(call.span, name, seen, point))
        return body


def _points(scope: Scope, statement: syntax.KernelStatement, axis: m.Axis | None) -> dict[str, m.Expression]:
    """The points along their columns, and their levels, which are numbers."""
    axes = (axis,) if axis is not None and len(statement.arguments) == 2 else ()
    points: dict[str, m.Expression] = {each.text: _local(scope, each, axes) for each in statement.arguments}
    return points | {each.text: _local(scope, each, ()) for each in statement.levels}


def _local(scope: Scope, name: syntax.Identifier, axes: tuple[m.Axis, ...]) -> m.Expression:
    return remember(scope, m.Local(name.span, axes, name.text, tuple(m.Whole(axis) for axis in axes)), Fact())


def _body(
    scope: Scope,
    statement: syntax.KernelStatement,
    local: Mapping[str, m.Expression],
    axis: m.Axis | None,
    level: m.Axis | None,
) -> m.Expression:
    """The checked formula; along an axis other than the columns it would be several covariances."""
    name, levels = statement.name.text, texts_of(statement.levels)
    left = Left("kernel", name, f"kernel {name}({', '.join(texts_of(statement.arguments))}; ...)")
    place = Place("a kernel", _READABLE, left, local=local, levels=dict.fromkeys(levels, level))
    body = check_expression(scope, place, statement.value)
    for each in body.axes:
        if axis is None or not contains((axis,), each):
            source = carrier(body, each)
            shown = scope.quote(source.span).strip("`")
            element = levels[0] if levels else "1"
            one = f"one number: take an element, such as `{shown}[{element}]`, or sum over the axis"
            scope.problems.fail(KernelAxis(source.span, shown, each.describe(), "one number", one))
    return body


def _over_columns(formula: syntax.Formula, points: frozenset[str]) -> bool:
    """Whether a formula takes elements of its points, or sums and the like over their columns."""
    for part in nodes(formula):
        match part:
            case syntax.Name(identifier=word, subscripts=subscripts) if subscripts is not None and word.text in points:
                return True
            case syntax.Call(function=word, arguments=inside) if word.text in _OVER_COLUMNS:
                own = inside[0].value if len(inside) == 1 or word.text == "dot" else None
                if own is not None and any(_is_point(each, points) for each in nodes(own)):
                    return True
            case syntax.Binary(operator="@", left=left):
                if any(_is_point(each, points) for each in nodes(left)):
                    return True
    return False


def _is_point(formula: syntax.Node, points: frozenset[str]) -> bool:
    return isinstance(formula, syntax.Name) and formula.identifier.text in points
