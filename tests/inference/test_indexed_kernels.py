"""Kernels by formula indexed by outputs: convolution processes, whose covariances are integrated numerically here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpdsl

SPREAD = "(ell^2 + width[d]^2 + width[e]^2)"
MODEL = f"""
index d in 1..3
input x : real
output y[d] : real
param s2 : positive = 1.3
param ell : positive = 0.7
param width[d] : positive = [0.3, 0.5, 1.1]
param gain[d] : real = [1, -0.8, 0.5]
kernel seen[d, e](a, b; ell, width, gain) =
  gain[d] * gain[e] * ell / sqrt{SPREAD} * exp(-(a - b)^2 / (2 * {SPREAD}))
latent f(x, d) ~ GP(0, s2 * seen())
let apart = f[3] - f[1]
y[d] ~ Normal(f[d], 0.2)
""".replace("=\n  gain", "= gain")
LONG = (
    MODEL.replace("index d in 1..3", "index d in 1..D\ninput instrument : label[d]")
    .replace("output y[d]", "output y")
    .replace("latent f(x, d)", "latent f(x, instrument)")
    .replace("let apart = f[3] - f[1]\n", "")
    .replace("y[d] ~ Normal(f[d]", "y ~ Normal(f")
    .replace(" = [0.3, 0.5, 1.1]", "")
    .replace(" = [1, -0.8, 0.5]", "")
)
WIDTHS, GAINS, ROWS = np.array([0.3, 0.5, 1.1]), np.array([1, -0.8, 0.5]), 8
NUMBERS: dict[str, Any] = {"s2": 1.3, "ell": 0.7, "width": WIDTHS, "gain": GAINS}
HELD: dict[str, Any] = {"init": NUMBERS, "fixed": [*NUMBERS]}
RNG = np.random.default_rng(np.random.SeedSequence(7))
X, Y = RNG.uniform(-2, 2, ROWS), RNG.normal(size=(ROWS, 3))
Y[[1, 4, 4], [0, 2, 1]] = np.nan
KNOWN = np.isfinite(Y.ravel())
POINTS, LEVELS = np.repeat(X, 3)[KNOWN], np.tile(np.arange(3), ROWS)[KNOWN]
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def through_windows(x: np.ndarray, d: np.ndarray, z: np.ndarray, e: np.ndarray) -> np.ndarray:
    """The covariance of averages of one process over two windows: the integral over both, node by node."""
    at, other = x[:, None] + WIDTHS[d][:, None] * NODES, z[:, None] + WIDTHS[e][:, None] * NODES
    found = np.empty((len(x), len(z)))
    for i, row in enumerate(at):
        for j, column in enumerate(other):
            between = np.exp(-0.5 * (row[:, None] - column[None, :]) ** 2 / 0.7**2)
            found[i, j] = 1.3 * GAINS[d[i]] * GAINS[e[j]] * (WEIGHTS @ between @ WEIGHTS)
    return found


NOISY = through_windows(POINTS, LEVELS, POINTS, LEVELS) + 0.04 * np.eye(len(POINTS))
VALUES = Y.ravel()[KNOWN]


def evidence(noisy: np.ndarray, values: np.ndarray) -> float:
    return float(-0.5 * (values @ np.linalg.solve(noisy, values) + np.linalg.slogdet(2 * np.pi * noisy)[1]))


@pytest.fixture(scope="module")
def fit() -> gpdsl.Fit:
    return gpdsl.compile(MODEL).fit({"x": X, "y": Y}, **HELD)


def test_evidence_and_predictions_are_those_of_integrals(fit: gpdsl.Fit, tmp_path: Path) -> None:
    assert fit.elbo == pytest.approx(evidence(NOISY, VALUES), abs=1e-8)
    new, levels = np.array([-0.4, -0.4, -0.4, 1.9, 1.9, 1.9]), np.tile(np.arange(3), 2)
    cross = through_windows(POINTS, LEVELS, new, levels)
    told = np.linalg.solve(NOISY, cross)
    left = through_windows(new, levels, new, levels) - cross.T @ told
    prediction = fit.predict({"x": [-0.4, 1.9]})
    np.testing.assert_allclose(prediction.mean("f").ravel(), told.T @ VALUES, atol=1e-8)
    np.testing.assert_allclose(prediction.covariance("f").reshape(6, 6), left, atol=1e-8)
    apart = left[0, 0] + left[2, 2] - 2 * left[0, 2]
    assert prediction.variance("apart")[0] == pytest.approx(apart, abs=1e-8)
    fit.save(tmp_path / "windows.gpfit")
    again = gpdsl.load_fit(tmp_path / "windows.gpfit").predict({"x": [-0.4, 1.9]})
    np.testing.assert_array_equal(again.mean("f"), prediction.mean("f"))


def test_a_label_says_which_window_a_row_is_seen_through(fit: gpdsl.Fit) -> None:
    """One row for each value: the levels are a column of the data."""
    data = {"x": POINTS, "instrument": LEVELS + 1, "y": VALUES}
    assert gpdsl.compile(LONG).fit(data, **HELD).elbo == pytest.approx(fit.elbo, abs=1e-8)


def test_slopes_are_those_of_one_window() -> None:
    """The derivative of what is seen through the widest window, by differences of the integral."""
    text = MODEL.replace("y[d] ~ Normal(f[d]", "y[d < 3] ~ Normal(f[d]") + "y[3] ~ Normal(D(f[3], x), 0.2)\n"
    known = np.isfinite(Y[:, 0]) & np.isfinite(Y[:, 2])
    x, values = X[known], np.concatenate([Y[known, 0], Y[known, 2]])
    first, last = np.zeros(len(x), int), np.full(len(x), 2)
    h = 1e-3
    plain = through_windows(x, first, x, first)
    slope = (through_windows(x, first, x + h, last) - through_windows(x, first, x - h, last)) / (2 * h)
    signs = ((1, 1), (1, -1), (-1, 1), (-1, -1))
    both = sum(s * t * through_windows(x + s * h, last, x + t * h, last) for s, t in signs) / (4 * h**2)
    noisy = np.block([[plain, slope], [slope.T, both]]) + 0.04 * np.eye(2 * len(x))
    y = np.where([True, False, True], Y[known], np.nan)
    found = gpdsl.compile(text).fit({"x": x, "y": y}, **HELD)
    assert found.elbo == pytest.approx(evidence(noisy, values), abs=1e-4)


@pytest.mark.slow
def test_inducing_points_stay_below_the_evidence(fit: gpdsl.Fit) -> None:
    model, data = gpdsl.compile(MODEL), {"x": X, "y": Y}
    few, all_of_them = (model.fit(data, **HELD, inducing=count).elbo for count in (6, 3 * ROWS))
    assert few < all_of_them - 0.01 and few < fit.elbo
    assert all_of_them == pytest.approx(fit.elbo, abs=1e-3)
    assert all_of_them <= fit.elbo + 1e-6


def test_a_simulation_has_the_covariance_of_the_windows() -> None:
    """Rows far apart are independent draws of all outputs."""
    rows = 500
    drawn = gpdsl.compile(MODEL).sample_prior(inputs={"x": 40.0 * np.arange(rows)}, parameters=NUMBERS, seed=3)
    levels = np.arange(3)
    true = through_windows(np.zeros(3), levels, np.zeros(3), levels)
    found = drawn.latents["f"].T @ drawn.latents["f"] / rows
    np.testing.assert_allclose(found, true, atol=4.5 * np.sqrt(2 / rows) * true.max())  # six numbers, 1 in 10^4


WHITE = """
index d in 1..2
input x : real
output y[d] : real
param s2 : positive
param width[d] : positive
param noise : positive
kernel seen[d, e](r; width) = exp(-r^2 / (2 * (width[d]^2 + width[e]^2))) / sqrt(width[d]^2 + width[e]^2)
latent f(x, d) ~ GP(0, s2 * seen())
y[d] ~ Normal(f[d], noise)
"""


def noise_through_windows(rows: int) -> dict[str, np.ndarray]:
    """White noise on a fine grid, summed up through windows of widths 0.25 and 0.8."""
    rng = np.random.default_rng(np.random.SeedSequence(5))
    x, grid = np.sort(rng.uniform(0, 20, rows)), np.arange(-4, 24, 0.01)
    white = rng.normal(size=len(grid)) / np.sqrt(0.01)
    windows = [np.exp(-0.5 * ((x[:, None] - grid) / w) ** 2) / (np.sqrt(2 * np.pi) * w) for w in (0.25, 0.8)]
    seen = np.stack([0.01 * window @ white for window in windows], axis=1)
    return {"x": x, "y": 2 * seen + 0.1 * rng.normal(size=(rows, 2))}


def test_widths_are_learnt_for_each_output() -> None:
    """And the optimum is one: moved either way, each parameter lowers the evidence."""
    model, data = gpdsl.compile(WHITE), noise_through_windows(90)
    fit = model.fit(data)
    np.testing.assert_allclose(fit.parameters["width"], [0.25, 0.8], rtol=0.1)
    assert fit.parameters["noise"] == pytest.approx(0.1, rel=0.2)
    assert float(fit.parameters["s2"]) * np.sqrt(2 * np.pi) == pytest.approx(4, rel=0.5)
    names = list(fit.parameters)
    for k in range(2):
        for factor in (0.99, 1.01):
            moved = {**fit.parameters, "width": fit.parameters["width"] * np.where(np.arange(2) == k, factor, 1)}
            assert model.fit(data, init=moved, fixed=names).elbo < fit.elbo


PAIR = "model m\nindex d in 1..2\nindex h in 1..2\ninput x : real\noutput y[d] : real\n{}\n{}\n"
PAIR += "latent f(x, d) ~ GP(0, K())\ny[d] ~ Normal(f[d], 0.2)\n"
READ_TWICE = "kernel K[d, e](a, b; v) = exp(-(a - b)^2) * v[d] * v[e]"


def test_an_array_over_another_index_of_the_same_size_is_not_read_by_levels() -> None:
    gpdsl.compile(PAIR.format("const v[d] = [1, 2]", READ_TWICE))
    gpdsl.compile(
        PAIR.format("const B[d,h] = [[1, 0.5], [0.5, 1]]", "kernel K[d, e](a, b; B) = exp(-(a - b)^2) * B[d, e]")
    )
    with pytest.raises(gpdsl.GpdslError, match=r"E345.*`v` of `K` needs one axis, `d`, and is `real\[h\]`"):
        gpdsl.compile(PAIR.format("const v[h] = [1, 2]", READ_TWICE))


def test_the_smaller_of_two_levels_says_how_it_is_written() -> None:
    with pytest.raises(gpdsl.GpdslError, match="E218") as caught:
        gpdsl.compile(PAIR.format("", "kernel K[d, e](r) = exp(-r^2) * min(d, e)"))
    written = str(caught.value).split("which it is: `")[1].split("`")[0]
    gpdsl.compile(PAIR.format("", f"kernel K[d, e](r) = exp(-r^2) * ({written})"))
