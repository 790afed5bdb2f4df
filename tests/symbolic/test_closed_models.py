"""Likelihoods that close and that do not, from their text to the plan; and texts that try to hang the compiler."""

from __future__ import annotations

import pytest
import sympy as sp

from gpdsl.errors import GpdslError
from gpdsl.symbolic.gaussian import moments_of
from gpdsl.symbolic.terms import observation_terms, with_gradients
from tests.timing import processor_seconds

from . import quadrature
from .models import indexed, scalar, terms, translator

CLOSED = {
    "Normal": scalar("Normal(f, s)"),
    "sd = exp(h)": scalar("Normal(f, exp(h))"),
    "sd from a log variance": scalar("Normal(f, sqrt(exp(h)))"),
    "sd = s exp(h)": scalar("Normal(f, s * exp(h / 2))"),
    "Poisson": scalar("Poisson(exp(f + s))", "count"),
    "Poisson with exposure": scalar("Poisson(s * exp(f))", "count"),
    "Exponential": scalar("Exponential(exp(f))", "positive"),
    "Exponential with a mean": scalar("Exponential(1 / exp(f))", "positive"),
    "Gamma": scalar("Gamma(2.5, exp(f))", "positive"),
    "Gamma with a mean": scalar("Gamma(s, s / exp(f))", "positive"),
    "LogNormal": scalar("LogNormal(f, exp(h))", "positive"),
    "Weibull": scalar("Weibull(1.5, exp(f))", "positive"),
    "Weibull with a learnt shape": scalar("Weibull(s, exp(f))", "positive"),
    "Gamma with mean exp(f)": scalar("Gamma(s, s * exp(-f))", "positive"),
    "Gamma with a shape of numbers": scalar("Gamma(2, 2 / exp(f + g))", "positive"),
    "Exponential of two latents": scalar("Exponential(exp(-f) / (s * exp(g)))", "positive"),
    "LogNormal with a scale": scalar("LogNormal(f, s * exp(h / 2))", "positive"),
    "Weibull with a power of the scale": scalar("Weibull(s, (2 * exp(f))^(1 / s))", "positive"),
    "squared difference": scalar("Normal((f - g)^2, s)"),
    "ratio by an exponential": scalar("Normal(f / exp(g), s)"),
    "precision exp(h)": scalar("Normal(f, 1 / sqrt(exp(h)))"),
    "difference of log scales": scalar("Normal(f, exp(h - g))"),
    "another base": scalar("Poisson(2^f)", "count"),
    "another base of a mean": scalar("Normal(2^f * g, s)"),
    "Censored Weibull": scalar("Censored(Weibull(s, exp(f)), upper = 3)", "positive"),
    "product": scalar("Normal(f * g + h, s)"),
    "product through a let": scalar("Normal(m, s)", lets="let m = (f + 1) * g^2.0"),
    "exponential mean": scalar("Normal(exp(f / 2) * g, s)"),
    "linear mixing": indexed(3, "", "y[p] ~ Normal(sum(p, 0.5 * p * u[p]), s)"),
    "network": indexed(2, "", "y[p] ~ Normal(sum(p, u[p] * v[p]), s)"),
    "by recursion": indexed(3, "let a[1] = u[1]\nlet a[p > 1] = a[p - 1] + u[p]", "y[p] ~ Normal(a[p], s)"),
}


@pytest.mark.parametrize("name", CLOSED)
def test_closes_and_equals_quadrature(name: str) -> None:
    observation = terms(CLOSED[name])[-1]
    assert {term.method for term in observation.terms} == {"closed"}
    latents = sorted({f for term in observation.terms for f in term.latents}, key=lambda f: f.name)
    means = {f: 0.4 - 0.3 * i for i, f in enumerate(latents)}
    variances = {f: 0.2 + 0.1 * i for i, f in enumerate(latents)}
    data = dict.fromkeys(observation.log_density.free_symbols - set(latents), 1.7)
    points = quadrature.POINTS if len(latents) < 4 else 20
    expected, _ = quadrature.expectation(observation.log_density, means, variances, data, points)
    moments = moments_of(latents)
    table = {moments.mean[f]: means[f] for f in latents} | {moments.variance[f]: variances[f] for f in latents} | data
    closed = sum(quadrature.value(term.closed, table) for term in observation.terms)
    assert closed == pytest.approx(expected, rel=1e-8)


OPEN = {
    "Bernoulli(logit = f)": ("binary", "quadrature"),
    "Bernoulli(probit = f)": ("binary", "quadrature"),
    "StudentT(4, f, s)": ("real", "quadrature"),
    "Normal(f / g, s)": ("real", "quadrature"),
    "Normal(abs(f)^1.5, s)": ("real", "quadrature"),
    "Normal(f, abs(g))": ("real", "quadrature"),
    "Poisson(exp(f^2))": ("count", "quadrature"),
    "Poisson(exp(exp(f)))": ("count", "quadrature"),
    "Poisson(softplus(f))": ("count", "quadrature"),
    "Normal(tanh(f) * g + h, s)": ("real", "pathwise"),
    "Normal(max(f, max(g, h)), s)": ("real", "pathwise"),
}


@pytest.mark.parametrize("distribution", OPEN)
def test_stays_open(distribution: str) -> None:
    kind, method = OPEN[distribution]
    (observation,) = terms(scalar(distribution, kind))
    methods = {term.method for term in observation.terms}
    assert method in methods
    assert methods <= {method, "closed"}
    assert all(term.closed is None for term in observation.terms if term.method == method)


def test_the_terms_add_up_to_the_density() -> None:
    for distribution, (kind, _) in OPEN.items():
        (observation,) = terms(scalar(distribution, kind))
        parts = sp.Add(*[term.expression for term in observation.terms])
        assert sp.expand(parts - observation.log_density) == 0, distribution


def test_only_the_open_part_of_a_density_is_approximated() -> None:
    (observation,) = terms(scalar("Poisson(exp(f + g * h + softplus(f)))", "count"))
    by_method = {term.method: term for term in observation.terms}
    assert set(by_method) == {"closed", "quadrature", "pathwise"}
    assert [f.name for f in by_method["quadrature"].latents] == ["f"]


def test_every_estimator_can_be_asked_for() -> None:
    text = scalar("Normal(f, s)")
    assert {t.method for t in terms(text, "quadrature")[0].terms} == {"quadrature", "closed"}
    assert [t.method for t in terms(text, "sampled")[0].terms] == ["pathwise"]
    with pytest.raises(GpdslError, match=r"no closed-form expectation for the term .*exp\(linear\) in f; use exp"):
        terms(scalar("Bernoulli(logit = f)", "binary"), "closed")
    with pytest.raises(GpdslError, match="at most 2 latent values in a term, this one has 3; use expectations = auto"):
        terms(scalar("Normal(f * g * h, s)"), "quadrature")


def test_gradients_from_values_alone_can_be_asked_for() -> None:
    known = translator(scalar("Normal(exp(f), s)"))
    (found,) = with_gradients(known, observation_terms(known, "sampled"), "score")
    assert [(t.method, t.reason.partition(" (")[0]) for t in found.terms] == [("score", "values only, as asked")]
    several = translator(scalar("Normal(f * f(z), s)").replace("input x : real", "input x : real\ninput z : real"))
    with pytest.raises(GpdslError, match="takes one value of each latent in a row, and a term reads several of `f`: f"):
        with_gradients(several, observation_terms(several, "sampled"), "score")


HOSTILE = {
    "power of a sum": scalar("Normal((f + g + h)^1000, s)"),
    "power of an exponential sum": scalar("Normal((exp(f) + exp(g) + exp(h) + 1)^30, s)"),
    "exponential of a power": scalar("Normal(exp((f + g + h)^400), s)"),
    "nested powers": scalar("Normal((((f + 1)^9 + g)^9 + h)^9, s)"),
    "product of squares": indexed(60, "let a = prod(p, 1 + u[p]^2)", "y[p] ~ Normal(a, s)"),
    "square of exponentials": indexed(200, "let a = sum(p, exp(u[p] + v[p]))", "y[p] ~ Normal(a, s)"),
    "largest of many": indexed(150, "let a = max(p, u[p])", "y[p] ~ Normal(a, s)"),
    "doubling": indexed(200, "let a[1] = u[1]\nlet a[p > 1] = exp(a[p-1]) + sin(a[p-1])", "y[p] ~ Normal(a[p], s)"),
    "deep": indexed(2000, "let a[1] = u[1]\nlet a[p > 1] = sin(a[p-1])", "y[p] ~ Normal(a[p], s)"),
    "deep forwards": indexed(2000, "let a[2000] = u[1]\nlet a[p < 2000] = sin(a[p+1])", "y[p] ~ Normal(a[p], s)"),
    "sum of sums": "model m\n"
    + "".join(f"index {i} in 1..300\n" for i in "pqr")
    + "input x : real\noutput y : real\nlatent f[p](x) ~ GP(0, RBF(1))\n"
    + "y ~ Normal(sum(p, sum(q, sum(r, f[p] * q * r))), 1)\n",
    "too many terms": indexed(9000, "", "y[p] ~ Normal(sum(p, u[p]), s)"),
    "many elements": indexed(9000, "let a[1] = u[1]\nlet a[p > 1] = v[p]", "y[p] ~ Normal(a[p], s)"),
    "giant factorial": scalar("NegativeBinomial(exp(f), 123456789)", "count"),
    "giant shape": scalar("Gamma(987654321, exp(f))", "positive"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_growth_ends_soon(name: str) -> None:
    def told() -> None:
        try:
            assert terms(HOSTILE[name])
        except GpdslError as error:
            assert "help:" in str(error)

    # A second or less, on an idle machine. Once only: SymPy remembers what it has worked out.
    assert processor_seconds(told) < 15.0


def test_a_long_recursion_is_fast() -> None:
    lets = "let a[1] = u[1] / v[1]\nlet a[p > 1] = a[p - 1] + 2 * (u[p] - u[p - 1]) / v[p]"
    text = indexed(50, lets, "y[p] ~ Normal(a[p], s)")
    assert processor_seconds(lambda: terms(text)) < 10.0  # some tenths, on an idle machine
    assert len(terms(text)) == 50


def error_of(text: str) -> str:
    with pytest.raises(GpdslError) as caught:
        terms(text)
    return str(caught.value)


def test_too_large() -> None:
    assert error_of(HOSTILE["doubling"]) == (
        "<model>:9:16: error[E501]: written out, `a[14]` has more than 20000 operations\n"
        "    9 | let a[p > 1] = exp(a[p-1]) + sin(a[p-1])\n"
        "      |                ^^^^^^^^^^^^^^^^^^^^^^^^^ too large to compile\n"
        "   help: shorten the index, or compute it in an `external` function"
    )


@pytest.mark.parametrize(
    ("limit", "lets", "what"),
    [
        ("conditions.MAX_OPERATIONS", "let a = sum(p, u[p] * v[p])", "`sum` over `p`"),
        ("terms.MAX_ELEMENTWISE", "let a[1] = u[1]\nlet a[p > 1] = v[p]", "every element of `y`"),
    ],
)
def test_too_large_as_a_whole(monkeypatch: pytest.MonkeyPatch, limit: str, lets: str, what: str) -> None:
    """What is added up element by element is refused where the sum of all is too long, and not before."""
    text = indexed(3, lets, f"y[p] ~ Normal({'a' if 'sum' in lets else 'a[p]'}, s)")
    assert len(terms(text)) == 3 or "sum" in lets
    monkeypatch.setattr(f"gpdsl.symbolic.{limit}", 151 if "ELEMENT" in limit else 4)
    assert f"error[E501]: written out, {what} has more than" in error_of(text)


def test_too_deep() -> None:
    assert error_of(HOSTILE["deep"]) == (
        "<model>:9:16: error[E502]: written out, `a[101]` nests more than 100 operations\n"
        "    9 | let a[p > 1] = sin(a[p-1])\n"
        "      |                ^^^^^^^^^^^ too deep to compile\n"
        "   help: shorten the index, or compute it in an `external` function"
    )


@pytest.mark.parametrize("formula", ["f / 0", "f * sqrt(-s)", "f / (g - g)", "f * log(s - s)", "f * (0 * s)^-1"])
def test_not_a_real_number(formula: str) -> None:
    text = error_of(scalar(f"Normal({formula}, s)"))
    assert "error[E503]: this is not a finite real number\n" in text
    assert text.startswith("<model>:9:")


def test_a_density_without_a_value() -> None:
    text = indexed(2, "const sd[p] = [0, 1]", "y[1] ~ Normal(u[1], sd[1])")
    assert error_of(text).startswith("<model>:9:8: error[E503]: the density of `Normal` is not a finite real number\n")
