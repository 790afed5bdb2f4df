"""Where periods and frequencies start: at the cycles of the outputs."""

from __future__ import annotations

import time

import numpy as np
import pytest

import gpdsl
from gpdsl.program.cycles import RATIOS, TRENDS, _evidence, _waves, cycles, radians, too_fast
from gpdsl.program.program import make_program

SEASONS = """
input x : real
input z : real
output y : real
param p : positive
param q : positive
latent f(x, z) ~ GP(0, RBF(1, on = z) * Periodic(1, p, on = x) + 2 * Cosine(q, on = x))
y ~ Normal(f, 0.3)
"""

MIXTURE = """
input x : real
output y : real
param w : positive[2]
param mu : positive[2]
param sd : positive[2]
latent f(x) ~ GP(0, SpectralMixture(w, mu, sd))
y ~ Normal(f, 0.3)
"""


def found(text: str, values: dict[str, np.ndarray], *free: str) -> dict[str, np.ndarray]:
    declarations = gpdsl.compile(text).declarations
    shapes = {name: tuple(axis.size for axis in each.axes) for name, each in declarations.params.items()}
    return cycles(declarations, values, shapes, free)[0]  # type: ignore[arg-type]


@pytest.fixture
def x(rng: np.random.Generator) -> np.ndarray:
    return np.sort(100.0 + rng.uniform(0, 60, 90))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(2)


def test_each_period_is_that_of_the_next_cycle_and_not_of_its_harmonics(
    x: np.ndarray, rng: np.random.Generator
) -> None:
    y = np.sin(x / 2) + 1.5 * np.sin(x + 1) + 0.6 * np.sin(2.7 * x) + 0.02 * x + 0.05 * rng.standard_normal(len(x))
    y[::9] = np.nan
    starts = found(SEASONS, {"x": x, "z": rng.standard_normal(len(x)), "y": 1e5 + 300 * y}, "p", "q")
    assert starts["p"] == pytest.approx(4 * np.pi, rel=0.02)
    assert starts["q"] == pytest.approx(2 * np.pi / 2.7, rel=0.02)


def test_waves_are_of_unit_length_at_every_row_and_none_is_too_fast(rng: np.random.Generator) -> None:
    x, frequencies = rng.normal(size=6), np.array([0.3, 0.8])
    turned = np.exp(2j * np.pi * frequencies[:, None, None] * x[:, None] * np.arange(1, 4))
    turned[1, :, 1:] = 0.0  # frequencies of 1.6 and 2.4
    np.testing.assert_allclose(_waves(x, frequencies, 3, 1.0), np.concatenate([turned.real, turned.imag], axis=-1))


def test_what_a_cycle_counts_for_is_the_density_of_its_weights(rng: np.random.Generator) -> None:
    """By whole covariances, outside of a line; their best noise is that of each output."""
    x, known = rng.uniform(0, 9, 14), np.vander(rng.normal(size=14), 2)
    phi, trend = _waves(x, np.array([0.1, 0.4]), 2, 9.0), rng.normal(size=(14, 3))
    y = 3.0 * trend[:, :1] + phi[0, :, :1] * [4.0, 0.0] + rng.normal(size=(14, 2))
    away = np.linalg.qr(known, mode="complete")[0][:, 2:].T
    expected = np.full(2, -np.inf)
    for place, waves in enumerate(phi):
        for v in TRENDS:
            for r in RATIOS:
                halves, own = away @ trend, away @ waves / [1, 2, 1, 2]
                c = np.eye(12) + v * halves @ halves.T + r * own @ own.T
                over = np.diagonal((away @ y).T @ np.linalg.solve(c, away @ y))
                nats = -0.5 * np.sum(12 * np.log(over) + np.linalg.slogdet(c)[1])
                expected[place] = max(expected[place], nats)
    np.testing.assert_allclose(_evidence(phi, y, known, trend), expected)


def test_other_cycles_are_the_next_best_ones() -> None:
    rng = np.random.default_rng(5)
    x = np.sort(rng.uniform(0, 20, 60))
    y = np.sin(2 * np.pi * x / 1.7) + np.sin(2 * np.pi * x / 5.3) + rng.standard_normal(60)
    text = "input x : real\noutput y : real\nparam p : positive\nlatent f(x) ~ GP(0, Cosine(p))\ny ~ Normal(f, 1)"
    best, others = cycles(gpdsl.compile(text).declarations, {"x": x, "y": y}, {"p": ()}, {"p"})
    assert best["p"] == pytest.approx(1.7, rel=0.02)
    assert others["p"][0] == pytest.approx(5.3, rel=0.05)


@pytest.mark.parametrize("period", [2.63, 5.0])
def test_gaps_between_rows_are_no_cycle(period: float, rng: np.random.Generator) -> None:
    """Four seasons of ten rows: frequencies that fit into the gaps stood out more than that of the rows."""
    x = np.concatenate([10.0 * season + np.sort(rng.uniform(0, 4, 10)) for season in range(4)])
    y = 2 * np.sin(2 * np.pi * x / period) + rng.standard_normal(len(x))
    assert found(SEASONS, {"x": x, "z": x, "y": y}, "p")["p"] == pytest.approx(period, rel=0.03)


def test_a_cycle_is_seen_along_one_column(x: np.ndarray, rng: np.random.Generator) -> None:
    text = "input x : real[2]\noutput y : real\nparam p : positive\n"
    text += "latent f(x) ~ GP(0, Periodic(1, p, on = x[2]))\ny ~ Normal(f, 1)"
    both = np.stack([rng.standard_normal(len(x)), x], axis=1)
    starts = found(text, {"x": both, "y": np.sin(x) + rng.standard_normal(len(x))}, "p")
    assert starts["p"] == pytest.approx(2 * np.pi, rel=0.02)
    steps = radians(gpdsl.compile(text).declarations, {"x": both}, starts)
    assert steps["p"] == pytest.approx(1 / np.ptp(x), rel=0.02)


@pytest.mark.parametrize("period", [5.0, 7.0])
def test_at_even_distances_a_cycle_is_none_that_looks_like_it_there(period: float, rng: np.random.Generator) -> None:
    """Two cycles in 7/3 of a day are one in a week, seen once a day."""
    days = np.arange(120.0)
    y = np.sin(2 * np.pi * days / period) + 0.3 * rng.standard_normal(len(days))
    assert found(SEASONS, {"x": days, "z": days, "y": y}, "p")["p"] == pytest.approx(period, rel=0.01)


def test_a_slow_trend_is_no_cycle(x: np.ndarray, rng: np.random.Generator) -> None:
    y = 5 * np.exp(-(((x - 125) / 12) ** 2)) + 0.4 * np.sin(1.7 * x) + 0.1 * rng.standard_normal(len(x))
    starts = found(SEASONS, {"x": x, "z": x, "y": y}, "p")
    assert starts.keys() == {"p"}
    assert starts["p"] == pytest.approx(2 * np.pi / 1.7, rel=0.02)


def test_frequencies_of_a_mixture_are_those_of_the_cycles(x: np.ndarray, rng: np.random.Generator) -> None:
    y = 2 * np.sin(x / 2) + np.sin(1.7 * x) + 0.1 * rng.standard_normal(len(x))
    starts = found(MIXTURE, {"x": x, "y": y}, "mu", "sd")
    np.testing.assert_allclose(2 * np.pi * np.sort(starts["mu"]), [0.5, 1.7], rtol=0.03)
    np.testing.assert_allclose(starts["sd"], 0.5 / np.ptp(x))


def test_fast_cycles_of_many_rows_are_found_soon(rng: np.random.Generator) -> None:
    hours = np.arange(1_500.0)
    y = np.sin(2 * np.pi * hours / 24) + rng.standard_normal(len(hours))
    begun = time.process_time()
    assert found(SEASONS, {"x": hours, "z": hours, "y": y}, "p")["p"] == pytest.approx(24, rel=5e-3)
    assert time.process_time() - begun < 5


@pytest.mark.parametrize("y", [np.ones(90), np.full(90, np.nan), 1e308 * (-1.0) ** np.arange(90)])
def test_outputs_without_cycles_do_no_harm(x: np.ndarray, y: np.ndarray) -> None:
    assert all(np.all(np.isfinite(each)) for each in found(SEASONS, {"x": x, "z": x, "y": y}, "p").values())
    assert found(SEASONS, {"x": np.ones(90), "z": x, "y": y}, "p") == {}


def test_a_fit_finds_a_period_far_from_the_spread_of_its_column(x: np.ndarray, rng: np.random.Generator) -> None:
    """It ended at three times the period, or elsewhere: 20 to 100 nats below."""
    y = np.sin(x / 2) + 0.5 * np.sin(x + 1) + 0.2 * rng.standard_normal(len(x))
    text = "input x : real\noutput y : real\nparam p : positive\nlatent f(x) ~ GP(0, Periodic(1, p))\n"
    fit = gpdsl.compile(f"{text}y ~ Normal(f, 0.2)").fit({"x": x, "y": y}, diagnose="no", progress=False)
    assert fit.parameters["p"] == pytest.approx(4 * np.pi, rel=0.02)
    assert "from cycles of the outputs" in fit.message


def test_frequencies_of_standardised_columns_have_their_units() -> None:
    from gpdsl.program.starts import unit_factors

    translator = make_program(gpdsl.compile(MIXTURE).declarations, {"D": 1}, {}, {}).translator
    factors = unit_factors(translator, {"x": np.array(5.0), "y": np.array(3.0)})
    np.testing.assert_allclose(factors["w"], [9.0, 9.0])
    np.testing.assert_allclose([factors["mu"], factors["sd"]], np.full((2, 2), 0.2))


@pytest.mark.slow
@pytest.mark.parametrize("period", [17.7, 4.0])
def test_of_cycles_that_rows_at_even_distances_do_not_tell_apart_the_slow_one_is_found(period: float) -> None:
    """A search that began at shorter length-scales shortened the period with them, and ended at 0.5."""
    text = SEASONS.split("param p")[0].replace("input z : real\n", "") + (
        "param p : positive\nparam s2 : positive\nparam ell : positive\nparam s : positive\n"
        "latent f(x) ~ GP(0, s2 * Cosine(p) * Matern32(ell))\ny ~ Normal(f, s)\n"
    )
    x = np.arange(100.0)
    wave = (1 + 0.3 * np.sin(x / 37)) * np.sin(2 * np.pi * x / period)
    y = wave + 0.3 * np.random.default_rng(0).standard_normal(100)
    fit = gpdsl.compile(text).fit({"x": x, "y": y}, diagnose="no")
    assert float(fit.parameters["p"]) == pytest.approx(period, rel=0.02)


def test_cycles_are_too_fast_where_two_of_the_smallest_steps_have_more_than_one() -> None:
    seasons, mixture = (gpdsl.compile(text).declarations for text in (SEASONS, MIXTURE))
    values = {"x": np.arange(0.0, 20.0, 0.5), "z": np.zeros(40)}
    assert [too_fast(seasons, values, "p", np.array(p)) for p in (0.9, 1.0, 7.0)] == [True, False, False]
    assert [too_fast(mixture, values, "mu", np.array(mu)) for mu in ([0.1, 1.1], [0.1, 0.9])] == [True, False]
    assert not too_fast(seasons, {**values, "x": np.ones(40)}, "q", np.array(1e-9)), "rows at one place have no step"


FORMULAS = {
    "phase": "let h = a * sin(2 * pi * (x - 3) / p + 1)\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f + h, 0.3)",
    "mean": "latent f(x) ~ GP(a * cos(2 * pi / p * x), RBF(1))\ny ~ Normal(f, 0.3)",
    "series": "index k in 1..3\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f + sum(k, a * cos(x * k * w)), 0.3)",
    "function": "function t(u; p) = u * pi / p\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f + sin(2 * t(x)), 0.3)",
    "distance": "kernel k(r; p) = exp(-2 * sin(pi * r / p)^2)\nlatent f(z, x) ~ GP(0, k(on = x))\ny ~ Normal(f, 0.3)",
    "points": "kernel k(s, t; w) = cos(w * (s - t))\nlatent f(x) ~ GP(0, 2 * k())\ny ~ Normal(f, 0.3)",
}


@pytest.mark.parametrize("formula", FORMULAS.values(), ids=FORMULAS)
def test_sines_of_formulas_start_at_the_cycles_too(x: np.ndarray, rng: np.random.Generator, formula: str) -> None:
    text = (
        "input x : real\ninput z : real\noutput y : real\nparam a : real\nparam p : positive\nparam w : positive\n"
        + formula
    )
    values = {"x": x, "z": rng.normal(size=len(x)), "y": np.sin(1.7 * x) + 0.2 * rng.normal(size=len(x))}
    starts = found(text, values, "a", "p", "w")
    assert starts == {name: pytest.approx({"p": 2 * np.pi / 1.7, "w": 1.7}[name], rel=0.02) for name in starts}
    assert len(starts) == 1
    lengths = radians(gpdsl.compile(text).declarations, values, starts)
    assert lengths == {name: pytest.approx(1 / (np.ptp(x) * 1.7), rel=0.02) for name in starts}


def test_many_random_features_are_no_cycles(x: np.ndarray) -> None:
    text = (
        "index k in 1..20\ninput x : real\noutput y : real\nparam w[k] : positive\nlatent f(x) ~ GP(0, RBF(1))\n"
        "y ~ Normal(f + sum(k, sin(w[k] * x)), 0.3)"
    )
    assert found(text, {"x": x, "y": np.sin(1.7 * x)}, "w") == {}


def test_what_nothing_multiplies_does_not_turn(x: np.ndarray) -> None:
    text = "input x : real\noutput y : real\nparam p : positive\nlatent f(x) ~ GP(sin(0 * x / p), RBF(1))\n"
    text += "y ~ Normal(f, 0.3)"
    assert found(text, {"x": x, "y": np.sin(1.7 * x)}, "p") == {}
