"""How often a process can be differentiated (mean-square), from its covariance as a function of the distance.

k(r) = c0 + c1 r + c2 r^2 + ... has n derivatives when the first 2n of the terms have even powers (Stein 1999, 2.4).
"""

from __future__ import annotations

import sympy as sp

from gpdsl.symbolic.constants import DIGITS
from gpdsl.symbolic.kernel_calculus import at_values, differentiated

MOST_DERIVATIVES = 3
MOST_OPERATIONS = 400
_NEAR, _NEARER = sp.Rational(1, 10**8), sp.Rational(1, 10**16)


def smoothness(profile: sp.Expr, distance: sp.Symbol) -> int | None:
    """How many derivatives the process has, up to `MOST_DERIVATIVES`; None when the formula does not tell.

    Its derivatives near zero are looked at with many digits and arbitrary parameters, in place of a symbolic limit,
    whose search may not end. What depends on the value of a parameter, as that of an exponent, is not told.
    """
    if _learnt_power(profile, distance):
        return None
    numbers = {
        symbol: sp.Rational(2 * i + 7, 2 * i + 5) for i, symbol in enumerate(sorted(profile.free_symbols, key=str))
    }
    slope = at_values(profile, {symbol: number for symbol, number in numbers.items() if symbol != distance})
    for order in range(1, 2 * MOST_DERIVATIVES + 1):
        found = differentiated(slope, distance)
        if found is None or sp.count_ops(found) > MOST_OPERATIONS * order:
            return None
        slope = found
        near, nearer = (_number(slope, distance, at) for at in (_NEAR, _NEARER))
        if near is None or nearer is None:
            return None
        settled = abs(near - nearer) <= 1e-5 * (1 + abs(nearer)) or abs(nearer) < 0.1 * abs(near)
        if not settled:  # it grows without bound; between the two, as for r^2.01, it is not decided
            return (order - 1) // 2 if abs(nearer) > 1.5 * abs(near) else None
        if order % 2 and abs(nearer) > 1e-5:
            return (order - 1) // 2
    return MOST_DERIVATIVES


def _learnt_power(profile: sp.Expr, distance: sp.Symbol) -> bool:
    """Whether a power of something that vanishes at distance zero has a parameter in it."""
    return any(
        power.exp.free_symbols and distance in power.base.free_symbols and power.base.subs(distance, 0) == 0
        for power in profile.atoms(sp.Pow)
    )


def _number(expression: sp.Expr, distance: sp.Symbol, at: sp.Rational) -> float | None:
    value = at_values(expression, {distance: at}).evalf(DIGITS)
    return float(value) if value.is_Float or value.is_Rational else None
