"""Probabilities between two values, against SciPy's distribution functions and quadrature."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sympy as sp
from scipy import integrate, stats

from gpdsl.symbolic.density_mass import CANCELLED, log_mass
from gpdsl.symbolic.laws import Law

from .test_laws import INNER


class Folded:
    """The absolute value of Student's t, of both sides of zero together."""

    @staticmethod
    def cdf(y: float) -> float:
        return float(2 * stats.t.cdf(max(y, 0.0) / 1.2, 3.5) - 1)

    @staticmethod
    def sf(y: float) -> float:
        return float(2 * stats.t.sf(max(y, 0.0) / 1.2, 3.5))


OTHERS: dict[str, tuple[dict[str, float], Any]] = {
    "InverseGamma": ({"shape": 2.5, "scale": 1.4}, stats.invgamma(2.5, scale=1.4)),
    "HalfCauchy": ({"scale": 1.2}, stats.halfcauchy(scale=1.2)),
    "HalfStudentT": ({"df": 3.5, "scale": 1.2}, Folded),
    "Beta": ({"a": 1.2, "b": 2.8}, stats.beta(1.2, 2.8)),
}


def law(name: str, arguments: dict[str, float], *components: Law) -> Law:
    return Law(name, {key: sp.Float(value) for key, value in arguments.items()}, components)


def between(reference: Any, low: float, high: float) -> float:
    """log P, from the side where it does not cancel."""
    left, right = reference.cdf(high) - reference.cdf(low), reference.sf(low) - reference.sf(high)
    return float(np.log(right if reference.cdf(low) > 0.5 else left))


@pytest.mark.parametrize("name", INNER)
def test_of_distributions_with_tails(name: str) -> None:
    arguments, reference = INNER[name]
    for low, high in ((-np.inf, 1.1), (0.4, np.inf), (0.4, 1.1), (2.0, 2.5), (-np.inf, np.inf), (-3.0, 0.8)):
        assert log_mass(law(name, arguments), low, high) == pytest.approx(between(reference, low, high), abs=1e-9)


@pytest.mark.parametrize("name", OTHERS)
def test_of_distributions_without(name: str) -> None:
    arguments, reference = OTHERS[name]
    for low, high in ((-np.inf, 0.6), (0.2, np.inf), (0.2, 0.6), (-1.0, 0.5), (-np.inf, np.inf)):
        assert log_mass(law(name, arguments), low, high) == pytest.approx(between(reference, low, high), abs=1e-7)


def test_where_the_distribution_function_cancels_the_density_is_integrated() -> None:
    reference = stats.invgamma(2.5, scale=1.4)
    low, high = 900.0, 1000.0
    expected = integrate.quad(reference.pdf, low, high, epsabs=0.0)[0]
    assert expected < CANCELLED
    found = log_mass(law("InverseGamma", {"shape": 2.5, "scale": 1.4}), low, high)
    assert found == pytest.approx(np.log(expected), rel=1e-9)
    assert log_mass(law("InverseGamma", {"shape": 2.5, "scale": 1.4}), 1e-9, 1e-8) == -np.inf


@pytest.mark.parametrize(("low", "high"), [(-1.0, 0.6), (1e-9, 0.3), (0.4, 2.0)])
def test_the_distribution_function_counts_where_the_density_is_steep(low: float, high: float) -> None:
    """At 0 and 1 this density is infinite, and the error of its integral is above 1e-6."""
    reference = stats.beta(0.03, 0.05)
    found = log_mass(law("Beta", {"a": 0.03, "b": 0.05}), low, high)
    assert found == pytest.approx(np.log(reference.cdf(high) - reference.cdf(low)), abs=1e-12)


def test_of_mixtures_and_between_bounds() -> None:
    first, second = law("Normal", {"mean": 0.7, "sd": 1.3}), law("Gamma", {"shape": 2.3, "rate": 1.4})
    one, other = INNER["Normal"][1], INNER["Gamma"][1]
    mixed = Law("Mixture", {"weights": (sp.Float(0.3), sp.Float(0.7))}, (first, second))
    expected = 0.3 * np.exp(between(one, 0.4, 1.7)) + 0.7 * np.exp(between(other, 0.4, 1.7))
    assert np.exp(log_mass(mixed, 0.4, 1.7)) == pytest.approx(expected, rel=1e-9)
    cut = law("Truncated", {"lower": -0.5, "upper": 1.2}, first)
    whole = between(one, -0.5, 1.2)
    for low, high, inside in ((-2.0, 0.9, (-0.5, 0.9)), (0.1, 5.0, (0.1, 1.2)), (0.1, 0.9, (0.1, 0.9))):
        assert log_mass(cut, low, high) == pytest.approx(between(one, *inside) - whole, abs=1e-9)
    below = law("Truncated", {"upper": 1.2}, first)
    assert log_mass(below, 0.1, 5.0) == pytest.approx(between(one, 0.1, 1.2) - np.log(one.cdf(1.2)), abs=1e-9)
