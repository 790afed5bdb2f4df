"""Mistakes for an editor: what it underlines and says, and the edits it offers."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpdsl.language.errors import Mistake
from gpdsl.language.source import Span
from gpdsl.lsp.reading import Document

_NAME = re.compile(r"[^\W\d]\w*")
_POWER_SIGN = "E110"


@dataclass(frozen=True)
class Fix:
    """An edit that removes a mistake."""

    title: str
    span: Span
    text: str
    mistake: Mistake


def sentence(document: Document, mistake: Mistake) -> str:
    """What is wrong, what was expected, what to do: one line each; led by the place where that is in a used file."""
    source, span = document.source, mistake.span
    place = f"{source.part(span.line).name}:{source.number(span.line)}:{span.column}: "
    first = mistake.message_text() if source.is_own(span) else place + mistake.message_text()
    label, advice = mistake.label_text(), mistake.help_text()
    return "\n".join([first, *([label] if label else []), *([f"help: {advice}"] if advice else [])])


def fixes(document: Document, first: int, last: int) -> list[Fix]:
    """The edits offered for the mistakes of some lines: a misspelt name put right, `**` made a power."""
    found = []
    for mistake in document.mistakes:
        if not first <= mistake.span.line <= last:
            continue
        suggestion, written = getattr(mistake, "suggestion", ""), document.text_at(mistake.span)
        if suggestion and _NAME.fullmatch(written):
            found.append(Fix(f"Change `{written}` to `{suggestion}`", mistake.span, suggestion, mistake))
        elif mistake.code == _POWER_SIGN:
            found.append(Fix("Write the power with `^`", mistake.span, "^", mistake))
    return found
