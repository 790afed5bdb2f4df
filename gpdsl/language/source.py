"""Source text and positions in it: every node of the tree carries a `Span`. And where shipped texts are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal


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

    def written(self, span: Span) -> str:
        """The text of a span on one line, without comments."""
        lines = [self.line(number) for number in range(span.line, span.end_line + 1)]
        lines[-1] = lines[-1][: span.end_column - 1]
        lines[0] = lines[0][span.column - 1 :]
        return " ".join(each.partition("#")[0] for each in lines)

    @cached_property
    def lines(self) -> list[str]:
        """The lines, without their ends."""
        # Every message asks for lines: split once, or checking takes time quadratic in the length of the text.
        return self.text.split("\n")


# The sizes at which a model text is refused: it is untrusted, and must end in an answer or an error, soon.

MAX_CHARACTERS = 250_000
MAX_LINE = 10_000
MAX_STATEMENTS = 5_000
MAX_DEPTH = 100  # of brackets and of operators: well inside Python's own recursion limit, here and downstream
MAX_AXIS = 10_000
MAX_ELEMENTS = 1_000_000
MAX_DEGREE = 1_000  # of a constant power, multiplied through nested powers and earlier `let`s
MAX_TERMS = 20_000  # of an expression once earlier `let`s are written out
MAX_EXPANDED = 200_000  # terms that all calls of functions together write out
MAX_FUNCTION_DEPTH = 50  # of the operations in one function, the functions it calls written out
MAX_KERNEL_POWER = 10
MAX_KERNELS = 500  # in one covariance function, powers written out
MAX_CASES = 200  # of one `let`
MAX_LAYERS = 50  # of latents over latents
MAX_NAME = 100
MAX_REPORTED = 100
MAX_USED = 50  # files that a model uses; their texts and its own are one text to the limits above
MAX_USE_DEPTH = 10  # of files that use files
MAX_READINGS = 32  # points and derivatives at which one latent is read in a row


# Did you mean: the declared or known word closest to a misspelt one.

MAX_CANDIDATES = 400

ELSEWHERE = {"precision": "dtype"}
"""What other tools call what has a name of its own here, and is nearer to another by its letters."""


def closest(word: str, candidates: Iterable[str]) -> str:
    """The candidate most like `word`, ignoring case; empty when none is close enough to be worth saying."""
    known: dict[str, str] = {}
    for candidate in candidates:
        known.setdefault(candidate.lower(), candidate)
        if len(known) >= MAX_CANDIDATES:
            break
    if ELSEWHERE.get(word.lower()) in known:
        return ELSEWHERE[word.lower()]
    # A short name is close to every other short name: below three letters only the case may differ.
    cutoff = 0.6 if len(word) > 2 else 0.99
    found = get_close_matches(word.lower()[:100], known, n=1, cutoff=cutoff)
    return known[found[0]] if found else ""


# Where the files that travel with the package are: the grammar and the model zoo.


def shipped(kind: Literal["grammar", "models"]) -> Traversable:
    """The folder `kind`: inside the installed package, or at the root of a checkout.

    Raises FileNotFoundError when neither holds it, which means a broken installation.
    """
    packaged = files("gpdsl").joinpath("_shipped", kind)
    if packaged.is_dir():
        return packaged
    checkout = Path(__file__).resolve().parents[2] / kind
    if checkout.is_dir():
        return checkout
    raise FileNotFoundError(f"the folder `{kind}` is missing from the installation of gpdsl; install it again")
