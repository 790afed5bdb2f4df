"""A law whose arguments have values: its distribution function, draws and moments, components included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import sympy as sp
from scipy.special import log_expit

from gpdsl.language.vocabulary import DISTRIBUTIONS
from gpdsl.lowering.table import evaluate
from gpdsl.results.expectation import Beliefs
from gpdsl.results.windows import Window
from gpdsl.symbolic import laws
from gpdsl.symbolic.densities import DENSITIES
from gpdsl.symbolic.expectations import correlated, has_external, is_linear, latents_in
from gpdsl.symbolic.gaussian import joint_moments_of, moments_of
from gpdsl.symbolic.laws import Law

Array = np.ndarray

REACH, STEP = 6.0, 0.1
"""Range and spacing of the double-exponential rule: to shares of exp(-630), as the variance of heavy tails needs."""

STUDENT_NODES, NOTHING = 48, 45.0
"""On either side of a Student-t's highest place inside of bounds, and the logarithm by which it falls to nothing."""


def is_discrete(law: Law) -> bool:
    """Whether its values are whole numbers."""
    return all(map(is_discrete, law.components)) if law.components else DISTRIBUTIONS[law.name].support == "count"


ENDS = {"unit": (0.0, 1.0), "positive": (0.0, np.inf), "count": (0.0, np.inf)}


def ends(law: Law) -> tuple[float, float]:
    """The least and the largest number that may be a value; bounds of a truncated or censored law lie between."""
    if not law.components:
        return ENDS.get(DISTRIBUTIONS[law.name].support, (-np.inf, np.inf))
    lows, highs = zip(*map(ends, law.components), strict=True)
    return min(lows), max(highs)


def cdf(law: Law, y: Array, reached: bool = True) -> Array:
    """P(Y <= y), elementwise over the arrays of the arguments; P(Y < y) where y itself is not `reached`.

    That is less at whole numbers of counts, and at bounds where values are censored.
    """
    if law.name == "Mixture":
        parts = zip(laws.weights(law), law.components, strict=True)
        return np.asarray(sum(weight * cdf(each, y, reached) for weight, each in parts))
    if law.name == "Censored":
        (before_lower, lower), (upper, beyond_upper) = _at_bounds(law)
        none, every = (y < before_lower, y >= upper) if reached else (y <= lower, y > beyond_upper)
        return np.where(none, 0.0, np.where(every, 1.0, cdf(law.components[0], y, reached)))
    y = y if reached or not is_discrete(law) else np.ceil(y) - 1.0
    if law.name == "Truncated":
        window = _window(law)
        inside = window.share(np.clip(y, window.lower, window.upper))
        return np.where(y < window.lower, 0.0, np.where(y >= window.upper, 1.0, inside))
    function = DENSITIES[law.name].cdf
    assert function is not None
    return function(y, law.arguments)


def draw_categorical(generator: np.random.Generator, log_chances: Array) -> Array:
    """Level numbers (from 0) drawn with probabilities proportional to exp(log_chances) along the last axis (Gumbel)."""
    return np.argmax(log_chances + generator.gumbel(size=log_chances.shape), axis=-1).astype(float)


def draw(law: Law, generator: np.random.Generator) -> Array:
    """One value per element of the arguments, which all have the same shape; a vector along one more axis."""
    match law.name:
        case "Mixture":
            drawn = np.stack([draw(each, generator) for each in law.components])
            shares = np.cumsum(np.stack(laws.weights(law)), axis=0)
            chosen = np.sum(generator.random(shares.shape[1:]) * shares[-1] >= shares, axis=0)
            return np.take_along_axis(drawn, np.minimum(chosen, len(drawn) - 1)[None], axis=0)[0]
        case "Truncated":
            window = _window(law)
            share = generator.random(np.shape(law.components[0].leaves()[0]))
            return window.at(np.log(np.maximum(share, np.finfo(float).tiny)), np.log1p(-share))
        case "Censored":
            window = _window(law)
            return np.clip(draw(law.components[0], generator), window.lower, window.upper)
        case "MultivariateNormal":
            # A vector [..., p]; a singular covariance is allowed.
            mean = np.stack(law.arguments["mean"], axis=-1)
            size = mean.shape[-1]
            covariance = np.stack(law.arguments["covariance"], axis=-1).reshape(*mean.shape[:-1], size, size)
            values, vectors = np.linalg.eigh(covariance)
            root = vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]
            return mean + np.einsum("...ij,...j->...i", root, generator.standard_normal(mean.shape))

    return DENSITIES[law.name].draw(generator, law.arguments)


def moments(law: Law) -> tuple[Array, Array]:
    """Mean and variance."""
    match law.name:
        case "Mixture":
            return mixed(list(laws.weights(law)), [moments(each) for each in law.components])
        case "Truncated":
            return _inside(_window(law))
        case "Censored":
            # Those of the recorded value: the bounds with the probabilities beyond them, and what lies between.
            window = _window(law)
            shares = [np.exp(each) for each in (window.under, window.over, window.log_width)]
            return mixed(shares, [(window.lower, 0.0), (window.upper, 0.0), _inside(window)])

    density = DENSITIES[law.name]
    if density.moments is not None:
        return density.moments(law.arguments)
    symbols = {name: sp.Symbol(name, real=True) for name in law.arguments}
    table = {symbols[name]: value for name, value in law.arguments.items()}
    assert density.mean is not None and density.variance is not None
    mean, variance = (np.asarray(evaluate(f(symbols), table.__getitem__)) for f in (density.mean, density.variance))
    return mean, variance


def mixed(shares: Sequence[Array], parts: Sequence[tuple[Array, Array | float]]) -> tuple[Array, Array]:
    """Mean and variance of a mixture, from those of its parts; parts without a share do not count."""
    some = [(share > 0, share, *part) for share, part in zip(shares, parts, strict=True)]
    with np.errstate(invalid="ignore"):
        mean = sum(np.where(has, share * m, 0.0) for has, share, m, _ in some)
        spread = sum(np.where(has, share * (v + (m - mean) ** 2), 0.0) for has, share, m, v in some)
    return np.asarray(mean), np.asarray(spread)


def _window(law: Law) -> Window:
    inner = law.components[0]
    lower = np.asarray(law.arguments.get("lower", -np.inf), float)
    upper = np.asarray(law.arguments.get("upper", np.inf), float)
    return Window(inner.name, inner.arguments, lower, upper)


ROUNDED = 8.0
"""Times the rounding of a bound that a value may be away from it and be at it: bounds have the precision of the fit."""


def _at_bounds(law: Law) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """From where to where values are at the lower bound, and at the upper one."""
    found = []
    for name, none in (("lower", -np.inf), ("upper", np.inf)):
        given = np.asarray(law.arguments.get(name, none))
        bound, precision = np.asarray(given, float), given.dtype if given.dtype.kind == "f" else float
        near = np.where(np.isfinite(bound), ROUNDED * np.finfo(precision).eps * (1.0 + np.abs(bound)), 0.0)
        found.append((bound - near, bound + near))
    return found[0], found[1]


def _inside(window: Window) -> tuple[Array, Array]:
    """E[Y] and Var[Y] inside the window; the quantile function of a Laplace has a kink, at which it is cut in two."""
    if window.name == "StudentT":
        return _student_inside(window)
    if window.name != "Laplace":
        return _integrals(window)
    kink = np.clip(window.arguments["mean"], window.lower, window.upper)
    parts = [replace(window, upper=kink), replace(window, lower=kink)]
    shares = [np.exp(part.log_width - window.log_width) for part in parts]
    return mixed(shares, [_integrals(part) for part in parts])


def _integrals(window: Window) -> tuple[Array, Array]:
    """Mean and variance: integrals of the quantile function of the window, by the double-exponential rule."""
    times = np.arange(-REACH, REACH + STEP / 2, STEP)
    share, rest = log_expit(np.pi * np.sinh(times)), log_expit(-np.pi * np.sinh(times))
    weight = STEP * np.pi * np.cosh(times) * np.exp(share + rest)
    weight = weight / weight.sum()
    places = [window.at(s, r) for s, r in zip(share, rest, strict=True)]
    mean = np.asarray(sum(w * y for w, y in zip(weight, places, strict=True)))
    with np.errstate(over="ignore"):
        return mean, np.asarray(sum(w * (y - mean) ** 2 for w, y in zip(weight, places, strict=True)))


def _student_inside(window: Window) -> tuple[Array, Array]:
    """The same of a Student-t, whose quantile function is slow: with z = sqrt(df) sinh v its density is cosh(v)^-df.

    On either side of the highest place v = anchor + width * (e^t - 1), to where it is negligible; Gauss–Legendre in t.
    """
    df, mean, scale = (np.asarray(window.arguments[name], float) for name in ("df", "mean", "scale"))
    unit = scale * np.sqrt(df)
    low, high = (np.arcsinh((bound - mean) / unit) for bound in (window.lower, window.upper))
    anchor = np.clip(0.0, low, high)
    steep = df * np.tanh(np.abs(anchor))
    width = 1.0 / (np.sqrt(df) + steep)
    power = df - np.where(df > 2, 2.0, 1.0)
    with np.errstate(all="ignore"):
        last = (NOTHING + df * np.log(2.0)) / np.maximum(power, 1e-3)
        last = np.where(steep > 2.0, np.minimum(last, NOTHING / (steep - 2.0)), last)
        last = np.where(df > 3 * NOTHING, np.minimum(last, np.sqrt(3 * NOTHING / df)), last)
        parts = [_student_side(df, anchor, width, end - anchor, last) for end in (low, high)]
        mass, first = (sum(w[k] for w in parts) for k in range(2))
        centre = first / mass
        spread = sum(w[2] - 2 * centre * w[1] + centre**2 * w[0] for w in parts) / mass
    endless = (df <= 2) & ~(np.isfinite(low) & np.isfinite(high))
    return mean + unit * (np.sinh(anchor) + centre), np.where(endless, np.inf, unit**2 * spread)


def _student_side(df: Array, anchor: Array, width: Array, length: Array, last: Array) -> list[Array]:
    """Integrals of powers 0, 1 and 2 of the way from the anchor, over one side, of what the density is there."""
    size = np.abs(length)
    size = np.where((df > 2) | np.isinf(size), np.minimum(size, last), size)
    end = np.log1p(size / width)
    sums: list[Array] = [np.zeros(np.shape(end))] * 3
    for t, weight in zip(*np.polynomial.legendre.leggauss(STUDENT_NODES), strict=True):
        at = 0.5 * end * (1.0 + t)
        step = np.sign(length) * width * np.expm1(at)
        log_away = _log_cosh(anchor + 0.5 * step) + 0.5 * np.abs(step) + np.log(-np.expm1(-np.abs(step)))
        log_share = np.log(0.5 * weight * end * width) + at - df * (_log_cosh(anchor + step) - _log_cosh(anchor))
        powers = [np.exp(log_share + k * (log_away - np.log(2.0))) for k in range(3)]
        sums = [each + np.where(size > 0, power, 0.0) for each, power in zip(sums, powers, strict=True)]
    sums[1] = np.sign(length) * sums[1]
    return sums


def _log_cosh(v: Array) -> Array:
    """log(2 cosh v)."""
    return np.abs(v) + np.log1p(np.exp(-2.0 * np.abs(v)))


# Normal laws averaged over the latents that enter their means alone, linearly: normal again, given the others.
#
# y ~ Normal(f, exp(g)) with f of mean m and variance v is Normal(m, sqrt(exp(2 g) + v)) given g: one number to average
# over instead of two, and wider. Where f and g are correlated, m and v are those of f given g.

TINY = sp.Float(1e-36)
"""A variance that is nothing, in single precision too."""


def collapsed(beliefs: Beliefs, law: Law) -> tuple[Law, tuple[sp.Symbol, ...]]:
    """The law in fewer latents and in moments of some; and those. The same where there are none, or all are."""
    translator, marginals = beliefs.program.translator, beliefs.marginals
    if law.name == "Censored":
        bounds = sp.Tuple(*law.arguments.values())
        if latents_in(translator, bounds) or has_external(translator, bounds):
            return law, ()
        inner, averaged = collapsed(beliefs, law.components[0])
        return replace(law, components=(inner,)), averaged
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
