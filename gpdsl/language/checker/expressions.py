"""Expressions: every name resolved, every axis known. One function per form."""

from __future__ import annotations

import math
from collections.abc import Iterable

from gpdsl.errors import plural
from gpdsl.language import syntax
from gpdsl.language.checker import functionals, reductions
from gpdsl.language.checker.axes import read
from gpdsl.language.checker.build import fact_of, number, operation, read_at_level, remember
from gpdsl.language.checker.functions import external_call, function_call
from gpdsl.language.checker.monotone import reads_latent
from gpdsl.language.checker.scope import SORTS, Fact, Place, Scope
from gpdsl.language.errors.axes import IndexNotBound
from gpdsl.language.errors.calls import LatentCalled, NotAValue, WrongArity
from gpdsl.language.errors.names import LatentEquality, NotReadable, UnknownFunction, UnknownName, UsedBeforeDefined
from gpdsl.language.habits import word_habit
from gpdsl.language.model import Expression, IndexNumber, Local, Read
from gpdsl.language.vocabulary import BUILTINS, CONSTANTS, CONTRACTIONS, FUNCTIONS, REDUCTIONS

# `if c then a else b`, and its condition: comparisons joined by `and`, `or` and `not`.

EXACT = ("==", "!=")


def condition(scope: Scope, place: Place, formula: syntax.Condition) -> Expression:
    """The checked form of a condition."""
    if isinstance(formula, syntax.Logical):
        return operation(scope, place, formula.span, formula.operator, check_all(scope, place, formula.operands))
    sides = check_all(scope, place, (formula.left, formula.right))
    if formula.operator in EXACT and any(reads_latent(scope, side) for side in sides):
        scope.problems.fail(LatentEquality(formula.span, formula.operator))
    return operation(scope, place, formula.span, formula.operator, sides)


_ADVICE = {
    "output": "outputs stand left of `~`; declare the column as `input` to use its values",
    "latent": "use inputs, constants and parameters here",
    "let": "use inputs, constants and parameters here",
    "input": "use constants and parameters here",
    "param": "use constants and numbers here",
    "external": "call it with its arguments in a `let`: `let g = {name}(...)`",
    "likelihood": "it stands right of `~`: `y ~ {name}(...)`",
    "function": "call it with its arguments: `{name}(...)`",
    "density": "it stands right of `~`: `y ~ {name}(...)`",
    "kernel": "it stands in the second argument of `GP(mean, kernel)`",
    "row": "use inputs, constants and parameters here",
}
_LEARNT_PRIOR = (
    "a prior has known numbers: give `{own}` the prior `Normal(0, 1)` and read it as `{name} * {own}`, or `{name} + "
    "{own}`, which hyperparameters = integrated averages over; effects of a column of groups may have it, `param "
    "a[s] : real ~ Normal(0, {name})` with `input site : label[s]`"
)
_FORMULAS = {
    "density": "a density stands right of `~`: `y ~ {name}(...)`",
    "kernel": "a kernel stands in the second argument of `GP(mean, kernel)`",
}
_REMEDIES = {
    "kernel": "kernels stand in the second argument of `GP(mean, kernel)`; a mean is an expression, `m + slope * x`",
    "distribution": "distributions stand right of `~`",
    "process": "a Gaussian process is declared by `latent f(x) ~ GP(mean, kernel)`",
    "function": "call it with an argument, such as `exp(f)`",
}


def check_expression(scope: Scope, place: Place, formula: syntax.Formula | syntax.Condition) -> Expression:
    """The checked form of an expression or condition; fails after recording every independent mistake in it."""
    match formula:
        case syntax.Literal(span=span, value=value, text=text):
            return number(scope, span, value, text)
        case syntax.Name():
            return _name(scope, place, formula)
        case syntax.Negation(span=span, operand=operand):
            return operation(scope, place, span, "neg", (check_expression(scope, place, operand),))
        case syntax.Binary(span=span, operator="@", left=left, right=right):
            return reductions.contraction(scope, place, span, "@", check_all(scope, place, (left, right)))
        case syntax.Conditional(span=span, condition=first, then=then, otherwise=otherwise):
            return operation(scope, place, span, "if", check_all(scope, place, (first, then, otherwise)))
        case syntax.Comparison() | syntax.Logical():
            return condition(scope, place, formula)
        case syntax.Binary(span=span, operator=operator, left=left, right=right):
            if operator == "/":
                _refuse_differentials(scope, formula)
            return operation(scope, place, span, operator, check_all(scope, place, (left, right)))
        case syntax.Call():
            return _call(scope, place, formula)
        case syntax.Elsewhere():
            return functionals.elsewhere(scope, place, formula)
    remedy = "arrays are values of `const` and `param`: `const a[p] = [1, 2]`"
    return scope.problems.fail(NotAValue(formula.span, "[...]", "list", remedy))


def _refuse_differentials(scope: Scope, formula: syntax.Binary) -> None:
    """Fail at `df/dx` and `d/dx(f)` of an input, or of a latent, where no such differences are declared."""
    above, below = formula.left, formula.right
    called = [each.value for each in below.arguments] if isinstance(below, syntax.Call) else []
    names = [above, below.function if isinstance(below, syntax.Call) else below, *called]
    texts = [each.identifier.text if isinstance(each, syntax.Name) else getattr(each, "text", "") for each in names]
    of = texts[2] if len(texts) == 3 and texts[0] == "d" else texts[0][1:] if not called else ""
    by, declared = texts[1][1:], scope.sorts
    differences = of and by and texts[0][0] == texts[1][0] == "d" and not {*texts[:2]} & {*declared}
    if differences and (declared.get(by) == "input" or declared.get(of) == "latent"):
        process = f"`latent {of}({by}) ~ GP(0, RBF(1))`"
        observed = f"one that is observed is an output, `y ~ Normal(D({of}, {by}), sigma)`"
        habit = f"the derivative is `D({of}, {by})`, of {process}; {observed}"
        scope.problems.fail(UnknownName(formula.span, scope.quote(formula.span).strip("`"), "", "", habit))


def check_all(
    scope: Scope, place: Place, formulas: Iterable[syntax.Formula | syntax.Condition]
) -> tuple[Expression, ...]:
    """Several expressions or conditions, each checked even when one before it is wrong."""
    return tuple(scope.problems.each(formulas, lambda formula: check_expression(scope, place, formula)))


def _name(scope: Scope, place: Place, name: syntax.Name) -> Expression:
    text = name.identifier.text
    if text in place.local:
        return _local(scope, place, name)
    if text in BUILTINS and text not in scope.sorts:
        if text in CONSTANTS and name.subscripts is None:
            return number(scope, name.span, math.pi, text)
        remedy = _REMEDIES.get(BUILTINS[text], "use it without subscripts")
        scope.problems.fail(NotAValue(name.span, text, BUILTINS[text], remedy))
    sort = scope.sort_of(name.identifier, place.local)
    if sort == "index":
        if text in place.columns and name.subscripts is None:
            return remember(scope, Read(name.span, (), text), Fact())
        return _index_number(scope, place, name)
    if sort not in place.readable:
        advice, what = _ADVICE[sort].format(name=text), SORTS[sort]
        group = scope.by_group.get(text)
        if group is not None and set(scope.latents[group.latent].arguments) <= set(scope.labels.values()):
            what = "inferred for each level, by its prior,"
            advice = "give it another prior, such as `Gamma(2, 2)`, or none: it is then a parameter"
        elif sort == "param" and place.left.sort == "param" and place.words == "a prior":
            advice = _LEARNT_PRIOR.format(name=text, own=place.left.name)
        scope.problems.fail(NotReadable(name.identifier.span, text, what, place.words, advice))
    axes = scope.axes_of(text) if place.recursion is None or text != place.recursion[0] else place.recursion[1]
    if axes is None:
        scope.problems.fail(UsedBeforeDefined(name.span, text, scope.places[text].line))
    if scope.labels and (at_level := read_at_level(scope, place, name, axes)) is not None:
        return at_level
    expression = read(scope, place, name, axes)
    fact = scope.let_facts.get(text, Fact())
    if text in scope.consts:
        values = scope.consts[text].values
        fact = Fact(values, abs(values)) if isinstance(values, float) else Fact(largest=_largest(values))
    return remember(scope, expression, fact)


def _local(scope: Scope, place: Place, name: syntax.Name) -> Expression:
    """An argument of the definition being checked: what it stands for, or one element of a `Local`."""
    text = name.identifier.text
    value = place.local[text]
    if name.subscripts is not None and reductions.has_unknown_axes(place, value):
        return reductions.generic_value(scope, place, name)
    if text in place.passed:
        return reductions.passed_value(scope, place, name, value, place.passed[text])
    if name.subscripts is None:
        return value
    chosen = read(scope, place, name, value.axes if isinstance(value, Local) else ())
    return remember(scope, Local(name.span, chosen.axes, text, chosen.subscripts), fact_of(scope, value))


def _largest(values: float | tuple) -> float:
    return max(map(_largest, values)) if isinstance(values, tuple) else abs(values)


def _index_number(scope: Scope, place: Place, name: syntax.Name) -> Expression:
    index = name.identifier.text
    if name.subscripts is not None:
        remedy = f"`{index}` is an index; write it alone, as a number, or as a subscript: `a[{index}]`"
        scope.problems.fail(NotAValue(name.span, index, "index", remedy))
    axis = scope.indices[index].axis
    if index not in place.bound:
        remedy = place.left.lacks(axis)
        if place.columns:  # those of a latent, of which it is none
            remedy = f"make it an argument of the latent: `{place.left.text.removesuffix(')')}, {index})`"
        scope.problems.fail(IndexNotBound(name.span, index, scope.describe_index(index), remedy))
    return remember(scope, IndexNumber(name.span, (axis,), index), Fact())


def _call(scope: Scope, place: Place, call: syntax.Call) -> Expression:
    name = call.function.text
    if name in REDUCTIONS and (name not in FUNCTIONS or len(call.arguments) == 1 or _over_index(scope, call)):
        return reductions.reduction(scope, place, call, check_expression)
    if name in CONTRACTIONS:
        return reductions.contraction(scope, place, call.span, name, _operands(scope, place, call, 2))
    if name in FUNCTIONS:
        return _function(scope, place, call)
    if name in BUILTINS:
        remedy = _REMEDIES.get(BUILTINS[name], "use it without parentheses")
        scope.problems.fail(NotAValue(call.function.span, name, BUILTINS[name], remedy))
    if name in scope.lost:
        scope.problems.give_up()
    if functionals.is_derivative(scope, call):
        return functionals.derivative(scope, place, call)
    if functionals.is_integral(scope, call):
        return functionals.integral(scope, place, call)
    sort = scope.sorts.get(name)
    if sort is None:
        _unknown_function(scope, call)
    if sort == "latent":
        return functionals.at_other_inputs(scope, place, call)
    if sort == "function":
        return function_call(scope, place, call, check_expression)
    if sort in _FORMULAS:
        scope.problems.fail(NotAValue(call.function.span, name, sort, _FORMULAS[sort].format(name=name)))
    if sort != "external":
        scope.problems.fail(LatentCalled(call.span, name, SORTS[scope.sort_of(call.function)]))
    if "external" not in place.readable:
        advice = _ADVICE["external"].format(name=name)
        scope.problems.fail(NotReadable(call.function.span, name, SORTS["external"], place.words, advice))
    return external_call(scope, place, call, check_all)


def _unknown_function(scope: Scope, call: syntax.Call) -> None:
    name = call.function.text
    names = [each.value.identifier.text for each in call.arguments if isinstance(each.value, syntax.Name)]
    arguments = ", ".join(f"{each}: {_dimensions(scope, each)}" for each in names[:4]) or "a: real"
    known = [*FUNCTIONS, *REDUCTIONS, *CONTRACTIONS, functionals.INTEGRAL, *scope.names("external", "function")]
    example = f"{name}({arguments}) -> real"
    suggestion = scope.problems.suggest(name, known)
    scope.problems.fail(UnknownFunction(call.function.span, name, example, suggestion, word_habit(name)))


def _dimensions(scope: Scope, name: str) -> str:
    axes = scope.latents[name].axes if name in scope.latents else scope.axes_of(name)
    return f"real[{', '.join(axis.describe() for axis in axes)}]" if axes else "real"


def _over_index(scope: Scope, call: syntax.Call) -> bool:
    first = call.arguments[0].value if call.arguments else None
    return isinstance(first, syntax.Name) and scope.sorts.get(first.identifier.text) == "index"


def _function(scope: Scope, place: Place, call: syntax.Call) -> Expression:
    name = call.function.text
    operands = _operands(scope, place, call, FUNCTIONS[name].arity)
    return operation(scope, place, call.span, "^" if name == "pow" else name, operands)


def _operands(scope: Scope, place: Place, call: syntax.Call, arity: int) -> tuple[Expression, ...]:
    name = call.function.text
    signature = f"{name}({', '.join('ab'[:arity])})"
    reductions.no_names(scope, call, signature)
    if len(call.arguments) != arity:
        expected = plural(arity, "argument")
        scope.problems.fail(WrongArity(call.span, name, expected, len(call.arguments), signature))
    return check_all(scope, place, (each.value for each in call.arguments))
