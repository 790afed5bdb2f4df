"""float64 without touching the caller's JAX configuration: every public entry runs inside its own precision."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import jax

Function = TypeVar("Function", bound=Callable[..., Any])


def precision(dtype: str) -> AbstractContextManager[Any]:
    """A context in which JAX computes in this dtype."""
    return jax.enable_x64(dtype == "float64")


def in_precision(method: Function) -> Function:
    """Run a method in the precision of its object's `dtype`."""

    @functools.wraps(method)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        with precision(self.dtype):
            return method(self, *args, **kwargs)

    return wrapped  # type: ignore[return-value]
