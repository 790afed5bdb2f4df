"""What no log evidence exceeds: every observed value where its distribution has its highest density."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gpdsl.inference.problem import Problem
from gpdsl.program.rows import Scope, observed_mask
from gpdsl.symbolic.terms import ObservationTerms, output_value, with_law

SYMMETRIC = {"Normal", "StudentT", "Laplace", "Logistic"}
"""Laws whose density is highest at their mean, wherever that is."""

SLACK = 1e-3
"""Nats an observed value, for what samples and rounding are off by."""


def above_certainty(problem: Problem, learnt: Mapping[str, Array], value: float) -> str:
    """Why a log evidence cannot be, at unconstrained parameters; empty where it can, or nothing tells."""
    most = _most(problem, learnt)
    if not value > most + SLACK * problem.observed:
        return ""
    return f"; log Z is above {most:.6g}, which it would be if every latent were known and fitted best"


def _most(problem: Problem, learnt: Mapping[str, Array]) -> float:
    if np.isfinite(problem.ceiling):
        return problem.ceiling
    program, total = problem.program, 0.0
    parameters = program.parameters.constrain(dict(learnt))
    for observation in program.observations:
        best = _best(problem, observation)
        if best is None:
            return float("inf")
        values = program.evaluator(best.log_density, Scope(parameters, problem.rows), best.axes)
        total += float(jnp.sum(observed_mask(problem.rows, observation) * values))
    return total + float(program.log_prior(parameters))


def _best(problem: Problem, observation: ObservationTerms) -> ObservationTerms | None:
    """The observation where its mean is what is observed; None where that is not its best, or asks for latents."""
    law, translator = observation.law, problem.program.translator
    if law is None or law.name not in SYMMETRIC:
        return None
    mean = output_value(translator, observation)
    found = with_law(translator, observation, replace(law, arguments={**law.arguments, "mean": mean}))
    kinds = {translator.references[symbol].kind for symbol in found.log_density.free_symbols}
    return found if kinds <= {"input", "const", "param", "output", "index"} else None
