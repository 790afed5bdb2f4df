"""`gpdsl check` and `gpdsl zoo`: models in, mistakes or texts out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpdsl.cli import console, main

GOOD = "model m\ninput x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.1)\n"
BAD = GOOD.replace("Normal(f", "Normal(g")
REGISTERING = 'g.register_distribution("Shifted", {"m": "real"}, "real", "-abs(y - m) - log(2)")\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.gpm").write_text(GOOD)
    (tmp_path / "bad.gpm").write_text(BAD)
    (tmp_path / "latin.gpm").write_bytes(b"model m # \xe9\n")
    return tmp_path


def test_good_models_are_ok(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "good.gpm"]) == 0
    assert capsys.readouterr() == ("good.gpm: ok\n", "")


def test_the_mistakes_of_every_file_are_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "bad.gpm", "good.gpm", "absent.gpm", "latin.gpm"]) == 1
    printed, errors = capsys.readouterr()
    assert printed == "good.gpm: ok\n"
    assert "bad.gpm:5:12: error[E2" in errors
    assert "error: absent.gpm: No such file or directory" in errors
    assert "error: latin.gpm: not UTF-8 text (byte 10)" in errors


def test_a_table_is_no_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "d.csv").write_text("x,y\n1,2\n2,3\n3,4\n")
    for command in (["check", "d.csv"], ["fit", "d.csv", "--data", "d.csv"]):
        assert main(command) == 1
        errors = capsys.readouterr().err
        assert "error: d.csv: it is a table" in errors and "`gpdsl new --data d.csv`" in errors
        assert len(errors.splitlines()) == 1


def test_json_for_editors(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--format", "json", "bad.gpm", "good.gpm", "absent.gpm"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [each["file"] for each in found] == ["bad.gpm", "absent.gpm"]
    assert (found[0]["line"], found[0]["column"], found[0]["severity"]) == (5, 12, "error")


def test_json_of_a_good_model_is_an_empty_list(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--format", "json", "good.gpm"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_colour_on_a_terminal(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "wants_colour", lambda: True)
    main(["check", "bad.gpm"])
    assert "\x1b[" in capsys.readouterr().err


def test_no_colour_when_asked_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert console.wants_colour()
    monkeypatch.setenv("NO_COLOR", "1")
    assert not console.wants_colour()


def test_the_zoo_is_listed_with_titles(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("coal_mining ") and "Cox process" in line for line in lines)


def test_a_zoo_model_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    shipped = Path(__file__).resolve().parents[2] / "models" / "boston.gpm"
    assert main(["zoo", "boston"]) == 0
    assert capsys.readouterr().out == shipped.read_text()


def test_a_zoo_model_is_copied_but_nothing_is_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo", "boston", "--out", "mine.gpm"]) == 0
    assert main(["check", "mine.gpm"]) == 0
    assert main(["zoo", "wisconsin", "--out", "mine.gpm"]) == 1
    assert "mine.gpm: File exists" in capsys.readouterr().err
    assert "model boston" in Path("mine.gpm").read_text()


def test_an_unknown_zoo_model_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo", "london"]) == 1
    assert "london" in capsys.readouterr().err


def test_warnings_are_printed_and_fail_only_when_strict(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "odd.gpm").write_text(GOOD + "param spare : positive = 1\n")
    assert main(["check", "odd.gpm"]) == 0
    assert capsys.readouterr() == ("odd.gpm: ok\n", "")
    assert main(["check", "--pedantic", "odd.gpm", "good.gpm"]) == 0
    printed, errors = capsys.readouterr()
    assert printed == "odd.gpm: ok, 1 warning\ngood.gpm: ok\n"
    assert errors.startswith("odd.gpm:6:7: warning[W600]: the parameter `spare` is never used\n")
    assert main(["check", "--strict", "odd.gpm"]) == 1
    assert main(["check", "--strict", "good.gpm"]) == 0


def test_warnings_in_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "odd.gpm").write_text(GOOD + "param spare : positive = 1\n")
    assert main(["check", "--pedantic", "--format", "json", "odd.gpm"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(each["severity"], each["code"], each["line"]) for each in found] == [("warning", "W600", 6)]


def test_data_bring_the_spread_of_the_inputs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "d.csv").write_text("x,y\n0,1\n1000,2\n2000,0\n")
    assert main(["check", "--pedantic", "--data", "d.csv", "good.gpm"]) == 0
    assert "warning[W622]: the length-scale starts at 1, but the standard deviation of `x` is 82" in (
        capsys.readouterr().err
    )
    (folder / "other.csv").write_text("z,y\n0,1\n")
    assert main(["check", "--data", "other.csv", "good.gpm"]) == 1
    assert "error[D" in capsys.readouterr().err


def test_a_model_of_a_registered_distribution_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.gpm").write_text("input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Shifted(f)\n")
    registering = "import gpdsl as g\n" + REGISTERING
    (tmp_path / "d.py").write_text(registering)
    assert main(["check", str(tmp_path / "m.gpm")]) == 1
    assert "register it in Python" in capsys.readouterr().err
    for command in ("check", "latex", "graph", "info"):
        assert main([command, str(tmp_path / "m.gpm"), "--forward", str(tmp_path / "d.py")]) == 0
