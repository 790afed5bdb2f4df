"""How many threads the linear algebra library may use: one for small matrices, and where others keep the cores busy.

Measured on two cores, a factor and an inverse, in milliseconds on one thread and on two (`benchmarks/first_fit.py
threads`): idle 0.5 and 0.5 at 200 rows, 4.8 and 3.2 at 500, 25 and 16 at 1000, 157 and 92 at 2000; beside a process on
each core 5 and 12 at 500, 52 and 45 at 1000, 237 and 354 at 2000, since threads that wait for each other wait for the
others too.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import Any

import scipy.linalg  # noqa: F401  the library whose threads are limited has to be loaded
from threadpoolctl import threadpool_limits

SMALL = 200
"""Rows up to which more threads do not pay."""

CROWDED = 1.75
"""Processes that want to run, for each core, from which others than this one have much to do."""


def threads_for(size: int) -> AbstractContextManager[Any]:
    """A context in which factorisations of matrices with `size` rows use a suitable number of threads."""
    return threadpool_limits(limits=1 if size <= SMALL or _crowded() else None, user_api="blas")


def _crowded() -> bool:
    """Whether the load of the last minute is more than this process makes."""
    try:
        return os.getloadavg()[0] > CROWDED * (os.cpu_count() or 1)
    except (AttributeError, OSError):  # not known on this system
        return False
