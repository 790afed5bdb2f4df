"""Laws: a distribution with its arguments, components included; its log density, mean and variance as formulas.

A `Law` holds formulas here, and arrays of their values where predictions are made (`results.conditional`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp

from gpdsl.language import model as m
from gpdsl.language.vocabulary import DISTRIBUTIONS
from gpdsl.symbolic import errors
from gpdsl.symbolic.conditions import choose, less, less_equal
from gpdsl.symbolic.densities import DENSITIES, IMPOSSIBLE, failure_probability, success_probability
from gpdsl.symbolic.functions import absolute, lgamma, log1p, log_ndtr, log_ndtr_interval, logsumexp, softplus
from gpdsl.symbolic.stable import TAILS, logistic_between
from gpdsl.symbolic.translate import Covariance, Environment, Ref, Translator, axis_key

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


# Checked distributions → laws: every argument translated, those with one value per level or component one by one.

LISTED = {"level", "cutpoint", "component"}
"""What a parameter may hold one value per."""


def law_of(translator: Translator, call: m.DistributionCall, env: Environment, own: Collection[str]) -> Law:
    """The law of one element of an observation, or of a parameter; `own` are the keys of the axes left of `~`."""
    held = {each.name: each.per for each in DISTRIBUTIONS[call.name].parameters}
    arguments: dict[str, sp.Expr | tuple[sp.Expr, ...]] = {}
    for name, expression in call.arguments.items():
        what = f"`{name}` of `{call.name}`"
        if held.get(name) in LISTED:
            arguments[name] = _along(translator, expression, what, env, own)
        else:
            arguments[name] = translator.scalar(expression, env, what)
    listed = tuple(value for name, value in arguments.items() if name.startswith("weights["))
    if listed:
        arguments = {"weights": listed}
    law = Law(call.name, arguments, tuple(law_of(translator, each, env, own) for each in call.components))
    weights = law.arguments.get("weights")
    if isinstance(weights, tuple) and len(weights) != len(law.components):
        span = next(iter(call.arguments.values())).span
        raise translator.failure(errors.ComponentWeights(span, len(weights), len(law.components)))
    if law.name in {"Truncated", "Censored"}:
        _check_slopes(translator, call, law)
    return law


def _along(
    translator: Translator, expression: m.Expression, what: str, env: Environment, own: Collection[str]
) -> sp.Expr | tuple[sp.Expr, ...]:
    """The values along the one axis that the left side lacks; a single value when there is none."""
    more = [axis for axis in expression.axes if axis_key(axis) not in own]
    if not more:
        return translator.scalar(expression, env, what)
    key = axis_key(more[0])
    places = range(1, translator.size(more[0]) + 1)
    return tuple(translator.scalar(expression, {**env, key: place}, what) for place in places)


def check_cutpoints(translator: Translator, observation: m.Observation, law: Law, levels: int) -> None:
    """An Ordinal has one cutpoint fewer than levels, which shows once data have bound the sizes."""
    if law.name == "Ordinal" and len(law.arguments["cutpoints"]) != levels - 1:
        span, given = observation.distribution.arguments["cutpoints"].span, len(law.arguments["cutpoints"])
        raise translator.failure(errors.CutpointCount(span, observation.outputs[0], levels, levels - 1, given))


def _check_slopes(translator: Translator, call: m.DistributionCall, law: Law) -> None:
    """Distribution functions have no derivative with respect to some arguments, which must then be known numbers."""
    inner = law.components[0]
    tails = TAILS[inner.name]
    for name, moving in ((tails.constant, {"latent", "row", "param", "gathered"}), (tails.stiff, {"latent", "row"})):
        if not name:
            continue
        for symbol in inner.arguments[name].free_symbols:
            ref = translator.references[symbol]
            held = ref.name in translator.declarations.params and translator.declarations.params[ref.name].fixed
            if ref.kind in moving and not held:
                span = call.components[0].arguments[name].span
                raise translator.failure(errors.NoSlope(span, inner.name, name, ref.name))


# Multivariate normal outputs: the density of a whole row by way of a whitening matrix computed numerically.
#
# With S the covariance of a row and L L' = S, z = L^-1 (y - m) is white: log p = sum_i log W_ii - log(2 pi)/2 - z_i^2/2
# with W = L^-1. The entries of W are symbols here, and the density is a quadratic in y - m: when the mean is a
# polynomial in the latents, so is the density, and its expectation closes. Written out as formulas W would be
# astronomically large.
#
# Missing elements are marginalised exactly: with o_i = 1 where y_i is known and 0 elsewhere, the covariance with
# entries o_i o_j S_ij off the diagonal and o_i S_ii + 1 - o_i on it, residuals o_i (y_i - m_i) and o_i log(2 pi), leave
# out what is not known.

MAX_ELEMENTS = 32


def joint_density(translator: Translator, observation: m.Observation) -> tuple[Law, sp.Expr]:
    """The law of a whole row and its log density, with missing elements marginalised."""
    call, name = observation.distribution, observation.outputs[0]
    axis = translator.declarations.outputs[name].axes[0]
    key, size = axis_key(axis), translator.size(axis)
    if size > MAX_ELEMENTS:
        raise translator.failure(errors.VectorTooLong(call.span, name, size, MAX_ELEMENTS))
    places = range(1, size + 1)
    mean = tuple(translator.scalar(call.arguments["mean"], {key: i}) for i in places)
    entries = _covariance(translator, call, axis, size)
    _check(translator, call, entries)
    law = Law("MultivariateNormal", {"mean": mean, "covariance": tuple(entry for row in entries for entry in row)})
    whitening = f"{name}#{len(translator.covariances) + 1}"
    translator.covariances[whitening] = Covariance(name, entries)
    known = [translator.symbol(Ref("observed", name, (i,))) for i in places]
    residuals = [
        o * (translator.symbol(Ref("output", name, (i,))) - m_i) for i, o, m_i in zip(places, known, mean, strict=True)
    ]
    parts: list[sp.Expr] = []
    for i in places:
        row = [translator.symbol(Ref("whitening", whitening, (i, j)), positive=i == j) for j in range(1, i + 1)]
        white = sp.Add(*[w * r for w, r in zip(row, residuals, strict=False)])
        parts += [sp.log(row[-1]), -known[i - 1] * sp.log(2 * sp.pi) / 2, -(white**2) / 2]
    return law, sp.Add(*parts)


def _covariance(
    translator: Translator, call: m.DistributionCall, axis: m.Axis, size: int
) -> tuple[tuple[sp.Expr, ...], ...]:
    """S itself, or W W' + diag(sd^2)."""
    key, places = axis_key(axis), range(1, size + 1)
    argument = call.arguments.get("covariance", call.arguments.get("factor"))
    assert argument is not None
    other = next(each for each in argument.axes if axis_key(each) != key)
    along = axis_key(other)

    def entry(i: int, j: int) -> sp.Expr:
        env: Environment = {key: i, along: j}
        return translator.scalar(argument, env, "the covariance")

    if "covariance" in call.arguments:
        if translator.size(other) != size:
            raise translator.failure(
                errors.MatrixSizes(argument.span, axis.describe(), size, along, translator.size(other))
            )
        return tuple(tuple(entry(i, j) for j in places) for i in places)
    rows = [[entry(i, k) for k in range(1, translator.size(other) + 1)] for i in places]
    sd = call.arguments.get("sd")
    noise = [sp.Integer(0) if sd is None else translator.scalar(sd, {key: i}) ** 2 for i in places]

    def total(i: int, j: int) -> sp.Expr:
        products = [a * b for a, b in zip(rows[i], rows[j], strict=True)]
        return sp.Add(*products, noise[i] if i == j else sp.Integer(0))

    return tuple(tuple(total(i, j) for j in range(size)) for i in range(size))


def _check(translator: Translator, call: m.DistributionCall, entries: tuple[tuple[sp.Expr, ...], ...]) -> None:
    """No latents in it; and when it is a matrix of numbers, a covariance matrix."""
    span = call.arguments.get("covariance", call.arguments.get("factor", call)).span
    for symbol in sorted({s for row in entries for e in row for s in e.free_symbols}, key=str):
        if translator.references[symbol].kind in {"latent", "row", "external"}:
            raise translator.failure(errors.LatentCovariance(span, translator.references[symbol].name))
    if all(entry.is_number for row in entries for entry in row):
        matrix = np.array([[float(entry) for entry in row] for row in entries])
        scale = np.abs(matrix).max()
        why = "not symmetric" if np.abs(matrix - matrix.T).max() > 1e-9 * scale else ""
        if not why and np.linalg.eigvalsh(matrix)[0] <= 1e-12 * scale:
            why = f"singular or worse: its smallest eigenvalue is {np.linalg.eigvalsh(matrix)[0]:.3g}"
        if why:
            raise translator.failure(errors.NotPositiveDefinite(span, why))
