"""Every code has one page: its wrong example prints that code, its right example compiles."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpdsl
from gpdsl.data.errors import DataMistake
from gpdsl.forward.errors import ForwardMistake
from gpdsl.language import ModelError, compile_text
from gpdsl.language.errors.base import Mistake
from gpdsl.language.warnings import find_warnings
from gpdsl.symbolic.translate import Translator

DOCS = Path(__file__).resolve().parents[1] / "docs"
sys.path.insert(0, str(DOCS))
error_pages = importlib.import_module("error_pages")
sys.path.remove(str(DOCS))
PAGES = {page.code: page for page in error_pages.pages()}
# A text too large to keep, sizes that no small file has, or rows: the tests of the limits and of fits make those.
WITHOUT_EXAMPLE = {code for code in PAGES if code.startswith("E4")} | {"E504", "E546", "E547"}


def classes(base: type) -> Iterator[type]:
    for each in base.__subclasses__():
        yield each
        yield from classes(each)


def codes() -> set[str]:
    for module in pkgutil.walk_packages(gpdsl.__path__, "gpdsl."):
        if module.name.rpartition(".")[2].endswith(("errors", "mistakes", "cautions")) or ".errors." in module.name:
            importlib.import_module(module.name)
    found = {each for base in (Mistake, DataMistake, ForwardMistake) for each in classes(base)}
    return {each.code for each in found if each.__module__.startswith("gpdsl.")} - {""}


def test_every_code_has_a_page_and_every_page_a_code() -> None:
    assert len(PAGES) == len(list(error_pages.pages()))
    assert codes() == set(PAGES)


@pytest.mark.parametrize("code", [code for code in PAGES if PAGES[code].right])
def test_the_right_example_is_right(code: str) -> None:
    model = compile_text(PAGES[code].right)
    assert [each.code for each in find_warnings(model) if each.code == code] == []
    if code.startswith("E5"):
        Translator(
            model, {axis.dimension: 3 for output in model.outputs.values() for axis in output.axes if axis.dimension}
        )


@pytest.mark.parametrize("code", [code for code in PAGES if code[0] in "EW" and code not in WITHOUT_EXAMPLE])
def test_the_wrong_example_shows_its_code(code: str) -> None:
    model, message = error_pages.wrong(code)
    assert f"[{code}]" in message
    if code.startswith("E") and code[1] != "5":  # those of formulas need sizes: tests/program/test_errors_golden.py
        with pytest.raises(ModelError, match=rf"\[{code}\]"):
            compile_text(model, path=None if code == "E112" else error_pages.GOLDEN / "errors" / "model.gpm")


def test_the_pages_are_written(tmp_path: Path) -> None:
    error_pages.write(tmp_path)
    assert {path.stem for path in tmp_path.glob("*.md")} == {*PAGES, "index"}
    shown = (tmp_path / "E201.md").read_text(encoding="utf-8")
    assert shown.startswith("# E201: an unknown name\n")
    assert shown.count("```gpm") == 2
    assert "error[E201]: unknown name" in shown
    index = (tmp_path / "index.md").read_text(encoding="utf-8")
    assert all(f"[{code}]({code}.md)" in index for code in PAGES)
