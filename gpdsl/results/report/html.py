"""Pieces of a page: tables, figures, and the policy that forbids whatever is not on it."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from gpdsl.errors import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LARGEST_SVG = 400_000
"""Bytes of a picture above which it is kept as an image of points."""

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif; color: #1c2126; background: #fff;
  max-width: 62rem; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .2rem; } h2 { font-size: 1.2rem; margin: 2rem 0 .6rem;
  border-bottom: 1px solid #d5dae0; padding-bottom: .2rem; }
p.lead { color: #56606b; margin: 0; }
nav { margin: 1rem 0; } nav a { margin-right: 1rem; color: #1f5fa8; }
table { border-collapse: collapse; font-size: .9rem; margin: .5rem 0; }
.wide { overflow-x: auto; }
th, td { text-align: left; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid #e6eaee; vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
pre { background: #f5f7f9; padding: .8rem; overflow-x: auto; font-size: .85rem; line-height: 1.4;
  white-space: pre-wrap; }
figure { margin: 1rem 0; break-inside: avoid; } figure img { max-width: 100%; height: auto; display: block; }
figcaption { color: #56606b; font-size: .9rem; }
ul.todo li { margin: .3rem 0; } ul.todo li::marker { color: #b3541e; }
math { font-family: "Latin Modern Math", "STIX Two Math", "STIX Math", "Cambria Math", "DejaVu Math TeX Gyre", math; }
.formulas { overflow: auto hidden; padding-bottom: .4rem; }
.equations td, .equations mtd { border: 0; }
.equations > mtr > mtd { text-align: left; padding: .35em .15em; }
.equations > mtr > mtd.left { text-align: right; }
.equations > mtr > mtd.where { padding-left: 2em; color: #56606b; }
.cases mtd { text-align: left; padding: .2em .5em; } .matrix mtd { padding: 0 .3em; }
.bold { font-weight: bold; }
@media print {
  body { font-size: 10.5pt; max-width: none; padding: 0; } nav { display: none; }
  h2 { break-after: avoid; } details > pre { display: block; } table, pre { break-inside: avoid; }
  pre { border: 1px solid #ccc; background: none; }
}
"""


def page(title: str, parts: Iterable[tuple[str, str, str]], lead: str) -> str:
    """The whole page, of parts with an anchor, a heading and a body."""
    parts = [each for each in parts if each[2]]
    allowed = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'sha256-{allowed}'; base-uri 'none'; form-action 'none'"
    links = "".join(f'<a href="#{anchor}">{text(heading)}</a>' for anchor, heading, _ in parts)
    body = "\n".join(
        f'<section id="{anchor}">\n<h2>{text(heading)}</h2>\n{inside}\n</section>' for anchor, heading, inside in parts
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f'<h1>{text(title)}</h1>\n<p class="lead">{text(lead)}</p>\n<nav>{links}</nav>\n{body}\n</body>\n</html>\n'
    )


def text(words: object) -> str:
    """Anything as text in which nothing is markup."""
    return escape(printable(str(words)))


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; numbers stand on the right."""
    lines = list(rows)
    if not lines:
        return ""
    right = [all(_is_number(row[place]) for row in lines) for place in range(len(head))]

    def line(cells: Sequence[object], kind: str) -> str:
        marks = [' class="number"' if each else "" for each in right]
        return "".join(f"<{kind}{m}>{text(c)}</{kind}>" for m, c in zip(marks, cells, strict=True))

    body = "".join(f"<tr>{line(each, 'td')}</tr>\n" for each in lines)
    return f'<div class="wide"><table>\n<thead><tr>{line(head, "th")}</tr></thead>\n<tbody>{body}</tbody></table></div>'


def _is_number(cell: object) -> bool:
    try:
        float(str(cell).replace("–", "nan") or "nan")
    except ValueError:
        return False
    return True


def figure(drawn: Figure, caption: str) -> str:
    """A picture with its caption: SVG, or points where that would be large."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "gpdsl"}):  # the same fit gives the same page
        raw, kind = _saved(drawn, "svg"), "svg+xml"
    if len(raw) > LARGEST_SVG:
        raw, kind = _saved(drawn, "png"), "png"
    return image(raw, kind, caption)


def _saved(drawn: Figure, kind: str) -> bytes:
    file = io.BytesIO()
    drawn.savefig(file, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    return file.getvalue()


def image(raw: bytes, kind: str, caption: str) -> str:
    """An image that is part of the page."""
    inside = base64.b64encode(raw).decode()
    words = text(caption)
    return (
        f'<figure><img src="data:image/{kind};base64,{inside}" alt="{words}">\n'
        f"<figcaption>{words}</figcaption></figure>"
    )
