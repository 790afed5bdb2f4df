"""Files are replaced whole or not at all, whatever goes wrong, and stay what they were: links, permissions."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import gpdsl
from gpdsl.data import bind
from gpdsl.data.files import FORMATS, write_table
from gpdsl.replacing import replacing


def write(path: Path, text: str = "new") -> None:
    with replacing(path) as file:
        file.write(text)


@pytest.mark.parametrize("trouble", [OSError, KeyboardInterrupt, MemoryError])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, trouble: type[BaseException]) -> None:
    (tmp_path / "a").write_text("old")
    with pytest.raises(trouble), replacing(tmp_path / "a") as file:
        file.write("half")
        raise trouble
    assert [p.name for p in tmp_path.iterdir()] == ["a"] and (tmp_path / "a").read_text() == "old"


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_what_fails_last_leaves_nothing_either(tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "a").write_text("old")
    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="No space"):
        write(tmp_path / "a")
    assert [p.name for p in tmp_path.iterdir()] == ["a"] and (tmp_path / "a").read_text() == "old"


def test_permissions_and_links_stay(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "a").chmod(0o640)
    (tmp_path / "link").symlink_to("a")
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "a").read_text() == "new"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_a_new_file_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    write(tmp_path / "a")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_link_to_nothing_gets_its_file_and_long_names_do_too(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("later")
    for name in ("link", "n" * 255):
        write(tmp_path / name)
    assert (tmp_path / "later").read_text() == (tmp_path / ("n" * 255)).read_text() == "new"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()))
    reader.start()
    write(tmp_path / "pipe")
    reader.join(10)
    assert read == ["new"] and (tmp_path / "pipe").is_fifo()


@pytest.mark.skipif(not os.path.exists("/dev/fd"), reason="open files have no names here")
def test_a_pipe_without_a_name_is_written_to() -> None:
    """As `--out /dev/stdout` before `| head` is."""
    end, start = os.pipe()
    write(Path(f"/dev/fd/{start}"))
    os.close(start)
    with open(end) as file:
        assert file.read() == "new"


def test_content_and_name_are_on_disk_before_it_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def noted(name: str, call: Callable[..., object]) -> Callable[..., object]:
        return lambda *given: (done.append(name), call(*given))[1]

    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, noted(name, getattr(os, name)))
    write(tmp_path / "a")
    assert done == ["fsync", "replace", "fsync"]


@pytest.mark.parametrize("suffix", sorted(FORMATS))
def test_tables_of_every_format_replace_a_file_and_keep_its_link(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"a{suffix}").write_text("old")
    (tmp_path / f"a{suffix}").chmod(0o604)
    (tmp_path / f"link{suffix}").symlink_to(f"a{suffix}")
    write_table({"x": np.arange(3.0), "y": np.arange(3.0)}, tmp_path / f"link{suffix}")
    assert (tmp_path / f"link{suffix}").is_symlink()
    assert (tmp_path / f"a{suffix}").stat().st_mode & 0o777 == 0o604
    model = gpdsl.compile("model m\ninput x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 1)")
    assert bind(model.declarations, str(tmp_path / f"a{suffix}")).rows == 3


def test_an_unwritable_place_is_told(tmp_path: Path) -> None:
    with pytest.raises(gpdsl.GpdslError, match="cannot write"):
        write_table({"x": np.arange(3.0)}, tmp_path / "nowhere" / "a.csv")
    with pytest.raises(OSError, match="directory"):
        write(tmp_path)
