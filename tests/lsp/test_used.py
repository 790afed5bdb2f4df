"""A model that uses another file, in an editor: mistakes, completion, definitions; a text without a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lsp.editor import Editor

KERNELS = "# one line\nkernel bump(r; ell) = exp(-r^2/ell^2)\nfunction twice(u) = u + u\n"
MODEL = """use "lib/kernels.gpm"
input x : real
output y : real
param ell : positive = 1
latent f(x) ~ GP(0, bump(ell))
y ~ Normal(twice(f), 0.1)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "kernels.gpm").write_text(KERNELS)
    return tmp_path


@pytest.fixture
def editor(folder: Path) -> Iterator[Editor]:
    pytest.importorskip("pygls", reason="the language server needs pygls: pip install 'gpdsl[lsp]'")
    started = Editor((folder / "m.gpm").as_uri())
    yield started
    assert started.stop() == 0


def test_a_used_file_is_known(editor: Editor, folder: Path) -> None:
    types, client = editor.types, editor.client
    kernels = (folder / "lib" / "kernels.gpm").as_uri()
    assert editor.show(MODEL) == []
    assert {"twice", "ell"} <= editor.labels(5, 11)

    def definition(line: int, character: int) -> list[tuple[str, int, int]]:
        params = types.DefinitionParams(**editor.at(line, character))
        found = editor.wait(client.text_document_definition_async(params))
        return [(each.uri, each.range.start.line, each.range.start.character) for each in found]

    assert definition(5, 13) == [(kernels, 2, 9)]
    assert definition(4, 22) == [(kernels, 1, 7)]
    assert definition(0, 8) == [(kernels, 0, 0)]
    assert definition(4, 26) == [(editor.uri, 3, 6)]
    symbols = editor.wait(
        client.text_document_document_symbol_async(types.DocumentSymbolParams(types.TextDocumentIdentifier(editor.uri)))
    )
    assert [each.name for each in symbols] == ["x", "y", "ell", "f"]
    params = types.DocumentFormattingParams(
        types.TextDocumentIdentifier(editor.uri), types.FormattingOptions(tab_size=4, insert_spaces=True)
    )
    (edit,) = editor.wait(client.text_document_formatting_async(params))
    assert "kernel bump" not in edit.new_text
    with pytest.raises(Exception, match=r"`twice` also stands in lib/kernels.gpm"):
        editor.wait(client.text_document_rename_async(types.RenameParams(**editor.at(5, 13), new_name="double")))


def test_mistakes_of_used_files_stand_at_the_use_line(editor: Editor, folder: Path) -> None:
    (folder / "lib" / "kernels.gpm").write_text(KERNELS + "param q : positive\n")
    (found,) = editor.show(MODEL)
    assert found.code == "E116"
    assert (found.range.start.line, found.range.start.character) == (0, 4)
    assert found.message.startswith("lib/kernels.gpm:4:1: a used file holds definitions only")
    (folder / "lib" / "kernels.gpm").write_text(KERNELS)
    assert editor.show(MODEL + "\n") == []  # read again
    (found,) = editor.show(MODEL.replace("lib/", ""))
    assert (found.code, found.range.start.line) == ("E114", 0)
    assert editor.show(KERNELS) == []  # a file to be used


def test_a_text_without_a_folder() -> None:
    pytest.importorskip("pygls", reason="the language server needs pygls: pip install 'gpdsl[lsp]'")
    untitled = Editor("untitled:Untitled-1")
    (found,) = untitled.show(MODEL)
    assert (found.code, found.range.start.line) == ("E112", 0)
    assert "ell" in untitled.labels(4, 25)
    assert untitled.stop() == 0
