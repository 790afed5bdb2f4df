"""What a `density` of the file integrates to: a formula that is not normalised is a mistake that no fit can notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import sympy as sp

from gpdsl.language import model as m
from gpdsl.language.errors.base import Mistake, ModelError
from gpdsl.symbolic.curves import LINES, curve
from gpdsl.symbolic.errors import NotNormalised
from gpdsl.symbolic.kernel_values import UnknownSizes, start_of
from gpdsl.symbolic.numeric import evaluate
from gpdsl.symbolic.terms import Formula, density_formula, has_external
from gpdsl.symbolic.translate import NeedsElements, Translator, axis_key

TRIED = (-1.0, 0.0, 1.5)
"""Values of the latents at which the mass is computed."""

TOLERANCE = 1e-3
LARGEST = 1e6
"""Larger integrals are counted as infinite."""

REACH, CELLS, HALVINGS, ROUNDING = 15.0, 120, 30, 1e-8
"""Range of the adaptive quadrature, in asinh of the output on the real line; its cells, how often they are halved, and
the change that ends it."""


def doubtful_densities(declarations: m.Declarations) -> Iterator[Mistake]:
    """A warning for each observation by a formula that does not integrate to one."""
    for observation in declarations.observations:
        if observation.distribution.log_density is None:
            continue
        translator = Translator(declarations, {})
        translator.sizes = UnknownSizes()
        try:
            formula = density_formula(translator, observation, {axis_key(axis): 1 for axis in observation.axes})
        except (ModelError, NeedsElements):
            continue
        found = masses(translator, formula, {})
        said = "" if found is None else mass_words(found)
        if said:
            call = observation.distribution
            yield NotNormalised(call.span, call.name, observation.outputs[0], said)


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
        found = np.exp(curve(log_density, len(TRIED), formula.kind).log_mass)
    if formula.kind not in LINES or np.all(_one(found)):
        return found
    return np.asarray([_again(formula, fixed, place) for place in range(len(TRIED))])


def _one(found: np.ndarray) -> np.ndarray:
    return np.abs(found - 1.0) < TOLERANCE


def _typical(translator: Translator, symbol: sp.Symbol, values: Mapping[str, np.ndarray]) -> np.ndarray:
    ref = translator.references[symbol]
    if ref.kind in ("latent", "row"):
        return np.asarray(TRIED)
    if ref.kind == "param" and ref.name in values:
        places = tuple(p - 1 if isinstance(p, int) else 0 for p in ref.positions)
        return np.full(len(TRIED), np.asarray(values[ref.name], float)[places])
    return np.full(len(TRIED), start_of(translator, symbol))


def _again(formula: Formula, fixed: Mapping[sp.Symbol, np.ndarray], place: int) -> float:
    """One of the integrals by adaptive quadrature, which jumps and kinks do not mislead."""
    line, known = LINES[formula.kind], {symbol: value[place] for symbol, value in fixed.items()}

    def along(u: np.ndarray) -> np.ndarray:
        v = np.sinh(u)
        log_density = evaluate(formula.log_density, {**known, formula.symbol: line.forward(v)})
        return np.nan_to_num(np.exp(log_density + line.log_slope(v)) * np.cosh(u), nan=0.0)

    with np.errstate(all="ignore"):
        return _integral(along)


def _integral(function: Callable[[np.ndarray], np.ndarray]) -> float:
    """From -REACH to REACH: cells are halved until the two halves say what the whole said."""
    nodes, weights = np.polynomial.legendre.leggauss(8)
    edges, total = np.linspace(-REACH, REACH, CELLS + 1), 0.0
    low, high = edges[:-1], edges[1:]

    def of(low: np.ndarray, high: np.ndarray) -> np.ndarray:
        half = 0.5 * (high - low)
        return half * (function((low + half)[:, None] + half[:, None] * nodes) @ weights)

    for turn in range(HALVINGS):
        middle = 0.5 * (low + high)
        whole, parts = of(low, high), of(low, middle) + of(middle, high)
        open_ = (np.abs(whole - parts) > ROUNDING * (1.0 + np.abs(parts))) & (turn < HALVINGS - 1)
        total += float(parts[~open_].sum())
        low, high = np.concatenate([low[open_], middle[open_]]), np.concatenate([middle[open_], high[open_]])
        if not len(low):
            break
    return total


def mass_words(found: np.ndarray) -> str:
    """That integrals are not one; empty where they are."""
    if np.all(_one(found)):
        return ""
    if not np.all(np.isfinite(found)) or found.max() > LARGEST:
        return "does not have a finite integral"
    low, high = found.min(), found.max()
    return (
        "integrates to "
        + (f"{low:.4g}" if high - low < TOLERANCE * high else f"{low:.4g} to {high:.4g}")
        + ", not to one"
    )
