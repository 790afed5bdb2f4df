"""Text files with one row per line: .csv and .tsv, by the standard library alone."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from gpdsl.data.convert import from_texts, number_of
from gpdsl.data.errors import DataError
from gpdsl.data.file_mistakes import NoHeader, NotAColumn, RaggedRow, Unreadable
from gpdsl.data.memory import refuse_beyond_memory
from gpdsl.data.mistakes import NoRows
from gpdsl.data.table import Columns, Table, source_name
from gpdsl.errors import quoted

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
        with path.open(newline="", encoding="utf-8-sig", errors="surrogateescape") as file:
            first = file.readline()
            file.seek(0)
            if "\0" in first:  # as in UTF-16
                raise DataError(Unreadable("it is not UTF-8 text"), source=source)
            reader = csv.reader(file, delimiter=_separator(first))
            records, lines = [], []
            for record in reader:
                if record:
                    records.append(record)
                    lines.append(reader.line_num)
    except (OSError, csv.Error) as problem:
        raise DataError(Unreadable(_reason(problem)), source=source) from problem
    if not records:
        raise DataError(NoRows(), source=source)
    names = [name.strip().encode(errors="surrogateescape").decode(errors="replace") for name in records[0]]
    _check_header(names, source)
    _check_widths(records[1:], len(names), source, np.array(lines[1:]))
    columns = Columns(names, lambda place: _column(names[place], [each[place] for each in records[1:]], source), source)
    return Table(columns, source, np.array(lines[1:], dtype=np.int64))


def _column(name: str, texts: list[str], source: str) -> np.ndarray:
    """One column. Raises DataError where it holds bytes that are not UTF-8, which other columns may."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as problem:
        raise DataError(NotAColumn(quoted(name), "it is not UTF-8 text"), source=source) from problem
    return from_texts(texts)


def _separator(first: str) -> str:
    return next((each for each in SEPARATORS if each in first), SEPARATORS[0])


def _reason(problem: Exception) -> str:
    """Why a file could not be read, without its path: the message already names the file."""
    return problem.strerror or str(problem) if isinstance(problem, OSError) else str(problem)


def _check_header(names: list[str], source: str) -> None:
    if all(number_of(name) is not None for name in names):
        raise DataError(NoHeader(), source=f"{source}:1")


def _check_widths(records: list[list[str]], expected: int, source: str, lines: np.ndarray) -> None:
    for row, record in enumerate(records, 1):
        if len(record) != expected:
            raise DataError(RaggedRow(row, len(record), expected), source=source, lines=lines)
