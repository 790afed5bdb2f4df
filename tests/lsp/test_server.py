"""The language server over its pipes: open, change, ask, rename, format, shut down, as an editor does it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpdsl.cli import main
from gpdsl.language import format_text
from gpdsl.language.options import OPTIONS
from tests.lsp.editor import URI, Editor

ZOO = Path(__file__).parents[2] / "models"
GPRN = (ZOO / "gprn.gpm").read_text(encoding="utf-8")
GOOD = """model m
input  x : real[3]
output y : real
param ell : positive[3] = 2 ~ Gamma(2, 1)   # length-scales
latent σ(x) ~ GP(0, RBF(ell))
let loud = exp(σ)   # 😀
y ~ Normal(σ, loud)
"""


@pytest.fixture(scope="module")
def editor() -> Iterator[Editor]:
    pytest.importorskip("pygls", reason="the language server needs pygls: pip install 'gpdsl[lsp]'")
    started = Editor()
    yield started
    assert started.stop() == 0


def spans(found: list[Any]) -> list[tuple[int, int, int]]:
    """Line, first and last character of ranges, of locations or of edits."""
    return [(each.range.start.line, each.range.start.character, each.range.end.character) for each in found]


def applied(text: str, edits: list[Any]) -> str:
    """The text after edits, counted in UTF-16 as an editor counts."""
    lines = [line.encode("utf-16-le") for line in text.split("\n")]
    for edit in sorted(edits, key=lambda each: (-each.range.start.line, -each.range.start.character)):
        start, end = edit.range.start, edit.range.end
        joined = b"\n\0".join(lines[start.line : end.line + 1])
        before, after = lines[start.line][: 2 * start.character], lines[end.line][2 * end.character :]
        assert joined.startswith(before) and joined.endswith(after)
        lines[start.line : end.line + 1] = (before + edit.new_text.encode("utf-16-le") + after).split(b"\n\0")
    return "\n".join(line.decode("utf-16-le") for line in lines)


def rename(editor: Editor, line: int, character: int, name: str) -> str:
    params = editor.types.RenameParams(**editor.at(line, character), new_name=name)
    edit = editor.wait(editor.client.text_document_rename_async(params))
    return applied(GOOD, edit.changes[URI])


def test_it_says_what_it_can_do(editor: Editor) -> None:
    can = editor.started.capabilities
    assert can.position_encoding == "utf-16"
    assert can.hover_provider and can.completion_provider and can.definition_provider and can.references_provider
    assert can.rename_provider.prepare_provider and can.document_formatting_provider and can.document_symbol_provider


def test_mistakes_as_you_type(editor: Editor) -> None:
    assert editor.show(GOOD) == []
    found = editor.show(GOOD.replace("(σ, loud)", "(σ, lout) + 1").replace("exp(σ)", "exp(τ)"))
    assert [(each.code, each.source, each.severity) for each in found] == [("E201", "gpdsl", 1), ("E310", "gpdsl", 1)]
    found = editor.show(GOOD.replace("(σ, loud)", "(σ, lout)"))
    assert spans(found) == [(6, 14, 18)]
    assert found[0].message.split("\n") == [
        "unknown name `lout`",
        "nothing of this name is declared in this file",
        "help: did you mean `loud`?",
    ]
    assert editor.show(GOOD) == []


def test_warnings_when_there_are_no_mistakes(editor: Editor) -> None:
    (found,) = editor.show(GOOD.replace("y ~", "param σ2 : positive = 1\ny ~"))
    assert (found.code, found.severity) == ("W600", 2)
    assert spans([found]) == [(6, 6, 8)]


def test_columns_are_those_of_the_editor(editor: Editor) -> None:
    """An emoji is two characters to an editor and one to Python."""
    (found,) = editor.show('model m "😀😀" + 1\n')
    assert spans([found]) == [(0, 15, 16)]
    editor.show(GOOD.replace("y ~ Normal(σ, loud)", "y ~ Normal(sum(p, # 😀\n  𝛼𝛼 + σ), 1)"))
    params = editor.types.HoverParams(**editor.at(7, 2 + 4 + 3))
    hover = editor.wait(editor.client.text_document_hover_async(params))
    assert (hover.range.start.character, hover.range.end.character) == (9, 10)
    assert "latent" in hover.contents.value


def test_hover(editor: Editor) -> None:
    editor.show(GOOD)

    def text(line: int, character: int) -> str:
        params = editor.types.HoverParams(**editor.at(line, character))
        hover = editor.wait(editor.client.text_document_hover_async(params))
        return hover.contents.value if hover is not None else ""

    ell = text(4, 25)
    assert ell.startswith("**parameter** · `positive[3]` · starts at `2` · prior `Gamma(2, 1)` · axes `3`")
    assert "param ell : positive[3] = 2 ~ Gamma(2, 1)   # length-scales" in ell
    assert "**latent** · of `x`" in text(6, 11)
    assert "RBF(ell = 1)" in text(4, 21) and "length-scale" in text(4, 21)
    assert "Normal(mean, sd)" in text(6, 5)
    assert "exponential" in text(5, 12)
    assert text(0, 2) == ""


def test_completion(editor: Editor) -> None:
    editor.show(
        GOOD + "\ny ~ \nlet b = l\nlatent g(x) ~ GP(0, \ninfer vi: optimizer = \nparam s : p\n# c \ny ~ Normal("
    )
    assert {"param", "latent", "infer", "y"} <= editor.labels(7, 0)
    assert {"Normal", "Poisson"} <= editor.labels(8, 4)
    assert "RBF" not in editor.labels(8, 4)
    formula = editor.labels(9, 9)
    assert {"σ", "loud", "ell", "exp", "sum", "pi", "if", "b"} <= formula and not {"RBF", "Normal"} & formula
    assert {"RBF", "Matern32", "ell"} <= editor.labels(10, 20)
    assert editor.labels(11, 22) == set(OPTIONS["optimizer"].takes.words)
    assert {"positive", "unit"} <= editor.labels(12, 11) and "count" not in editor.labels(12, 11)
    assert editor.labels(13, 4) == set()
    assert {"mean =", "sd =", "σ"} <= editor.labels(14, 11)


def test_definition_and_references(editor: Editor) -> None:
    editor.show(GOOD)
    at = editor.at(6, 11)
    found = editor.wait(editor.client.text_document_definition_async(editor.types.DefinitionParams(**at)))
    assert spans(found) == [(4, 7, 8)] and found[0].uri == URI
    context = editor.types.ReferenceContext(include_declaration=True)
    params = editor.types.ReferenceParams(**at, context=context)
    assert spans(editor.wait(editor.client.text_document_references_async(params))) == [
        (4, 7, 8),
        (5, 15, 16),
        (6, 11, 12),
    ]


def test_rename(editor: Editor) -> None:
    editor.show(GOOD)
    assert rename(editor, 6, 11, "signal") == GOOD.replace("σ", "signal")
    assert rename(editor, 3, 7, "scale_") == GOOD.replace("ell", "scale_")
    prepared = editor.wait(
        editor.client.text_document_prepare_rename_async(editor.types.PrepareRenameParams(**editor.at(6, 14)))
    )
    assert prepared.placeholder == "loud"


@pytest.mark.parametrize(
    ("line", "character", "name", "why"),
    [
        (6, 5, "g", "`Normal` is a distribution of the language"),
        (6, 11, "exp", "`exp` is a function of the language"),
        (6, 11, "latent", "`latent` is a word of the language"),
        (6, 11, "loud", "`loud` already stands for something on line 6"),
        (6, 11, "2f", "`2f` is not a name"),
        (6, 2, "g", "no name here"),
    ],
)
def test_rename_is_refused(editor: Editor, line: int, character: int, name: str, why: str) -> None:
    editor.show(GOOD)
    with pytest.raises(Exception, match=why):
        rename(editor, line, character, name)


def test_format(editor: Editor) -> None:
    options = editor.types.FormattingOptions(tab_size=4, insert_spaces=True)
    params = editor.types.DocumentFormattingParams(editor.types.TextDocumentIdentifier(URI), options)
    for text in (GOOD, GOOD.replace("\n", "\r\n"), GOOD.rstrip()):
        editor.show(text)
        edits = editor.wait(editor.client.text_document_formatting_async(params))
        assert applied(text, edits) == format_text(text) != text
    editor.show(format_text(GOOD))
    assert editor.wait(editor.client.text_document_formatting_async(params)) == ()
    editor.show("model m 3\n")
    assert editor.wait(editor.client.text_document_formatting_async(params)) is None


def test_outline(editor: Editor) -> None:
    editor.show(GPRN)
    params = editor.types.DocumentSymbolParams(editor.types.TextDocumentIdentifier(URI))
    symbols = editor.wait(editor.client.text_document_document_symbol_async(params))
    assert [(each.name, each.detail) for each in symbols][:3] == [
        ("p", "an index"),
        ("q", "an index"),
        ("x", "an input"),
    ]


def test_a_misspelt_name_is_put_right(editor: Editor) -> None:
    text = GOOD.replace("Normal(σ, loud)", "Normal(σ**2, lout)")
    for fixed in (GOOD.replace("Normal(σ, loud)", "Normal(σ^2, lout)"), GOOD.replace("(σ, loud)", "(σ^2, loud)")):
        editor.show(text)
        place = editor.types.Position(6, 0)
        params = editor.types.CodeActionParams(
            editor.types.TextDocumentIdentifier(URI),
            editor.types.Range(place, place),
            editor.types.CodeActionContext(diagnostics=[]),
        )
        (action,) = editor.wait(editor.client.text_document_code_action_async(params))
        text = applied(text, action.edit.changes[URI])
        assert text == fixed


def test_a_broken_text_still_answers(editor: Editor) -> None:
    """Half a statement is what an editor holds most of the time."""
    editor.show(GOOD)
    editor.show(GOOD.replace("let loud = exp(σ)   # 😀", "let loud = exp(σ +"))
    at = editor.at(6, 11)
    found = editor.wait(
        editor.client.text_document_references_async(
            editor.types.ReferenceParams(**at, context=editor.types.ReferenceContext(include_declaration=False))
        )
    )
    assert spans(found) == [(5, 15, 16), (6, 11, 12)]
    hover = editor.wait(editor.client.text_document_hover_async(editor.types.HoverParams(**editor.at(6, 15))))
    assert "the statement is not finished" in hover.contents.value
    assert {"loud", "ell", "σ"} <= editor.labels(5, 18)


def test_without_pygls_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pygls", None)
    monkeypatch.delitem(sys.modules, "gpdsl.lsp.server", raising=False)
    assert main(["lsp"]) == 1
    assert capsys.readouterr().err == "error: the language server needs the package pygls: pip install 'gpdsl[lsp]'\n"


def test_the_server_loads_no_jax() -> None:
    code = "import sys, gpdsl.lsp.server; print(sorted({'jax', 'pandas', 'sympy'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def _ask(method: str, uri: str = "file:///m.gpm", line: object = 0) -> dict[str, Any]:
    return {"method": method, "params": {"textDocument": {"uri": uri}, "position": {"line": line, "character": 0}}}


HOVER = "textDocument/hover"
INVALID: list[tuple[Any, int]] = [
    (_ask(HOVER, "file:///dev/zero"), -32602),
    (_ask(HOVER, "no address\0"), -32602),
    (_ask(HOVER, line=-1), -32602),
    (_ask(HOVER, line=10**30), -32602),
    (_ask(HOVER, line="a"), -32602),
    ({"method": HOVER}, -32602),
    ({"method": HOVER, "params": [1]}, -32602),
    (_ask("what/ever"), -32601),
    ({}, -32600),
    ({"method": 5}, -32600),
    (b"[1]", -32600),
    (b"{nonsense", -32700),
    (b"\xff\xfe{", -32700),
    (b"[" * 100_000, -32700),
]


def test_invalid_requests_get_the_errors_of_the_protocol() -> None:
    start = {"method": "initialize", "params": {"processId": None, "rootUri": None, "capabilities": {}}}
    asked = [_ask(HOVER), start, *(each for each, _ in INVALID), {"method": "shutdown"}]
    sent = b""
    for number, each in enumerate(asked):
        text = each if isinstance(each, bytes) else json.dumps({"jsonrpc": "2.0", "id": number, **each}).encode()
        sent += b"Content-Length: %d\r\n\r\n" % len(text) + text
    command = [sys.executable, "-m", "gpdsl", "lsp", "--stdio"]
    done = subprocess.run(command, input=sent, capture_output=True, timeout=60, check=False)
    answers = [
        json.loads(each) for each in re.findall(rb"\r\n\r\n(\{.*?\})(?=Content-Length|\Z)", done.stdout, re.DOTALL)
    ]
    codes = {each.get("id"): each["error"]["code"] for each in answers if "error" in each}
    assert codes.pop(0) == -32002
    named = {number: code for number, (each, code) in enumerate(INVALID, 2) if not isinstance(each, bytes)}
    unnamed = [code for each, code in INVALID if isinstance(each, bytes)]
    assert {number: code for number, code in codes.items() if number is not None} == named
    assert [each["error"]["code"] for each in answers if "error" in each and each.get("id") is None] == unnamed
