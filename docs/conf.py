"""Sphinx: the pages are Markdown (MyST) and the pages of codes are written first."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import error_pages  # noqa: E402

import gpdsl  # noqa: E402
from gpdsl.language.highlight import GpmLexer  # noqa: E402

project = "gpdsl"
author = "the gpdsl authors"
version = release = gpdsl.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "codes"]
html_theme = "furo"
html_title = f"gpdsl {version}"


def as_written(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain words with code in backticks: nothing else in them is markup."""
    for number, line in enumerate(lines):
        parts = line.split("`")
        plain = [re.sub(r"([*|\\])", r"\\\1", re.sub(r"_\b", r"\\_", part)) for part in parts[::2]]
        parts[::2] = plain
        lines[number] = "``".join(parts)


def setup(app: Any) -> None:
    """Give Sphinx the highlighting of `.gpm` text, and write the pages of codes."""
    app.add_lexer("gpm", GpmLexer)
    app.connect("autodoc-process-docstring", as_written)
    error_pages.write(HERE / "errors")
