"""Distributions from outside: `register_distribution`, and what every distribution has to hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import sympy as sp

from gpdsl.errors import GpdslError
from gpdsl.language.distributions import BUILT_IN, add
from gpdsl.language.entries import Distribution, Parameter
from gpdsl.language.vocabulary import BUILTINS, DISTRIBUTIONS, OUTPUT_KINDS, STATEMENTS
from gpdsl.results import conditional
from gpdsl.symbolic.densities import DENSITIES, Density
from gpdsl.symbolic.laws import Law
from gpdsl.symbolic.registered import ENDS, Integrals, Registration, Written, law_of
from gpdsl.symbolic.stable import stable
from gpdsl.symbolic.tails import TAILS, Tails

DOMAINS = {"real": (-np.inf, np.inf), **{kind: ENDS[kind] for kind in ("positive", "unit", "count")}}
EXAMPLE = {"real": 0.4, "positive": 1.7, "unit": 0.3, "count": 6.0}
"""Arguments at which a distribution is tried, where none are given."""

TOLERANCE, DRAWS, FURTHEST = 1e-3, 2000, 2.5
"""Of masses, moments and probabilities; of a Kolmogorov-Smirnov test, wrong once in 100,000."""

Given = str | Callable[..., object]


def register_distribution(
    name: str,
    parameters: Mapping[str, str],
    support: str,
    log_density: Given,
    *,
    mean: Given | None = None,
    variance: Given | None = None,
    cdf: Given | None = None,
    quantile: Callable[..., object] | None = None,
    sampler: Callable[..., object] | None = None,
    example: Mapping[str, float] | None = None,
    meaning: str = "",
    latex: str = "",
) -> None:
    """Make `name` a distribution of models in this process; a second registration replaces the first.

    parameters: each with its constraint, `real`, `positive`, `unit` or `count`. support: `real`, `positive`, `unit` or
    `count`, the kind of output it describes. log_density: text in the expressions of the language, in `y` and the
    parameters, or a function of SymPy symbols. mean, variance, cdf: text, or a NumPy function of arrays in that order,
    `mean(a, b)`, `cdf(y, a, b)`; quantile: `quantile(p, a, b)`; sampler: `sampler(generator, a, b)`. What is left out
    is integrated numerically. With a `cdf` as text, it can stand inside `Truncated` and `Censored`. example: arguments
    at which all of this is checked. Raises GpdslError for what is no distribution, and says what to do.
    """
    registration = Registration(name, parameters, support)
    _check_names(registration)
    given = {"mean": mean, "variance": variance, "cdf": cdf, "quantile": quantile, "sampler": sampler}
    law, tails = law_of(registration, log_density, given)
    declared = tuple(Parameter(each, each, domain) for each, domain in parameters.items())
    entry = Distribution(name, declared, (support,), meaning or name, support, tails=tails is not None, latex=latex)
    before = DISTRIBUTIONS.get(name), DENSITIES.get(name), TAILS.get(name)
    enter(name, entry, law, tails)
    try:
        (tried,) = ways(name, example)
        if said := wrong(name, tried):
            raise registration.fail(said)
    except BaseException:  # a refused one leaves no trace
        enter(name, *before)
        raise


def enter(name: str, entry: Distribution | None, law: Density | None, tails: Tails | None) -> None:
    """All that is known of a distribution, in the tables of the stages; None takes it out."""
    add(name, entry)
    tables: tuple[tuple[dict[str, Any], Any], ...] = ((DENSITIES, law), (TAILS, tails))
    for table, value in tables:
        table.pop(name, None)
        if value is not None:
            table[name] = value


def _check_names(r: Registration) -> None:
    if not isinstance(r.parameters, Mapping) or not r.parameters:
        raise r.fail("its parameters are a dict of names and constraints, one or more, such as {'scale': 'positive'}")
    for name in (r.name, *r.parameters):
        if not isinstance(name, str) or not name.isidentifier() or not name.isascii():
            raise r.fail(f"{name!r} is no name; expected letters, digits and underscores, such as `Gumbel`")
    if r.name in BUILT_IN:
        raise r.fail(f"gpdsl has a `{r.name}` of its own; choose another name")
    if r.name in BUILTINS or r.name in STATEMENTS or r.name in r.parameters or r.name == "y":
        raise r.fail(f"`{r.name}` means something else in a model or here; choose another name")
    if "y" in r.parameters:
        raise r.fail("`y` is the value that the distribution describes; call the parameter otherwise")
    for name, domain in r.parameters.items():
        if domain not in DOMAINS:
            raise r.fail(f"the constraint of `{name}` is {domain!r}, expected one of {', '.join(DOMAINS)}")
    if r.support not in ENDS:
        hint = "; of a label or a vector, see `register_likelihood`" if r.support in OUTPUT_KINDS else ""
        raise r.fail(f"its support is {r.support!r}, expected one of {', '.join(ENDS)}{hint}")


def ways(name: str, given: Mapping[str, float] | None = None) -> Iterator[dict[str, float]]:
    """Arguments at which to try a distribution of one number, with each of the alternatives (`logit`, `p`) once.

    Raises GpdslError for another name, and for arguments that it does not have or allow.
    """
    if name not in DENSITIES:
        known = ", ".join(DENSITIES)
        raise GpdslError(f"`{name}` is no distribution of one number; expected one of {known}, or register it first")
    domains = {each.name: each.domain for each in DISTRIBUTIONS[name].parameters}
    for argument, value in dict(given or {}).items():
        if argument not in domains:
            raise GpdslError(f"the example of `{name}` has `{argument}`, expected arguments among {', '.join(domains)}")
        domain = domains[argument]
        low, high = DOMAINS[domain]
        if not np.isfinite(value) or not low <= value <= high or (domain == "positive" and value <= 0):
            raise GpdslError(
                f"the example of `{name}` has {argument} = {value:g}, which is not {domain}; choose another"
            )
    values = {argument: EXAMPLE[domain] for argument, domain in domains.items()} | dict(given or {})
    alternatives = [each.name for each in DISTRIBUTIONS[name].parameters if each.alternative]
    for chosen in alternatives or [""]:
        yield {each: float(v) for each, v in values.items() if each == chosen or each not in alternatives}


def wrong(name: str, example: Mapping[str, float]) -> str:
    """The first thing that does not hold of a distribution of one number at these arguments; empty where all does."""
    with np.errstate(all="ignore"):
        return next(_doubts(name, example), "")


def _doubts(name: str, example: Mapping[str, float]) -> Iterator[str]:
    """All is compared with the log density."""
    law, entry = DENSITIES[name], DISTRIBUTIONS[name]
    at = "at " + ", ".join(f"{each} = {value:g}" for each, value in example.items())
    y = sp.Symbol("y", positive=True) if entry.support in ("positive", "unit") else sp.Symbol("y", real=True)
    symbols = {each: sp.Symbol(each, real=True) for each in example}
    a = {each: np.full(1, value) for each, value in example.items()}
    kind = "binary" if entry.kinds == ("binary",) else entry.support
    integrals = Integrals(Written(y, symbols, stable(law.log_density(y, symbols))), kind)
    ((_, true),) = integrals.each(a)
    mass = float(np.exp(true.log_mass[0]))
    if not abs(mass - 1) < TOLERANCE:
        yield f"its density integrates to {mass:.4g}, not to one, {at}; subtract the logarithm of that from log_density"
        return
    for what, said, right in zip(("mean", "variance"), conditional.moments(Law(name, a)), true.moments(), strict=True):
        if not np.allclose(said, right, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True):
            density = f"but that of its density {float(right[0]):.4g}"
            yield f"its {what} is {float(said[0]):.4g}, {density}, {at}; correct one"
    shares = np.linspace(0.05, 0.95, 7)
    places = np.concatenate([true.quantile(np.full(1, share)) for share in shares])
    reached = np.concatenate([true.cdf(np.full(1, place)) for place in places])
    if law.cdf is not None:
        yield from _compared("cdf at", places, law.cdf(places, a), reached, at)
    if law.quantile is not None:
        found = law.quantile(shares, a)
        again = np.concatenate([true.cdf(np.full(1, place)) for place in np.asarray(found, float)])
        yield from _compared("cdf at its quantile of", shares, again, reached, at)
    drawn = law.draw(np.random.default_rng(0), {each: np.full(DRAWS, value) for each, value in example.items()})
    yield from _drawn(drawn, places, reached, at)


def _compared(what: str, where: np.ndarray, said: np.ndarray, right: np.ndarray, at: str) -> Iterator[str]:
    wrong = np.flatnonzero(~(np.abs(said - right) < TOLERANCE))
    if wrong.size:
        k = wrong[0]
        yield f"its {what} {where[k]:.4g} is {said[k]:.4g}, but its density says {right[k]:.4g}, {at}; correct one"


def _drawn(drawn: np.ndarray, places: np.ndarray, reached: np.ndarray, at: str) -> Iterator[str]:
    if np.shape(drawn) != (DRAWS,) or not np.all(np.isfinite(drawn)):
        yield f"its sampler gives shape {np.shape(drawn)} or no numbers, expected {DRAWS} finite ones, {at}"
        return
    shares = np.mean(drawn[:, None] <= places, axis=0)
    worst = int(np.argmax(np.abs(shares - reached)))
    if abs(shares[worst] - reached[worst]) > FURTHEST / np.sqrt(DRAWS):
        said = (
            f"{shares[worst]:.3g} of its draws are below {places[worst]:.4g}, but its density says {reached[worst]:.3g}"
        )
        yield f"{said}, {at}; correct the sampler"
