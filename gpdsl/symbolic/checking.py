"""What algebra and numbers say about a checked model before there are data: mistakes and warnings of its formulas.

SymPy is loaded only for a model that has something to look at, so that checking the others stays fast.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpdsl.language import compile_text
from gpdsl.language.model import Declarations
from gpdsl.language.warnings import Report, find_warnings


def compile_checked(text: str, name: str = "<model>") -> Declarations:
    """The checked model of a text. Raises ModelError, also for a kernel by formula that is no covariance at all."""
    declarations = compile_text(text, name=name)
    check_formulas(declarations)
    return declarations


def check_formulas(declarations: Declarations) -> None:
    """Raise ModelError with what is wrong with the formulas of a checked model."""
    if declarations.kernels:
        from gpdsl.symbolic.kernel_checks import check_kernels

        check_kernels(declarations)


def all_warnings(declarations: Declarations, spreads: Mapping[str, tuple[float, ...]] | None = None) -> Report:
    """Every warning about a checked model: those of the language, and kernels that are not positive definite."""
    found = (*find_warnings(declarations, spreads).warnings, *grave_warnings(declarations).warnings)
    ordered = sorted(found, key=lambda each: (each.span.line, each.span.column, each.code))
    return Report(declarations.source, tuple(ordered))


def grave_warnings(declarations: Declarations) -> Report:
    """What nobody should fit without knowing, pedantic or not: kernels that are not positive definite."""
    if not declarations.kernels:
        return Report(declarations.source, ())
    from gpdsl.symbolic.kernel_checks import doubtful_kernels

    return Report(declarations.source, tuple(doubtful_kernels(declarations)))
