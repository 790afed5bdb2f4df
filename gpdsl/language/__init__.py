"""Text in, checked model out: `compile_text` is `parse` (text to syntax tree) and then `check` (names, axes, types).

Nothing here computes with arrays; importing this package loads no numerical library.
"""

from __future__ import annotations

import os
from pathlib import Path

from gpdsl.language.checker import check
from gpdsl.language.errors import Mistake, ModelError
from gpdsl.language.errors.base import render_colour, render_json, render_plain
from gpdsl.language.errors.limits import in_order
from gpdsl.language.formatter import format_text
from gpdsl.language.model import Declarations
from gpdsl.language.parser import parse
from gpdsl.language.used import Reach, gather
from gpdsl.language.vocabulary import Source, Span, shipped

__all__ = [
    "Declarations",
    "Mistake",
    "ModelError",
    "Reach",
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


def compile_text(
    text: str,
    name: str = "<model>",
    path: str | os.PathLike[str] | None = None,
    reach: Reach | None = None,
    library: bool = False,
) -> Declarations:
    """The checked model of a `.gpm` text.

    Errors show `name`, or the file name of `path` when given (the file itself is not opened). The files it uses are
    looked for in `reach`, else beside `path`. A `library` may have definitions only. Raises ModelError, a GpdslError,
    with every mistake in its `diagnostics`.
    """
    shown = Path(path).name if path is not None else name
    # Some editors begin a file with a byte-order mark, which is no part of the model.
    source = Source(text.removeprefix("\ufeff"), shown)
    whole, mistakes = gather(source, reach if reach is not None else Reach.of(None, model=path))
    tree = parse(whole)
    # Nothing but the form of the rest is judged where a used file cannot be had: what its names mean is in that file.
    if mistakes or "use" in tree.lost:
        raise ModelError(whole, in_order((*mistakes, *tree.mistakes)))
    return check(tree, library)
