"""Files written whole or not at all: the new content takes the place of the old one once it is complete and on disk."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from gpdsl.errors import GpdslError


@contextmanager
def replacing(target: str | Path, mode: str = "w", lasting: bool = True) -> Iterator[IO[Any]]:
    """A file, open for text ("w", line ends as given) or bytes ("wb"), that takes the place of `target` in the end.

    The content is written to a temporary file beside it, which is gone after any failure, an interrupt included. A
    file that was there leaves its permissions to the new one, and a link stays a link: the file it leads to is
    replaced. When the block has ended, content and name survive a power cut, unless they need not be `lasting`. What is
    no file (a pipe, a device) is written to as it is. Raises OSError.
    """
    text: dict[str, Any] = {} if "b" in mode else {"newline": "", "encoding": "utf-8"}
    try:
        place = os.path.realpath(target)
        before = _status(target)
    except ValueError as problem:  # a name with a NUL or half a character in it
        raise OSError(errno.EINVAL, str(problem), str(target)) from problem
    if before is not None and not stat.S_ISREG(before.st_mode):
        with open(target, mode, **text) as file:  # as it was named: of `/dev/stdout` in a pipe there is no path
            yield file
        return
    folder = os.path.dirname(place)
    temporary = os.path.join(folder, f".gpdsl-{secrets.token_hex(8)}.tmp")  # short, whatever the target's name
    try:
        with open(temporary, mode.replace("w", "x"), **text) as file:
            yield file
            file.flush()
            if lasting:
                os.fsync(file.fileno())
        if before is not None:
            shutil.copymode(place, temporary)
        os.replace(temporary, place)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    if lasting:
        _keep_name(folder)


@contextmanager
def written(target: str | Path, mode: str = "w", said: str = "") -> Iterator[IO[Any]]:
    """The same; raises GpdslError, with what is `said` of the file, where it cannot be written."""
    try:
        with replacing(target, mode) as file:
            yield file
    except OSError as problem:
        raise GpdslError(f"{said or f'cannot write {target}'}: {problem.strerror}") from problem


def _status(place: str | Path) -> os.stat_result | None:
    """What is there; None where nothing is. Raises OSError for a folder."""
    try:
        found = os.stat(place)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(place))
    return found


def _keep_name(folder: str) -> None:
    """Have the folder's entries written to disk, where the system knows how."""
    if os.name != "posix":
        return
    with suppress(OSError):  # some file systems do not; the content is written already
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
