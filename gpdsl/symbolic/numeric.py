"""SymPy expressions → NumPy numbers, by a table: for checks that must run without JAX."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp
from scipy import special
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.str import StrPrinter

from gpdsl.symbolic import conditions as c, functions as f

Value = Any
"""A float or an array; shapes follow broadcasting."""


def _fold(function: Callable[[Value, Value], Value]) -> Callable[..., Value]:
    return lambda *values: functools.reduce(function, values)


def log1mexp(x: Value) -> Value:
    """log(1 - exp(-x)) for x >= 0 (Maechler 2012)."""
    return np.where(x < np.log(2.0), np.log(-np.expm1(-x)), np.log1p(-np.exp(-x)))


def _log_rising(x: np.ndarray, n: np.ndarray) -> np.ndarray:
    """log Gamma(x + n) - log Gamma(x), where the two may agree in all their digits."""
    return np.where(np.equal(n, 0), 0.0, special.gammaln(n) - special.betaln(x, n))


def _log_ndtr_interval(a: Value, b: Value) -> Value:
    """On the side of the normal where the difference does not cancel."""
    low, high = np.where(a > 0, -b, a), np.where(a > 0, -a, b)
    return special.log_ndtr(high) + log1mexp(special.log_ndtr(high) - special.log_ndtr(low))


def _power(base: Value, exponent: Value) -> Value:
    """Squares, roots and reciprocals are several times quicker than powers."""
    quick = QUICK_POWERS.get(float(exponent)) if isinstance(exponent, float) else None
    return np.power(base, exponent) if quick is None else quick(base)


QUICK_POWERS: Mapping[float, Callable[[Value], Value]] = {2.0: np.square, 0.5: np.sqrt, -1.0: lambda x: 1.0 / x}

TABLE: Mapping[type, Callable[..., Value]] = {
    sp.Add: _fold(operator.add),
    sp.Mul: _fold(operator.mul),
    sp.Pow: _power,
    sp.exp: np.exp,
    sp.log: np.log,
    sp.sin: np.sin,
    sp.cos: np.cos,
    sp.tan: np.tan,
    sp.asin: np.arcsin,
    sp.acos: np.arccos,
    sp.atan: np.arctan,
    sp.sinh: np.sinh,
    sp.cosh: np.cosh,
    sp.tanh: np.tanh,
    sp.asinh: np.arcsinh,
    sp.atanh: np.arctanh,
    sp.erf: special.erf,
    sp.Abs: np.abs,
    sp.gamma: special.gamma,
    sp.besselk: special.kv,
    sp.besseli: special.iv,
    f.absolute: np.abs,
    f.minimum: _fold(np.minimum),
    f.maximum: _fold(np.maximum),
    f.softplus: lambda x: np.logaddexp(0.0, x),
    f.sigmoid: special.expit,
    f.log1p: np.log1p,
    f.expm1: np.expm1,
    f.lgamma: special.gammaln,
    f.ndtr: special.ndtr,
    f.log_ndtr: special.log_ndtr,
    f.ndtri: special.ndtri,
    f.floor: np.floor,
    f.logsumexp: _fold(np.logaddexp),
    f.times_log: special.xlogy,
    f.log_rising: _log_rising,
    f.log_beta: special.betaln,
    f.log1mexp: log1mexp,
    f.log_difference: lambda a, b: a + log1mexp(a - b),
    f.log_ndtr_interval: _log_ndtr_interval,
    f.log_gamma_cdf: lambda shape, x: np.log(special.gammainc(shape, x)),
    f.log_gamma_sf: lambda shape, x: np.log(special.gammaincc(shape, x)),
    f.log_student_cdf: lambda df, x: np.log(special.stdtr(df, x)),
    c.less: np.less,
    c.less_equal: np.less_equal,
    c.equal: np.equal,
    c.both: np.logical_and,
    c.opposite: np.logical_not,
    c.choose: lambda holds, then, otherwise: np.where(holds, then, otherwise),
    sp.Tuple: lambda *values: values,
}


def evaluate(expression: sp.Expr, values: Mapping[sp.Symbol, Value]) -> Value:
    """The value of an expression whose symbols have these values; NaN or infinite where it has none."""
    found: list[Value] = []
    with np.errstate(all="ignore"):
        for function, places, known, over in _steps(expression):
            found.append(values[known] if function is None else function(*[found[k] for k in places]))
            for k in over:
                found[k] = None
    return found[-1]


@functools.lru_cache(maxsize=1024)
def _steps(
    expression: sp.Expr,
) -> tuple[tuple[Callable[..., Value] | None, tuple[int, ...], Any, tuple[int, ...]], ...]:
    """What is computed after what, each part of an expression once: functions of what stands at places before.

    No function stands for a symbol, whose value is asked for. Last are the places that no later one reads: their memory
    is used again, where that of a whole expression would go back to the system, and come from there at the next call.
    """
    steps: list[tuple[Callable[..., Value] | None, tuple[int, ...], Any]] = []
    places: dict[sp.Basic, int] = {}

    def visit(node: sp.Basic) -> int:
        if node not in places:
            steps.append(_step(node, visit))
            places[node] = len(steps) - 1
        return places[node]

    visit(expression)
    last = {place: number for number, step in enumerate(steps) for place in step[1]}
    over: list[list[int]] = [[] for _ in steps]
    for place, number in last.items():
        over[number].append(place)
    return tuple((*step, tuple(each)) for step, each in zip(steps, over, strict=True))


def _step(node: sp.Basic, visit: Callable[[sp.Basic], int]) -> tuple[Callable[..., Value] | None, tuple[int, ...], Any]:
    if isinstance(node, sp.Symbol):
        return None, (), node
    if isinstance(node, sp.Number | sp.NumberSymbol):
        number = np.float64(float(node))
        return lambda: number, (), None
    return TABLE[node.func], tuple(visit(argument) for argument in node.args), None


# SymPy expressions as text in the language's own words, with short numbers: what plans and messages show.

DIGITS = 6

NAMES: Mapping[type, str] = {
    f.absolute: "abs",
    f.maximum: "max",
    f.minimum: "min",
    f.ndtr: "Phi",
    f.ndtri: "probit",
}
"""Functions that the language calls otherwise."""

WRITTEN: Mapping[type, Callable[..., str]] = {
    f.log_ndtr: lambda x: f"log(Phi({x}))",
    f.log_ndtr_interval: lambda low, high: f"log(Phi({high}) - Phi({low}))",
    f.log1mexp: lambda x: f"log(1 - exp(-({x})))",
    f.log_difference: lambda a, b: f"log(exp({a}) - exp({b}))",
    f.logsumexp: lambda *each: f"log({' + '.join(f'exp({e})' for e in each)})",
    f.times_log: lambda y, x: f"{y}*log({x})",
    f.log_rising: lambda x, n: f"(lgamma({x} + {n}) - lgamma({x}))",
    f.log_beta: lambda a, b: f"(lgamma({a}) + lgamma({b}) - lgamma({a} + {b}))",
    f.log_gamma_cdf: lambda shape, x: f"log(P(Gamma({shape}, 1) < {x}))",
    f.log_gamma_sf: lambda shape, x: f"log(P(Gamma({shape}, 1) > {x}))",
    f.log_student_cdf: lambda df, x: f"log(P(StudentT({df}, 0, 1) < {x}))",
    c.less: lambda a, b: f"({a} < {b})",
    c.less_equal: lambda a, b: f"({a} <= {b})",
    c.equal: lambda a, b: f"({a} == {b})",
    c.both: lambda a, b: f"({a} and {b})",
    c.opposite: lambda a: f"(not {a})",
    c.choose: lambda holds, a, b: f"(if {holds} then {a} else {b})",
}
"""Functions that the language has no name for, as what they compute."""


class _Printer(StrPrinter):
    def _print_Float(self, expr: sp.Float) -> str:
        return f"{float(expr):.{DIGITS}g}"

    def _print_Pow(self, expr: sp.Pow, rational: bool = False) -> str:
        if expr.exp.is_Float and expr.exp < 0:
            return f"{self.parenthesize(expr.base, PRECEDENCE['Pow'])}^({self._print(expr.exp)})"
        return super()._print_Pow(expr, rational).replace("**", "^")

    def _print_Function(self, expr: sp.Function) -> str:
        arguments = [self._print(each) for each in expr.args]
        if expr.func in WRITTEN:
            return WRITTEN[expr.func](*arguments)
        name = NAMES.get(expr.func, expr.func.__name__)
        return f"{name}({', '.join(arguments)})"


def written(expression: sp.Expr) -> str:
    """The expression as a reader of the language would write it."""
    return _Printer().doprint(expression)


# Polynomials in a few symbols about a centre, without multiplying out what does not depend on those symbols.
#
# About the centre c the polynomial (y - f)^2 is (y - c)^2 - 2 (y - c) d + d^2 in d = f - c: its constant stays a square
# and does not cancel when y and c are large. Work is counted, so that a hostile power ends in an answer.

MAX_PRODUCTS = 5_000
"""Products of two monomials that one expansion may take; a network of 500 latents takes some 3,000."""

MAX_POWER = 32

Monomial = tuple[tuple[sp.Symbol, int], ...]
"""Symbols and their powers, in the order of the symbols; `()` is the constant."""

Polynomial = Mapping[Monomial, sp.Expr]

ONE: Polynomial = {(): sp.Integer(1)}


class NotPolynomial(Exception):
    """The expression is not a polynomial in the symbols, or a larger one than is worth writing out."""


@dataclass
class Budget:
    """How many products are left; spent across several expansions of one expression."""

    left: int = MAX_PRODUCTS

    def spend(self, products: int) -> None:
        """Take that many products. Raises NotPolynomial when fewer are left."""
        self.left -= products
        if self.left < 0:
            raise NotPolynomial


def expand_about(expression: sp.Expr, centres: Mapping[sp.Symbol, sp.Expr], budget: Budget) -> Polynomial:
    """Coefficients of the polynomial in the deviations of the symbols from their centres.

    Raises NotPolynomial where the symbols enter otherwise, or where the budget ends.
    """
    if expression.free_symbols.isdisjoint(centres):
        return {(): expression} if expression != 0 else {}
    if expression in centres:
        return _without_zeros({(): centres[expression], ((expression, 1),): sp.Integer(1)})
    if isinstance(expression, sp.Add):
        return add(expand_about(part, centres, budget) for part in expression.args)
    if isinstance(expression, sp.Mul):
        product = ONE
        for factor in expression.args:
            product = multiply(product, expand_about(factor, centres, budget), budget)
        return product
    if isinstance(expression, sp.Pow):
        return power(expand_about(expression.base, centres, budget), whole_power(expression), budget)
    raise NotPolynomial


def whole_power(expression: sp.Pow) -> int:
    """The exponent of a power that a polynomial may contain. Raises NotPolynomial for any other."""
    if expression.exp.is_Integer and 0 < int(expression.exp) <= MAX_POWER:
        return int(expression.exp)
    raise NotPolynomial


def degree_bound(expression: sp.Expr, symbols: Collection[sp.Symbol]) -> float:
    """A bound on the degree of a polynomial in the symbols, without multiplying it out; infinite for what is none."""
    if expression.free_symbols.isdisjoint(symbols):
        return 0
    if expression in symbols:
        return 1
    if isinstance(expression, sp.Add):
        return max(degree_bound(part, symbols) for part in expression.args)
    if isinstance(expression, sp.Mul):
        return sum(degree_bound(part, symbols) for part in expression.args)
    if isinstance(expression, sp.Pow) and expression.exp.is_Integer and expression.exp > 0:
        return int(expression.exp) * degree_bound(expression.base, symbols)
    return math.inf


def add(polynomials: Iterable[Polynomial]) -> Polynomial:
    """Their sum."""
    parts: dict[Monomial, list[sp.Expr]] = {}
    for polynomial in polynomials:
        for monomial, coefficient in polynomial.items():
            parts.setdefault(monomial, []).append(coefficient)
    return _without_zeros({monomial: sp.Add(*each) for monomial, each in parts.items()})


def multiply(a: Polynomial, b: Polynomial, budget: Budget) -> Polynomial:
    """Their product; coefficients are multiplied, never expanded."""
    if a is ONE or b is ONE:
        return b if a is ONE else a
    budget.spend(len(a) * len(b))
    parts: dict[Monomial, list[sp.Expr]] = {}
    for left, x in a.items():
        for right, y in b.items():
            parts.setdefault(_times(left, right), []).append(x * y)
    return _without_zeros({monomial: sp.Add(*each) for monomial, each in parts.items()})


def power(base: Polynomial, exponent: int, budget: Budget) -> Polynomial:
    """A whole power, from 0. The constant is one symbol meanwhile, so that its powers are collected."""
    constant, symbol = base.get(()), sp.Dummy(real=True)
    if constant is not None and constant.is_Add and exponent > 1:
        named = power({**base, (): symbol}, exponent, budget)
        return _without_zeros({m: c.xreplace({symbol: constant}) for m, c in named.items()})
    result = ONE
    for digit in f"{exponent:b}":
        result = multiply(result, result, budget)
        if digit == "1":
            result = multiply(result, base, budget)
    return result


def _times(a: Monomial, b: Monomial) -> Monomial:
    if not a or not b:
        return a or b
    powers = dict(a)
    for symbol, exponent in b:
        powers[symbol] = powers.get(symbol, 0) + exponent
    return tuple(
        sorted(powers.items(), key=lambda item: (item[0].name, item[0].dummy_index if item[0].is_Dummy else 0))
    )


def _without_zeros(polynomial: Mapping[Monomial, sp.Expr]) -> Polynomial:
    return {monomial: coefficient for monomial, coefficient in polynomial.items() if coefficient != 0}
