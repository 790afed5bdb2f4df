"""What algebra and numbers say about a checked model before there are data: mistakes and warnings of its formulas.

SymPy is loaded only for a model that has something to look at, so that checking the others stays fast.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpdsl.language import Reach, compile_text
from gpdsl.language.checker.left import suspect
from gpdsl.language.model import Declarations
from gpdsl.language.warnings import Report, find_warnings
from gpdsl.language.warnings.cautions import unbounded_priors


def compile_checked(
    text: str, name: str = "<model>", reach: Reach | None = None, library: bool = False
) -> Declarations:
    """The checked model of a text, with `library` also of one that has definitions only, which others use.

    Raises ModelError, also for a kernel by formula that is no covariance at all.
    """
    declarations = compile_text(text, name=name, reach=reach, library=library)
    if declarations.kernels:
        check_formulas(declarations)
    return declarations


def check_formulas(declarations: Declarations) -> None:
    """Raise ModelError with what is wrong with the formulas of a checked model."""
    if declarations.kernels:
        from gpdsl.symbolic.kernel_checks import check_kernels

        check_kernels(declarations)


def all_warnings(declarations: Declarations, spreads: Mapping[str, tuple[float, ...]] | None = None) -> Report:
    """Every warning about a checked model: those of the language, and those of its formulas."""
    found = (*find_warnings(declarations, spreads).warnings, *grave_warnings(declarations).warnings)
    ordered = sorted(dict.fromkeys(found), key=lambda each: (each.span.line, each.span.column, each.code))
    return Report(declarations.source, tuple(ordered))


def grave_warnings(declarations: Declarations) -> Report:
    """What nobody should fit without knowing, pedantic or not.

    Kernels that are not positive definite, densities that do not integrate to one over their output, prior densities
    without a bound.
    """
    found = list(unbounded_priors(declarations))
    if declarations.kernels:
        from gpdsl.symbolic.kernel_checks import doubtful_kernels

        found += doubtful_kernels(declarations)
    if any(suspect(declarations)):
        from gpdsl.symbolic.density_mass import doubtful_densities

        found += doubtful_densities(declarations)
    return Report(declarations.source, tuple(found))
