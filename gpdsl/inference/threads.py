"""How many threads the linear algebra library may use: one for small matrices, and where others keep the cores busy.

Measured on two cores, a factor and an inverse, in milliseconds on one thread and on two (`benchmarks/first_fit.py
threads`): idle 0.5 and 0.5 at 200 rows, 4.8 and 3.2 at 500, 25 and 16 at 1000, 157 and 92 at 2000; beside a process on
each core 5 and 12 at 500, 52 and 45 at 1000, 237 and 354 at 2000, since threads that wait for each other wait for the
others too.

NumPy and SciPy as they come from the package index bring a library each, and the threads of either go on looking for
work for a while after each call: ten posteriors of 300 values with products by NumPy between factorisations by SciPy
take 156 ms where both have two threads, 18 ms where NumPy has one; of 1000 values 572 and 216 ms. NumPy gets one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import scipy.linalg  # noqa: F401  the library whose threads are limited has to be loaded
from threadpoolctl import LibController, ThreadpoolController

SMALL = 200
"""Rows up to which more threads do not pay."""

CROWDED = 1.75
"""Processes that want to run, for each core, from which others than this one have much to do."""


@contextmanager
def threads_for(size: int) -> Iterator[None]:
    """A context in which factorisations of matrices with `size` rows use a suitable number of threads."""
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    own = [each for each in libraries if _of_scipy(each)]
    limited = libraries if size <= SMALL or _crowded() else [each for each in libraries if own and each not in own]
    before = [(each, each.num_threads) for each in limited]
    try:
        for each, _ in before:
            each.set_num_threads(1)
        yield
    finally:
        for each, threads in before:
            each.set_num_threads(threads)


def _of_scipy(library: LibController) -> bool:
    """Whether it lies in a folder of SciPy's; where the system provides one library for all, none does."""
    return any("scipy" in folder for folder in Path(library.filepath).parent.parts[-2:])


def _crowded() -> bool:
    """Whether the load of the last minute is more than this process makes."""
    try:
        return os.getloadavg()[0] > CROWDED * (os.cpu_count() or 1)
    except (AttributeError, OSError):  # not known on this system
        return False
