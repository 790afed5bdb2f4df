"""Folders that nobody else can put files into: what is found there is run, so it must be the user's own."""

from __future__ import annotations

import os
import stat
from pathlib import Path

ROOT = 0


def made_private(folder: Path) -> None:
    """Make a folder and every level above it that is missing, each for the user alone."""
    for level in (*reversed(folder.parents), folder):
        if not level.exists():
            level.mkdir(mode=0o700, exist_ok=True)


def intruder(folder: Path) -> str:
    """Why a folder, with its links resolved, is not the user's alone to fill: which level, and who else; or nothing.

    A level is safe that the user or the administrator owns and nobody else may write to. Above the folder the sticky
    bit will do, as of `/tmp`: there others cannot replace what is not theirs.
    """
    if not hasattr(os, "getuid"):
        return ""
    for level in (folder, *folder.parents):
        found = level.stat()
        if found.st_uid not in (os.getuid(), ROOT):
            return f"{level} belongs to {_user(found.st_uid)}"
        others = found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and not _own_group(found.st_gid))
        if others and (level == folder or not found.st_mode & stat.S_ISVTX):
            return f"others may write to {level}"
    return ""


def _user(number: int) -> str:
    import pwd

    try:
        return f"the user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"the user {number}"


def _own_group(number: int) -> bool:
    """Whether a group is the one that many systems give each user, in which nobody else is."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.getuid()), grp.getgrgid(number)
    except KeyError:
        return False
    return number == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
