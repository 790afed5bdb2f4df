"""SymPy functions that stand for numerically stable primitives; `program/lower` gives each its JAX form."""

from __future__ import annotations

import sympy as sp


class softplus(sp.Function):
    """log(1 + exp(x)), without overflow."""

    nargs = 1
    is_real = True


class log_ndtr(sp.Function):
    """Logarithm of the standard normal distribution function."""

    nargs = 1
    is_real = True


class ndtr(sp.Function):
    """Standard normal distribution function."""

    nargs = 1
    is_real = True


class sigmoid(sp.Function):
    """1 / (1 + exp(-x)), without overflow."""

    nargs = 1
    is_positive = True


class log1p(sp.Function):
    """log(1 + x), exact for small x."""

    nargs = 1
    is_real = True


class expm1(sp.Function):
    """exp(x) - 1, exact for small x."""

    nargs = 1
    is_real = True


class logsumexp(sp.Function):
    """log(sum_i exp(x_i)), without overflow."""

    is_real = True


ELEMENTARY = {
    "exp": sp.exp,
    "log": sp.log,
    "sqrt": sp.sqrt,
    "sin": sp.sin,
    "cos": sp.cos,
    "tan": sp.tan,
    "tanh": sp.tanh,
    "abs": sp.Abs,
    "sigmoid": sigmoid,
    "softplus": softplus,
    "log1p": log1p,
    "expm1": expm1,
    "erf": sp.erf,
    "lgamma": sp.loggamma,
    "Phi": ndtr,
    "min": sp.Min,
    "max": sp.Max,
    "pow": sp.Pow,
}
"""The language's functions, by the name a `.gpm` file uses."""
