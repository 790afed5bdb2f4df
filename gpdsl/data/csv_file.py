"""Text files with one row per line: .csv and .tsv, by the standard library alone."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from gpdsl.data.convert import from_texts, number_of
from gpdsl.data.errors import DataError
from gpdsl.data.file_mistakes import NoHeader, RaggedRow, Unreadable
from gpdsl.data.memory import refuse_beyond_memory
from gpdsl.data.mistakes import NoRows
from gpdsl.data.table import Columns, Table, source_name

MEMORY_PER_BYTE = 8
"""Bytes that a byte of text takes while it is read, as one of some characters of a field."""

SEPARATORS = (",", "\t", ";")


def read_csv(path: Path) -> Table:
    """Read a file with column names on its first line. The separator is the first of `,` tab `;` found there.

    Blank lines are skipped; empty fields and NA, NaN, null are missing. Raises DataError naming the line.
    """
    source = source_name(path)
    refuse_beyond_memory(MEMORY_PER_BYTE * path.stat().st_size, source)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            file.seek(0)
            reader = csv.reader(file, delimiter=_separator(first))
            records, lines = [], []
            for record in reader:
                if record:
                    records.append(record)
                    lines.append(reader.line_num)
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise DataError(Unreadable(_reason(problem)), source=source) from problem
    if not records:
        raise DataError(NoRows(), source=source)
    names = [name.strip() for name in records[0]]
    _check_header(names, source)
    _check_widths(records[1:], len(names), source, np.array(lines[1:]))
    columns = Columns(names, lambda place: from_texts([record[place] for record in records[1:]]), source)
    return Table(columns, source, np.array(lines[1:], dtype=np.int64))


def _separator(first: str) -> str:
    return next((each for each in SEPARATORS if each in first), SEPARATORS[0])


def _reason(problem: Exception) -> str:
    """Why a file could not be read, without its path: the message already names the file."""
    if isinstance(problem, UnicodeDecodeError):
        return "it is not UTF-8 text"
    return problem.strerror or str(problem) if isinstance(problem, OSError) else str(problem)


def _check_header(names: list[str], source: str) -> None:
    if all(number_of(name) is not None for name in names):
        raise DataError(NoHeader(), source=f"{source}:1")


def _check_widths(records: list[list[str]], expected: int, source: str, lines: np.ndarray) -> None:
    for row, record in enumerate(records, 1):
        if len(record) != expected:
            raise DataError(RaggedRow(row, len(record), expected), source=source, lines=lines)
