"""Random models of the closed family, from their text: the plan says `closed`, and 60-point quadrature agrees."""

from __future__ import annotations

import sympy as sp
from hypothesis import given, settings, strategies as st

from gpdsl.lowering.table import evaluate
from gpdsl.symbolic.gaussian import moments_of
from gpdsl.symbolic.terms import ObservationTerms

from . import quadrature
from .models import scalar, terms

NUMBERS = st.sampled_from(["0.25", "-0.5", "0.3", "1", "-1", "0.75"])
POSITIVE = st.sampled_from(["s", "0.5", "2", "s^2", "1/s", "(1 + s)"])
LATENTS = st.sampled_from("fgh")


@st.composite
def linear(draw: st.DrawFn) -> str:
    """a + b f + c g, written in one of the ways people write it."""
    parts = [f"{draw(NUMBERS)}*{latent}" for latent in draw(st.lists(LATENTS, min_size=1, max_size=2, unique=True))]
    return draw(st.sampled_from(["{} + s", "{} - 0.3", "({})/2", "-({})", "{}"])).format(" + ".join(parts))


@st.composite
def growth(draw: st.DrawFn) -> str:
    """A positive factor times the exponential of something linear, in one of the ways people write it."""
    exponent, factor = draw(linear()), draw(POSITIVE)
    form = draw(
        st.sampled_from(
            [
                "exp({e})",
                "{c}*exp({e})",
                "{c}/exp({e})",
                "sqrt(exp({e}))",
                "2^({e})",
                "exp({e})^0.5*{c}",
                "exp(-({e}))*exp({e}/2)",
            ]
        )
    )
    return form.format(e=exponent if form.startswith(("exp({e})", "2")) else f"({exponent})", c=factor)


@st.composite
def mean(draw: st.DrawFn) -> str:
    """A polynomial in the latents, times an exponential at times: mixing, networks, warped inputs."""
    a, b = draw(LATENTS), draw(LATENTS)
    return draw(
        st.sampled_from(
            [
                f"{draw(linear())}",
                f"{a}*{b} + {draw(linear())}",
                f"s*{a}*{b} - 2*{draw(LATENTS)}",
                f"({a} - 1)*({b} + s)",
                f"({draw(linear())})^2",
                f"{a}*exp({b}/4)",
                f"{draw(growth())}",
                f"f*g + 0.5*h + s*{a}",
            ]
        )
    )


@st.composite
def observations(draw: st.DrawFn) -> tuple[str, str, str]:
    """What stands left of `~`, what stands right, and the kind of output."""
    shape = draw(st.sampled_from(["s", "2", "1.5"]))
    return draw(
        st.sampled_from(
            [
                ("y", f"Normal({draw(mean())}, s)", "real"),
                ("y", f"Normal({draw(mean())}, {draw(growth())})", "real"),
                ("y + 0.7*tanh(2*y + 1)", f"Normal({draw(mean())}, {draw(growth())})", "real"),
                ("log(y)", f"Normal({draw(linear())}, s)", "positive"),
                ("y", f"LogNormal({draw(linear())}, {draw(growth())})", "positive"),
                ("y", f"Poisson({draw(growth())})", "count"),
                ("y", f"Exponential({draw(growth())})", "positive"),
                ("y", f"Gamma({shape}, {draw(growth())})", "positive"),
                ("y", f"Gamma(s, s/({draw(growth())}))", "positive"),
                ("y", f"Weibull({shape}, {draw(growth())})", "positive"),
                ("y", f"Censored(Weibull({shape}, {draw(growth())}), upper = 1.5)", "positive"),
            ]
        )
    )


def text_of(left: str, right: str, kind: str) -> str:
    return scalar(right, kind).replace("y ~", f"{left} ~")


def assert_closed(observation: ObservationTerms, values: list[float]) -> None:
    """All terms are closed, and add up to the 60-point product rule to 1e-8 of its scale, by NumPy and by JAX."""
    assert {term.method for term in observation.terms} == {"closed"}
    latents = sorted({f for term in observation.terms for f in term.latents}, key=lambda f: f.name)
    means = dict(zip(latents, values, strict=False))
    variances = {f: 0.1 + abs(v) for f, v in zip(latents, reversed(values), strict=False)}
    data = {each: 1.3 if each.name == "y" else 0.8 for each in observation.log_density.free_symbols - set(latents)}
    expected, scale = quadrature.expectation(observation.log_density, means, variances, data)
    moments = moments_of(latents)
    table = {moments.mean[f]: means[f] for f in latents} | {moments.variance[f]: variances[f] for f in latents} | data
    closed = sp.Add(*[term.closed for term in observation.terms])
    assert abs(float(quadrature.value(closed, table)) - expected) <= 1e-8 * max(1.0, scale)
    assert abs(float(evaluate(closed, table.__getitem__)) - expected) <= 1e-5 * max(1.0, scale)  # single precision


@settings(max_examples=80, deadline=None, derandomize=True)
@given(observations(), st.lists(st.floats(-0.9, 0.9), min_size=3, max_size=3))
def test_every_member_closes_and_equals_quadrature(drawn: tuple[str, str, str], values: list[float]) -> None:
    (observation,) = terms(text_of(*drawn))
    assert_closed(observation, values)
