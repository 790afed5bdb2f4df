"""SymPy functions that stand for numerically stable primitives; `lowering/table` gives each its JAX form."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import sympy as sp

from gpdsl.symbolic.conditions import CONDITIONS, less


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


ELEMENTARY: Mapping[str, Callable[..., sp.Expr]] = {
    "+": sp.Add,
    "-": lambda a, b: a - b,
    "*": sp.Mul,
    "/": lambda a, b: a / b,
    "^": _power,
    "neg": lambda a: -a,
    "exp": sp.exp,
    "log": sp.log,
    "sqrt": sp.sqrt,
    "sin": sp.sin,
    "cos": sp.cos,
    "tan": sp.tan,
    "asin": sp.asin,
    "acos": sp.acos,
    "atan": sp.atan,
    "sinh": sp.sinh,
    "cosh": sp.cosh,
    "tanh": sp.tanh,
    "asinh": sp.asinh,
    "atanh": sp.atanh,
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
    "erf": sp.erf,
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
