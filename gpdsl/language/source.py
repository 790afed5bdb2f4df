"""Source text and positions in it: every node of the tree carries a `Span`."""

from __future__ import annotations

from dataclasses import dataclass


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
        lines = self.text.split("\n")
        return lines[number - 1].rstrip("\r") if 1 <= number <= len(lines) else ""
