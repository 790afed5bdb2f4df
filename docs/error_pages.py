"""One page per code, written from docs/codes and the golden files, so that the messages shown are those printed.

docs/codes/*.md hold what a code means and a right example under a heading `# E201 An unknown name`; the wrong example
and its message are those of the golden tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent / "tests" / "golden"

FAMILIES = {
    "E1": "Syntax",
    "E2": "Names and axes",
    "E3": "Calls, distributions, kernels and values",
    "E4": "Limits",
    "E5": "Formulas, once sizes are known",
    "D": "Data and simulation",
    "F": "Opaque functions",
    "W": "Warnings",
}

LONGEST = 40
"""Lines of a wrong example that is shown; of a longer one the message says enough."""

_HEADING = re.compile(r"^# (?P<code>[A-Z]\d{3}) (?P<title>.+)\n", re.MULTILINE)
_EXAMPLE = re.compile(r"```gpm\n(?P<text>.*?)```\n", re.DOTALL)
_MENTION = re.compile(r"(?:error|warning)\[(\w+)\]")


@dataclass(frozen=True)
class Page:
    """What is written about one code; `right` is empty where a model cannot show it."""

    code: str
    title: str
    words: str
    right: str


def pages() -> Iterator[Page]:
    """Every page of docs/codes, in order."""
    for path in sorted((HERE / "codes").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        found = list(_HEADING.finditer(text))
        for heading, following in zip(found, [*found[1:], None], strict=True):
            body = text[heading.end() : following.start() if following else len(text)]
            example = _EXAMPLE.search(body)
            words = _EXAMPLE.sub("", body).strip()
            yield Page(heading["code"], heading["title"], words, example["text"] if example else "")


def wrong(code: str) -> tuple[str, str]:
    """A wrong model and the message printed for it: the first golden file of the code. Empty where there is none."""
    for folder in ("errors", "warnings", "kernels", "densities", "sizes"):
        for path in sorted((GOLDEN / folder).glob(f"{code.lower()}_*.gpm")):
            return path.read_text(encoding="utf-8"), path.with_suffix(".txt").read_text(encoding="utf-8")
    for folder in ("data", "forward", "simulation"):
        for path in sorted((GOLDEN / folder).glob("*.txt")):
            text = path.read_text(encoding="utf-8")
            if set(_MENTION.findall(text)) == {code}:
                return "", text
    return "", ""


def render(page: Page) -> str:
    """The page as Markdown."""
    model, message = wrong(page.code)
    parts = [f"# {page.code}: {page.title[0].lower()}{page.title[1:]}", page.words]
    if message:
        parts += (
            ["## Wrong"]
            # What is wrong by syntax is not the language, and has no colours of it.
            + (
                [_fence("text" if page.code.startswith("E1") else "gpm", model)]
                if 0 < model.count("\n") <= LONGEST
                else []
            )
            + [_fence("text", message)]
        )
    if page.right:
        parts += ["## Right", _fence("gpm", page.right)]
    return "\n\n".join(parts) + "\n"


def _fence(kind: str, text: str) -> str:
    return f"```{kind}\n{text.rstrip()}\n```"


def write(folder: Path) -> None:
    """Write one page per code and their index."""
    folder.mkdir(exist_ok=True)
    everything = list(pages())
    for page in everything:
        _replace(folder / f"{page.code}.md", render(page))
    _replace(folder / "index.md", _index(everything))


def _index(everything: list[Page]) -> str:
    parts = ["# Error codes", "The code is what an error or warning prints in brackets."]
    for family, title in FAMILIES.items():
        rows = [f"| [{p.code}]({p.code}.md) | {p.title} |" for p in everything if p.code.startswith(family)]
        parts += [f"## {title}", "\n".join(["| code | meaning |", "|---|---|", *rows])]
    names = "\n".join(page.code for page in everything)
    return "\n\n".join([*parts, f":::{{toctree}}\n:hidden:\n\n{names}\n:::"]) + "\n"


def _replace(path: Path, text: str) -> None:
    """Write only what changed, so that a second build reads nothing anew."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
