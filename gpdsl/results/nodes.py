"""Values of expressions at nodes that all of them share, for what is no expectation of one of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import lru_cache

import jax.numpy as jnp
import numpy as np
import sympy as sp
from jaxtyping import Array, Float

from gpdsl.errors import GpdslWarning
from gpdsl.language.model import Declarations
from gpdsl.program.fine_quadrature import even_rule
from gpdsl.program.joint import moment_values
from gpdsl.program.quadrature import gauss_hermite
from gpdsl.results import expectation as ex
from gpdsl.results.expectation import ROUGH, Beliefs
from gpdsl.results.integrals import Quantity, sample_latents
from gpdsl.symbolic.expectations import has_external, latents_in
from gpdsl.symbolic.gaussian import joint_moments_of
from gpdsl.symbolic.laws import Law

# Expectations that do not exist: of ratios whose divisor may be zero, and of distributions with heavy tails.

REACH = 6.0
"""Standard deviations within which a zero of the divisor counts: beyond is a probability of `NEGLIGIBLE`."""

NEGLIGIBLE = 1e-9
"""Probability that degrees of freedom too few for a mean may have."""


@lru_cache(maxsize=256)
def poles(expression: sp.Expr, latents: tuple[sp.Symbol, ...]) -> tuple[sp.Expr, ...]:
    """The divisors of an expression, linear in a latent, at whose zeros it is infinite."""
    if not latents or not any(each.exp.is_negative and each.base.has(*latents) for each in expression.atoms(sp.Pow)):
        return ()
    numerator, denominator = sp.fraction(sp.together(expression))
    found = []
    for factor in sp.Mul.make_args(denominator):
        base, exponent = factor.as_base_exp()
        if not base.has(*latents) or (exponent.is_number and exponent < 1):
            continue
        for latent in latents:
            slope = sp.diff(base, latent)
            if slope != 0 and not slope.has(latent):
                zero = sp.expand(latent - base / slope)
                if not _vanishes(numerator.xreplace({latent: zero})):
                    found.append(base)
                break
    return tuple(found)


def _vanishes(expression: sp.Expr) -> bool:
    """Whether it is zero whatever its symbols are; a ratio of polynomials is told without simplifying."""
    over, _ = sp.fraction(sp.together(expression))
    if over.is_polynomial(*over.free_symbols):
        return bool(sp.expand(over) == 0)
    return bool(sp.simplify(expression) == 0)


def existing(
    beliefs: ex.Beliefs, expression: sp.Expr, keys: tuple[str, ...], moment: Callable[..., np.ndarray]
) -> Float[np.ndarray, "rows *keys"]:
    """The mean or variance of an expression, NaN in the rows where a divisor may be zero."""
    translator, value = beliefs.program.translator, moment(beliefs, expression, keys)
    if has_external(translator, expression):
        return value
    for base in poles(expression, latents_in(translator, expression)):
        mean, square = ex.each_component(beliefs, (base, base**2), keys)
        value = np.where(np.any(mean**2 < REACH**2 * (square - mean**2), axis=0), np.nan, value)
    return value


def degrees(law: Law) -> list[sp.Expr]:
    """Degrees of freedom of the tails of a law that fall off like powers: moments of lower order exist."""
    if law.name in ("Truncated", "Censored") and {"lower", "upper"} <= set(law.arguments):
        return []
    match law.name:
        case "StudentT" | "HalfStudentT":
            own = [law.arguments["df"]]
        case "HalfCauchy":
            own = [sp.Integer(1)]
        case "InverseGamma":
            own = [law.arguments["shape"]]
        case _:
            own = []
    return own + [each for component in law.components for each in degrees(component)]


def no_mean(beliefs: ex.Beliefs, law: Law, keys: tuple[str, ...]) -> np.ndarray:
    """Where a law has no mean, [rows, *keys]: one degree of freedom or fewer."""
    missing: np.ndarray = np.zeros((beliefs.count, *(1,) * len(keys)), bool)
    for df in degrees(law):
        values, weights = weighted_nodes(beliefs, {"df": df}, keys)
        joint = weights[:, None] * beliefs.weights[None, :]
        few = np.tensordot(joint, np.asarray(values["df"]) <= 1.0, axes=([0, 1], [0, 1]))
        missing = missing | (few > NEGLIGIBLE)
    return missing


def said(name: str, what: str, found: np.ndarray, declarations: Declarations) -> np.ndarray:
    """A mean or variance, with a warning where it is no number."""
    missing = int(np.isnan(found).sum())
    if missing:
        output = declarations.outputs.get(name)
        why = "it does not exist where tails are heavy or a divisor may be zero, but quantiles do"
        if output is not None and output.kind == "unit":
            why = "its density cannot be integrated there"
        warnings.warn(
            f"`{name}` has no {what} in {missing} of {found.size} places: {why}; inputs or numbers of the fit may be "
            "too large to compute with",
            GpdslWarning,
            stacklevel=4,
        )
    return found


# Values of expressions at nodes that all of them share, for what is no expectation of one of them.

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
    whole = Quantity(beliefs, formulas, keys, dict.fromkeys(given))
    integrand, opaque = whole.integrand, whole.opaque
    arguments = len(integrand.arguments)
    by_rule = not (opaque or whole.dependent) and arguments in rules

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
