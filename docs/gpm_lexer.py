"""Highlighting of `.gpm` text in the documentation, from the words of the language."""

from __future__ import annotations

from typing import ClassVar

from pygments.lexer import RegexLexer, words
from pygments.token import Comment, Keyword, Name, Number, Operator, String, Text

from gpdsl.language import vocabulary as v


class GpmLexer(RegexLexer):
    """Statement words, types, built-in names, numbers, texts and comments."""

    name = "gpm"
    tokens: ClassVar = {
        "root": [
            (r"#.*$", Comment),
            (r'"[^"\n]*"', String),
            (words((*v.STATEMENTS, "likelihood", "in", "fixed"), prefix=r"\b", suffix=r"\b"), Keyword),
            (words({*v.INPUT_KINDS, *v.OUTPUT_KINDS, *v.CONSTRAINTS}, prefix=r"\b", suffix=r"\b"), Keyword.Type),
            (words(tuple(v.BUILTINS), prefix=r"\b", suffix=r"\b"), Name.Builtin),
            (r"\d+\.(?!\.)\d*|\.\d+|\d+", Number),
            (r"[^\W\d]\w*", Name),
            (r"[~=+\-*/^<>!|.]+", Operator),
            (r"\s+|.", Text),
        ]
    }
