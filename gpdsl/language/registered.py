"""Kernels that Python has made known by name: their definitions join the texts of the models that call them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpdsl.errors import GpdslError, quoted
from gpdsl.language.checker.problems import in_order
from gpdsl.language.errors.base import ModelError
from gpdsl.language.parser import parse
from gpdsl.language.source import Source
from gpdsl.language.syntax import KernelStatement
from gpdsl.language.vocabulary import BUILTINS, DISTRIBUTIONS, STATEMENTS

_NAME = re.compile(r"[^\W\d]\w*")
_DEFINITIONS: dict[str, str] = {}


def define(name: str, definition: str) -> None:
    """Make the definition known; another one of this name goes."""
    _DEFINITIONS[name] = definition


def definition_of(name: str) -> str:
    """The definition of a registered kernel. Raises GpdslError where there is none."""
    if name not in _DEFINITIONS:
        raise GpdslError(f"no kernel {quoted(name)} is registered; there are: {', '.join(_DEFINITIONS) or 'none'}")
    return _DEFINITIONS[name]


def statement_of(name: str, definition: str) -> KernelStatement:
    """The one statement that a definition must be. Raises GpdslError for other names and texts."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in STATEMENTS:
        raise GpdslError(f"kernel {quoted(name)}: expected a name of letters, digits and _, a letter first")
    if sort := BUILTINS.get(name) or ("distribution" if name in DISTRIBUTIONS else ""):
        raise GpdslError(f"kernel {name}: this is the name of a {sort} of the language; choose another one")
    form = f"`kernel {name}(r; ell) = ...` in the distance, or `kernel {name}(a, b; ell) = ...` in two points"
    if not isinstance(definition, str):
        raise GpdslError(f"kernel {name}: expected its definition as a text, {form}")
    tree = parse(Source(definition, f"<kernel {name}>"))
    if tree.mistakes:
        raise ModelError(tree.source, in_order(tree.mistakes))
    only = tree.statements[0] if len(tree.statements) == 1 else None
    if not isinstance(only, KernelStatement) or only.name.text != name:
        raise GpdslError(f"kernel {name}: expected one definition, {form}")
    return only


def called_in(text: str) -> Iterator[tuple[str, str]]:
    """The registered kernels that a text calls and does not define, with their definitions."""
    for name, definition in _DEFINITIONS.items():
        declares = rf"^[ \t]*(?:{'|'.join(STATEMENTS)})[ \t]+{name}\b"
        if re.search(rf"\b{name}[ \t]*\(", text) and not re.search(declares, text, re.MULTILINE):
            yield name, definition
