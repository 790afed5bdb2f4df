"""What a `density` of the file integrates to: a formula that is not normalised is a mistake that no fit can notice."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import sympy as sp

from gpdsl.lowering.curves import curve
from gpdsl.lowering.table import evaluate
from gpdsl.program.program import Program
from gpdsl.symbolic.terms import ObservationTerms
from gpdsl.symbolic.translate import Ref

TRIED = (-1.0, 0.0, 1.5)
"""Values of the latents at which the mass is computed."""

INPUT = 1.0
TOLERANCE = 1e-3


def masses(program: Program, o: ObservationTerms) -> np.ndarray:
    """The integral of a density by formula over its output, at the initial parameters and some latents."""
    formula = o.formula
    assert formula is not None
    values = {**program.parameters.initial, **program.parameters.held}
    others = sorted(formula.log_density.free_symbols - {formula.symbol}, key=lambda s: s.name)
    fixed = {symbol: _typical(program, program.translator.references[symbol], values) for symbol in others}

    def log_density(y: np.ndarray) -> np.ndarray:
        def load(symbol: sp.Symbol) -> jnp.ndarray:
            return jnp.asarray(y) if symbol == formula.symbol else jnp.asarray(fixed[symbol])

        return np.broadcast_to(np.asarray(evaluate(formula.log_density, load)), y.shape)

    return np.exp(curve(log_density, len(TRIED), formula.kind).log_mass)


def _typical(program: Program, ref: Ref, values: dict[str, np.ndarray]) -> np.ndarray:
    if ref.kind == "latent":
        return np.asarray(TRIED)
    if ref.kind == "param":
        places = tuple(p - 1 if isinstance(p, int) else 0 for p in ref.positions)
        return np.full(len(TRIED), np.asarray(values[ref.name])[places])
    if ref.kind == "const":
        declared = program.declarations.consts[ref.name]
        shape = program.translator.shape(declared.axes)
        places = tuple(p - 1 if isinstance(p, int) else 0 for p in ref.positions)
        return np.full(len(TRIED), np.broadcast_to(np.asarray(declared.values), shape)[places])
    return np.full(len(TRIED), INPUT)


def mass_note(program: Program, o: ObservationTerms) -> str:
    """What to say of the mass of a density by formula."""
    if any(program.translator.references[s].kind == "external" for s in o.log_density.free_symbols):
        return "its integral is not checked: it calls an opaque function"
    found = masses(program, o)
    checked = "checked numerically at the initial parameters, latents at -1, 0 and 1.5"
    if np.all(np.abs(found - 1) < TOLERANCE):
        return f"integrates to one ({checked})"
    if not np.all(np.isfinite(found)):
        return f"does not have a finite integral over `{o.outputs[0]}` ({checked})"
    low, high = found.min(), found.max()
    shown = f"{low:.4g}" if high - low < TOLERANCE * high else f"{low:.4g} to {high:.4g}"
    remedy = "its parameters are then learnt wrongly; subtract the log of the integral"
    return f"integrates to {shown}, not to one ({checked}): {remedy}"
