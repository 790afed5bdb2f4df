"""Functions that SymPy has no stable form of: values in NumPy and derivatives, against mpmath."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath as mp
import numpy as np
import pytest
import sympy as sp

from gpdsl.symbolic import functions as f
from gpdsl.symbolic.numeric import TABLE, degree_bound, evaluate

X = sp.Symbol("x", real=True)

ONE: dict[type, tuple[Callable[[mp.mpf], mp.mpf], list[float]]] = {
    f.softplus: (lambda x: mp.log(1 + mp.exp(x)), [-30.0, -0.7, 0.4, 25.0]),
    f.sigmoid: (lambda x: 1 / (1 + mp.exp(-x)), [-30.0, -0.7, 0.4, 25.0]),
    f.log_ndtr: (lambda x: mp.log(mp.ncdf(x)), [-9.0, -0.7, 0.4, 3.0]),
    f.ndtr: (mp.ncdf, [-4.0, -0.7, 0.4, 3.0]),
    f.ndtri: (lambda p: mp.sqrt(2) * mp.erfinv(2 * p - 1), [0.01, 0.4, 0.9]),
    f.log1p: (lambda x: mp.log(1 + x), [-0.6, 1e-9, 2.0]),
    f.expm1: (lambda x: mp.exp(x) - 1, [-3.0, 1e-9, 2.0]),
    f.absolute: (abs, [-3.0, 1.2]),
    f.floor: (mp.floor, [-2.5, 1.2]),
    f.lgamma: (lambda x: mp.log(mp.gamma(x)), [0.3, 1.0, 7.5]),
    f.log1mexp: (lambda x: mp.log(1 - mp.exp(-x)), [1e-6, 0.5, 0.9, 30.0]),
}
TWO: dict[type, tuple[Callable[..., mp.mpf], list[tuple[float, float]]]] = {
    f.times_log: (lambda y, x: y * mp.log(x) if y else mp.mpf(0), [(0.0, 0.0), (3.0, 0.2), (1.0, 7.0)]),
    f.log_rising: (lambda x, n: mp.log(mp.gamma(x + n) / mp.gamma(x)), [(1e4, 3.0), (0.4, 2.5), (2.0, 0.0)]),
    f.log_beta: (lambda a, b: mp.log(mp.beta(a, b)), [(1e5, 2e5), (0.3, 4.0)]),
    f.log_difference: (lambda a, b: mp.log(mp.exp(a) - mp.exp(b)), [(2.0, -3.0), (-40.0, -40.1), (1.0, 0.999)]),
    f.log_ndtr_interval: (
        lambda a, b: mp.log(mp.erfc(a / mp.sqrt(2)) - mp.erfc(b / mp.sqrt(2))) - mp.log(2),
        [(-0.3, 0.4), (-9.0, -8.0), (8.0, 9.0), (-1.0, 5.0)],
    ),
    f.log_gamma_cdf: (lambda a, x: mp.log(mp.gammainc(a, 0, x, regularized=True)), [(0.7, 0.2), (3.0, 5.0)]),
    f.log_gamma_sf: (lambda a, x: mp.log(mp.gammainc(a, x, regularized=True)), [(0.7, 0.2), (3.0, 5.0)]),
}
ONCE = (f.softplus, f.sigmoid, f.log_ndtr, f.ndtr, f.ndtri, f.log1p, f.expm1, f.absolute, f.floor)
"""Those that have a derivative."""


@pytest.mark.parametrize("function", ONE, ids=lambda each: each.__name__)
def test_of_one_argument(function: type) -> None:
    reference, places = ONE[function]
    with mp.workdps(50):
        for x in places:
            assert evaluate(function(X), {X: np.float64(x)}) == pytest.approx(float(reference(mp.mpf(x))), rel=1e-12)
            if function in ONCE:
                slope = float(mp.diff(reference, mp.mpf(x), h=mp.mpf(10) ** -18))
                found = evaluate(sp.diff(function(2 * X - x), X), {X: np.float64(x)})
                assert found == pytest.approx(2 * slope, rel=1e-10)


@pytest.mark.parametrize("function", TWO, ids=lambda each: each.__name__)
def test_of_two_arguments(function: type) -> None:
    reference, places = TWO[function]
    a, b = sp.symbols("a b", real=True)
    with mp.workdps(60):
        for one, other in places:
            found = evaluate(function(a, b), {a: np.float64(one), b: np.float64(other)})
            assert found == pytest.approx(float(reference(mp.mpf(one), mp.mpf(other))), rel=1e-10)


def test_of_several_arguments_and_students_tail() -> None:
    values = np.array([0.3, -1.2, 2.5])
    symbols = sp.symbols("a b c", real=True)
    known = dict(zip(symbols, values, strict=True))
    for function, expected in ((f.maximum, 2.5), (f.minimum, -1.2), (f.logsumexp, np.log(np.exp(values).sum()))):
        assert evaluate(function(*symbols), known) == pytest.approx(expected, rel=1e-14)
    df, x = mp.mpf(3), mp.mpf("-1.7")  # of three degrees of freedom there is a formula
    t = x / mp.sqrt(df)
    expected = mp.log(mp.mpf(1) / 2 + (t / (1 + t**2) + mp.atan(t)) / mp.pi)
    found = evaluate(f.log_student_cdf(*symbols[:2]), {symbols[0]: 3.0, symbols[1]: -1.7})
    assert found == pytest.approx(float(expected), rel=1e-12)


def test_mills_ratio_has_the_slope_of_its_integral() -> None:
    def integral(k: sp.Expr, x: sp.Expr) -> sp.Expr:
        return sp.Float(mp.quad(lambda y: y ** int(k) * mp.exp(-(y**2) / 2 - float(x) * y), [0, 2, 8, mp.inf]))

    found = sp.diff(f.mills(1, X), X).subs(X, 0.7).replace(f.mills, integral)
    step = 1e-5
    expected = (integral(sp.Integer(1), 0.7 + step) - integral(sp.Integer(1), 0.7 - step)) / (2 * step)
    assert float(found) == pytest.approx(float(expected), rel=1e-8)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("-", lambda a, b: a - b),
        ("/", lambda a, b: a / b),
        ("^", np.power),
        ("neg", lambda a, _: -a),
        ("log2", lambda a, _: np.log2(a)),
        ("log10", lambda a, _: np.log10(a)),
        ("logit", lambda a, _: np.log(a / (1 - a))),
    ],
)
def test_words_of_the_language(name: str, expected: Callable[[float, float], float]) -> None:
    a, b = sp.symbols("a b", positive=True)
    arguments = (a, b) if name in "-/^" else (a,)
    found = evaluate(f.ELEMENTARY[name](*arguments), {a: 0.3, b: 1.7})
    assert found == pytest.approx(expected(0.3, 1.7), rel=1e-13)


def test_reductions_and_exact_powers() -> None:
    values = [sp.Float(v) for v in (0.3, -1.2, 2.5)]
    plain = np.array([0.3, -1.2, 2.5])
    expected = {"sum": plain.sum(), "prod": plain.prod(), "mean": plain.mean(), "norm": np.sqrt(np.sum(plain**2))}
    for name, each in expected.items():
        assert float(f.REDUCTIONS[name](*values)) == pytest.approx(each, rel=1e-13)
    power = f.ELEMENTARY["^"]
    assert power(X, sp.Float(2.0)) == X**2
    assert power(X, sp.Float(0.5)) == sp.sqrt(X)
    assert power(X, sp.Float(-1.5)) == X ** sp.Rational(-3, 2)
    assert power(X, sp.Float(0.3)).exp == sp.Float(0.3)


def test_the_functions_here_are_all_that_numpy_computes() -> None:
    own = {each for each in TABLE if getattr(each, "__module__", "") == f.__name__}
    assert own == {*ONE, *TWO, f.maximum, f.minimum, f.logsumexp, f.log_student_cdf}


@pytest.mark.parametrize(
    ("text", "degree"),
    [
        ("7*c", 0),
        ("c*x**2*y + x", 3),
        ("(x*y + c)**3*y", 7),
        ("(x + (y**2 - 1)**2)**2", 8),
        ("x/y", None),
        ("exp(x)", None),
    ],
)
def test_degrees_are_those_of_the_products_multiplied_out(text: str, degree: int | None) -> None:
    x, y, c = sp.symbols("x y c", real=True)
    expression = sp.sympify(text, {"x": x, "y": y, "c": c})
    assert degree_bound(expression, {x, y}) == (
        math.inf if degree is None else sp.Poly(expression, x, y).total_degree()
    )
    assert degree is None or degree_bound(expression, {x, y}) == degree
