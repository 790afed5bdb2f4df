"""Covariance functions: the second argument of `GP(mean, kernel)`."""

from __future__ import annotations

from functools import reduce

from gpdsl.language import syntax
from gpdsl.language.checker.build import fact_of, number, operation, require_axes
from gpdsl.language.checker.constraints import check_domain
from gpdsl.language.checker.expressions import check_expression
from gpdsl.language.checker.kernel_calls import Domain, check_family, whole
from gpdsl.language.checker.kernel_formulas import check_formula
from gpdsl.language.checker.scope import Place, Scope
from gpdsl.language.errors.calls import NotAKernel, UnknownKernel
from gpdsl.language.errors.limits import TooManyKernels
from gpdsl.language.habits import kernel_habit
from gpdsl.language.model import Expression, Kernel, KernelCall, KernelProduct, KernelScale, KernelSum
from gpdsl.language.source import MAX_KERNEL_POWER, MAX_KERNELS
from gpdsl.language.vocabulary import BUILTINS, KERNELS


def check_kernel(scope: Scope, place: Place, formula: syntax.Formula, domain: Domain) -> Kernel:
    """The checked covariance function; `place` is that of its scale factors and arguments."""
    match formula:
        case syntax.Call():
            return _call(scope, place, formula, domain)
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


def _is_kernel(scope: Scope, formula: syntax.Formula) -> bool:
    """Whether an expression is a kernel rather than a factor: by the calls outside other calls."""
    match formula:
        case syntax.Call(function=function):
            return (BUILTINS.get(function.text) or scope.sorts.get(function.text, "kernel")) == "kernel"
        case syntax.Binary(left=left, right=right):
            return _is_kernel(scope, left) or _is_kernel(scope, right)
        case syntax.Negation(operand=operand):
            return _is_kernel(scope, operand)
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
        if _is_kernel(scope, formula.right):
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
            if _is_kernel(scope, part):
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
    exponent = whole(scope, formula.right, what, 1, MAX_KERNEL_POWER)
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
        case KernelCall(kernels=parts):
            return 1 + sum(_size(part) for part in parts)
    return 1


def _call(scope: Scope, place: Place, call: syntax.Call, domain: Domain) -> Kernel:
    name = call.function.text
    if name in KERNELS:
        return check_family(scope, place, call, domain, check_kernel)
    if name in scope.lost:
        scope.problems.give_up()
    if scope.sorts.get(name) == "kernel":
        return check_formula(scope, place, call, domain)
    known = (*KERNELS, *scope.names("kernel"))
    nearest = scope.problems.suggest(name, known)
    return scope.problems.fail(UnknownKernel(call.function.span, name, ", ".join(known), nearest, kernel_habit(name)))
