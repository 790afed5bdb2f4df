"""What densities integrate to over their output: one that is not normalised is a mistake that no fit can notice.

Those of the file are formulas that anybody may get wrong; those of the table may have probability where their output
cannot be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import scipy
import sympy as sp
from scipy.special import logsumexp

from gpdsl.language import model as m
from gpdsl.language.checker.left import suspect
from gpdsl.language.errors.base import Mistake, ModelError
from gpdsl.language.model import interval_of
from gpdsl.language.vocabulary import DISTRIBUTIONS
from gpdsl.symbolic.counts import IMPOSSIBLE
from gpdsl.symbolic.curves import LINES, Line
from gpdsl.symbolic.densities import DENSITIES
from gpdsl.symbolic.errors import NotNormalised, OutsideOutput
from gpdsl.symbolic.expectations import has_external
from gpdsl.symbolic.kernel_values import UnknownSizes, start_of
from gpdsl.symbolic.laws import Law, log_density, log_weights
from gpdsl.symbolic.numeric import evaluate
from gpdsl.symbolic.stable import TAILS
from gpdsl.symbolic.standard import curve_of
from gpdsl.symbolic.terms import Formula, density_formula
from gpdsl.symbolic.translate import NeedsElements, Translator, axis_key

TRIED = (-1.0, 0.0, 1.5)
"""Values of the latents at which the mass is computed."""

TOLERANCE = 1e-4
LARGEST = 1e6
"""Larger integrals are counted as infinite."""

FAR = {"real": (300.0, 330.0), "positive": (300.0, 330.0), "unit": (25.0, 32.0)}
"""Logarithms of |y|, or log odds, between which the fall of a tail is measured."""

NEVER, SLOW = 1e-3, 0.04
"""Powers of |y| that a tail falls by besides 1/|y|: with less there is no integral, or none that could be computed."""


def doubtful_densities(declarations: m.Declarations) -> Iterator[Mistake]:
    """A warning for each observation whose density does not integrate to one."""
    translator = Translator(declarations, {})
    translator.sizes = UnknownSizes()
    for observation, said in doubtful(translator, {}):
        call, output = observation.distribution, declarations.outputs[observation.outputs[0]]
        if call.log_density is not None:
            yield NotNormalised(call.span, call.name, output.name, said)
        else:
            cut = "lower = 0" if output.kind == "positive" else "lower = 0, upper = 1"
            yield OutsideOutput(call.span, call.name, output.name, output.kind, said, cut)


def doubtful(translator: Translator, values: Mapping[str, np.ndarray]) -> Iterator[tuple[m.Observation, str]]:
    """Observations whose density does not integrate to one, at these parameters (else the initial ones), in words."""
    for observation in suspect(translator.declarations):
        try:
            formula = density_formula(translator, observation, {axis_key(axis): 1 for axis in observation.axes})
        except (ModelError, NeedsElements):
            continue
        found = masses(translator, formula, values)
        said = "" if found is None else mass_words(found)
        if said:
            yield observation, said


def masses(translator: Translator, formula: Formula, values: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """The integrals over the output, at these parameters (else the initial ones) and some values of the latents.

    None for a density that calls an opaque function.
    """
    if has_external(translator, formula.log_density):
        return None
    others = sorted(formula.log_density.free_symbols - {formula.symbol}, key=lambda each: each.name)
    fixed = {symbol: _typical(translator, symbol, values) for symbol in others}

    def log_density(y: np.ndarray) -> np.ndarray:
        return np.broadcast_to(evaluate(formula.log_density, {**fixed, formula.symbol: y}), y.shape)

    with np.errstate(all="ignore"):
        curves = curve_of(formula.log_density, formula.symbol, fixed, len(TRIED), formula.kind)
        found = np.where(np.isinf(curves.doubt), np.inf, np.exp(curves.log_mass))
        if formula.kind not in LINES:
            return found
        falls = _falls(log_density, LINES[formula.kind], formula.kind)
        if np.any(falls < SLOW):
            return np.where(falls < NEVER, np.inf, np.where(falls < SLOW, np.nan, found))
        return found


def _falls(log_density: Callable[[np.ndarray], np.ndarray], line: Line, kind: str) -> np.ndarray:
    """The power by which the slower tail falls besides 1/|y|, where the density is a number."""
    near, far = (np.full((1, len(TRIED)), each) for each in FAR[kind])
    falls = []
    for side in (-1.0, 1.0):
        ends = [side * (np.exp(each) if kind == "real" else each) for each in (near, far)]
        low, high = (log_density(line.forward(v)) + line.log_slope(v) for v in ends)
        fall = (low - high + (near - far if kind == "real" else 0.0)) / (far - near)
        falls.append(np.where(np.isfinite(fall) & (low > IMPOSSIBLE), fall, np.inf)[0])
    return np.minimum(*falls)


def _typical(translator: Translator, symbol: sp.Symbol, values: Mapping[str, np.ndarray]) -> np.ndarray:
    ref = translator.references[symbol]
    if ref.kind in ("latent", "row"):
        return np.asarray(TRIED)
    if ref.kind == "param" and ref.name in values:
        places = tuple(p - 1 if isinstance(p, int) else 0 for p in ref.positions)
        return np.full(len(TRIED), np.asarray(values[ref.name], float)[places])
    return np.full(len(TRIED), start_of(translator, symbol))


def mass_words(found: np.ndarray) -> str:
    """That integrals are not one; empty where they are."""
    if np.all(np.abs(found - 1.0) < TOLERANCE):
        return ""
    if np.any(np.isnan(found)):
        return "falls so slowly that its integral is infinite, or beyond what can be computed"
    if not np.all(np.isfinite(found)) or found.max() > LARGEST:
        return "does not have a finite integral"
    low, high = (f"{each:.{4 if abs(each - 1.0) > 10 * TOLERANCE else 5}g}" for each in (found.min(), found.max()))
    alike = np.ptp(found) < 10 * TOLERANCE * found.max()
    return f"integrates to {low if alike else f'{low} to {high}'}, not to one"


# The probability that a law of numbers has between two bounds.

CANCELLED = 1e-6
"""A difference of distribution functions that is smaller has too few digits."""

CUTS = (0.001, 0.1, 0.5, 0.9, 0.999)
"""Shares at whose quantiles integrals are cut, where quantiles are known: they tell where the density is."""


def log_mass(law: Law, low: float, high: float) -> float:
    """log P(low < Y < high) of a law without unknowns, whose distribution function has one value between the bounds."""
    if law.name == "Mixture":
        parts = zip(log_weights(law), law.components, strict=True)
        return float(logsumexp([float(weight) + log_mass(each, low, high) for weight, each in parts]))
    if law.name == "Truncated":
        (inner,) = law.components
        own = float(law.arguments.get("lower", -math.inf)), float(law.arguments.get("upper", math.inf))
        return log_mass(inner, max(low, own[0]), min(high, own[1])) - log_mass(inner, *own)
    least, most = interval_of(DISTRIBUTIONS[law.name].support)
    if low <= least and high >= most:
        return 0.0
    if law.name in TAILS:
        return _by_tails(law, max(low, least), min(high, most))
    arguments = law.map(float).arguments
    cdf = DENSITIES[law.name].cdf
    share = 0.0 if cdf is None else float(cdf(np.array(high), arguments) - cdf(np.array(low), arguments))
    return math.log(share) if share > CANCELLED else _by_quadrature(law, max(low, least), min(high, most))


def _by_tails(law: Law, low: float, high: float) -> float:
    tails, (least, most) = TAILS[law.name], interval_of(DISTRIBUTIONS[law.name].support)
    if low <= least:
        found = tails.below(sp.Float(high), law.arguments)
    elif high >= most:
        found = tails.above(sp.Float(low), law.arguments)
    else:
        found = tails.between(sp.Float(low), sp.Float(high), law.arguments)
    return float(evaluate(found, {}))


def _by_quadrature(law: Law, low: float, high: float) -> float:
    y = sp.Dummy("y", real=True)
    formula, quantile = log_density(law, y), DENSITIES[law.name].quantile
    cuts = [] if quantile is None else [float(quantile(np.array(p), law.map(float).arguments)) for p in CUTS]
    ends = [low, *(each for each in cuts if low < each < high), high]

    def density(at: float) -> float:
        return float(np.exp(evaluate(formula, {y: np.float64(at)})))

    between = zip(ends, ends[1:], strict=False)
    total = sum(scipy.integrate.quad(density, *each, epsabs=0.0, limit=200)[0] for each in between)
    return math.log(total) if total > 0 else -math.inf
