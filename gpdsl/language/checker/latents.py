"""`latent f[c](x) ~ GP(mean, kernel)`, and its covariance function."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import reduce

from gpdsl.language import model as m, syntax
from gpdsl.language.checker.axes import all_elements, declared_axes
from gpdsl.language.checker.build import fact_of, match_arguments, number, operation, over_levels, require_axes
from gpdsl.language.checker.constraints import check_domain
from gpdsl.language.checker.expressions import check_expression
from gpdsl.language.checker.groups import check_labels_seen, latent_of_levels, refuse_levels_in_kernel
from gpdsl.language.checker.kernel_calls import Domain, argument_axes, check_family, side_by_side, whole
from gpdsl.language.checker.kernel_formulas import check_formula
from gpdsl.language.checker.layers import points_index, refuse_as_argument
from gpdsl.language.checker.scope import SORTS, IndexRange, Left, Place, Scope
from gpdsl.language.errors.axes import SeveralAxes
from gpdsl.language.errors.calls import NotAKernel, NotAProcess, RepeatedArgument, UnknownKernel
from gpdsl.language.errors.functionals import FieldInRow, NotALevel, TooManyLevels
from gpdsl.language.errors.limits import TooManyKernels
from gpdsl.language.errors.names import ArgumentNotInput, NotReadable
from gpdsl.language.habits import KERNELS as HABITS, PROCESSES
from gpdsl.language.vocabulary import BUILTINS, KERNELS, MAX_KERNEL_POWER, MAX_KERNELS, MAX_READINGS, PROCESS

# Covariance functions: the second argument of `GP(mean, kernel)`.


def check_kernel(scope: Scope, place: Place, formula: syntax.Formula, domain: Domain) -> m.Kernel:
    """The checked covariance function; `place` is that of its scale factors and arguments."""
    match formula:
        case syntax.Call(function=function) if function.text in KERNELS:
            return check_family(scope, place, formula, domain, check_kernel)
        case syntax.Call(function=function):
            if function.text in scope.lost:
                scope.problems.give_up()
            if scope.sorts.get(function.text) == "kernel":
                return check_formula(scope, place, formula, domain)
            known = (*KERNELS, *scope.names("kernel"))
            told = ", ".join(known), scope.problems.suggest(function.text, known), HABITS.of(function.text)
            return scope.problems.fail(UnknownKernel(function.span, function.text, *told))
        case syntax.Binary(operator="+"):
            return _sum(scope, place, formula, domain)
        case syntax.Binary(operator="*" | "/"):
            return _product(scope, place, formula, domain)
        case syntax.Binary(operator="^"):
            return _power(scope, place, formula, domain)
        case syntax.Binary() | syntax.Negation():
            why = "a covariance function cannot be subtracted or negated"
            return scope.problems.fail(NotAKernel(formula.span, why, "use `+`, `*` and positive factors"))
    why = f"{scope.quote(formula.span)} is not a covariance function"
    remedy = "use a kernel such as `RBF(1)`; a number alone is a variance: `s2 * Constant()`"
    if isinstance(formula, syntax.Name) and _is_kernel(scope, formula):
        name = formula.identifier.text
        own = scope.kernels[name].parameters if name in scope.kernels else [p.name for p in KERNELS[name].parameters]
        why, remedy = f"`{name}` lacks its brackets", f"write `{name}({', '.join(own)})`"
    return scope.problems.fail(NotAKernel(formula.span, why, remedy))


def _is_kernel(scope: Scope, formula: syntax.Formula) -> bool:
    """Whether an expression is a kernel rather than a factor: by the calls outside other calls."""
    match formula:
        case syntax.Call(function=function):
            return (BUILTINS.get(function.text) or scope.sorts.get(function.text, "kernel")) == "kernel"
        case syntax.Binary(left=left, right=right):
            return _is_kernel(scope, left) or _is_kernel(scope, right)
        case syntax.Negation(operand=operand):
            return _is_kernel(scope, operand)
        case syntax.Name(identifier=name):
            return name.text in scope.kernels or (name.text in KERNELS and name.text not in scope.sorts)
    return False


def _sum(scope: Scope, place: Place, formula: syntax.Binary, domain: Domain) -> m.Kernel:
    found = scope.problems.each(_chain(formula, "+"), lambda part: check_kernel(scope, place, part, domain))
    terms = (term for each in found for term in (each.terms if isinstance(each, m.KernelSum) else (each,)))
    return m.KernelSum(formula.span, tuple(terms))


def _chain(formula: syntax.Formula, operator: str) -> list[syntax.Formula]:
    """The operands of `a + b + c`, in order."""
    if isinstance(formula, syntax.Binary) and formula.operator == operator:
        return _chain(formula.left, operator) + _chain(formula.right, operator)
    return [formula]


def _product(scope: Scope, place: Place, formula: syntax.Binary, domain: Domain) -> m.Kernel:
    if formula.operator == "/":
        if _is_kernel(scope, formula.right):
            why = "nothing can be divided by a covariance function"
            scope.problems.fail(NotAKernel(formula.right.span, why, "use `*` and `+` between kernels"))
        kernel = check_kernel(scope, place, formula.left, domain)
        one = number(scope, formula.right.span, 1, "1")
        divisor = _factor(scope, place, formula.right, domain)
        return m.KernelScale(formula.span, operation(scope, place, formula.span, "/", (one, divisor)), kernel)
    parts = _chain(formula, "*")
    kernels: list[m.Kernel] = []
    factors: list[m.Expression] = []
    for part in parts:
        with scope.problems.contained:
            if _is_kernel(scope, part):
                kernels.append(check_kernel(scope, place, part, domain))
            else:
                factors.append(_factor(scope, place, part, domain))
    if len(kernels) + len(factors) < len(parts):
        scope.problems.give_up()
    if not kernels:
        why = f"{scope.quote(formula.span)} is not a covariance function"
        scope.problems.fail(NotAKernel(formula.span, why, "multiply a kernel by it: `s2 * RBF(ell)`"))
    kernel = kernels[0] if len(kernels) == 1 else m.KernelProduct(formula.span, tuple(kernels))
    if not factors:
        return kernel
    factor = reduce(lambda a, b: operation(scope, place, formula.span, "*", (a, b)), factors)
    return m.KernelScale(formula.span, factor, kernel)


def _factor(scope: Scope, place: Place, formula: syntax.Formula, domain: Domain) -> m.Expression:
    factor = check_expression(scope, place, formula)
    require_axes(scope, place.left, factor, domain.axes)
    value = fact_of(scope, factor).value
    if value is not None:
        check_domain(scope, formula.span, "the factor of a kernel", value, "positive")
    return factor


def _power(scope: Scope, place: Place, formula: syntax.Binary, domain: Domain) -> m.Kernel:
    what = "the power of a kernel"
    exponent = whole(scope, formula.right, what, 1, MAX_KERNEL_POWER)
    kernel = check_kernel(scope, place, formula.left, domain)
    # Counted at each power: what is inside has been counted before, so this count is short.
    inside = sum(isinstance(each, m.KernelCall | m.KernelFormula) for each in m.every_kernel(kernel))
    if inside * exponent > MAX_KERNELS:
        scope.problems.fail(TooManyKernels(formula.span, MAX_KERNELS))
    return kernel if exponent == 1 else m.KernelProduct(formula.span, (kernel,) * exponent)


# `latent f[c](x) ~ GP(mean, kernel)`.

_SIGNATURE = "GP(mean, kernel)"
_IN_MEAN = frozenset({"const", "param", "input", "row", "latent"})
_ARGUMENTS = ("input", "row", "latent", "const", "index")
_IN_KERNEL = frozenset({"const", "param"})
_PLAIN = frozenset({"input", "row", "latent"})
_KNOWN = frozenset({"const", "param", "function"})
_WORD = re.compile(r"[^\W\d]\w*")
_READ_ELSEWHERE = re.compile(r"\b(D|integral)\s*\(")


def check_latent(scope: Scope, statement: syntax.LatentStatement) -> None:
    """Check the axes, the inputs, the mean and the kernel of a latent; all mistakes among them are reported."""
    declared = statement.declared
    name = declared.name.text
    every = declared_axes(scope, declared.name, declared.indices, ())
    levels = over_levels(scope, every) if scope.labels and name not in scope.elementwise else ()
    axes = tuple(axis for axis in every if axis not in levels)
    inputs, wrong = _inputs(scope, statement)
    among = level_axes(scope, statement, inputs) if not scope.indices.keys().isdisjoint(inputs) else ()
    points = [] if wrong else [each for each in inputs if each in scope.consts]
    over = points_index(scope, statement, inputs, points[0]) if points else None
    brackets = f"[{', '.join(each.text for each in declared.indices)}]" if declared.indices else ""
    text = f"latent {name}{brackets}({', '.join(each.text for each in statement.arguments)})"
    domain = Domain(
        axes,
        None if wrong else side_by_side([argument_axes(scope, each) for each in inputs]),
        inputs,
        text,
        over=over,
        levels=among,
    )
    indices = tuple(each.text for each in declared.indices)
    left = Left("latent", name, text, indices, tuple(str(axis.name) for axis in among))
    mean, kernel = _process(scope, statement.process, left, domain, wrong, levels)
    latent = m.Latent(name, declared.name.span, axes, inputs, mean, kernel, over, among)
    if levels:
        columns = tuple(all_elements(statement.span, each, argument_axes(scope, each)) for each in inputs)
        latent = latent_of_levels(scope, latent, every, columns)
    if scope.labels:
        check_labels_seen(scope, latent)
    scope.latents[name] = latent


def _inputs(scope: Scope, statement: syntax.LatentStatement) -> tuple[tuple[str, ...], bool]:
    """The names of the arguments (inputs, row variables, other latents), and whether one of them is wrong."""
    found: list[str] = []
    for argument in statement.arguments:
        with scope.problems.contained:
            sort = scope.sort_of(argument)
            if sort not in _ARGUMENTS:
                remedy = _inside_the_kernel(scope, statement) if sort == "let" else ""
                scope.problems.fail(
                    ArgumentNotInput(argument.span, argument.text, SORTS[sort], remedy or ArgumentNotInput.remedy)
                )
            if argument.text in scope.latents:
                refuse_as_argument(scope, argument, scope.latents[argument.text])
            axes = argument_axes(scope, argument.text)
            if argument.text in found:
                name = statement.declared.name.text
                once = ", ".join(dict.fromkeys(each.text for each in statement.arguments))
                scope.problems.fail(RepeatedArgument(argument.span, name, argument.text, f"latent {name}({once})"))
            if len(axes) > 1:
                shown = ", ".join(axis.describe() for axis in axes)
                scope.problems.fail(SeveralAxes(argument.span, argument.text, shown, _flat(scope, argument.text)))
            found.append(argument.text)
    return tuple(found), len(found) < len(statement.arguments)


def _inside_the_kernel(scope: Scope, statement: syntax.LatentStatement) -> str:
    """How a latent over `let`s of one line is written: over what these read, with the formulas in its kernel.

    Empty for others. Latents come before the `let`s that read them, so that there is the text only.
    """
    arguments: list[str] = []
    seen: list[str] = []
    for each in statement.arguments:
        name, own, formula = each.text, [each.text], each.text
        if scope.sorts.get(name) == "let":
            head, _, tail = scope.source.line(scope.places[name].line).partition("=")
            formula = tail.partition("#")[0].strip()
            words = [word for word in _WORD.findall(formula) if word in scope.sorts]
            own = [word for word in words if scope.sorts[word] in _PLAIN]
            rest = {scope.sorts[word] for word in words} - _PLAIN - _KNOWN
            if head.split() != ["let", name] or rest or not own or _READ_ELSEWHERE.search(formula) or _open(formula):
                return ""
            if any(re.search(rf"\b{word}\s*\(", formula) for word in own):
                return ""
        arguments, seen = [*arguments, *own], [*seen, formula]
    on = ", ".join(seen) if len(seen) == 1 else f"[{', '.join(seen)}]"
    over = f"latent {statement.declared.name.text}({', '.join(dict.fromkeys(arguments))})"
    return f"the kernel takes the formula: `{over} ~ GP(0, RBF(1, on = {on}))`"


def _open(formula: str) -> bool:
    """Whether a formula goes on in the next line."""
    return any(formula.count(each) != formula.count(other) for each, other in ("()", "[]"))


def level_axes(scope: Scope, statement: syntax.LatentStatement, arguments: Sequence[str]) -> tuple[m.Axis, ...]:
    """The axes of the indices among the arguments, `latent f(x, d)`: at each of their values the process is read."""
    found = [each for each in statement.arguments if each.text in scope.indices and each.text in arguments]
    name, axes = statement.declared.name, tuple(scope.indices[each.text].axis for each in found)
    for index in found:
        others = [each for each in arguments if each not in scope.indices]
        beside = next((each for each in others if scope.sorts[each] != "input"), None)
        why, remedy = "", f"leave it out of the brackets, `latent {name.text}({', '.join(arguments)})`"
        if any(each.text == index.text for each in statement.declared.indices):
            why = f"it numbers independent latents already, `{name.text}[{index.text}]`"
        elif any(each.text in scope.labels for each in statement.declared.indices):
            label = scope.labels[next(each.text for each in statement.declared.indices if each.text in scope.labels)]
            why = f"`{name.text}` has its own values at each level of `{label}`"
            both = ", ".join([*others, label, index.text])
            remedy = f"write the label among the arguments, `latent {name.text}({both})`, and `Same(on = {label})`"
        elif not others:
            why = "the latent is then the same in every row"
            remedy = f"put an input beside it, `latent {name.text}(x, {index.text})`"
        elif beside is not None:
            why = f"beside `{beside}`, {SORTS[scope.sorts[beside]]}, it cannot be fitted yet"
            remedy = f"make it an index of the latent, `latent {name.text}[{index.text}]({', '.join(others)})`"
        if why:
            scope.problems.fail(NotALevel(index.span, name.text, index.text, why, remedy))
    count = math.prod(axis.size or 1 for axis in axes)
    if count > MAX_READINGS:
        scope.problems.fail(TooManyLevels(name.span, name.text, str(axes[0].name), count, MAX_READINGS))
    return axes


def _flat(scope: Scope, name: str) -> str:
    """What to do about an argument that is a matrix."""
    if name in scope.inputs:
        sizes = [axis.size for axis in scope.inputs[name].axes]
        flat = "D" if None in sizes else math.prod(filter(None, sizes))
        return f"declare one axis, `input {name} : real[{flat}]`, or several inputs: `latent f(x, t) ~ ...`"
    return f"declare `{name}` along one index, or pass several latents: `latent f(g, h) ~ ...`"


def _process(
    scope: Scope, formula: syntax.Formula, left: Left, domain: Domain, wrong: bool, levels: tuple[m.Axis, ...]
) -> tuple[m.Expression, m.Kernel]:
    if not isinstance(formula, syntax.Call) or formula.function.text != PROCESS:
        sides = (formula.left, formula.right) if isinstance(formula, syntax.Binary) else ()
        processes = [syntax.called(each) == PROCESS for each in sides]
        habit = ""
        if isinstance(formula, syntax.Binary) and (all(processes) if formula.operator == "*" else any(processes)):
            habit = PROCESSES.get(formula.operator, "")
        scope.problems.fail(NotAProcess(formula.span, habit))
    matched = match_arguments(scope, formula, ("mean", "kernel"), _SIGNATURE, required=("kernel",))
    bound = {axis.name: IndexRange.of(axis) for axis in domain.axes if axis.name is not None}
    read_at = domain.levels if domain.over is None else (domain.over,)
    points = {axis.name: IndexRange.of(axis) for axis in read_at}
    mean: m.Expression | None = None
    kernel: m.Kernel | None = None
    with scope.problems.contained:
        here = Place("the mean of a latent", _IN_MEAN, left, {**bound, **points})  # type: ignore[dict-item]
        zero = syntax.Literal(formula.span, "0", 0)
        mean = check_expression(scope, here, matched.get("mean", zero))
        require_axes(scope, left, mean, (*domain.axes, *domain.levels, *filter(None, (domain.over,))))
        for each in m.reads_of(mean):
            if domain.over is not None and scope.sorts[each.name] == "input":
                scope.problems.fail(FieldInRow(each.span, left.name, f"`{each.name}` differs between rows"))
            if each.name in (scope.rows.keys() | scope.latents.keys()) - set(domain.arguments):
                what, advice = SORTS[scope.sorts[each.name]], "only the arguments of the latent itself have values here"
                scope.problems.fail(NotReadable(each.span, each.name, what, here.words, advice))
    with scope.problems.contained:
        place = Place("a kernel", _IN_KERNEL, left, bound)
        if levels:
            refuse_levels_in_kernel(scope, matched["kernel"], left.name, levels)
        # Without its inputs the axes of a kernel cannot be judged.
        kernel = check_kernel(scope, place, matched["kernel"], domain) if not wrong else None
    return (mean, kernel) if mean is not None and kernel is not None else scope.problems.give_up()
