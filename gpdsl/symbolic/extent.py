"""How large an expression is once written out: a hostile model must end in an error before it fills the memory."""

from __future__ import annotations

from dataclasses import dataclass, field

import sympy as sp

MAX_OPERATIONS = 20_000
MAX_TERMS = 4096  # of a reduction
MAX_VISITS = 50_000  # elements one expression may be translated from, however few remain when equal terms are collected
MAX_NESTING = 100  # well inside Python's own recursion limit, for SymPy and for the lowering to JAX


@dataclass
class Extents:
    """Sizes of expressions met so far. Parts that occur twice count twice, since SymPy walks them twice."""

    _known: dict[sp.Basic, tuple[int, int]] = field(default_factory=dict)

    def of(self, expression: sp.Basic) -> tuple[int, int]:
        """Number of operations and symbols in it, and how deep they nest."""
        if expression not in self._known:
            parts = [self.of(a) for a in expression.args]
            size = 1 + sum(size for size, _ in parts)
            self._known[expression] = size, 1 + max((depth for _, depth in parts), default=0)
        return self._known[expression]
