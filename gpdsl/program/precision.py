"""float64 without touching the caller's JAX configuration: every public entry runs inside its own precision."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import jax

from gpdsl.program.beginning import before_jax_begins, refuse_forked

Function = TypeVar("Function", bound=Callable[..., Any])

before_jax_begins()  # whatever computes first enters a precision: a draw from the prior as well as a fit


def precision(dtype: str) -> AbstractContextManager[Any]:
    """A context in which JAX computes in this dtype. Raises GpdslError in a fork of a process with JAX's threads."""
    refuse_forked()
    return jax.enable_x64(dtype == "float64")


def in_precision(method: Function) -> Function:
    """Run a method in the precision of its object's `dtype`."""

    @functools.wraps(method)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        with precision(self.dtype):
            return method(self, *args, **kwargs)

    return wrapped  # type: ignore[return-value]
