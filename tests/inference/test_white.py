"""White noise in kernels, with inducing points: as part of the noise of normal outputs, and left as it is elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gpdsl
from gpdsl.program.white import notes_on_white, training
from gpdsl.results.fitting import prepare

PRIOR = "0.8 * RBF(0.7) + 0.2 * White()"
TEXT = f"input x : real\noutput y : real\nlatent f(x) ~ GP(0.3, {PRIOR})\ny ~ Normal(f, 0.2)\n"
THERE = np.linspace(-3, 3, 9)


def smooth(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return 0.8 * np.exp(-0.5 * (a[:, None] - b) ** 2 / 0.49)


def evidence(covariance: np.ndarray, gap: np.ndarray) -> float:
    return float(-0.5 * gap @ np.linalg.solve(covariance, gap) - 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1])


@pytest.fixture
def data(rng: np.random.Generator) -> dict[str, np.ndarray]:
    x = np.repeat(rng.uniform(-3, 3, 60), 2)  # every input twice, with noise of its own
    return {"x": x, "y": 0.3 + np.sin(2 * x) + 0.5 * rng.standard_normal(120)}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"inducing": 25},
        pytest.param({"inducing": 25, "engine": "ep"}, marks=pytest.mark.slow),
        pytest.param({"optimizer": "lbfgs"}, marks=pytest.mark.slow),
    ],
)
def test_it_is_noise_of_a_normal_output(data: dict[str, np.ndarray], options: dict) -> None:
    x, gap = data["x"], data["y"] - 0.3
    total, cross = smooth(x, x) + 0.24 * np.eye(120), smooth(THERE, x)
    fit = gpdsl.compile(TEXT).fit(data, **options)
    assert fit.elbo == pytest.approx(evidence(total, gap), abs=1e-2)
    found = fit.predict({"x": THERE})
    variance = 1.0 - np.sum(cross.T * np.linalg.solve(total, cross.T), axis=0)  # of a new row, with its own noise
    np.testing.assert_allclose(found.mean("f"), 0.3 + cross @ np.linalg.solve(total, gap), atol=1e-3)
    np.testing.assert_allclose(found.variance("f"), variance, atol=1e-3)
    np.testing.assert_allclose(found.variance("y"), variance + 0.04, atol=1e-3)
    assert fit.notes == ()


HEAD = """
index p in 1..2
input x : real
param w : positive = 0.3 fixed
const a[p] = [1, 2]
const s[p] = [0.2, 0.4]
"""
WIDER = {
    "logarithms": "latent f(x) ~ GP(0, 0.5 * (RBF(1) + w * White()) + w * White())\nz ~ LogNormal(2 * f, s[1])",
    "elements": "latent f[p](x) ~ GP(0, RBF(1) + w * a[p] * White())\ny[p] ~ Normal(f[p], s[p])",
    "a warp": "latent f(x) ~ GP(0, Matern52(1) + White())\nlog(z) ~ Normal(3 - f, s[2])",
}


@pytest.mark.parametrize("case", WIDER)
def test_inducing_points_lose_nothing_by_it(rng: np.random.Generator, case: str) -> None:
    """Exact inference knows white noise in the covariance of the data."""
    x = rng.uniform(-2, 2, 50)
    values = np.sin(x) + 0.3 * rng.standard_normal(50)
    if case == "elements":
        output, table = "output y[p] : real\n", {"x": x, "y": np.stack([values, values**2], axis=1)}
    else:
        output, table = "output z : positive\n", {"x": x, "z": np.exp(values)}
    model = gpdsl.compile(HEAD + output + WIDER[case] + "\n")
    exact, fit = model.fit(table), model.fit(table, inducing=30)
    assert exact.held is not None
    assert fit.held is None
    assert fit.elbo == pytest.approx(exact.elbo, abs=0.05)


def test_it_is_left_as_it_is_where_several_outputs_read_it(data: dict[str, np.ndarray]) -> None:
    """Every value pays V[e] / 2 s^2 then, as the bound of all Gaussians over inducing values says."""
    text = TEXT + "output z : real\nz ~ Normal(2 * f, 0.5)\n"
    x, y = data["x"], data["y"]
    table = {**data, "z": 2 * y}
    fit = gpdsl.compile(text).fit(table, inducing=25)
    loadings = np.concatenate([np.eye(120), 2 * np.eye(120)])
    noise = np.diag(np.repeat([0.04, 0.25], 120))
    total = loadings @ smooth(x, x) @ loadings.T + noise
    paid = 120 * 0.2 * (1 / 0.08 + 4 / 0.5)
    assert fit.elbo == pytest.approx(evidence(total, np.concatenate([y - 0.3, 2 * y - 0.6])) - paid, abs=0.1)
    assert any("White() in the kernel of `f` is left as in the prior" in note for note in fit.notes)


@pytest.mark.slow
def test_dense_posteriors_infer_it_at_repeated_inputs(rng: np.random.Generator) -> None:
    """Counts far above their neighbours' at the same input have a rate of their own."""
    x = np.repeat(np.linspace(-2, 2, 10), 2)
    counts = np.where(np.arange(20) % 2, 30, 2)
    model = gpdsl.compile(
        "input x : real\noutput n : count\nlatent f(x) ~ GP(2, 0.2 * RBF(1) + 2 * White())\nn ~ Poisson(exp(f))\n"
    )
    fit, few = model.fit({"x": x, "n": counts}), model.fit({"x": x, "n": counts}, inducing=10)
    assert len(fit.inducing[0]) == 20
    assert fit.elbo > few.elbo + 50
    assert fit.notes == ()
    assert len(few.notes) == 1


@pytest.mark.parametrize("inducing", [pytest.param(0, marks=pytest.mark.slow), 20])
def test_fits_are_kept_and_gone_on_from(data: dict[str, np.ndarray], tmp_path: Path, inducing: int) -> None:
    model = gpdsl.compile(TEXT.replace("Normal(f, 0.2)", "StudentT(4, f, 0.2)") if not inducing else TEXT)
    fit = model.fit(data, inducing=inducing)
    fit.save(tmp_path / "white.gpfit")
    again, table = gpdsl.load_fit(tmp_path / "white.gpfit"), {"x": THERE}
    np.testing.assert_array_equal(again.predict(table).variance("f"), fit.predict(table).variance("f"))
    assert model.fit(data, inducing=inducing, start=again, steps=2).elbo > fit.elbo - 0.1


def test_the_plan_shows_it_as_noise(data: dict[str, np.ndarray]) -> None:
    text = "param w : positive = 1\n" + TEXT.replace("0.2 * White", "w * White")
    assert "log(sqrt(w + 0.04))" in gpdsl.compile(text).explain(data, inducing=20)


@pytest.mark.parametrize(
    ("law", "variance"),
    [("Normal(2 * f + 1, 0.5)", 0.25 + 4 * 0.2), ("Normal(f, exp(f))", None), ("Normal(f^2, 1)", None)],
)
def test_it_becomes_noise_where_one_normal_output_reads_it_linearly(law: str, variance: float | None) -> None:
    text = f"input x : real\noutput y : real\nlatent f(x) ~ GP(0.3, {PRIOR})\ny ~ {law}\n"
    two = text + "output z : real\nz ~ Normal(f, 0.5)\n"
    data = {"x": np.arange(3.0), "y": np.ones(3), "z": np.ones(3)}
    for each, told in ((text, variance), (two, None)):
        found = training(prepare(gpdsl.compile(each), data, {}, {})[0], dense=False)
        assert [group.apart for group in found.groups] == [told is None]
        if told is None:
            assert "White() in the kernel of `f` is left as in the prior" in notes_on_white(found)[0]
        else:
            assert float(found.observations[0].law.arguments["sd"]) ** 2 == pytest.approx(told)  # type: ignore[union-attr]
