"""The list of mistakes that a check fills, and how a check gives up on one part and goes on with the next."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from typing import NoReturn

from gpdsl.language.errors.base import Mistake
from gpdsl.language.errors.limits import TooManyMistakes
from gpdsl.language.limits import MAX_REPORTED
from gpdsl.language.suggest import closest

_MAX_SUGGESTIONS = 20


class Failed(Exception):
    """Raised once a mistake has been recorded; caught where the next independent part begins."""


class Problems:
    """Mistakes found so far."""

    def __init__(self) -> None:
        self.mistakes: list[Mistake] = []
        self._suggestions = 0

    def add(self, mistake: Mistake) -> None:
        """Record a mistake and go on."""
        self.mistakes.append(mistake)

    def fail(self, mistake: Mistake) -> NoReturn:
        """Record a mistake and give up on the part being checked."""
        self.add(mistake)
        raise Failed

    def give_up(self) -> NoReturn:
        """Give up on the part being checked without a word: its mistake has been recorded already."""
        raise Failed

    def contained(self) -> AbstractContextManager[None]:
        """A part whose failure does not stop what follows it."""
        return suppress(Failed)

    def suggest(self, word: str, candidates: Iterable[str]) -> str:
        """The nearest known word, for the first mistakes of a file: comparing thousands of words takes long."""
        self._suggestions += 1
        return closest(word, candidates) if self._suggestions <= _MAX_SUGGESTIONS else ""


def in_order(mistakes: Iterable[Mistake]) -> tuple[Mistake, ...]:
    """Mistakes from the first line to the last, each once; a long list is cut."""
    by_place = sorted(mistakes, key=lambda each: (each.span.line, each.span.column, each.code))
    # The same sentence about the same line is the same mistake: `depth0[p]` twice in one kernel.
    first = {(each.span.line, each.code, each.message_text()): each for each in reversed(by_place)}
    ordered = [each for each in by_place if first[each.span.line, each.code, each.message_text()] is each]
    if len(ordered) > MAX_REPORTED:
        more = len(ordered) - MAX_REPORTED
        ordered = [*ordered[:MAX_REPORTED], TooManyMistakes(ordered[MAX_REPORTED].span, more)]
    return tuple(ordered)
