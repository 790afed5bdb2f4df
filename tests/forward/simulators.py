"""Functions that worker processes can import: they answer, fail, hang and die as their inputs say."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np

FOR_EVER = 60.0
"""Seconds: longer than any test waits."""


def product(depth: np.ndarray, speed: float) -> np.ndarray:
    """Of one row, or of all."""
    return depth * np.reshape(speed, (-1, 1)) if np.ndim(speed) else depth * speed


def failing(depth: np.ndarray, speed: float) -> np.ndarray:
    """Raises where the speed is negative."""
    if np.any(np.asarray(speed) < 0):
        raise ValueError("speeds are positive")
    return product(depth, speed)


def hanging(depth: np.ndarray, speed: float) -> np.ndarray:
    """Never ends where the speed is negative."""
    if np.any(np.asarray(speed) < 0):
        time.sleep(FOR_EVER)
    return product(depth, speed)


def dying(depth: np.ndarray, speed: float) -> np.ndarray:
    """Kills its process where the speed is negative."""
    if np.any(np.asarray(speed) < 0):
        os.kill(os.getpid(), signal.SIGKILL)
    return product(depth, speed)


def dying_once(depth: np.ndarray, speed: float) -> np.ndarray:
    """Kills its process where the speed is negative, the first time: a file tells whether it has."""
    mark = Path(os.environ["GPDSL_TEST_MARK"])
    if speed < 0 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return product(depth, speed)


def whoami(depth: np.ndarray, speed: float) -> float:
    """The process."""
    return float(os.getpid())


def unsendable(depth: np.ndarray, speed: float) -> object:
    """Raises an exception that cannot be pickled."""

    class Local(Exception):
        pass

    raise Local(lambda: None)
