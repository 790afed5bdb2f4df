"""Many rows a part at a time, so that what is computed about them takes bounded memory; elements one by one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import sympy as sp
from jaxtyping import Array

from gpdsl.language import model as m
from gpdsl.symbolic.translate import NeedsElements, Translator, axis_key

ROWS_AT_ONCE = 4096

Pick = Callable[[dict[str, int | str]], sp.Expr]


def parts(count: int, size: int = ROWS_AT_ONCE) -> Iterator[tuple[slice, int]]:
    """Slices that cover `count` rows, and how many rows at the front of each were covered before.

    All have one length, so that one compiled function serves them: the last is taken from the end.
    """
    size = min(size, count)
    for start in range(0, count, size):
        last = min(start + size, count)
        yield slice(last - size, last), size - (last - start)


def by_parts(
    count: int, compute: Callable[[int, slice], np.ndarray], axis: int = 0, size: int = ROWS_AT_ONCE
) -> np.ndarray:
    """`compute(number, rows)` of each part in turn, put together along the axis of the rows."""
    found = []
    for number, (rows, skip) in enumerate(parts(count, size)):
        values = compute(number, rows)
        kept = [slice(None)] * axis + [slice(skip, None)]
        found.append(values[tuple(kept)])
    return np.concatenate(found, axis=axis) if len(found) > 1 else found[0]


def over_elements(
    translator: Translator, axes: tuple[m.Axis, ...], pick: Pick, compute: Callable[..., Array]
) -> np.ndarray:
    """`compute(expression, keys)` for a generic element, or element by element where there is no generic form.

    The result is [..., rows, *axes]; `compute` returns [..., rows, *keys].
    """
    keys = tuple(axis_key(a) for a in axes)
    shape = translator.shape(axes)
    try:
        values = compute(pick({}), keys)
        lead = values.shape[: values.ndim - len(keys)]
        return np.broadcast_to(np.asarray(values), (*lead, *shape))
    except NeedsElements:
        ranges = [range(1, n + 1) for n in shape]
        parts = [
            np.asarray(compute(pick(dict(zip(keys, position, strict=True))), ()))
            for position in itertools.product(*ranges)
        ]
        return np.stack(parts, axis=-1).reshape(*parts[0].shape, *shape)
