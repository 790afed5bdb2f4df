"""Many rows a part at a time, so that what is computed about them takes bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

ROWS_AT_ONCE = 4096


def parts(count: int, size: int = ROWS_AT_ONCE) -> Iterator[tuple[slice, int]]:
    """Slices that cover `count` rows, and how many rows at the front of each were covered before.

    All have one length, so that one compiled function serves them: the last is taken from the end.
    """
    size = min(size, count)
    for start in range(0, count, size):
        last = min(start + size, count)
        yield slice(last - size, last), size - (last - start)


def by_parts(count: int, compute: Callable[[int, slice], np.ndarray], axis: int = 0) -> np.ndarray:
    """`compute(number, rows)` of each part in turn, put together along the axis of the rows."""
    found = []
    for number, (rows, skip) in enumerate(parts(count)):
        values = compute(number, rows)
        kept = [slice(None)] * axis + [slice(skip, None)]
        found.append(values[tuple(kept)])
    return np.concatenate(found, axis=axis) if len(found) > 1 else found[0]
