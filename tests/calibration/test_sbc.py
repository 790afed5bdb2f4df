"""Calibration of models whose posterior is known, of fits that are wrong on purpose, and of runs that fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

import gpdsl
from gpdsl.calibration import sbc
from gpdsl.cli import main
from gpdsl.errors import GpdslError
from gpdsl.model import Model

NORMAL = """
input x : real
output y : real
param s2 : positive = 1.5
param sigma : positive = 0.4
latent f(x) ~ GP(0, s2 * RBF(1))
y ~ Normal(f, sigma)
"""
PRIORS = NORMAL.replace("= 1.5", "~ LogNormal(0, 0.5)").replace("= 0.4", "~ LogNormal(-1, 0.5)")
HELD = ["s2", "sigma"]
X = {"x": np.linspace(-2.0, 2.0, 8)}


@pytest.fixture(scope="module")
def normal() -> Model:
    return gpdsl.compile(NORMAL)


@pytest.fixture(scope="module")
def right(normal: Model) -> gpdsl.Calibration:
    return gpdsl.sbc(normal, X, runs=25, points=3, fixed=HELD)


@pytest.mark.slow
def test_exact_inference_with_known_parameters_is_calibrated(right: gpdsl.Calibration) -> None:
    assert right.runs == 25 and not right.doubtful and not right.failures
    assert {name: each.shape for name, each in right.shares.items()} == {"f": (25, 3), "y": (25, 3)}
    for name in right.shares:
        for level in (0.5, 0.9):
            share, error = right.coverage(name, level)
            assert abs(share - level) < 3 * error and 0 < error < 0.1
    assert "nothing doubtful" in repr(right) and "fixed = " in right.summary()


def test_the_shares_are_those_of_the_dense_posterior(normal: Model, right: gpdsl.Calibration) -> None:
    looked = np.array([0, 4, 7])
    drawn = normal.sample_prior({"x": np.concatenate([X["x"], X["x"][looked]])}, seed=1)
    cov = 1.5 * np.exp(-0.5 * (X["x"][:, None] - X["x"]) ** 2)
    gain = np.linalg.solve(cov + 0.16 * np.eye(8), cov[:, looked]).T
    mean, variance = gain @ drawn.data["y"][:8], 1.5 - np.sum(gain * cov[looked], axis=1)
    np.testing.assert_allclose(
        right.shares["f"][0], ndtr((drawn.latents["f"][8:] - mean) / np.sqrt(variance)), atol=2e-3
    )
    at_y = ndtr((drawn.data["y"][8:] - mean) / np.sqrt(variance + 0.16))
    np.testing.assert_allclose(right.shares["y"][0], at_y, atol=1e-5)


def test_another_noise_is_told(normal: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    fit = Model.fit

    def wrong(model: Model, data: Any, **options: Any) -> gpdsl.Fit:
        return fit(model, data, **options, init={"s2": 1.5, "sigma": 0.05})

    monkeypatch.setattr(Model, "fit", wrong)
    found = gpdsl.sbc(normal, X, runs=12, points=3, fixed=HELD)
    assert set(found.doubtful) == {"f", "y"}
    assert "too narrow" in found.summary() and found.coverage("f")[0] < 0.6


EVEN = (np.arange(200) + 0.5) / 200
MIDDLE = np.abs(EVEN - 0.5) < 0.45
"""Where 90 % of shares lie, of which a tenth in a right posterior lies outside."""


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        (EVEN, ""),
        (0.5 + 0.4 * (EVEN - 0.5), "too wide"),
        (np.where(EVEN < 0.5, EVEN**3, 1 - (1 - EVEN) ** 3), "too narrow"),
        (np.where(MIDDLE, 0.05 + 0.9 * ((EVEN - 0.05) / 0.9) ** 2, EVEN), "true values lie lower"),
        (np.where(MIDDLE, 0.95 - 0.9 * ((0.95 - EVEN) / 0.9) ** 2, EVEN), "true values lie higher"),
    ],
)
def test_how_shares_are_uneven_is_told(shares: np.ndarray, said: str) -> None:
    found = gpdsl.Calibration("m", 8, 200, 0, {}, {"f": np.clip(shares, 0, 1)[:, None]}, {}, 1.0)
    assert [row.verdict for row in found.table] == [said] and found.doubtful == (("f",) if said else ())


def test_one_run_has_no_standard_error() -> None:
    told = gpdsl.Calibration("m", 8, 1, 0, {}, {"f": np.array([[0.3, 0.6]])}, {}, 1.0).summary()
    assert "1.000           1.000           " in told and "nan" not in told


def test_runs_that_fail_are_counted_in_words_and_none_at_all_is_an_error(
    normal: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised = {1: GpdslError("no way"), 2: ValueError("odd")}
    monkeypatch.setattr(Model, "fit", faulty := Faulty(raised | {n: GpdslError("never") for n in range(3, 40)}))
    with pytest.raises(GpdslError, match="no run of 10 has given anything; the first failed so: no way"):
        gpdsl.sbc(normal, X, runs=30, fixed=HELD)
    assert faulty.calls == 10
    faulty.calls, study = 0, sbc._study(normal, X, 5, None, None, {"fixed": HELD})
    assert [study.run(n) for n in range(3)] == ["no way", "ValueError: odd", "never"]


@pytest.mark.slow
def test_a_posterior_without_correlations_is_told() -> None:
    """Of a sum only the sum is known: f and g have large variances, which factors do not see."""
    model = gpdsl.compile("""
    input x : real
    output y : real
    latent f(x) ~ GP(0, RBF(1))
    latent g(x) ~ GP(0, RBF(1))
    y ~ Normal(f + g, 0.2)
    """)
    found = gpdsl.sbc(model, 6, runs=8, points=2, posterior="diagonal")
    assert set(found.doubtful) == {"f", "g"} and found.coverage("f")[0] < 0.6


@pytest.mark.slow
def test_learnt_parameters_are_among_the_names() -> None:
    found = gpdsl.sbc(gpdsl.compile(PRIORS), X, runs=2, hyperparameters="integrated")
    assert list(found.shares) == ["s2", "sigma", "f", "y"]
    assert all(0 < share < 1 for name in HELD for share in found.shares[name].ravel())
    assert len(np.unique(found.shares["s2"])) == 2


@pytest.mark.slow
def test_counts_are_randomised_and_held_parameters_simulated_at_their_values() -> None:
    model = gpdsl.compile("""
    input x : real
    output n : count
    param m : real = 3 ~ Normal(0, 1)
    latent f(x) ~ GP(0, 0.1 * RBF(1))
    n ~ Poisson(exp(f + m))
    """)
    found = gpdsl.sbc(model, 6, runs=8, points=2, fixed=["m"], init={"m": -1.0})
    assert list(found.shares) == ["f", "n"] and not found.doubtful
    assert len(np.unique(found.shares["n"])) == 16  # counts of mean 0.4 are few


def test_what_is_learnt_needs_a_prior(normal: Model) -> None:
    with pytest.raises(GpdslError, match=r"`s2`, `sigma` have none.*`param s2 : \.\.\. ~ LogNormal"):
        gpdsl.sbc(normal, X)
    with pytest.raises(GpdslError, match="`sigma` has none"):
        gpdsl.sbc(normal, X, fixed=["s2"])
    with pytest.raises(GpdslError, match="runs: expected a whole number from 1, got 0"):
        gpdsl.sbc(normal, X, fixed=HELD, runs=0)
    with pytest.raises(GpdslError, match=r"sbc: how many rows there are is `data`: sbc\(model, 12, runs=3\)"):
        gpdsl.sbc(normal, rows=12, runs=3)
    with pytest.raises(GpdslError, match="expected a model, such as of gpdsl.load, got str"):
        gpdsl.sbc("normal.gpm")  # type: ignore[arg-type]
    opaque = gpdsl.compile(
        "input x : real\noutput y : real\nexternal h(f: real) -> real\nlatent f(x) ~ GP(0, RBF(1))\nlet r = h(f)\n"
        "y ~ Normal(r, 1)",
        externals={"h": lambda f: f},
    )
    with pytest.raises(GpdslError, match="opaque functions are called from one process; use workers=1"):
        gpdsl.sbc(opaque, 5, workers=2)


class Faulty:
    """A fit that raises something at some calls."""

    def __init__(self, raised: dict[int, BaseException]) -> None:
        self.fit, self.raised, self.calls = Model.fit, raised, 0

    def __get__(self, model: Model, owner: type) -> Any:
        return lambda data, **options: self(model, data, **options)

    def __call__(self, model: Model, data: Any, **options: Any) -> gpdsl.Fit:
        self.calls += 1
        if self.calls in self.raised:
            raise self.raised[self.calls]
        return self.fit(model, data, **options)


def test_runs_that_fail_are_counted(normal: Model, right: gpdsl.Calibration, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Model, "fit", Faulty({2: GpdslError("no way"), 3: ValueError("odd")}))
    found = gpdsl.sbc(normal, X, runs=4, points=3, fixed=HELD)
    assert found.failures == {1: "no way", 2: "ValueError: odd"} and found.runs == 2
    np.testing.assert_array_equal(found.shares["f"], right.shares["f"][[0, 3]])
    assert "2 runs of 8 rows, 2 failed" in found.summary() and "run 1 failed: no way" in found.summary()
    monkeypatch.setattr(Model, "fit", faulty := Faulty({each: GpdslError("never") for each in range(1, 40)}))
    with pytest.raises(GpdslError, match="no run of 10 has given anything; the first failed so: never"):
        gpdsl.sbc(normal, X, runs=30, fixed=HELD)
    assert faulty.calls == 10


def test_an_interrupt_keeps_the_runs_before(normal: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Model, "fit", Faulty({3: KeyboardInterrupt()}))
    found = gpdsl.sbc(normal, X, runs=6, fixed=HELD)
    assert found.interrupted and found.runs == 2 and "interrupted, 6 were asked for" in found.summary()
    monkeypatch.setattr(Model, "fit", Faulty({1: KeyboardInterrupt()}))
    with pytest.raises(KeyboardInterrupt):
        gpdsl.sbc(normal, X, runs=6, fixed=HELD)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.gpm").write_text("model m\n" + NORMAL)
    line = "sbc m.gpm --rows 8 --runs 4 --points 3 --fix s2 --fix sigma --out m.json --plot m.png"
    assert main(line.split()) == 0
    told = capsys.readouterr()
    assert "m: calibration by 4 runs of 8 rows" in told.out and "4 of 4 runs" in told.err
    kept = json.loads(Path("m.json").read_text())
    assert (kept["asked"], kept["options"]) == (4, {"fixed": ["s2", "sigma"]})
    assert np.shape(kept["shares"]["f"]) == (4, 3) and kept["table"][0]["name"] == "f"
    assert Path("m.png").read_bytes().startswith(b"\x89PNG")
    assert main(["sbc", "m.gpm"]) == 1 and "--fix s2" in capsys.readouterr().err
    assert main(["sbc", "m.gpm", "--plot", "m.txt"]) == 1 and ".png" in capsys.readouterr().err


@pytest.mark.slow
def test_processes_give_what_one_does(normal: Model, right: gpdsl.Calibration) -> None:
    found = gpdsl.sbc(normal, X, runs=6, points=3, fixed=HELD, workers=2)
    assert not found.failures
    np.testing.assert_allclose(found.shares["f"], right.shares["f"][:6], atol=1e-9)


@pytest.mark.slow
def test_integrated_parameters_are_calibrated() -> None:
    found = gpdsl.sbc(gpdsl.compile(PRIORS), X, runs=60, hyperparameters="integrated")
    assert not found.doubtful


def test_runs_that_all_agree_leave_an_error() -> None:
    inside = gpdsl.Calibration("m", 8, 12, 0, {}, {"f": np.linspace(0.3, 0.7, 12)[:, None]}, {}, 1.0)
    assert inside.coverage("f") == (1.0, 1 / 13) and "1.000 ± 0.077" in inside.summary()
