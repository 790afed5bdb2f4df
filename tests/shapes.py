"""Annotated shapes against the arrays that come, in the functions of gpdsl that a test calls.

jaxtyping's import hook puts `checked` around each of them, and sees to it that a name of an axis means one length
within a call. What is no array is mypy's; arrays of NumPy and of JAX stand for each other, as many functions take both.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import AbstractArray, install_import_hook

ARRAYS = (jax.Array, np.ndarray)

ROOMS = [f"gpdsl.{room}" for room in ("inference", "kernels", "lowering", "program", "results")]
"""Where arrays are. Elsewhere are trees of symbols, deep enough for twice the calls to be too many."""


SAY_THEMSELVES = {"LogJoint.gaussian"}
"""What tells users in words of its own which shape is wrong."""


def check_shapes() -> None:
    """Check what is imported from here on."""
    install_import_hook(ROOMS, "tests.shapes.checked")


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which raises TypeError where an array is not what its annotation says.

    Instances are not looked at when they are made: JAX rebuilds them around anything.
    """
    if (
        function.__name__ == "__init__"
        or function.__qualname__ in SAY_THEMSELVES
        or not any("[" in str(each) for each in function.__annotations__.values())
    ):
        return function
    signature = inspect.signature(function)

    @functools.wraps(function)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        known = _hints(function)
        if not known:
            return function(*arguments, **named)
        for name, value in signature.bind(*arguments, **named).arguments.items():
            if name in known and not _fits(value, known[name]):
                raise TypeError(f"{function.__qualname__}: {name} is {_told(value)}, and not {known[name]}")
        result = function(*arguments, **named)
        if "return" in known and not _fits(result, known["return"]):
            raise TypeError(f"{function.__qualname__} returns {_told(result)}, and not {known['return']}")
        return result

    return wrapper


@functools.cache
def _hints(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Annotations with arrays in them; none where one names what is imported for the type checker alone."""
    try:
        found = typing.get_type_hints(function)
    except NameError:
        return {}
    return {name: hint for name, hint in found.items() if _of_arrays(hint)}


def _is_array(hint: Any) -> bool:
    return inspect.isclass(hint) and issubclass(hint, AbstractArray)


def _of_arrays(hint: Any) -> bool:
    return _is_array(hint) or any(map(_of_arrays, typing.get_args(hint)))


def _fits(value: Any, hint: Any) -> bool:
    """Whether the arrays in a value have the shapes that are written. Elements of lists need not be alike."""
    if _is_array(hint):
        return not isinstance(value, ARRAYS) or any(isinstance(value, each) for each in _anywhere(hint))
    inner = typing.get_args(hint)
    if typing.get_origin(hint) is tuple and isinstance(value, tuple) and Ellipsis not in inner:
        return len(value) == len(inner) and all(map(_fits, value, inner))
    if isinstance(value, ARRAYS) and any(map(_is_array, inner)):  # one of several
        return any(_fits(value, each) for each in inner if _is_array(each))
    return True


@functools.cache
def _anywhere(hint: Any) -> tuple[Any, ...]:
    return tuple(hint.dtype[kind, hint.dim_str] for kind in ARRAYS)


def _told(value: Any) -> str:
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, ARRAYS) else type(value).__name__
