"""W600 to W639: what a pedantic reader says about a model, as values like the errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from gpdsl.language import model as m
from gpdsl.language.checker.scope import evaluate
from gpdsl.language.errors.base import Mistake


class Caution(Mistake):
    """A mistake that does not keep a model from being fitted."""

    severity: ClassVar[str] = "warning"


class Unused(Caution, code="W600"):
    """A name that nothing uses."""

    name: str
    what: str
    message: ClassVar = "{what} `{name}` is never used"
    label: ClassVar = "nothing in this file reads it"
    help: ClassVar = "remove it, or use it where it was meant to stand"


class Unobserved(Caution, code="W601"):
    """A latent or parameter that data say nothing about."""

    name: str
    what: str
    consequence: str
    message: ClassVar = "no observation depends on {what} `{name}`"
    label: ClassVar = "{consequence}"
    help: ClassVar = "use it in an observation `y ~ ...`, or in a `let` that an observation reads"


class OnlyProduct(Caution, code="W610"):
    """Two scales that always multiply each other."""

    first: str
    second: str
    together: str
    message: ClassVar = "`{first}` and `{second}` cannot both be learnt: they occur only as {together}"
    label: ClassVar = "a larger `{first}` is undone by `{second}`"
    help: ClassVar = "remove one, fix one (`param {second} : ... = 1 fixed`), or give one a prior"


class OnlySum(Caution, code="W611"):
    """Two offsets that always stand in the same sum."""

    first: str
    second: str
    together: str
    message: ClassVar = "`{first}` and `{second}` cannot both be learnt: they occur only as {together}"
    label: ClassVar = "what is added to `{first}` is undone by `{second}`"
    help: ClassVar = "remove one, fix one (`param {second} : ... = 0 fixed`), or give one a prior"


class Absorbed(Caution, code="W612"):
    """A factor or offset of a latent that the latent's own variance or mean takes up."""

    name: str
    inner: str
    latent: str
    part: str
    message: ClassVar = "`{name}` and `{inner}` cannot both be learnt: `{inner}` is the {part} of `{latent}`"
    label: ClassVar = "`{latent}` never occurs without `{name}`, so that the {part} can do the same"
    help: ClassVar = "keep only one of them, or give one a prior"


class NotKeptInside(Caution, code="W621"):
    """A latent where a distribution needs a positive number or a probability."""

    parameter: str
    distribution: str
    domain: str
    remedy: str
    message: ClassVar = "`{parameter}` of `{distribution}` must be {domain}, but a latent takes every real value"
    label: ClassVar = "nothing keeps this {domain}"


class ScaleFarFromData(Caution, code="W622"):
    """A length-scale that has nothing to do with the spread of the input."""

    name: str
    scale: str
    spread: str
    consequence: str
    remedy: str
    message: ClassVar = "the length-scale starts at {scale}, but the standard deviation of `{name}` is {spread}"
    label: ClassVar = "{consequence}"


class ImprobableStart(Caution, code="W630"):
    """An initial value that the prior hardly allows."""

    name: str
    value: str
    low: str
    high: str
    remedy: str
    message: ClassVar = "`{name}` starts at {value}, where its prior has almost no probability"
    label: ClassVar = "99.9 % of this prior lie between {low} and {high}"


class PriorOutside(Caution, code="W631"):
    """A prior with probability where the parameter cannot be."""

    name: str
    constraint: str
    percent: str
    remedy: str
    message: ClassVar = "{percent} % of this prior lie where `{name}` cannot be: it is {constraint}"
    label: ClassVar = "the density is not normalised over the values that remain"


class UnboundedPrior(Caution, code="W632"):
    """A prior whose density is infinite somewhere the parameter can go."""

    name: str
    prior: str
    where: str
    remedy: str
    message: ClassVar = "the density of this prior is infinite where `{name}` {where}"
    label: ClassVar = "a fit maximises the density, and may end there whatever the data say"


# The numbers that a checked expression stands for before anything is fitted.


# Priors that contradict the parameter they stand beside.


def value_of(declarations: m.Declarations, expression: m.Expression) -> float | None:
    """The value of an expression of numbers, scalar constants and initial values of scalar parameters, else None."""
    match expression:
        case m.Number(value=value):
            return float(value)
        case m.Read(name=name, subscripts=()):
            values: object = None
            if name in declarations.consts:
                values = declarations.consts[name].values
            elif name in declarations.params:
                values = declarations.params[name].initial
            return values if isinstance(values, float) else None
        case m.Operation(operator=operator, operands=operands):
            found = [value_of(declarations, each) for each in operands]
            known = [each for each in found if each is not None]
            value = evaluate(operator, tuple(known)) if len(known) == len(found) else float("nan")
            return value if value == value else None
    return None


TAIL = 0.0005
OUTSIDE = 0.01

_POSITIVE = "use a prior over positive values, such as `LogNormal(0, 1)` or `Gamma(2, 1)`"
_REMEDIES = {"positive": _POSITIVE, "unit": "use a prior between 0 and 1, such as `Beta(2, 2)`"}


def doubtful_priors(declarations: m.Declarations) -> Iterator[Mistake]:
    """A warning for each prior that hardly allows the initial value, or much that the parameter cannot be."""
    for param in declarations.params.values():
        prior = None if param.prior is None else _frozen(declarations, param.prior)
        if param.prior is None or prior is None or param.constraint not in ("real", "positive", "unit"):
            continue
        low, high = m.interval(param)
        outside = float(prior.cdf(low) + prior.sf(high))
        if outside > OUTSIDE:
            percent = "100" if outside > 0.995 else f"{100 * outside:.2g}"
            remedy = _REMEDIES.get(param.constraint, "widen the bounds, or narrow the prior")
            words = _words(param)
            yield PriorOutside(param.prior.span, param.name, words, percent, remedy)
            continue
        ends = [float(prior.ppf(q)) for q in (TAIL, 1 - TAIL)]
        far = [value for value in m.flat(param.initial) if param.given and not ends[0] <= value <= ends[1]]
        if far:
            shown = [f"{each:.3g}" for each in ends]
            near = f"{shown[0]}` or above" if far[0] < ends[0] else f"{shown[1]}` or below"
            remedy = f"start inside, `param {param.name} : ... = {near}, or widen the prior"
            yield ImprobableStart(param.prior.span, param.name, f"{far[0]:g}", shown[0], shown[1], remedy)


def _words(param: m.Param) -> str:
    if param.lower is None and param.upper is None:
        return {"unit": "between 0 and 1"}.get(param.constraint, param.constraint)
    low, high = m.interval(param)
    return f"between {low:g} and {high:g}"


def _frozen(declarations: m.Declarations, prior: m.DistributionCall) -> Any:
    """SciPy's distribution, None for one that is not in the table or has arguments that are no plain numbers."""
    from scipy import stats

    table: Mapping[str, Callable[..., Any]] = {
        "Normal": lambda mean, sd: stats.norm(mean, sd),
        "StudentT": lambda df, mean, scale: stats.t(df, mean, scale),
        "Laplace": lambda mean, scale: stats.laplace(mean, scale),
        "LogNormal": lambda mean, sd: stats.lognorm(sd, scale=math.exp(mean)),
        "Gamma": lambda shape, rate: stats.gamma(shape, scale=1 / rate),
        "Exponential": lambda rate: stats.expon(scale=1 / rate),
        "Weibull": lambda shape, scale: stats.weibull_min(shape, scale=scale),
        "Beta": lambda a, b: stats.beta(a, b),
        "InverseGamma": lambda shape, scale: stats.invgamma(shape, scale=scale),
        "HalfNormal": lambda sd: stats.halfnorm(scale=sd),
        "HalfCauchy": lambda scale: stats.halfcauchy(scale=scale),
        "PCScale": lambda above, alpha: stats.expon(scale=-above / math.log(alpha)),
        "PCLengthscale": lambda below, alpha, dimension: stats.invweibull(
            dimension / 2, scale=below * (-math.log(alpha)) ** (2 / dimension)
        ),
        "Uniform": lambda lower, upper: stats.uniform(lower, upper - lower),
    }
    values = {name: value_of(declarations, each) for name, each in prior.arguments.items()}
    if prior.name not in table or None in values.values():
        return None
    return table[prior.name](**values)


_SHAPES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "Gamma": (("shape", "is 0"),),
    "Weibull": (("shape", "is 0"),),
    "Beta": (("a", "is 0"), ("b", "is 1")),
    "Dirichlet": (("concentration", "has a weight of 0"),),
    "LKJ": (("eta", "has a correlation of 1 or -1"),),
}
"""Arguments below 1 that make a density infinite, and where."""

_BOUNDED = {
    **dict.fromkeys(("Gamma", "Weibull"), "take a shape of at least 1, or `LogNormal`, whose density has a bound"),
    "Beta": "take shapes of at least 1, such as `Beta(1, 1)`, or bounds that leave out the ends",
    "LKJ": "take an eta of at least 1, such as `LKJ(1)`",
    "Dirichlet": "take concentrations of at least 1, such as `Dirichlet(1)`, or `fixed` weights",
}


def unbounded_priors(declarations: m.Declarations) -> Iterator[Mistake]:
    """A warning for each learnt parameter whose prior density is infinite at an end of its range."""
    for param in declarations.params.values():
        if param.prior is None or param.fixed:
            continue
        low, high = m.interval(param)
        for prior in (each for each in param.prior.calls() if not each.components):
            ends = [end for name, end in _SHAPES.get(prior.name, ()) if _below_one(declarations, prior, name)]
            ends = [end for end in ends if not (end == "is 0" and low > 0) and not (end == "is 1" and high < 1)]
            if ends:
                remedy = _BOUNDED[prior.name]
                yield UnboundedPrior(param.prior.span, param.name, prior.name, " or ".join(ends), remedy)
                break


def _below_one(declarations: m.Declarations, prior: m.DistributionCall, name: str) -> bool:
    argument = prior.arguments[name]
    if isinstance(argument, m.Read) and argument.name in declarations.consts:
        return min(m.flat(declarations.consts[argument.name].values)) < 1
    value = value_of(declarations, argument)
    return value is not None and value < 1
