"""Sphinx: the pages are Markdown (MyST) and the pages of codes are written first."""

from __future__ import annotations

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
extensions = ["myst_parser"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "codes"]
html_theme = "furo"
html_title = f"gpdsl {version}"


def setup(app: Any) -> None:
    """Give Sphinx the highlighting of `.gpm` text, and write the pages of codes."""
    app.add_lexer("gpm", GpmLexer)
    error_pages.write(HERE / "errors")
