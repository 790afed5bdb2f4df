"""Mistakes as text, in colour, and as JSON; nothing in a model can disturb the terminal."""

from __future__ import annotations

import json

import pytest

from gpdsl.errors import GpdslError
from gpdsl.language import ModelError, compile_text, render_colour, render_json

from . import examples


def error(text: str) -> ModelError:
    with pytest.raises(ModelError) as caught:
        compile_text(text, "m.gpm")
    return caught.value


def test_model_error_is_a_gpdsl_error_with_ordered_diagnostics() -> None:
    found = error("let b = c\nlet a = d\n" + examples.REGRESSION)
    assert isinstance(found, GpdslError)
    assert [(each.code, each.span.line) for each in found.diagnostics] == [("E201", 1), ("E201", 2)]


def test_name_of_the_path() -> None:
    with pytest.raises(ModelError, match=r"^boston\.gpm:1:9: error\[E201\]"):
        compile_text("let b = c\n" + examples.REGRESSION, path="somewhere/boston.gpm")


def test_json() -> None:
    found = error(examples.REGRESSION.replace("sigma)", "sigmma)"))
    (entry,) = json.loads(render_json(found.source, found.diagnostics))
    assert entry == {
        "file": "m.gpm",
        "line": 5,
        "column": 15,
        "end_line": 5,
        "end_column": 21,
        "severity": "error",
        "code": "E201",
        "message": "unknown name `sigmma`",
        "label": "nothing of this name is declared in this file",
        "help": "did you mean `sigma`?",
    }


def test_colour_differs_only_by_escapes() -> None:
    found = error("let b = c\n")
    coloured = render_colour(found.source, found.diagnostics)
    plain = coloured
    for escape in ("\x1b[1;31m", "\x1b[1m", "\x1b[31m", "\x1b[36m", "\x1b[0m"):
        assert escape in plain
        plain = plain.replace(escape, "")
    assert plain == str(found)


def test_control_characters_are_not_printed() -> None:
    printed = str(error("let a = \x1b[31m1\x07\n" + 'model m "\x1b]0;title\x07"\nlet a = b\n'))
    assert "\x1b" not in printed and "\x07" not in printed


def test_caret_under_wide_characters_and_tabs() -> None:
    lines = str(error("\tlet a = 高 + b  # 高 is wide\ninput 高 : real\noutput y : real\ny ~ Normal(a, 1)")).split("\n")
    assert lines[1] == "    1 |  let a = 高 + b  # 高 is wide"
    # 高 takes two columns on a terminal.
    assert lines[2].startswith("      | " + " " * 14 + "^ ")


def test_long_lines_are_cut_around_the_caret() -> None:
    lines = str(error("let a = " + "1 + " * 20 + "(" + " " * 300 + "wrong)\n" + examples.REGRESSION)).split("\n")
    assert all(len(line) < 150 for line in lines[:2])
    assert lines[1][lines[2].index("^") :].startswith("wrong")
