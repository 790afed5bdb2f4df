"""Model files: read up to a limit, whatever a path leads to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import gpdsl
from gpdsl import cli
from gpdsl.language.used import LARGEST


@pytest.fixture(params=["zero", "pipe", "large", "folder", "latin", "table", "fit", "absent", "NUL"])
def odd(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """A path, and why it is no model."""
    path = tmp_path / "m.gpm"
    match request.param:
        case "zero":
            path.symlink_to("/dev/zero")
            return str(path), "it is a device or a pipe, not a file"
        case "pipe":
            os.mkfifo(path)
            return str(path), "it is a device or a pipe, not a file"
        case "large":
            with path.open("wb") as file:
                file.truncate(2**40)  # a hole: it takes no room
            return str(path), "it has more than 250000 characters"
        case "folder":
            path.mkdir()
            return str(path), "Is a directory"
        case "latin":
            path.write_bytes(b"model \xff")
            return str(path), "not UTF-8 text (byte 6)"
        case "table":
            path = path.with_suffix(".csv")
            path.write_bytes(b"x,y\n1,2\n")
            return str(path), "gpdsl new --data"
        case "fit":  # a large one
            path.write_bytes(b"12345678{" + bytes(LARGEST))
            return str(path), "it is a saved fit, not the text of a model; read it with `gpdsl predict`"
        case "absent":
            return str(path), "No such file or directory"
    return "a\0b.gpm", "embedded null"


def test_paths_that_are_no_models_say_why(odd: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    path, reason = odd
    with pytest.raises(gpdsl.GpdslError) as caught:
        gpdsl.load(path)
    assert reason in str(caught.value)
    for command in ("check", "latex", "info", "graph", "fmt"):
        if command == "fmt" and Path(path.replace("\0", "")).is_dir():
            continue  # all models of a folder: none
        assert cli.main([command, path]) == 1
        assert reason in capsys.readouterr().err


def test_line_ends_of_all_systems_are_read(tmp_path: Path) -> None:
    text = "model m\ninput x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 1)\n"
    for end in ("\r\n", "\r", "\n"):
        (tmp_path / "m.gpm").write_bytes(text.replace("\n", end).encode())
        assert gpdsl.load(tmp_path / "m.gpm").name == "m"
    assert LARGEST >= 1_000_000
