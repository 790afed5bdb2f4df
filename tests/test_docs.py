"""What the documentation shows is what happens: its files, commands and Python run, in order, in an empty folder."""

from __future__ import annotations

import importlib
import itertools
import os
import re
import shlex
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import gpdsl
from gpdsl.cli import main
from gpdsl.forward import registry
from gpdsl.language import inducing, options as engine_names, vocabulary
from gpdsl.language.options import WRITTEN

ROOT = Path(__file__).resolve().parents[1]
PAGES = ["README.md", *sorted(page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(
    r"(?:<!-- (?:file: (?P<file>\S+)|(?P<printed>printed)) -->\n)?```(?P<kind>[\w{}-]*)\n(?P<text>.*?)```", re.DOTALL
)
NUMBER = re.compile(r"\d+\.?(\d*)")
TIME = re.compile(r"^  time .*$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block: a file to write, what the Python before it has `printed`, console lines or Python."""

    file: str | None
    printed: str | None
    kind: str
    text: str


def blocks(page: str) -> list[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return [Block(**found.groupdict()) for found in BLOCK.finditer(text)]


def commands(text: str) -> list[tuple[str, str]]:
    """Each line after `$ ` and the output shown under it."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    return [(command, shown) for command, _, shown in (part.partition("\n") for part in parts)]


def prose(page: Path) -> str:
    """A page without its code."""
    return re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def same(printed: str, shown: str) -> bool:
    """Whether a text is shown as it is printed, but for the last digits of numbers and the time of a fit."""
    printed, shown = (TIME.sub("", text) for text in (printed, shown))
    numbers = zip(NUMBER.finditer(printed), NUMBER.finditer(shown), strict=False)
    near = [abs(float(a[0]) - float(b[0])) <= max(0.1 * float(b[0]), 1.01 * 10.0 ** -len(b[1])) for a, b in numbers]
    words = [" ".join(NUMBER.sub("0", text).split()) for text in (printed, shown)]
    return words[0] == words[1] and all(near)


def test_what_is_shown_is_compared_with_what_is_printed() -> None:
    assert same("a 1.04 [2.  3.1]\n  time   9.1 s\n", "a 1.05 [2. 3.1]\n  time   0.2 s, of which compiling 0.1 s\n")
    assert not same("a 1.04\n", "a 1.24\n") and not same("a 1.04\n", "b 1.04\n") and not same("1 2\n", "1\n")


def run_console(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Run the `gpdsl` lines of a block; output shown under a line must be exactly what is printed."""
    for command, shown in commands(text):
        words = shlex.split(command)
        if words[0] != "gpdsl":
            continue
        capsys.readouterr()
        code = main(words[1:])
        printed = "".join(capsys.readouterr())
        if shown:
            assert printed == shown, command
        else:
            assert code == 0, printed


LONG = (
    "docs/deep.md",
    "docs/expectation_propagation.md",
    "docs/full_bayes.md",
    "docs/how_to.md",
    "docs/inference.md",
    "docs/opaque.md",
    "docs/results.md",
    "docs/running.md",
    "docs/scikit_learn.md",
    "docs/variational.md",
)
"""Pages that take long: run with the slow tests. What they fit has core tests of its own."""


@pytest.mark.parametrize("page", LONG)
def test_code_of_long_pages_is_code(page: str) -> None:
    """Models in their Python as well as models of their own."""
    of_kind = {kind: [block.text for block in blocks(page) if block.kind == kind] for kind in ("gpm", "python")}
    code = [compile(text, page, "exec") for text in of_kind["python"]]
    inside = [re.findall(r'compile\(\s*"""(.*?)"""', text, re.DOTALL) for text in of_kind["python"]]
    models = [gpdsl.compile(text) for text in (*of_kind["gpm"], *itertools.chain(*inside))]
    assert code and all(model.declarations.observations for model in models)


@pytest.mark.parametrize("page", [pytest.param(p, marks=pytest.mark.slow) if p in LONG else p for p in PAGES])
def test_page(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    warnings.simplefilter("error")  # as under python -W error; gpdsl's own are meant for users
    warnings.simplefilter("always", gpdsl.GpdslWarning)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_REGISTERED", {})
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    names: dict[str, Any] = {}
    printed = ""
    for block in blocks(page):
        if block.file is not None:
            Path(block.file).write_text(block.text, encoding="utf-8")
        if block.kind == "gpm":
            gpdsl.compile(block.text, folder=tmp_path)
        elif block.kind == "console":
            run_console(block.text, capsys)
        elif block.kind == "python":
            capsys.readouterr()
            exec(compile(block.text, page, "exec"), names)  # noqa: S102 - the page is part of this repository
            printed = capsys.readouterr().out
        elif block.printed:
            assert same(printed, block.text), printed
    shown = any(block.printed for block in blocks(page))
    shown |= any(output for block in blocks(page) if block.kind == "console" for _, output in commands(block.text))
    ran = [block.text for block in blocks(page) if block.kind == "python"]
    assert shown or not ran or any("assert " in text for text in ran), (
        "the code runs, and nothing looks at what it gives"
    )


def test_pages_have_blocks_of_every_kind() -> None:
    found = blocks("README.md")
    assert {"console", "python"} <= {block.kind for block in found}
    assert sum(block.file is not None for block in found) == 2
    assert sum(bool(shown) for block in found for _, shown in commands(block.text) if block.kind == "console") >= 2


def test_every_fence_is_read() -> None:
    """A fence of another form would pass for the end of a block, and its code would not run."""
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        assert text.count("```") == 2 * len(blocks(page)), page
        assert {block.kind for block in blocks(page)} <= {"", "python", "console", "gpm", "text", "{eval-rst}"}, page


def test_the_tables_are_current_and_name_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    tables = importlib.import_module("tables")
    for name in set(engine_names._engines) - set(engine_names.OWN):  # a page has registered it
        monkeypatch.delitem(engine_names._engines, name)
    for name in set(inducing._features) - set(inducing.OWN):
        monkeypatch.delitem(inducing._features, name)
    if os.environ.get("GPDSL_GOLDEN"):
        tables.write()
    wanted = {
        "distributions": vocabulary.DISTRIBUTIONS,
        "kernels": vocabulary.KERNELS,
        "functions": (*vocabulary.FUNCTIONS, *vocabulary.REDUCTIONS),
        "options": WRITTEN,
    }
    for table, names in wanted.items():
        page = (ROOT / "docs" / tables.TABLES[table][0]).read_text(encoding="utf-8")
        assert page == tables.current(table, page), "`make golden` writes the table anew"
        lines = page.partition(f"<!-- table: {table} -->")[2].partition("<!-- end of table -->")[0].split("\n")
        found = [re.match(r"\| `(\w+)", line) for line in lines]
        assert [each[1] for each in found if each] == list(names), table
    language = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    assert [word for word in vocabulary.STATEMENTS if f"| `{word}" not in language] == []


def test_every_example_of_the_tables_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    samples = importlib.import_module("samples")
    assert list(samples.DISTRIBUTIONS) == list(vocabulary.DISTRIBUTIONS)
    assert list(samples.KERNELS) == list(vocabulary.KERNELS)
    assert list(samples.REDUCTIONS) == list(vocabulary.REDUCTIONS)
    for name, lines in samples.DISTRIBUTIONS.items():
        for line in lines:
            assert f"{name}(" in line
            gpdsl.compile(samples.model_of(distribution=line))
    for name, kernel in samples.KERNELS.items():
        assert f"{name}(" in kernel
        gpdsl.compile(samples.model_of(kernel=kernel))
    for name, value in samples.REDUCTIONS.items():
        assert f"{name}(" in value
        gpdsl.compile(samples.model_of(value=value))
    for name, function in vocabulary.FUNCTIONS.items():
        gpdsl.compile(samples.model_of(value=f"{name}({', '.join(['sigmoid(f)'] * function.arity)})"))


def test_every_word_of_the_language_stands_in_an_example() -> None:
    shown = [block.text for page in PAGES for block in blocks(page) if block.kind == "gpm"]
    code = "\n".join(re.sub(r"#.*|\"[^\"]*\"", "", text) for text in shown)
    assert [word for word in vocabulary.STATEMENTS if not re.search(rf"(?m)^{word}\b", code)] == []
    types = {*vocabulary.CONSTRAINTS, *vocabulary.INPUT_KINDS, *vocabulary.OUTPUT_KINDS}
    assert [word for word in sorted(types) if not re.search(rf": {word}\b", code)] == []
    words = ["fixed", "if", "then", "else", "and", "or", "not", "lower", "upper", "on"]
    assert [word for word in words if not re.search(rf"\b{word}\b", code)] == []
    assert [sign for sign in ("@", "dot(", "D(", "sum(", "..", "^", "|", "->", ";", "==") if sign not in code] == []


def test_every_public_name_is_described_and_used() -> None:
    described = "".join(block.text for block in blocks("docs/api.md") if block.kind == "{eval-rst}")
    used = "".join(block.text for block in blocks("docs/api.md") if block.kind == "python")
    assert [name for name in gpdsl.__all__ if not re.search(rf"gpdsl\.(results\.)?{name}\n", described)] == []
    assert [name for name in gpdsl.__all__ if not re.search(rf"gpdsl\.{name}\b", used)] == []


def anchors(page: Path) -> set[str]:
    """Those that headings have on web pages of repositories."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = [heading.lower() for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


def test_links_inside_the_repository_lead_somewhere() -> None:
    """To files that are there before the documentation is built, and to their headings."""
    missing = []
    for page in [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for file, heading in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", prose(page)):
            target = page.parent / file if file else page
            there = "://" in file or (target.exists() and (not heading or heading in anchors(target)))
            missing += [] if there else [(page.name, file, heading)]
    assert missing == []


@pytest.mark.parametrize("path", sorted((ROOT / "models").glob("*.gpm")), ids=lambda path: path.stem)
def test_every_model_of_the_zoo_is_in_the_gallery_as_it_is(path: Path) -> None:
    """With its picture, and with the text that is fitted today."""
    gallery = (ROOT / "docs/gallery.md").read_text()
    _, _, entry = gallery.partition(f"\n## {path.stem}\n")
    entry = entry.partition("\n## ")[0]
    assert f"gallery/{path.stem}.png" in entry and (ROOT / f"docs/gallery/{path.stem}.png").stat().st_size > 2000
    assert path.read_text().strip() in entry and "Fitted in" in entry
