"""Arguments to values, and the mistakes in them."""

from __future__ import annotations

import shlex
from argparse import Namespace
from pathlib import Path

import pytest

import gpdsl
from gpdsl.cli import main, make_parser
from gpdsl.cli.options import check_writable, choices_of, columns_of, run_forward_files, standardise_of, value_of
from gpdsl.errors import GpdslError
from gpdsl.forward import registry


def parsed(*line: str) -> Namespace:
    return make_parser().parse_args(["fit", "m.gpm", "--data", "d.csv", *line])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("0.5", 0.5),
        ("1e-3", 0.001),
        ("true", True),
        ("false", False),
        ("No", "No"),
        ("mixture(2)", "mixture(2)"),
    ],
)
def test_values(text: str, value: object) -> None:
    found = value_of(text)
    assert (found, type(found)) == (value, type(value))


def test_choices() -> None:
    found = choices_of(parsed("--set", "posterior=mixture(2)", "--set", "inducing=100", "--fix", "m", "--fix", "s2"))
    assert found == {"posterior": "mixture(2)", "inducing": 100, "fixed": ["m", "s2"]}


def test_initial_values() -> None:
    assert choices_of(parsed("--init", "ell=2", "--init", "s=1,2.5")) == {"init": {"ell": 2.0, "s": [1.0, 2.5]}}


MODEL = """model m
input x : real[2]
input z : real
output y : real
latent f(x, z) ~ GP(0, RBF(1))
y ~ Normal(f, 0.1)
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("y=count", "count"),
        ("y=a=b", "a=b"),
        ("x=age,size", ["age", "size"]),
        ("x=both", "both"),
        ("z=well, no", "well, no"),
        ('z="so", he said', '"so", he said'),
        ('x="well, no",size', ["well, no", "size"]),
        ("absent=a,b", ["a", "b"]),
    ],
)
def test_columns(text: str, found: object) -> None:
    name = text.partition("=")[0]
    assert columns_of(parsed("--column", text), gpdsl.compile(MODEL).declarations) == {name: found}


ODD = """model odd
input z : real
output y : real
latent f(z) ~ GP(0, RBF(1))
y ~ Normal(f, 0.1)
"""


@pytest.mark.parametrize(
    "line",
    [
        ["check", "m.gpm", "--data", "d.csv"],
        ["explain", "m.gpm", "--data", "d.csv"],
        ["simulate", "m.gpm", "--inputs", "d.csv"],
    ],
)
def test_what_a_missing_column_is_told_to_do_works(
    line: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command that reads data takes the remedy of D101, as a shell splits it."""
    monkeypatch.chdir(tmp_path)
    Path("m.gpm").write_text(ODD.replace("z", "well_no"))
    Path("d.csv").write_text('"Well, no",y\n1,2\n2,3\n4,1\n')
    assert main(line) == 1
    advice = capsys.readouterr().err
    assert "did you mean the column `Well, no`?" in advice
    remedy = shlex.split(advice[advice.index("--column") : advice.index(" on the command line")])
    assert remedy == ["--column", "well_no=Well, no"]
    assert main([*line, *remedy]) == 0


def test_what_check_standardises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A length-scale of 1 is far from what inputs of 1000 spread by, and not from what they do as the fit sees them."""
    monkeypatch.chdir(tmp_path)
    Path("m.gpm").write_text(ODD)
    Path("d.csv").write_text("z,y\n1000,2\n2000,3\n4000,1\n")
    assert main(["check", "m.gpm", "--standardise"]) == 1
    assert "no data to standardise" in capsys.readouterr().err
    for more, count in (([], 1), (["--standardise", "z"], 0)):
        assert main(["check", "m.gpm", "--pedantic", "--data", "d.csv", *more]) == 0
        assert capsys.readouterr().err.count("warning[") == count


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["--set", "posterior"], "--set posterior: expected --set NAME=VALUE"),
        (["--set", "seed="], "--set seed=: expected --set NAME=VALUE"),
        (["--set", "seed=1", "--set", "seed=2"], "`seed` is given twice"),
        (["--init", "ell=long"], "--init ell=long: expected a number, or several separated by commas"),
        (["--init", "ell=inf"], "--init ell=inf: expected finite numbers"),
    ],
)
def test_wrong_choices(line: list[str], words: str) -> None:
    with pytest.raises(GpdslError) as caught:
        choices_of(parsed(*line))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["--out", "nowhere/fit.gpfit"], "does not exist"),
        (["--out", "."], "this is a folder"),
        (["--plot", "fit.doc"], "expected a name ending in .png, .pdf, .svg"),
    ],
)
def test_files_that_cannot_be_written_are_refused_before_the_fit(
    line: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", "absent.gpm", "--data", "absent.csv", *line]) == 1
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["fit", "m.gpm", "--data", "d.csv", "--out", "./d.csv"], "--out ./d.csv: that is the file of --data"),
        (["predict", "f", "--data", "d.csv", "--out", "f"], "--out f: that is the file of fit"),
        (["simulate", "m.gpm", "--out", "a.csv", "--truth", "a.csv"], "--out a.csv: that is the file of --truth"),
        (["latex", "m.gpm", "--out", "m.gpm"], "--out m.gpm: that is the file of model"),
    ],
)
def test_what_a_command_reads_is_not_written_over(
    line: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line) == 1
    assert words in capsys.readouterr().err


def test_a_folder_that_may_not_be_written_is_refused_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(GpdslError, match="--out a.csv: nothing may be written to the folder"):
        check_writable("--out", "a.csv")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ([], None),
        (["--standardise"], True),
        (["--standardise", "x", "--standardise", "y=2,1e1"], {"x": None, "y": (2.0, 10.0)}),
        (["--set", "standardise=true"], True),
        (["--set", "standardise=false"], False),
        (["--set", "standardise=x, y"], ["x", "y"]),
    ],
)
def test_what_is_standardised(line: list[str], found: object) -> None:
    assert standardise_of(parsed(*line)) == found
    assert "standardise" not in choices_of(parsed(*line))


def test_standardising_is_asked_for_once() -> None:
    with pytest.raises(GpdslError, match="x,z: one name at a time, --standardise x --standardise z$"):
        standardise_of(parsed("--standardise", "x,z"))
    with pytest.raises(GpdslError, match="--set standardise=true and --standardise: leave one of them out"):
        standardise_of(parsed("--standardise", "x", "--set", "standardise=true"))


@pytest.mark.parametrize("texts", [["x=1"], ["x=1,2,3"], ["x=a,b"], ["x", ""]])
def test_wrong_standardising(texts: list[str]) -> None:
    with pytest.raises(GpdslError, match="--standardise"):
        standardise_of(parsed(*(each for text in texts for each in ("--standardise", text))))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_REGISTERED", {})
    return tmp_path


REGISTERS = "import gpdsl\ngpdsl.register_forward_model('double', lambda a: 2 * a)\n"


@pytest.mark.parametrize("name", ["solver_of_test.py", "solver_of_test"])
def test_a_forward_file_registers(folder: Path, name: str) -> None:
    (folder / "solver_of_test.py").write_text(REGISTERS)
    run_forward_files([name])
    assert set(registry._REGISTERED) == {"double"}


def test_a_forward_file_that_fails_names_the_line(folder: Path) -> None:
    (folder / "solver.py").write_text("import gpdsl\n\nvalue = 1 / 0\n")
    with pytest.raises(GpdslError) as caught:
        run_forward_files(["solver.py"])
    assert str(caught.value) == "--forward solver.py: ZeroDivisionError: division by zero (line 3)"
    (folder / "solver.py").write_text("import sys\n\nsys.exit(0)\n")
    with pytest.raises(GpdslError, match=r"SystemExit: 0 \(line 3\)"):
        run_forward_files(["solver.py"])


@pytest.mark.parametrize("name", ["absent.py", "no_module_of_this_name"])
def test_an_absent_forward_file(folder: Path, name: str) -> None:
    with pytest.raises(GpdslError, match=f"--forward {name}: "):
        run_forward_files([name])
