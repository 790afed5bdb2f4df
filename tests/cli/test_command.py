"""The command as a whole: exit codes, where things are printed, and what is loaded."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from gpdsl.cli import COMMANDS, main
from gpdsl.cli.console import plain_warnings
from gpdsl.errors import GpdslWarning

ROOT = Path(__file__).resolve().parents[2]


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert set(re.findall(r"(?m)^ {4}(\w+)", printed)) >= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert f"usage: gpdsl {command}" in capsys.readouterr().out


@pytest.mark.parametrize("line", [[], ["train"], ["fit"], ["fit", "m.gpm"], ["check", "--format", "xml", "m.gpm"]])
def test_a_wrong_command_line_is_2(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line) == 2
    assert "usage: gpdsl" in capsys.readouterr().err


def test_an_option_in_another_spelling_names_the_one_that_is_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "m.gpm", "--data", "d.csv", "--standardize"]) == 2
    told = capsys.readouterr().err
    assert (
        told.endswith("unrecognized arguments: --standardize; did you mean --standardise?\n")
        and "usage: gpdsl fit" in told
    )


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "gpdsl 0.1.0\n"


def test_an_interrupt_before_the_fit_is_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> list[str]:
        raise KeyboardInterrupt

    monkeypatch.setattr("gpdsl.zoo_names", interrupted, raising=False)
    assert main(["zoo"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize("line", [["check", "models/boston.gpm"], ["zoo"], ["zoo", "boston"], ["--help"]])
def test_light_commands_load_no_jax(line: list[str]) -> None:
    code = f"import sys; from gpdsl.cli import main; main({line!r}); sys.exit('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_closed_pipe_is_no_error() -> None:
    command = [sys.executable, "-m", "gpdsl.cli", "zoo", "boston"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    process.stdout.close()
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, b"")


def test_an_option_before_the_command_is_refused_with_its_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """Only the command that is asked for has arguments, wherever it stands."""
    assert main(["--foo", "zoo"]) == 2
    assert "unrecognized arguments: --foo" in capsys.readouterr().err


def test_two_dashes_are_no_value(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "boston", "--data", "x.csv", "--set=--"]) == 2
    assert "argument --set: expected a value, got --" in capsys.readouterr().err


def test_warnings_are_one_line() -> None:
    usual = warnings.formatwarning
    with plain_warnings():
        assert warnings.formatwarning(GpdslWarning("too few"), GpdslWarning, "a.py", 3) == "warning: too few\n"
        assert "a.py:3" in warnings.formatwarning("other", UserWarning, "a.py", 3, "")
    assert warnings.formatwarning is usual


def test_a_full_disk_and_no_output_at_all_are_no_crash() -> None:
    command = f"{shlex.quote(sys.executable)} -m gpdsl zoo"
    full = subprocess.run(f"{command} >/dev/full", shell=True, capture_output=True, text=True, check=False)
    assert (full.returncode, full.stderr) == (1, "error: what is printed cannot be written: No space left on device\n")
    closed = subprocess.run(f"{command} >&-", shell=True, capture_output=True, text=True, check=False)
    assert (closed.returncode, closed.stderr) == (0, "")
