"""Transformed left sides: `t(y) ~ Normal(f, s)` has the density of t(y) and log |dt/dy| besides."""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from gpdsl.language import model as m
from gpdsl.language.checker.monotone import course
from gpdsl.symbolic.errors import NoDerivative
from gpdsl.symbolic.translate import Environment, Translator


@dataclass(frozen=True)
class Warp:
    """`value` as a function of the output's `symbol`, between `low` and `high` for outputs of its kind.

    `proved` says that the signs of the parameters make it monotone; else it was tried at their initial values.
    """

    symbol: sp.Symbol
    value: sp.Expr
    slope: sp.Expr
    direction: int | None
    kind: str

    @property
    def proved(self) -> bool:
        """Whether it is monotone whatever the parameters become."""
        return self.direction is not None

    def log_slope(self) -> sp.Expr:
        """log |dt/dy|, by the rule for the sum of logarithms of a product where signs are known."""
        slope = self.slope if self.direction is None else self.direction * self.slope
        if self.direction is None:
            return sp.log(slope**2) / 2
        parts = sp.Mul.make_args(slope)
        if len(parts) > 1 and all(part.is_positive for part in parts):
            return sp.Add(*[sp.log(part) for part in parts])
        return sp.log(slope)


def warp_of(translator: Translator, observation: m.Observation, y: sp.Symbol, env: Environment) -> Warp:
    """The transform left of one observation, its slope by symbolic differentiation.

    Raises ModelError when a function in it has no derivative.
    """
    assert observation.transform is not None
    output = translator.declarations.outputs[observation.outputs[0]]
    value = translator.bounded(translator.scalar(observation.transform, env), "the left side", observation.span)
    slope = sp.diff(value, y)
    if slope.has(sp.Derivative, sp.Subs):
        raise translator.failure(NoDerivative(observation.span, output.name))
    slope = translator.bounded(slope, "the derivative of the left side", observation.span)
    found = course(translator.declarations, observation.transform)
    return Warp(y, value, slope, found.direction if found.known else None, output.kind)
