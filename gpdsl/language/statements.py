"""Cut the text into statements: at line ends outside brackets, so that each is parsed, and fails, on its own."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpdsl.language.errors.base import Mistake
from gpdsl.language.errors.limits import LineTooLong, TextTooLong, TooDeep, TooManyStatements
from gpdsl.language.errors.syntax import NeverClosed, NeverOpened, TextNeverClosed
from gpdsl.language.limits import MAX_CHARACTERS, MAX_DEPTH, MAX_LINE, MAX_STATEMENTS
from gpdsl.language.source import Source, Span
from gpdsl.language.vocabulary import STATEMENTS

_PARTNER = {"(": ")", "[": "]", "{": "}"}
_MARK = re.compile(r'"[^"\n]*"|"|#[^\n]*|\n|[()\[\]{}]')
_WORD = re.compile(r"[^\W\d]\w*")
# Nothing inside a bracket looks like this, so a bracket still open before such a line was never closed.
_STATEMENT = rf"(?:{'|'.join(STATEMENTS)})[ \t]+[^\W\d]|use[ \t]+\x22"
_RESTART = re.compile(rf"[ \t]*(?:{_STATEMENT}|[^\W\d]\w*[ \t]*(?:\[[^\[\]\n]*\])?[ \t]*~)")


@dataclass(frozen=True)
class Piece:
    """The text of one statement, beginning at the start of line `line`; `broken` when its brackets already fail."""

    text: str
    line: int
    broken: bool = False

    def words(self, count: int = 2) -> tuple[str, ...]:
        """Its first words: the statement word and the name that follows, or the name of an observed output."""
        found = []
        for match in _WORD.finditer(self.text):
            found.append(match.group())
            if len(found) == count:
                break
        return tuple(found)


def split(source: Source) -> tuple[list[Piece], list[Mistake]]:
    """The statements of a text, and what is wrong with its size, brackets and quotation marks."""
    start = Span(1, 1, 1, 2)
    if len(source.text) > MAX_CHARACTERS:
        return [], [TextTooLong(start, len(source.text), MAX_CHARACTERS)]
    for number, line in enumerate(source.text.split("\n"), 1):
        if len(line) > MAX_LINE:
            return [], [LineTooLong(Span(number, MAX_LINE, number, MAX_LINE + 1), len(line), MAX_LINE)]
    return _Splitter(source).run()


class _Splitter:
    """One pass over brackets, texts, comments and line ends."""

    def __init__(self, source: Source) -> None:
        self.source, self.text = source, source.text
        self.starts = {each.line for each in source.parts}
        self.pieces: list[Piece] = []
        self.mistakes: list[Mistake] = []
        self.open: list[tuple[str, Span]] = []
        self.line, self.line_start = 1, 0
        self.piece_line, self.piece_start = 1, 0
        self.broken = False

    def run(self) -> tuple[list[Piece], list[Mistake]]:
        for match in _MARK.finditer(self.text):
            self._mark(match.group(), match.start(), match.end())
            if len(self.pieces) > MAX_STATEMENTS:
                place = Span(self.piece_line, 1, self.piece_line, 2)
                return [], [TooManyStatements(place, MAX_STATEMENTS)]
        self._finish(len(self.text))
        return self.pieces, self.mistakes

    def _mark(self, mark: str, start: int, end: int) -> None:
        span = self._span(start, end)
        if mark == "\n":
            self._end_of_line(start)
        elif mark in _PARTNER:
            self.open.append((mark, span))
            if len(self.open) == MAX_DEPTH + 1:
                self._reject(TooDeep(span, MAX_DEPTH))
        elif mark in ")]}":
            self._close(mark, span)
        elif mark == '"':
            self._reject(TextNeverClosed(span))

    def _close(self, mark: str, span: Span) -> None:
        if self.open and _PARTNER[self.open[-1][0]] == mark:
            self.open.pop()
            return
        advice = f"remove the `{mark}`"
        if self.open:
            bracket, place = self.open.pop()
            line = self.source.number(place.line)
            advice = f"the `{bracket}` of line {line}, column {place.column} is closed by `{_PARTNER[bracket]}`"
        self._reject(NeverOpened(span, mark, advice))

    def _end_of_line(self, position: int) -> None:
        if not self.open or self.line + 1 in self.starts or _RESTART.match(self.text, position + 1):
            self._finish(position)
            self.piece_line, self.piece_start = self.line + 1, position + 1
        self.line, self.line_start = self.line + 1, position + 1

    def _finish(self, end: int) -> None:
        if self.open:
            bracket, span = self.open[-1]
            self._reject(NeverClosed(span, bracket, _PARTNER[bracket]))
        text = self.text[self.piece_start : end]
        bare = text.lstrip()
        if bare and not (bare.startswith("#") and "\n" not in bare):
            self.pieces.append(Piece(text, self.piece_line, self.broken))
        self.open, self.broken = [], False

    def _reject(self, mistake: Mistake) -> None:
        # One bracket error per statement: the ones after it are its consequences.
        if not self.broken:
            self.mistakes.append(mistake)
        self.broken = True

    def _span(self, start: int, end: int) -> Span:
        column = start - self.line_start + 1
        return Span(self.line, column, self.line, column + end - start)
