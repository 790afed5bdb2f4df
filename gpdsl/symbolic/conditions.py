"""Conditional expressions in SymPy: `choose(c, a, b)`, with conditions that are 1 or 0.

SymPy's own Piecewise solves and canonicalises its conditions whenever it is rebuilt, which takes unbounded time on a
large one; these do nothing but compare numbers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import sympy as sp

from gpdsl.language import model as m


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


CONDITIONS: Mapping[str, Callable[..., sp.Expr]] = {
    "if": choose,
    "<": less,
    "<=": less_equal,
    ">": lambda a, b: less(b, a),
    ">=": lambda a, b: less_equal(b, a),
    "==": equal,
    "!=": lambda a, b: opposite(equal(a, b)),
    "and": both,
    "or": lambda a, b: opposite(both(opposite(a), opposite(b))),
    "not": opposite,
}
"""The operators of conditions, by the name the checked tree has for them."""


# Numbers of a model in SymPy: exact where floating point is, and never anything but finite real numbers.

LARGEST = 1e308
EXACT, DIGITS = 8, 60
"""Constants of more operations than `EXACT` become numbers of so many digits."""


def number(value: float) -> sp.Expr:
    """Whole numbers stay exact while floating point holds them exactly; so do the powers they stand for."""
    return sp.Integer(int(value)) if float(value).is_integer() and abs(value) < 2**53 else sp.Float(value, 17)


def element_of(values: float | tuple, positions: Sequence[int | str]) -> sp.Expr:
    """One element of a constant array, by positions counted from 1."""
    element: Any = values
    for position in positions:
        if isinstance(element, tuple):
            element = element[int(position) - 1]
    return number(element)


def is_real(value: sp.Expr) -> bool:
    """Whether a constant is a finite real number; what is not constant is judged by its parts, and by the data."""
    if not value.is_number:
        return True
    return value.is_real is True and not (isinstance(value, sp.Number) and abs(value) > LARGEST)


def settled(value: sp.Expr) -> sp.Expr:
    """A constant of many operations as a number of many digits; anything else unchanged.

    SymPy evaluates a constant whenever it is used, twice as often at each level of exponentials in it.
    """
    if not value.args or value.free_symbols or sp.count_ops(value) <= EXACT:
        return value
    found = value.evalf(DIGITS)
    if not found.is_Float or not found.is_finite:
        return value
    return sp.Integer(0) if abs(found) < sp.Float(10) ** (10 - DIGITS) else found


# How large an expression is once written out: a hostile model must end in an error before it fills the memory.

MAX_OPERATIONS = 20_000
MAX_TERMS = 4096  # of a reduction
MAX_VISITS = 50_000  # elements one expression may be translated from, however few remain when equal terms are collected
MAX_NESTING = 100  # well inside Python's own recursion limit, for SymPy and for the lowering to JAX


# Definitions by cases: which case of a `let` defines an element.

HOLDS: Mapping[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def decisive(declared: m.Let) -> set[str]:
    """The indices whose value decides which case holds; along the others every case is generic."""
    return {guard.index for case in declared.cases for guard in case.guards if guard.operator != "all"}


def case_of(declared: m.Let, positions: Mapping[str, int]) -> m.Case | None:
    """The case that defines the element at these positions of the decisive indices; None when there is none."""
    for case in declared.cases:
        if all(g.operator == "all" or HOLDS[g.operator](positions[g.index], g.value) for g in case.guards):
            return case
    return None
