"""Errors of predictions: of samples, of quadratures, and of what polynomials of opaque functions leave open.

Samples come in sets that are shifted apart; what is found from each of them alone scatters by their error. What a
polynomial fitted without a point says there misses the function's value by what it misses elsewhere. Wider samples go
further into the tails, where a mean may come from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
import sympy as sp
from jaxtyping import Float

from gpdsl.errors import GpdslError
from gpdsl.program.fine_quadrature import of_two
from gpdsl.results.expectation import Beliefs, by_factors, is_sampled, mean_of, terms_of
from gpdsl.results.integrals import BESIDE, RULES, Quantity
from gpdsl.results.levels import in_levels
from gpdsl.results.pieces import Piece
from gpdsl.results.predictive import Predictive
from gpdsl.results.responses import COHERENT, in_the_tails
from gpdsl.results.simulations import SETS, Simulations
from gpdsl.symbolic import laws

if TYPE_CHECKING:
    from gpdsl.results.prediction import Prediction

Keys = tuple[str, ...]
Summary = Callable[[np.ndarray], np.ndarray]

NOTHING = sp.Integer(0)

SCATTER = 8.0
"""Times a variance: a difference whose square is less than that is scatter."""


def verify_asked(name: str, of: str | float) -> None:
    """Raise GpdslError for what has no error."""
    if of not in ("mean", "variance") and not (isinstance(of, float) and 0.0 < of < 1.0):
        raise GpdslError(f'error of `{name}`: expected "mean", "variance" or a probability, got {of!r}')


def error_of(beliefs: Beliefs, expression: sp.Expr, keys: Keys, of: str | float) -> Float[np.ndarray, "rows *keys"]:
    """Of the mean, the variance, or the quantile of a probability."""
    if of == "mean":
        return error_of_mean(beliefs, expression, keys)
    if of == "variance":
        return error_of_variance(beliefs, expression, keys)
    # Of a quantile: that of the sets, and that of the mean, by which polynomials may shift it.
    probability = float(of)
    quantity = Quantity(beliefs, expression, keys)
    several = len(quantity.integrand.arguments) > 1 or quantity.opaque
    return _error(quantity, lambda v: np.quantile(v, probability, axis=0), several)


def of_passes(sets: Sequence[Prediction], name: str, of: str | float) -> np.ndarray:
    """The same of passes through layers, in sets that cover the layers each on its own."""
    found = {"mean": lambda each: each._mean(name), "variance": lambda each: each._variance(name)}
    find = found.get(str(of), lambda each: in_levels(each.beliefs.program, name, each._quantile_of(name, float(of))))
    return error_of_sets([find(each) for each in sets])


def error_of_sets(found: Sequence[np.ndarray]) -> np.ndarray:
    """The standard error of a mean over sets, from what is found from each alone."""
    return np.asarray(np.std(found, axis=0, ddof=1) / np.sqrt(len(found)))


def error_of_law(name: str, predictive: object, of: str | float) -> np.ndarray:
    """The same of the mean or variance of an output: [rows, *keys], with a last axis of levels or elements."""
    if not isinstance(predictive, Predictive) or of not in ("mean", "variance"):
        raise GpdslError(
            f"error of `{name}`: of outputs it is known of the mean and variance, where these have a formula; "
            "ask for that of a let instead"
        )
    law, beliefs, keys = predictive.law, predictive.beliefs, predictive.keys
    if law.vector:
        return np.stack([error_of_law(name, each, of) for each in predictive.elements], axis=-1)
    if law.levels:
        chances = [sp.exp(each) for each in laws.log_probabilities(law)]
        errors = np.stack([_spread(predictive, error_of_mean(beliefs, each, keys)) for each in chances], axis=-1)
        return errors if of == "mean" else np.abs(1.0 - 2.0 * predictive.mean()) * errors
    mean, spread = laws.mean(law), laws.variance(law)
    if mean is None or spread is None:
        return error_of_law(name, None, of)
    found = error_of_mean(beliefs, mean, keys) if of == "mean" else error_of_variance(beliefs, mean, keys, spread)
    return _spread(predictive, found)


def _spread(predictive: Predictive, values: np.ndarray) -> np.ndarray:
    return np.array(np.broadcast_to(values, (predictive.beliefs.count, *predictive.sizes)))


def error_of_mean(beliefs: Beliefs, expression: sp.Expr, keys: Keys) -> Float[np.ndarray, "rows *keys"]:
    """Of E[expression]; zeros where it is neither sampled nor a quadrature over two latents at once."""
    exact = by_factors(beliefs, expression, keys, "mean")
    if exact is not None and not exact[1].any():
        return np.zeros((beliefs.count, *(1,) * len(keys)))
    terms = terms_of(beliefs, expression)
    errors = [_error(Quantity(beliefs, each, keys), _average, is_sampled(beliefs, each)) for each in terms]
    error = sum(errors[1:], start=errors[0])
    return error if exact is None else np.where(exact[1], error, 0.0)


def error_of_variance(
    beliefs: Beliefs, expression: sp.Expr, keys: Keys, within: sp.Expr = NOTHING
) -> Float[np.ndarray, "rows *keys"]:
    """Of Var[expression] + E[within]."""
    centre = sp.Dummy("mean", real=True)
    exact = by_factors(beliefs, expression, keys, "variance")
    known, asked = exact is not None and not exact[1].any(), is_sampled(beliefs, within)
    if not known and is_sampled(beliefs, expression**2):
        asked = True
    mean = mean_of(beliefs, expression, keys)
    if not (asked or _by_nodes(Quantity(beliefs, within if known else expression**2 + within))):
        return 2.0 * np.abs(mean) * error_of_mean(beliefs, expression, keys)  # what is open is the mean, if anything
    whole = (expression - centre) ** 2 + within
    return _error(Quantity(beliefs, whole, keys, {centre: jnp.asarray(mean)}), _average, asked)


def _average(values: np.ndarray) -> np.ndarray:
    return values.mean(axis=0)


def _error(quantity: Quantity, summary: Summary, asked: bool) -> Float[np.ndarray, "rows *keys"]:
    """Of a summary over the samples where it is `asked` for, else of a quadrature over two arguments, if it is one."""
    beliefs, given = quantity.beliefs, quantity.given
    bare = quantity.expression.subs(dict.fromkeys(given, 0))
    if not (asked or _by_nodes(Quantity(beliefs, bare))):
        return np.zeros((beliefs.count, *(1,) * len(quantity.keys)))
    if not asked:
        return _between_nodes(quantity)
    values = np.asarray(quantity.at_samples(), float)
    values = np.moveaxis(values, 1, -1) @ beliefs.weights if values.shape[1] > 1 else values[:, 0]
    sets = np.stack([summary(part) for part in np.array_split(values, SETS)])
    total = np.var(sets, axis=0, ddof=1) / SETS * (SETS - 1) / (SETS - 3)
    simulations = beliefs.simulations
    if simulations is None or beliefs.marginals.together or not quantity.opaque:
        return np.sqrt(total)
    if summary is _average:
        apart = _average(values) - _by_wider(simulations, quantity)
        total = np.maximum(total, apart**2 - SCATTER * total)
    learnt = simulations.at(beliefs)
    for piece in learnt.pieces:
        rows = np.setdiff1d(piece.rows, learnt.direct)
        if rows.size:
            kept = np.isin(piece.rows, rows)
            total[rows] += _left_open(quantity, piece)[kept]
    return np.sqrt(total)


def _between_nodes(quantity: Quantity) -> Float[np.ndarray, "rows *keys"]:
    """The most that other rules change a quadrature over two arguments: two may agree by chance on a steep function.

    Its rms is 3 to 15 times that of the errors, of seven steep functions: of one that is right to 1e-4, 0.4 times.
    """
    weights = quantity.beliefs.weights
    values, left = of_two(quantity.integral, RULES, BESIDE)
    said, *others = np.tensordot(np.asarray(values), weights, axes=(1, 0))
    return np.max(np.abs(np.stack(others) - said), axis=0) + np.tensordot(weights, np.asarray(left), axes=1)


def _by_nodes(quantity: Quantity) -> bool:
    """Whether an expectation is a quadrature over two arguments that is not split."""
    integrand = quantity.integrand
    if len(integrand.arguments) != 2 or integrand.kinks or quantity.sampled:
        return False
    return quantity.closed is None


def _left_open(quantity: Quantity, piece: Piece) -> Float[np.ndarray, "rows *keys"]:
    """Variance of the mean of what polynomials miss, at the points of a piece."""
    beliefs, points = quantity.beliefs, jnp.asarray(piece.latents)
    own = {symbol: value[piece.rows] if value.shape[0] > 1 else value for symbol, value in quantity.given.items()}
    here = replace(quantity, beliefs=replace(beliefs.part(piece.rows), simulations=None), given=own)
    computed = {key: jnp.asarray(value) for key, value in piece.values.items()}
    exact, fitted = (np.asarray(here.values(points, each), float) for each in (computed, piece.said()))
    difference = exact - fitted
    weights, by_lines = piece.polynomials.weights, piece.polynomials.lines
    found = [_alone(each, difference) for each in (weights, in_the_tails(weights))]
    together = COHERENT * np.sum(_each_point(weights * by_lines[:, None], difference) * difference, axis=0)
    return np.tensordot(beliefs.weights**2, np.maximum(*found) + together**2, axes=1)


def _alone(weights: Float[np.ndarray, "N S"], difference: np.ndarray) -> np.ndarray:
    """Variance of the weighted mean of differences [S, K, rows, *keys], by each point's own."""
    by_point = _each_point(weights, difference)
    return np.sum(by_point**2 * difference**2, axis=0) / np.maximum(1.0 - np.sum(by_point**2, axis=0), 1e-9)


def _each_point(weights: Float[np.ndarray, "N S"], difference: np.ndarray) -> np.ndarray:
    """Weights as differences [S, K, rows, *keys] need them."""
    shape = *difference.shape[1:3], *(1,) * (difference.ndim - 3)
    return np.moveaxis(weights, -1, 0).reshape(-1, *shape)


def _by_wider(simulations: Simulations, quantity: Quantity) -> Float[np.ndarray, "rows *keys"]:
    """The mean by wider samples and their weights, which see more of the tails."""
    latents, externals, weights = simulations.wider(quantity.beliefs)
    values = np.asarray(quantity.values(latents, externals), float)
    weights = weights.reshape(*weights.shape, *(1,) * len(quantity.keys))
    return np.tensordot(quantity.beliefs.weights, np.sum(weights * values, axis=0), axes=1)
