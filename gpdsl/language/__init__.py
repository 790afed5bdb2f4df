"""Text in, checked model out: `compile_text` is `parse` (text to syntax tree) and then `check` (names, axes, types).

Nothing here computes with arrays; importing this package loads no numerical library.
"""

from __future__ import annotations

from gpdsl.language.checker import check, compile_text
from gpdsl.language.errors import Mistake, ModelError
from gpdsl.language.errors.base import render_colour, render_json, render_plain
from gpdsl.language.formatter import format_text
from gpdsl.language.model import Declarations
from gpdsl.language.parser import parse
from gpdsl.language.used import Reach
from gpdsl.language.vocabulary import Source
