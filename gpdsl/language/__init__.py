"""Text in, checked model out: `compile_text` is `parse` (text to syntax tree) and then `check` (names, axes, types).

Nothing here computes with arrays; importing this package loads no numerical library.
"""

from __future__ import annotations

import os
from pathlib import Path

from gpdsl.language.checker import check
from gpdsl.language.errors import Mistake, ModelError
from gpdsl.language.formatter import format_text
from gpdsl.language.model import Declarations
from gpdsl.language.parser import parse
from gpdsl.language.render import render_colour, render_json, render_plain
from gpdsl.language.shipped import shipped
from gpdsl.language.source import Source, Span

__all__ = [
    "Declarations",
    "Mistake",
    "ModelError",
    "Source",
    "Span",
    "check",
    "compile_text",
    "format_text",
    "parse",
    "render_colour",
    "render_json",
    "render_plain",
    "shipped",
]


def compile_text(text: str, name: str = "<model>", path: str | os.PathLike[str] | None = None) -> Declarations:
    """The checked model of a `.gpm` text.

    Errors show `name`, or the file name of `path` when given (the file itself is not opened). Raises ModelError, a
    GpdslError, with every mistake of the text in its `diagnostics`.
    """
    shown = Path(path).name if path is not None else name
    # Some editors begin a file with a byte-order mark, which is no part of the model.
    return check(parse(Source(text.removeprefix("\ufeff"), shown)))
