"""Expectations that do not exist: of ratios whose divisor may be zero, and of distributions with heavy tails."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np
import sympy as sp
from jaxtyping import Float

from gpdsl.errors import GpdslWarning
from gpdsl.language.model import Declarations
from gpdsl.results import expectation as ex
from gpdsl.results.nodes import weighted_nodes
from gpdsl.symbolic.laws import Law
from gpdsl.symbolic.terms import has_external, latents_in

REACH = 6.0
"""Standard deviations within which a zero of the divisor counts: beyond is a probability of `NEGLIGIBLE`."""

NEGLIGIBLE = 1e-9
"""Probability that degrees of freedom too few for a mean may have."""


@lru_cache(maxsize=256)
def poles(expression: sp.Expr, latents: tuple[sp.Symbol, ...]) -> tuple[sp.Expr, ...]:
    """The divisors of an expression, linear in a latent, at whose zeros it is infinite."""
    return tuple(_poles(expression, latents))


def _poles(expression: sp.Expr, latents: tuple[sp.Symbol, ...]) -> Iterator[sp.Expr]:
    powers = [each for each in expression.atoms(sp.Pow) if each.exp.is_negative and each.base.has(*latents)]
    if not latents or not powers:
        return
    numerator, denominator = sp.fraction(sp.together(expression))
    for factor in sp.Mul.make_args(denominator):
        base, exponent = factor.as_base_exp()
        if not base.has(*latents) or (exponent.is_number and exponent < 1):
            continue
        for latent in latents:
            slope = sp.diff(base, latent)
            if slope != 0 and not slope.has(latent):
                zero = sp.expand(latent - base / slope)
                if not _vanishes(numerator.xreplace({latent: zero})):
                    yield base
                break


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
