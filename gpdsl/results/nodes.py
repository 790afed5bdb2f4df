"""Values of expressions at nodes that all of them share, for what is no expectation of one of them."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
import sympy as sp
from jaxtyping import Array, Float

from gpdsl.program.fine_quadrature import even_rule
from gpdsl.program.quadrature import gauss_hermite
from gpdsl.results.expectation import ROUGH, Beliefs, integrand_in, sample_latents
from gpdsl.symbolic.terms import has_external

QUADRATURE_NODES = {1: 64, 2: 32}

SPREAD_STEPS, SPREAD = 300, 2.9
"""Steps between nodes sinh(t) for evenly spaced t up to this: dense near the mean, and nine standard deviations out."""


def nodes_of(
    beliefs: Beliefs, expressions: Mapping[str, sp.Expr], keys: tuple[str, ...], finer: int = 1
) -> tuple[dict[str, Float[Array, "S K rows *keys"]], np.ndarray]:
    """Values of expressions at common nodes, and their weights, for a distribution function to be averaged over.

    For one latent the trapezoidal rule in t with nodes sinh(t): exact to rounding when the law is wide, and close by
    when it is so narrow that the average is a staircase, whose steps are so many times `finer`. For several latents
    samples.
    """
    t = np.linspace(-SPREAD, SPREAD, finer * SPREAD_STEPS + 1)
    weights = np.exp(-0.5 * np.sinh(t) ** 2) * np.cosh(t)
    rule = gauss_hermite(1, ROUGH) if beliefs.rough else (np.sinh(t)[:, None], weights / weights.sum())
    return _common(beliefs, expressions, keys, {1: rule})


def smooth_nodes(
    beliefs: Beliefs, expressions: Mapping[str, sp.Expr], keys: tuple[str, ...]
) -> tuple[dict[str, Float[Array, "S K rows *keys"]], np.ndarray]:
    """Values of expressions at nodes, and their weights, for a smooth function to be averaged over, far out too."""
    return _common(beliefs, expressions, keys, {1: even_rule(), 2: gauss_hermite(2, QUADRATURE_NODES[2])})


def weighted_nodes(
    beliefs: Beliefs, expressions: Mapping[str, sp.Expr], keys: tuple[str, ...]
) -> tuple[dict[str, Float[Array, "S K rows *keys"]], np.ndarray]:
    """The same for what is not steep, quicker: nodes of a quadrature over one or two latents; else samples."""
    rules = {n: gauss_hermite(n, ROUGH // n if beliefs.rough else nodes) for n, nodes in QUADRATURE_NODES.items()}
    return _common(beliefs, expressions, keys, rules)


def _common(
    beliefs: Beliefs,
    expressions: Mapping[str, sp.Expr],
    keys: tuple[str, ...],
    rules: Mapping[int, tuple[np.ndarray, np.ndarray]],
) -> tuple[dict[str, Float[Array, "S K rows *keys"]], np.ndarray]:
    """Values at the nodes of the rule for that many arguments, or at samples where there is none."""
    translator, evaluator = beliefs.program.translator, beliefs.program.evaluator
    integrand = integrand_in(beliefs, sp.Tuple(*expressions.values()))
    count = len(integrand.arguments)
    opaque = any(has_external(translator, e) for e in expressions.values())
    if count == 0 and not opaque:
        table, scope, weights = {}, beliefs.scope(), np.ones(1)
    elif count in rules and not opaque and not (beliefs.marginals.together and len(integrand.latents) > 1):
        nodes, weights = rules[count]
        integral = beliefs.integral(integrand, keys)
        table, scope = integral.values(*map(integral.column, nodes.T)), integral.scope
        expressions = dict(zip(expressions, integrand.expression.args, strict=True))
    else:
        samples, externals = sample_latents(beliefs, beliefs.samples, opaque)
        table, scope, weights = {}, beliefs.scope(samples, externals), np.full(len(samples), 1.0 / len(samples))
    count = len(weights)
    shape = (count, len(beliefs.weights), beliefs.count)
    values = {}
    for name, expression in expressions.items():
        value = jnp.asarray(evaluator(expression, scope, keys, table))
        axes = value.shape[value.ndim - len(keys) :] if value.ndim >= len(keys) else (1,) * len(keys)
        values[name] = jnp.broadcast_to(value, (*shape, *axes))
    return values, weights
