"""Model files: read with a limit, since a path may lead to anything."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from gpdsl.errors import GpdslError
from gpdsl.language.limits import MAX_CHARACTERS

LARGEST = 4 * MAX_CHARACTERS
"""Bytes: of a text with too many characters enough is read to say so."""


def read_model(path: str | Path) -> str:
    """The text of a `.gpm` file, every line ended by a line feed. Raises GpdslError when it cannot be read."""
    return read_exactly(path).replace("\r\n", "\n").replace("\r", "\n")


def read_exactly(path: str | Path) -> str:
    """The text with its own line ends. Devices and pipes, which may have no end, are not opened."""
    try:
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise GpdslError(f"{path}: it is a device or a pipe, not a file")
        with open(path, "rb") as file:
            return decoded(file.read(LARGEST + 1), path)
    except OSError as error:
        raise GpdslError(f"{path}: {error.strerror}") from error
    except ValueError as error:  # a name with a NUL in it
        raise GpdslError(f"{path}: {error}") from error


def decoded(content: bytes, path: str | Path) -> str:
    """The text of so many bytes at most. Raises GpdslError for more, or other bytes."""
    if len(content) > LARGEST:
        raise GpdslError(f"{path}: it has more than {MAX_CHARACTERS} characters")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        if content[8:9] == b"{":  # of safetensors, after the length of the header
            read = "`gpdsl predict`, `gpdsl serve`, `gpdsl fit --start`, or gpdsl.load_fit in Python"
            raise GpdslError(f"{path}: it is a saved fit, not the text of a model; read it with {read}") from error
        raise GpdslError(f"{path}: not UTF-8 text (byte {error.start})") from error
