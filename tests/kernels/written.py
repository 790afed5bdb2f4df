"""Kernels written in the language, made ready to be computed: what the tests of kernels share."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from gpdsl.kernels.columns import Canonical, Space, canonical
from gpdsl.language import compile_text, model as m
from gpdsl.symbolic.translate import Translator

DECLARED = """input x : real[3]
input s : real
input z : real[7]
input w : real[20]
input task : count
output y : real
index q in 1..2
index t in 1..3
index r in 1..2
param ls : positive = 1
param p : positive = 1
param c : real = 1
param ell : positive[3] = 1
param ez : positive[7] = 1
param weights[q] : positive = 1
param means[q] : positive[3] = 1
param sds[q] : positive = 1
param W[t, r] : real = 1
param kappa[t] : positive = 1
param ex[t] : positive[7] = 1
param ew[t] : positive[20] = 1
"""

Numbers = dict[str, np.ndarray]


@functools.cache
def written(over: str, kernel: str, definition: str = "") -> Canonical:
    """A kernel over some of the declared inputs."""
    read = "f[1]" if "t" in over.split(", ") else "f"  # `t` is an index
    text = f"{DECLARED}{definition}\nlatent f({over}) ~ GP(0, {kernel})\ny ~ Normal({read}, 1)\n"
    declarations = compile_text(text)
    latent = declarations.latents["f"]
    return canonical(latent.kernel, Space.of(Translator(declarations, {}), latent))


def drawn(arguments: Sequence[m.Expression], rng: np.random.Generator) -> Numbers:
    """Random positive values of the parameters among the arguments, by name."""
    found: Numbers = {}
    for each in arguments:
        if isinstance(each, m.Read) and each.name not in found:
            found[each.name] = np.exp(0.3 * rng.normal(size=tuple(axis.size or 1 for axis in each.axes)))
    return found


def placed(arguments: Sequence[m.Expression], numbers: Numbers) -> list[np.ndarray]:
    """The numbers in the order of the arguments."""
    return [np.asarray(_value(each, numbers), float) for each in arguments]


def _value(argument: m.Expression, numbers: Numbers) -> np.ndarray | float:
    match argument:
        case m.Number(value=value):
            return float(value)
        case m.Read(name=name, subscripts=subscripts):
            fixed = tuple(s.position - 1 for s in subscripts if isinstance(s, m.Fixed))
            return numbers[name][fixed] if fixed else numbers[name]
    raise TypeError(argument)
