"""Logarithms of probabilities and of sums of exponentials, rewritten so that they neither overflow nor underflow.

`Bernoulli(p = sigmoid(f))` means the same as `Bernoulli(logit = f)`, but p is exactly 1 from f = 37 on in double
precision, where log(1 - p) is infinite. What a user writes the plain way is computed the careful way:

    log sigmoid(x) = -softplus(-x)      log(1 - sigmoid(x)) = -softplus(x)
    log Phi(x) = log_ndtr(x)            log(1 - Phi(x)) = log_ndtr(-x)
    log(c + exp(x)) = log(c) + softplus(x - log(c))
    log(exp(x) + exp(z) + ...) = logsumexp(x, z, ...)
    log(Phi(b) - Phi(a)) = log_ndtr_interval(a, b), and of the logistic function as `logistic_between`
    log(1 - exp(-x)) = log1mexp(x), log(exp(x) - 1) = x + log1mexp(x) for positive x
    log(1 + x) = log1p(x) for x from zero
    lgamma(x + n) - lgamma(x) = log_rising(x, n) for a positive number n

    y log(e exp(x)) = y x + times_log(y, e), which is 0 where the count y and the exposure e are
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import permutations
from typing import TypeAlias

import sympy as sp

from gpdsl.symbolic import functions as f
from gpdsl.symbolic.conditions import choose, less
from gpdsl.symbolic.gaussian import pull_exponentials

LOGARITHMS: Mapping[type, Callable[[sp.Expr], sp.Expr]] = {
    f.sigmoid: lambda x: -f.softplus(-x),
    f.ndtr: f.log_ndtr,
    sp.exp: lambda x: x,
}
"""Logarithms of functions of one argument."""

COMPLEMENTS: Mapping[type, Callable[[sp.Expr], sp.Expr]] = {
    f.sigmoid: lambda x: -f.softplus(x),
    f.ndtr: lambda x: f.log_ndtr(-x),
}
"""Logarithms of one minus a function of one argument."""

RATIONAL = 64
"""Terms of a denominator that is looked at for what it has in common with its numerator."""


def stable(expression: sp.Expr) -> sp.Expr:
    """The same function with its logarithms written so that they are finite wherever they should be."""
    done: dict[sp.Basic, sp.Basic] = {}

    def visit(node: sp.Basic) -> sp.Basic:
        if not node.args or not node.has(sp.log, f.log1p, f.times_log, f.lgamma):
            return node
        if node not in done:
            found = node.func(*[visit(each) for each in node.args])
            if isinstance(found, sp.log):
                found = _log(found.args[0])
            elif isinstance(found, f.times_log):
                found = _times_log(*found.args)
            elif isinstance(found, f.log1p):
                better = _log1p(found.args[0])
                found = found if better is None else better
            else:
                found = _rising(found)
            done[node] = found
        return done[node]

    return visit(expression)


def _rising(total: sp.Expr) -> sp.Expr:
    """A sum whose log gammas at arguments a number apart are taken together: those of large ones agree in digits."""
    if not isinstance(total, sp.Add):
        return total
    gammas = {term: sign for sign in (1, -1) for term in total.args if isinstance(sign * term, f.lgamma)}
    for up, down in permutations(gammas, 2):
        step = (up * gammas[up]).args[0] - (down * gammas[down]).args[0]
        if gammas[up] != gammas[down] and step.is_number and step > 0:
            both = gammas[up] * f.log_rising((down * gammas[down]).args[0], step)
            return _rising(total - up - down + both)
    return total


def _log(value: sp.Expr) -> sp.Expr:
    """log(value), by factors where one of them has a logarithm of its own."""
    if isinstance(value, sp.Mul):
        known = {factor: _log_factor(factor) for factor in value.args}
        found = [each for each in known.values() if each is not None]
        rest = sp.Mul(*[factor for factor, each in known.items() if each is None])
        return sp.Add(*found) + (sp.log(rest) if rest != 1 else 0) if found else sp.log(value)
    found_one = _log_factor(value)
    return sp.log(value) if found_one is None else found_one


def _times_log(count: sp.Expr, value: sp.Expr) -> sp.Expr:
    """count * log(value), where only the logarithm of what may be zero is held back where the count is zero."""
    parts = sp.Add.make_args(pull_exponentials(_log(value)))
    held = [part for part in parts if isinstance(part, sp.log) and not shows_positive(part.args[0])]
    return count * sp.Add(*[p for p in parts if p not in held]) + sp.Add(*[f.times_log(count, p.args[0]) for p in held])


def _log_factor(value: sp.Expr) -> sp.Expr | None:
    """The logarithm of a positive value that has a better form than `log(value)`; None for any other."""
    if value.func in LOGARITHMS:
        return LOGARITHMS[value.func](value.args[0])
    if isinstance(value, sp.Pow) and (shows_positive(value.base) or _excess(value.base) is not None):
        inner = _log_factor(value.base)
        return None if inner is None else value.exp * inner
    if isinstance(value, sp.Add):
        return _log_sum(value)
    return None


def _log_sum(value: sp.Add) -> sp.Expr | None:
    if value.has(sp.exp) and all(shows_positive(term) for term in value.args):
        return _log_positive_sum(value)
    if (interval := _log_interval(value)) is not None:
        return interval
    one, rest = value.as_coeff_Add()
    grown = _excess(value)
    return grown + f.log1mexp(grown) if grown is not None else _log1p(rest) if one == 1 else None


def _log_interval(value: sp.Add) -> sp.Expr | None:
    """Of F(b) - F(a), the probability of an interval, for a distribution function F."""
    for upper, lower in permutations(value.args) if len(value.args) == 2 else ():
        if upper.func in BETWEEN and (-lower).func is upper.func:
            return BETWEEN[upper.func]((-lower).args[0], upper.args[0])
    return None


def _excess(value: sp.Expr) -> sp.Expr | None:
    """x > 0 of exp(x) - 1."""
    one, rest = value.as_coeff_Add()
    return rest.args[0] if one == -1 and isinstance(rest, sp.exp) and shows_positive(rest.args[0]) else None


def _log_positive_sum(value: sp.Add) -> sp.Expr | None:
    """Of positive terms, the exponentials by their exponents."""
    growing = [term for term in value.args if term.has(sp.exp)]
    fixed = sp.Add(*[term for term in value.args if not term.has(sp.exp)])
    if not growing:
        return None
    logs = [pull_exponentials(_log(term)) for term in growing]
    raised = logs[0] if len(logs) == 1 else f.logsumexp(*logs)
    if fixed == 0:
        return raised
    return f.softplus(raised) if fixed == 1 else sp.log(fixed) + f.softplus(raised - sp.log(fixed))


def _log1p(value: sp.Expr) -> sp.Expr | None:
    """log(1 + value); None where there is nothing better than that."""
    if shows_positive(value) and value.has(sp.exp):
        return _log_positive_sum(sp.Add(1, value, evaluate=False))
    if _not_negative(value):
        return f.log1p(value)
    less = -value
    if less.func in COMPLEMENTS:
        return COMPLEMENTS[less.func](less.args[0])
    if isinstance(less, sp.exp) and shows_positive(-less.args[0]):
        return f.log1mexp(-less.args[0])
    if isinstance(value, sp.Add) and -1 in value.args:
        return _log(value + 1)
    # log(1 - n/d) = log((d - n) / d), where n is a part of the sum d.
    top, bottom = sp.fraction(less)
    if not isinstance(bottom, sp.Add) or len(bottom.args) > RATIONAL or not shows_positive(bottom):
        return None
    parts = sp.Add.make_args(top)
    if not set(parts) <= set(bottom.args):
        return None
    return _log(bottom - top) - _log(bottom)


def _not_negative(value: sp.Expr) -> bool:
    """Whether the form of an expression shows that it is not negative: a product of what is positive and squares."""
    factors = sp.Mul.make_args(value)
    return all(shows_positive(each) or (isinstance(each, sp.Pow) and each.exp.is_even is True) for each in factors)


def shows_positive(value: sp.Expr) -> bool:
    """Whether the form of an expression shows that it is positive; SymPy's own answer may take long for a sum."""
    if isinstance(value, sp.Add | sp.Mul):
        return all(shows_positive(each) for each in value.args)
    if isinstance(value, sp.Pow):
        return shows_positive(value.base)
    if isinstance(value, choose):
        return all(shows_positive(each) for each in value.args[1:])
    return isinstance(value, sp.exp | f.sigmoid | f.softplus | f.ndtr) or (not value.args and value.is_positive is True)


# Tail probabilities of the continuous distributions: what truncation and censoring need, in stable logarithms.

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
        right = f.log_difference(above(lower, a), above(upper, a))
        left = f.log_difference(below(upper, a), below(lower, a))
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
    return -f.softplus(-upper) - f.softplus(lower) + f.log1mexp(upper - lower)


BETWEEN: Mapping[type, Callable[[Formula, Formula], Formula]] = {
    f.ndtr: f.log_ndtr_interval,
    f.sigmoid: logistic_between,
}
"""Logarithms of differences between the values of a function at two places, the lower one first."""


def _hazard(cumulative: Callable[[Formula, Arguments], Formula]) -> Tails:
    """A distribution of positive values by its cumulative hazard H: P(Y > y) = exp(-H(y))."""
    return Tails(
        lambda y, a: f.log1mexp(cumulative(y, a)),
        lambda y, a: -cumulative(y, a),
        lambda lower, upper, a: -cumulative(lower, a) + f.log1mexp(cumulative(upper, a) - cumulative(lower, a)),
        positive=True,
    )


def _laplace_below(z: Formula) -> Formula:
    # The unused branch stays finite for every z, so that its derivative does too.
    return choose(less(z, sp.Integer(0)), -f.absolute(z) - sp.log(2), f.log1p(-sp.exp(-f.absolute(z)) / 2))


TAILS: dict[str, Tails] = {
    "Normal": _symmetric(f.log_ndtr, f.log_ndtr_interval),
    "LogNormal": _symmetric(f.log_ndtr, f.log_ndtr_interval, log=True),
    "Logistic": _symmetric(lambda z: -f.softplus(-z), logistic_between),
    "Laplace": _symmetric(_laplace_below),
    "StudentT": generic(
        lambda y, a: f.log_student_cdf(a["df"], _standard(y, a)),
        lambda y, a: f.log_student_cdf(a["df"], -_standard(y, a)),
        constant="df",
    ),
    "HalfNormal": Tails(
        lambda y, a: sp.log(2) + f.log_ndtr_interval(sp.Integer(0), y / a["sd"]),
        lambda y, a: sp.log(2) + f.log_ndtr(-y / a["sd"]),
        lambda lower, upper, a: sp.log(2) + f.log_ndtr_interval(lower / a["sd"], upper / a["sd"]),
        positive=True,
    ),
    "Exponential": _hazard(lambda y, a: a["rate"] * y),
    "Weibull": _hazard(lambda y, a: (y / a["scale"]) ** a["shape"]),
    "Gamma": generic(
        lambda y, a: f.log_gamma_cdf(a["shape"], a["rate"] * y),
        lambda y, a: f.log_gamma_sf(a["shape"], a["rate"] * y),
        positive=True,
        stiff="shape",
    ),
}
"""Distributions that can be truncated and censored. Not Beta: its distribution function has no derivative in JAX."""
