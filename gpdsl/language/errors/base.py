"""What a mistake in a model is: a value with a code, a place and templates; its exception, and its text."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from typing import ClassVar

from gpdsl.errors import GpdslError, Worded, printable
from gpdsl.language.vocabulary import Source, Span


class Mistake(Worded):
    """One mistake. Subclasses give the code and the three templates.

    A field `remedy` is the help of a class without a template. A field `suggestion`, when not empty, replaces it by
    "did you mean ...?", and a field `habit` by what to write instead of a word of another tool.
    """

    span: Span

    severity: ClassVar[str] = "error"
    label: ClassVar[str] = ""

    def __str__(self) -> str:
        return f"{self.span.line}:{self.span.column}: {self.severity}[{self.code}]: {self.message_text()}"

    def label_text(self) -> str:
        """What stands beside the caret; may be empty."""
        return self.filled(self.label)

    def help_text(self) -> str:
        """What to do; may be empty."""
        if habit := getattr(self, "habit", ""):
            return str(habit)
        suggestion = getattr(self, "suggestion", "")
        return f"did you mean `{suggestion}`?" if suggestion else super().help_text()


class Named(Mistake):
    """A mistake about what has this name, or would have it."""

    name: str


class OfLatent(Mistake):
    """A mistake about this latent."""

    latent: str


class OfKernel(Mistake):
    """A mistake about this kernel."""

    kernel: str


class ModelError(GpdslError):
    """A model that cannot be accepted: every mistake found in one run, ordered by position.

    `diagnostics` are the mistakes, `source` the text they refer to; the text of the exception is the plain rendering.
    """

    def __init__(self, source: Source, diagnostics: tuple[Mistake, ...]) -> None:

        self.source = source
        self.diagnostics = diagnostics
        super().__init__(render_plain(source, diagnostics))


# Mistakes to text: the one place where they become sentences, plain, in colour, or as JSON for editors.

_WIDTH = 120
_BLANKS = str.maketrans("\t\n\r", "   ")
_PLAIN = {"error": "{}", "warning": "{}", "place": "{}", "caret": "{}", "help": "{}"}
_COLOUR = {
    "error": "\x1b[1;31m{}\x1b[0m",
    "warning": "\x1b[1;33m{}\x1b[0m",
    "place": "\x1b[1m{}\x1b[0m",
    "caret": "\x1b[31m{}\x1b[0m",
    "help": "\x1b[36m{}\x1b[0m",
}


def render_plain(source: Source, mistakes: Sequence[Mistake]) -> str:
    """The text of an error message: file, line and column, the line itself with carets, and what to do."""
    return "\n".join(_render(source, each, _PLAIN) for each in mistakes)


def render_colour(source: Source, mistakes: Sequence[Mistake]) -> str:
    """As `render_plain`, with ANSI colours."""
    return "\n".join(_render(source, each, _COLOUR) for each in mistakes)


def render_json(source: Source, mistakes: Sequence[Mistake]) -> str:
    """A JSON list, one object per mistake: file, line, column, end_line, end_column, code, message, label, help."""
    return json.dumps([_fields(source, each) for each in mistakes], ensure_ascii=False, indent=2)


def _fields(source: Source, mistake: Mistake) -> dict[str, str | int]:
    span = mistake.span
    return {
        "file": source.part(span.line).name,
        "line": source.number(span.line),
        "column": span.column,
        "end_line": source.number(span.end_line),
        "end_column": span.end_column,
        "severity": mistake.severity,
        "code": mistake.code,
        "message": mistake.message_text(),
        "label": mistake.label_text(),
        "help": mistake.help_text(),
    }


def _render(source: Source, mistake: Mistake, style: dict[str, str]) -> str:
    span = mistake.span
    number = source.number(span.line)
    place = style["place"].format(_printable(f"{source.part(span.line).name}:{number}:{span.column}:"))
    kind = style[mistake.severity].format(f"{mistake.severity}[{mistake.code}]:")
    line = source.line(span.line)
    end = span.end_column if span.end_line == span.line else len(line) + 1
    shown, before, under = _window(line, span.column - 1, max(end - 1, span.column))
    carets = style["caret"].format("^" * under)
    label = _printable(mistake.label_text())
    parts = [
        f"{place} {kind} {_printable(mistake.message_text())}",
        f"{number:>5} | {shown}",
        f"      | {' ' * before}{carets}{' ' + label if label else ''}",
    ]
    advice = _printable(mistake.help_text())
    if advice:
        parts.append(f"   {style['help'].format('help:')} {advice}")
    return "\n".join(parts)


def _window(line: str, start: int, end: int) -> tuple[str, int, int]:
    """The part of a line to show, and the columns before and under the caret in it."""
    text = _printable(line)
    first = 0 if len(text) <= _WIDTH else max(0, min(start - _WIDTH // 2, len(text) - _WIDTH))
    last = min(len(text), first + _WIDTH)
    lead = "…" if first else ""
    shown = lead + text[first:last] + ("…" if last < len(text) else "")
    before = display_width(lead + text[first:start])
    under = max(1, display_width(text[start : min(end, last)]))
    return shown, before, under


def _printable(text: str) -> str:
    """The text on one line, column by column, without what steers a terminal."""
    return printable(text.translate(_BLANKS))


def display_width(text: str) -> int:
    """Columns a text takes on a terminal: wide East Asian characters take two, combining marks none."""
    wide = sum(unicodedata.east_asian_width(each) in "WF" for each in text)
    return len(text) + wide - sum(bool(unicodedata.combining(each)) for each in text)
