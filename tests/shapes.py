"""Annotated shapes against the arrays that come, in the functions of gpdsl that a test calls.

Each function in the rooms with arrays is `checked` when its module is imported: jaxtyping sees to it that a name of an
axis means one length within a call. What is no array is mypy's; arrays of NumPy and of JAX stand for each other, as
many functions take both. A function is looked at the first times that it is called in a module of tests: all calls
would be a fifth of the time of all tests.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import typing
from collections.abc import Callable, Hashable, Iterator, Mapping
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

import jax
import jaxtyping
import numpy as np
from jaxtyping import AbstractArray, TypeCheckError

from tests.numbers import watched

ARRAYS = (jax.Array, np.ndarray)

ROOMS = [f"gpdsl.{room}" for room in ("inference", "kernels", "lowering", "program", "results")]
"""Where arrays are. Elsewhere are trees of symbols, deep enough for twice the calls to be too many."""


SAY_THEMSELVES = {"LogJoint.gaussian"}
"""What tells users in words of its own which shape is wrong."""


FIRST_CALLS = 6
"""Of a function in a module of tests that are looked at."""

_module = 0


def next_module() -> None:
    """Look at every function again."""
    global _module
    _module += 1


def check_shapes() -> None:
    """Check what is imported from here on."""
    sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds modules of the rooms, with a loader that decorates their functions."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if not any(name == room or name.startswith(f"{room}.") for room in ROOMS):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """Compiles a module with `checked` as the innermost decorator of every function, and leaves no file behind."""

    def get_code(self, fullname: str) -> CodeType:
        tree = ast.parse(self.get_data(self.path), self.path)
        for node in _functions(tree):
            node.decorator_list.append(ast.copy_location(ast.Name(DECORATOR, ast.Load()), node))
        return compile(tree, self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        setattr(module, DECORATOR, checked)
        super().exec_module(module)


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    """All of a module. No expression has any: to look through them as well took most of the time."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            if isinstance(node, ast.FunctionDef):
                yield node
            yield from _functions(node)


DECORATOR = "_checked_by_tests"


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which raises TypeCheckError where an array is not what its annotation says.

    Instances are not looked at when they are made: JAX rebuilds them around anything.
    """
    if function.__name__ == "__init__" or function.__qualname__ in SAY_THEMSELVES:
        return function
    module, calls = -1, 0
    hints: Mapping[str, Any] | None = None

    @functools.wraps(function)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        nonlocal module, calls, hints
        if module != _module:
            module, calls = _module, 0
        if calls >= FIRST_CALLS:
            return function(*arguments, **named)
        calls += 1
        if hints is None:
            hints = _hints(function)
        return _looked_at(function, hints, arguments, named) if hints else function(*arguments, **named)

    return watched(function, wrapper)


def _looked_at(
    function: Callable[..., Any], hints: Mapping[str, Any], arguments: tuple[Any, ...], named: dict[str, Any]
) -> Any:
    """A call. What `jaxtyping.jaxtyped` makes of a function does as much; to make that takes 1.7 ms, and this 0.1."""
    code = function.__code__
    given = dict(zip(code.co_varnames[: code.co_argcount], arguments, strict=False)) | named
    with jaxtyping.jaxtyped("context"):
        for name, hint in hints.items():
            if name in given and not _fits(given[name], hint):
                raise TypeCheckError(f"{function.__qualname__}: {name} is {_told(given[name])}, and not {hint}")
        result = function(*arguments, **named)
        if "return" in hints and not _fits(result, hints["return"]):
            raise TypeCheckError(f"{function.__qualname__} returns {_told(result)}, and not {hints['return']}")
    return result


_hints_of: dict[Hashable, Mapping[str, Any]] = {}
"""By what is written: a function may be made at every fit, and would keep all that it closes over."""


def _hints(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Annotations with arrays in them; none where one is for the type checker alone, or for readers, as `r *k r *k`."""
    written = function.__module__, function.__qualname__, tuple(function.__annotations__.items())
    if written not in _hints_of:
        try:
            found = typing.get_type_hints(function)
        except (NameError, ValueError):
            found = {}
        _hints_of[written] = {name: hint for name, hint in found.items() if _of_arrays(hint)}
    return _hints_of[written]


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
