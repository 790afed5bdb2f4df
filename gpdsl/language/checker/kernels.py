"""Covariance functions: the second argument of `GP(mean, kernel)`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from gpdsl.language import syntax
from gpdsl.language.checker.arguments import match_arguments
from gpdsl.language.checker.axes import carrier, contains
from gpdsl.language.checker.build import fact_of, number, operation
from gpdsl.language.checker.expressions import check_expression
from gpdsl.language.checker.fit_left import require_axes
from gpdsl.language.checker.place import Place
from gpdsl.language.checker.scope import Scope
from gpdsl.language.checker.values import check_domain
from gpdsl.language.errors.axes import KernelAxis
from gpdsl.language.errors.calls import NotAKernel, UnknownKernel
from gpdsl.language.errors.limits import TooManyKernels
from gpdsl.language.errors.values import NotWhole
from gpdsl.language.limits import MAX_KERNEL_POWER, MAX_KERNELS
from gpdsl.language.model import Axis, Expression, Kernel, KernelCall, KernelProduct, KernelScale, KernelSum
from gpdsl.language.vocabulary import BUILTINS, KERNELS, Parameter, signature

_MAX_DEGREE = 20


@dataclass(frozen=True)
class Domain:
    """What a latent is over: its own axes, and the axis of its input (None when it has a single column)."""

    axes: tuple[Axis, ...]
    input_axis: Axis | None

    def describe(self) -> str:
        """How a message names the input."""
        return f"`real[{self.input_axis.describe()}]`" if self.input_axis is not None else "one number"


def check_kernel(scope: Scope, place: Place, formula: syntax.Formula, domain: Domain) -> Kernel:
    """The checked covariance function; `place` is that of its scale factors and arguments."""
    match formula:
        case syntax.Call():
            return _family(scope, place, formula, domain)
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
    return scope.problems.fail(NotAKernel(formula.span, why, remedy))


def _is_kernel(formula: syntax.Formula) -> bool:
    """Whether an expression is a kernel rather than a factor: by the calls outside other calls."""
    match formula:
        case syntax.Call(function=function):
            return BUILTINS.get(function.text, "kernel") == "kernel"
        case syntax.Binary(left=left, right=right):
            return _is_kernel(left) or _is_kernel(right)
        case syntax.Negation(operand=operand):
            return _is_kernel(operand)
    return False


def _sum(scope: Scope, place: Place, formula: syntax.Binary, domain: Domain) -> Kernel:
    terms: list[Kernel] = []
    parts = _chain(formula, "+")
    for part in parts:
        with scope.problems.contained():
            kernel = check_kernel(scope, place, part, domain)
            terms.extend(kernel.terms if isinstance(kernel, KernelSum) else [kernel])
    return KernelSum(formula.span, tuple(terms)) if len(terms) >= len(parts) else scope.problems.give_up()


def _chain(formula: syntax.Formula, operator: str) -> list[syntax.Formula]:
    """The operands of `a + b + c`, in order."""
    if isinstance(formula, syntax.Binary) and formula.operator == operator:
        return _chain(formula.left, operator) + _chain(formula.right, operator)
    return [formula]


def _product(scope: Scope, place: Place, formula: syntax.Binary, domain: Domain) -> Kernel:
    if formula.operator == "/":
        if _is_kernel(formula.right):
            why = "nothing can be divided by a covariance function"
            scope.problems.fail(NotAKernel(formula.right.span, why, "use `*` and `+` between kernels"))
        kernel = check_kernel(scope, place, formula.left, domain)
        one = number(scope, formula.right.span, 1, "1")
        divisor = _factor(scope, place, formula.right, domain)
        return KernelScale(formula.span, operation(scope, place, formula.span, "/", (one, divisor)), kernel)
    parts = _chain(formula, "*")
    kernels: list[Kernel] = []
    factors: list[Expression] = []
    for part in parts:
        with scope.problems.contained():
            if _is_kernel(part):
                kernels.append(check_kernel(scope, place, part, domain))
            else:
                factors.append(_factor(scope, place, part, domain))
    if len(kernels) + len(factors) < len(parts):
        scope.problems.give_up()
    if not kernels:
        why = f"{scope.quote(formula.span)} is not a covariance function"
        scope.problems.fail(NotAKernel(formula.span, why, "multiply a kernel by it: `s2 * RBF(ell)`"))
    kernel = kernels[0] if len(kernels) == 1 else KernelProduct(formula.span, tuple(kernels))
    if not factors:
        return kernel
    factor = reduce(lambda a, b: operation(scope, place, formula.span, "*", (a, b)), factors)
    return KernelScale(formula.span, factor, kernel)


def _factor(scope: Scope, place: Place, formula: syntax.Formula, domain: Domain) -> Expression:
    factor = check_expression(scope, place, formula)
    require_axes(scope, place.left, factor, domain.axes)
    value = fact_of(scope, factor).value
    if value is not None:
        check_domain(scope, formula.span, "the factor of a kernel", value, "positive")
    return factor


def _power(scope: Scope, place: Place, formula: syntax.Binary, domain: Domain) -> Kernel:
    what = "the power of a kernel"
    exponent = _whole(scope, formula.right, what, MAX_KERNEL_POWER)
    kernel = check_kernel(scope, place, formula.left, domain)
    # Counted at each power: what is inside has been counted before, so this count is short.
    if _size(kernel) * exponent > MAX_KERNELS:
        scope.problems.fail(TooManyKernels(formula.span, MAX_KERNELS))
    return kernel if exponent == 1 else KernelProduct(formula.span, (kernel,) * exponent)


def _size(kernel: Kernel) -> int:
    """How many kernels of the table it has once powers are written out."""
    match kernel:
        case KernelScale(kernel=inner):
            return _size(inner)
        case KernelSum(terms=parts) | KernelProduct(factors=parts):
            return sum(_size(part) for part in parts)
    return 1


def _whole(scope: Scope, formula: syntax.Formula, what: str, largest: int) -> int:
    value = formula.value if isinstance(formula, syntax.Literal) else None
    if not isinstance(value, int) or not 1 <= value <= largest:
        return scope.problems.fail(NotWhole(formula.span, what, 1, largest))
    return value


def _family(scope: Scope, place: Place, call: syntax.Call, domain: Domain) -> Kernel:
    name = call.function.text
    if name not in KERNELS:
        suggestion = scope.problems.suggest(name, KERNELS)
        scope.problems.fail(UnknownKernel(call.function.span, name, ", ".join(KERNELS), suggestion))
    family = KERNELS[name]
    names = [each.name for each in family.parameters]
    required = [each.name for each in family.parameters if each.default is None]
    matched = match_arguments(scope, call, names, signature(family), required=required)
    arguments: dict[str, Expression] = {}
    for parameter in family.parameters:
        with scope.problems.contained():
            arguments[parameter.name] = _argument(scope, place, call, parameter, matched.get(parameter.name), domain)
    return KernelCall(call.span, name, arguments) if len(arguments) == len(names) else scope.problems.give_up()


def _argument(
    scope: Scope, place: Place, call: syntax.Call, parameter: Parameter, formula: syntax.Formula | None, domain: Domain
) -> Expression:
    what = f"`{parameter.name}` of `{call.function.text}`"
    if formula is None:
        return number(scope, call.span, parameter.default or 0.0, parameter.name)
    if parameter.literal:
        return number(scope, formula.span, _whole(scope, formula, what, _MAX_DEGREE), parameter.name)
    checked = check_expression(scope, place, formula)
    allowed = domain.axes
    if parameter.vector and domain.input_axis is not None:
        allowed = (*allowed, domain.input_axis)
    for axis in checked.axes:
        if not contains(allowed, axis):
            source = carrier(checked, axis)
            scope.problems.fail(
                KernelAxis(source.span, scope.quote(source.span).strip("`"), axis.describe(), domain.describe())
            )
    value = fact_of(scope, checked).value
    if value is not None:
        check_domain(scope, formula.span, what, value, parameter.domain)
    return checked
