"""Derivatives of kernels, and in which words kernels are shown to people."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import ClassVar

import sympy as sp
from sympy.printing.str import StrPrinter

from gpdsl.language.errors.base import Mistake, OfKernel, OfLatent
from gpdsl.symbolic import conditions as c, functions as f
from gpdsl.symbolic.conditions import settled

MOST_TERMS = 1000
"""What would have more terms is not multiplied out."""


def by_cases(expression: sp.Expr) -> sp.Expr:
    """The same with maxima, minima and absolute values written as conditions, which have derivatives."""
    for function, rewritten in _CASES.items():
        if expression.has(function):
            expression = expression.replace(function, rewritten)
    return expression


def differentiated(expression: sp.Expr, symbol: sp.Symbol) -> sp.Expr | None:
    """The derivative, wherever there is one; None when a function in it has none that is written down."""
    slope = sp.diff(by_cases(expression), symbol)
    return None if slope.has(sp.Derivative, sp.Subs) else slope


def expanded(expression: sp.Expr) -> sp.Expr:
    """The expression multiplied out, or itself when that would have too many terms."""
    return sp.expand(expression) if can_be_expanded(expression) else expression


def can_be_expanded(expression: sp.Expr) -> bool:
    """Whether it has few enough terms when multiplied out."""
    return _most_terms(expression) <= MOST_TERMS


@functools.lru_cache(maxsize=4096)
def _most_terms(expression: sp.Expr) -> int:
    """How many terms it or any part of it has at most when multiplied out."""
    inside = max((_most_terms(each) for each in expression.args), default=1)
    return max(inside, _terms(expression))


@functools.lru_cache(maxsize=4096)
def _terms(expression: sp.Expr) -> int:
    if expression.is_Add:
        return sum(map(_terms, expression.args))
    if expression.is_Mul:
        return math.prod(map(_terms, expression.args))
    if expression.is_Pow and expression.exp.is_Integer:
        power, terms = abs(int(expression.exp)), _terms(expression.base)
        return math.comb(power + terms - 1, power) if terms > 1 and power < MOST_TERMS else terms**2
    return 1


def at_values(expression: sp.Expr, values: Mapping[sp.Symbol, sp.Expr]) -> sp.Expr:
    """The expression where symbols have these values; constants are `settled` as soon as they arise."""
    memo: dict[sp.Basic, sp.Basic] = dict(values)

    def visit(node: sp.Basic) -> sp.Basic:
        if node not in memo:
            args = [visit(each) for each in node.args]
            unchanged = all(new is old for new, old in zip(args, node.args, strict=True))
            memo[node] = node if unchanged else settled(node.func(*args))
        return memo[node]

    return visit(expression)


def simplified(expression: sp.Expr) -> sp.Expr:
    """Comparisons that the signs of symbols decide are decided, and extremes of equal arguments are taken."""
    expression = expression.replace(f.absolute, sp.Abs)
    for function in (f.maximum, f.minimum):
        expression = expression.replace(function, functools.partial(_extreme, function))
    for comparison, at_equality in ((c.less, False), (c.less_equal, True)):
        expression = expression.replace(comparison, functools.partial(_decided, comparison, at_equality))
    return expression


def _larger(*values: sp.Expr) -> sp.Expr:
    return functools.reduce(lambda a, b: c.choose(c.less(a, b), b, a), values)


def _smaller(*values: sp.Expr) -> sp.Expr:
    return functools.reduce(lambda a, b: c.choose(c.less(b, a), b, a), values)


def _magnitude(value: sp.Expr) -> sp.Expr:
    return value if value.is_nonnegative else c.choose(c.less(value, sp.Integer(0)), -value, value)


_CASES = {
    f.maximum: _larger,
    f.minimum: _smaller,
    f.absolute: _magnitude,
    sp.Abs: _magnitude,
    f.logsumexp: lambda *values: sp.log(sp.Add(*map(sp.exp, values))),
}


def _extreme(function: type, *values: sp.Expr) -> sp.Expr:
    apart = list(dict.fromkeys(values))
    if all(each.is_Number for each in apart):
        return max(apart) if function is f.maximum else min(apart)
    return apart[0] if len(apart) == 1 else function(*apart)


def _decided(comparison: type, at_equality: bool, left: sp.Expr, right: sp.Expr) -> sp.Expr:
    if left == right:
        return sp.Integer(at_equality)
    gap = right - left
    if gap.is_positive:
        return sp.Integer(1)
    return sp.Integer(0) if gap.is_negative or (gap.is_nonpositive and not at_equality) else comparison(left, right)


def in_words(expression: sp.Expr, longest: int = 160) -> str:
    """The expression as a file would write it; cut when it is longer."""
    text = _Printer().doprint(expression)
    return text if len(text) <= longest else text[: longest - 1] + "…"


class _Printer(StrPrinter):
    """SymPy's words, but `^` for powers and the language's conditions."""

    def _print_Pow(self, expr: sp.Pow, rational: bool = False) -> str:
        return str(super()._print_Pow(expr, rational)).replace("**", "^")

    def _print_choose(self, expr: sp.Expr) -> str:
        holds, then, otherwise = map(self._print, expr.args)
        return f"(if {holds} then {then} else {otherwise})"

    def _print_less(self, expr: sp.Expr) -> str:
        return self._between(expr, "<")

    def _print_less_equal(self, expr: sp.Expr) -> str:
        return self._between(expr, "<=")

    def _print_equal(self, expr: sp.Expr) -> str:
        return self._between(expr, "==")

    def _print_both(self, expr: sp.Expr) -> str:
        return f"({self._between(expr, 'and')})"

    def _print_opposite(self, expr: sp.Expr) -> str:
        return f"not ({self._print(expr.args[0])})"

    def _print_maximum(self, expr: sp.Expr) -> str:
        return f"max({self.stringify(expr.args, ', ')})"

    def _print_minimum(self, expr: sp.Expr) -> str:
        return f"min({self.stringify(expr.args, ', ')})"

    def _print_Abs(self, expr: sp.Expr) -> str:
        return f"abs({self._print(expr.args[0])})"

    _print_absolute = _print_Abs

    def _between(self, expr: sp.Expr, word: str) -> str:
        left, right = map(self._print, expr.args)
        return f"{left} {word} {right}"


# E540 to E546 and W640: kernels that prove wrong once their formula or their number of columns is known.


class Asymmetric(OfKernel, code="E540"):
    """A formula that changes when its points change places."""

    points: str
    swapped: str
    difference: str
    forms: str = "(a - b)^2, abs(a - b), a*b or a + b"
    message: ClassVar = "`{kernel}` is not symmetric: `{kernel}{points}` differs from `{kernel}{swapped}`"
    label: ClassVar = "not a covariance: {difference}"
    help: ClassVar = "a covariance of two points is the same in either order; use {forms}"


class NoVariance(OfKernel, code="E541"):
    """A formula with no finite value on the diagonal."""

    where: str
    message: ClassVar = "`{kernel}` has no finite value {where}, and so no variance"
    label: ClassVar = "infinite or undefined {where}"
    help: ClassVar = (
        "a covariance is finite everywhere; add a positive constant to what is divided by or taken a log of"
    )


class NegativeVariance(OfKernel, code="E542"):
    """A formula whose diagonal is negative."""

    variance: str
    message: ClassVar = "the variance of `{kernel}` is negative: {variance}"
    label: ClassVar = "negative where its two points are the same"
    help: ClassVar = "a covariance of a point with itself is a variance; check the signs, or add a constant"


class ImageSize(Mistake, code="E543"):
    """An image that does not have as many pixels as the data have columns."""

    height: int
    width: int
    columns: int
    message: ClassVar = "an image of {height} by {width} has {pixels} pixels, but the input has {columns} columns"
    label: ClassVar = "does not fit the data"
    help: ClassVar = "correct `image = [height, width]`, or select the pixels with `on = ...`"
    pixels: int = 0


class NoRealValue(OfKernel, code="E544"):
    """A formula that is not a real number at ordinary points."""

    where: str
    message: ClassVar = "`{kernel}` is not a real number {where}"
    label: ClassVar = "outside the domain of a function it uses"
    help: ClassVar = "a covariance is a finite number for any two points: check square roots, logs and divisions"


class RoughFormula(OfLatent, code="E545"):
    """A derivative of a latent whose kernel by formula has too few."""

    kernel: str
    times: str
    message: ClassVar = "`{latent}` has no such derivative: a process with the kernel `{kernel}` is {times}"
    label: ClassVar = "the formula has a kink where its two points meet"
    help: ClassVar = "read fewer derivatives, or use a smoother kernel, such as `RBF` or `Matern52`"


class NoFeatures(OfLatent, code="E546"):
    """Inducing features that a kernel does not have."""

    features: str
    why: str
    remedy: str = "ask for other features, such as `points(50)`, or use a kernel that has them"
    message: ClassVar = "`{latent}` has no inducing features of the family `{features}`"
    label: ClassVar = "{why}"


class NotPositiveDefinite(OfKernel, code="W640"):
    """A formula with a negative eigenvalue at some points, or a negative spectral density."""

    finding: str
    advice: str
    severity: ClassVar[str] = "warning"
    message: ClassVar = "`{kernel}` is not a covariance: {finding}"
    label: ClassVar = "not positive definite"
    help: ClassVar = "no Gaussian process has it, and a fit may fail; {advice}"
