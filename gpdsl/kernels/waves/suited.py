"""Which part of a covariance function has no random waves, and why."""

from __future__ import annotations

import sympy as sp

from gpdsl.kernels.form import Base, ByFormula, Form, On, Patches, Product, Scaled, Sum, block_of
from gpdsl.kernels.waves.families import WAVES
from gpdsl.kernels.waves.formulas import terms


def unsuited(form: Form, columns: int) -> str | None:
    """The first part without random waves over this many columns of input, in words; None when all have them."""
    match form:
        case Base(name="White"):
            return "`White` is no function of the input: put independent noise into the likelihood"
        case Base(name="ArcCosine", static=static) if dict(static)["order"] == 0:
            return "the waves of `ArcCosine(order = 0)` are steps, without a derivative in its parameters"
        case Base(name=name):
            return None if name in WAVES else f"`{name}` has no known spectral density"
        case ByFormula(formula=formula, name=name):
            if not formula.radial:
                return f"`{name}` is a formula that does not depend on the distance between its points alone"
            known = terms(formula.expression, columns) is not None
            return None if known else f"no spectral density of the formula `{name}` is known that is nowhere negative"
        case Patches():
            return "`Patch` is a mean over patches, of which no single frequency is drawn"
        case On(columns=some, kernel=kernel):
            return unsuited(kernel, sum(map(_width, some)))
        case Scaled(kernel=kernel):
            return unsuited(kernel, columns)
        case Sum(terms=parts) | Product(factors=parts):
            return next((why for part in parts if (why := unsuited(part, columns)) is not None), None)


def _width(column: sp.Expr) -> int:
    """How many columns one expression of `on` gives."""
    blocks = [found for symbol in column.free_symbols if (found := block_of(symbol)) is not None]
    return max((stop - start for start, stop in blocks), default=1)
