"""The table of distributions: what stands right of `~`."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

# What an entry of the vocabulary says: parameters, distributions, covariance functions and elementary functions.
#
# `domain` of a parameter is `real`, `positive`, `unit` (between 0 and 1) or `count` (whole numbers from 0).


@dataclass(frozen=True)
class Parameter:
    """A parameter of a distribution or kernel.

    `alternative`: exactly one of the alternatives of a distribution is given, by its name. `vector`: a kernel
    parameter that may hold one value per column of the input. `literal`: a whole number written in the text,
    from `least` to `most`. `per`: a parameter of a distribution that holds one value per `level`, `cutpoint`,
    `component`, `element` or `pair`. `role`: an argument of a kernel is a `number`, a `kernel` or a list of whole
    numbers, `sizes`. `array` names the axes that a parameter of a kernel must have; `columns` are those of the input,
    which it may lack. `optional`: an array that may be left out, which stands last and is given by name.
    """

    name: str
    meaning: str
    domain: str = "real"
    default: float | None = None
    alternative: bool = False
    vector: bool = False
    literal: bool = False
    per: str = ""
    least: int = 1
    most: int = 20
    role: str = "number"
    array: tuple[str, ...] = ()
    optional: bool = False


@dataclass(frozen=True)
class Distribution:
    """`kinds` are the kinds of output it can describe, `support` is where its values lie.

    `components` is the number of distributions it is made of, from. `default` is the alternative that an argument
    without a name stands for, and `form` how it is written when its parameters do not say. `tails` says that its
    distribution function is known: it can be truncated and censored. `latex` is its name there, where it is another.
    """

    name: str
    parameters: tuple[Parameter, ...]
    kinds: tuple[str, ...]
    meaning: str
    support: str
    components: int = 0
    default: str = ""
    form: str = ""
    tails: bool = False
    latex: str = ""

    @property
    def continuous(self) -> bool:
        """Whether it has a density on the line; a prior must."""
        return self.support in {"real", "positive", "unit", "component"}


@dataclass(frozen=True)
class KernelFamily:
    """A covariance function, of unit variance unless its meaning says otherwise. `one_column`: of a single column."""

    name: str
    parameters: tuple[Parameter, ...]
    meaning: str
    one_column: bool = False


@dataclass(frozen=True)
class Function:
    """An elementary function."""

    name: str
    arity: int
    meaning: str


def table(entries: Iterable) -> Mapping[str, object]:
    """Entries by name."""
    return MappingProxyType({entry.name: entry for entry in entries})


@functools.cache
def signature(entry: Distribution | KernelFamily) -> str:
    """How a distribution or kernel is written: `RationalQuadratic(ell = 1, alpha = 1)`, `Bernoulli(logit = | p =)`."""
    if isinstance(entry, Distribution) and entry.form:
        return entry.form
    plain = [
        each.name if each.default is None else f"{each.name} = {each.default:g}"
        for each in entry.parameters
        if not each.alternative
    ]
    named = " | ".join(f"{each.name} =" for each in entry.parameters if each.alternative)
    return f"{entry.name}({', '.join(plain + [named] if named else plain)})"


_MEAN = Parameter("mean", "mean")
_SD = Parameter("sd", "standard deviation", "positive")
_SCALE = Parameter("scale", "scale", "positive")
_SHAPE = Parameter("shape", "shape", "positive")
_RATE = Parameter("rate", "rate", "positive")
_ALPHA = Parameter("alpha", "probability", "unit")
_P = Parameter("p", "probability", "unit", alternative=True)
_LOGIT = Parameter("logit", "log odds", alternative=True)
_PROBIT = Parameter("probit", "quantile of the standard normal", alternative=True)

BUILT_IN: Mapping[str, Distribution] = table(
    (  # type: ignore[assignment]
        Distribution("Normal", (_MEAN, _SD), ("real", "positive"), "Gaussian", "real", tails=True),
        Distribution(
            "StudentT",
            (Parameter("df", "degrees of freedom", "positive"), _MEAN, _SCALE),
            ("real",),
            "heavy-tailed, location and scale",
            "real",
            tails=True,
        ),
        Distribution("Laplace", (_MEAN, _SCALE), ("real",), "double exponential", "real", tails=True),
        Distribution("Logistic", (_MEAN, _SCALE), ("real",), "variance pi^2 scale^2 / 3", "real", tails=True),
        Distribution(
            "LogNormal",
            (
                Parameter("mean", "mean of the logarithm"),
                Parameter("sd", "standard deviation of the logarithm", "positive"),
            ),
            ("positive",),
            "the exponential of a Gaussian",
            "positive",
            tails=True,
        ),
        Distribution("Gamma", (_SHAPE, _RATE), ("positive",), "mean shape / rate", "positive", tails=True),
        Distribution("Exponential", (_RATE,), ("positive",), "mean 1 / rate", "positive", tails=True),
        Distribution(
            "Weibull", (_SHAPE, _SCALE), ("positive",), "waiting times, power-law hazard", "positive", tails=True
        ),
        Distribution(
            "InverseGamma", (_SHAPE, _SCALE), ("positive",), "the inverse of a Gamma(shape, rate = scale)", "positive"
        ),
        Distribution("HalfNormal", (_SD,), ("positive",), "the size of a Normal(0, sd)", "positive", tails=True),
        Distribution("HalfCauchy", (_SCALE,), ("positive",), "the size of a Cauchy variable", "positive"),
        Distribution(
            "HalfStudentT",
            (Parameter("df", "degrees of freedom", "positive"), _SCALE),
            ("positive",),
            "the size of a StudentT(df, 0, scale)",
            "positive",
        ),
        Distribution(
            "PCScale",
            (Parameter("above", "a size", "positive"), _ALPHA),
            (),
            "prior of the standard deviation of a process: it is above this with probability alpha",
            "positive",
        ),
        Distribution(
            "PCLengthscale",
            (
                Parameter("below", "a length", "positive"),
                _ALPHA,
                Parameter("dimension", "columns of the input", "positive"),
            ),
            (),
            "prior of the length-scale of a process: it is below this with probability alpha",
            "positive",
        ),
        Distribution(
            "Uniform",
            (Parameter("lower", "smallest possible value"), Parameter("upper", "largest possible value")),
            ("real", "positive", "unit"),
            "any value between two known bounds",
            "real",
            form="Uniform(lower, upper)",
        ),
        Distribution(
            "Beta",
            (Parameter("a", "first shape", "positive"), Parameter("b", "second shape", "positive")),
            ("unit",),
            "a proportion strictly between 0 and 1, mean a / (a + b)",
            "unit",
        ),
        Distribution("Poisson", (Parameter("mean", "mean", "positive"),), ("count",), "counts", "count"),
        Distribution(
            "NegativeBinomial",
            (
                Parameter("mean", "mean", "positive"),
                Parameter("dispersion", "variance is mean + mean^2 / dispersion", "positive"),
            ),
            ("count",),
            "overdispersed counts",
            "count",
            latex="NegBin",
        ),
        Distribution(
            "Binomial",
            (Parameter("trials", "number of trials", "count"), _P, _LOGIT, _PROBIT),
            ("count",),
            "successes among a known number of trials",
            "count",
        ),
        Distribution("Bernoulli", (_LOGIT, _PROBIT, _P), ("binary",), "yes or no", "count"),
        Distribution(
            "Categorical",
            (
                Parameter("logits", "log odds, one per level of the label", alternative=True, per="level"),
                Parameter("p", "probabilities, one per level, adding up to 1", "unit", alternative=True, per="level"),
            ),
            ("label",),
            "one of several levels",
            "level",
            default="logits",
        ),
        Distribution(
            "Ordinal",
            (
                Parameter("probit", "location on the scale of a standard normal", alternative=True),
                Parameter("logit", "location on the scale of a standard logistic", alternative=True),
                Parameter("cutpoints", "increasing, one fewer than levels: `param cut : ordered[4]`", per="cutpoint"),
            ),
            ("ordinal",),
            "ordered levels: P(level <= j) = Phi(cutpoint j - location), or the logistic function of it",
            "level",
            default="probit",
            form="Ordinal(probit = | logit =, cutpoints = cut)",
        ),
        Distribution(
            "MultivariateNormal",
            (
                Parameter("mean", "mean of each element", per="element"),
                Parameter("covariance", "covariance matrix S[p, q]", alternative=True, per="pair"),
                Parameter("factor", "W[p, k]: the covariance is W W' + diag(sd^2)", alternative=True, per="pair"),
                Parameter("sd", "standard deviations beside a factor", "positive", 0.0, per="element"),
            ),
            ("real",),
            "the elements of one row are jointly Gaussian",
            "vector",
            form="MultivariateNormal(mean, covariance = S), MultivariateNormal(mean, factor = W, sd = s)",
        ),
        Distribution(
            "Mixture",
            (Parameter("weights", "of the first of two components, or one per component", "unit", per="component"),),
            ("real", "positive", "unit", "count"),
            "one of several distributions, drawn anew for each value",
            "component",
            components=2,
            form="Mixture(w, Normal(f, s), Normal(0, 10))",
        ),
        Distribution(
            "Truncated",
            (
                Parameter("lower", "smallest possible value", alternative=True),
                Parameter("upper", "largest possible value", alternative=True),
            ),
            ("real", "positive", "unit"),
            "a distribution given that its values lie between two bounds",
            "component",
            components=1,
            form="Truncated(Normal(f, s), lower = 0, upper = 10)",
        ),
        Distribution(
            "Censored",
            (
                Parameter("lower", "values below it are recorded as it", alternative=True),
                Parameter("upper", "values above it are recorded as it", alternative=True),
            ),
            ("real", "positive", "unit"),
            "a value at a bound says only that the true one lies there or beyond",
            "censored",
            components=1,
            form="Censored(Weibull(k, exp(f)), upper = limit)",
        ),
        Distribution(
            "Dirichlet",
            (Parameter("concentration", "one number, or one per element", "positive", per="element"),),
            (),
            "prior of a simplex",
            "simplex",
        ),
        Distribution(
            "LKJ",
            (Parameter("eta", "1 is flat, more prefers small correlations", "positive"),),
            (),
            "prior of a correlation_factor L, with density det(L L')^(eta - 1) of the correlation matrix L L'",
            "correlation_factor",
        ),
    )
)
_TABLE = dict(BUILT_IN)
DISTRIBUTIONS: Mapping[str, Distribution] = MappingProxyType(_TABLE)
"""Every distribution by name, registered ones too. Those that can be a prior are continuous, `Dirichlet` or `LKJ`."""


def add(name: str, entry: Distribution | None) -> None:
    """Register a distribution, in the place of one of that name; None takes it out."""
    _TABLE.pop(name, None)
    if entry is not None:
        _TABLE[name] = entry
