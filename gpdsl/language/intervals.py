"""Between which numbers a parameter, or a value of a distribution, lies."""

from __future__ import annotations

import math

from gpdsl.language.model import Param


def interval_of(kind: str) -> tuple[float, float]:
    """Between which numbers lies what is `positive`, `unit` or of another kind."""
    return 0.0 if kind in {"positive", "unit"} else -math.inf, 1.0 if kind == "unit" else math.inf


def interval(param: Param) -> tuple[float, float]:
    """Between which numbers an element of a parameter lies."""
    low, high = interval_of(param.constraint)
    return low if param.lower is None else param.lower, high if param.upper is None else param.upper
