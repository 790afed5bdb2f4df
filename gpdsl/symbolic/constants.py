"""Numbers of a model in SymPy: exact where floating point is, and never anything but finite real numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy as sp

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
