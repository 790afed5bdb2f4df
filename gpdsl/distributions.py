"""Distributions from outside: `register_distribution`, and what every distribution has to hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import sympy as sp

from gpdsl.errors import GpdslError
from gpdsl.language.calls import answering
from gpdsl.language.distributions import BUILT_IN, Distribution, Parameter, add
from gpdsl.language.vocabulary import BUILTINS, DISTRIBUTIONS, OUTPUT_KINDS, STATEMENTS
from gpdsl.results import conditional
from gpdsl.symbolic.densities import DENSITIES, Density
from gpdsl.symbolic.laws import Law
from gpdsl.symbolic.registered import ENDS, Integrals, Registration, Written, law_of
from gpdsl.symbolic.stable import TAILS, Tails, stable

DOMAINS = {"real": (-np.inf, np.inf), **{kind: ENDS[kind] for kind in ("positive", "unit", "count")}}
EXAMPLE = {"real": 0.4, "positive": 1.7, "unit": 0.3, "count": 6.0}
"""Arguments at which a distribution is tried, where none are given."""

TOLERANCE, DRAWS, FURTHEST = 1e-3, 400_000, 2.5
"""Of masses, moments and probabilities; of a Kolmogorov-Smirnov test, wrong once in 100,000."""

NEAREST = 1e-12
"""To 1, within which proportions have too few digits to be compared, and are NaN instead."""

STEP, RANGE = 1.3, 2.0
"""Between the values of an argument at which a distribution is tried; and between the ends of a range."""

Given = str | Callable[..., object]


@answering
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
    _check_names(registration, meaning=meaning, latex=latex)
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


def _check_names(r: Registration, **texts: object) -> None:
    if not isinstance(r.parameters, Mapping) or not r.parameters:
        one = "one or more, such as {'scale': 'positive'} of what models write with a scale of 1"
        raise r.fail(f"its parameters are a dict of names and constraints, {one}")
    for name in (r.name, *r.parameters):
        if not isinstance(name, str) or not name.isidentifier() or not name.isascii():
            raise r.fail(f"{name!r} is no name; expected letters, digits and underscores, such as `Gumbel`")
    if r.name in BUILT_IN:
        raise r.fail(f"gpdsl has a `{r.name}` of its own; choose another name")
    if r.name in BUILTINS or r.name in STATEMENTS or r.name in r.parameters or r.name == "y":
        raise r.fail(f"`{r.name}` means something else in a model or here; choose another name")
    if "y" in r.parameters:
        raise r.fail("`y` is the value that the distribution describes; call the parameter otherwise")
    for what, value in texts.items():
        if not isinstance(value, str):
            raise r.fail(f"its {what} is {value!r}, expected text")
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
    if not isinstance(given, Mapping | None):
        raise GpdslError(f"the example of `{name}` is {given!r}, expected a dict of arguments, such as {{'scale': 2}}")
    if name not in DENSITIES:
        known = ", ".join(DENSITIES)
        raise GpdslError(f"`{name}` is no distribution of one number; expected one of {known}, or register it first")
    domains = {each.name: each.domain for each in DISTRIBUTIONS[name].parameters}
    for argument, value in dict(given or {}).items():
        if argument not in domains:
            raise GpdslError(f"the example of `{name}` has `{argument}`, expected arguments among {', '.join(domains)}")
        if not isinstance(value, int | float | np.integer | np.floating):
            raise GpdslError(f"the example of `{name}` has {argument} = {value!r}, expected a number")
        domain = domains[argument]
        low, high = DOMAINS[domain]
        if not np.isfinite(value) or not low <= value <= high or (domain == "positive" and value <= 0):
            raise GpdslError(
                f"the example of `{name}` has {argument} = {value:g}, which is not {domain}; choose another"
            )
    usual = {argument: EXAMPLE[domain] for argument, domain in domains.items()}
    if {"lower", "upper"} <= usual.keys():
        usual["upper"] += RANGE
    values = usual | dict(given or {})
    alternatives = [each.name for each in DISTRIBUTIONS[name].parameters if each.alternative]
    for chosen in alternatives or [""]:
        yield {each: float(v) for each, v in values.items() if each == chosen or each not in alternatives}


def around(name: str, example: Mapping[str, float]) -> dict[str, np.ndarray]:
    """Arguments [n]: an example, and with each argument in turn below and above it."""
    domains = {each.name: each.domain for each in DISTRIBUTIONS[name].parameters}
    tried = [dict(example)]
    for argument, value in example.items():
        tried += [{**example, argument: moved} for moved in _beside(domains[argument], value)]
    return {argument: np.array([each[argument] for each in tried]) for argument in example}


def _beside(domain: str, value: float) -> list[float]:
    """Two other values of an argument; none where a proportion is 0 or 1."""
    match domain:
        case "positive":
            return [value / STEP, value * STEP]
        case "unit":
            odds = [value / STEP, (1 - value) / STEP]
            return [odds[0], 1 - odds[1]] if 0 < value < 1 else []
        case "count":
            return [value + 1, value + 2]
    return [value - (STEP - 1) * max(1.0, abs(value)), value + (STEP - 1) * max(1.0, abs(value))]


def wrong(name: str, example: Mapping[str, float]) -> str:
    """The first thing that does not hold of a distribution of one number at or around these; empty where all does."""
    with np.errstate(all="ignore"):
        return next(_doubts(name, around(name, example)), "")


def _doubts(name: str, a: Mapping[str, np.ndarray]) -> Iterator[str]:
    """All is compared with the log density, at arguments [n] together: what mixes up their elements is wrong, too."""
    law, entry = DENSITIES[name], DISTRIBUTIONS[name]
    count = len(next(iter(a.values())))
    y = sp.Symbol("y", positive=True) if entry.support in ("positive", "unit") else sp.Symbol("y", real=True)
    symbols = {each: sp.Symbol(each, real=True) for each in a}
    kind = "binary" if entry.kinds == ("binary",) else entry.support
    integrals = Integrals(Written(y, symbols, stable(law.log_density(y, symbols))), kind)
    ((_, true),) = integrals.each(a)
    mass = np.exp(true.log_mass)
    for k in map(int, np.flatnonzero(~(np.abs(mass - 1) < TOLERANCE))):
        text = f"its density integrates to {mass[k]:.4g}, not to one, {_at(a, k)}"
        yield f"{text}; subtract the logarithm of that from log_density"
    for what, said, right in zip(("mean", "variance"), conditional.moments(Law(name, a)), true.moments(), strict=True):
        yield from _compared(f"its {what}", np.broadcast_to(said, (count,)), right, a)
    shares = np.linspace(0.05, 0.95, 7)
    places = np.stack([true.quantile(np.full(count, share)) for share in shares])
    reached = np.stack([true.cdf(place) for place in places])
    reached[(places > 1 - NEAREST) & (kind == "unit")] = np.nan
    for share, place, right in zip(shares, places, reached, strict=True):
        if law.cdf is not None:
            yield from _compared("its cdf at {:.4g}", law.cdf(place, a) + 0 * right, right, a, place)
        if law.quantile is not None:
            found = true.cdf(np.asarray(law.quantile(np.full(count, share), a), float))
            yield from _compared(f"its cdf at its quantile of {share:.4g}", found + 0 * right, right, a)
    if law.sampled:
        many = DRAWS // count
        drawn = law.draw(np.random.default_rng(0), {each: np.tile(value, many) for each, value in a.items()})
        yield from _drawn(drawn, places, reached, a)


def _at(a: Mapping[str, np.ndarray], k: int) -> str:
    return "at " + ", ".join(f"{each} = {value[k]:g}" for each, value in a.items()) if a else "as it stands"


def _compared(
    what: str, said: np.ndarray, right: np.ndarray, a: Mapping[str, np.ndarray], where: np.ndarray | None = None
) -> Iterator[str]:
    close = np.isclose(said, right, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
    close |= np.isinf(said) & ~np.isfinite(right)  # a moment that does not exist
    for k in map(int, np.flatnonzero(~close)):
        named = what if where is None else what.format(where[k])
        yield f"{named} is {said[k]:.4g}, but its density says {right[k]:.4g}, {_at(a, k)}; correct one"


def _drawn(drawn: np.ndarray, places: np.ndarray, reached: np.ndarray, a: Mapping[str, np.ndarray]) -> Iterator[str]:
    """Shares of draws below `places` [shares, n], at each of the arguments, and at all of them together."""
    count = places.shape[1]
    many = DRAWS // count
    if np.shape(drawn) != (many * count,) or not np.all(np.isfinite(drawn)):
        said = f"its sampler gives shape {np.shape(drawn)} or no numbers"
        yield f"{said}, expected {many * count} finite ones, {_at(a, 0)}"
        return
    drawn = drawn.reshape(many, count)
    shares = np.stack([np.mean(drawn <= place, axis=0) for place in places])
    apart = np.nan_to_num(shares - reached)
    for size, off in ((many, apart), (DRAWS, np.mean(apart, axis=1, keepdims=True))):
        if np.max(np.abs(off)) > FURTHEST / np.sqrt(size):
            worst, k = np.unravel_index(np.argmax(np.abs(off)), off.shape)
            share, right = shares[worst, k], reached[worst, k]
            said = f"{share:.3g} of its draws are below {places[worst, k]:.4g}, but its density says {right:.3g}"
            yield f"{said}, {_at(a, int(k))}; correct the sampler, which is given arrays and draws one for each element"
