"""`gpdsl simulate` as a user runs it: a table that the other commands take, its truth, and what is refused."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from gpdsl.cli import main

MODEL = """model small
input  x : real[D]
output y : real
output n : count
param  sigma : positive = 0.1 ~ Gamma(2, 1)
latent f(x) ~ GP(0, RBF(1))
external double(f: real) -> real
let g = double(f)
y ~ Normal(g, sigma)
n ~ Poisson(exp(f))
"""
FORWARD = "import gpdsl\ngpdsl.register_forward_model('double', lambda f: print('doubling') or 2 * f)\n"


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The beginning of a command line, in a folder with the model and its opaque function."""
    (tmp_path / "small.gpm").write_text(MODEL)
    (tmp_path / "double.py").write_text(FORWARD)
    monkeypatch.chdir(tmp_path)
    return ["simulate", "small.gpm", "--forward", "double.py"]


def read(name: str) -> dict[str, list[float]]:
    with Path(name).open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {column: [float(row[column]) for row in rows] for column in rows[0]}


def test_data_and_truth_are_written_and_explained(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    line = [*command, "--rows", "12", "--seed", "4", "--size", "D=3", "--out", "d.csv", "--truth", "t.csv"]
    assert main(line) == 0
    told = capsys.readouterr().err
    assert "parameters: sigma = 0.1" in told and "d.csv" in told and "t.csv" in told
    data, truth = read("d.csv"), read("t.csv")
    assert list(data) == ["x1", "x2", "x3", "y", "n"]
    assert list(truth) == ["f", "g"]
    assert truth["g"] == [2 * value for value in truth["f"]]
    assert main(["explain", "small.gpm", "--forward", "double.py", "--data", "d.csv"]) == 0


def test_same_seed_same_data_also_on_the_screen(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    seen = []
    for seed in ("1", "1", "2"):
        assert main([*command, "--rows", "5", "--seed", seed]) == 0
        seen.append(capsys.readouterr())
    assert seen[0].out == seen[1].out != seen[2].out
    assert seen[0].out.startswith("x1,x2,y,n\n") and "doubling" in seen[0].err
    assert "D = 2; choose others as in --size D=3" in seen[0].err


def test_inputs_parameters_and_priors(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("in.csv").write_text("a,b\n0,1\n1,2\n5,7\n")
    given = ["--inputs", "in.csv", "--column", "x=a,b", "--out", "d.csv"]
    assert main([*command, *given, "--set", "sigma=1e-9", "--truth", "t.csv"]) == 0
    assert read("d.csv")["x1"] == [0, 1, 5]
    assert read("d.csv")["y"] == pytest.approx(read("t.csv")["g"], abs=1e-7)
    capsys.readouterr()
    assert main([*command, *given, "--draw-parameters"]) == 0
    assert "sigma = 0.1" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--size", "D=many"], "--size D=many: expected a whole number"),
        (["--size", "E=2"], "error[D137]: the model has no size `E`"),
        (["--set", "sigma=-1"], "sigma"),
        (["--set", "s=1"], "error[D137]: the model has no parameter `s`"),
        (["--rows", "0"], "error[D138]: rows is 0"),
        (["--out", "d.xlsx"], "expected a name ending in .csv"),
        (["--out", "no/such/d.csv"], "does not exist"),
        (["--inputs", "absent.csv"], "absent.csv"),
    ],
)
def test_refused(command: list[str], options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, *options]) == 1
    told = capsys.readouterr()
    assert message in told.err
    assert "Traceback" not in told.err
    assert not list(Path().glob("d.*"))


def test_without_the_opaque_function(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    # Other tests of this process may have registered it: a name that nobody registers.
    Path("small.gpm").write_text(MODEL.replace("double", "nobody_registers_this"))
    assert main(command[:2]) == 1
    assert "error[F101]" in capsys.readouterr().err
