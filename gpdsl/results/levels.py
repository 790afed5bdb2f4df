"""Levels in the terms of the data: what the numbers that a fit has for them stand for, where results leave it."""

from __future__ import annotations

import re
from collections.abc import Collection

import numpy as np

from gpdsl.data.errors import listed
from gpdsl.data.values import WORDS, as_numbers, two_valued
from gpdsl.errors import GpdslError
from gpdsl.language.model import Input, Output
from gpdsl.program.program import Program

# A fit numbers the levels of labels from 1 and the two values of a binary output from 0. Levels that are numbers come
# back as these in every array; words do in labels and tables, and keep their numbers in arrays of draws.


def levels_of(program: Program, name: str) -> tuple:
    """Levels of a label output in their order, or the two values of a binary one. Raises GpdslError for any other."""
    output = program.declarations.outputs.get(name)
    if output is not None and output.kind == "binary":
        return program.levels.get(name, (0, 1))
    if output is None or output.label is None:
        raise GpdslError(f"`{name}` is not a label output, and has no levels")
    count = program.translator.size(output.label)
    return program.levels.get(str(output.label.name), tuple(range(1, count + 1)))


def numbered_levels(program: Program, name: str) -> tuple[tuple, int]:
    """The levels of an input or an output, and the number of the first; none of what has no levels."""
    declared = program.declarations
    quantity: Input | Output | None = declared.outputs.get(name) or declared.inputs.get(name)
    if name in declared.outputs and quantity is not None and (quantity.label is not None or quantity.kind == "binary"):
        return levels_of(program, name), int(quantity.label is not None)
    label = None if quantity is None else quantity.label
    return ((), 0) if label is None else (program.levels.get(str(label.name), ()), 1)


def in_levels(program: Program, name: str, numbers: np.ndarray) -> np.ndarray:
    """Numbers of levels, as draws and quantiles have them, as the levels that they stand for where these are numbers.

    Words keep their numbers, and so does what has no levels; NaN stays, and is what no level has.
    """
    levels, first = numbered_levels(program, name)
    plain = levels == tuple(range(first, first + len(levels)))
    if plain or not (known := as_numbers(levels)):
        return numbers
    return _looked_up(np.asarray([*known, np.nan], float), first, numbers)


def in_words(levels: tuple, numbers: np.ndarray) -> np.ndarray:
    """What `in_levels` gives of a binary output, for a table: words in place of 0 and 1 where these are its levels."""
    if not isinstance(levels[0], str):
        return numbers
    return _looked_up(np.asarray([*levels, None], object), 0, numbers)


def _looked_up(table: np.ndarray, first: int, numbers: np.ndarray) -> np.ndarray:
    """Entries of a table whose last one is that of no level."""
    places = np.where(np.isfinite(numbers), np.rint(numbers) - first, -1).astype(int)
    found: np.ndarray = table[np.where((places >= 0) & (places < len(table) - 1), places, -1)]
    return found


WORD = r"(?P<word>\"[^\"\n]*\"|'[^'\n]*'|\b(?:[Tt]rue|[Ff]alse)\b)"
COMPARED = (
    re.compile(rf"\b(?P<name>\w+)\s*(\[[^\]]*\])?\s*(?:[!=]=|[<>]=?)\s*{WORD}"),
    re.compile(rf"{WORD}\s*(?:[!=]=|[<>]=?)\s*(?P<name>\w+)"),
)
"""A level in quotes, or a truth, beside what has it."""


def without_words(program: Program, text: str, names: Collection[str]) -> str:
    """A condition with the number of each level in quotes, or of a truth that is none of the names, in its place.

    Raises GpdslError for what is no level.
    """

    def number(match: re.Match[str]) -> str:
        name, written = match["name"], match["word"]
        if written in names:
            return match[0]
        word = written if written[0].isalpha() else written[1:-1]
        levels, first = numbered_levels(program, name)
        numbers = in_levels(program, name, np.arange(len(levels)) + float(first))
        known = dict(zip(map(str, levels), numbers.tolist(), strict=True))
        spellings = WORDS if (first == 0 or levels == (0, 1)) and two_valued(levels) else {}
        value = known.get(word, spellings.get(word.lower()))
        if value is None:
            expected = f"one of {listed(known)}" if known else "a number: it has no levels in words"
            raise GpdslError(f"probability: `{name}` is compared with {written}; expected {expected}")
        place = match.start("word") - match.start()
        return f"{match[0][:place]}{value:<{len(written)}.17g}{match[0][place + len(written) :]}"

    for pattern in COMPARED:
        text = pattern.sub(number, text)
    return text
