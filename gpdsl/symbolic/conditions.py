"""Conditional expressions in SymPy: `choose(c, a, b)`, with conditions that are 1 or 0.

SymPy's own Piecewise solves and canonicalises its conditions whenever it is rebuilt, which takes unbounded time on a
large one; these do nothing but compare numbers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import ClassVar

import sympy as sp


class condition(sp.Function):
    """1 where it holds, 0 elsewhere."""

    is_real = True
    is_nonnegative = True

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """Zero, but at the boundary."""
        return sp.Integer(0)


class _comparison(condition):
    nargs = 2
    holds: ClassVar[Callable]

    @classmethod
    def eval(cls, left: sp.Expr, right: sp.Expr) -> sp.Expr | None:
        """Numbers are compared at once."""
        if left.is_Number and right.is_Number:
            return sp.Integer(bool(cls.holds(left, right)))
        return None


class less(_comparison):
    """a < b."""

    holds = operator.lt


class less_equal(_comparison):
    """a <= b."""

    holds = operator.le


class equal(_comparison):
    """a == b."""

    holds = operator.eq


class both(condition):
    """a and b."""

    nargs = 2

    @classmethod
    def eval(cls, left: sp.Expr, right: sp.Expr) -> sp.Expr | None:
        """Nothing is left of what is known."""
        if 0 in (left, right):
            return sp.Integer(0)
        return right if left == 1 else left if right == 1 else None


class opposite(condition):
    """not a."""

    nargs = 1

    @classmethod
    def eval(cls, inner: sp.Expr) -> sp.Expr | None:
        """Known conditions, and the opposite of an opposite."""
        if inner.is_Number:
            return 1 - inner
        return inner.args[0] if isinstance(inner, opposite) else None


class choose(sp.Function):
    """`choose(c, a, b)`: a where c holds, b elsewhere."""

    nargs = 3

    @classmethod
    def eval(cls, holds: sp.Expr, then: sp.Expr, otherwise: sp.Expr) -> sp.Expr | None:
        """A known condition, or branches that are the same."""
        if holds.is_Number:
            return then if holds != 0 else otherwise
        return then if then == otherwise else None

    def _eval_is_real(self) -> bool | None:
        return self.args[1].is_real and self.args[2].is_real  # type: ignore[attr-defined]

    def _eval_is_positive(self) -> bool | None:
        return (self.args[1].is_positive and self.args[2].is_positive) or None  # type: ignore[attr-defined]

    def _eval_derivative(self, symbol: sp.Symbol) -> sp.Expr:
        return choose(self.args[0], self.args[1].diff(symbol), self.args[2].diff(symbol))

    def _eval_rewrite_as_Piecewise(self, holds: sp.Expr, then: sp.Expr, otherwise: sp.Expr, **_: object) -> sp.Expr:
        return sp.Piecewise((then, sp.Ne(holds, 0)), (otherwise, True))


def _either(left: sp.Expr, right: sp.Expr) -> sp.Expr:
    return opposite(both(opposite(left), opposite(right)))


CONDITIONS: Mapping[str, Callable[..., sp.Expr]] = {
    "if": choose,
    "<": less,
    "<=": less_equal,
    ">": lambda a, b: less(b, a),
    ">=": lambda a, b: less_equal(b, a),
    "==": equal,
    "!=": lambda a, b: opposite(equal(a, b)),
    "and": both,
    "or": _either,
    "not": opposite,
}
"""The operators of conditions, by the name the checked tree has for them."""
