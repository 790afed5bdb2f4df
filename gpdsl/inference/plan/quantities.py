"""Amounts of work and memory in words."""

from __future__ import annotations

import math


def quantity(value: float, unit: str) -> str:
    """A number with three digits and the prefix of its unit."""
    if value <= 0:
        return f"0 {unit}"
    power = min(int(math.log10(value) // 3), 5)
    return f"{value / 1000**power:.3g} {['', 'k', 'M', 'G', 'T', 'P'][power]}{unit}"
