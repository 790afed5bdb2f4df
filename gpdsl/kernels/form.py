"""The static shape of a covariance function, apart from its numbers: equal forms are computed in one batch."""

from __future__ import annotations

from dataclasses import dataclass

from gpdsl.language import model as m


@dataclass(frozen=True)
class Base:
    """A kernel of the table; `parameters` are its numeric arguments in order, `static` its literal ones."""

    name: str
    parameters: tuple[str, ...]
    static: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Scaled:
    """A variance times a kernel; takes one parameter before those of the kernel."""

    kernel: Form


@dataclass(frozen=True)
class Sum:
    """Sum of kernels; parameters in order of the terms."""

    terms: tuple[Form, ...]


@dataclass(frozen=True)
class Product:
    """Product of kernels; parameters in order of the factors."""

    factors: tuple[Form, ...]


Form = Base | Scaled | Sum | Product

STATIC_ARGUMENTS = {"Polynomial": ("degree",)}


@dataclass(frozen=True)
class Canonical:
    """`variance × form`: every factor that multiplies the whole kernel is taken out of it.

    Latents whose forms and parameters agree then share one factorisation, whatever their variances.
    """

    factors: tuple[m.Expression, ...]
    form: Form
    arguments: tuple[m.Expression, ...]


def canonical(kernel: m.Kernel) -> Canonical:
    """Split a checked kernel into its overall variance, its form and its parameter expressions."""
    match kernel:
        case m.KernelCall(name=name, arguments=arguments):
            static = STATIC_ARGUMENTS.get(name, ())
            literal = tuple((k, _integer(arguments[k])) for k in static if k in arguments)
            numeric = {k: a for k, a in arguments.items() if k not in static}
            return Canonical((), Base(name, tuple(numeric), literal), tuple(numeric.values()))
        case m.KernelScale(factor=factor, kernel=inner):
            part = canonical(inner)
            return Canonical((factor, *part.factors), part.form, part.arguments)
        case m.KernelProduct(factors=factors):
            parts = [canonical(f) for f in factors]
            return Canonical(
                tuple(f for p in parts for f in p.factors),
                Product(tuple(p.form for p in parts)),
                tuple(a for p in parts for a in p.arguments),
            )
        case m.KernelSum(terms=terms):
            inside = [_within_sum(canonical(t)) for t in terms]
            return Canonical((), Sum(tuple(form for form, _ in inside)), tuple(a for _, group in inside for a in group))
    raise TypeError(f"not a kernel: {type(kernel).__name__}")


def _within_sum(part: Canonical) -> tuple[Form, tuple[m.Expression, ...]]:
    form = part.form
    for _ in part.factors:
        form = Scaled(form)
    return form, (*part.factors, *part.arguments)


def _integer(expression: m.Expression) -> int:
    if isinstance(expression, m.Number) and float(expression.value).is_integer():
        return int(expression.value)
    raise TypeError("the checker admits only literal integers here")


def describe(form: Form) -> str:
    """The form in the language's words, for `explain`."""
    match form:
        case Base(name=name, parameters=parameters):
            return f"{name}({', '.join(parameters)})"
        case Scaled(kernel=kernel):
            return f"c * {describe(kernel)}"
        case Sum(terms=terms):
            return " + ".join(describe(t) for t in terms)
        case Product(factors=factors):
            return " * ".join(f"({describe(f)})" if isinstance(f, Sum) else describe(f) for f in factors)
