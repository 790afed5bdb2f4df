"""What follows from a kernel's formula: stationarity, isotropy, variance, derivatives and spectral density.

`analyse(kernel, declarations, latent)` does so for any checked kernel, of the table or by formula. Inputs of many
columns are looked at through two of them, which show all that these properties depend on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import sympy as sp

from gpdsl.language import model as m
from gpdsl.symbolic.functions import absolute, differentiated, expanded, in_words, simplified
from gpdsl.symbolic.kernel_coordinates import Pair, expression_of
from gpdsl.symbolic.kernel_formula import DISTANCE, at_zero
from gpdsl.symbolic.kernel_values import smoothness, start_of
from gpdsl.symbolic.numeric import evaluate
from gpdsl.symbolic.spectral import FREQUENCY, numeric_spectral_density, spectral_density
from gpdsl.symbolic.translate import Translator

MOST_OPERATIONS = 400
"""Larger kernels are not expanded, differentiated or transformed."""
LONGEST = 10_000
"""Characters of a formula for programs."""
SHOWN_FREQUENCIES = (0.0, 1.0, 3.0)


@dataclass(frozen=True)
class KernelAnalysis:
    """A kernel k(a, b) and what follows from it.

    `expression` is k in the coordinates of `pair`, and its other symbols are parameters, whose initial values are
    `start`. `columns` is the number of columns of the input, of which the pair has two at most. `stationary` is None
    for a formula that is too large to tell. `profile` is k as a function of the Euclidean distance `DISTANCE`, or None
    when it is none: it is what makes a kernel isotropic.
    """

    expression: sp.Expr
    pair: Pair
    columns: int
    stationary: bool | None
    profile: sp.Expr | None
    start: Mapping[str, float]

    @property
    def isotropic(self) -> bool:
        """Whether it depends on the distance alone."""
        return self.profile is not None

    @cached_property
    def variance(self) -> sp.Expr | None:
        """k(a, a), or None where no finite value is found."""
        if self.profile is not None:
            found = at_zero(self.profile)
            return None if found is None else simplified(found)
        value = self.expression.subs(dict(zip(self.pair.b, self.pair.a, strict=True)), simultaneous=True)
        return None if value.has(sp.nan, sp.zoo) else simplified(value)

    def derivative(self, along_a: int | None = None, along_b: int | None = None) -> sp.Expr | None:
        """dk/da, dk/db, or d2k/da db when both are given: along these columns, counted from 1, of the pair.

        None when a function in it has no derivative that is written down.
        """
        value: sp.Expr | None = self.expression
        for coordinates, column in ((self.pair.a, along_a), (self.pair.b, along_b)):
            if column is not None and value is not None:
                value = differentiated(value, coordinates[column - 1])
        return value

    @cached_property
    def smoothness(self) -> int | None:
        """How often the process can be differentiated (mean-square), up to 3; None when the formula does not tell."""
        return None if self._too_large else smoothness(self.profile, DISTANCE)

    @property
    def _too_large(self) -> bool:
        """Whether it has no profile, or one too large to be worked on."""
        return self.profile is None or bool(sp.count_ops(self.profile) > MOST_OPERATIONS)

    @cached_property
    def spectral_density(self) -> sp.Expr | None:
        """S(omega) of an isotropic kernel, omega in radians per unit of the input; None when no table has it."""
        return None if self._too_large else spectral_density(self.profile, DISTANCE, self.columns)

    def spectral_values(self, frequencies: np.ndarray, numbers: Mapping[str, float] | None = None) -> np.ndarray:
        """S at some frequencies, with these values of the parameters by name: by formula, or else by quadrature.

        Parameters without a value have their initial one. NaN for a kernel that is not isotropic, or that does not
        vanish at large distances and has spikes instead.
        """
        frequencies = np.asarray(frequencies, float)
        given = {**self.start, **(numbers or {})}
        values = {s: np.asarray(given[s.name], float) for s in self.expression.free_symbols if s.name in given}
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

    def summary(self) -> dict[str, Any]:
        """What `describe` says, by name, for programs; None for what is not known."""
        return {
            "isotropic": self.isotropic,
            "variance": None if self.variance is None else in_words(self.variance, LONGEST),
            "derivatives": self.smoothness,
            "spectral_density": None if self.spectral_density is None else in_words(self.spectral_density, LONGEST),
        }

    def describe(self) -> str:
        """A few lines for people, such as `gpdsl explain` prints."""
        shown = self.profile if self.profile is not None else self.expression
        variance = "unknown" if self.variance is None else in_words(self.variance)
        lines = [f"k = {in_words(shown)}", f"{self.kind}; variance {variance}"]
        if self.smoothness is not None:
            times = {0: "not differentiable", 1: "differentiable once", 2: "differentiable twice"}
            lines.append(f"a process with it is {times.get(self.smoothness, 'differentiable three times and more')}")
        if self.isotropic:
            lines.append(f"spectral density {self._density()}")
        return "\n".join(lines)

    @property
    def kind(self) -> str:
        """What it depends on, in a word."""
        if self.isotropic:
            return "isotropic"
        return {True: "stationary", False: "not stationary", None: "too large to tell whether it is stationary"}[
            self.stationary
        ]

    def _density(self) -> str:
        if self.spectral_density is not None:
            return f"S(omega) = {in_words(self.spectral_density)}"
        values = self.spectral_values(np.asarray(SHOWN_FREQUENCIES))
        if not np.isfinite(values).all():
            return "unknown: the kernel does not vanish at large distances, or too slowly"
        shown = ", ".join(f"S({w:g}) = {v:.4g}" for w, v in zip(SHOWN_FREQUENCIES, values, strict=True))
        return f"by quadrature, at the initial values: {shown}"


def analyse(kernel: m.Kernel, declarations: m.Declarations, latent: m.Latent | None = None) -> KernelAnalysis:
    """The analysis of a kernel of a model, over the input of `latent`: one of its own unless given.

    Sizes that data have not said yet count as two.
    """
    translator = Translator(declarations, {})
    translator.sizes = _Two()
    of = latent or next(each for each in declarations.latents.values() if each.kernel is kernel)
    found = expression_of(kernel, translator, of)
    stationary = _stationary(found.expression, found.pair) if found.plain else False
    profile = _profile(found.expression, found.pair) if stationary and found.whole else None
    symbols = found.expression.free_symbols & set(translator.references)
    start = {symbol.name: start_of(translator, symbol) for symbol in symbols}
    return KernelAnalysis(found.expression, found.pair, found.columns, stationary, profile, start)


def of_differences(kernel: m.KernelFormula, declarations: m.Declarations, latent: m.Latent) -> bool:
    """Whether a formula is known to read its points by their differences alone, whatever their levels are."""
    found, points = analyse(kernel, declarations, latent), slice(None, -1 if kernel.levels else None)
    return _stationary(found.expression, Pair(found.pair.a[points], found.pair.b[points])) is True


class _Two(dict):
    """Sizes that data have not said yet."""

    def __missing__(self, name: str) -> int:
        return 2


def _shifts(pair: Pair) -> tuple[sp.Symbol, ...]:
    return tuple(sp.Symbol(f"t{i + 1}", real=True) for i in range(len(pair.a)))


def _in_differences(expression: sp.Expr, pair: Pair) -> sp.Expr:
    """The expression in the differences of its points, when it depends on no more; then without the second point."""
    moved = {a: b + t for a, b, t in zip(pair.a, pair.b, _shifts(pair), strict=True)}
    plain = expression.replace(absolute, sp.Abs)
    plain = plain.replace(sp.KroneckerDelta, lambda a, b: sp.KroneckerDelta(a - b, 0))  # one of the difference alone
    shifted = plain.subs(moved, simultaneous=True)
    if shifted.free_symbols & set(pair.b) and sp.count_ops(expression) <= MOST_OPERATIONS:
        shifted = expanded(shifted)
    return shifted


def _stationary(expression: sp.Expr, pair: Pair) -> bool | None:
    if not _in_differences(expression, pair).free_symbols & set(pair.b):
        return True
    return None if sp.count_ops(expression) > MOST_OPERATIONS else False


def _profile(expression: sp.Expr, pair: Pair) -> sp.Expr | None:
    """The expression in the distance, when it depends on no more: unchanged as a difference turns or changes sign."""
    inside = _in_differences(expression, pair)
    if inside.has(sp.KroneckerDelta):
        return None
    shifts = _shifts(pair)
    if len(shifts) == 1:
        profile = inside.subs(shifts[0], DISTANCE)
        return profile if same(inside.subs(shifts[0], -shifts[0]), inside) else None
    first, second = shifts
    turned = inside.subs(first, sp.sqrt(DISTANCE**2 - second**2))
    if second in turned.free_symbols:
        turned = sp.powdenest(turned.replace(lambda e: isinstance(e, sp.Add), expanded))
    if second in turned.free_symbols:
        turned = expanded(turned)
    return None if second in turned.free_symbols else turned


def same(one: sp.Expr, other: sp.Expr) -> bool:
    """Whether algebra shows that two formulas are one."""
    return one == other or bool(expanded(one - other) == 0)
