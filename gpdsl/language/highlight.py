"""The Pygments lexer of `.gpm` text, for documentation, notebooks and web pages; it needs the package pygments."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import RegexLexer, bygroups
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text, Token, Whitespace

from gpdsl.errors import printable
from gpdsl.language import vocabulary as v

# What editors colour: patterns of `.gpm` text in the order they are tried, from the words of the vocabulary.
#
# The Pygments lexer and the TextMate grammar are both made from `patterns`, so that they agree with each other; the
# tests compare them with `grammar/gpm.lark`. The patterns use only what Python's and Oniguruma's regular expressions
# share.

CLAUSE_WORDS = ("likelihood", "in", "fixed", "if", "then", "else")
LOGICAL_WORDS = ("and", "or", "not")
OPERATORS = ("==", "!=", "<=", ">=", "->", "..", "~", "=", "+", "-", "*", "/", "@", "^", "<", ">", "|")
PUNCTUATION = ("(", ")", "[", "]", "{", "}", ",", ";", ":")

_NAME = r"[^\W\d]\w*"
_BLANKS = r"[ \t]+"


@dataclass(frozen=True)
class Pattern:
    """A regular expression and the kind of each of its groups, or of the whole match when it has none."""

    expression: str
    kinds: tuple[str, ...]


def patterns() -> tuple[Pattern, ...]:
    """Every pattern; what none of them matches is a blank or not part of the language."""
    declaring = tuple(word for word in v.STATEMENTS if word not in ("infer", "use"))
    types = {*v.INPUT_KINDS, *v.OUTPUT_KINDS, *v.CONSTRAINTS}
    return (
        Pattern(r"#[^\n]*", ("comment",)),
        Pattern(r'"[^"\n]*"', ("text",)),
        Pattern(
            rf"\b(external)({_BLANKS})(likelihood)({_BLANKS})({_NAME})", ("statement", "", "clause", "", "declared")
        ),
        Pattern(rf"{_words(declaring, group=True)}({_BLANKS})({_NAME})", ("statement", "", "declared")),
        Pattern(_words(v.STATEMENTS), ("statement",)),
        Pattern(_words(CLAUSE_WORDS), ("clause",)),
        Pattern(_words(LOGICAL_WORDS), ("logical",)),
        Pattern(rf"(:|->)([ \t]*){_words(types, group=True)}", ("operator", "", "type")),
        Pattern(rf"{_NAME}(?=[ \t]*=(?!=))", ("argument",)),
        *(Pattern(_words(names), (kind,)) for kind, names in _builtins().items()),
        Pattern(r"(?:\d+\.(?!\.)\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?", ("number",)),
        Pattern(_NAME, ("name",)),
        Pattern(_signs(OPERATORS), ("operator",)),
        Pattern(_signs(PUNCTUATION), ("punctuation",)),
    )


def _builtins() -> dict[str, list[str]]:
    """The words of the vocabulary by kind: kernels and distributions are called families."""
    kinds: dict[str, list[str]] = {"family": [], "constant": [], "function": []}
    sorts = {"kernel": "family", "distribution": "family", "process": "family", "constant": "constant"}
    for name, sort in v.BUILTINS.items():
        kinds[sorts.get(sort, "function")].append(name)
    return kinds


def _words(words: Iterable[str], group: bool = False) -> str:
    longest_first = "|".join(sorted(words, key=lambda word: (-len(word), word)))
    return rf"\b({longest_first})\b" if group else rf"\b(?:{longest_first})\b"


def _signs(signs: Iterable[str]) -> str:
    return "|".join(re.escape(each) for each in signs)


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


# The TextMate grammar of `.gpm` text, for VS Code, Sublime Text, JetBrains and GitHub: `grammar/gpm.tmLanguage.json`.
#
# `python -m gpdsl.language.highlight` prints it; a test keeps the file up to date.

SCOPES: Mapping[str, str] = MappingProxyType(
    {
        "comment": "comment.line.number-sign.gpm",
        "text": "string.quoted.double.gpm",
        "statement": "keyword.declaration.gpm",
        "declared": "entity.name.variable.gpm",
        "clause": "keyword.control.gpm",
        "logical": "keyword.operator.logical.gpm",
        "type": "storage.type.gpm",
        "argument": "variable.parameter.gpm",
        "family": "support.class.gpm",
        "constant": "constant.language.gpm",
        "function": "support.function.gpm",
        "number": "constant.numeric.gpm",
        "name": "variable.other.gpm",
        "operator": "keyword.operator.gpm",
        "punctuation": "punctuation.gpm",
    }
)
"""What TextMate calls each kind of `coloured.patterns`; colour themes know the first words."""


def textmate() -> str:
    """The grammar as JSON."""
    grammar = {
        "name": "gpm",
        "scopeName": "source.gpm",
        "fileTypes": ["gpm"],
        "patterns": [_pattern(each) for each in patterns()],
    }
    return json.dumps(grammar, indent=2) + "\n"


def _pattern(pattern: Pattern) -> dict[str, Any]:
    if len(pattern.kinds) == 1:
        return {"name": SCOPES[pattern.kinds[0]], "match": pattern.expression}
    captures = {str(number): {"name": SCOPES[kind]} for number, kind in enumerate(pattern.kinds, 1) if kind}
    return {"match": pattern.expression, "captures": captures}


if __name__ == "__main__":
    sys.stdout.write(textmate())
