"""Normalisers of tilted distributions in closed form: log of the integral of p(y|f)^alpha N(f | m, V) over f.

Three likelihoods have one. A probit, Phi(a'f + b), gives Phi((a'm + b) / sqrt(1 + a'Va)) for alpha = 1 (SEP, eq. 3). A
density whose logarithm is quadratic in one latent, with slope g at the mean m and curvature -c, gives

    alpha log p(y|m) + alpha^2 g^2 v / (2 (1 + alpha c v)) - log(1 + alpha c v) / 2,

written about the mean, so that large observations cost no digits. Where it is so in pieces, between thresholds (a step,
a kink, Laplace noise), each adds to that the logarithm of the probability of its interval under the Gaussian that its
quadratic makes of N(m, V), of mean m + alpha g v / (1 + alpha c v) and variance v / (1 + alpha c v).
"""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from gpdsl.symbolic.closed import smooth_pieces
from gpdsl.symbolic.functions import log_ndtr, log_ndtr_interval, logsumexp
from gpdsl.symbolic.gaussian import Moments

POWER = sp.Symbol("power", positive=True)
"""The power alpha of power expectation propagation."""


def tilted_normaliser(
    log_density: sp.Expr, latents: Sequence[sp.Symbol], moments: Moments, power: float
) -> sp.Expr | None:
    """The closed form, in the symbols of `moments` and `POWER`; None where none is known."""
    constant = sp.Add(*[part for part in sp.Add.make_args(log_density) if not part.has(*latents)])
    rest = log_density - constant
    found = _probit(rest, latents, moments) if power == 1.0 else None
    if found is None and len(latents) == 1:
        found = _quadratic(rest, latents[0], moments)
    return None if found is None else POWER * constant + found


def _probit(rest: sp.Expr, latents: Sequence[sp.Symbol], moments: Moments) -> sp.Expr | None:
    if not isinstance(rest, log_ndtr):
        return None
    inside = rest.args[0]
    slopes = {f: sp.diff(inside, f) for f in latents}
    if any(slope.has(*latents) for slope in slopes.values()):
        return None
    mean = inside.xreplace(dict(moments.mean))
    variance = sp.Add(*[slopes[f] * slopes[g] * moments.between(f, g) for f in latents for g in latents])
    return log_ndtr(mean / sp.sqrt(1 + variance))


def _quadratic(rest: sp.Expr, f: sp.Symbol, moments: Moments) -> sp.Expr | None:
    pieces = smooth_pieces(rest, (f,))
    if pieces is None or any(not piece.is_polynomial(f) or sp.degree(piece, f) > 2 for piece, _ in pieces):
        return None
    if any(region.directions not in ((), (f,)) for _, region in pieces):
        return None
    found = [_piece(piece, *region.interval(f), f, moments) for piece, region in pieces]
    return found[0] if len(found) == 1 else logsumexp(*found)


def _piece(rest: sp.Expr, low: sp.Expr | None, high: sp.Expr | None, f: sp.Symbol, moments: Moments) -> sp.Expr:
    """What a quadratic between two bounds contributes."""
    slope = sp.diff(rest, f)
    curvature = -sp.diff(slope, f)
    variance, at = moments.variance[f], {f: moments.mean[f]}
    wider, pull = 1 + POWER * curvature * variance, POWER * slope.xreplace(at)
    whole = POWER * rest.xreplace(at) + pull**2 * variance / (2 * wider) - sp.log(wider) / 2
    mean, sd = moments.mean[f] + pull * variance / wider, sp.sqrt(variance / wider)
    if low is None or high is None:
        side = (mean - low) / sd if low is not None else (high - mean) / sd if high is not None else None
        return whole if side is None else whole + log_ndtr(side)
    return whole + log_ndtr_interval((low - mean) / sd, (high - mean) / sd)
