"""What a text is made of: positions in it (`Span`, which every node of the tree carries), limits, and every word.

The words are functions, distributions, kernels, types, statements and options, one table each. Documentation and
completion derive from these tables; the mathematical tables of the other stages are tested against them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from types import MappingProxyType
from typing import Literal, dataclass_transform

from gpdsl.language.distributions import DISTRIBUTIONS, Function, KernelFamily, Parameter, table


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Record:
    """What a tree is made of: each subclass is a frozen dataclass."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of the source text; lines and columns start at 1, `end_column` is exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True)
class Part:
    """A used file: the line of the whole text on which its own begins, the name shown for it, and where it lies.

    `used` is the place in the model that led to it.
    """

    line: int
    name: str
    path: Path | None = field(default=None, compare=False)
    used: Span | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Source:
    """The text of a model and the name shown for it in errors.

    The files it uses follow the model's own lines, so that a line number alone says which file is meant; `parts` are
    these files, in that order.
    """

    text: str
    name: str = "<model>"
    parts: tuple[Part, ...] = ()

    def part(self, line: int) -> Part:
        """The file that a line belongs to; the model itself is the part that begins on line 1."""
        return max((each for each in self.parts if each.line <= line), key=lambda p: p.line, default=Part(1, self.name))

    def number(self, line: int) -> int:
        """A line as its own file counts it."""
        return line - self.part(line).line + 1

    def seen_from(self, line: int, here: int) -> str:
        """A line as a message about `here` names it: `3`, or `3 of kernels.gpm` where that is another file."""
        part, number = self.part(line), self.number(line)
        return str(number) if part == self.part(here) else f"{number} of {part.name}"

    def is_own(self, span: Span) -> bool:
        """Whether a place is in the model's own file."""
        return not self.parts or span.line < self.parts[0].line

    @property
    def own(self) -> str:
        """The text of the model's own file."""
        return "\n".join(self.lines[: self.parts[0].line - 1]) if self.parts else self.text

    def line(self, number: int) -> str:
        """The text of line `number` (from 1), empty past the end."""
        return self.lines[number - 1].rstrip("\r") if 1 <= number <= len(self.lines) else ""

    def written(self, span: Span) -> str:
        """The text of a span on one line, without comments."""
        lines = [self.line(number) for number in range(span.line, span.end_line + 1)]
        lines[-1] = lines[-1][: span.end_column - 1]
        lines[0] = lines[0][span.column - 1 :]
        return " ".join(each.partition("#")[0] for each in lines)

    @cached_property
    def lines(self) -> list[str]:
        """The lines, without their ends."""
        # Every message asks for lines: split once, or checking takes time quadratic in the length of the text.
        return self.text.split("\n")


# The sizes at which a model text is refused: it is untrusted, and must end in an answer or an error, soon.

MAX_CHARACTERS = 250_000
MAX_LINE = 10_000
MAX_STATEMENTS = 5_000
MAX_DEPTH = 100  # of brackets and of operators: well inside Python's own recursion limit, here and downstream
MAX_AXIS = 10_000
MAX_ELEMENTS = 1_000_000
MAX_DEGREE = 1_000  # of a constant power, multiplied through nested powers and earlier `let`s
MAX_TERMS = 20_000  # of an expression once earlier `let`s are written out
MAX_EXPANDED = 200_000  # terms that all calls of functions together write out
MAX_FUNCTION_DEPTH = 50  # of the operations in one function, the functions it calls written out
MAX_KERNEL_POWER = 10
MAX_KERNELS = 500  # in one covariance function, powers written out
MAX_CASES = 200  # of one `let`
MAX_LAYERS = 50  # of latents over latents
MAX_NAME = 100
MAX_REPORTED = 100
MAX_USED = 50  # files that a model uses; their texts and its own are one text to the limits above
MAX_USE_DEPTH = 10  # of files that use files
MAX_READINGS = 32  # points and derivatives at which one latent is read in a row


# Did you mean: the declared or known word closest to a misspelt one.

MAX_CANDIDATES = 400

ELSEWHERE = {"precision": "dtype"}
"""What other tools call what has a name of its own here, and is nearer to another by its letters."""


def closest(word: str, candidates: Iterable[str]) -> str:
    """The candidate most like `word`, ignoring case; empty when none is close enough to be worth saying."""
    known: dict[str, str] = {}
    for candidate in candidates:
        known.setdefault(candidate.lower(), candidate)
        if len(known) >= MAX_CANDIDATES:
            break
    if ELSEWHERE.get(word.lower()) in known:
        return ELSEWHERE[word.lower()]
    # A short name is close to every other short name: below three letters only the case may differ.
    cutoff = 0.6 if len(word) > 2 else 0.99
    found = get_close_matches(word.lower()[:100], known, n=1, cutoff=cutoff)
    return known[found[0]] if found else ""


# Where the files that travel with the package are: the grammar and the model zoo.


def shipped(kind: Literal["grammar", "models"]) -> Traversable:
    """The folder `kind`: inside the installed package, or at the root of a checkout.

    Raises FileNotFoundError when neither holds it, which means a broken installation.
    """
    packaged = files("gpdsl").joinpath("_shipped", kind)
    if packaged.is_dir():
        return packaged
    checkout = Path(__file__).resolve().parents[2] / kind
    if checkout.is_dir():
        return checkout
    raise FileNotFoundError(f"the folder `{kind}` is missing from the installation of gpdsl; install it again")


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
