"""A log density with what is known of the observed value put in: 0 or 1, one level of several, a count, one of n."""

from __future__ import annotations

import itertools

import sympy as sp

from gpdsl.symbolic.terms import ObservationTerms
from gpdsl.symbolic.translate import Translator

COUNT = sp.Symbol("count", integer=True, nonnegative=True)
FAILURES = sp.Symbol("failures", integer=True, nonnegative=True)
"""Trials of a binomial distribution that did not succeed."""


def outcomes(translator: Translator, observation: ObservationTerms) -> tuple[sp.Expr, ...]:
    """The log density for each outcome of an output that has few of them; one expression for the others."""
    density = observation.log_density
    refs = {symbol: translator.references[symbol] for symbol in density.free_symbols}
    own = [symbol for symbol, ref in refs.items() if ref.kind == "output" and ref.name in observation.outputs]
    levels = sorted((symbol for symbol, ref in refs.items() if ref.kind == "indicator"), key=str)
    if levels:
        chosen = [{symbol: sp.Integer(symbol == level) for symbol in levels} for level in levels]
        return tuple(density.subs(each) for each in chosen)
    kinds = {symbol: translator.declarations.outputs[refs[symbol].name].kind for symbol in own}
    values = {symbol: _values(observation, symbol, kind) for symbol, kind in kinds.items()}
    trials = _trials(observation)
    if isinstance(trials, sp.Symbol):
        density = density.subs(trials, COUNT + FAILURES)
    return tuple(density.subs(dict(zip(values, case, strict=True))) for case in itertools.product(*values.values()))


def _trials(observation: ObservationTerms) -> sp.Expr | None:
    law = observation.law
    return law.arguments["trials"] if law is not None and law.name == "Binomial" else None


def _values(observation: ObservationTerms, symbol: sp.Symbol, kind: str) -> tuple[sp.Expr, ...]:
    """The outcomes to look at: what is concave at the fewest and the most of known trials is so between them."""
    trials = _trials(observation)
    if kind == "binary":
        return sp.Integer(0), sp.Integer(1)
    if kind == "count":
        return (sp.Integer(0), trials) if trials is not None and trials.is_Number else (COUNT,)
    return (symbol,)
