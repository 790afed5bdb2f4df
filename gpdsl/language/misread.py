"""What Lark could not read, in the words of someone who writes models."""

from __future__ import annotations

import re

from lark import Lark
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.lexer import PatternStr

from gpdsl.language.errors.base import Mistake
from gpdsl.language.errors.syntax import (
    EndsEarly,
    MissingKeyword,
    MissingTilde,
    PowerSign,
    StrangeCharacter,
    Unexpected,
    UnknownStatement,
)
from gpdsl.language.habits import FORMS, SIGNS, word_habit
from gpdsl.language.source import Span
from gpdsl.language.statements import Piece
from gpdsl.language.suggest import closest
from gpdsl.language.vocabulary import DISTRIBUTIONS, OBSERVATION_FORM, STATEMENTS

_WORDS = {
    "NAME": "a name",
    "NUMBER": "a number",
    "TEXT": "a text in quotes",
    "COMPARISON": "a comparison",
    "$END": "the end of the line",
}
_OPERATORS = frozenset("+-*/^")
_FORMS = dict(FORMS) | dict(STATEMENTS) | {"external likelihood": "external likelihood g(y: real | a: real[4])"}
_ADVICE = {
    ";": "end the statement by starting a new line",
    "'": 'write texts with double quotation marks, "like this"',
    "−": "this is a typographic minus; write `-`",
    "×": "write `*` for a product",
    "·": "write `*` for a product",
    "²": "write `^2` for a square",
    "∼": "write `~`, the tilde of the keyboard",
    ".": "names have no modules: write `Normal(f, sigma)`",
    "%": "a comment starts with `#`",
    "!": "conditions are written `p != 1`, only in the subscripts of a `let`",
}
_TWO_WORDS = re.compile(r"[ \t]*([^\W\d]\w*)[ \t]+([^\W\d]\w*)")
_ASSIGNMENT = re.compile(r"[ \t]*([^\W\d]\w*)[ \t]*(?:\[[^\]=]*\])?[ \t]*=(?!=)[ \t]*(\w*)")
_LONGEST = 40


def misspelt_statement(piece: Piece) -> Mistake | None:
    """A statement whose beginning already says what went wrong: `latnt f(x) ~ ...`, `g = f + 1`."""
    match = _TWO_WORDS.match(piece.text)
    if match and match.group(1) not in STATEMENTS:
        word, second = match.groups()
        span = _columns(piece, match.start(1), match.end(1))
        if second in DISTRIBUTIONS:
            return MissingTilde(span, word, second)
        known = ", ".join(f"`{each}`" for each in STATEMENTS)
        return UnknownStatement(span, word, known, closest(word, STATEMENTS), word_habit(word))
    match = _ASSIGNMENT.match(piece.text)
    if match:
        span = _columns(piece, match.start(1), match.end(1))
        if match.group(2) in DISTRIBUTIONS:
            return MissingTilde(span, *match.groups())
        return MissingKeyword(span, match.group(1))
    return None


def misread(problem: UnexpectedInput, piece: Piece, lark: Lark) -> Mistake:
    """The mistake behind an exception of the parser."""
    form = _form(piece)
    if isinstance(problem, UnexpectedCharacters):
        character = problem.char
        span = Span(problem.line + piece.line - 1, problem.column, problem.line + piece.line - 1, problem.column + 1)
        return StrangeCharacter(span, character, _ADVICE.get(character, "remove it"))
    if not isinstance(problem, UnexpectedToken):
        raise problem
    token = problem.token
    if token == ";":
        span = Span(token.line + piece.line - 1, token.column, token.line + piece.line - 1, token.column + 1)
        return StrangeCharacter(span, ";", _ADVICE[";"])
    expected = _expected(problem.accepts or problem.expected, lark)
    if token.type == "$END":
        return EndsEarly(_end(piece), expected, form)
    line = token.line + piece.line - 1
    if token == "*" and piece.text[: token.start_pos].endswith("*"):
        return PowerSign(Span(line, token.column - 1, line, token.column + 1))
    if token == "then" and "comparison" in expected:
        form = "if f > 0 then 1 else 2"
    span = Span(line, token.column, line, token.column + len(token))
    shown = str(token) if len(token) <= _LONGEST else str(token)[:_LONGEST] + "…"
    return Unexpected(span, shown, expected, form, _sign_habit(piece.text, token.start_pos))


def _sign_habit(text: str, at: int) -> str:
    """What to write instead of a sign of another tool that the place is part of; empty where there is none."""
    around = text[at : at + 1], text[at - 1 : at + 1], text[at : at + 2]
    return next((SIGNS[each] for each in around if each in SIGNS), "")


def _expected(names: set[str], lark: Lark) -> str:
    """The terminals that could stand here, as a reader would say it: signs as written, groups by their purpose."""
    patterns = {name: lark.get_terminal(name).pattern for name in names if name != "$END"}
    signs = {name: pattern.value for name, pattern in patterns.items() if isinstance(pattern, PatternStr)}
    words: list[str] = []
    rest = set(names)
    if {"NAME", "NUMBER"} <= rest and "(" in signs.values():
        words.append("a value")
        rest -= {"NAME", "NUMBER", *(name for name, sign in signs.items() if sign in ("(", "[", "-", "if", "not"))}
    if {sign for name, sign in signs.items() if name in rest} >= _OPERATORS:
        words.append("an operator")
        rest -= {name for name, sign in signs.items() if sign in _OPERATORS}
    words += sorted(
        (
            f"`{signs[name]}`" if name in signs else _WORDS.get(name, f"`{name.lower()}`")
            for name in rest
            if name != "$END"
        ),
        key=lambda word: (word.startswith("`"), word),
    )
    words += [_WORDS["$END"]] if "$END" in rest else []
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]


def _form(piece: Piece) -> str:
    first, second = (*piece.words(), "", "")[:2]
    return _FORMS.get(f"{first} {second}") or _FORMS.get(first, OBSERVATION_FORM)


def _columns(piece: Piece, start: int, end: int) -> Span:
    return Span(piece.line, start + 1, piece.line, end + 1)


def _end(piece: Piece) -> Span:
    """Just after the last character that is not a blank or a comment."""
    kept = re.sub(r'("[^"\n]*")|#[^\n]*', lambda match: match.group(1) or " " * len(match.group()), piece.text).rstrip()
    line = piece.line + kept.count("\n")
    column = len(kept) - (kept.rfind("\n") + 1) + 1
    return Span(line, column, line, column + 1)
