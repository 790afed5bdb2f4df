"""Source text and positions in it: every node of the tree carries a `Span`."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of the source text; lines and columns start at 1, `end_column` is exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True)
class Part:
    """A used file: the line of the whole text on which its own begins, the name shown for it, and where it lies.

    `used` is the place in the model that led to it.
    """

    line: int
    name: str
    path: Path | None = field(default=None, compare=False)
    used: Span | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Source:
    """The text of a model and the name shown for it in errors.

    The files it uses follow the model's own lines, so that a line number alone says which file is meant; `parts` are
    these files, in that order.
    """

    text: str
    name: str = "<model>"
    parts: tuple[Part, ...] = ()

    def part(self, line: int) -> Part:
        """The file that a line belongs to; the model itself is the part that begins on line 1."""
        return max((each for each in self.parts if each.line <= line), key=lambda p: p.line, default=Part(1, self.name))

    def number(self, line: int) -> int:
        """A line as its own file counts it."""
        return line - self.part(line).line + 1

    def seen_from(self, line: int, here: int) -> str:
        """A line as a message about `here` names it: `3`, or `3 of kernels.gpm` where that is another file."""
        part, number = self.part(line), self.number(line)
        return str(number) if part == self.part(here) else f"{number} of {part.name}"

    def is_own(self, span: Span) -> bool:
        """Whether a place is in the model's own file."""
        return not self.parts or span.line < self.parts[0].line

    @property
    def own(self) -> str:
        """The text of the model's own file."""
        return "\n".join(self.lines[: self.parts[0].line - 1]) if self.parts else self.text

    def line(self, number: int) -> str:
        """The text of line `number` (from 1), empty past the end."""
        return self.lines[number - 1].rstrip("\r") if 1 <= number <= len(self.lines) else ""

    @cached_property
    def lines(self) -> list[str]:
        """The lines, without their ends."""
        # Every message asks for lines: split once, or checking takes time quadratic in the length of the text.
        return self.text.split("\n")
