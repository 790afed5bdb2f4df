"""Declarations of known and estimated quantities: index, input, output, const, param."""

from __future__ import annotations

import math
from dataclasses import replace

from gpdsl.language import model as m, syntax
from gpdsl.language.checker import constraints
from gpdsl.language.checker.axes import check_distinct, declared_axes, free_axis, index_axis, whole_number
from gpdsl.language.checker.build import fact_of
from gpdsl.language.checker.distributions import BOUNDS, check_distribution
from gpdsl.language.checker.groups import refuse_learnt
from gpdsl.language.checker.layers import LATTICE
from gpdsl.language.checker.scope import SORTS, IndexRange, Left, Place, Scope
from gpdsl.language.errors.axes import BadLevels, LabelNeedsIndex, RangeStart
from gpdsl.language.errors.calls import NotADistribution, NotAPrior, UnknownType
from gpdsl.language.errors.definitions import PriorElsewhere
from gpdsl.language.errors.functionals import RowNotNormal, SeveralLabels
from gpdsl.language.errors.limits import NotFinite, SizeOutOfRange
from gpdsl.language.errors.names import NotReadable
from gpdsl.language.habits import BINARY_INPUT, DISTRIBUTIONS as HABITS, TYPES
from gpdsl.language.vocabulary import CONSTRAINTS, DISTRIBUTIONS, INPUT_KINDS, MAX_AXIS, OUTPUT_KINDS


def check_index(scope: Scope, statement: syntax.IndexStatement) -> None:
    """`index p in 1..4`, `index c in {4, 7, 9}`."""
    name = statement.name
    if statement.start is None or statement.stop is None:
        levels = _levels(scope, statement)
        axis = m.Axis(name.text, size=len(levels))
        scope.indices[name.text] = m.Index(name.text, name.span, axis, levels)
        return
    if statement.start.value != 1:
        scope.problems.fail(RangeStart(statement.start.span, statement.start.text[:20]))
    stop = statement.stop.value
    if isinstance(stop, syntax.Literal):
        axis = m.Axis(name.text, size=whole_number(scope, stop))
    else:
        axis = free_axis(scope, stop, name.text)
    scope.indices[name.text] = m.Index(name.text, name.span, axis)


def _levels(scope: Scope, statement: syntax.IndexStatement) -> tuple[int | float | str, ...]:
    seen: set[int | float | str] = set()
    first_is_text = isinstance(statement.levels[0][0], str)
    if len(statement.levels) > MAX_AXIS:
        scope.problems.fail(SizeOutOfRange(statement.levels[MAX_AXIS][1], str(len(statement.levels)), MAX_AXIS))
    for level, span in statement.levels:
        shown = f'"{level}"' if isinstance(level, str) else str(level)
        if isinstance(level, float) and not math.isfinite(level):
            scope.problems.fail(NotFinite(span, scope.quote(span).strip("`")))
        if level in seen:
            scope.problems.fail(BadLevels(span, shown, "is listed twice"))
        if isinstance(level, str) != first_is_text:
            scope.problems.fail(BadLevels(span, shown, "is of another sort than the first"))
        seen.add(level)
    return tuple(level for level, _ in statement.levels)


def _word(scope: Scope, name: syntax.Identifier, kind: syntax.Type, statement: str, known: tuple[str, ...]) -> str:
    word = kind.word
    if word.text not in known:
        shown = ", ".join(f"`{each}`" for each in known)
        habit, elsewhere = TYPES.of(word.text), word.text in TYPES.values()
        suggestion = habit if habit in known else "" if elsewhere else scope.problems.suggest(word.text, known)
        what = f"an {statement}" if statement[0] in "aeio" else f"a {statement}"
        binary = statement == "input" and "binary" in (habit, word.text)
        said = BINARY_INPUT.format(name=name.text) if binary else ""
        scope.problems.fail(UnknownType(word.span, word.text[:30], what, shown, suggestion, said))
    return word.text


def check_input(scope: Scope, statement: syntax.InputStatement) -> None:
    """`input x : real[13]`, `input t : time(per = hour)`."""
    kind = _word(scope, statement.declared.name, statement.type, "input", INPUT_KINDS)
    unit = constraints.time_unit(scope, statement.type) if kind == "time" else ""
    if statement.type.bounds and not unit:
        constraints.refuse_bounds(scope, statement.type.bounds[0], "an input")
    name, label = statement.declared.name, None
    if kind == "label":
        label = _label(scope, "input", name, statement.type)
        if statement.declared.indices:
            scope.problems.fail(SeveralLabels(name.span, name.text))
        scope.labels.setdefault(label.name or "", name.text)
    sizes = statement.type.sizes if label is None else ()
    axes = declared_axes(scope, name, statement.declared.indices, sizes)
    scope.inputs[name.text] = m.Input(name.text, name.span, axes, kind, unit, label)


def check_output(scope: Scope, statement: syntax.OutputStatement) -> None:
    """`output y[p] : count`, `output y : label[c]`, `output y : ordinal[c]`."""
    kind = _word(scope, statement.declared.name, statement.type, "output", OUTPUT_KINDS)
    if statement.type.bounds:
        constraints.refuse_bounds(scope, statement.type.bounds[0], "an output")
    name, sizes, label = statement.declared.name, statement.type.sizes, None
    if kind in ("label", "ordinal"):
        label, sizes = _label(scope, "output", name, statement.type), ()
    axes = declared_axes(scope, name, statement.declared.indices, sizes)
    scope.outputs[name.text] = m.Output(name.text, name.span, kind, axes, label)


def _label(scope: Scope, word: str, name: syntax.Identifier, kind: syntax.Type) -> m.Axis:
    """The axis of the levels in `label[c]`."""
    if len(kind.sizes) != 1 or not isinstance(kind.sizes[0].value, syntax.Identifier):
        scope.problems.fail(LabelNeedsIndex(kind.span, word, name.text, kind.word.text))
    return index_axis(scope, kind.sizes[0].value)


def check_const(scope: Scope, statement: syntax.ConstStatement) -> None:
    """`const a[p] = [1, 2]`; without an index, a list gets an axis of its own length."""
    name, formula = statement.declared.name, statement.value
    axes = declared_axes(scope, name, statement.declared.indices, ())
    values = constraints.evaluate_value(scope, formula, name.text)
    of_lattice = syntax.called(formula) == LATTICE and len(axes) == 1
    if of_lattice and isinstance(values, tuple) and isinstance(values[0], tuple):
        axes = (*axes, m.Axis(None, size=len(values[0])))
    if not statement.declared.indices:
        axes = tuple(m.Axis(None, size=size) for size in constraints.shape_of(scope, formula, values, name.text))
        _distinct(scope, name, axes)
    constraints.check_shape(scope, formula, values, name.text, axes)
    scope.consts[name.text] = m.Const(name.text, name.span, axes, values)


def _distinct(scope: Scope, name: syntax.Identifier, axes: tuple[m.Axis, ...]) -> None:
    for axis in axes:
        if axis.size is not None and axis.size > MAX_AXIS:
            scope.problems.fail(SizeOutOfRange(name.span, str(axis.size), MAX_AXIS))
    check_distinct(scope, name.text, name.span, axes)


def check_param(scope: Scope, statement: syntax.ParamStatement) -> None:
    """`param sigma[p] : positive = 0.1 fixed`; its prior is checked once every name is known."""
    constraint = _word(scope, statement.declared.name, statement.type, "parameter", tuple(CONSTRAINTS))
    name = statement.declared.name
    axes = declared_axes(scope, name, statement.declared.indices, statement.type.sizes)
    if constraint in constraints.SHAPED:
        constraints.check_axes(scope, name.text, statement.type, axes)
    lower, upper = constraints.check_bounds(scope, name.text, statement.type) if statement.type.bounds else (None, None)
    # The initial value of a parameter that has none written: that of its type when the bounds allow it.
    initial, bottom = CONSTRAINTS[constraint], 0.0 if lower is None and constraint == "positive" else lower
    if (bottom is not None and bottom >= initial) or (upper is not None and initial >= upper):
        if bottom is not None and upper is not None:
            initial = (bottom + upper) / 2
        else:
            initial = bottom + 1.0 if bottom is not None else (upper or 0.0) - 1.0
    given = statement.value is not None
    param = m.Param(name.text, name.span, constraint, axes, initial, statement.fixed, None, lower, upper, given)
    if statement.value is not None:
        param = replace(param, initial=initial_value(scope, statement.value, param))
    scope.params[name.text] = param


def initial_value(scope: Scope, formula: syntax.Formula, param: m.Param) -> float | tuple:
    """The value at which a parameter starts: of its type and shape, and inside its bounds."""
    domain = {"simplex": "unit", **dict.fromkeys(("ordered", "correlation_factor"), "real")}
    value = constraints.evaluate_value(scope, formula, param.name, domain.get(param.constraint, param.constraint))
    constraints.check_shape(scope, formula, value, param.name, param.axes)
    constraints.check_initial(scope, formula, replace(param, initial=value))
    return value


# Priors of parameters: a continuous distribution of constants, whose values are those the parameter can have.

_IN_PRIOR = frozenset({"const"})
_OWN = {"simplex": ("Dirichlet", "simplexes"), "correlation_factor": ("LKJ", "factors of correlation matrices")}
"""The one prior of a constraint, and what it is a prior of."""

_VALUES = {"real": "any number", "positive": "positive numbers", "unit": "numbers between 0 and 1"}


def check_prior(scope: Scope, statement: syntax.ParamStatement) -> None:
    """`param s : positive ~ Gamma(2, 1)`; a simplex has a Dirichlet prior, a factor LKJ, and nothing else has."""
    name, call = statement.declared.name.text, statement.prior
    if call is None or name not in scope.params:
        return
    param = scope.params[name]
    if not isinstance(call, syntax.Call):
        scope.problems.fail(NotADistribution(call.span))
    _check_names(scope, call, param)
    if scope.labels:
        refuse_learnt(scope, call, param)
    names = tuple(axis.name for axis in param.axes if axis.name is not None)
    bound = {axis.name: IndexRange.of(axis) for axis in param.axes if axis.name is not None}
    place = Place("a prior", _IN_PRIOR, Left("param", name, f"param {name}", names), bound)
    prior = check_distribution(scope, place, call, param.axes)
    _check_support(scope, prior, param)
    scope.params[name] = replace(param, prior=prior)


def _check_names(scope: Scope, call: syntax.Call, param: m.Param) -> None:
    """The distribution is a prior of this sort of parameter, and so are the components of a mixture."""
    word, own = call.function, _OWN.get(param.constraint)
    known = [own[0]] if own else [each.name for each in DISTRIBUTIONS.values() if each.continuous]
    if word.text not in known:
        meant = next((name for name, (prior, _) in _OWN.items() if prior == word.text), None)
        if word.text in DISTRIBUTIONS and (own or meant):
            values = _OWN[meant][1] if meant else "single numbers"
            remedy = f"write `~ {own[0]}(1)`" if own else f"declare a `{meant}`, or choose another prior"
            scope.problems.fail(PriorElsewhere(word.span, word.text, values, param.name, _described(param), remedy))
        suggestion = "" if word.text in DISTRIBUTIONS else scope.problems.suggest(word.text, known)
        scope.problems.fail(NotAPrior(word.span, word.text, ", ".join(known), suggestion, HABITS.of(word.text)))
    for argument in call.arguments:
        inner = argument.value
        if isinstance(inner, syntax.Call) and inner.function.text in DISTRIBUTIONS:
            _check_names(scope, inner, param)


def _check_support(scope: Scope, prior: m.DistributionCall, param: m.Param) -> None:
    """Every value the parameter can take has a density: else the search would end at an edge nobody has written."""
    if param.constraint in _OWN:
        return
    if prior.name == "Mixture":
        for component in prior.components:
            _check_support(scope, component, param)
        return
    low, high = m.interval(param)
    inner = prior.components[0] if prior.components else prior
    support = DISTRIBUTIONS[inner.name].support
    least, most = m.interval_of(support)
    if low < least or high > most:
        remedy = "declare `real(lower = 0, upper = 1)` or `unit`" if support == "unit" else f"declare it `{support}`"
        remedy, values = f"{remedy}, or change the prior", _VALUES[support]
        scope.problems.fail(PriorElsewhere(prior.span, inner.name, values, param.name, _described(param), remedy))
    bounds = {name: fact_of(scope, each).value for name, each in prior.arguments.items() if name in BOUNDS}
    lower, upper = bounds.get("lower"), bounds.get("upper")
    if (lower is not None and low < lower) or (upper is not None and high > upper):
        parts = [f"{name} = {value:g}" for name, value in bounds.items() if value is not None]
        remedy = f"give the parameter the same bounds: `param {param.name} : real({', '.join(parts)})`"
        values = f"numbers with {' and '.join(parts)}"
        scope.problems.fail(PriorElsewhere(prior.span, prior.name, values, param.name, _described(param), remedy))


def _described(param: m.Param) -> str:
    """`real(lower = -1)`, as it is written."""
    bounds = [f"{n} = {v:g}" for n, v in (("lower", param.lower), ("upper", param.upper)) if v is not None]
    return f"`{param.constraint}({', '.join(bounds)})`" if bounds else f"`{param.constraint}`"


# `row w[q] ~ Normal(0, 1)`: one unobserved variable per row of the data.

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
    scope.rows[declared.name.text] = m.Row(declared.name.text, declared.name.span, axes, distribution)


def _same_in_every_row(scope: Scope, left: Left, sd: m.Expression) -> None:
    """The spread of a row variable is a factor of white noise, which inputs have no part in."""
    for read in m.reads_of(sd):
        levels = [each.input for each in read.subscripts if isinstance(each, m.At)]
        for name in [*levels, *([read.name] if scope.sorts[read.name] == "input" else [])]:
            advice = f"write `{left.text} ~ Normal(0, 1)`, and multiply `{left.name}` where it is used"
            words = "the standard deviation of a row variable"
            scope.problems.fail(NotReadable(read.span, name, SORTS["input"], words, advice))
