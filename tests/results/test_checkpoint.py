"""Fits keep their best state in a file while they go on, and go on from it, after kill -9 too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpdsl
from gpdsl.results import checkpoint
from tests.inference.problems import unlearnt
from tests.inference.test_watch import COUNTS, ENGINES, LONGER

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def data() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 5, 30)
    return {"x": x, "n": rng.poisson(np.exp(np.sin(x)))}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in LONGER else []) for n in ENGINES])
def test_a_fit_that_dies_without_a_word_goes_on_from_what_it_kept(
    name: str, data: dict[str, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(Exception):
        pass

    def die(report: Any) -> None:
        if (tmp_path / "a.gpfit").exists() and report.step > 1:
            raise Died

    monkeypatch.setattr(checkpoint, "EVERY", 0.0)
    monkeypatch.setattr(checkpoint, "SHARE", 1e9)
    model, choices = gpdsl.compile(COUNTS), {"steps": 60, **ENGINES[name], "checkpoint": tmp_path / "a.gpfit"}
    try:
        model.fit(data, callback=die, **choices)
    except Died:
        kept = gpdsl.load_fit(tmp_path / "a.gpfit")
        assert kept.interrupted and np.isfinite(kept.elbo) and kept.message == checkpoint.KEPT
        assert np.isfinite(kept.predict({"x": [1.0]}).mean("f")).all()
    kept = gpdsl.load_fit(tmp_path / "a.gpfit")
    fit = model.fit(data, resume=True, **choices)
    assert not fit.interrupted
    if not checkpoint.noisy(kept) and kept.options.engine != "ep":
        assert fit.elbo >= kept.elbo - 1e-9
    again = gpdsl.load_fit(tmp_path / "a.gpfit")
    assert again.elbo == fit.elbo and not again.interrupted
    assert model.fit(data, resume=True, **choices).elbo == fit.elbo  # it has ended


@pytest.mark.parametrize("options", [{}, {"optimizer": "adam", "posterior": "full"}], ids=["default", "adam"])
def test_an_error_of_a_callback_leaves_the_state_so_far(
    options: dict[str, Any], data: dict[str, np.ndarray], tmp_path: Path
) -> None:
    """Within the first minute too."""

    told: list[Any] = []

    def stop(report: Any) -> None:
        told.append(report)
        if len(told) > 3:
            raise LookupError("enough")

    model, path = gpdsl.compile(COUNTS), tmp_path / "a.gpfit"
    with pytest.raises(LookupError, match="enough"):
        model.fit(data, callback=stop, checkpoint=path, steps=200, diagnose="no", **options)
    kept = gpdsl.load_fit(path)
    assert kept.interrupted and np.isfinite(kept.elbo)
    assert np.isfinite(model.fit(data, resume=True, checkpoint=path, steps=200, diagnose="no", **options).elbo)


def test_a_noisy_search_goes_on_for_the_steps_that_are_asked_for_now(
    data: dict[str, np.ndarray], tmp_path: Path
) -> None:
    model, made = gpdsl.compile(COUNTS), []
    options: dict[str, Any] = {"optimizer": "adam", "posterior": "full", "diagnose": "no", "resume": True}
    for steps in (20, 50, 30):
        fit = model.fit(data, checkpoint=tmp_path / "a", steps=steps, **options)
        made.append(fit.history[-1, 0])
    assert made == [20, 30, 3]  # a tenth of its steps at least


def test_a_fit_that_is_resumed_does_not_begin_at_init_again(data: dict[str, np.ndarray], tmp_path: Path) -> None:
    told: list[Any] = []

    def stop(report: Any) -> None:
        told.append(report.elbo)
        if len(told) > 5:
            raise LookupError("enough")

    text = SINE.replace("count", "real").replace("Poisson(exp(f))", "Normal(f, 0.1)")
    model, path, known = gpdsl.compile(text), tmp_path / "a.gpfit", {"x": data["x"], "n": np.sin(data["x"])}
    asked: dict[str, Any] = {"init": {"ell": 0.1}, "diagnose": "no", "checkpoint": path}
    with pytest.raises(LookupError):
        model.fit(known, callback=stop, **asked)
    kept, resumed = gpdsl.load_fit(path).elbo, []
    model.fit(known, resume=True, callback=lambda report: resumed.append(report.elbo), **asked)
    assert told[0] < kept - 1.0 < resumed[0]


def test_what_does_not_go_on_is_refused(data: dict[str, np.ndarray], tmp_path: Path) -> None:
    model, path = gpdsl.compile(COUNTS), tmp_path / "a.gpfit"
    fit = unlearnt(model, data, checkpoint=path, resume=True, steps=2)
    assert gpdsl.load_fit(path).elbo == fit.elbo
    other = gpdsl.compile(COUNTS.replace("RBF", "Matern52"))
    fewer = {name: values[:20] for name, values in data.items()}
    moved, scaled = data | {"n": data["n"][::-1]}, data | {"x": 2 * data["x"]}
    for trial, wrong in (
        (lambda: model.fit(data, resume=True), "name its file"),
        (lambda: model.fit(data, resume=True, checkpoint=path, start=fit), "leave one of them out"),
        (lambda: model.fit(data, resume=True, checkpoint=path, steps=2, seed=3), "another seed"),
        (lambda: model.fit(fewer, resume=True, checkpoint=path, steps=2), "had 30 rows, not 20"),
        (lambda: model.fit(moved, resume=True, checkpoint=path, steps=2), "other data .`n` had other values."),
        (lambda: model.fit(scaled, resume=True, checkpoint=path, steps=2), "other data .`x` had other values."),
        (lambda: other.fit(data, resume=True, checkpoint=path, steps=2), "a fit of another model"),
    ):
        with pytest.raises(gpdsl.GpdslError, match=wrong):
            trial()
    told = gpdsl.compile("# of counts\n\n" + COUNTS.replace("RBF(ell))", "RBF( ell ))  # smooth"))
    assert checkpoint.kept_before(told, {"steps": 2}, None, path) is not None


def test_files_are_a_minute_apart_or_twenty_times_what_one_takes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now, takes = [0.0], iter([1.0, 4.0])
    keep: Any = checkpoint.Checkpoint(tmp_path / "kept", Any)  # type: ignore[arg-type]
    keep.due, written = 5.0, list[float]()
    monkeypatch.setattr(checkpoint.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(keep, "_fit", lambda *_: "fit")
    monkeypatch.setattr(keep, "_better", lambda _: True)

    def save(_: object) -> None:
        written.append(now[0])
        now[0] += next(takes)

    monkeypatch.setattr(keep, "_save", save)
    for at, due in ((4.9, 5.0), (5.0, 66.0), (65.0, 66.0), (66.0, 70.0 + 80.0)):
        now[0] = at
        keep(None, 0.0, None, lambda: None, False)
        assert keep.due == pytest.approx(due)
    assert written == [5.0, 66.0]


def test_a_worse_state_does_not_take_the_place_of_a_better_one(data: dict[str, np.ndarray], tmp_path: Path) -> None:
    fit, path = gpdsl.compile(COUNTS).fit(data, steps=2), tmp_path / "a.gpfit"
    from dataclasses import replace

    better, worse = (replace(fit, elbo=value) for value in (-10.0, -20.0))
    made = {"better": better, "worse": worse, "none": replace(fit, elbo=float("nan"))}
    kept = checkpoint.Checkpoint(path, lambda result, *_: made[result], due=0.0)  # type: ignore[index]
    for said, ended, held in (
        ("none", False, None),
        ("worse", True, None),
        ("none", False, -20.0),
        ("better", False, -10.0),
        ("better", True, -10.0),
        ("worse", False, -10.0),
    ):
        kept.due = 0.0
        kept(fit.choice, 0.0, None, lambda said=said: said, ended)  # type: ignore[arg-type]
        assert (gpdsl.load_fit(path).elbo if path.exists() else None) == held


SINE = """model sine
input x : real
output n : count
param ell : positive = 3
param s2 : positive = 1
latent f(x) ~ GP(0, s2 * RBF(ell))
n ~ Poisson(exp(f))
"""
CHILD = """
import sys
from gpdsl.results import checkpoint
checkpoint.EVERY, checkpoint.SHARE = 0.0, 1e9
from gpdsl.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_the_command_goes_on_after_kill_9(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, 400)
    table = np.column_stack([x, rng.poisson(np.exp(np.sin(x)))])
    np.savetxt(tmp_path / "d.csv", table, delimiter=",", header="x,n", comments="")
    (tmp_path / "m.gpm").write_text(SINE)
    line = ["fit", "m.gpm", "--data", "d.csv", "--out", "m.gpfit", "--resume", "--set", "optimizer=adam"]
    line += ["--set", "steps=3000", "--set", "inducing=20", "--quiet"]
    start = [sys.executable, "-c", CHILD, *line]
    places: dict[str, Any] = {"cwd": tmp_path, "env": os.environ | {"PYTHONPATH": str(ROOT)}}
    process = subprocess.Popen(start, **places)
    deadline = time.monotonic() + 240
    while not (tmp_path / "m.gpfit").exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = gpdsl.load_fit(tmp_path / "m.gpfit")
    assert kept.interrupted
    done = subprocess.run(start, **places, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    fit = gpdsl.load_fit(tmp_path / "m.gpfit")
    assert not fit.interrupted and fit.elbo > kept.elbo - 5.0
    assert fit.history[-1, 0] < 3000  # what was left, not all of it again
