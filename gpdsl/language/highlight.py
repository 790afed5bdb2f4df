"""The Pygments lexer of `.gpm` text, for documentation, notebooks and web pages; it needs the package pygments."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import RegexLexer, bygroups
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text, Token, Whitespace

from gpdsl.errors import printable
from gpdsl.language.coloured import Pattern, patterns

TOKENS: Mapping[str, Any] = MappingProxyType(
    {
        "": Whitespace,
        "comment": Comment.Single,
        "text": String.Double,
        "statement": Keyword.Declaration,
        "declared": Name.Variable,
        "clause": Keyword,
        "logical": Operator.Word,
        "type": Keyword.Type,
        "argument": Name.Attribute,
        "family": Name.Class,
        "constant": Name.Constant,
        "function": Name.Builtin,
        "number": Number,
        "name": Name,
        "operator": Operator,
        "punctuation": Punctuation,
    }
)
"""What Pygments calls each kind of `coloured.patterns`."""


def html_of(text: str) -> str:
    """A model as HTML in colours, for notebooks: nothing in it is markup."""
    return highlight(printable(text), GpmLexer(), HtmlFormatter(noclasses=True))


def _rule(pattern: Pattern) -> tuple[str, Any]:
    kinds = [TOKENS[kind] for kind in pattern.kinds]
    return pattern.expression, kinds[0] if len(kinds) == 1 else bygroups(*kinds)


class GpmLexer(RegexLexer):
    """Gaussian-process models in the language of gpdsl."""

    name = "gpm"
    aliases: ClassVar[list[str]] = ["gpm", "gpdsl"]
    filenames: ClassVar[list[str]] = ["*.gpm"]
    tokens: ClassVar = {"root": [(r"\s+", Text.Whitespace), *map(_rule, patterns()), (r".", Token.Error)]}
