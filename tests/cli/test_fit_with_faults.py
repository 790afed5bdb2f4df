"""`gpdsl fit` with opaque functions in worker processes: killed, failing for good, and going on from what was saved."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gpdsl
from gpdsl.cli import main
from gpdsl.errors import GpdslWarning
from gpdsl.forward import registry

DOUBLE = (
    "model double\ninput x : real\noutput y : real\nexternal double(a: real) -> real\n"
    "latent f(x) ~ GP(0, RBF(1))\nlet r = double(f)\ny ~ Normal(r, 0.3)\n"
)
SOLVER = """
import os, signal
from pathlib import Path
import gpdsl

CALLS = Path(__file__).with_name("calls")

@gpdsl.register_forward_model("double", executor="processes", workers=2)
def double(a):
    number = len(CALLS.read_text()) if CALLS.exists() else 0
    with CALLS.open("a") as file:
        file.write(".")
    if number == 6 and not os.environ.get("GPDSL_TEST_FAIL"):
        os.kill(os.getpid(), signal.SIGKILL)
    if number > 8 and os.environ.get("GPDSL_TEST_FAIL"):
        raise RuntimeError("the disk is full")
    return 2 * a
"""


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(registry, "_REGISTERED", {})
    x = np.linspace(0, 6, 20)
    np.savetxt(tmp_path / "d.csv", np.column_stack([x, 2 * np.sin(x)]), delimiter=",", header="x,y", comments="")
    (tmp_path / "m.gpm").write_text(DOUBLE)
    (tmp_path / "solver.py").write_text(SOLVER)
    choices = [part for choice in ("optimizer=adam", "samples=8", "steps=8") for part in ("--set", choice)]
    places = ["--forward", str(tmp_path / "solver.py"), "--out", str(tmp_path / "m.gpfit")]
    return ["fit", str(tmp_path / "m.gpm"), "--data", str(tmp_path / "d.csv"), "--quiet", *choices, *places]


@pytest.mark.slow
def test_a_worker_killed_in_mid_fit_changes_nothing(
    tmp_path: Path, line: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line) == 0
    assert "simulator   " in capsys.readouterr().out
    data = np.genfromtxt(tmp_path / "d.csv", delimiter=",", names=True)
    model = gpdsl.load(tmp_path / "m.gpm", externals={"double": lambda a: 2 * a})
    here = model.fit({"x": data["x"], "y": data["y"]}, optimizer="adam", samples=8, steps=8)
    there = gpdsl.load_fit(tmp_path / "m.gpfit")
    np.testing.assert_allclose(there.posterior[0].mean, here.posterior[0].mean, rtol=1e-9)
    assert len((tmp_path / "calls").read_text()) > 2 * 9


@pytest.mark.slow
def test_a_fault_saves_the_state_from_which_the_fit_goes_on(
    tmp_path: Path, line: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPDSL_TEST_FAIL", "yes")
    assert main(line) == 1
    said = capsys.readouterr().err
    assert "the disk is full" in said
    assert f"go on with --start {tmp_path / 'm.gpfit'}" in said
    monkeypatch.delenv("GPDSL_TEST_FAIL")
    assert main([*line, "--start", str(tmp_path / "m.gpfit")]) == 0


COUNTED = """
from pathlib import Path
import gpdsl

print("registering")

@gpdsl.register_forward_model("double")
def double(a):
    print("called")
    with Path(__file__).with_name("calls").open("a") as file:
        file.write("." * len(a))
    return abs(a)
"""


def test_predictions_obey_a_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", {})
    model, data, saved = tmp_path / "double.gpm", tmp_path / "rows.csv", str(tmp_path / "double.gpfit")
    model.write_text(DOUBLE)
    (tmp_path / "counted.py").write_text(COUNTED)
    data.write_text("x,y\n" + "".join(f"{x},{abs(np.sin(x))}\n" for x in np.linspace(0, 3, 6)))
    forward = ["--forward", str(tmp_path / "counted.py")]
    few = ["--set", "optimizer=adam", "--set", "steps=3", "--set", "samples=4"]
    assert main(["fit", str(model), *forward, "--data", str(data), "--out", saved, *few]) == 0
    (tmp_path / "calls").unlink()
    table = ["--data", str(data), "--log-density"]
    capsys.readouterr()
    with pytest.warns(GpdslWarning, match="evaluations = 120 are too few"):
        assert main(["predict", saved, *forward, *table, "--evaluations", "240"]) == 0
    assert 60 < len((tmp_path / "calls").read_text()) <= 240
    printed = capsys.readouterr()
    assert [len(line.split(",")) for line in printed.out.splitlines()] == [5] * 7
    assert {"registering", "called"} <= set(printed.err.splitlines())
    for wrong in ("1", "0.5", "-3", "many"):
        assert main(["predict", saved, *forward, *table, "--evaluations", wrong]) == 1
