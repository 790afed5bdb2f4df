"""Predictions written as CSV, to a file or to standard output."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping
from typing import IO

import numpy as np

from gpdsl.errors import GpdslError
from gpdsl.replacing import replacing
from gpdsl.results.table import texts


def write_table(table: Mapping[str, np.ndarray], path: str | None) -> None:
    """Write CSV to a file, whole or not at all, or to standard output. Raises GpdslError when that fails."""
    if path is None:
        _write(table, sys.stdout)
        return
    try:
        with replacing(path) as file:
            _write(table, file)
    except OSError as problem:
        raise GpdslError(f"cannot write {path}: {problem.strerror}") from problem


def _write(table: Mapping[str, np.ndarray], file: IO[str]) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*map(texts, table.values()), strict=True))
