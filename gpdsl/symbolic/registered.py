"""Distributions that users register: a log density and what else is given; numerical integrals for the rest."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import sympy as sp

from gpdsl.errors import GpdslError, described
from gpdsl.language import ModelError, compile_text, model as m
from gpdsl.language.errors.base import Mistake
from gpdsl.symbolic.counts import Curve
from gpdsl.symbolic.densities import Arguments, Array, Density, Formula, Values
from gpdsl.symbolic.functions import expm1, lgamma, log1mexp
from gpdsl.symbolic.numeric import TABLE, evaluate
from gpdsl.symbolic.stable import Tails, generic, stable
from gpdsl.symbolic.standard import curve_of
from gpdsl.symbolic.translate import Translator

AT_ONCE = 4096
"""Distributions integrated together."""

LEAST = 1e-11
"""Of a share, below which the integral of a density does not tell where it is reached."""

ENDS = {"real": (-np.inf, np.inf), "positive": (0.0, np.inf), "unit": (0.0, 1.0), "count": (0.0, np.inf)}


@dataclass(frozen=True, eq=False)
class Written:
    """A formula of a value and of arguments, and as what a file would define it, where it is text."""

    y: sp.Symbol
    symbols: Mapping[str, sp.Symbol]
    formula: Formula
    definition: m.Density | None = None

    def __call__(self, y: Formula, a: Arguments) -> Formula:
        """The formula of other values."""
        return self.formula.xreplace({self.y: y, **{self.symbols[name]: value for name, value in a.items()}})

    def values(self, y: Array, a: Values) -> Array:
        """Its values, elementwise."""
        table = {self.y: y, **{self.symbols[name]: value for name, value in a.items()}}
        return np.broadcast_to(
            evaluate(self.formula, table), np.broadcast_shapes(np.shape(y), *map(np.shape, a.values()))
        )


@dataclass(frozen=True, eq=False)
class Registration:
    """What a distribution is registered with, and how its messages begin."""

    name: str
    parameters: Mapping[str, str]
    support: str

    def fail(self, what: str) -> GpdslError:
        """The error to raise."""
        return GpdslError(f"register_distribution({self.name!r}): {what}")

    def said(self, density: Written) -> str:
        """What it is, in one line, whether it was given as text or as a function."""
        plain = {symbol: sp.Symbol(name) for name, symbol in {**density.symbols, "y": density.y}.items()}
        declared = ", ".join(f"{name}: {kind}" for name, kind in self.parameters.items())
        return f"{self.name}({declared}) of {self.support} y: {density.formula.xreplace(plain)}"

    def text(self, what: str, text: str) -> Written:
        """A formula in the words of the language; a mistake in it is told with its place in this text."""
        words = {"count": "input {} : count"}
        declared = [words.get(kind, "param {} : " + kind).format(name) for name, kind in self.parameters.items()]
        passed = ", ".join(self.parameters)
        before = f"density {self.name}(y | {passed}) = "
        lines = [f"output y : {self.support}", *declared, before + re.sub(r"\s", " ", text)]
        try:
            declarations = compile_text("\n".join([*lines, f"y ~ {self.name}({passed})"]))
        except ModelError as error:
            raise self.mistaken(what, text, error.diagnostics[0], len(before)) from None
        translator, (observation,) = Translator(declarations, {}), declarations.observations
        assert observation.distribution.log_density is not None
        formula = translator.scalar(observation.distribution.log_density, {})
        y = translator.output(observation.outputs[0], ())
        arguments = observation.distribution.arguments
        symbols = {each: translator.scalar(arguments[each], {}) for each in self.parameters}
        return Written(y, symbols, formula, declarations.densities[self.name])

    def mistaken(self, what: str, text: str, mistake: Mistake, before: int) -> GpdslError:
        """A mistake in a text that stands behind so many characters of its line."""
        known = text[: max(mistake.span.column - 1 - before, 0)]
        line, column = known.count("\n") + 1, len(known) - (known.rfind("\n") + 1) + 1
        shown = text.split("\n")[line - 1]
        caret = f"{' ' * (column - 1)}^ expected an expression of the language in {', '.join(['y', *self.parameters])}"
        said = mistake.message_text()
        return self.fail(f"line {line}, column {column} of its {what}: {said}\n  {shown}\n  {caret}")

    def function(self, what: str, function: Callable[..., Any]) -> Written:
        """A formula by a function of SymPy symbols, in declared order."""
        above = ("positive", "unit")
        y = sp.Symbol("y", positive=True) if self.support in above else sp.Symbol("y", real=True)
        symbols = {
            name: sp.Symbol(name, positive=True) if kind in above else sp.Symbol(name, real=True)
            for name, kind in self.parameters.items()
        }
        self.check_arity(what, function, ("y", *self.parameters))
        try:
            formula = function(y, *symbols.values())
        except Exception as problem:
            text = f"its {what} is called with SymPy symbols, and failed: {described(problem)}"
            raise self.fail(f"{text}; write it with `sympy.log` and so on, or as text") from problem
        if not isinstance(formula, sp.Expr):
            raise self.fail(
                f"its {what} is a {type(formula).__name__}, expected a SymPy expression; or write it as text"
            )
        formula = formula.replace(sp.loggamma, lgamma)
        for node in sp.preorder_traversal(formula):
            if not isinstance(node, sp.Symbol | sp.Number | sp.NumberSymbol) and node.func not in TABLE:
                said = f"its {what} has `{node.func.__name__}`, which cannot be computed here"
                raise self.fail(f"{said}; write it as text, in the functions of the language")
        if foreign := formula.free_symbols - {y, *symbols.values()}:
            raise self.fail(f"its {what} has the symbol `{min(map(str, foreign))}`, which is no argument of it")
        return Written(y, symbols, formula)

    def check_arity(self, what: str, function: object, names: tuple[str, ...]) -> None:
        """Raise GpdslError for what cannot be called with these arguments; compiled functions may not say."""
        if not callable(function):
            raise self.fail(f"its {what} is of type {type(function).__name__}, expected text or a function")
        try:
            inspect.signature(function).bind(*names)
        except ValueError:
            return
        except TypeError:
            raise self.fail(f"its {what} takes {inspect.signature(function)}, expected ({', '.join(names)})") from None

    def numbers(self, what: str, first: str, function: Callable[..., Any]) -> Callable[[Any, Values], Array]:
        """A NumPy function of `first` and the arguments in declared order, whose failures are told as the user's."""
        self.check_arity(what, function, (first, *self.parameters) if first else tuple(self.parameters))

        def called(at: Any, a: Values) -> Array:
            given = [np.asarray(a[name], float) for name in self.parameters]
            shape = np.broadcast_shapes(*(each.shape for each in given), np.shape(at) if first in ("y", "p") else ())
            try:
                with np.errstate(all="ignore"):
                    found = np.asarray(function(*([at] if first else []), *given), float)
                return np.broadcast_to(found, shape)
            except Exception as problem:
                expected = f"expected numbers of shape {shape} for arguments of that shape"
                raise self.fail(f"its {what} failed: {described(problem)}; {expected}") from problem

        return called


@dataclass(frozen=True, eq=False)
class Integrals:
    """What follows from a log density alone, at arrays of arguments: by the panels of a `density` of a file."""

    density: Written
    kind: str
    kept: dict[str, Any] = field(default_factory=dict)

    def each(self, a: Values) -> Iterator[tuple[slice, Curve]]:
        """The distributions at the elements of flat arguments, some at a time."""
        size = len(next(iter(a.values())))
        before = self.kept.get("arguments")
        if before is not None and all(np.array_equal(before[name], value) for name, value in a.items()):
            yield slice(size), self.kept["curve"]
            return
        for start in range(0, size, AT_ONCE):
            part = slice(start, start + AT_ONCE)
            known = {name: value[part] for name, value in a.items()}
            count = len(next(iter(known.values())))
            leaves = {self.density.symbols[name]: value for name, value in known.items()}
            found = curve_of(self.density.formula, self.density.y, leaves, count, self.kind)
            if count == size:  # quantiles of the same distributions are asked for many times
                self.kept.update(arguments=known, curve=found)
            yield part, found

    def moments(self, a: Values) -> tuple[Array, Array]:
        """Mean and variance."""
        flat, shape = _flat(a)
        found = [each.moments() for _, each in self.each(flat)]
        mean, variance = (np.concatenate(parts).reshape(shape) for parts in zip(*found, strict=True))
        return mean, variance

    def quantile(self, p: Array, a: Values) -> Array:
        """The smallest value whose distribution function reaches p."""
        flat, shape = _flat({**a, "of p": p})
        share = flat.pop("of p")
        if self.kind != "count":
            share = np.clip(share, LEAST, 1 - LEAST)
        return np.concatenate([each.quantile(share[part]) for part, each in self.each(flat)]).reshape(shape)


def _flat(a: Values) -> tuple[dict[str, Array], tuple[int, ...]]:
    full = np.broadcast_arrays(*(np.asarray(each, float) for each in a.values()))
    return {name: each.reshape(-1) for name, each in zip(a, full, strict=True)}, full[0].shape


def law_of(registration: Registration, log_density: Any, given: Mapping[str, Any]) -> tuple[Density, Tails | None]:
    """The mathematics of a registered distribution, and its tails where its distribution function is a text."""
    r = registration
    build = r.text if isinstance(log_density, str) else r.function
    density = build("log density", log_density)
    integrals = Integrals(replace(density, formula=stable(density.formula)), r.support)
    texts = {what: r.text(what, value) for what, value in given.items() if isinstance(value, str)}
    for what in ("mean", "variance"):
        if what in texts and texts[what].y in texts[what].formula.free_symbols:
            raise r.fail(f"its {what} is no formula of y; write it in {', '.join(r.parameters)}")
    for what in ("quantile", "sampler"):
        if what in texts:
            raise r.fail(f"its {what} is text, expected a NumPy function")
    known = {what for what, value in given.items() if value is not None}
    moments = {what: _moment(r, texts, what, given[what]) for what in ("mean", "variance") if what in known}
    cdf = _cdf(r, texts, given["cdf"]) if "cdf" in known else None
    quantile = r.numbers("quantile", "p", given["quantile"]) if "quantile" in known else integrals.quantile
    sampler = r.numbers("sampler", "generator", given["sampler"]) if "sampler" in known else None

    def numerically(a: Values) -> tuple[Array, Array]:
        mean, variance = integrals.moments(a) if len(moments) < 2 else (None, None)
        found = {"mean": mean, "variance": variance} | {what: function(a) for what, function in moments.items()}
        return np.asarray(found["mean"]), np.asarray(found["variance"])

    def draw(generator: np.random.Generator, a: Values) -> Array:
        if sampler is not None:
            return sampler(generator, a)
        return quantile(generator.random(np.broadcast_shapes(*map(np.shape, a.values()))), a)

    def formula(what: str) -> Callable[[Arguments], Formula] | None:
        return (lambda a: texts[what](texts[what].y, a)) if what in texts else None

    formulas = formula("mean"), formula("variance")
    law = Density(density, *formulas, cdf, draw, numerically, quantile)
    law = replace(law, definition=density.definition, sampled=sampler is not None, said=r.said(density))
    bounded = "cdf" in texts and r.support != "count"
    return law, _tails(texts["cdf"], positive=r.support == "positive") if bounded else None


def _moment(r: Registration, texts: Mapping[str, Written], what: str, given: Any) -> Callable[[Values], Array]:
    if what in texts:
        return lambda a: texts[what].values(np.zeros(()), a)
    called = r.numbers(what, "", given)
    return lambda a: called(None, a)


def _cdf(r: Registration, texts: Mapping[str, Written], given: Any) -> Callable[[Array, Values], Array]:
    """The distribution function inside of the support, beyond it 0 or 1."""
    inside = texts["cdf"].values if "cdf" in texts else r.numbers("cdf", "y", given)
    low, high = ENDS[r.support]
    typical = 0.5 if r.support == "unit" else 1.0

    def cdf(y: Array, a: Values) -> Array:
        y = np.floor(y) if r.support == "count" else np.asarray(y, float)
        within = (y >= low if r.support == "count" else y > low) & (y < high)
        found = np.clip(inside(np.where(within, y, typical), a), 0.0, 1.0)
        return np.where(within, found, np.where(y >= high, 1.0, 0.0))

    return cdf


def _tails(cdf: Written, *, positive: bool) -> Tails:
    def below(y: Formula, a: Arguments) -> Formula:
        return _log(cdf(y, a))

    def above(y: Formula, a: Arguments) -> Formula:
        return _log(1 - cdf(y, a))

    return generic(below, above, positive=positive)


def _log(chance: Formula) -> Formula:
    """The logarithm of a probability; of 1 - exp(u) without cancellation."""
    chance = chance.replace(expm1, lambda u: sp.exp(u) - 1)
    rest = 1 - chance
    return log1mexp(-rest.args[0]) if isinstance(rest, sp.exp) else sp.log(chance)
