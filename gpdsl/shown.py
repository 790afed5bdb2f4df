"""What notebooks show of an object, and whether the code runs in one. IPython is met only where it runs already."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import Any


def mimebundle(
    shown: Any, include: Collection[str] | None = None, exclude: Collection[str] | None = None
) -> Mapping[str, str]:
    """Everything that an object can be shown as, for `_repr_mimebundle_`."""
    ways = {"text/plain": "__repr__", "text/html": "_repr_html_", "text/latex": "_repr_latex_"}
    asked = [kind for kind in ways if (not include or kind in include) and kind not in (exclude or ())]
    found = {kind: getattr(shown, ways[kind])() for kind in asked if hasattr(shown, ways[kind])}
    return {kind: text for kind, text in found.items() if text is not None}


def rounded(value: float, digits: int = 2) -> str:
    """A number to so many digits, as people write it: 1800 and not 1.8e+03, up to six digits before the point."""
    value = float(f"{value:.{digits - 1}e}")
    return f"{value:.0f}" if 10 ** (digits - 1) <= abs(value) < 1e6 else f"{value:.{digits}g}"


def in_notebook() -> bool:
    """Whether the code runs in the kernel of a notebook, whose outputs can change."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None
