"""What a fit asks of the machine: threads of the linear algebra libraries, and memory that stays with the process.

Threads: one for small matrices, and where others keep the cores busy. Measured on two cores, a factor and an inverse,
in milliseconds on one thread and on two (`benchmarks/first_fit.py threads`): idle 0.5 and 0.5 at 200 rows, 4.8 and 3.2
at 500, 25 and 16 at 1000, 157 and 92 at 2000; beside a process on each core 5 and 12 at 500, 52 and 45 at 1000, 237 and
354 at 2000, since threads that wait for each other wait for the others too.

NumPy and SciPy as they come from the package index bring a library each, and the threads of either go on looking for
work for a while after each call: ten posteriors of 300 values with products by NumPy between factorisations by SciPy
take 156 ms where both have two threads, 18 ms where NumPy has one; of 1000 values 572 and 216 ms. NumPy gets one.

Memory: large matrices are given back to the system when they are freed, and each evaluation is given new ones, page by
page and zeroed. Evidence and gradient of 2000 rows take 175 ms so and 105 ms where the process keeps what it has freed,
of 4000 rows 1040 and 830 ms. With the C library of GNU it keeps it while a fit runs, in
the thread that started the process and as long as no allocation of that thread has failed.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import scipy.linalg  # noqa: F401  the library whose threads are limited has to be loaded
from threadpoolctl import ThreadpoolController

SMALL = 200
"""Rows up to which more threads do not pay."""

CROWDED = 1.75
"""Processes that want to run, for each core, from which others than this one have much to do."""


KEPT = range(700, 8001)
"""Rows of matrices whose memory is kept: of fewer it is kept anyway, and of more it is too much to be held."""

MMAP_MAX, TRIM_THRESHOLD, MMAP_THRESHOLD = -4, -1, -3
"""Names of GNU's `mallopt`."""

_fits, _lock = 0, threading.Lock()


@contextmanager
def machine_for(size: int) -> Iterator[None]:
    """A context for factorisations of matrices with `size` rows, again and again."""
    with _threads_for(size), _memory() if size in KEPT else nullcontext():
        yield


@contextmanager
def _memory() -> Iterator[None]:
    """Freed memory stays with the process until the last of the fits that run has ended."""
    global _fits
    library = _gnu()
    if library is None:
        yield
        return
    with _lock:
        _fits += 1
        library.mallopt(MMAP_MAX, 0)
        library.mallopt(TRIM_THRESHOLD, 2**31 - 1)
    try:
        yield
    finally:
        with _lock:
            _fits -= 1
            if not _fits:
                # where the library's own adjustment ends in programs with large arrays; asking for anything stops it
                library.mallopt(MMAP_THRESHOLD, 2**25)
                library.mallopt(TRIM_THRESHOLD, 2**26)
                library.mallopt(MMAP_MAX, 2**16)
                library.malloc_trim(0)


def _gnu() -> Any:
    """The C library if it is GNU's and nobody has set its memory by the environment, else None."""
    if any(name.startswith("MALLOC_") for name in os.environ) or "malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return None
    try:
        library = ctypes.CDLL(None)
        return library if library.gnu_get_libc_version and library.mallopt and library.malloc_trim else None
    except (AttributeError, OSError, TypeError):  # another system
        return None


@contextmanager
def _threads_for(size: int) -> Iterator[None]:
    """A suitable number of threads."""
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    # Whether it lies in a folder of SciPy's; where the system provides one library for all, none does.
    own = [each for each in libraries if any("scipy" in folder for folder in Path(each.filepath).parent.parts[-2:])]
    limited = libraries if size <= SMALL or _crowded() else [each for each in libraries if own and each not in own]
    before = [(each, each.num_threads) for each in limited]
    try:
        for each, _ in before:
            each.set_num_threads(1)
        yield
    finally:
        for each, threads in before:
            each.set_num_threads(threads)


def _crowded() -> bool:
    """Whether the load of the last minute is more than this process makes."""
    try:
        return os.getloadavg()[0] > CROWDED * (os.cpu_count() or 1)
    except (AttributeError, OSError):  # not known on this system
        return False
