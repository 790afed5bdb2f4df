"""`waves(form, parameters, points, stream)`: random waves of any covariance function that has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import sympy as sp
from jaxtyping import Array, Float

from gpdsl.kernels.columns import selected
from gpdsl.kernels.counters import Stream
from gpdsl.kernels.form import Base, ByFormula, Form, On, Patches, Product, Scaled, Sum, block_of, count
from gpdsl.kernels.waves.families import STANDING, WAVES, Points, Waves, mixture, product
from gpdsl.kernels.waves.formulas import formula_waves, terms


def waves(form: Form, parameters: Sequence[Float[Array, "..."]], points: Points, stream: Stream) -> Waves:
    """Random waves of a covariance function with these parameters, in the form's order; differentiable in them.

    What a wave is made of depends on its index and the stream's seed alone.
    """
    return _waves(form, iter(parameters), points, stream)


def _waves(form: Form, parameters: Iterator[Array], points: Points, stream: Stream) -> Waves:
    match form:
        case Base():
            arguments = {name: next(parameters) for name in form.parameters} | dict(form.static)
            return WAVES[form.name](points, stream, **arguments)
        case ByFormula(formula=formula):
            return formula_waves(formula, [next(parameters) for _ in range(count(form))], points, stream)
        case On(numbers=numbers, kernel=kernel):
            return _waves(kernel, parameters, selected(form, [next(parameters) for _ in numbers], points), stream)
        case Scaled(kernel=kernel):
            factor = next(parameters)
            inner = _waves(kernel, parameters, points, stream)
            return Waves(factor * inner.power, inner.parts, inner.amplitude)
        case Product(factors=factors):
            return product([_waves(factor, parameters, points, stream) for factor in factors])
        case Sum(terms=terms):
            choice = stream.choices(len(terms))
            return mixture([_waves(term, parameters, points, stream) for term in terms], choice)
    raise TypeError(form)


def turning(form: Form) -> bool:
    """Whether any of the waves turns; where none does, their sines are zero and only cosines are features."""
    match form:
        case Base(name=name):
            return name not in STANDING
        case On(kernel=kernel) | Scaled(kernel=kernel) | Patches(kernel=kernel):
            return turning(kernel)
        case Sum(terms=parts) | Product(factors=parts):
            return any(map(turning, parts))
    return True


# Which part of a covariance function has no random waves, and why.


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
            if not formula.radial or formula.levels:
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
