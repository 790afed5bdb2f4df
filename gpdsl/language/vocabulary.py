"""Every word the language knows: functions, distributions, kernels, types, statements, options. One table each.

Documentation and completion derive from these tables; the mathematical tables of the other stages are tested against
them. `domain` of a parameter is `real`, `positive`, `unit` (between 0 and 1) or `count` (whole numbers from 0).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Parameter:
    """A parameter of a distribution or kernel.

    `alternative`: exactly one of the alternatives of a distribution is given, by its name. `vector`: a kernel
    parameter that may hold one value per column of the input. `literal`: a whole number written in the text.
    """

    name: str
    meaning: str
    domain: str = "real"
    default: float | None = None
    alternative: bool = False
    vector: bool = False
    literal: bool = False


@dataclass(frozen=True)
class Distribution:
    """`kinds` are the kinds of output it can describe; `continuous` ones can be a prior."""

    name: str
    parameters: tuple[Parameter, ...]
    kinds: tuple[str, ...]
    meaning: str
    continuous: bool = True


@dataclass(frozen=True)
class KernelFamily:
    """A covariance function with unit variance."""

    name: str
    parameters: tuple[Parameter, ...]
    meaning: str


@dataclass(frozen=True)
class Function:
    """An elementary function."""

    name: str
    arity: int
    meaning: str


def _table(entries: Iterable) -> Mapping[str, object]:
    return MappingProxyType({entry.name: entry for entry in entries})


def signature(entry: Distribution | KernelFamily) -> str:
    """How a distribution or kernel is written: `RationalQuadratic(ell = 1, alpha = 1)`, `Bernoulli(logit = | p =)`."""
    plain = [_shown(each) for each in entry.parameters if not each.alternative]
    named = " | ".join(f"{each.name} =" for each in entry.parameters if each.alternative)
    return f"{entry.name}({', '.join(plain + [named] if named else plain)})"


def _shown(parameter: Parameter) -> str:
    return parameter.name if parameter.default is None else f"{parameter.name} = {parameter.default:g}"


_MEAN = Parameter("mean", "mean")
_SD = Parameter("sd", "standard deviation", "positive")
_SCALE = Parameter("scale", "scale", "positive")
_SHAPE = Parameter("shape", "shape", "positive")
_RATE = Parameter("rate", "rate", "positive")
_P = Parameter("p", "probability", "unit", alternative=True)
_LOGIT = Parameter("logit", "log odds", alternative=True)
_PROBIT = Parameter("probit", "quantile of the standard normal", alternative=True)

DISTRIBUTIONS: Mapping[str, Distribution] = _table(
    (  # type: ignore[assignment]
        Distribution("Normal", (_MEAN, _SD), ("real", "positive"), "Gaussian"),
        Distribution(
            "StudentT",
            (Parameter("df", "degrees of freedom", "positive"), _MEAN, _SCALE),
            ("real",),
            "heavy-tailed, location and scale",
        ),
        Distribution("Laplace", (_MEAN, _SCALE), ("real",), "double exponential"),
        Distribution(
            "LogNormal",
            (
                Parameter("mean", "mean of the logarithm"),
                Parameter("sd", "standard deviation of the logarithm", "positive"),
            ),
            ("positive",),
            "the exponential of a Gaussian",
        ),
        Distribution("Gamma", (_SHAPE, _RATE), ("positive",), "mean shape / rate"),
        Distribution("Exponential", (_RATE,), ("positive",), "mean 1 / rate"),
        Distribution("Weibull", (_SHAPE, _SCALE), ("positive",), "waiting times with a power-law hazard"),
        Distribution(
            "Beta",
            (Parameter("a", "first shape", "positive"), Parameter("b", "second shape", "positive")),
            ("real",),
            "a proportion strictly between 0 and 1, mean a / (a + b)",
        ),
        Distribution("Poisson", (Parameter("mean", "mean", "positive"),), ("count",), "counts", continuous=False),
        Distribution(
            "NegativeBinomial",
            (
                Parameter("mean", "mean", "positive"),
                Parameter("dispersion", "variance is mean + mean^2 / dispersion", "positive"),
            ),
            ("count",),
            "overdispersed counts",
            continuous=False,
        ),
        Distribution(
            "Binomial",
            (Parameter("trials", "number of trials", "count"), _P, _LOGIT),
            ("count",),
            "successes among a known number of trials",
            continuous=False,
        ),
        Distribution("Bernoulli", (_LOGIT, _PROBIT, _P), ("binary",), "yes or no", continuous=False),
        Distribution(
            "Categorical",
            (Parameter("logits", "log odds, one per level of the label"),),
            ("label",),
            "one of several levels",
            continuous=False,
        ),
    )
)

_ELL = Parameter("ell", "length-scale; one per input column when it has that axis", "positive", 1.0, vector=True)
_PERIOD = Parameter("period", "period", "positive", 1.0)

KERNELS: Mapping[str, KernelFamily] = _table(
    (  # type: ignore[assignment]
        KernelFamily("RBF", (_ELL,), "squared exponential, exp(-r^2 / 2): infinitely smooth"),
        KernelFamily("Matern12", (_ELL,), "exponential, exp(-r): continuous, nowhere differentiable"),
        KernelFamily("Matern32", (_ELL,), "once differentiable"),
        KernelFamily("Matern52", (_ELL,), "twice differentiable"),
        KernelFamily(
            "RationalQuadratic",
            (_ELL, Parameter("alpha", "weight of the long scales", "positive", 1.0)),
            "a scale mixture of squared exponentials",
        ),
        KernelFamily("Periodic", (_ELL, _PERIOD), "exactly periodic"),
        KernelFamily("Cosine", (_PERIOD,), "one sinusoid"),
        KernelFamily("Linear", (_ELL,), "linear functions through the origin, slopes of size 1 / ell"),
        KernelFamily(
            "Polynomial",
            (
                Parameter("degree", "degree", "count", literal=True),
                Parameter("offset", "offset", "positive", 1.0),
                _ELL,
            ),
            "polynomials of a given degree",
        ),
        KernelFamily("Constant", (), "one unknown level for all rows"),
        KernelFamily("White", (), "independent noise at each row"),
    )
)

FUNCTIONS: Mapping[str, Function] = _table(
    (  # type: ignore[assignment]
        Function("exp", 1, "exponential"),
        Function("log", 1, "natural logarithm"),
        Function("sqrt", 1, "square root"),
        Function("sin", 1, "sine"),
        Function("cos", 1, "cosine"),
        Function("tan", 1, "tangent"),
        Function("tanh", 1, "hyperbolic tangent"),
        Function("abs", 1, "absolute value"),
        Function("sigmoid", 1, "1 / (1 + exp(-a))"),
        Function("softplus", 1, "log(1 + exp(a))"),
        Function("log1p", 1, "log(1 + a)"),
        Function("expm1", 1, "exp(a) - 1"),
        Function("erf", 1, "error function"),
        Function("lgamma", 1, "log of the gamma function"),
        Function("Phi", 1, "distribution function of the standard normal"),
        Function("min", 2, "the smaller of two"),
        Function("max", 2, "the larger of two"),
        Function("pow", 2, "power, the same as ^"),
    )
)

REDUCTIONS: Mapping[str, str] = MappingProxyType(
    {
        "sum": "sum over an index",
        "prod": "product over an index",
        "max": "largest over an index",
        "min": "smallest over an index",
        "logsumexp": "log of the sum of exponentials over an index",
    }
)

CONSTANTS: tuple[str, ...] = ("pi",)

INPUT_KINDS = ("real", "positive", "count")
OUTPUT_KINDS = ("real", "positive", "count", "binary", "label")
CONSTRAINTS: Mapping[str, float] = MappingProxyType({"real": 0.0, "positive": 1.0, "unit": 0.5})
"""Constraints of a parameter, each with the initial value it gets when none is written."""

STATEMENTS: Mapping[str, str] = MappingProxyType(
    {
        "model": 'model name "title"',
        "index": "index p in 1..4",
        "input": "input x : real",
        "output": "output y : real",
        "const": "const a = 2",
        "param": "param sigma : positive = 0.1",
        "latent": "latent f(x) ~ GP(0, RBF(1))",
        "row": "row w ~ Normal(0, 1)",
        "let": "let g = exp(f)",
        "function": "function t(y; a, b) = y + a*tanh(b*y)",
        "kernel": "kernel k(r; ell) = exp(-r/ell)",
        "density": "density d(y | mu, s) = -log(2*s) - abs(y - mu)/s",
        "external": "external g(a: real[4]) -> real[4]",
        "infer": "infer vi: posterior = full, inducing = 100",
    }
)
"""The word each statement starts with, and its form. An observation has no such word: `y ~ Normal(f, sigma)`."""

OBSERVATION_FORM = "y ~ Normal(f, sigma)"

ENGINES = ("vi",)

POSTERIORS = ("full", "diagonal", "mixture(K)")

OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "posterior": "full, diagonal or mixture(K)",
        "inducing": "a whole number from 1",
        "learn_inducing": "true or false",
        "samples": "a whole number from 1",
        "expectations": "auto, closed, quadrature or sampled",
        "optimizer": "auto, natural, lbfgs or adam",
        "batch": "a whole number from 1",
        "seed": "a whole number from 0",
        "steps": "a whole number from 1",
        "tolerance": "a positive number",
    }
)
"""Options of `infer` and the values they take."""

OPTION_WORDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "expectations": ("auto", "closed", "quadrature", "sampled"),
        "optimizer": ("auto", "natural", "lbfgs", "adam"),
    }
)

PROCESS = "GP"

BUILTINS: Mapping[str, str] = MappingProxyType(
    dict.fromkeys((*FUNCTIONS, *REDUCTIONS), "function")
    | dict.fromkeys(CONSTANTS, "constant")
    | dict.fromkeys(KERNELS, "kernel")
    | dict.fromkeys(DISTRIBUTIONS, "distribution")
    | {PROCESS: "process"}
)
"""Names a file cannot declare, and what each of them is."""
