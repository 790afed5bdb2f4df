"""What tells a function from another of its name, for a cache of its values: its code, and what that depends on."""

from __future__ import annotations

import hashlib
import sys
import sysconfig
from collections.abc import Mapping
from functools import partial
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from gpdsl.errors import GpdslError, described

# All of a function that can be seen when it is registered: what it names in its module, values in its closure and its
# defaults, functions that it calls there, fields of the object that it is. What it changes later, as a counter, is as
# it was then. Code that is installed is told by its names. Of a module of the user's, what the function names is told.

INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})

PLAIN = {"builtins", "datetime", "decimal", "fractions", "pathlib"}
"""Modules of types whose values are told by what Python prints of them."""


def fingerprint(function: Any) -> str:
    """Its own `fingerprint`, if it has one; else a digest of all that it is made of.

    Raises GpdslError for what it is made of that cannot be looked through, as lists in lists a thousand deep.
    """
    own = getattr(function, "fingerprint", None)
    if isinstance(own, str):
        return own
    told: list[str] = []
    try:
        _tell(function, told, {})
    except Exception as problem:  # of the user's own objects
        raise GpdslError(
            f"cache: what `{_name(function) or type(function).__name__}` is made of cannot be told from others "
            f"({described(problem)}): give it an attribute `fingerprint`, a text that is another where it is"
        ) from problem
    return hashlib.sha256("\n".join(told).encode(errors="surrogatepass")).hexdigest()


def _tell(value: Any, told: list[str], seen: dict[int, Any]) -> None:
    """Say what a value is, in lines; one that was said before by its number. `seen` keeps all of them alive."""
    kind = type(value)
    told.append(f"{kind.__module__}.{kind.__qualname__} {getattr(value, '__module__', '')} {_name(value)}")
    parts = _parts(value)
    if parts is None:
        told.append(_text(value))
    elif id(value) in seen and not isinstance(value, (tuple, CodeType)):  # those may be shared or not
        told.append(str(list(seen).index(id(value))))
    else:
        seen[id(value)] = value
        for each in parts:
            _tell(each, told, seen)


def _text(value: Any) -> str:
    if isinstance(value, (set, frozenset)):
        return str(sorted(map(repr, value)))
    if not hasattr(type(value), "__array__"):
        return repr(value)
    array = np.asarray(value)
    inside = repr(array.tolist()) if array.dtype.hasobject else hashlib.sha256(array.tobytes()).hexdigest()
    return f"{array.shape} {array.dtype.str} {inside}"


def _name(value: Any) -> str:
    return str(getattr(value, "__qualname__", getattr(value, "__name__", "")))


def _parts(value: Any) -> list[Any] | None:
    """What a value is made of; None where its text says all."""
    match value:
        case Mapping():
            return [part for pair in value.items() for part in pair]
        case list() | tuple():
            return list(value)
        case CodeType():
            return [value.co_code, value.co_names, value.co_consts]
        case FunctionType():
            cells = [each.cell_contents for each in value.__closure__ or () if each != CellType()]
            parts: list[Any] = [value.__defaults__, value.__kwdefaults__, cells]
            if value.__code__.co_filename.startswith(INSTALLED):
                return parts
            names = _names(value.__code__)
            named = {name: value.__globals__[name] for name in names if name in value.__globals__}
            modules = [
                each for each in named.values() if isinstance(each, ModuleType) and not _installed(each.__name__)
            ]
            through = [{name: vars(each)[name] for name in names if name in vars(each)} for each in modules]
            return [*parts, value.__code__, named, through]
        case partial():
            return [value.func, value.args, value.keywords]
        case MethodType():
            return [value.__func__, value.__self__]
        case type() if _installed(value.__module__):
            return []
        case type():
            own = {name: getattr(each, "__func__", each) for name, each in vars(value).items()}
            plain = {
                name: each for name, each in own.items() if not name.startswith("_") or isinstance(each, FunctionType)
            }
            return [plain, *value.__bases__]
        case property():
            return [value.fget]
    kind = type(value)
    if kind.__module__ in PLAIN and not callable(value) or hasattr(kind, "__array__"):
        return None
    if kind.__module__.partition(".")[0] in sys.stdlib_module_names:
        return []
    slots = [name for each in kind.__mro__ for name in getattr(each, "__slots__", ()) if hasattr(value, name)]
    return [kind, getattr(value, "__dict__", {}), [getattr(value, name) for name in slots]]


def _installed(module: str) -> bool:
    """Whether a module is of Python or of a package, and not of the user's own files, or typed in."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return module != "__main__" and module in sys.modules and (file is None or file.startswith(INSTALLED))


def _names(code: CodeType) -> list[str]:
    """What a function names, and what those in it do."""
    inner = [name for each in code.co_consts if isinstance(each, CodeType) for name in _names(each)]
    return sorted({*code.co_names, *inner})
