"""Values of expressions at nodes that all of them share, for what is no expectation of one of them."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
import sympy as sp
from jaxtyping import Array, Float

from gpdsl.program.fine_quadrature import even_rule
from gpdsl.program.joint import moment_values
from gpdsl.program.quadrature import gauss_hermite
from gpdsl.results.expectation import ROUGH, Beliefs
from gpdsl.results.integrals import integrand_in, sample_latents, without
from gpdsl.symbolic.gaussian import joint_moments_of
from gpdsl.symbolic.terms import has_external

QUADRATURE_NODES = {1: 64, 2: 32}

SPREAD_STEPS, SPREAD = 300, 2.9
"""Steps between nodes sinh(t) for evenly spaced t up to this: dense near the mean, and nine standard deviations out."""


APART, EACH_SIDE = 0.8, 8
"""Standard deviations between nodes of each of many components, and nodes on either side."""


def nodes_of(
    beliefs: Beliefs,
    expressions: Mapping[str, sp.Expr],
    keys: tuple[str, ...],
    finer: int = 1,
    averaged: tuple[sp.Symbol, ...] = (),
) -> tuple[dict[str, Float[np.ndarray, "S K rows *keys"]], np.ndarray]:
    """Values of expressions at common nodes, and their weights, for a distribution function to be averaged over.

    For one latent the trapezoidal rule in t with nodes sinh(t): exact to rounding when the law is wide, and close by
    when it is so narrow that the average is a staircase, whose steps are so many times `finer`. Of many components
    each has few nodes of its own, and weights are [S, K]. For several latents samples. Moments of latents that are
    `averaged` over already are there to read.
    """
    t = np.linspace(-SPREAD, SPREAD, finer * SPREAD_STEPS + 1)
    weights = np.exp(-0.5 * np.sinh(t) ** 2) * np.cosh(t)
    rule = (
        _shifted(beliefs.first + np.arange(len(beliefs.weights)))
        if beliefs.rough
        else (np.sinh(t)[:, None], weights / weights.sum())
    )
    return _common(beliefs, expressions, keys, {1: rule}, averaged)


def joint_weights(weights: np.ndarray, beliefs: Beliefs) -> Float[np.ndarray, "S K"]:
    """Of the nodes of all components, as one set."""
    return weights.reshape(len(weights), -1) * beliefs.weights


def _shifted(components: np.ndarray) -> tuple[Float[np.ndarray, "S K 1"], Float[np.ndarray, "S K"]]:
    """The trapezoidal rule, exact to rounding wherever it begins, from elsewhere for each component.

    Components that are alike, as far from the data, so have as many nodes together as there are of all, and what is
    narrow beside the latent is averaged over these.
    """
    begin = components * 0.5 * (np.sqrt(5.0) - 1.0) % 1.0 - 0.5
    nodes = APART * (np.arange(2 * EACH_SIDE + 1)[:, None] - EACH_SIDE + begin)
    weights = np.exp(-0.5 * nodes**2)
    return nodes[..., None], weights / weights.sum(axis=0)


def smooth_nodes(
    beliefs: Beliefs, expressions: Mapping[str, sp.Expr], keys: tuple[str, ...]
) -> tuple[dict[str, Float[np.ndarray, "S K rows *keys"]], np.ndarray]:
    """Values of expressions at nodes, and their weights, for a smooth function to be averaged over, far out too."""
    return _common(beliefs, expressions, keys, {1: even_rule(), 2: gauss_hermite(2, QUADRATURE_NODES[2])})


def weighted_nodes(
    beliefs: Beliefs, expressions: Mapping[str, sp.Expr], keys: tuple[str, ...]
) -> tuple[dict[str, Float[np.ndarray, "S K rows *keys"]], np.ndarray]:
    """The same for what is not steep, quicker: nodes of a quadrature over one or two latents; else samples."""
    rules = {n: gauss_hermite(n, ROUGH // n if beliefs.rough else nodes) for n, nodes in QUADRATURE_NODES.items()}
    return _common(beliefs, expressions, keys, rules)


def _common(
    beliefs: Beliefs,
    expressions: Mapping[str, sp.Expr],
    keys: tuple[str, ...],
    rules: Mapping[int, tuple[np.ndarray, np.ndarray]],
    averaged: tuple[sp.Symbol, ...] = (),
) -> tuple[dict[str, Float[np.ndarray, "S K rows *keys"]], np.ndarray]:
    """Values at the nodes of the rule for that many arguments, or at samples where there is none."""
    formulas, moments = sp.Tuple(*expressions.values()), joint_moments_of(averaged)
    given = [symbol for each in (moments.mean, moments.variance, moments.covariance) for symbol in each.values()]
    integrand = integrand_in(beliefs, formulas, given)
    opaque = has_external(beliefs.program.translator, without(formulas, given))
    arguments = len(integrand.arguments)
    by_rule = not (opaque or (beliefs.marginals.together and len(integrand.latents) > 1)) and arguments in rules

    def compute(known: Beliefs, nodes: Array | None) -> list[Array]:
        table, scope, each = {}, known.scope(), formulas
        if nodes is not None:
            integral = known.integral(integrand, keys)
            at = map(integral.column, jnp.moveaxis(nodes, -1, 0))
            table, scope, each = integral.values(*at), integral.scope, integrand.expression
        elif arguments or opaque:
            scope = known.scope(*sample_latents(known, known.samples, opaque))
        table = {**table, **moment_values(known.program, averaged, known.marginals, keys)}
        values = [jnp.asarray(known.program.evaluator(e, scope, keys, table)) for e in each.args]
        return [value.reshape((1,) * (3 + len(keys) - value.ndim) + value.shape) for value in values]

    nodes, weights = rules[arguments] if by_rule else (None, np.full(beliefs.samples, 1.0 / beliefs.samples))
    if not (arguments or opaque):
        weights = np.ones(1)
    if opaque:
        found = compute(beliefs, None)
        count = max(len(value) for value in found)  # as many as the functions were called at, or polynomials answer
        weights = np.full(count, 1.0 / count)
    else:
        filled = beliefs.filled_up
        found = filled.compile(("nodes", formulas, keys, by_rule), compute)(nodes)
    shape = (len(weights), len(beliefs.weights), beliefs.count)
    rows = (np.asarray(value)[:, :, : beliefs.count] for value in found)
    return {
        name: np.broadcast_to(a, (*shape, *a.shape[3:])) for name, a in zip(expressions, rows, strict=True)
    }, weights
