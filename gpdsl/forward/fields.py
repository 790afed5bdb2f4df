"""Opaque functions that take fields: one call is one evaluation, and gives the results of all rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpdsl.forward.registry import ForwardModel


@dataclass(frozen=True)
class PerField:
    """A function of one field and all rows, made of values that can travel to another process.

    `rows` says which arguments have rows. A function that takes one row at a time is called for each of them.
    """

    function: Callable[..., Any]
    together: bool
    rows: tuple[bool, ...]

    def __call__(self, *arguments: np.ndarray) -> np.ndarray:
        if self.together or not any(self.rows):
            return self.function(*arguments)
        count = next(len(a) for a, each in zip(arguments, self.rows, strict=True) if each)
        pick = lambda k: [a[k] if each else a for a, each in zip(arguments, self.rows, strict=True)]  # noqa: E731
        return np.stack([np.asarray(self.function(*pick(k)), float) for k in range(count)])


def per_field(model: ForwardModel, rows: Sequence[bool]) -> ForwardModel:
    """The function as one that is called with a field at a time; `rows` says which of its arguments have rows.

    Batches of it are then fields: arguments [fields, rows, *dims] or [fields, *dims].
    """
    function = PerField(model.function, model.vectorized or model.flat, tuple(rows))
    return replace(model, function=function, vectorized=False, gradient=None)
