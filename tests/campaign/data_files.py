"""Data files that are none, or hardly: damaged, of odd values, shapes and members, and of sizes that only a header has.

Each is read and bound to three models, within ten seconds; a device or a pipe is refused without being opened.
"""

from __future__ import annotations

import io
import os
import random
import signal
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import numpy as np

from gpdsl.data import bind
from gpdsl.data.files import write_table
from tests.campaign.outcomes import Hung, Outcomes, watch
from tests.data import models

NAME = "data files"
WHOLE = 1_000
SECONDS = 10
"""That one file may take."""

AGAIN = 0.1
"""Seconds between alarms from then on."""

MODELS = (models.REAL, models.vector(), models.label(), models.COUNT)
VALUES = (
    *(
        "1",
        "2.5",
        "-3",
        "",
        "NA",
        "inf",
        "-inf",
        "nan",
        "1e400",
        "1_000",
        "0x10",
        "٣",
        "½",
        "9" * 400,
        "1e-999",
        "True",
    ),
    *("a", "\x1b[31m", "\0", "\u202e", "=cmd|'/c calc'!A1", '"', "'", "{0.__class__}", "x" * 200_000, "1,2", "1;2"),
)
SHAPES = ("(3,)", "(0,)", "()", "(-1,)", "(1000000000000000,)", "(9" + "9" * 30 + ",)", "(2, 2)", "(" * 50, "(1,) * 9")
KINDS = ("<f8", "<i8", "|O", "<U3", "<M8[ns]", "<c16", "|V8", "?", "<f2", "garbage", "<U99999999", "[('a', '<f8')]")


def run(scale: float, seed: int) -> dict[str, int]:
    """Try so many files of each sort."""
    watch()
    outcomes, chance = Outcomes(), random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(max(round(WHOLE * scale), len(SORTS))):
            sort = SORTS[number % len(SORTS)]
            path = sort(Path(folder), chance)
            model = chance.choice(MODELS)
            outcomes.attempt(f"{sort.__name__} {number}", lambda path=path, model=model: _bound(model, path))
            if path.is_dir():
                for each in path.iterdir():
                    each.unlink()
                path.rmdir()
            else:
                path.unlink()
    return dict(outcomes.counts)


def _bound(model: models.Declarations, path: Path) -> None:
    with limited():
        data = bind(model, path)
    assert data.rows > 0
    assert all(np.isfinite(each).all() for each in data.inputs.values() if each.dtype != object)


@contextmanager
def limited() -> Iterator[None]:
    """Raise Hung after the seconds that a file may take, again and again: a destructor, or what catches all, loses one.

    What was lost every time is raised in the end.
    """
    hung = Hung(f"more than {SECONDS} s")
    rung = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal rung
        rung = True
        raise hung

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS, AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if rung:
            raise hung


def _columns(chance: random.Random) -> dict[str, np.ndarray]:
    rows = chance.choice((1, 2, 7))
    names = chance.choice(("x y", "x1 x2 y", "x1 x3 y", "x x1 y", "x0 x1 y", "y")).split()
    return {name: np.array([chance.gauss(0, 1) for _ in range(rows)]) for name in names}


def _damaged(content: bytes, chance: random.Random) -> bytes:
    """Bytes changed, cut off, repeated or put in."""
    data = bytearray(content)
    for _ in range(chance.choice((0, 1, 1, 3, 20))):
        place = chance.randrange(len(data) + 1)
        match chance.randrange(4):
            case 0:
                data[place : place + 1] = bytes([chance.randrange(256)])
            case 1:
                del data[place : place + chance.choice((9, 9, 9, len(data)))]
            case 2:
                data[place:place] = bytes(chance.randrange(256) for _ in range(9))
            case 3:
                data[place:place] = bytes(data[place : place + 40]) * 3
    return bytes(data)


def odd_text(folder: Path, chance: random.Random) -> Path:
    """A CSV file of odd values."""
    names = list(_columns(chance))
    lines = [",".join(names)] + [",".join(chance.choice(VALUES) for _ in names) for _ in range(chance.randrange(9))]
    text = chance.choice(("\n", "\r\n", "\r", "\n\n")).join(lines)
    path = folder / "odd.csv"
    path.write_bytes(_damaged(text.encode("utf-8", "replace"), chance) if chance.random() < 0.5 else text.encode())
    return path


def damaged_file(folder: Path, chance: random.Random) -> Path:
    """A good file of any format with some bytes changed."""
    path = folder / f"damaged.{chance.choice(('csv', 'tsv', 'npz', 'parquet'))}"
    write_table(_columns(chance), path)
    path.write_bytes(_damaged(path.read_bytes(), chance))
    return path


def _header(chance: random.Random) -> bytes:
    kind = chance.choice(KINDS)
    text = f"{{'descr': {kind if kind[0] == '[' else repr(kind)}, 'fortran_order': {chance.choice((True, False))}, "
    content = (text + f"'shape': {chance.choice(SHAPES)}, }}").encode()
    return b"\x93NUMPY\x01\x00" + len(content).to_bytes(2, "little") + content + bytes(chance.choice((0, 16, 24, 999)))


def odd_archive(folder: Path, chance: random.Random) -> Path:
    """An archive with members that are no arrays, promise anything, or unfold to much more."""
    good = io.BytesIO()
    np.save(good, np.arange(3.0))
    members = {"x": good.getvalue(), "y": good.getvalue(), "z": b"no array"}
    for name in ("x", "y"):
        if chance.random() < 0.7:
            members[name] = _header(chance)
    pickled = b"\x80\x04cos\nsystem\n(S'touch hacked'\ntR."
    if chance.random() < 0.2:
        members["y"] = members["y"][:90] + pickled
    path = folder / "odd.npz"
    method = chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA))
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name + chance.choice((".npy", ".npy", "")), content)
    if chance.random() < 0.3:
        path.write_bytes(_damaged(path.read_bytes(), chance))
    return path


def odd_folder(folder: Path, chance: random.Random) -> Path:
    """A folder of memory maps, with headers that lie."""
    path = folder / "maps"
    path.mkdir()
    for name in ("x", "y"):
        (path / f"{name}.npy").write_bytes(_header(chance))
    return path


def no_file(folder: Path, chance: random.Random) -> Path:
    """What has no end, or nobody at the other end."""
    path = folder / f"none.{chance.choice(('csv', 'npz', 'parquet', 'txt'))}"
    match chance.randrange(4):
        case 0:
            path.symlink_to(chance.choice(("/dev/zero", "/dev/random", "/dev/null")))
        case 1:
            os.mkfifo(path)
        case 2:
            path.symlink_to(path)
        case 3:
            with path.open("wb") as file:
                file.truncate(2**42)  # a hole, of four tebibytes
    return path


SORTS = (odd_text, damaged_file, odd_archive, damaged_file, odd_text, odd_folder, no_file)
