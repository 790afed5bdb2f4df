"""Which observations couple latents in the posterior, and their terms when all latents are correlated."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import sympy as sp

from gpdsl.symbolic.conditions import choose
from gpdsl.symbolic.expectations import additive_parts, has_external, latents_in, split_terms
from gpdsl.symbolic.numeric import degree_bound, evaluate
from gpdsl.symbolic.terms import ObservationTerms
from gpdsl.symbolic.translate import Translator, axis_key


def mixing(translator: Translator, observations: Sequence[ObservationTerms]) -> tuple[str, ...]:
    """Outputs whose log density has a term in several latents: these are correlated once the output is known."""
    found: list[str] = []
    for observation in observations:
        parts = additive_parts(translator, observation.log_density)
        for part in parts:
            refs = [translator.references[symbol] for symbol in latents_in(translator, part)]
            if len({(ref.name, ref.positions) for ref in refs}) > 1:  # several readings of one latent count once
                found += observation.outputs
    return tuple(dict.fromkeys(found))


def coupled_observations(
    translator: Translator, observations: Sequence[ObservationTerms], expectations: str
) -> tuple[ObservationTerms, ...]:
    """The same observations, with their terms computed under one Gaussian of all latents."""
    return tuple(
        replace(each, terms=split_terms(translator, each.log_density, expectations, coupled=True))
        for each in observations
    )


def quadratic(translator: Translator, densities: Sequence[sp.Expr]) -> bool:
    """Whether every log density is a polynomial of degree two at most in the latents together."""
    for density in densities:
        latents = latents_in(translator, density)
        if has_external(translator, density):
            return False
        if degree_bound(density, latents) <= 2:
            continue
        if not density.is_polynomial(*latents) or sp.Poly(density, *latents).total_degree() > 2:
            return False
    return True


# Which latents may change their signs together without a change of any density: a posterior has as many modes then.
#
# Densities are compared at random values of everything they read, which is quicker than a proof and as good: an
# equation between analytic functions that holds at random points holds.

POINTS, NEEDED = 12, 3
"""Random values of everything, and of how many a density has to be finite."""

SAME = 1e-9
"""Relative difference up to which densities are the same."""

MOST = 6
"""Latents of which all sets are tried; of more, one and two at a time."""


def mirrored(translator: Translator, observations: Sequence[ObservationTerms]) -> list[tuple[str, ...]]:
    """The smallest sets of declared latents, of those with mean zero, whose signs change no density."""
    densities = [each.log_density for each in observations]
    if any(has_external(translator, each) for each in densities):
        return []
    symbols = {s for density in densities for s in latents_in(translator, density)}
    read = {translator.references[s].name for s in symbols}
    names = [n for n, latent in translator.declarations.latents.items() if n in read and _centred(translator, latent)]
    found: list[tuple[str, ...]] = []
    for size in range(1, (len(names) if len(names) <= MOST else 2) + 1):
        for some in itertools.combinations(names, size):
            if not any(set(each) <= set(some) for each in found) and _even(translator, densities, symbols, some):
                found.append(some)
    return found


def _centred(translator: Translator, latent: object) -> bool:
    """Whether the prior mean of a latent is zero."""
    environment = {axis_key(axis): axis_key(axis) for axis in latent.axes}  # type: ignore[attr-defined]
    return bool(translator.scalar(latent.mean, environment) == 0)  # type: ignore[attr-defined]


def _even(
    translator: Translator, densities: Sequence[sp.Expr], latents: Collection[sp.Symbol], some: Collection[str]
) -> bool:
    """Whether every density is the same where these latents have the other sign."""
    rng, flipped = np.random.default_rng(0), {s for s in latents if translator.references[s].name in some}
    for density in itertools.chain.from_iterable(_branches(each, latents) for each in densities):
        symbols = sorted(density.free_symbols, key=str)
        if not flipped & set(symbols):
            continue
        drawn = {s: _values(translator, s, s in latents, rng) for s in symbols}
        other = {s: -v if s in flipped else v for s, v in drawn.items()}
        try:
            here, there = (np.broadcast_to(evaluate(density, each), (POINTS,)) for each in (drawn, other))
        except LookupError:  # something that has no value in NumPy
            return False
        known = np.isfinite(here)
        if known.sum() < NEEDED or not np.array_equal(known, np.isfinite(there)):
            return False
        if np.any(np.abs(here[known] - there[known]) > SAME * (1.0 + np.abs(here[known]))):
            return False
    return True


def _branches(density: sp.Expr, latents: Collection[sp.Symbol]) -> list[sp.Expr]:
    """A density with its conditions on anything but latents set: values drawn at random would meet few of them.

    All of them hold, or none, or each alone.
    """
    conditions = sorted({each.args[0] for each in density.atoms(choose)}, key=str)
    own = [each for each in conditions if not each.free_symbols & set(latents)]
    if not own:
        return [density]
    alone = [[each == one for each in own] for one in own]
    choices = [[True] * len(own), [False] * len(own), *alone]
    return [density.xreplace({c: sp.Integer(v) for c, v in zip(own, each, strict=True)}) for each in choices]


def _values(translator: Translator, symbol: sp.Symbol, latent: bool, rng: np.random.Generator) -> np.ndarray:
    """Random values: latents of either sign, anything else positive, and outputs that are counted whole."""
    if latent:
        return rng.standard_normal(POINTS)
    ref = translator.references.get(symbol)
    kind = translator.declarations.outputs[ref.name].kind if ref is not None and ref.kind == "output" else ""
    if kind in {"count", "binary", "label", "ordinal"}:
        return rng.integers(0, 2, POINTS).astype(float)
    return 0.1 + 0.8 * rng.random(POINTS)
