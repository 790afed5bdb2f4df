"""Every word the language knows: functions, distributions, kernels, types, statements, options. One table each.

Documentation and completion derive from these tables; the mathematical tables of the other stages are tested against
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gpdsl.language.distributions import DISTRIBUTIONS, Function, KernelFamily, Parameter, table

# The table of covariance functions: what each is called, takes and means.

_ELL = Parameter("ell", "length-scale; one per input column when it has that axis", "positive", 1.0, vector=True)
_PERIOD = Parameter("period", "period", "positive", 1.0)

KERNELS: Mapping[str, KernelFamily] = table(
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
        KernelFamily(
            "ArcCosine",
            (
                Parameter("order", "0, 1 or 2: steps, ramps or parabolas", "count", 1.0, literal=True, least=0, most=2),
                Parameter("weight", "variance of the weights", "positive", 1.0, vector=True),
                Parameter("bias", "variance of the biases", "positive", 1.0),
            ),
            "an infinitely wide layer of neurons (Cho and Saul)",
        ),
        KernelFamily(
            "SpectralMixture",
            (
                Parameter("weights", "weight of each component", "positive", array=("components",)),
                Parameter("means", "mean frequency of each component", array=("components", "columns")),
                Parameter("sds", "spread of its frequencies", "positive", array=("components", "columns")),
            ),
            "a Gaussian mixture as spectral density (Wilson and Adams); its variance is the sum of the weights",
        ),
        KernelFamily(
            "Coregion",
            (
                Parameter("W", "loadings of each level on a few factors", array=("levels", "factors")),
                Parameter("kappa", "variance of each level's own", "positive", array=("levels",)),
            ),
            "covariance W W' + diag(kappa) between the levels of a column, numbered from 1",
            one_column=True,
        ),
        KernelFamily(
            "ChangePoint",
            (
                Parameter("before", "kernel before the change", role="kernel"),
                Parameter("after", "kernel after it", role="kernel"),
                Parameter("at", "where the change is"),
                Parameter("width", "how long it takes: the scale of a sigmoid", "positive", 1.0),
            ),
            "one kernel gives way to another along one column",
            one_column=True,
        ),
        KernelFamily(
            "Patch",
            (
                Parameter("kernel", "kernel between patches", role="kernel"),
                Parameter("image", "height and width", role="sizes"),
                Parameter("patch", "height and width", role="sizes"),
                Parameter(
                    "weights",
                    "what each patch counts, row by row; one value of an index for each",
                    default=1.0,
                    array=("patches",),
                    optional=True,
                ),
            ),
            "image-convolutional: the mean over all pairs of patches of two images (van der Wilk et al.)",
        ),
        KernelFamily("Constant", (), "one unknown level for all rows"),
        KernelFamily("Same", (), "1 between two rows of the same level of a label, 0 between others"),
        KernelFamily("White", (), "independent noise at each row"),
    )
)


FUNCTIONS: Mapping[str, Function] = table(
    (  # type: ignore[assignment]
        Function("exp", 1, "exponential"),
        Function("log", 1, "natural logarithm"),
        Function("sqrt", 1, "square root"),
        Function("sin", 1, "sine"),
        Function("cos", 1, "cosine"),
        Function("tan", 1, "tangent"),
        Function("asin", 1, "inverse of the sine, from -pi/2 to pi/2"),
        Function("acos", 1, "inverse of the cosine, from 0 to pi"),
        Function("atan", 1, "inverse of the tangent, from -pi/2 to pi/2"),
        Function("sinh", 1, "hyperbolic sine"),
        Function("cosh", 1, "hyperbolic cosine"),
        Function("tanh", 1, "hyperbolic tangent"),
        Function("asinh", 1, "inverse of the hyperbolic sine: a logarithm for large values of either sign"),
        Function("atanh", 1, "inverse of the hyperbolic tangent"),
        Function("log2", 1, "logarithm to base 2"),
        Function("log10", 1, "logarithm to base 10"),
        Function("floor", 1, "largest whole number not above"),
        Function("abs", 1, "absolute value"),
        Function("sigmoid", 1, "1 / (1 + exp(-a))"),
        Function("logit", 1, "log(a / (1 - a)), the inverse of sigmoid"),
        Function("probit", 1, "quantile of the standard normal, the inverse of Phi"),
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
        "mean": "mean over an index",
        "max": "largest over an index",
        "min": "smallest over an index",
        "norm": "Euclidean norm over an index, the root of the sum of squares",
        "logsumexp": "log of the sum of exponentials over an index",
    }
)

CONTRACTIONS: Mapping[str, str] = MappingProxyType(
    {"dot": "sum of the products over the one axis that both have, the same as `a @ b`"}
)

POINTS: Mapping[str, str] = MappingProxyType(
    {"lattice": "points of a regular grid, the last coordinate running fastest: the value of a constant"}
)

CONSTANTS: tuple[str, ...] = ("pi",)

INPUT_KINDS = ("real", "positive", "count", "label", "time")
OUTPUT_KINDS = ("real", "positive", "unit", "count", "binary", "label", "ordinal")
CONSTRAINTS: Mapping[str, float] = MappingProxyType(
    {"real": 0.0, "positive": 1.0, "unit": 0.5, "simplex": 0.0, "ordered": 0.0, "correlation_factor": 0.0}
)
"""Constraints of a parameter, each with the initial value it gets when none is written.

A simplex then starts with equal elements, and ordered values at equally probable quantiles of a standard normal.
A `correlation_factor` L[p, q] is lower triangular with rows of length 1: L L' is a correlation matrix. It starts
without correlations.
"""

TIME_UNITS: Mapping[str, int] = MappingProxyType(
    {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800, "year": 31_557_600}
)
"""What an input of kind `time` may be counted in, `time(per = hour)`, and its seconds. Without it, days."""

STATEMENTS: Mapping[str, str] = MappingProxyType(
    {
        "model": 'model name "title"',
        "use": 'use "kernels.gpm"',
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

PROCESS = "GP"

BUILTINS: Mapping[str, str] = MappingProxyType(
    dict.fromkeys((*FUNCTIONS, *REDUCTIONS, *CONTRACTIONS, *POINTS), "function")
    | dict.fromkeys(CONSTANTS, "constant")
    | dict.fromkeys(KERNELS, "kernel")
    | dict.fromkeys(DISTRIBUTIONS, "distribution")
    | {PROCESS: "process"}
)
"""Names a file cannot declare, and what each of them is."""

SHADOWABLE = frozenset({"mean", "norm", "dot", "floor", "logit", "probit"})
"""Functions whose names data and parameters often have: a file may declare a quantity of that name beside them."""
