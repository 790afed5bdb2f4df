"""Quadrature split at jumps and kinks against adaptive integrals: values, and gradients through the moving nodes."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from gpdsl.inference.expected_log_likelihood import expected_log_likelihood
from gpdsl.language import compile_text
from gpdsl.program import quadrature
from gpdsl.program.joint import Marginals
from gpdsl.program.program import make_program
from gpdsl.program.rows import Rows

MODEL = """
input x : real
output y : real
latent f(x) ~ GP(0, RBF(1))
latent g(x) ~ GP(0, RBF(1))
density plain(y | m) = m
y ~ plain({expression})
"""

MEAN, VARIANCE = np.array([0.3, -0.4]), np.array([0.8, 2.5])

ONE: dict[str, tuple[Callable[[float], float], tuple[float, ...]]] = {
    "if f > 0.5 then 1 / (1 + f^2) else tanh(f)": (lambda f: 1 / (1 + f * f) if f > 0.5 else math.tanh(f), (0.5,)),
    "abs(f)^1.5": (lambda f: abs(f) ** 1.5, (0.0,)),
    "tanh(max(f, -1)) + log(1 + abs(f - 0.2))": (
        lambda f: math.tanh(max(f, -1.0)) + math.log1p(abs(f - 0.2)),
        (-1.0, 0.2),
    ),
    "if abs(f) > 1 then cos(f) else 0": (lambda f: math.cos(f) if abs(f) > 1 else 0.0, (-1.0, 1.0)),
}

STEPS: dict[str, tuple[Callable[[float], float], tuple[float, ...]]] = {
    "floor(f)": (math.floor, tuple(range(-9, 10))),
    "f - 0.5 * floor(2 * f + 0.5)": (lambda f: f - 0.5 * math.floor(2 * f + 0.5), tuple(np.arange(-9.25, 9.0, 0.5))),
    "exp(f / 2) * floor(0.3 * f)^2": (
        lambda f: math.exp(f / 2) * math.floor(0.3 * f) ** 2,
        tuple(k / 0.3 for k in range(-2, 3)),
    ),
    "floor(8 * f) * f": (lambda f: math.floor(8 * f) * f, tuple(np.arange(-9.0, 9.0, 0.125))),
}

SMOOTH: dict[str, Callable[[float], float]] = {
    "softplus(50 * (f - 0.2))": lambda f: np.logaddexp(0.0, 50 * (f - 0.2)),
    "tanh(2000 * (f - 0.2))": lambda f: math.tanh(2000 * (f - 0.2)),
    "exp(-(f - 0.2)^2 / 0.000001)": lambda f: math.exp(-((f - 0.2) ** 2) / 1e-6),
    "log(1 + ((f - 0.2) / 0.01)^2)": lambda f: math.log1p(((f - 0.2) / 0.01) ** 2),
    "if f > 0.2 then tanh(50 * f) else sin(f)": lambda f: math.tanh(50 * f) if f > 0.2 else math.sin(f),
}
"""Steep around 0.2 or 0."""

ALONG: dict[str, Callable[[float], float]] = {
    "softplus(50 * (f - g - 0.2))": lambda u: np.logaddexp(0.0, 50 * (u - 0.2)),
    "-(1 - tanh(30 * (f - g)))^2 / 0.18": lambda u: -((1 - math.tanh(30 * u)) ** 2) / 0.18,
    "abs(g - f)^1.5": lambda u: abs(u) ** 1.5,
    "if f > g then tanh(50 * (f - g)) else cos(g - f)": lambda u: math.tanh(50 * u) if u > 0 else math.cos(u),
}
"""Of f and g through u = f - g alone."""

ABOVE = norm(MEAN[1], math.sqrt(VARIANCE[1]))

TWO: dict[str, tuple[Callable[[float], float], tuple[float, ...]]] = {
    # what is left as a function of f once g is integrated out
    "if f > 0 and g > 0 then 1 else 0": (lambda f: (f > 0) * ABOVE.sf(0), (0.0,)),
    "if f > g and f > 0 then 1 else 0": (lambda f: (f > 0) * ABOVE.cdf(f), (0.0,)),
    "if f > 20 * g then tanh(f) else 0": (lambda f: math.tanh(f) * ABOVE.cdf(f / 20), ()),
    "if 20 * f > g then tanh(f) else 0": (lambda f: math.tanh(f) * ABOVE.cdf(20 * f), (-0.2, 0.0, 0.2)),
}


def integral(
    function: Callable[[float], float], kinks: tuple[float, ...], mean: float = MEAN[0], variance: float = VARIANCE[0]
) -> float:
    """E[function(f)], or of another Gaussian."""
    law = norm(mean, math.sqrt(variance))
    cuts = sorted({*np.linspace(-15.0, 15.0, 16), *kinks})
    parts = [quad(lambda f: function(f) * law.pdf(f), a, b)[0] for a, b in zip(cuts[:-1], cuts[1:], strict=True)]
    return math.fsum(parts)


def expected(text: str, fine: bool = False) -> tuple[float, np.ndarray]:
    """The value, and its gradient in the mean and the variance of f."""
    with jax.enable_x64(True):
        program = make_program(compile_text(MODEL.format(expression=text)), {}, {}, {})
        assert program.methods <= {"closed", "quadrature"}
        program = program.fine if fine else program
        names = [name for group in program.groups for name in group.names]
        order = [names.index("f"), names.index("g")]
        rows = Rows({"x": jnp.zeros((1,))}, {"y": jnp.zeros((1,))}, {"y": jnp.ones((1,))})

        def value(mean: jax.Array, variance: jax.Array) -> jax.Array:
            q = Marginals(mean[jnp.asarray(order)][None, None], variance[jnp.asarray(order)][None, None])
            return expected_log_likelihood(program, {}, rows, q)[0, 0]

        found, slopes = jax.jit(jax.value_and_grad(value, (0, 1)))(jnp.asarray(MEAN), jnp.asarray(VARIANCE))
        return float(found), np.asarray([slope[0] for slope in slopes])


@pytest.mark.parametrize("text", [*ONE, *TWO, *STEPS])
def test_against_adaptive_integrals(text: str) -> None:
    function, kinks = {**ONE, **TWO, **STEPS}[text]
    mean, variance = MEAN[0], VARIANCE[0]
    by_mean = integral(lambda f: function(f) * (f - mean) / variance, kinks)
    by_variance = integral(lambda f: function(f) * ((f - mean) ** 2 - variance) / (2 * variance**2), kinks)
    value, slopes = expected(text)
    assert value == pytest.approx(integral(function, kinks), abs=1e-9)
    assert slopes == pytest.approx([by_mean, by_variance], abs=1e-8)


def nearby() -> tuple[float, ...]:
    return (0.0, 0.2, *(at + s * 4.0 * 2.0**-k for k in range(16) for s in (-1, 1) for at in (0.0, 0.2)))


@pytest.mark.parametrize("text", ALONG)
def test_a_linear_function_of_two_latents_is_one_argument(text: str) -> None:
    function, mean, variance = ALONG[text], MEAN[0] - MEAN[1], VARIANCE.sum()
    scores = (lambda u: 1, lambda u: (u - mean) / variance, lambda u: ((u - mean) ** 2 / variance - 1) / variance / 2)
    moments = [integral(lambda u, g=g: function(u) * g(u), nearby(), mean, variance) for g in scores]
    value, slopes = expected(text, fine=True)
    assert [value, *slopes] == pytest.approx(moments, abs=1e-8)


def test_along_what_is_steep_a_rule_over_two_is_fine() -> None:
    """tanh(30 (f - g)) exp(g): with g given u = f - g integrated out by hand."""
    (a, b), (v, w) = MEAN, VARIANCE
    mean, variance = a - b, v + w

    def given(u: float) -> float:
        return math.tanh(30 * u) * math.exp(b - w / variance * (u - mean) + v * w / variance / 2)

    def by_mean(u: float) -> float:  # E[(f - a) / v] of the same; f - a = u - mean + g - b, tilted
        return given(u) * (u - mean - w / variance * (u - mean) + v * w / variance) / v

    value, slopes = expected("tanh(30 * (f - g)) * exp(g)", fine=True)
    assert value == pytest.approx(integral(given, nearby(), mean, variance), abs=1e-8)
    assert slopes[0] == pytest.approx(integral(by_mean, nearby(), mean, variance), abs=1e-8)


@pytest.mark.parametrize("text", SMOOTH)
def test_fine_rule_tells_steep_places_apart(text: str) -> None:
    function, mean, variance = SMOOTH[text], MEAN[0], VARIANCE[0]
    kinks = nearby()
    by_mean = integral(lambda f: function(f) * (f - mean) / variance, kinks)
    by_variance = integral(lambda f: function(f) * ((f - mean) ** 2 - variance) / (2 * variance**2), kinks)
    value, slopes = expected(text, fine=True)
    assert value == pytest.approx(integral(function, kinks), abs=1e-11)
    assert slopes == pytest.approx([by_mean, by_variance], abs=1e-9)


COUNTED = (
    "if f > 0.5 then 1 / (1 + f^2) else tanh(f)",
    "tanh(max(f, -1)) + log(1 + abs(f - 0.2))",
    "floor(8 * f) * f",
    "if f > g and f > 0 then tanh(g) else 0",
)


@pytest.mark.parametrize("text", COUNTED)
def test_nodes_are_counted_as_they_are_placed(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one argument, of one with steps that are narrow or wide, and of a second argument for each of the first."""
    placed: list[int] = []
    between = quadrature._between

    def seen(cuts: list[jax.Array]) -> tuple[jax.Array, jax.Array]:
        placed.append(len((found := between(cuts))[0]))
        return found

    monkeypatch.setattr(quadrature, "_between", seen)
    program = make_program(compile_text(MODEL.format(expression=text)), {}, {}, {})
    rows = Rows({"x": jnp.zeros((1,))}, {"y": jnp.zeros((1,))}, {"y": jnp.ones((1,))})
    q = Marginals(jnp.zeros((1, 1, 2)), jnp.ones((1, 1, 2)))
    jax.eval_shape(lambda q: expected_log_likelihood(program, {}, rows, q), q)
    (term,) = (t for o in program.observations for t in o.terms if t.integrand is not None and t.integrand.kinks)
    first, *others = placed
    if "floor" in text:
        first += others[0] * quadrature.UNIFORM
    elif others:
        first *= others[0]
    assert quadrature.split_count(term.integrand) == first
