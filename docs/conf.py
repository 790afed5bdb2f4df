"""Sphinx: the pages are Markdown (MyST); the tables of the language reference are written from its vocabulary first."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import error_pages  # noqa: E402
import tables  # noqa: E402

import gpdsl  # noqa: E402
from gpdsl.language.highlight import GpmLexer  # noqa: E402

project = "gpdsl"
author = "the gpdsl authors"
version = release = gpdsl.__version__
extensions = ["myst_parser"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "_generated", "codes"]
html_theme = "furo"
html_title = f"gpdsl {version}"


def setup(app: Any) -> None:
    """Give Sphinx the highlighting of `.gpm` text, and write the generated tables and pages."""
    app.add_lexer("gpm", GpmLexer)
    tables.write(HERE / "_generated")
    error_pages.write(HERE / "errors")
