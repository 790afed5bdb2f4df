"""SymPy functions that stand for stable primitives, of which `lowering/table` has the JAX form, and their calculus."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping

import sympy as sp
from sympy.printing.str import StrPrinter

from gpdsl.symbolic.conditions import CONDITIONS, both, choose, equal, less, less_equal, opposite, settled


class _Real(sp.Function):
    """One with real values."""

    is_real = True


class _OfOne(_Real):
    """One with real values, of one argument."""

    nargs = 1


class _OfTwo(_Real):
    """One with real values, of two arguments."""

    nargs = 2


class softplus(_OfOne):
    """log(1 + exp(x)), without overflow."""

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """Its derivative."""
        return sigmoid(self.args[0])


class log_ndtr(_OfOne):
    """Logarithm of the standard normal distribution function."""

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """Its derivative."""
        return sp.exp(-(self.args[0] ** 2) / 2 - log_ndtr(self.args[0])) / sp.sqrt(2 * sp.pi)


class ndtr(_OfOne):
    """Standard normal distribution function."""

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """Its derivative."""
        return sp.exp(-(self.args[0] ** 2) / 2) / sp.sqrt(2 * sp.pi)


class sigmoid(sp.Function):
    """1 / (1 + exp(-x)), without overflow."""

    nargs = 1
    is_positive = True

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """Its derivative."""
        return self * sigmoid(-self.args[0])


class log1p(_OfOne):
    """log(1 + x), exact for small x."""

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """Its derivative."""
        return 1 / (1 + self.args[0])


class times_log(_OfTwo):
    """y log(x), which is 0 where y is 0, even at x = 0: a count of nothing where nothing is exposed."""


class expm1(_OfOne):
    """exp(x) - 1, exact for small x."""

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """Its derivative."""
        return sp.exp(self.args[0])


class lgamma(_OfOne):
    """Logarithm of the gamma function; SymPy's own would write out the factorial of a whole number."""


class log_rising(_OfTwo):
    """lgamma(x + n) - lgamma(x), exact for large x."""


class log_beta(_OfTwo):
    """Logarithm of the beta function, exact for large arguments."""


class absolute(sp.Function):
    """Absolute value; SymPy's own brings its argument over a common denominator."""

    nargs = 1
    is_nonnegative = True

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """Its derivative."""
        return 1 - 2 * less(self.args[0], sp.Integer(0))


class maximum(_Real):
    """The largest of its arguments; SymPy's own compares each with each."""


class minimum(_Real):
    """The smallest of its arguments."""


class logsumexp(_Real):
    """log(sum_i exp(x_i)), without overflow."""


class log1mexp(_OfOne):
    """log(1 - exp(-x)) for positive x, exact for small and for large ones."""


class log_difference(_OfTwo):
    """log(exp(a) - exp(b)) for a > b."""


class log_ndtr_interval(_OfTwo):
    """log(Phi(b) - Phi(a)) for a < b, exact in both tails."""


class log_gamma_cdf(_OfTwo):
    """log of the regularised lower incomplete gamma function of a shape and a value."""


class log_gamma_sf(_OfTwo):
    """log of the regularised upper incomplete gamma function of a shape and a value."""


class log_student_cdf(_OfTwo):
    """log of Student's distribution function of degrees of freedom and a value."""


class ndtri(_OfOne):
    """Quantile of the standard normal: the inverse of its distribution function."""

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """1 / density at the quantile."""
        return sp.sqrt(2 * sp.pi) * sp.exp(self**2 / 2)


class mills(sp.Function):
    """R_k(x), the integral over y > 0 of y^k exp(-y^2 / 2 - x y), for a whole k and x from 0; R_0 is Mills' ratio."""

    nargs = 2
    is_positive = True

    def fdiff(self, argindex: int = 2) -> sp.Expr:
        """In x."""
        if argindex != 2:
            raise sp.core.function.ArgumentIndexError(self, argindex)
        return -mills(self.args[0] + 1, self.args[1])


class divisor(sp.Function):
    """A variance that divides: where it has rounded to zero, the least number whose square is not."""

    nargs = 1
    is_positive = True


class floor(_OfOne):
    """Largest whole number not above; SymPy's own compares its argument with whole numbers one by one."""

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """Zero, but at the steps."""
        return sp.Integer(0)


def _power(base: sp.Expr, exponent: sp.Expr) -> sp.Expr:
    """A power; `0.5` and `2.0` become exact, so that roots and polynomials are known as such."""
    if isinstance(exponent, sp.Float) and (2 * float(exponent)).is_integer() and abs(exponent) < 2**52:
        exponent = sp.Rational(int(2 * float(exponent)), 2)
    return base**exponent


_OF_SYMPY = (
    *("exp", "log", "sqrt", "erf"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "atanh"),
)
"""Functions that SymPy calls as the language does."""

ELEMENTARY: Mapping[str, Callable[..., sp.Expr]] = {
    **{name: getattr(sp, name) for name in _OF_SYMPY},
    "+": sp.Add,
    "-": lambda a, b: a - b,
    "*": sp.Mul,
    "/": lambda a, b: a / b,
    "^": _power,
    "neg": lambda a: -a,
    "log2": lambda a: sp.log(a) / sp.log(2),
    "log10": lambda a: sp.log(a) / sp.log(10),
    "floor": floor,
    "logit": lambda a: sp.log(a) - log1p(-a),
    "probit": ndtri,
    "abs": absolute,
    "sigmoid": sigmoid,
    "softplus": softplus,
    "log1p": log1p,
    "expm1": expm1,
    "lgamma": lgamma,
    "Phi": ndtr,
    "min": minimum,
    "max": maximum,
    "pow": _power,
    **CONDITIONS,
}
"""The language's operators and functions, by the name the checked tree has for them."""

REDUCTIONS: Mapping[str, Callable[..., sp.Expr]] = {
    "sum": sp.Add,
    "prod": sp.Mul,
    "mean": lambda *values: sp.Add(*values) / len(values),
    "norm": lambda *values: sp.sqrt(sp.Add(*[value**2 for value in values])),
    "max": maximum,
    "min": minimum,
    "logsumexp": logsumexp,
}
"""Functions of all values along an index."""


# Their calculus: derivatives, what is multiplied out, and in which words formulas are shown to people.

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
    expression = expression.replace(absolute, sp.Abs)
    for function in (maximum, minimum):
        expression = expression.replace(function, functools.partial(_extreme, function))
    for comparison, at_equality in ((less, False), (less_equal, True)):
        expression = expression.replace(comparison, functools.partial(_decided, comparison, at_equality))
    return expression


def _magnitude(value: sp.Expr) -> sp.Expr:
    return value if value.is_nonnegative else choose(less(value, sp.Integer(0)), -value, value)


_CASES = {
    maximum: lambda *values: functools.reduce(lambda a, b: choose(less(a, b), b, a), values),
    minimum: lambda *values: functools.reduce(lambda a, b: choose(less(b, a), b, a), values),
    absolute: _magnitude,
    sp.Abs: _magnitude,
    logsumexp: lambda *values: sp.log(sp.Add(*map(sp.exp, values))),
}


def _extreme(function: type, *values: sp.Expr) -> sp.Expr:
    apart = list(dict.fromkeys(values))
    if all(each.is_Number for each in apart):
        return max(apart) if function is maximum else min(apart)
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


_FORMS: Mapping[type, str] = {
    choose: "(if {} then {} else {})",
    less: "{} < {}",
    less_equal: "{} <= {}",
    equal: "{} == {}",
    both: "({} and {})",
    opposite: "not ({})",
}
_NAMES: Mapping[type, str] = {maximum: "max", minimum: "min", absolute: "abs", sp.Abs: "abs"}
"""Conditions as the language writes them, and functions that it calls otherwise."""


class _Printer(StrPrinter):
    """SymPy's words, but `^` for powers and the language's conditions."""

    def _print_Pow(self, expr: sp.Pow, rational: bool = False) -> str:
        return str(super()._print_Pow(expr, rational)).replace("**", "^")

    def _print_Function(self, expr: sp.Function) -> str:
        shown = [self._print(each) for each in expr.args]
        if expr.func in _FORMS:
            return _FORMS[expr.func].format(*shown)
        return f"{_NAMES.get(expr.func, expr.func.__name__)}({', '.join(shown)})"

    _print_Abs = _print_Function
