"""What follows from a kernel's formula: stationarity, isotropy, variance, derivatives and spectral density.

`analyse(kernel, declarations, latent)` does so for any checked kernel, of the table or by formula. Inputs of many
columns are looked at through two of them, which show all that these properties depend on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import sympy as sp

from gpdsl.language import model as m
from gpdsl.symbolic.functions import absolute
from gpdsl.symbolic.kernel_coordinates import Pair, expression_of
from gpdsl.symbolic.kernel_formula import DISTANCE, at_zero
from gpdsl.symbolic.numeric import evaluate
from gpdsl.symbolic.spectral import FREQUENCY, numeric_spectral_density, spectral_density
from gpdsl.symbolic.translate import Translator

MOST_OPERATIONS = 400
"""Larger kernels are not rewritten in the difference or the distance of their points."""


@dataclass(frozen=True)
class KernelAnalysis:
    """A kernel k(a, b) and what follows from it.

    `expression` is k in the coordinates of `pair`, and its other symbols are parameters. `columns` is the number of
    columns of the input, of which the pair has two at most. `profile` is k as a function of the Euclidean distance
    `DISTANCE`, or None when it is none: it is what makes a kernel isotropic.
    """

    expression: sp.Expr
    pair: Pair
    columns: int
    stationary: bool
    profile: sp.Expr | None

    @property
    def isotropic(self) -> bool:
        """Whether it depends on the distance alone."""
        return self.profile is not None

    @cached_property
    def variance(self) -> sp.Expr | None:
        """k(a, a), or None where no finite value is found."""
        if self.profile is not None:
            return at_zero(self.profile, DISTANCE)
        value = self.expression.subs(dict(zip(self.pair.b, self.pair.a, strict=True)), simultaneous=True)
        return None if value.has(sp.nan, sp.zoo) else value

    def derivative(self, along_a: int | None = None, along_b: int | None = None) -> sp.Expr:
        """dk/da, dk/db, or d2k/da db when both are given: along these columns, counted from 1, of the pair."""
        value = self.expression
        if along_a is not None:
            value = sp.diff(value, self.pair.a[along_a - 1])
        return value if along_b is None else sp.diff(value, self.pair.b[along_b - 1])

    @cached_property
    def smoothness(self) -> int | None:
        """How often the process can be differentiated (mean-square), up to 3; None when the formula does not tell.

        By the odd powers of the distance: k(r) = c0 + c1 r + c2 r^2 + ... has n derivatives when the first 2n are even.
        """
        if self.profile is None or sp.count_ops(self.profile) > MOST_OPERATIONS:
            return None
        slope = self.profile
        for order in range(1, 7):
            slope = sp.diff(slope, DISTANCE)
            if slope.has(sp.Derivative, sp.Subs):
                return None
            start = at_zero(slope, DISTANCE)
            if start is None or (order % 2 and sp.expand(start) != 0):
                return (order - 1) // 2
        return 3

    @cached_property
    def spectral_density(self) -> sp.Expr | None:
        """S(omega) of an isotropic kernel, omega in radians per unit of the input; None when no table has it."""
        if self.profile is None or sp.count_ops(self.profile) > MOST_OPERATIONS:
            return None
        return spectral_density(self.profile, DISTANCE, self.columns)

    def spectral_values(self, frequencies: np.ndarray, numbers: Mapping[str, float]) -> np.ndarray:
        """S at some frequencies, with these values of the parameters by name: by formula, or else by quadrature.

        NaN for a kernel that is not isotropic, or that does not vanish at large distances and has spikes instead.
        """
        frequencies = np.asarray(frequencies, float)
        values = {s: np.asarray(numbers[s.name], float) for s in self.expression.free_symbols if s.name in numbers}
        known = self.spectral_density
        if known is not None and not known.has(sp.DiracDelta, sp.Sum):
            return np.broadcast_to(evaluate(known, {**values, FREQUENCY: frequencies}), frequencies.shape)
        if self.profile is None:
            return np.full(frequencies.shape, np.nan)
        profile = self.profile
        return numeric_spectral_density(
            lambda r: np.broadcast_to(evaluate(profile, {**values, DISTANCE: r}), np.shape(r)),
            frequencies,
            self.columns,
        )

    def describe(self) -> str:
        """A few lines for people, such as `gpdsl explain` prints."""
        kind = "isotropic" if self.isotropic else "stationary" if self.stationary else "not stationary"
        shown = self.profile if self.profile is not None else self.expression
        lines = [f"k = {_shown(shown)}", f"{kind}; variance {_shown(self.variance)}"]
        if self.smoothness is not None:
            times = {0: "not differentiable", 1: "differentiable once", 2: "differentiable twice"}
            lines.append(f"a process with it is {times.get(self.smoothness, 'differentiable three times and more')}")
        if self.isotropic:
            density = self.spectral_density
            lines.append(
                "spectral density " + ("by quadrature" if density is None else f"S(omega) = {_shown(density)}")
            )
        return "\n".join(lines)


def analyse(kernel: m.Kernel, declarations: m.Declarations, latent: m.Latent | None = None) -> KernelAnalysis:
    """The analysis of a kernel of a model, over the input of `latent`: one of its own unless given.

    Sizes that data have not said yet count as two.
    """
    translator = Translator(declarations, {})
    translator.sizes = _Two()
    of = latent or next(each for each in declarations.latents.values() if each.kernel is kernel)
    found = expression_of(kernel, translator, of)
    stationary = found.plain and _stationary(found.expression, found.pair)
    profile = _profile(found.expression, found.pair) if stationary and found.whole else None
    return KernelAnalysis(found.expression, found.pair, found.columns, stationary, profile)


class _Two(dict):
    """Sizes that data have not said yet."""

    def __missing__(self, name: str) -> int:
        return 2


def _shown(expression: sp.Expr | None) -> str:
    if expression is None:
        return "unknown"
    text = str(expression).replace("**", "^")
    return text if len(text) <= 160 else text[:159] + "…"


def _shifts(pair: Pair) -> tuple[sp.Symbol, ...]:
    return tuple(sp.Symbol(f"t{i + 1}", real=True) for i in range(len(pair.a)))


def _in_differences(expression: sp.Expr, pair: Pair) -> sp.Expr | None:
    """The expression in the differences of its points, when it depends on no more."""
    if sp.count_ops(expression) > MOST_OPERATIONS:
        return None
    moved = {a: b + t for a, b, t in zip(pair.a, pair.b, _shifts(pair), strict=True)}
    shifted = expression.replace(absolute, sp.Abs).subs(moved, simultaneous=True)
    if shifted.free_symbols & set(pair.b):
        shifted = sp.expand(shifted)
    return None if shifted.free_symbols & set(pair.b) else shifted


def _stationary(expression: sp.Expr, pair: Pair) -> bool:
    return _in_differences(expression, pair) is not None


def _profile(expression: sp.Expr, pair: Pair) -> sp.Expr | None:
    """The expression in the distance, when it depends on no more: unchanged as a difference turns or changes sign."""
    inside = _in_differences(expression, pair)
    if inside is None:
        return None
    if inside.has(sp.KroneckerDelta):
        return None
    shifts = _shifts(pair)
    if len(shifts) == 1:
        profile = inside.subs(shifts[0], DISTANCE)
        return profile if _same(inside.subs(shifts[0], -shifts[0]), inside) else None
    first, second = shifts
    turned = inside.subs(first, sp.sqrt(DISTANCE**2 - second**2))
    if second in turned.free_symbols:
        turned = sp.expand(sp.powdenest(turned.replace(lambda e: isinstance(e, sp.Add), sp.expand)))
    return None if second in turned.free_symbols else turned


def _same(one: sp.Expr, other: sp.Expr) -> bool:
    return one == other or sp.expand(one - other) == 0
