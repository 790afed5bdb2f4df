"""Closed normalisers of tilted distributions, of quadratics in pieces too, against adaptive integrals."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import numpy as np
import pytest
import sympy as sp
from scipy.integrate import quad
from scipy.stats import norm

import gpdsl
from gpdsl.lowering.table import evaluate
from gpdsl.symbolic.closed import POWER, tilted_normaliser
from gpdsl.symbolic.conditions import both, choose, less
from gpdsl.symbolic.functions import absolute
from gpdsl.symbolic.gaussian import moments_of

F, Y = sp.symbols("f y", real=True)
ONE, ZERO = sp.Integer(1), sp.Integer(0)
AT = 0.7

DENSITIES: dict[str, tuple[sp.Expr, Callable[[float], float], tuple[float, ...]]] = {
    "Laplace": (-2 * absolute(Y - F) - 1, lambda f: -2 * abs(AT - f) - 1, (AT,)),
    "step": (-8 * (Y - choose(less(0, F), ONE, ZERO)) ** 2, lambda f: -8 * (AT - (f > 0)) ** 2, (0.0,)),
    "leaky": (
        -3 * (Y - choose(less(0, F), F, F / 10)) ** 2,
        lambda f: -3 * (AT - (f if f > 0 else f / 10)) ** 2,
        (0.0,),
    ),
    "band": (
        -((Y - choose(both(less(-1, F), less(F, 1)), F, 2 * ONE)) ** 2),
        lambda f: -((AT - (f if -1 < f < 1 else 2.0)) ** 2),
        (-1.0, 1.0),
    ),
    "quadratic": (-3 * (Y - F) ** 2, lambda f: -3 * (AT - f) ** 2, ()),
}


@pytest.mark.parametrize("power", [1.0, 0.5])
@pytest.mark.parametrize("name", DENSITIES)
def test_against_adaptive_integrals(name: str, power: float) -> None:
    density, function, kinks = DENSITIES[name]
    moments = moments_of((F,))
    formula = tilted_normaliser(density, (F,), moments, power)
    assert formula is not None
    for mean, variance in [(0.2, 0.9), (-3.0, 0.5), (2.0, 4.0)]:
        law = norm(mean, math.sqrt(variance))
        cuts = sorted({*np.linspace(-20.0, 22.0, 22), *kinks})
        parts = [
            quad(lambda f, law=law: math.exp(power * function(f)) * law.pdf(f), a, b, epsabs=1e-14)[0]
            for a, b in zip(cuts[:-1], cuts[1:], strict=True)
        ]
        values = {moments.mean[F]: mean, moments.variance[F]: variance, Y: AT, POWER: power}
        with jax.enable_x64(True):
            found = float(evaluate(formula, lambda s, values=values: values[s]))
        assert found == pytest.approx(math.log(math.fsum(parts)), abs=1e-9)


def test_an_outlier_has_a_finite_normaliser() -> None:
    moments = moments_of((F,))
    formula = tilted_normaliser(-400 * absolute(Y - F), (F,), moments, 1.0)
    assert formula is not None
    values = {moments.mean[F]: 0.0, moments.variance[F]: 1.0, Y: 1e4, POWER: 1.0}
    with jax.enable_x64(True):
        assert float(evaluate(formula, lambda s: values[s])) == pytest.approx(-400 * 1e4 + 400**2 / 2, rel=1e-12)


@pytest.mark.parametrize("mean", ["if sin(f) > 0 then 1 else 0", "if f > 0 then 1 else 0"])
def test_expectation_propagation_takes_jumps(mean: str) -> None:
    model = gpdsl.compile(f"input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal({mean}, 0.5)")
    fit = model.fit({"x": [0.0, 1.0, 2.0], "y": [0.1, 1.2, 0.9]}, engine="ep", seed=0, steps=2)
    assert np.isfinite(fit.predict({"x": [0.5]}).mean("f")).all()
