"""What stands left of `~`: an output, some of its elements, or an increasing or decreasing function of one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import TypeVar

from gpdsl.language import model as m, syntax
from gpdsl.language.checker import monotone
from gpdsl.language.checker.axes import read
from gpdsl.language.checker.build import require_axes
from gpdsl.language.checker.expressions import check_expression
from gpdsl.language.checker.functions import check_formula, expand, nodes, passed_arguments
from gpdsl.language.checker.lets import guard_of, reach
from gpdsl.language.checker.scope import SORTS, IndexRange, Left, Passed, Place, Scope
from gpdsl.language.errors.axes import BadSubscript
from gpdsl.language.errors.calls import NotAnOutput, WrongKind
from gpdsl.language.errors.definitions import CountTransformed, LeftSide, NotDefinedEverywhere, NotMonotone, NotReached
from gpdsl.language.habits import PRIORS, scale_habit
from gpdsl.language.vocabulary import BUILTINS, DISTRIBUTIONS, OUTPUT_KINDS, PROCESS, Span

_READABLE = frozenset({"const", "param", "input", "let", "output"})
TRANSFORMED = ("real", "positive", "unit")
"""Kinds of outputs whose transforms have a density."""

_ADVICE = {
    "process": "a latent process begins with its word and has its inputs: `latent {name}(x) ~ {prior}`",
    "prior": "the prior of a parameter stands in its declaration: `param {name} : positive ~ {prior}`",
    "none": "if `{name}` is data that the model explains, declare `output {name} : real`",
    "latent": "the prior of a latent stands in its declaration; observe an output: `y ~ Normal({name}, sigma)`",
    "param": "the prior of a parameter stands in its declaration: `param {name} : {kind} ~ {prior}`",
    "let": "a `let` is computed; observe an output: `y ~ Normal({name}, sigma)`",
    "input": "an input is known; declare `{name}` as `output` if the model is to explain it",
}
_DEFINED = {
    "real": "declare `output {name} : positive`, or write a function that is defined for all real numbers",
    "positive": "write a function that is defined for all positive numbers",
    "unit": "write a function that is defined between 0 and 1, such as `log({name}/(1 - {name}))`",
}
_Tree = TypeVar("_Tree")


@dataclass(frozen=True)
class Observed:
    """One output left of `~`, with the elements that are observed and, when it is transformed, the kind that results.

    `guards` has one entry per axis that remains, or none when every element of them is meant.
    """

    output: m.Output
    subscripts: tuple[m.Subscript, ...]
    axes: tuple[m.Axis, ...]
    span: Span
    plain: bool
    guards: tuple[m.Guard, ...] = ()
    transform: m.Expression | None = None
    kind: str = ""

    def bound(self) -> dict[str, IndexRange]:
        """From where to where each index of the left side runs."""
        guards = self.guards or tuple(m.Guard(axis.name or "") for axis in self.axes)
        pairs = zip(self.axes, guards, strict=True)
        return {axis.name: reach(guard, axis) for axis, guard in pairs if axis.name is not None}


def check_left(scope: Scope, formula: syntax.Formula, right: syntax.Formula | None = None) -> Observed:
    """One part of a left side, and what stands right of its `~`."""
    if not isinstance(formula, syntax.Name):
        return _transformed(scope, formula, right)
    name = formula.identifier
    sort = scope.sorts.get(name.text)
    if sort is None and name.text not in scope.lost:
        process = syntax.called(right) == PROCESS
        suggestion = "" if process else scope.problems.suggest(name.text, scope.outputs)
        law = right.function.text if isinstance(right, syntax.Call) else ""
        prior = _quoted(scope, right, "GP(...)" if process else "...")
        kind = "process" if process else "prior" if law in PRIORS or (law and scale_habit(name.text)) else "none"
        advice = _ADVICE[kind].format(name=name.text, prior=prior)
        scope.problems.add(NotAnOutput(name.span, name.text, "not declared", advice, suggestion))
        scope.lost.add(name.text)
    if scope.sort_of(name) != "output":
        what, advice = SORTS[scope.sort_of(name)], _ADVICE.get(scope.sort_of(name), _ADVICE["none"])
        prior = _quoted(scope, right, "Normal(0, 1)")
        kind = scope.params[name.text].constraint if name.text in scope.params else "real"
        advice = advice.format(name=name.text, kind=kind, prior=prior)
        scope.problems.fail(NotAnOutput(name.span, name.text, what, advice))
    if name.text not in scope.outputs:
        scope.problems.give_up()
    output = scope.outputs[name.text]
    # On the left, an index takes its value from the subscript itself.
    bound = {index: IndexRange.of(entry.axis) for index, entry in scope.indices.items()}
    place = Place("an observation", _READABLE, Left("observation", name.text, name.text), bound)
    for subscript in formula.subscripts or ():
        if not isinstance(subscript.value, syntax.Name | syntax.Literal):
            scope.problems.fail(BadSubscript(subscript.span))
    plain, guarded = formula.subscripts is None, any(each.comparison for each in formula.subscripts or ())
    checked = read(scope, place, _without_guards(formula) if guarded else formula, output.axes)
    guards = _guards(scope, formula, checked) if guarded else ()
    return Observed(output, checked.subscripts, checked.axes, formula.span, plain, guards, kind=output.kind)


def _guards(scope: Scope, formula: syntax.Name, checked: m.Read) -> tuple[m.Guard, ...]:
    """The condition of each index that remains."""
    found = []
    for subscript, own in zip(checked.subscripts, formula.subscripts or (), strict=False):
        if isinstance(subscript, m.IndexValue):
            axis = scope.indices[subscript.index].axis
            found.append(guard_of(scope, formula.identifier.text, own, axis))
    rest = checked.axes[len(found) :]
    return (*found, *(m.Guard(axis.name or "") for axis in rest))


def _without_guards(node: _Tree) -> _Tree:
    """The same syntax with `p` where a subscript says `p > 1`."""
    if isinstance(node, tuple):
        return tuple(_without_guards(each) for each in node)  # type: ignore[return-value]
    if isinstance(node, syntax.Subscript) and node.comparison is not None:
        return replace(node, comparison=None, against=None)  # type: ignore[return-value]
    if isinstance(node, syntax.Node):
        changed = {each.name: _without_guards(getattr(node, each.name)) for each in fields(node)}
        return replace(node, **changed)
    return node


# --- transforms -------------------------------------------------------------------------------------------------


def _quoted(scope: Scope, right: syntax.Formula | None, otherwise: str) -> str:
    """What stands right of the sign, for an example; something else where it is long."""
    quoted = "this" if right is None else scope.quote(right.span)
    return otherwise if quoted == "this" else quoted.strip("`")


def _transformed(scope: Scope, formula: syntax.Formula, right: syntax.Formula | None) -> Observed:
    called = formula.function if isinstance(formula, syntax.Call) else None
    called = formula.element.identifier if isinstance(formula, syntax.Elsewhere) else called
    mentions = [each for each in nodes(formula) if isinstance(each, syntax.Name)]
    if called is not None and called.text in scope.latents:
        remedy = "the prior of a latent stands in its declaration; observe an output: `y ~ Normal(f, sigma)`"
        scope.problems.fail(LeftSide(formula.span, f"`{called.text}` is a latent", remedy))
    of_inputs = mentions and all(scope.sorts.get(each.identifier.text) == "input" for each in mentions)
    is_process = syntax.called(right) == PROCESS
    if called is not None and called.text not in {*scope.sorts, *BUILTINS} and (is_process or of_inputs):
        written = _quoted(scope, formula, f"{called.text}(x)")
        prior = _quoted(scope, right, "GP(...)") if is_process else "GP(0, RBF(1))"
        remedy = f"a latent process begins with its word: `latent {written} ~ {prior}`"
        if not is_process:
            remedy += f"; a number in each row is `row {called.text} ~ Normal(0, 1)`"
        scope.lost.add(called.text)
        scope.problems.fail(LeftSide(formula.span, "this is a function that is not declared", remedy))
    mentions = [each for each in mentions if scope.sorts.get(each.identifier.text) == "output"]
    names = sorted({each.identifier.text for each in mentions})
    if len(names) > 1:
        shown = " and ".join(f"`{each}`" for each in names)
        example = f"`{names[0]} ~ Normal({names[1]} + f, s)`"
        remedy = f"keep one of them on the left; the right side may read the others: {example}"
        if isinstance(formula, syntax.Array):
            lines = f"`index t in 1..{len(names)}`, `index r in 1..{len(names)}`, `output y : real[t]`, "
            remedy = (
                f"outputs that vary together are one output along an index: {lines}`param s[t] : positive`, "
                "`param L[t, r] : correlation_factor`, `let W[t, r] = s[t] * L[t, r]`, `latent f[t](x) ~ ...`, `y ~ "
                f"MultivariateNormal(f, factor = W)`, `columns={{'y': {names}}}` in Python; others have a line each"
            )
        scope.problems.fail(LeftSide(formula.span, f"this reads {shown}", remedy))
    if not mentions:
        unknown = _unknown(scope, formula)
        remedy = "for example `log(y) ~ Normal(f, s)`; a quantity computed from others is `let g = ...`"
        scope.problems.fail(LeftSide(formula.span, "this reads none", remedy)) if not unknown else None
        scope.problems.give_up()
    observed = [check_left(scope, each) for each in mentions]
    for each in observed[1:]:
        if (each.subscripts, each.guards) != (observed[0].subscripts, observed[0].guards):
            remedy = "write the same subscripts everywhere on the left, and read other elements on the right"
            scope.problems.fail(LeftSide(each.span, f"this reads two elements of `{names[0]}`", remedy))
    return _monotone(scope, formula, replace(observed[0], span=formula.span, plain=False))


def _unknown(scope: Scope, formula: syntax.Formula) -> bool:
    """Whether a name in it is not declared, which is then what is wrong."""
    place = Place("the left side", _READABLE, Left("observation", "y", "y"))
    before = len(scope.problems.mistakes)
    with scope.problems.contained:
        check_expression(scope, place, _without_guards(formula))
    return len(scope.problems.mistakes) > before


def _monotone(scope: Scope, formula: syntax.Formula, observed: Observed) -> Observed:
    output = observed.output
    if output.kind not in TRANSFORMED:
        scope.problems.fail(CountTransformed(formula.span, output.name, output.kind, output.span.line))
    left = Left("observation", output.name, scope.quote(formula.span).strip("`"), tuple(observed.bound()))
    place = Place(f"the left side of `{output.name}`", _READABLE, left, observed.bound())
    checked = check_expression(scope, place, _without_guards(formula))
    require_axes(scope, left, checked, observed.axes)
    _refuse_latents(scope, formula, checked, output)
    try:
        found = monotone.course(scope, checked)
    except monotone.Undefined as problem:
        remedy = _DEFINED[output.kind].format(name=output.name)
        span = formula.span if problem.expression.span.line != formula.span.line else problem.expression.span
        what = problem.operator, output.name, output.kind, output.span.line, problem.needs
        scope.problems.fail(NotDefinedEverywhere(span, *what, remedy))
    if not found.known:
        _try(scope, formula, checked, output)
    return replace(observed, transform=checked, kind=_kind(found))


def _kind(found: monotone.Course) -> str:
    if found.low >= 0:
        return "unit" if found.high <= 1 else "positive"
    return "real"


def _try(scope: Scope, formula: syntax.Formula, checked: m.Expression, output: m.Output) -> None:
    why = monotone.counterexample(scope, checked, output.name)
    if why:
        forms = "`log(y)`, `y^3` or `y + a*tanh(b*y)` with a, b positive"
        remedy = f"use a function that only rises or only falls, such as {forms}"
        if output.kind == "real":
            remedy += f"; of a quantity that is never negative, declare `output {output.name} : positive`"
        scope.problems.fail(NotMonotone(formula.span, output.name, why, remedy))


def _refuse_latents(scope: Scope, formula: syntax.Formula, checked: m.Expression, output: m.Output) -> None:
    if monotone.reads_latent(scope, checked):
        names = (each.name for each in m.reads_of(checked))
        name = next((each for each in names if each in scope.latents or each in scope.lets), "f")
        remedy = f"move it to the right side, as in `{output.name} ~ Normal({name}, s)`"
        scope.problems.fail(LeftSide(formula.span, f"`{name}` depends on a latent", remedy))


# Whether a transformed left side reaches every value its distribution allows: else that is no density.
#
# `sqrt(y) ~ Normal(f, s)` gives probability to roots below zero, which no output has: the density of `y` does not
# integrate to one, and by how little it misses depends on the latents and parameters that are learnt.

GROWS = 0.01
"""Of a value: what it must change by between the last two points towards an end to be counted as going on for ever."""

SLACK = 1e-6

_FAR = tuple(10.0**k for k in (1, 2, 4, 8, 16, 32, 64, 100))
_NEAR = tuple(10.0**-k for k in (1, 2, 4, 8, 16, 32, 64, 100))
_ENDS = {
    "real": ([-each for each in _FAR], list(_FAR)),
    "positive": (list(_NEAR), list(_FAR)),
    "unit": (list(_NEAR), [1 - 10.0**-k for k in (1, 2, 4, 8, 12, 15)]),
}
"""Points that go towards the lower and the upper end of each kind of output."""

_FITTING = {
    "real": "`{name}` itself reaches every real number, and so does `{name} + a*tanh(b*{name})` with a, b positive",
    "positive": "`log({name})` reaches every real number",
    "unit": "`log({name}/(1 - {name}))` reaches every real number",
}

Range = tuple[float, float]


def check_image(scope: Scope, observed: Observed, transform: m.Expression, call: m.DistributionCall) -> None:
    """Report a distribution with probability where the transform left of it never comes."""
    reached = image(scope, transform, observed.output)
    allowed = _support(scope, call)
    if reached is None or (_covers(reached[0], allowed[0]) and _covers(-reached[1], -allowed[1])):
        return
    low, high = max(reached[0], allowed[0]), min(reached[1], allowed[1])
    bounds = [f"{word} = {end:.4g}" for word, end in (("lower", low), ("upper", high)) if math.isfinite(end)]
    fitting = _FITTING[observed.output.kind].format(name=observed.output.name)
    where, takes = _words(reached), _words(allowed)
    remedy = f"{fitting}; or leave no probability elsewhere: `Truncated({call.name}(...), {', '.join(bounds)})`"
    if call.name in ("Truncated", "Censored"):
        remedy = f"{fitting}; or set the bounds to {', '.join(bounds)}"
    shown = scope.quote(observed.span).strip("`")
    scope.problems.fail(NotReached(observed.span, shown, where, call.name, takes, observed.output.name, remedy))


def suspect(declarations: m.Declarations) -> Iterator[m.Observation]:
    """Observations whose density may not integrate to one over their output: it is a formula of the file, or of the
    table and has probability where the output, as it is, cannot be."""
    for each in declarations.observations:
        call, kind = each.distribution, declarations.outputs[each.outputs[0]].kind
        if call.log_density is not None:
            yield each
        elif not call.external and each.transform is None and kind in _ENDS:
            own, allowed = monotone.RANGES[kind], _support(declarations, call)
            if not (_covers(own[0], allowed[0]) and _covers(-own[1], -allowed[1])):
                yield each


def _covers(end: float, needed: float) -> bool:
    return end <= needed + SLACK * max(1.0, abs(end)) if math.isfinite(end) else True


def _words(ends: Range) -> str:
    low, high = ends
    if math.isfinite(low) and math.isfinite(high):
        return f"from {low:.4g} to {high:.4g}"
    if math.isfinite(low):
        return f"above {low:.4g}"
    return f"below {high:.4g}" if math.isfinite(high) else "everywhere"


def image(tables: monotone.Tables, transform: m.Expression, output: m.Output) -> Range | None:
    """The values between which a transform lies at the initial parameters; None where they cannot be computed."""
    ends = []
    for points in _ENDS[output.kind]:
        try:
            values = [monotone.value_at(tables, transform, y) for y in points]
        except (KeyError, IndexError, TypeError):
            return None
        finite = [each for each in values if math.isfinite(each)]
        if len(finite) < 2:
            return None
        ends.append(_limit(finite, complete=len(finite) == len(values)))
    return min(ends), max(ends)


def _limit(values: list[float], *, complete: bool) -> float:
    """Where values go: to the last of them, or for ever on; also where one was too large for a number."""
    before, last = values[-2:]
    moves = abs(last - before) > GROWS * max(1.0, abs(last))
    return math.copysign(math.inf, last - before) if moves or not complete else round(last, 12) + 0.0


def _support(tables: monotone.Tables, call: m.DistributionCall) -> Range:
    """The values a distribution gives probability to; a bound that only data tell is taken for granted."""
    if not call.components:
        return monotone.RANGES.get(DISTRIBUTIONS[call.name].support, monotone.RANGES["real"])
    inside = [_support(tables, each) for each in call.components]
    low, high = min(each[0] for each in inside), max(each[1] for each in inside)
    bounds = [_bound(tables, call, name) for name in ("lower", "upper")]
    return (low if bounds[0] is None else max(low, bounds[0]), high if bounds[1] is None else min(high, bounds[1]))


def _bound(tables: monotone.Tables, call: m.DistributionCall, name: str) -> float | None:
    if name not in call.arguments:
        return None
    written = call.arguments[name]
    if any(each.name in tables.inputs for each in m.reads_of(written)):
        return math.inf if name == "lower" else -math.inf
    return monotone.value_at(tables, written, 0.0)


# `density huber(y | mu, s) = ...`: log densities by formula, and their use right of `~`.

KINDS = tuple(kind for kind in OUTPUT_KINDS if kind not in ("label", "ordinal"))
"""Kinds of outputs that a formula can describe: those whose values are numbers."""


def check_density(scope: Scope, statement: syntax.DensityStatement) -> None:
    """A definition: its body is checked once, whatever is passed."""
    observed = statement.observed.text
    arguments = tuple(each.text for each in statement.arguments)
    parameters = tuple(each.text for each in statement.parameters)
    body = check_formula(scope, statement, (observed, *arguments), check_expression)
    name = statement.name
    scope.formulas[name.text] = statement
    scope.densities[name.text] = m.Density(name.text, name.span, arguments, parameters, body, observed)


def density_call(scope: Scope, place: Place, call: syntax.Call, left: Observed) -> m.DistributionCall:
    """A use of a density: its formula with the left side and the arguments put in."""
    name, output = call.function.text, left.output
    if name not in scope.formulas:
        scope.problems.give_up()
    if output.kind not in KINDS:
        kinds, choices = " and ".join(KINDS), "Categorical"
        line = output.span.line
        scope.problems.fail(WrongKind(call.function.span, output.name, output.kind, line, name, kinds, choices))
    statement = scope.formulas[name]
    assert isinstance(statement, syntax.DensityStatement)
    arguments = passed_arguments(scope, place, call, statement, check_expression)
    running = frozenset(axis.name for axis in left.axes if axis.name is not None)
    observed = left.transform or m.Read(left.span, left.axes, output.name, left.subscripts)
    bound = {statement.observed.text: (observed, Passed(running, running)), **arguments}
    body = expand(scope, place, call, statement, bound, check_expression)
    require_axes(scope, place.left, body, left.axes)
    values = {each: value for each, (value, _) in arguments.items()}
    return m.DistributionCall(name, values, call.span, log_density=body)
