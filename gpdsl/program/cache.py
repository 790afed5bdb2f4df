"""Compiled programs kept on disk between runs: the second fit of a model compiles in a fraction of the time.

`GPDSL_CACHE_DIR` names the folder, or says `off`; by default it is in the user's cache folder. A folder that cannot be
written to means no cache, and one that others could fill means none either, with a warning: its programs are run. A
cache that JAX has been given already is left as it is.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path

import jax

from gpdsl.errors import GpdslWarning
from gpdsl.program.private import intruder, made_private

VARIABLE = "GPDSL_CACHE_DIR"
OFF = ("off", "none", "no", "false", "0")

LARGEST = 1 << 30
"""Bytes; the oldest programs are dropped beyond it."""

WORTH_KEEPING = 0.1
"""Seconds of compilation from which on a program is kept."""


def keep_compiled_programs() -> None:
    """Turn JAX's persistent cache on, once, where that is possible, safe and wanted. Never raises."""
    if getattr(jax.config, "jax_compilation_cache_dir", None) is not None:
        return
    chosen = cache_folder()
    if chosen is None:
        return
    folder = _usable(chosen / _processor())
    if folder is None:
        return
    _prune(folder)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", WORTH_KEEPING)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def cache_folder() -> Path | None:
    """Where compiled programs are kept, or None when they are not."""
    chosen = os.environ.get(VARIABLE)
    if chosen is not None:
        return None if says_no(chosen) else Path(chosen).expanduser()
    with suppress(RuntimeError):  # no home folder
        return _user_cache() / "gpdsl"
    return None


def says_no(value: str) -> bool:
    """Whether what an environment variable holds turns something off, or says nothing."""
    return value.strip().lower() in ("", *OFF)


def _user_cache() -> Path:
    if sys.platform == "win32" and "LOCALAPPDATA" in os.environ:
        return Path(os.environ["LOCALAPPDATA"])
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    chosen = os.environ.get("XDG_CACHE_HOME")
    return Path(chosen) if chosen else Path.home() / ".cache"


def _processor() -> str:
    """A name for what this machine can execute: a home folder may be shared by machines that differ."""
    features = platform.processor()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        features = next((line for line in lines if line.startswith(("flags", "Features"))), features)
    return f"{platform.machine()}-{hashlib.sha256(features.encode()).hexdigest()[:12]}"


def _usable(folder: Path) -> Path | None:
    """The folder, with its links resolved, made when it is not there; None where files cannot be made or trusted."""
    try:
        folder = folder.resolve()
        made_private(folder)
        reason = intruder(folder)
        if not reason:
            with tempfile.TemporaryFile(dir=folder):
                return folder
    except (OSError, RuntimeError):  # a loop of links is a RuntimeError
        return None
    warnings.warn(
        f"compiled programs are not kept: {reason}, so that what is found in {folder} may not be yours; "
        f"let {VARIABLE} name a folder that only you can write to, or say `off`",
        GpdslWarning,
        stacklevel=2,
    )
    return None


def _prune(folder: Path) -> None:
    """Drop the programs used longest ago until the rest is small enough; another process may do the same."""
    with suppress(OSError):
        files = [(entry.stat(), entry.path) for entry in os.scandir(folder) if entry.is_file()]
        total = sum(status.st_size for status, _ in files)
        for status, path in sorted(files, key=lambda each: max(each[0].st_atime, each[0].st_mtime)):
            if total <= LARGEST:
                break
            with suppress(OSError):
                os.unlink(path)
            total -= status.st_size
