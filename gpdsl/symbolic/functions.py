"""SymPy functions that stand for numerically stable primitives; `lowering/table` gives each its JAX form."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import sympy as sp

from gpdsl.symbolic.conditions import CONDITIONS, less


class softplus(sp.Function):
    """log(1 + exp(x)), without overflow."""

    nargs = 1
    is_real = True

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """Its derivative."""
        return sigmoid(self.args[0])


class log_ndtr(sp.Function):
    """Logarithm of the standard normal distribution function."""

    nargs = 1
    is_real = True

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """Its derivative."""
        return sp.exp(-(self.args[0] ** 2) / 2 - log_ndtr(self.args[0])) / sp.sqrt(2 * sp.pi)


class ndtr(sp.Function):
    """Standard normal distribution function."""

    nargs = 1
    is_real = True

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


class log1p(sp.Function):
    """log(1 + x), exact for small x."""

    nargs = 1
    is_real = True

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """Its derivative."""
        return 1 / (1 + self.args[0])


class times_log(sp.Function):
    """y log(x), which is 0 where y is 0, even at x = 0: a count of nothing where nothing is exposed."""

    nargs = 2
    is_real = True


class expm1(sp.Function):
    """exp(x) - 1, exact for small x."""

    nargs = 1
    is_real = True

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """Its derivative."""
        return sp.exp(self.args[0])


class lgamma(sp.Function):
    """Logarithm of the gamma function; SymPy's own would write out the factorial of a whole number."""

    nargs = 1
    is_real = True


class log_rising(sp.Function):
    """lgamma(x + n) - lgamma(x), exact for large x."""

    nargs = 2
    is_real = True


class log_beta(sp.Function):
    """Logarithm of the beta function, exact for large arguments."""

    nargs = 2
    is_real = True


class absolute(sp.Function):
    """Absolute value; SymPy's own brings its argument over a common denominator."""

    nargs = 1
    is_nonnegative = True

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """Its derivative."""
        return 1 - 2 * less(self.args[0], sp.Integer(0))


class maximum(sp.Function):
    """The largest of its arguments; SymPy's own compares each with each."""

    is_real = True


class minimum(sp.Function):
    """The smallest of its arguments."""

    is_real = True


class logsumexp(sp.Function):
    """log(sum_i exp(x_i)), without overflow."""

    is_real = True


class log1mexp(sp.Function):
    """log(1 - exp(-x)) for positive x, exact for small and for large ones."""

    nargs = 1
    is_real = True


class log_difference(sp.Function):
    """log(exp(a) - exp(b)) for a > b."""

    nargs = 2
    is_real = True


class log_ndtr_interval(sp.Function):
    """log(Phi(b) - Phi(a)) for a < b, exact in both tails."""

    nargs = 2
    is_real = True


class log_gamma_cdf(sp.Function):
    """log of the regularised lower incomplete gamma function of a shape and a value."""

    nargs = 2
    is_real = True


class log_gamma_sf(sp.Function):
    """log of the regularised upper incomplete gamma function of a shape and a value."""

    nargs = 2
    is_real = True


class log_student_cdf(sp.Function):
    """log of Student's distribution function of degrees of freedom and a value."""

    nargs = 2
    is_real = True


class ndtri(sp.Function):
    """Quantile of the standard normal: the inverse of its distribution function."""

    nargs = 1
    is_real = True

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


class floor(sp.Function):
    """Largest whole number not above; SymPy's own compares its argument with whole numbers one by one."""

    nargs = 1
    is_real = True

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
