"""The largest error of every distribution, kernel and elementary `let`, against SciPy, NumPy and adaptive quadrature.

`make accuracy` writes the table of docs/accuracy.md. Errors are relative to the reference, or to one where
it is smaller.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
from scipy import integrate, special, stats

import gpdsl
from gpdsl.kernels.covariance import covariance
from gpdsl.kernels.functionals import Values
from gpdsl.lowering.table import evaluate
from gpdsl.results import conditional
from gpdsl.symbolic import laws
from gpdsl.symbolic.laws import Law
from tests.kernels.test_covariance import REFERENCES, form_of, numbers, reference

PAGE = Path(__file__).parents[1] / "docs" / "accuracy.md"
BOUND = 1e-6
TURNS = 20
"""Random arguments of each distribution and kernel."""
Row = tuple[str, str, float]
Generator = np.random.Generator

# --- distributions ------------------------------------------------------------------------------------------------

Drawn = Callable[[Generator], tuple[dict[str, float], Any]]


def _pair(names: str, build: Callable[..., Any], *draws: Callable[[Generator], float]) -> Drawn:
    """Random arguments by these names, and SciPy's distribution of them."""

    def drawn(rng: Generator) -> tuple[dict[str, float], Any]:
        values = [draw(rng) for draw in draws]
        return dict(zip(names.split(), values, strict=True)), build(*values)

    return drawn


def _place(rng: Generator) -> float:
    return float(rng.normal(0, 3))


def _size(rng: Generator) -> float:
    return float(np.exp(rng.normal()))


def _share(rng: Generator) -> float:
    return float(rng.uniform(0.02, 0.98))


def _degrees(rng: Generator) -> float:
    return float(2.5 + np.exp(2 * rng.normal()))


def _trials(rng: Generator) -> float:
    return float(rng.integers(1, 200))


class _HalfT(stats.rv_continuous):
    """The size of Student's t, which SciPy has no class for."""

    def _logpdf(self, x: Any, df: Any) -> Any:
        return np.log(2) + stats.t.logpdf(x, df)

    def _pdf(self, x: Any, df: Any) -> Any:
        return 2 * stats.t.pdf(x, df)

    def _sf(self, x: Any, df: Any) -> Any:
        return 2 * stats.t.sf(x, df)

    def _cdf(self, x: Any, df: Any) -> Any:
        return 1 - 2 * stats.t.sf(x, df)

    def _ppf(self, q: Any, df: Any) -> Any:
        return stats.t.isf(0.5 * (1 - q), df)

    def _stats(self, df: Any) -> Any:
        mean = 2 * df / (df - 1) * stats.t.pdf(0, df)
        return mean, df / (df - 2) - mean**2, None, None


half_t = _HalfT(a=0.0, name="half_t", shapes="df")


def pc_lengthscale(below: float, alpha: float, dimension: float) -> Any:
    """Its power -d/2 is exponential."""
    return stats.invweibull(dimension / 2, scale=below * (-np.log(alpha)) ** (2 / dimension))


PLAIN: Mapping[str, Drawn] = {
    "Normal": _pair("mean sd", stats.norm, _place, _size),
    "StudentT": _pair("df mean scale", stats.t, _degrees, _place, _size),
    "Laplace": _pair("mean scale", stats.laplace, _place, _size),
    "Logistic": _pair("mean scale", stats.logistic, _place, _size),
    "LogNormal": _pair("mean sd", lambda m, s: stats.lognorm(s, scale=np.exp(m)), _place, _size),
    "Gamma": _pair("shape rate", lambda a, b: stats.gamma(a, scale=1 / b), _size, _size),
    "Exponential": _pair("rate", lambda b: stats.expon(scale=1 / b), _size),
    "Weibull": _pair("shape scale", lambda k, s: stats.weibull_min(k, scale=s), _size, _size),
    "Beta": _pair("a b", stats.beta, _size, _size),
    "Poisson": _pair("mean", stats.poisson, lambda g: float(np.exp(g.normal(2, 3)))),
    "NegativeBinomial": _pair(
        "mean dispersion", lambda m, r: stats.nbinom(r, r / (r + m)), lambda g: 9 * _size(g), _size
    ),
    "Binomial": _pair("trials p", stats.binom, _trials, _share),
    "Bernoulli": _pair("p", stats.bernoulli, _share),
    "InverseGamma": _pair("shape scale", lambda a, b: stats.invgamma(a, scale=b), _degrees, _size),
    "HalfNormal": _pair("sd", lambda s: stats.halfnorm(scale=s), _size),
    "HalfCauchy": _pair("scale", lambda s: stats.halfcauchy(scale=s), _size),
    "PCScale": _pair("above alpha", lambda s, a: stats.expon(scale=-s / np.log(a)), _size, _share),
    "PCLengthscale": _pair("below alpha dimension", pc_lengthscale, _size, _share, lambda g: float(g.integers(5, 9))),
    "Uniform": _pair("lower upper", lambda a, b: stats.uniform(a, b - a), lambda g: -_size(g), _size),
    "HalfStudentT": _pair("df scale", lambda df, s: half_t(df, scale=s), _degrees, _size),
}
TAILS = (1e-12, 1e-6, 0.01, 0.3, 0.5, 0.9, 0.999, 1 - 1e-6)


def _error(found: Any, expected: Any) -> float:
    """The largest error; that of equal infinities is 0, and what is no number is infinitely wrong."""
    found, expected = np.asarray(found, float), np.asarray(expected, float)
    with np.errstate(invalid="ignore"):
        errors = np.abs(found - expected) / np.maximum(1.0, np.abs(expected))
    return float(np.max(np.where(found == expected, 0.0, np.nan_to_num(errors, nan=np.inf))))


def _density(law: Law, at: np.ndarray) -> np.ndarray:
    symbols = [sp.Symbol(f"a{i}", real=True) for i in range(len(law.leaves()))]
    table = dict(zip(symbols, law.leaves(), strict=True))
    y = sp.Symbol("y", real=True)
    formula = laws.log_density(law.filled(symbols), y)
    return np.asarray(evaluate(formula, lambda s: jnp.asarray(at if s == y else table[s], float)))


def _arrays(arguments: Mapping[str, float]) -> dict[str, np.ndarray]:
    return {name: np.asarray(value, float) for name, value in arguments.items()}


def distributions(turns: int, rng: Generator) -> Iterator[Row]:
    """Log density, distribution function and moments of every distribution of a number."""
    for name, draw in PLAIN.items():
        worst = np.zeros(3)
        for _ in range(turns):
            arguments, exact = draw(rng)
            law = Law(name, _arrays(arguments))
            at = np.unique(exact.ppf(TAILS))
            logs = exact.logpmf(at) if hasattr(exact.dist, "logpmf") else exact.logpdf(at)
            mean, variance = conditional.moments(law)
            errors = (
                _error(_density(law, at), logs),
                _error(conditional.cdf(law, at), exact.cdf(at)),
                max(_error(mean, exact.mean()), _error(variance, exact.var())),
            )
            worst = np.maximum(worst, errors)
        for what, value in zip(("log density", "distribution function", "moments"), worst, strict=True):
            yield name, what, float(value)
    yield from _levels(turns, rng)
    yield "Mixture", "log density", max(_mixture(rng) for _ in range(turns))
    for name in ("Normal", "StudentT", "Laplace", "Logistic", "LogNormal", "Gamma", "Exponential", "Weibull"):
        found = np.max([_truncated(name, rng) for _ in range(max(1, turns // 2))], axis=0)
        yield f"Truncated({name})", "log density", float(found[0])
        yield f"Truncated({name})", "moments", float(found[1])
        yield f"Censored({name})", "moments", float(found[2])


def _levels(turns: int, rng: Generator) -> Iterator[Row]:
    worst = {"Categorical": 0.0, "Ordinal": 0.0}
    for _ in range(turns):
        logits = 5 * rng.normal(size=4)
        cuts, place = np.sort(2 * rng.normal(size=3)), 5 * rng.normal()
        edges = np.concatenate([[-np.inf], cuts - place, [np.inf]])
        # from the side of zero where a difference of probabilities does not cancel
        ends = np.where(edges[:-1] + edges[1:] > 0, 1, 0)
        chances = np.where(ends, special.expit(-edges[:-1]) - special.expit(-edges[1:]), np.diff(special.expit(edges)))
        laws_ = {
            "Categorical": (Law("Categorical", {"logits": tuple(logits)}), logits - special.logsumexp(logits)),
            "Ordinal": (Law("Ordinal", {"logit": place, "cutpoints": tuple(cuts)}), np.log(chances)),
        }
        for name, (law, expected) in laws_.items():
            symbols = [sp.Symbol(f"a{i}", real=True) for i in range(len(law.leaves()))]
            table = dict(zip(symbols, law.leaves(), strict=True))
            formulas = laws.log_probabilities(law.filled(symbols))
            found = [evaluate(each, lambda s, t=table: jnp.asarray(t[s], float)) for each in formulas]
            worst[name] = max(worst[name], _error(found, expected))
    yield from ((name, "log probabilities", value) for name, value in worst.items())


def _mixture(rng: Generator) -> float:
    parts, share = [PLAIN[name](rng) for name in ("Normal", "StudentT")], _share(rng)
    components = tuple(Law(n, _arrays(a)) for n, (a, _) in zip(("Normal", "StudentT"), parts, strict=True))
    at = rng.normal(0, 5, size=20)
    expected = np.logaddexp(np.log(share) + parts[0][1].logpdf(at), np.log1p(-share) + parts[1][1].logpdf(at))
    return _error(_density(Law("Mixture", {"weights": share}, components), at), expected)


def _truncated(name: str, rng: Generator) -> tuple[float, float, float]:
    """Errors between two bounds of moderate probability: log density, moments, moments of the censored value."""
    arguments, exact = PLAIN[name](rng)
    shares = np.sort(rng.uniform(0.01, 0.9, size=2)) + [0.0, 0.05]
    lower, upper = exact.ppf(shares)
    inner = Law(name, _arrays(arguments))
    bounds = {"lower": np.asarray(lower), "upper": np.asarray(upper)}
    mass, at = exact.cdf(upper) - exact.cdf(lower), np.linspace(lower, upper, 7)[1:-1]
    kink = [exact.mean()] if lower < exact.mean() < upper else None

    def integral(power: int, centre: float) -> float:
        value = lambda y: (y - centre) ** power * exact.pdf(y)  # noqa: E731
        return float(integrate.quad(value, lower, upper, points=kink, epsabs=0, epsrel=1e-11, limit=200)[0])

    mean = integral(1, 0.0) / mass
    truncated = conditional.moments(Law("Truncated", bounds, (inner,)))
    error = max(_error(truncated[0], mean), _error(truncated[1], integral(2, mean) / mass))
    whole = integral(1, 0.0) + lower * exact.cdf(lower) + upper * exact.sf(upper)
    spread = integral(2, whole) + (lower - whole) ** 2 * exact.cdf(lower) + (upper - whole) ** 2 * exact.sf(upper)
    censored = conditional.moments(Law("Censored", bounds, (inner,)))
    density = _error(_density(Law("Truncated", bounds, (inner,)), at), exact.logpdf(at) - np.log(mass))
    return density, error, max(_error(censored[0], whole), _error(censored[1], spread))


# --- kernels ------------------------------------------------------------------------------------------------------


def kernels(turns: int, rng: Generator) -> Iterator[Row]:
    """Covariances between random points, from equal to far apart, pair by pair."""
    for name in REFERENCES:
        worst = 0.0
        for turn in range(turns):
            columns = 1 + turn % 3
            given = numbers(name, columns, bool(turn % 2), rng)
            # White noise is independent between two sets of rows, whatever they are.
            a = rng.normal(size=(6, columns)) * 10.0 ** rng.uniform(-3, 1)
            b = a if name == "White" else np.concatenate([a[:2], a[2:4] + 1e-8, rng.normal(size=(3, columns))])
            other = None if name == "White" else Values(jnp.asarray(b))
            found = covariance(form_of(name), [jnp.asarray(each) for each in given], Values(jnp.asarray(a)), other)
            worst = max(worst, _error(found, reference(name, given, a, b)))
        yield name, "covariance", worst


# --- lets ---------------------------------------------------------------------------------------------------------

LETS: Mapping[str, tuple[Callable[[np.ndarray], np.ndarray], tuple[float, ...]]] = {
    "exp(f)": (np.exp, ()),
    "exp(-f^2/8)": (lambda f: np.exp(-(f**2) / 8), ()),
    "f^2": (np.square, ()),
    "f^3 - f": (lambda f: f**3 - f, ()),
    "sin(2*f)": (lambda f: np.sin(2 * f), ()),
    "cos(f)": (np.cos, ()),
    "tanh(f)": (np.tanh, ()),
    "sigmoid(f)": (special.expit, ()),
    "softplus(f)": (lambda f: np.logaddexp(0, f), ()),
    "Phi(f)": (special.ndtr, ()),
    "erf(f)": (special.erf, ()),
    "atan(f)": (np.arctan, ()),
    "asinh(f)": (np.arcsinh, ()),
    "sinh(f)": (np.sinh, ()),
    "cosh(f)": (np.cosh, ()),
    "log(1 + f^2)": (lambda f: np.log1p(f**2), ()),
    "log1p(exp(2*f))": (lambda f: np.logaddexp(0, 2 * f), ()),
    "sqrt(1 + f^2)": (lambda f: np.sqrt(1 + f**2), ()),
    "1/(1 + f^2)": (lambda f: 1 / (1 + f**2), ()),
    "f*exp(f)": (lambda f: f * np.exp(f), ()),
    "abs(f - 0.3)": (lambda f: np.abs(f - 0.3), (0.3,)),
    "max(0, f - 0.5)": (lambda f: np.maximum(0, f - 0.5), (0.5,)),
    "min(f, 0.2)^2": (lambda f: np.minimum(f, 0.2) ** 2, (0.2,)),
    "if f > 0.5 then 1 else 0": (lambda f: (f > 0.5) * 1.0, (0.5,)),
    "if f > 0 then exp(-f) else 1 + f^2": (lambda f: np.where(f > 0, np.exp(-f), 1 + f**2), (0.0,)),
}
"""Lets of one latent, and where they jump or bend."""


def lets(names: list[str]) -> Iterator[Row]:
    """Means and variances under the posterior at rows within and far from the data."""
    lines = "".join(f"let u{k} = {name}\n" for k, name in enumerate(names))
    text = "input x : real\noutput y : real\nlatent f(x) ~ GP(0.3, 1.7*RBF(1))\n" + lines + "y ~ Normal(f, 0.4)\n"
    x = np.linspace(0.0, 4.0, 9)
    found = gpdsl.compile(text).fit({"x": x, "y": np.sin(2 * x)}).predict({"x": [0.3, 2.0, 5.0, 40.0]})
    centre, spread = found.mean("f"), np.sqrt(found.variance("f"))
    for k, name in enumerate(names):
        function, cuts = LETS[name]
        expected = np.array([_moments(function, cuts, m, s) for m, s in zip(centre, spread, strict=True)])
        yield f"`{name}`", "mean", _error(found.mean(f"u{k}"), expected[:, 0])
        yield f"`{name}`", "variance", _error(found.variance(f"u{k}"), expected[:, 1])


def _moments(function: Callable, cuts: tuple[float, ...], mean: float, sd: float) -> tuple[float, float]:
    """By adaptive quadrature between the places where the function jumps or bends."""
    edges = [-12.0, *sorted(z for c in cuts if abs(z := (c - mean) / sd) < 12), 12.0]

    def integral(value: Callable[[float], float]) -> float:
        parts = zip(edges, edges[1:], strict=False)
        inside = lambda z: float(value(float(function(np.float64(mean + sd * z))))) * stats.norm._pdf(z)  # noqa: E731
        return sum(integrate.quad(inside, a, b, epsabs=1e-13, epsrel=1e-11, limit=200)[0] for a, b in parts)

    first = integral(lambda v: v)
    return first, integral(lambda v: (v - first) ** 2)


# --- the page -----------------------------------------------------------------------------------------------------


WORDS = """# Accuracy

The largest error of each quantity over random arguments, tails included, against SciPy, NumPy and adaptive
quadrature, in double precision: relative, or absolute where the reference is below one. `make accuracy` writes this
page, and a short form of it is a test; nothing may be above 1e-6. Expectations of three latents and more that have
no closed form, and of `floor`, which jumps everywhere, are sampled, to about 1e-2 of a standard deviation, and are
not in this table.
"""


def table(turns: int, names: list[str]) -> list[tuple[str, list[Row]]]:
    """All rows by section."""
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("ignore", integrate.IntegrationWarning)
        found = [
            ("Distributions", list(distributions(turns, np.random.default_rng(0)))),
            ("Kernels", list(kernels(turns, np.random.default_rng(1)))),
        ]
    return [*found, ("Lets of a latent", list(lets(names)))]


def page(sections: list[tuple[str, list[Row]]]) -> str:
    """The table as Markdown."""
    parts = [WORDS]
    for title, rows in sections:
        lines = [f"| {name} | {what} | {value:.1e} |" for name, what, value in rows]
        parts.append("\n".join([f"## {title}\n", "| | | largest error |", "|---|---|---|", *lines, ""]))
    return "\n".join(parts)


if __name__ == "__main__":
    sections = table(TURNS, list(LETS))
    PAGE.write_text(page(sections), encoding="utf-8")
    above = [row for _, rows in sections for row in rows if not row[2] < BOUND]
    said = [f"{name}, {what}: {value:.1e}\n" for name, what, value in above]
    sys.stdout.writelines(said or [f"{PAGE.name}: all below {BOUND:g}\n"])
    sys.exit(bool(above))
