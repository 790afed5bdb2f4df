"""Log densities and their slopes far out and at extreme parameters, against the textbook formula in 60 digits."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
import sympy as sp
from scipy import stats

from gpdsl.lowering.table import evaluate
from gpdsl.symbolic.densities import DENSITIES
from gpdsl.symbolic.stable import TAILS

log, lgamma = mp.log, mp.loggamma
Numbers = tuple[float, ...]

# name: (parameters, formula, places and arguments)
CASES: dict[str, tuple[str, Callable, list[Numbers]]] = {
    "Normal": (
        "mean sd",
        lambda y, m, s: -log(2 * mp.pi) / 2 - log(s) - ((y - m) / s) ** 2 / 2,
        [(1e8, 1e8 - 1, 1e-3), (0.0, 40.0, 1.0), (1e-9, 0.0, 1e-8)],
    ),
    "StudentT": (
        "df mean scale",
        lambda y, df, m, s: (
            lgamma((df + 1) / 2)
            - lgamma(df / 2)
            - log(df * mp.pi) / 2
            - log(s)
            - (df + 1) / 2 * mp.log1p(((y - m) / s) ** 2 / df)
        ),
        [(1e10, 4, 0, 1), (3, 1e10, 0, 1), (3, 1e15, 0, 1), (0.5, 1e-3, 0, 1), (-1e100, 2, 1, 0.5)],
    ),
    "Laplace": ("mean scale", lambda y, m, s: -log(2 * s) - abs(y - m) / s, [(1e4, 0, 1e-3), (-3e3, 5, 2)]),
    "Logistic": (
        "mean scale",
        lambda y, m, s: -(y - m) / s - log(s) - 2 * mp.log1p(mp.exp(-(y - m) / s)),
        [(800, 0, 1), (-1e5, 0, 1), (0, 0, 1e-5)],
    ),
    "LogNormal": (
        "mean sd",
        lambda y, m, s: -log(2 * mp.pi) / 2 - log(s) - ((log(y) - m) / s) ** 2 / 2 - log(y),
        [(1e-300, 0, 1), (1e300, 3, 0.1)],
    ),
    "Gamma": (
        "shape rate",
        lambda y, a, r: a * log(r) - lgamma(a) + (a - 1) * log(y) - r * y,
        [(1e-300, 0.01, 1), (1e5, 1e-3, 10), (1.001, 1e6, 1e6), (1e-8, 3, 1e9)],
    ),
    "Exponential": ("rate", lambda y, r: log(r) - r * y, [(1e-300, 1e10), (1e4, 1e3)]),
    "Weibull": (
        "shape scale",
        lambda y, k, s: log(k / s) + (k - 1) * log(y / s) - (y / s) ** k,
        [(1e-10, 0.1, 1), (2, 200, 2.0), (30, 3, 1)],
    ),
    "Beta": (
        "a b",
        lambda y, a, b: lgamma(a + b) - lgamma(a) - lgamma(b) + (a - 1) * log(y) + (b - 1) * mp.log1p(-y),
        [(1e-300, 0.01, 0.01), (1 - 1e-16, 0.5, 0.5), (1e-9, 0.5, 1e9), (0.5, 1e6, 1e6)],
    ),
    "Poisson": ("mean", lambda y, m: y * log(m) - m - lgamma(y + 1), [(0, 1e-300), (5, 1e-10), (1e6, 1.001e6)]),
    "NegativeBinomial": (
        "mean dispersion",
        lambda y, m, d: lgamma(y + d) - lgamma(d) - lgamma(y + 1) - d * mp.log1p(m / d) + y * log(m / (m + d)),
        [(3, 2, 1e8), (3, 2, 1e16), (1000, 900, 1e10), (0, 1e-10, 0.1), (5, 1e8, 1e-3)],
    ),
    "Binomial": (
        "trials p",
        lambda y, n, p: lgamma(n + 1) - lgamma(y + 1) - lgamma(n - y + 1) + y * log(p) + (n - y) * mp.log1p(-p),
        [(5, 1e9, 4e-9), (1e6, 2e6, 0.5), (3, 3, 1 - 1e-12)],
    ),
}


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True), mp.workdps(60):
        yield


@pytest.mark.parametrize(
    ("name", "numbers"), [(name, numbers) for name, entry in CASES.items() for numbers in entry[2]], ids=str
)
def test_values_and_slopes(name: str, numbers: Numbers) -> None:
    names, reference, _ = CASES[name]
    y, *symbols = sp.symbols(f"y {names}", real=True)
    formula = DENSITIES[name].log_density(y, {s.name: s for s in symbols})

    def density(values: list[jax.Array]) -> jax.Array:
        return evaluate(formula, dict(zip((y, *symbols), values, strict=True)).__getitem__)

    value, slopes = jax.value_and_grad(density)([jnp.asarray(float(n)) for n in numbers])
    exact = [mp.mpf(float(n)) for n in numbers]
    # Terms of the size of the largest argument cancel in a concentrated density: so much rounding is allowed.
    assert abs(float(value) - reference(*exact)) <= 1e-9 * max(1, abs(float(reference(*exact))))
    for place in range(1, len(numbers)):
        if name == "Binomial" and place == 1:
            continue  # trials are data
        step = mp.mpf(10) ** -25 * (abs(exact[place]) or 1)
        sides = [[*exact[:place], exact[place] + side, *exact[place + 1 :]] for side in (step, -step)]
        slope = float((reference(*sides[0]) - reference(*sides[1])) / (2 * step))
        assert float(slopes[place]) == pytest.approx(slope, rel=1e-6, abs=1e-14)


TAIL_CASES = {
    "Normal": ({"mean": 0.0, "sd": 1.0}, (-1e3, 40.0), lambda y: mp.log(mp.erfc(-y / mp.sqrt(2)) / 2)),
    "Logistic": ({"mean": 0.0, "scale": 1.0}, (-900.0, 30.0), lambda y: -mp.log1p(mp.exp(-y))),
    "Laplace": (
        {"mean": 0.0, "scale": 1.0},
        (-900.0, 30.0),
        lambda y: y - mp.log(2) if y < 0 else mp.log1p(-mp.exp(-y) / 2),
    ),
    "Exponential": ({"rate": 1.0}, (1e-12, 100.0), lambda y: mp.log(-mp.expm1(-y))),
    "Weibull": ({"shape": 2.0, "scale": 1.0}, (1e-9, 10.0), lambda y: mp.log(-mp.expm1(-(y**2)))),
    "Gamma": ({"shape": 1000.0, "rate": 1.0}, (400.0, 1200.0), lambda y: mp.log(mp.gammainc(1000, 0, y, True))),
}


@pytest.mark.parametrize("name", TAIL_CASES)
def test_distribution_functions_far_out(name: str) -> None:
    """What censoring needs: log P(Y <= y) with its slope, which is the hazard, where P itself underflows."""
    arguments, places, reference = TAIL_CASES[name]
    y = sp.Symbol("y", real=True)
    formula = TAILS[name].below(y, {n: sp.Float(v, 17) for n, v in arguments.items()})
    for place in places:
        value, slope = jax.value_and_grad(lambda at: evaluate(formula, {y: at}.__getitem__))(place)
        exact, step = mp.mpf(place), mp.mpf(place) * mp.mpf(10) ** -25
        assert float(value) == pytest.approx(float(reference(exact)), rel=1e-10, abs=1e-15)
        expected = float((reference(exact + step) - reference(exact - step)) / (2 * step))
        assert float(slope) == pytest.approx(expected, rel=1e-8, abs=1e-15)


def test_a_truncated_normal_is_learnt_from_far_out() -> None:
    """The slope of a truncated density with respect to its mean is finite and right 200 deviations off."""
    a = {"mean": sp.Symbol("m", real=True), "sd": sp.Integer(1)}
    normaliser = TAILS["Normal"].above(sp.Integer(0), a)
    slope = jax.jit(jax.grad(lambda m: evaluate(normaliser, {a["mean"]: m}.__getitem__)))
    expected = np.exp(stats.norm.logpdf(0, -200, 1) - stats.norm.logsf(0, -200, 1))
    assert float(slope(-200.0)) == pytest.approx(expected, rel=1e-9)
