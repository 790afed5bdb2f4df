"""Compiled programs that the fits of one process share: those of one model and options, on other rows of the shapes.

Tracing a small program takes longer than all its runs. It is found again by everything it was made from, compared value
by value, so that what makes it must get nothing else: no rows, no starts (`Problem.shared`).
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp

KEPT = 256
"""Programs kept; of more, those go that have not been asked for the longest."""

_programs: OrderedDict[Hashable, Callable[..., Any]] = OrderedDict()


names_are_kept = True
"""Whether names mean in this process what they mean in every other."""


class Named(NamedTuple):
    """What an identity says of a function."""

    module: str
    name: str


class Unique(Exception):
    """Something that cannot be compared with what another program was made from."""


def reused(key: Hashable, compiled: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """The program of this key, compiled when there is none."""
    if key not in _programs:
        _programs[key] = compiled()
    _programs.move_to_end(key)
    while len(_programs) > KEPT:
        _programs.popitem(last=False)
    return _programs[key]


def forget() -> None:
    """Let go of all programs: what some were made from has another meaning now under the same name."""
    global names_are_kept
    names_are_kept = False
    _programs.clear()


def shapes_of(arguments: Any) -> Hashable:
    """Structure, shapes and types of arguments, all that a compiled program knows of them."""
    leaves, tree = jax.tree.flatten(arguments)
    firm = np.ndarray, np.generic  # of a type that does not give way to others
    weak = (getattr(leaf, "weak_type", False if isinstance(leaf, firm) else None) for leaf in leaves)
    return tree, tuple(zip(map(np.shape, leaves), map(jnp.result_type, leaves), weak, strict=True))


def identity(value: Any) -> Hashable:
    """What two values have in common if, and only if, they are the same constants. Raises Unique for what has none.

    Whatever has an `identity` of its own knows best. Functions are the same if they are one function of a module.
    """
    if value is None or isinstance(value, (str, bytes, int, float, complex, enum.Enum, sp.Basic, np.dtype, type)):
        return type(value), value
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        array = np.asarray(value)
        return array.shape, array.dtype.str, array.tobytes()
    own = getattr(value, "identity", None)
    if own is not None:
        return own
    if is_dataclass(value):
        return type(value), tuple(identity(getattr(value, field.name)) for field in fields(value))
    if isinstance(value, Mapping):
        return tuple((identity(name), identity(each)) for name, each in value.items())
    if isinstance(value, Set):
        return frozenset(map(identity, value))
    if isinstance(value, Sequence):
        return type(value), tuple(map(identity, value))
    if callable(value) and "<" not in getattr(value, "__qualname__", "<"):
        return Named(value.__module__, value.__qualname__)
    raise Unique(type(value).__name__)
