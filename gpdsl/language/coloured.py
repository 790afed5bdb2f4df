"""What editors colour: patterns of `.gpm` text in the order they are tried, from the words of the vocabulary.

The Pygments lexer and the TextMate grammar are both made from `patterns`, so that they agree with each other; the tests
compare them with `grammar/gpm.lark`. The patterns use only what Python's and Oniguruma's regular expressions share.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gpdsl.language import vocabulary as v

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
