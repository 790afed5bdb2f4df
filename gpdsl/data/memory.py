"""Memory: what is too large for it is refused before it is read."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from gpdsl.data.errors import DataError
from gpdsl.data.file_mistakes import BeyondMemory

SMALL = 2**28
"""Bytes that nobody needs to ask for."""


def refuse_beyond_memory(needed: float, source: str) -> None:
    """Raise DataError where so many bytes are more than what is free."""
    if needed < SMALL:
        return
    free = free_memory()
    if needed > free:
        raise DataError(BeyondMemory(f"{needed / 2**30:.3g} GiB", f"{free / 2**30:.3g} GiB"), source=source)


def free_memory() -> float:
    """Bytes that can be had without swapping; infinite where the system does not say."""
    with suppress(OSError, ValueError, StopIteration), open("/proc/meminfo", encoding="ascii") as lines:
        return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    if sys.platform != "win32":
        with suppress(OSError, ValueError):
            return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return float("inf")
