"""Closed-form expectations of random members of the closed family, against quadrature."""

from __future__ import annotations

import pytest
import sympy as sp
from hypothesis import given, settings, strategies as st

from gpdsl.symbolic.closed import expectation
from gpdsl.symbolic.gaussian import moments_of, pull_exponentials

from . import quadrature

LATENTS = sp.symbols("f g h", real=True)
Y, S = sp.Symbol("y", real=True), sp.Symbol("s", positive=True)
MOMENTS = moments_of(LATENTS)

numbers = st.integers(-3, 3).map(lambda n: sp.Rational(n, 2))
coefficients = st.one_of(numbers, st.sampled_from([Y, S, 1 / S, Y * S]))
slopes = st.integers(-2, 2).map(lambda n: sp.Rational(n, 4))


@st.composite
def linear(draw: st.DrawFn, latents: tuple[sp.Symbol, ...]) -> sp.Expr:
    """a + b f + c g, unexpanded."""
    return sp.Add(draw(coefficients), *[draw(numbers) * f for f in latents])


@st.composite
def bilinear(draw: st.DrawFn, latents: tuple[sp.Symbol, ...]) -> sp.Expr:
    """A linear function plus a product of latents."""
    a, b = draw(st.sampled_from(latents)), draw(st.sampled_from(latents))
    return draw(linear(latents)) + draw(numbers) * a * b


@st.composite
def closed_terms(draw: st.DrawFn) -> tuple[tuple[sp.Symbol, ...], sp.Expr]:
    """coefficient * linear * (bilinear)^k * exp(linear), sums of one or two of them, and which latents they use."""
    latents = LATENTS[: draw(st.integers(1, 3))]
    total = sp.Integer(0)
    for _ in range(draw(st.integers(1, 2))):
        exponent = sp.Add(draw(coefficients) / 4, *[draw(slopes) * f for f in latents])
        power = draw(bilinear(latents)) ** draw(st.integers(0, 3 if len(latents) < 3 else 2))
        total += draw(coefficients) * draw(linear(latents)) * power * sp.exp(exponent)
    return latents, total


real = st.floats(-1.5, 1.5)
positive = st.floats(0.05, 1.5)


def assert_exact(expression: sp.Expr, means: dict, variances: dict, data: dict) -> None:
    """The closed form of an expression is its quadrature, to 1e-8 of its scale."""
    closed = expectation(expression, list(means), MOMENTS)
    assert closed is not None
    table = {MOMENTS.mean[f]: v for f, v in means.items()} | {MOMENTS.variance[f]: v for f, v in variances.items()}
    expected, scale = quadrature.expectation(expression, means, variances, data)
    assert quadrature.value(closed, {**table, **data}) == pytest.approx(expected, rel=1e-8, abs=1e-8 * scale + 1e-300)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(closed_terms(), st.lists(real, min_size=4, max_size=4), st.lists(positive, min_size=4, max_size=4))
def test_equals_quadrature(
    drawn: tuple[tuple[sp.Symbol, ...], sp.Expr], means: list[float], variances: list[float]
) -> None:
    latents, expression = drawn
    data = {Y: means[3], S: variances[3]}
    assert_exact(expression, dict(zip(latents, means, strict=False)), dict(zip(latents, variances, strict=False)), data)


F, G, H = LATENTS


@pytest.mark.parametrize(
    "expression",
    [
        (Y - F * G) ** 2,
        (Y - F * G - H) ** 4,
        sp.exp(-H) * (Y - F) ** 2,
        sp.exp(-2 * F) * (Y - F * G) ** 2 / S,
        (Y - sp.exp(F / 2)) ** 3,
        (sp.exp(F / 4) + sp.exp(G / 4)) ** 2 * (H - Y) ** 3,
        (Y - 2 * F) ** 2 * (S + G) ** 2 * (1 - H) ** 2,
        sp.exp((F + 1) ** 2 - F**2),
        ((F - Y) ** 2 + S) ** 3,
        S * F + Y,
    ],
    ids=str,
)
def test_named_shapes(expression: sp.Expr) -> None:
    assert_exact(expression, {F: 0.3, G: -0.7, H: 1.1}, {F: 0.5, G: 0.9, H: 0.2}, {Y: 1.3, S: 0.8})


@pytest.mark.parametrize(
    "expression",
    [
        F / G,
        1 / (1 + F**2),
        sp.exp(F**2),
        sp.exp(F * G),
        sp.exp(sp.exp(F)),
        sp.log(F),
        sp.sqrt(F),
        F**S,
        sp.Abs(F),
        sp.Function("opaque")(F),
        sp.log(1 + sp.exp(F)),
        F**33,
        (F + G + H) ** 1000,
    ],
    ids=str,
)
def test_what_does_not_close(expression: sp.Expr) -> None:
    assert expectation(expression, LATENTS, MOMENTS) is None
    assert expectation(Y + F + expression, LATENTS, MOMENTS) is None


def test_symbols_other_than_the_latents_are_constants() -> None:
    assert expectation(sp.exp(sp.exp(G)) * F, [F], MOMENTS) == sp.exp(sp.exp(G)) * MOMENTS.mean[F]


@pytest.mark.parametrize("scale", [1e8, 1e12])
def test_squares_do_not_cancel(scale: float) -> None:
    y, mean = scale + 1.5, scale
    closed = expectation((Y - F) ** 2, [F], MOMENTS)
    assert closed is not None
    table = {Y: y, MOMENTS.mean[F]: mean, MOMENTS.variance[F]: 0.25}
    assert quadrature.value(closed, table) == pytest.approx(2.5, rel=1e-15)
    closed = expectation((Y - F * G) ** 2, [F, G], MOMENTS)
    assert closed is not None
    table = {Y: y, MOMENTS.mean[F]: mean, MOMENTS.mean[G]: 1.0, MOMENTS.variance[F]: 0.25, MOMENTS.variance[G]: 0.0}
    assert quadrature.value(closed, table) == pytest.approx(2.5, rel=1e-15)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (sp.log(S * sp.exp(F)), sp.log(S) + F),
        ((S * sp.exp(-F)) ** Y, S**Y * sp.exp(-F * Y)),
        (sp.log((S * sp.exp(F)) ** Y), Y * F + sp.log(S**Y)),
        (((1 + (S * sp.exp(F)) ** Y) * sp.exp(G)) ** S, (1 + S**Y * sp.exp(F * Y)) ** S * sp.exp(G * S)),
        (F + sp.sin(S), F + sp.sin(S)),
    ],
    ids=str,
)
def test_exponentials_are_pulled_out_of_logarithms_and_powers(before: sp.Expr, after: sp.Expr) -> None:
    assert pull_exponentials(before) == after
