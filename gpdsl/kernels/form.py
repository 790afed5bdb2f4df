"""The static shape of a covariance function, apart from its numbers: equal forms are computed in one batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import sympy as sp

from gpdsl.symbolic.kernel_formula import Formula


@dataclass(frozen=True)
class Base:
    """A kernel of the table; `parameters` are its numeric arguments in order, `static` its literal ones.

    `shapes` are those of parameters that are arrays, which must agree to be computed in one batch.
    """

    name: str
    parameters: tuple[str, ...]
    static: tuple[tuple[str, int], ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class ByFormula:
    """A kernel by formula; its parameters are those of the formula."""

    formula: Formula
    name: str = field(compare=False)


@dataclass(frozen=True)
class On:
    """A kernel of other columns than the input's own: `columns` of the symbols of `block` and `numbers`.

    Takes the numbers before the parameters of the kernel.
    """

    columns: tuple[sp.Expr, ...]
    numbers: tuple[str, ...]
    kernel: Form


@dataclass(frozen=True)
class Patches:
    """The mean of a kernel over all pairs of patches of two images; heights and widths.

    `weighted`: it takes the weights of the patches before the parameters of the kernel.
    """

    kernel: Form
    image: tuple[int, int]
    patch: tuple[int, int]
    weighted: bool = False


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


Form = Base | ByFormula | On | Patches | Scaled | Sum | Product


def count(form: Form) -> int:
    """How many parameters it takes."""
    match form:
        case Base(parameters=parameters):
            return len(parameters)
        case ByFormula(formula=formula):
            return len(formula.parameters)
        case On(numbers=numbers, kernel=kernel):
            return len(numbers) + count(kernel)
        case Patches(kernel=kernel, weighted=weighted):
            return weighted + count(kernel)
        case Scaled(kernel=kernel):
            return 1 + count(kernel)
        case Sum(terms=parts) | Product(factors=parts):
            return sum(count(part) for part in parts)


def shaping(form: Form) -> Iterator[bool]:
    """Whether each of its parameters is a length-scale or of a formula, and no size of a part."""
    match form:
        case Base(parameters=parameters):
            yield from (name == "ell" for name in parameters)
        case ByFormula(formula=formula):
            yield from (True for _ in formula.parameters)
        case On(kernel=kernel) | Patches(kernel=kernel) | Scaled(kernel=kernel):
            yield from (False for _ in range(count(form) - count(kernel)))
            yield from shaping(kernel)
        case Sum(terms=parts) | Product(factors=parts):
            for part in parts:
                yield from shaping(part)


def inside(form: Form) -> Iterator[Form]:
    """It, and all that it is made of."""
    yield form
    match form:
        case On(kernel=kernel) | Patches(kernel=kernel) | Scaled(kernel=kernel):
            yield from inside(kernel)
        case Sum(terms=parts) | Product(factors=parts):
            for part in parts:
                yield from inside(part)


def has_white(form: Form) -> bool:
    """Whether white noise is a part of it."""
    return any(isinstance(part, Base) and part.name == "White" for part in inside(form))


def only_white(form: Form) -> bool:
    """Whether values at different points are all independent: white noise makes products with it independent too."""
    match form:
        case Scaled(kernel=kernel) | On(kernel=kernel):
            return only_white(kernel)
        case Sum(terms=parts):
            return all(map(only_white, parts))
        case Product(factors=parts):
            return any(map(only_white, parts))
    return has_white(form)


def telling(form: Form, width: int) -> frozenset[int]:
    """Those of `width` columns of which different values make a process independent: what `Same` looks at."""
    match form:
        case Base(name="Same"):
            return frozenset(range(width))
        case Scaled(kernel=kernel):
            return telling(kernel, width)
        case On(columns=columns, kernel=Base(name="Same")):
            blocks = [block_of(each) if isinstance(each, sp.Symbol) else None for each in columns]
            return frozenset(k for found in blocks if found is not None for k in range(*found))
        case Sum(terms=parts):
            return frozenset.intersection(*[telling(part, width) for part in parts])
        case Product(factors=parts):
            return frozenset.union(*[telling(part, width) for part in parts])
    return frozenset()


def block(start: int, stop: int) -> sp.Symbol:
    """The symbol of columns `start` to `stop`, counted from 0, the last not included."""
    return sp.Symbol(f"column[{start}:{stop}]", real=True)


def block_of(symbol: sp.Symbol) -> tuple[int, int] | None:
    """The columns a symbol stands for, or None for a number."""
    if not symbol.name.startswith("column["):
        return None
    start, _, stop = symbol.name[len("column[") : -1].partition(":")
    return int(start), int(stop)


def columns_read(form: Form, width: int) -> frozenset[int]:
    """The columns that a kernel over so many reads."""
    match form:
        case Base(name="Constant"):
            return frozenset()
        case On(columns=columns):
            known = [block_of(symbol) for each in columns for symbol in each.free_symbols]
            return frozenset(k for each in known if each is not None for k in range(*each))
        case Scaled(kernel=kernel):
            return columns_read(kernel, width)
        case Sum(terms=parts) | Product(factors=parts):
            return frozenset.union(*[columns_read(part, width) for part in parts])
    return frozenset(range(width))


def picked(form: On) -> list[int] | None:
    """The columns that a kernel is a function of, if it takes them as they are."""
    known = [block_of(each) if isinstance(each, sp.Symbol) else None for each in form.columns]
    if form.numbers or None in known:
        return None
    return [k for each in known if each is not None for k in range(*each)]


def describe(form: Form) -> str:
    """The form in the language's words, for `explain`."""
    match form:
        case Base(name=name, parameters=parameters):
            return f"{name}({', '.join(parameters)})"
        case ByFormula(name=name, formula=formula):
            return f"{name}({', '.join(formula.parameters)})"
        case On(columns=columns, kernel=kernel):
            what = "column" if len(columns) == 1 else "columns"
            return f"{describe(kernel)} on {len(columns)} {what}, selected or computed"
        case Patches(kernel=kernel, patch=(height, width), weighted=weighted):
            return f"Patch({describe(kernel)}, {height} by {width}{', weighted' if weighted else ''})"
        case Scaled(kernel=kernel):
            return f"c * {describe(kernel)}"
        case Sum(terms=terms):
            return " + ".join(describe(t) for t in terms)
        case Product(factors=factors):
            return " * ".join(f"({describe(f)})" if isinstance(f, Sum) else describe(f) for f in factors)
