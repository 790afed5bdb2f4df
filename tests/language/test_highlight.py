"""Colours: the Pygments lexer and the TextMate grammar know what the grammar knows, and agree."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from lark.lexer import PatternStr
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Token

from gpdsl.language.highlight import SCOPES, TOKENS, GpmLexer, textmate
from gpdsl.language.parser import grammar
from gpdsl.language.vocabulary import BUILTINS, CONSTRAINTS, DISTRIBUTIONS, KERNELS, OUTPUT_KINDS

from . import generator

ROOT = Path(__file__).parents[2]
TEXTMATE = ROOT / "grammar" / "gpm.tmLanguage.json"
ZOO = sorted((ROOT / "models").glob("*.gpm"))
SIGNS = [
    *(each.pattern.value for each in grammar().terminals if isinstance(each.pattern, PatternStr)),
    *generator.COMPARISONS,
    "fixed",
]
KINDS = {token: kind for kind, token in TOKENS.items()}

Lexer = Callable[[str], list[tuple[str, str]]]


def pygments_kinds(text: str) -> list[tuple[str, str]]:
    """Words and kinds, by the Pygments lexer."""
    return [
        (word, KINDS.get(token, "error")) for token, word in GpmLexer(stripnl=False).get_tokens(text) if word.strip()
    ]


def textmate_kinds(text: str) -> list[tuple[str, str]]:
    """Words and kinds, as an editor reads the committed file: at each place the first pattern that fits."""
    rules = json.loads(TEXTMATE.read_text(encoding="utf-8"))["patterns"]
    kinds = {scope: kind for kind, scope in SCOPES.items()}
    found = []
    for line in text.split("\n"):
        place = 0
        while place < len(line):
            matches = ((re.compile(rule["match"]).match(line, place), rule) for rule in rules)
            match, rule = next(((match, rule) for match, rule in matches if match and match.group()), (None, {}))
            if match is None:
                found += [(line[place], "error")] if line[place].strip() else []
                place += 1
                continue
            if "name" in rule:
                found.append((match.group(), kinds[rule["name"]]))
            for group, capture in rule.get("captures", {}).items():
                found.append((match.group(int(group)), kinds[capture["name"]]))
            place = match.end()
    return found


LEXERS = pytest.mark.parametrize("lexer", [pygments_kinds, textmate_kinds])


@LEXERS
@pytest.mark.parametrize("sign", SIGNS)
def test_every_word_and_sign_of_the_grammar(lexer: Lexer, sign: str) -> None:
    ((word, kind),) = lexer(sign)
    assert word == sign
    assert kind in ({"statement", "clause", "logical"} if sign.isalpha() else {"operator", "punctuation"})


@LEXERS
@pytest.mark.parametrize("name", BUILTINS)
def test_every_builtin(lexer: Lexer, name: str) -> None:
    wanted = "family" if name in (*KERNELS, *DISTRIBUTIONS, "GP") else "constant" if name == "pi" else "function"
    assert lexer(f"let a = {name}")[-1] == (name, wanted)


@LEXERS
@pytest.mark.parametrize("kind", [*OUTPUT_KINDS, *CONSTRAINTS])
def test_every_type(lexer: Lexer, kind: str) -> None:
    assert lexer(f"param a : {kind}")[-1] == (kind, "type")
    assert lexer(f"external g(a: {kind})")[-2] == (kind, "type")


@LEXERS
@pytest.mark.parametrize("path", ZOO, ids=lambda path: path.stem)
def test_the_zoo_is_understood(lexer: Lexer, path: Path) -> None:
    assert [word for word, kind in lexer(path.read_text(encoding="utf-8")) if kind == "error"] == []


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(generator.texts(size=3))
def test_any_text_is_understood_and_the_two_agree(text: str) -> None:
    found = pygments_kinds(text)
    assert "error" not in {kind for _, kind in found}
    assert [(word.strip(), kind) for word, kind in textmate_kinds(text)] == [
        (word.strip(), kind) for word, kind in found
    ]


@LEXERS
def test_what_is_not_the_language_is_an_error(lexer: Lexer) -> None:
    assert [word for word, kind in lexer('let a = b $ c & "x') if kind == "error"] == ["$", "&", '"']


def test_token_classes() -> None:
    text = (
        'param s2[p] : positive = 1.5e-3 fixed ~ Gamma(2, rate = 1)  # "why"\nlet σ = if not f > 1 then exp(s2) else pi'
    )
    assert [(token, word) for token, word in GpmLexer().get_tokens(text) if word.strip()] == [
        (Keyword.Declaration, "param"),
        (Name.Variable, "s2"),
        *[(Punctuation, "["), (Name, "p"), (Punctuation, "]")],
        *[(Operator, ":"), (Keyword.Type, "positive"), (Operator, "=")],
        *[(Number, "1.5e-3"), (Keyword, "fixed"), (Operator, "~"), (Name.Class, "Gamma")],
        *[(Punctuation, "("), (Number, "2"), (Punctuation, ","), (Name.Attribute, "rate")],
        *[(Operator, "="), (Number, "1"), (Punctuation, ")"), (Comment.Single, '# "why"')],
        *[(Keyword.Declaration, "let"), (Name.Variable, "σ"), (Operator, "=")],
        *[(Keyword, "if"), (Operator.Word, "not"), (Name, "f"), (Operator, ">"), (Number, "1"), (Keyword, "then")],
        *[(Name.Builtin, "exp"), (Punctuation, "("), (Name, "s2"), (Punctuation, ")"), (Keyword, "else")],
        (Name.Constant, "pi"),
    ]
    assert (String.Double, '"a # b"') in list(GpmLexer().get_tokens('model m "a # b"'))
    assert Token.Error not in {token for token, _ in GpmLexer().get_tokens("let a = 1..3")}


def test_ranges_are_not_decimal_points() -> None:
    assert [word for word, _ in pygments_kinds("index p in 1..4")] == ["index", "p", "in", "1", "..", "4"]


def test_the_committed_textmate_grammar_is_up_to_date() -> None:
    if os.environ.get("GPDSL_GOLDEN"):
        TEXTMATE.write_text(textmate(), encoding="utf-8")
    assert textmate() == TEXTMATE.read_text(encoding="utf-8"), "run `make golden`"
