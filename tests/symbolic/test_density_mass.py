"""Densities by formula that are none, and priors without a bound: said by check, fit and the summary."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import gpdsl
from gpdsl.errors import GpdslWarning
from gpdsl.symbolic.checking import compile_checked, grave_warnings
from gpdsl.symbolic.density_mass import mass_words

GOLDEN = Path(__file__).parents[1] / "golden" / "densities"
HEAD = "input x : real\noutput y : {kind}\nparam s : positive = 0.7\nlatent f(x) ~ GP(0, RBF(1))\n"


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.gpm")), ids=lambda path: path.stem)
def test_text(path: Path) -> None:
    printed = f"{grave_warnings(compile_checked(path.read_text(encoding='utf-8'), name=path.name))}\n"
    expected = path.with_suffix(".txt")
    if os.environ.get("GPDSL_GOLDEN"):
        expected.write_text(printed, encoding="utf-8")
    assert printed == expected.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("kind", "left", "formula", "mass"),
    [
        ("real", "y", "-abs(v - mu) / s - log(2 * s)", ""),
        ("real", "y", "-abs(v - mu) / s", "1.4,"),
        ("real", "y", "if abs(v - mu) < s then -log(2 * s) else -1e30", ""),
        ("real", "y", "if abs(v - mu) < s then -log(s) else -1e30", "2,"),
        ("real", "y", "if v > mu then -(v - mu) / s - log(s) else -1e30", ""),
        ("real", "y", "-log(1 + ((v - mu) / s)^2) - log(3.141592653589793 * s)", ""),
        ("real", "y", "-log(s)", "finite"),
        ("positive", "y", "log(s) - (1 + s) * log(v) + 0 * mu", "finite"),
        ("positive", "y", "if v > 1 then log(s) - (1 + s) * log(v) + 0 * mu else -1e30", ""),
        ("positive", "log(y)", "-(v - mu)^2 / (2 * s^2) - log(s) - 0.918938533204673", ""),
        ("positive", "y", "-(v - mu)^2 / (2 * s^2) - log(s) - 0.918938533204673", "0.07656 to 0.9839"),
        ("unit", "y", "-0.5 * log(v) - 0.5 * log(1 - v) - log(3.141592653589793) + 0 * mu * s", ""),
        ("real", "y", "-log(1 + abs(v - mu)) + 0 * s", "finite"),
        ("real", "y", "-1.01 * log(1 + abs(v - mu)) + 0 * s", "falls so slowly"),
        ("real", "y", "log(0.05) - 1.1 * log(1 + abs(v - mu)) + 0 * s", ""),
        ("positive", "y", "-log(v) - abs(v - mu) + 0 * s", "finite"),
        ("unit", "y", "-log(v) + 0 * s * mu", "finite"),
        ("positive", "log(exp(y) - 1)", "-(v - mu)^2 / (2 * s^2) - log(s) - 0.918938533204673", ""),
        ("real", "y", "if v > mu then log(0.3) - (v - mu) else log(0.7) + (v - mu) + 0 * s", ""),
        ("real", "y", "if v > mu then log(0.3) - (v - mu) else log(700) + 1000 * (v - mu) + 0 * s", ""),
        (
            "real",
            "y",
            "if v > mu + 1e-5 then log(0.3) - (v - mu - 1e-5) else if v > mu then log(7e4) + 0 * s else -1e30",
            "",
        ),
        ("real", "y", "if v > 40 and v < 40.001 then log(500) + 0 * mu * s else -v^2/2 - 1.612085713764618", ""),
        ("count", "y", "v * mu - exp(mu) - lgamma(v + 1) + 0 * s", ""),
        ("count", "y", "v * mu - exp(mu) - lgamma(v + 1) - s", "0.4966,"),
        ("binary", "y", "v * mu - softplus(mu) + 0 * s", ""),
    ],
)
def test_masses(kind: str, left: str, formula: str, mass: str) -> None:
    text = HEAD.format(kind=kind) + f"density d(v | mu, s) = {formula}\n{left} ~ d(f, s)\n"
    found = [each.message_text() for each in grave_warnings(compile_checked(text))]
    assert len(found) == bool(mass)
    assert all(mass in each for each in found)


@pytest.mark.parametrize(
    ("kind", "law", "mass"),
    [
        ("positive", "Normal(f, s)", "0.07656 to 0.9839"),
        ("positive", "Mixture(0.4, Normal(f, s), Gamma(2, s))", "0.6306 to 0.9936"),
        ("positive", "Truncated(Normal(f, s), lower = -1)", "0.1531 to 0.9841"),
        ("positive", "Truncated(Normal(f, s), lower = 0)", ""),
        ("positive", "Truncated(Normal(f, s), upper = 1)", "0.07459 to 0.9324"),
        ("positive", "Censored(Normal(f, s), lower = 1)", ""),
        ("positive", "Censored(Normal(f, s), upper = 1)", "0.07656 to 0.9839"),
        ("positive", "LogNormal(f, s)", ""),
        ("unit", "Truncated(Normal(f, s), lower = 0)", "0.2251 to 0.9721"),
        ("unit", "Truncated(Normal(f, s), lower = 0, upper = 1)", ""),
        ("real", "Normal(f, s)", ""),
    ],
)
def test_probability_outside_of_the_output(kind: str, law: str, mass: str) -> None:
    """The masses of `y ~ Normal(f, 0.7)` are Phi(f / 0.7) at f of -1 and 1.5."""
    found = [each.message_text() for each in grave_warnings(compile_checked(HEAD.format(kind=kind) + f"y ~ {law}\n"))]
    assert len(found) == bool(mass)
    assert all(mass in each for each in found)


def test_integrals_are_told_as_what_they_are() -> None:
    """At several values of the latents: all one, one of them infinite or too large, one without an answer, a range."""
    told = [mass_words(np.array(each)) for each in ([1.0, 1.00005], [2.0, np.inf], [2.0, 1e7], [np.nan, np.inf])]
    assert told[0] == "" and told[1] == told[2] == "does not have a finite integral"
    assert told[3].startswith("falls so slowly")
    assert mass_words(np.array([0.5, 0.5003])) == "integrates to 0.5, not to one"
    assert mass_words(np.array([1.0002, 1.0002])) == "integrates to 1.0002, not to one"
    assert mass_words(np.array([1.0, 0.5, 0.9e6])) == "integrates to 0.5 to 9e+05, not to one"


def test_a_fit_says_so_before_and_in_its_summary() -> None:
    text = HEAD.format(kind="real").replace("= 0.7", "= 0.7 ~ Gamma(0.5, 1)")
    model = gpdsl.compile(text + "density d(v | mu, s) = -abs(v - mu) / s - log(s)\ny ~ d(f, s)\n")
    x = np.linspace(0, 3, 6)
    with pytest.warns(GpdslWarning) as caught:
        fit = model.fit({"x": x, "y": np.sin(x)}, steps=2)
    assert {code for code in ("W632", "W641") if any(code in str(each.message) for each in caught)} == {"W632", "W641"}
    assert np.isnan(fit.log_evidence_bound) and "does not integrate to one" in fit.no_bound
    assert fit.message + ", but see the notes\n" in fit.summary()
    assert "note        the density `d` integrates to 2, not to one, at these parameters" in fit.summary()
    assert "note        the density of this prior is infinite where `s` is 0" in fit.summary()
