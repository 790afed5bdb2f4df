"""The tables of the language reference, written into their pages from the vocabulary, so that they cannot disagree.

`python docs/tables.py` writes them, and so does `make golden`; a test compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import samples

from gpdsl.language import vocabulary as v
from gpdsl.language.distributions import signature
from gpdsl.language.options import WRITTEN

HERE = Path(__file__).resolve().parent


def distributions() -> str:
    """Every distribution: how it is written, its outputs, its meaning and examples."""
    rows = (
        (f"`{signature(d)}`", ", ".join(d.kinds) or "priors only", d.meaning, _codes(samples.DISTRIBUTIONS[d.name]))
        for d in v.DISTRIBUTIONS.values()
    )
    return _table(("distribution", "outputs", "meaning", "example"), rows)


def kernels() -> str:
    """Every kernel, with its parameters and an example."""
    rows = (
        (
            f"`{signature(k)}`",
            k.meaning,
            "; ".join(f"`{p.name}`: {p.meaning}" for p in k.parameters),
            _codes([samples.KERNELS[k.name]]),
        )
        for k in v.KERNELS.values()
    )
    return _table(("kernel", "meaning", "parameters", "example"), rows)


def functions() -> str:
    """Elementary functions, then reductions over an index."""
    plain = ((f"`{f.name}({', '.join('ab'[: f.arity])})`", f.meaning) for f in v.FUNCTIONS.values())
    over = (
        (f"`{name}(i, ...)`", f"{meaning}: {_codes([samples.REDUCTIONS[name]])}")
        for name, meaning in v.REDUCTIONS.items()
    )
    return _table(("function", "meaning"), (*plain, *over))


def options() -> str:
    """Every option of `fit`, with the values it takes, its default, and the engines that read it."""
    rows = []
    for each in WRITTEN.values():
        default = "the plan decides" if each.default is None else f"`{_default(each.default)}`"
        own = ", ".join(f"`{name}`" for name in each.engines)
        engines = "all" if each.read_by("one that users register") else own
        rows.append((f"`{each.name}`", each.takes.expected, default, engines, each.meaning))
    return _table(("option", "takes", "default", "engines", "meaning"), rows)


def _default(value: object) -> str:
    """A default as it is written in an `infer` line."""
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    return shown if isinstance(value, (str, int, float)) else "none"


TABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "distributions": ("distributions.md", distributions),
    "kernels": ("kernels.md", kernels),
    "functions": ("expressions.md", functions),
    "options": ("inference.md", options),
}
"""The page of each table, where it stands between two comments, and what makes it."""


def current(name: str, page: str) -> str:
    """A page with a table as it should be."""
    begin, end = f"<!-- table: {name} -->\n", "<!-- end of table -->\n"
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{TABLES[name][1]()}\n{end}{after}"


def write() -> None:
    """Write each table into its page."""
    for name, (file, _) in TABLES.items():
        page = HERE / file
        page.write_text(current(name, page.read_text(encoding="utf-8")), encoding="utf-8")


def _codes(texts: Iterable[str]) -> str:
    return ", ".join(f"`{text}`" for text in texts)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


if __name__ == "__main__":
    write()
