"""Source text and positions in it: every node of the tree carries a `Span`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of the source text; lines and columns start at 1, `end_column` is exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True)
class Source:
    """The text of a model and the name shown for it in errors."""

    text: str
    name: str = "<model>"

    def line(self, number: int) -> str:
        """The text of line `number` (from 1), empty past the end."""
        return self.lines[number - 1].rstrip("\r") if 1 <= number <= len(self.lines) else ""

    @cached_property
    def lines(self) -> list[str]:
        """The lines, without their ends."""
        # Every message asks for lines: split once, or checking takes time quadratic in the length of the text.
        return self.text.split("\n")
