"""Laws: a distribution with its arguments, components included; its log density, mean and variance as formulas.

A `Law` holds formulas here, and arrays of their values where predictions are made (`results.conditional`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy as sp

from gpdsl.symbolic.conditions import choose, less, less_equal
from gpdsl.symbolic.densities import DENSITIES, IMPOSSIBLE, failure_probability, success_probability
from gpdsl.symbolic.functions import absolute, lgamma, log1p, log_ndtr, log_ndtr_interval, logsumexp, softplus
from gpdsl.symbolic.stable import TAILS, logistic_between

ROUNDED = sp.Float(1e-6)
"""Part of a bound by which the transform of a value recorded as the bound may miss it, by rounding in any precision."""


@dataclass(frozen=True)
class Law:
    """A distribution by name. An argument with one value per level, cutpoint or component is a tuple."""

    name: str
    arguments: Mapping[str, Any]
    components: tuple[Law, ...] = ()

    def leaves(self) -> list[Any]:
        """Every argument, those of the components last, in a fixed order."""
        own: list[Any] = []
        for value in self.arguments.values():
            own += value if isinstance(value, tuple) else [value]
        return own + [leaf for each in self.components for leaf in each.leaves()]

    def map(self, function: Callable[[Any], Any]) -> Law:
        """The law with every leaf replaced, in the order of `leaves`."""
        changed = {
            name: tuple(function(each) for each in value) if isinstance(value, tuple) else function(value)
            for name, value in self.arguments.items()
        }
        return Law(self.name, changed, tuple(each.map(function) for each in self.components))

    def filled(self, values: Iterable[Any]) -> Law:
        """The law with its leaves replaced by these."""
        following = iter(values)
        return self.map(lambda _: next(following))

    @property
    def levels(self) -> bool:
        """Whether it describes levels of a label and not numbers."""
        return self.name in LEVELS

    @property
    def registered(self) -> bool:
        """Whether it, or a component, is a distribution that users have registered."""
        own = DENSITIES.get(self.name)
        return (own is not None and own.moments is not None) or any(each.registered for each in self.components)

    @property
    def valued(self) -> bool:
        """Whether its distribution function is known without integrals over its density, that of a component too."""
        if self.components:
            return self.name == "Mixture" and all(each.valued for each in self.components)
        return DENSITIES[self.name].cdf is not None

    @property
    def vector(self) -> bool:
        """Whether it describes all elements of an output together."""
        return self.name == "MultivariateNormal"


def log_density(law: Law, y: sp.Expr, log_slope: sp.Expr | None = None) -> sp.Expr:
    """Log density of a number; of a label see `log_probabilities`.

    `log_slope` says that `y` is a transform of what is observed: the logarithm of its slope is added wherever there is
    a density, so not at the bounds of a censored law, where there is probability.
    """
    if law.name == "Censored":
        return _censored(law, y, log_slope)
    match law.name:
        case "Mixture":
            parts = zip(log_weights(law), law.components, strict=True)
            found = logsumexp(*[weight + log_density(each, y) for weight, each in parts])
        case "Truncated":
            found = _truncated(law, y)
        case _:
            found = DENSITIES[law.name].log_density(y, law.arguments)
    return found if log_slope is None else found + log_slope


def weights(law: Law) -> tuple[sp.Expr, ...]:
    """Weights of a mixture, one per component; of two components the first alone may be written."""
    given = law.arguments["weights"]
    return given if isinstance(given, tuple) else (given, 1 - given)


def log_weights(law: Law) -> tuple[sp.Expr, ...]:
    """Their logarithms."""
    given = law.arguments["weights"]
    return tuple(sp.log(each) for each in given) if isinstance(given, tuple) else (sp.log(given), log1p(-given))


def bounds(law: Law) -> tuple[sp.Expr | None, sp.Expr | None]:
    """The bounds of a truncated or censored law that say anything: none below the support of its component."""
    lower, upper = (law.arguments.get(name) for name in ("lower", "upper"))
    positive = TAILS[law.components[0].name].positive
    return None if positive and lower is not None and lower.is_nonpositive else lower, upper


def _truncated(law: Law, y: sp.Expr) -> sp.Expr:
    """log p(y) - log P(lower < Y < upper), between the bounds."""
    (inner,), (lower, upper) = law.components, bounds(law)
    tails, a = TAILS[inner.name], inner.arguments
    inside = log_density(inner, y)
    if lower is not None and upper is not None:
        inside -= tails.between(lower, upper, a)
    elif lower is not None:
        inside -= tails.above(lower, a)
    elif upper is not None:
        inside -= tails.below(upper, a)
    if lower is not None:
        inside = choose(less(y, lower), IMPOSSIBLE, inside)
    return inside if upper is None else choose(less(upper, y), IMPOSSIBLE, inside)


def _censored(law: Law, y: sp.Expr, log_slope: sp.Expr | None) -> sp.Expr:
    """log p(y) between the bounds; at a bound the probability of what lies there or beyond."""
    (inner,), (lower, upper) = law.components, bounds(law)
    tails, a, slack = TAILS[inner.name], inner.arguments, sp.S.Zero if log_slope is None else ROUNDED
    density = log_density(inner, y, log_slope)
    if lower is not None:
        density = choose(less_equal(y, lower + slack * absolute(lower)), tails.below(lower, a), density)
    if upper is not None:
        density = choose(less_equal(upper - slack * absolute(upper), y), tails.above(upper, a), density)
    return density


def elements(law: Law) -> tuple[Law, ...]:
    """The law of each element of a multivariate normal."""
    mean, covariance = law.arguments["mean"], law.arguments["covariance"]
    spreads = covariance[:: len(mean) + 1]
    return tuple(Law("Normal", {"mean": m, "sd": sp.sqrt(v)}) for m, v in zip(mean, spreads, strict=True))


# --- levels -----------------------------------------------------------------------------------------------------


def log_probabilities(law: Law) -> tuple[sp.Expr, ...]:
    """Log probability of each level of a Categorical or Ordinal law."""
    return LEVELS[law.name](law.arguments)


def chances(law: Law) -> tuple[sp.Expr, sp.Expr]:
    """How probable 1 is of a Bernoulli law, and 0, in which nothing cancels where it is small."""
    return success_probability(law.arguments), failure_probability(law.arguments)


def observed_level(indicators: Sequence[sp.Expr], law: Law) -> sp.Expr:
    """Log probability of the observed level, whose one-hot code is `indicators`. SAVIGP 9.3.4 for the softmax."""
    a = law.arguments
    if law.name == "Categorical" and "logits" in a:
        chosen = sp.Add(*[i * f for i, f in zip(indicators, a["logits"], strict=True)])
        return chosen - logsumexp(*a["logits"])
    return sp.Add(*[i * p for i, p in zip(indicators, log_probabilities(law), strict=True)])


def _categorical(a: Mapping[str, Any]) -> tuple[sp.Expr, ...]:
    if "p" in a:
        return tuple(sp.log(p) for p in a["p"])
    if len(a["logits"]) == 2:  # functions of one number
        one, other = a["logits"]
        return -softplus(other - one), -softplus(one - other)
    normaliser = logsumexp(*a["logits"])
    return tuple(f - normaliser for f in a["logits"])


def _ordinal(a: Mapping[str, Any]) -> tuple[sp.Expr, ...]:
    """log of F(c_j - f) - F(c_(j-1) - f), with F the standard normal or logistic distribution function."""
    probit = "probit" in a
    places = [cut - a["probit" if probit else "logit"] for cut in a["cutpoints"]]
    between = log_ndtr_interval if probit else logistic_between
    first = log_ndtr(places[0]) if probit else -softplus(-places[0])
    last = log_ndtr(-places[-1]) if probit else -softplus(places[-1])
    return (first, *[between(low, high) for low, high in zip(places, places[1:], strict=False)], last)


LEVELS: Mapping[str, Callable[[Mapping[str, Any]], tuple[sp.Expr, ...]]] = {
    "Categorical": _categorical,
    "Ordinal": _ordinal,
}


# --- moments ----------------------------------------------------------------------------------------------------


def mean(law: Law) -> sp.Expr | None:
    """Mean, or None where no formula is known."""
    if law.name == "Mixture":
        parts = [mean(each) for each in law.components]
        return None if None in parts else sp.Add(*[w * m for w, m in zip(weights(law), parts, strict=True)])
    formula = DENSITIES[law.name].mean if law.name in DENSITIES else None
    return None if formula is None else formula(law.arguments)


def variance(law: Law) -> sp.Expr | None:
    """Variance, or None where no formula is known."""
    if law.name == "Mixture":
        centre, spreads = mean(law), [variance(each) for each in law.components]
        if centre is None or None in spreads:
            return None
        second = [v + (mean(each) - centre) ** 2 for v, each in zip(spreads, law.components, strict=True)]
        return sp.Add(*[w * s for w, s in zip(weights(law), second, strict=True)])
    formula = DENSITIES[law.name].variance if law.name in DENSITIES else None
    return None if formula is None else formula(law.arguments)


def dirichlet(concentration: Sequence[sp.Expr], values: Sequence[sp.Expr]) -> sp.Expr:
    """Log density of a Dirichlet at a simplex."""
    total = lgamma(sp.Add(*concentration)) - sp.Add(*[lgamma(a) for a in concentration])
    return total + sp.Add(*[(a - 1) * sp.log(value) for a, value in zip(concentration, values, strict=True)])


def lkj(eta: sp.Expr, diagonal: Sequence[sp.Expr]) -> sp.Expr:
    """Log density of a correlation matrix, by the diagonal of its factor: Lewandowski, Kurowicka and Joe (2009).

    Of the factor, the entries before the diagonal of row k are in a ball of k - 1 dimensions, with a density that is a
    power of the diagonal one.
    """
    found = sp.S.Zero
    for k, entry in enumerate(diagonal[1:], start=2):
        power, half = eta - 1 + sp.Rational(len(diagonal) - k, 2), sp.Rational(k - 1, 2)
        found += 2 * (eta - 1) * sp.log(entry) + lgamma(power + 1 + half) - lgamma(power + 1) - half * sp.log(sp.pi)
    return found
