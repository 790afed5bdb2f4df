"""Tail probabilities of the continuous distributions: what truncation and censoring need, in stable logarithms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import sympy as sp

from gpdsl.symbolic.conditions import choose, less
from gpdsl.symbolic.functions import (
    absolute,
    log1mexp,
    log1p,
    log_difference,
    log_gamma_cdf,
    log_gamma_sf,
    log_ndtr,
    log_ndtr_interval,
    log_student_cdf,
    softplus,
)

Formula: TypeAlias = sp.Expr
Arguments = Mapping[str, Formula]


@dataclass(frozen=True)
class Tails:
    """`below(y, a)` is log P(Y <= y), `above` log P(Y > y), `between(l, u, a)` log P(l < Y <= u).

    `positive` says that nothing lies below zero. In JAX the probabilities have no derivative with respect to the
    argument `constant`, and none of second order with respect to `stiff`.
    """

    below: Callable[[Formula, Arguments], Formula]
    above: Callable[[Formula, Arguments], Formula]
    between: Callable[[Formula, Formula, Arguments], Formula]
    positive: bool = False
    constant: str = ""
    stiff: str = ""


def generic(
    below: Callable[[Formula, Arguments], Formula],
    above: Callable[[Formula, Arguments], Formula],
    *,
    positive: bool = False,
    constant: str = "",
    stiff: str = "",
) -> Tails:
    """The probability between two values as a difference, on the side where it does not cancel."""

    def between(lower: Formula, upper: Formula, a: Arguments) -> Formula:
        right = log_difference(above(lower, a), above(upper, a))
        left = log_difference(below(upper, a), below(lower, a))
        return choose(less(above(lower, a), below(lower, a)), right, left)

    return Tails(below, above, between, positive, constant, stiff)


def _standard(y: Formula, a: Arguments) -> Formula:
    return (y - a["mean"]) / a.get("sd", a.get("scale", sp.Integer(1)))


def _symmetric(
    below: Callable[[Formula], Formula],
    between: Callable[[Formula, Formula], Formula] | None = None,
    *,
    log: bool = False,
) -> Tails:
    """A distribution that is symmetric about its mean, by its standard form; of `log`, it is the logarithm that is."""

    def standard(y: Formula, a: Arguments) -> Formula:
        return _standard(sp.log(y) if log else y, a)

    tails = generic(lambda y, a: below(standard(y, a)), lambda y, a: below(-standard(y, a)), positive=log)
    if between is None:
        return tails
    return replace(tails, between=lambda lower, upper, a: between(standard(lower, a), standard(upper, a)))


def logistic_between(lower: Formula, upper: Formula) -> Formula:
    """log(sigmoid(upper) - sigmoid(lower)), a product of factors none of which cancels."""
    return -softplus(-upper) - softplus(lower) + log1mexp(upper - lower)


def _hazard(cumulative: Callable[[Formula, Arguments], Formula]) -> Tails:
    """A distribution of positive values by its cumulative hazard H: P(Y > y) = exp(-H(y))."""
    return Tails(
        lambda y, a: log1mexp(cumulative(y, a)),
        lambda y, a: -cumulative(y, a),
        lambda lower, upper, a: -cumulative(lower, a) + log1mexp(cumulative(upper, a) - cumulative(lower, a)),
        positive=True,
    )


def _laplace_below(z: Formula) -> Formula:
    # The unused branch stays finite for every z, so that its derivative does too.
    return choose(less(z, sp.Integer(0)), -absolute(z) - sp.log(2), log1p(-sp.exp(-absolute(z)) / 2))


TAILS: dict[str, Tails] = {
    "Normal": _symmetric(log_ndtr, log_ndtr_interval),
    "LogNormal": _symmetric(log_ndtr, log_ndtr_interval, log=True),
    "Logistic": _symmetric(lambda z: -softplus(-z), logistic_between),
    "Laplace": _symmetric(_laplace_below),
    "StudentT": generic(
        lambda y, a: log_student_cdf(a["df"], _standard(y, a)),
        lambda y, a: log_student_cdf(a["df"], -_standard(y, a)),
        constant="df",
    ),
    "HalfNormal": Tails(
        lambda y, a: sp.log(2) + log_ndtr_interval(sp.Integer(0), y / a["sd"]),
        lambda y, a: sp.log(2) + log_ndtr(-y / a["sd"]),
        lambda lower, upper, a: sp.log(2) + log_ndtr_interval(lower / a["sd"], upper / a["sd"]),
        positive=True,
    ),
    "Exponential": _hazard(lambda y, a: a["rate"] * y),
    "Weibull": _hazard(lambda y, a: (y / a["scale"]) ** a["shape"]),
    "Gamma": generic(
        lambda y, a: log_gamma_cdf(a["shape"], a["rate"] * y),
        lambda y, a: log_gamma_sf(a["shape"], a["rate"] * y),
        positive=True,
        stiff="shape",
    ),
}
"""Distributions that can be truncated and censored. Not Beta: its distribution function has no derivative in JAX."""
