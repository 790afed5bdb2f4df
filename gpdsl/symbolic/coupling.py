"""Which observations couple latents in the posterior, and their terms when all latents are correlated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import sympy as sp

from gpdsl.symbolic.expectations import additive_parts, has_external, latents_in, split_terms
from gpdsl.symbolic.polynomials import degree_bound
from gpdsl.symbolic.terms import ObservationTerms
from gpdsl.symbolic.translate import Translator


def mixing(translator: Translator, observations: Sequence[ObservationTerms]) -> tuple[str, ...]:
    """Outputs whose log density has a term in several latents: these are correlated once the output is known."""
    found: list[str] = []
    for observation in observations:
        parts = additive_parts(translator, observation.log_density)
        if any(len(_processes(translator, part)) > 1 for part in parts):
            found += observation.outputs
    return tuple(dict.fromkeys(found))


def _processes(translator: Translator, part: sp.Expr) -> set[tuple]:
    """The latents in a term, several readings of one counting once."""
    refs = [translator.references[symbol] for symbol in latents_in(translator, part)]
    return {(ref.name, ref.positions) for ref in refs}


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
