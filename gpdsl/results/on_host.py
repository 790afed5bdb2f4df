"""Polynomials in moments, parameters and inputs, evaluated where these are: nothing is compiled for them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import sympy as sp
from jaxtyping import Float

from gpdsl.lowering.table import align
from gpdsl.program.rows import gathered
from gpdsl.results.integrals import shape_of
from gpdsl.symbolic.functions import log_ndtr_interval, ndtr
from gpdsl.symbolic.gaussian import moments_of, pull_exponentials
from gpdsl.symbolic.joint import correlated, independent_expectation
from gpdsl.symbolic.numeric import evaluate
from gpdsl.symbolic.reduced import Ref
from gpdsl.symbolic.terms import latents_in

if TYPE_CHECKING:
    from gpdsl.results.expectation import Beliefs

HALF = sp.Rational(1, 2)

OPERATIONS, POWERS = 256, 64
"""Of a formula that is evaluated here, and up to which power: a larger one is compiled."""


def polynomial_mean(
    beliefs: Beliefs, expression: sp.Expr, keys: tuple[str, ...], given: Mapping[sp.Symbol, Any]
) -> Float[np.ndarray, "K rows *keys"] | None:
    """E[expression] under each component, where it is a polynomial in what is on the host; None for anything else."""
    translator, marginals = beliefs.program.translator, beliefs.marginals
    unknown = sp.Tuple(*(expression.free_symbols - given.keys()))
    latents = latents_in(translator, unknown)
    dependent = len(latents) > 1 and (marginals.covariance is not None or bool(correlated(translator, latents)))
    if dependent or (latents and marginals.together):
        return None
    formula = _closed(expression, latents)
    if formula is None:
        return None
    moments = moments_of(latents)
    tables = (
        {moments.mean[s]: (s, marginals.mean) for s in latents},
        {moments.variance[s]: (s, marginals.variance) for s in latents},
    )
    read = {symbol: which for table in tables for symbol, which in table.items()}
    others = formula.free_symbols - given.keys() - read.keys()
    sources = {symbol: source_of(beliefs, symbol, keys) for symbol in others}
    if any(values is None for values in sources.values()):
        return None

    def value_of(symbol: sp.Symbol) -> Any:
        if symbol in given:
            return np.asarray(given[symbol])
        if symbol in read:
            latent, values = read[symbol]
            return beliefs.program.evaluator.of_latent(latent, np.asarray(values), keys)
        return sources[symbol]

    value = evaluate(formula, {symbol: value_of(symbol) for symbol in formula.free_symbols})
    value = np.asarray(value, np.asarray(marginals.mean).dtype)
    return np.broadcast_to(value, shape_of(beliefs, value, keys))


@functools.lru_cache(maxsize=1024)
def _closed(expression: sp.Expr, latents: tuple[sp.Symbol, ...]) -> sp.Expr | None:
    """The expectation by independent latents in their moments, where it is a polynomial of few operations."""
    pulled = pull_exponentials(expression)
    formula = independent_expectation(pulled, latents, False, True) if latents else expression
    return formula if formula is not None and _is_plain(formula) else None


def _is_plain(formula: sp.Expr) -> bool:
    nodes = list(sp.preorder_traversal(formula))
    return len(nodes) <= OPERATIONS and all(
        isinstance(each, sp.Add | sp.Mul | sp.Symbol | sp.Number | ndtr | log_ndtr_interval)
        or (isinstance(each, sp.Pow) and each.exp.is_Integer and 0 < int(each.exp) <= POWERS)
        or (isinstance(each, sp.Pow) and each.exp == -HALF and each.base.is_positive)
        or (isinstance(each, sp.exp) and isinstance(each.args[0], log_ndtr_interval))
        for each in nodes
    )


def source_of(beliefs: Beliefs, symbol: sp.Symbol, keys: tuple[str, ...]) -> np.ndarray | None:
    """The values [..., *keys] of a symbol, where it is a parameter, a constant or an input; None of any other."""
    ref = beliefs.program.translator.references.get(symbol)
    whole = None if ref is None else _whole(beliefs, ref)
    return None if ref is None or whole is None else align(whole, ref.positions, keys)


def _whole(beliefs: Beliefs, ref: Ref) -> np.ndarray | None:
    match ref.kind:
        case "param":
            return np.asarray(beliefs.parameters[ref.name])
        case "const":
            const = beliefs.program.declarations.consts[ref.name]
            return np.broadcast_to(np.asarray(const.values), beliefs.program.translator.shape(const.axes))
        case "input":
            return np.asarray(beliefs.rows.inputs[ref.name])
        case "gathered" if ref.name in beliefs.parameters:
            return gathered(np.asarray(beliefs.parameters[ref.name]), ref, beliefs.rows.inputs)
    return None
