"""Covariances between rows of what is linear in the latents: exact, for the Gaussian or the mixture that q is."""

from __future__ import annotations

from functools import partial

import jax.numpy as jnp
import numpy as np
import sympy as sp
from jaxtyping import Float

from gpdsl.errors import GpdslError
from gpdsl.program.joint import basis_columns
from gpdsl.results import expectation as ex
from gpdsl.results.draws import Together, sizes_of
from gpdsl.results.named import is_output, of_output, of_quantity
from gpdsl.symbolic.sources import marginal
from gpdsl.symbolic.terms import ObservationTerms, has_external, latents_in

Keys = tuple[str, ...]


class NotLinearError(Exception):
    """An expression has slopes in the latents that depend on them, or a law is not normal."""


def covariances(together: Together, name: str) -> Float[np.ndarray, "rows *axes rows *axes"]:
    """Of a latent, a let or an output. Raises GpdslError where that is not linear in the latents."""
    beliefs = together.beliefs
    try:
        if not is_output(beliefs, name):
            return together.covariance(of_quantity(beliefs, name, partial(slopes_of, beliefs)))
        found = together.covariance(of_output(beliefs, name, partial(_mean_slopes, beliefs)))
        noise = of_output(beliefs, name, partial(_noise, beliefs))
    except NotLinearError as problem:
        raise GpdslError(
            f"covariance of `{name}`: it is not linear in the latents, or its noise is not normal, so that there is no "
            f"formula; np.cov(prediction.draws({name!r}, 4000).T) estimates it"
        ) from problem
    return found + np.diag(noise.ravel()).reshape(found.shape)


def slopes_of(beliefs: ex.Beliefs, expression: sp.Expr, keys: Keys) -> Float[np.ndarray, "columns rows *keys"]:
    """Slopes of an expression in all that is read of the latents."""
    program = beliefs.program
    translator, basis = program.translator, basis_columns(program)
    places = np.zeros(program.latents, int)
    places[basis] = np.arange(len(basis))
    numbers = np.arange(len(basis)).reshape(-1, 1, *(1,) * len(keys))
    total = np.zeros((len(basis), beliefs.count, *(1,) * len(keys)))
    if has_external(translator, expression):
        raise NotLinearError
    for symbol in latents_in(translator, expression):
        slope = sp.diff(expression, symbol)
        if latents_in(translator, slope):
            raise NotLinearError
        value = np.asarray(program.evaluator(slope, beliefs.scope(), keys), float)
        column = np.asarray(program.evaluator.of_latent(symbol, jnp.asarray(places)[None], keys))
        total = total + np.where(numbers == column, value, 0.0)
    return total


def _normal(beliefs: ex.Beliefs, o: ObservationTerms) -> dict[str, sp.Expr]:
    """The arguments of a statement whose noise is normal and the same whatever the latents."""
    program = beliefs.program
    known = marginal(program.translator, program.observations, o)
    if known is None or known.law is None or known.warp is not None or known.law.name != "Normal":
        raise NotLinearError
    if latents_in(program.translator, known.law.arguments["sd"]):
        raise NotLinearError
    return dict(known.law.arguments)


def _mean_slopes(beliefs: ex.Beliefs, o: ObservationTerms, keys: Keys) -> Float[np.ndarray, "columns rows *keys"]:
    found = slopes_of(beliefs, _normal(beliefs, o)["mean"], keys)
    return np.broadcast_to(found, (*found.shape[:2], *sizes_of(beliefs, keys)))


def _noise(beliefs: ex.Beliefs, o: ObservationTerms, keys: Keys) -> Float[np.ndarray, "rows *keys"]:
    variance = noise_of(beliefs, _normal(beliefs, o)["sd"], keys)
    return np.broadcast_to(variance, (beliefs.count, *sizes_of(beliefs, keys)))


def noise_of(beliefs: ex.Beliefs, sd: sp.Expr, keys: Keys) -> Float[np.ndarray, "rows *keys"]:
    """A variance that depends on no latent, one for all rows where it is the same."""
    return np.asarray(ex.mean_of(beliefs, sd**2, keys), float)
