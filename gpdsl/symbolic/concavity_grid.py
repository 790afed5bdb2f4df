"""Where a log density has a positive second derivative: looked for on a grid of latents, data and parameters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import sympy as sp

from gpdsl.symbolic.kernel_values import start_of
from gpdsl.symbolic.numeric import evaluate
from gpdsl.symbolic.outcomes import COUNT, FAILURES
from gpdsl.symbolic.translate import Translator

SETS = 24
"""Draws of the data, of the parameters, and of the direction in which several latents move."""
PLACES = np.linspace(-12.0, 12.0, 961)
"""Of the latent, in steps small enough for a second difference."""
TOLERANCE = 1e-6
ROUNDING = 1e-10
"""Curvatures below these, as parts of the largest one and of the density itself, are zero but for rounding."""


def positive_curvature(translator: Translator, cases: Sequence[sp.Expr], latents: Sequence[sp.Symbol]) -> str | None:
    """The place with the largest positive second difference, in words; None when there is none."""
    rng = np.random.default_rng(0)
    worst, told = 0.0, None
    for case in cases:
        for number in range(SETS):
            known = _known(translator, case, latents, rng, wild=number > 0)
            centre = {s: 0.0 if number == 0 else rng.normal() for s in latents}
            along = {s: 1.0 if len(latents) == 1 else rng.normal() for s in latents}
            at = {s: np.asarray(centre[s] + along[s] * PLACES) for s in latents}
            curvature = _curvature(case, known | at)
            place = int(np.argmax(curvature))
            if curvature[place] > worst:
                worst = float(curvature[place])
                told = _told(worst, known, {s: float(at[s][place + 1]) for s in latents})
    return told


def _curvature(case: sp.Expr, values: dict[sp.Symbol, np.ndarray]) -> np.ndarray:
    """Second differences over the squared step; 0 where they are not certain, or are not finite."""
    density = np.broadcast_to(np.asarray(evaluate(case, values), float), PLACES.shape)
    step = PLACES[1] - PLACES[0]
    with np.errstate(all="ignore"):
        second = (density[2:] - 2 * density[1:-1] + density[:-2]) / step**2
        noise = ROUNDING * np.max(np.abs([density[2:], density[1:-1], density[:-2]]), axis=0) / step**2
    finite = np.isfinite(second)
    largest = np.max(np.abs(second[finite]), initial=0.0)
    return np.where(finite & (second > noise + TOLERANCE * largest), second, 0.0)


def _known(
    translator: Translator, case: sp.Expr, latents: Sequence[sp.Symbol], rng: np.random.Generator, *, wild: bool
) -> dict[sp.Symbol, np.ndarray]:
    """A number for every other symbol: the parameters' initial values the first time, then random ones."""
    found: dict[sp.Symbol, np.ndarray] = {}
    for symbol in sorted(case.free_symbols - set(latents), key=str):
        if symbol in (COUNT, FAILURES):
            value = float(rng.poisson(3.0))
        elif translator.references[symbol].kind == "param":
            value = start_of(translator, symbol, rng if wild else None)
        else:
            value = float(np.exp(rng.normal()) if symbol.is_positive else 3.0 * rng.normal())
        found[symbol] = np.asarray(value)
    return found


def _told(curvature: float, known: dict[sp.Symbol, np.ndarray], latents: dict[sp.Symbol, float]) -> str:
    numbers = latents | {symbol: float(value) for symbol, value in known.items()}
    places = [f"{symbol.name} = {value:.3g}" for symbol, value in numbers.items()]
    return f"its second derivative is {curvature:.3g} at {', '.join(places)}"
