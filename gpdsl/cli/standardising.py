"""`--standardise`: columns of the data file with mean 0 and standard deviation 1, by the numbers of the fit."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from gpdsl.errors import GpdslError


def read_data(path: str | None, standardise: Sequence[str]) -> Any:
    """The table of a data file with the named columns standardised; prints how to repeat it on other rows."""
    if not standardise:
        return path
    if path is None:
        raise GpdslError(f"--standardise {standardise[0]}: there is no data file to standardise")
    from gpdsl.data import DataError, read_table
    from gpdsl.data import standardise as standardised
    from gpdsl.data.values import as_numbers

    table = read_table(path)
    for text in standardise:
        column, mean, sd = _parts(text)
        if column not in table.columns:
            raise GpdslError(f"--standardise {text}: {table.source} has no column `{column}`")
        try:
            done = standardised(as_numbers(table, column), mean, sd, name=column)
        except DataError as problem:
            raise DataError(*problem.mistakes, source=table.source, lines=table.lines) from problem
        if mean is None:
            again = f"--standardise {column}={float(done.mean)!r},{float(done.sd)!r}"
            print(f"`{column}` is standardised; predict with {again}", file=sys.stderr)
        table = table.with_column(column, done.values)
    return table


def _parts(text: str) -> tuple[str, float | None, float | None]:
    column, equals, numbers = text.partition("=")
    if not equals:
        return column, None, None
    try:
        mean, sd = (float(number) for number in numbers.split(","))
    except ValueError as problem:
        raise GpdslError(f"--standardise {text}: expected COLUMN or COLUMN=MEAN,SD") from problem
    if not sd > 0:
        raise GpdslError(f"--standardise {text}: the standard deviation must be positive")
    return column, mean, sd
