"""Levels in the terms of the data: what the numbers that a fit has for them stand for, where results leave it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from types import MappingProxyType

import numpy as np

from gpdsl.data.columns import Found
from gpdsl.data.errors import listed
from gpdsl.data.times import Calendar, moments_of
from gpdsl.data.values import WORDS, Wrong, as_numbers, sorted_levels, two_valued
from gpdsl.errors import GpdslError, quoted
from gpdsl.language.model import Axis, Input, Output
from gpdsl.program.program import Program

# A fit numbers the levels of labels from 1 and the two values of a binary output from 0. Levels that are numbers come
# back as these in every array; words do in labels and tables, and keep their numbers in arrays of draws.

Unseen = Mapping[str, tuple]


def levels_of(program: Program, name: str) -> tuple:
    """Levels of a label output in their order, or the two values of a binary one. Raises GpdslError for any other."""
    output = program.declarations.outputs.get(name)
    if output is not None and output.kind == "binary":
        return program.levels.get(name, (0, 1))
    if output is None or output.label is None:
        raise GpdslError(f"`{name}` is not a label output, and has no levels")
    return levels_at(program, output.label)


def levels_at(program: Program, axis: Axis) -> tuple:
    """The levels along an axis: those of the data, or their numbers from 1."""
    return program.levels.get(str(axis.name), tuple(range(1, program.translator.size(axis) + 1)))


def numbered_levels(program: Program, name: str, unseen: Unseen = MappingProxyType({})) -> tuple[tuple, int]:
    """The levels of an input or an output, and the number of the first; none of what has no levels.

    Those of an input go on with what the rows have that the fit has not seen, by the names of indices.
    """
    declared = program.declarations
    quantity: Input | Output | None = declared.outputs.get(name) or declared.inputs.get(name)
    if name in declared.outputs and quantity is not None and (quantity.label is not None or quantity.kind == "binary"):
        return levels_of(program, name), int(quantity.label is not None)
    label = None if quantity is None else quantity.label
    if label is None:
        return (), 0
    return (*program.levels.get(str(label.name), ()), *unseen.get(str(label.name), ())), 1


def in_levels(program: Program, name: str, numbers: np.ndarray, unseen: Unseen = MappingProxyType({})) -> np.ndarray:
    """Numbers of levels, as draws and quantiles have them, as the levels that they stand for where these are numbers.

    Words keep their numbers, and so does what has no levels; NaN stays, and is what no level has.
    """
    levels, first = numbered_levels(program, name, unseen)
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
    re.compile(rf"\b(?P<name>\w+)\s*(\[[^\]]*\])?\s*(?P<sign>[!=]=|[<>]=?)\s*{WORD}"),
    re.compile(rf"{WORD}\s*(?P<sign>[!=]=|[<>]=?)\s*(?P<name>\w+)"),
)
"""A level in quotes, or a truth, beside what has it."""
AT_LEVEL = re.compile(rf"\b(?P<name>\w+)\s*\[\s*(?:(?P<label>[^\W\d]\w*)|{WORD})\s*\]")
"""`a[site]` and `sigma["north"]`."""
BARE_DAY = re.compile(r"(?<![\"'\w.-])\d{4}-\d\d-\d\d\b(?![\"'])")


def without_words(
    program: Program, text: str, names: Collection[str], calendar: Calendar | None, unseen: Unseen
) -> str:
    """A condition with the number of each level or time in quotes, or of a truth that no name is, in its place.

    Raises GpdslError for what is no level, and for one that is to be above others where there is no order.
    """

    def number(match: re.Match[str]) -> str:
        name, written = match["name"], match["word"]
        if written in names:
            return match[0]
        word = written if written[0].isalpha() else written[1:-1]
        declared = program.declarations.inputs.get(name)
        if calendar is not None and declared is not None and declared.kind == "time":
            return _in_place(match, _number_of_time(calendar, declared, word))
        levels, first = numbered_levels(program, name, unseen)
        numbers = in_levels(program, name, np.arange(len(levels)) + float(first), unseen)
        known = dict(zip(map(str, levels), numbers.tolist(), strict=True))
        two = levels == (-1, 1) or two_valued(levels)
        meant = [WORDS.get(str(each).lower(), float(each == 1)) for each in levels] if two else []
        truths = dict(zip(meant, numbers.tolist(), strict=False)) if len({*meant}) == len(meant) else {}
        value = known.get(word, truths.get(WORDS.get(word.lower(), -1)))
        if value is None:
            expected = f"one of {listed(known)}" if known else "a number: it has no levels in words"
            raise GpdslError(f"probability: `{name}` is compared with {written}; expected {expected}")
        if match["sign"][0] in "<>" and _unordered(program, name, levels):
            raise GpdslError(
                f"probability: nothing says in which order the levels {listed(levels)} of `{name}` stand; list them in "
                f'the model, the lowest first, as `index c in {{"low", "high"}}`, or join `{name} == ...` by `or`'
            )
        return _in_place(match, value)

    if calendar is not None and (bare := BARE_DAY.search(text)):
        raise GpdslError(f'probability: {bare[0]} is a difference of numbers; a time stands in quotes, "{bare[0]}"')
    for pattern in COMPARED:
        text = pattern.sub(number, text)
    return text


def without_subscripts(program: Program, text: str) -> tuple[str, dict[str, tuple[str, str]]]:
    """A condition with a name of its own, as wide, for each quantity that it reads at the level of the row.

    The names are given with the parameter or constant and the label that each is of. A latent that is a function of
    the label stands for itself, and a level in quotes for its number.
    """
    declared, found = program.declarations, dict[str, tuple[str, str]]()
    labels = {name: each.label.name for name, each in declared.inputs.items() if each.label is not None}

    def named(match: re.Match[str]) -> str:
        name, label, width = match["name"], match["label"], len(match[0])
        inferred = f"log_{name}" if name in declared.lets else name  # a positive one is on its logarithm
        latent, known = declared.latents.get(inferred), declared.params.get(name) or declared.consts.get(name)
        axis = known.axes[0] if known is not None and len(known.axes) == 1 else None
        if latent is not None and label in latent.arguments and label in labels:
            return f"{name:<{width}}"
        if latent is not None and match["word"]:
            raise GpdslError(f"probability: `{name}` is that of the level in each row; write `{name}`")
        if axis is not None and label in labels and labels[label] == axis.name:
            own = f"{name}_{label}".ljust(width, "_")
            found[own] = name, label
            return own
        if axis is not None and match["word"] and (levels := program.levels.get(str(axis.name), ())):
            places = {str(each): place for place, each in enumerate(levels, 1)}
            if match["word"][1:-1] not in places:
                raise GpdslError(
                    f"probability: `{name}` has no {match['word']}; the levels of `{axis.name}` are {listed(places)}"
                )
            return f"{name}[{places[match['word'][1:-1]]}]".ljust(width)
        return match[0]

    return AT_LEVEL.sub(named, text), found


def _in_place(match: re.Match[str], value: float) -> str:
    """A comparison with a number in the place of its word, as wide."""
    place, width = match.start("word") - match.start(), len(match["word"])
    return f"{match[0][:place]}{value:<{width}.17g}{match[0][place + width :]}"


def _unordered(program: Program, name: str, levels: tuple) -> bool:
    """Whether levels stand by alphabet because nothing said how else."""
    declared = program.declarations
    quantity: Input | Output | None = declared.outputs.get(name) or declared.inputs.get(name)
    if quantity is None or quantity.label is None or quantity.kind == "ordinal" or as_numbers(levels):
        return False
    return declared.indices[str(quantity.label.name)].levels is None and levels == sorted_levels(levels)


def _number_of_time(calendar: Calendar, declared: Input, word: str) -> float:
    """The number that a time in quotes has in a fit. Raises GpdslError for what is none, and for another zone's."""
    found = Found(declared.name, np.array([word], object), (declared.name,))
    try:
        moments, _ = moments_of(found, calendar.zones.get(declared.name), declared.unit)
    except Wrong as wrong:
        problem = (
            f"`{declared.name}` is compared with {quoted(word)}: {wrong.mistake.message_text().partition(': ')[2]}"
        )
        raise GpdslError(f"probability: {problem}; {wrong.mistake.help_text()}") from wrong
    return float(calendar.numbers(moments, declared.unit)[0])
