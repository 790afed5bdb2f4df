"""`gpdsl fmt`: files in, the same models out, laid out; or only told about."""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path

import pytest

from gpdsl.cli import main

UGLY = "model  m\r\ninput x:real\r\n"
NEAT = "model m\r\ninput x : real\r\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ugly.gpm").write_bytes(UGLY.encode())
    (tmp_path / "neat.gpm").write_bytes(NEAT.encode())
    (tmp_path / "broken.gpm").write_text("model\n")
    return tmp_path


def test_files_are_rewritten_with_their_line_ends_and_permissions(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "ugly.gpm").chmod(0o640)
    assert main(["fmt", "ugly.gpm", "neat.gpm"]) == 0
    assert capsys.readouterr().out == "ugly.gpm: formatted\n"
    assert (folder / "ugly.gpm").read_bytes() == NEAT.encode()
    assert stat.S_IMODE((folder / "ugly.gpm").stat().st_mode) == 0o640
    assert sorted(os.listdir(folder)) == ["broken.gpm", "neat.gpm", "ugly.gpm"]


def test_a_link_stays_a_link(folder: Path) -> None:
    (folder / "link.gpm").symlink_to("ugly.gpm")
    assert main(["fmt", "link.gpm"]) == 0
    assert (folder / "link.gpm").is_symlink() and (folder / "ugly.gpm").read_bytes() == NEAT.encode()


def test_check_lists_and_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fmt", "--check", "ugly.gpm", "neat.gpm"]) == 1
    assert capsys.readouterr().out == "ugly.gpm: would be formatted\n"
    assert (folder / "ugly.gpm").read_bytes() == UGLY.encode()
    assert main(["fmt", "--check", "neat.gpm"]) == 0


def test_diff_shows_and_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "ugly.gpm").write_text("model m\ninput x:real")
    assert main(["fmt", "--diff", "ugly.gpm", "neat.gpm"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "--- ugly.gpm",
        "+++ ugly.gpm (formatted)",
        "@@ -1,2 +1,2 @@",
        " model m",
        "-input x:real",
        "\\ No newline at end of file",
        "+input x : real",
    ]
    assert (folder / "ugly.gpm").read_text() == "model m\ninput x:real"


def test_standard_input_to_standard_output(
    folder: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(UGLY.encode())))
    assert main(["fmt", "-"]) == 0
    assert capsysbinary.readouterr().out == NEAT.encode()


def test_a_broken_file_is_left_alone_and_the_others_go_on(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "latin.gpm").write_bytes(b"model m # \xe9\n")
    assert main(["fmt", "broken.gpm", "absent.gpm", "latin.gpm", "ugly.gpm"]) == 1
    printed, errors = capsys.readouterr()
    assert printed == "ugly.gpm: formatted\n"
    assert "broken.gpm:1:6: error[E103]" in errors
    assert "error: absent.gpm: No such file or directory" in errors
    assert "error: latin.gpm: not UTF-8 text (byte 10)" in errors
    assert (folder / "broken.gpm").read_text() == "model\n"


def test_a_folder_is_all_its_models(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "ugly.gpm").rename(folder / "deep" / "er" / "ugly.gpm")
    assert main(["fmt", "--check", "deep"]) == 1
    assert "ugly.gpm: would be formatted" in capsys.readouterr().out
