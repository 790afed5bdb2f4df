"""Log densities of rows at draws of their latents, through opaque functions too."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from gpdsl.inference.estimators.expected_log_likelihood import log_density
from gpdsl.inference.fields.calls import field_samples
from gpdsl.inference.opaque.values import Values, arguments_of, evaluate_externals
from gpdsl.program.program import Program
from gpdsl.results.expectation import Beliefs, sample_latents
from gpdsl.results.simulations import Simulations
from gpdsl.symbolic.terms import has_external
from gpdsl.symbolic.translate import ExternalUse

SAMPLES = 4096
OPAQUE_SAMPLES = 1024


def log_densities(beliefs: Beliefs, latents: Array, externals: dict[str, Array]) -> Float[Array, "S K rows"]:
    """log p(y_n | f_n) of every row at these latents."""
    shape = (*latents.shape[:2], beliefs.count)
    return log_density(beliefs.program, beliefs.scope(latents, externals), shape)


def log_average(values: Float[Array, "S K rows"]) -> Float[Array, "K rows"]:
    """The logarithm of the mean of densities over draws."""
    return logsumexp(values, axis=0) - jnp.log(values.shape[0])


def drawn_log_densities(beliefs: Beliefs) -> Float[np.ndarray, "S K rows"]:
    """log p(y_n | f_n) of every row at draws of its latents from each component."""
    if is_opaque(beliefs.program):
        return np.asarray(opaque_log_densities(beliefs))
    latents, _ = sample_latents(beliefs, SAMPLES, need_externals=False)
    compute = beliefs.compile("densities", lambda numbers, at: log_densities(beliefs.with_numbers(numbers), at, {}))
    return np.asarray(compute(beliefs.numbers(), latents))


def is_opaque(program: Program) -> bool:
    """Whether rows have densities by samples alone: through opaque functions, or fields."""
    densities = [o.log_density for o in program.observations]
    return bool(program.fields) or any(has_external(program.translator, d) for d in densities)


def opaque_log_densities(beliefs: Beliefs) -> Float[Array, "S K rows"]:
    """The same at draws, through opaque functions, called in between at as many samples as the budget allows."""
    simulations, count = beliefs.simulations, OPAQUE_SAMPLES
    if simulations is None or not simulations.uses:
        if simulations is not None:
            count = simulations.likelihood_samples(beliefs, count)
        latents, externals = sample_latents(beliefs, count, need_externals=False)
    else:
        latents, externals = sample_latents(beliefs, count, need_externals=True)
        allowed = simulations.likelihood_samples(beliefs, len(latents))
        some = np.arange(allowed) * len(latents) // allowed  # of all sets
        latents, externals = latents[some], {key: value[some] for key, value in externals.items()}
    if simulations is not None and simulations.likelihoods:
        externals |= _likelihood_values(beliefs, simulations, latents, externals)
    return log_densities(beliefs, latents, externals)


def _likelihood_values(
    beliefs: Beliefs, simulations: Simulations, latents: Array, externals: dict[str, Array]
) -> dict[str, Array]:
    program, uses = simulations.program, simulations.likelihoods
    if program.fields:
        return field_samples(program, uses, beliefs.parameters, beliefs.rows, latents[:, 0, 0], externals)[1]

    def arguments(use: ExternalUse, known: Values) -> list[Array]:
        return arguments_of(program, use, beliefs.parameters, beliefs.rows, latents, {**externals, **known})

    return evaluate_externals(program, uses, arguments)
