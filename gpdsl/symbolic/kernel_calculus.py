"""Derivatives of kernels, and in which words kernels are shown to people."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping

import sympy as sp
from sympy.printing.str import StrPrinter

from gpdsl.symbolic import conditions as c
from gpdsl.symbolic import functions as f
from gpdsl.symbolic.constants import settled

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
