"""Which gradients sampled expectations have: through the samples, or from values alone, when the user says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpdsl.errors import GpdslError
from gpdsl.symbolic.expectations import Term, has_external
from gpdsl.symbolic.joint import correlated
from gpdsl.symbolic.terms import ObservationTerms
from gpdsl.symbolic.translate import Translator

SAMPLED = {"pathwise", "score"}


def with_gradients(
    translator: Translator, observations: Sequence[ObservationTerms], gradients: str
) -> tuple[ObservationTerms, ...]:
    """The observations with every sampled term estimated as `gradients` says: auto, pathwise or score.

    Raises GpdslError where that is impossible, or where nothing is sampled.
    """
    if gradients == "auto":
        return tuple(observations)
    if not any(term.method in SAMPLED for each in observations for term in each.terms):
        raise GpdslError(
            f"gradients = {gradients} is about expectations that are sampled, and all of this model's are exact; "
            "add expectations = sampled, or leave it out"
        )
    return tuple(
        replace(each, terms=tuple(_forced(translator, term, gradients) for term in each.terms)) for each in observations
    )


def _forced(translator: Translator, term: Term, gradients: str) -> Term:
    if term.method not in SAMPLED or term.method == gradients:
        return term
    if gradients == "pathwise":
        why = "an opaque function" if has_external(translator, term.expression) else "the jump of a condition"
        raise GpdslError(f"gradients = pathwise cannot pass through {why}; use gradients = auto or score")
    for symbols in correlated(translator, term.latents):
        name = translator.references[symbols[0]].name
        raise GpdslError(
            f"gradients = score takes one value of each latent in a row, and a term reads several of `{name}`: "
            f"{', '.join(s.name for s in symbols)}; use gradients = auto"
        )
    return replace(term, method="score", reason=f"values only, as asked ({term.reason})")
