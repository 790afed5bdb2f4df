"""Where a name is declared and used, whether it can be renamed, and the outline of a text."""

from __future__ import annotations

import re

from gpdsl.errors import GpdslError
from gpdsl.language.highlight import CLAUSE_WORDS, LOGICAL_WORDS
from gpdsl.language.source import MAX_NAME, Span
from gpdsl.language.vocabulary import BUILTINS, STATEMENTS
from gpdsl.lsp.occurrences import BUILTIN, Occurrence
from gpdsl.lsp.reading import Document

_NAME = re.compile(r"[^\W\d]\w*")
_RESERVED = frozenset({*STATEMENTS, *CLAUSE_WORDS, *LOGICAL_WORDS})


def definition(document: Document, line: int, column: int) -> list[Span]:
    """Where the name at a place is declared; several places for a `let` by cases."""
    place = document.at(line, column)
    if place is None:
        return _used_file(document, line, column)
    return [each.span for each in document.same(place) if each.declares]


def _used_file(document: Document, line: int, column: int) -> list[Span]:
    """The beginning of the file whose path in a `use` line stands at a place."""
    for part in document.source.parts:
        if part.used is not None and part.used.line == line and part.used.column <= column <= part.used.end_column:
            return [Span(part.line, 1, part.line, 1)]
    return []


def references(document: Document, line: int, column: int, declarations: bool = True) -> list[Span]:
    """Everywhere the thing named at a place is named."""
    place = document.at(line, column)
    same = document.same(place) if place is not None else []
    return [each.span for each in same if declarations or not each.declares]


def renameable(document: Document, line: int, column: int) -> Occurrence:
    """The name at a place. Raises GpdslError when there is none, or when it is a word of the language."""
    place = document.at(line, column)
    if place is None:
        raise GpdslError("there is no name here to rename")
    if place.owner == BUILTIN:
        raise GpdslError(f"`{place.name}` is a {BUILTINS[place.name]} of the language and cannot be renamed")
    for each in document.same(place):
        if not document.source.is_own(each.span):
            name = document.source.part(each.span.line).name
            raise GpdslError(f"`{place.name}` also stands in {name}, which other models may use: rename it by hand")
    return place


def rename(document: Document, line: int, column: int, new: str) -> list[Span]:
    """The places to rewrite so that the thing named here is called `new`.

    Raises GpdslError for a name that the file cannot declare or that already means something else in it.
    """
    place = renameable(document, line, column)
    if not _NAME.fullmatch(new) or len(new) > MAX_NAME:
        raise GpdslError(f"`{new[:MAX_NAME]}` is not a name: letters, digits and _, a letter first")
    if new in _RESERVED:
        raise GpdslError(f"`{new}` is a word of the language and cannot be a name")
    if new in BUILTINS:
        raise GpdslError(f"`{new}` is a {BUILTINS[new]} of the language and cannot be a name")
    if new != place.name:
        for each in document.occurrences:
            if each.name == new:
                raise GpdslError(
                    f"`{new}` already stands for something on line {document.source.seen_from(each.span.line, 1)}"
                )
    return [each.span for each in document.same(place)]
