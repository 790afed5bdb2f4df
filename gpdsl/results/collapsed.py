"""Normal laws averaged over the latents that enter their means alone, linearly: normal again, given the others.

y ~ Normal(f, exp(g)) with f of mean m and variance v is Normal(m, sqrt(exp(2 g) + v)) given g: one number to average
over instead of two, and wider. Where f and g are correlated, m and v are those of f given g.
"""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from gpdsl.results.expectation import Beliefs
from gpdsl.symbolic.expectations import has_external, is_linear, latents_in
from gpdsl.symbolic.gaussian import joint_moments_of, moments_of
from gpdsl.symbolic.joint import correlated
from gpdsl.symbolic.laws import Law

TINY = sp.Float(1e-36)
"""A variance that is nothing, in single precision too."""


def collapsed(beliefs: Beliefs, law: Law) -> tuple[Law, tuple[sp.Symbol, ...]]:
    """The law in fewer latents and in moments of some; and those. The same where there are none, or all are."""
    translator, marginals = beliefs.program.translator, beliefs.marginals
    if law.name != "Normal" or marginals.together:
        return law, ()
    mean, sd = law.arguments["mean"], law.arguments["sd"]
    if has_external(translator, mean) or has_external(translator, sd):
        return law, ()
    latents = latents_in(translator, mean)
    apart = {*latents_in(translator, sd), *(each for several in correlated(translator, latents) for each in several)}
    chosen: list[sp.Symbol] = []
    for latent in latents:
        if latent not in apart and is_linear(mean, (latent, *chosen)):
            chosen.append(latent)
    others = sorted({*apart, *latents} - set(chosen), key=str)
    if marginals.covariance is None:
        moments, read = moments_of(chosen), chosen
        levels, spread = moments.mean, {(f, f): moments.variance[f] for f in chosen}
    elif len(others) == 1:
        levels, spread = _given(others[0], chosen)
        read = [*chosen, *others]
    else:
        return law, ()
    slopes = {latent: sp.diff(mean, latent) for latent in chosen}
    variance = sp.Add(*[slopes[f] * slopes[g] * value for (f, g), value in spread.items()])
    return Law("Normal", {"mean": mean.xreplace(levels), "sd": sp.sqrt(sd**2 + variance)}), tuple(read)


def _given(
    other: sp.Symbol, chosen: Sequence[sp.Symbol]
) -> tuple[dict[sp.Symbol, sp.Expr], dict[tuple[sp.Symbol, sp.Symbol], sp.Expr]]:
    """Means and covariances of some latents given the value of another."""
    moments = joint_moments_of([*chosen, other])
    away, slopes = other - moments.mean[other], {}
    for latent in chosen:
        slopes[latent] = moments.symbol(latent, other) / (moments.variance[other] + TINY)
    means = {latent: moments.mean[latent] + slopes[latent] * away for latent in chosen}
    left = {(f, g): moments.symbol(f, g) - slopes[f] * moments.symbol(g, other) for f in chosen for g in chosen}
    return means, left
