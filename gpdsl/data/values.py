"""Checking values: numbers, counts, positives, binaries and labels, each returned as float64."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np

from gpdsl.data import errors
from gpdsl.data.columns import Found
from gpdsl.data.convert import TRUTHS, is_code, limit_of, number_of, readings
from gpdsl.data.file_mistakes import LabelOutside, OutOfScale, TimeInColumn, TooManyDigits, TooManyLevels
from gpdsl.data.table import as_text, moment_in, pieces
from gpdsl.errors import GpdslWarning, quoted
from gpdsl.language.model import Axis

MAX_LEVELS = 1000
EXACT = 2.0**53
LARGEST = 1e40
"""Size of a real output whose variance, and its square, are numbers of double precision with room to spare."""
"""Whole numbers below are floats without rounding."""

YES = {"true": "false", "yes": "no", "y": "n", "t": "f"}
WORDS = dict.fromkeys(YES, 1.0) | dict.fromkeys(YES.values(), 0.0)
OPPOSITE = YES | {no: yes for yes, no in YES.items()}
Level = int | float | str


class Wrong(Exception):
    """A mistake on its way from the place that sees it to `bind`, which collects them."""

    def __init__(self, mistake: errors.DataMistake) -> None:
        super().__init__(mistake.code)
        self.mistake = mistake


def place_of(found: Found, wrong: np.ndarray) -> tuple[str, int, tuple[int, ...]]:
    """Column, row (from 1) and index of the first true element of a mask of the shape of the values."""
    at = tuple(int(each) for each in np.argwhere(wrong)[0])
    element = int(np.ravel_multi_index(at[1:], found.values.shape[1:])) if len(at) > 1 else 0
    return found.columns[min(element, len(found.columns) - 1)], at[0] + 1, at


def numbers(found: Found) -> np.ndarray:
    """The values as float64, NaN where missing. Raises Wrong at the first text."""
    if found.values.dtype != object:
        return found.values
    parsed = [np.nan if each is None else number_of(str(each)) for each in found.values.ravel().tolist()]
    wrong = np.array([each is None for each in parsed]).reshape(found.values.shape)
    if wrong.any():
        column, row, at = place_of(found, wrong)
        value = plain(found.values[at])
        if moment_in(str(value)) is not None:
            raise Wrong(TimeInColumn(column, row, errors.shown(value)))
        if limit := limit_of(str(value)):
            raise Wrong(errors.TextInColumn(column, row, errors.shown(value), limit, errors.LIMIT))
        whole, *pointed = [*readings(str(value)).values(), ""]
        how = errors.EITHER.format(pointed=pointed[0]) if len(pointed) > 1 else errors.DECIMALS
        raise Wrong(errors.TextInColumn(column, row, errors.shown(value), whole, how))
    _doubt_codes(found)
    return np.array(parsed, dtype=np.float64).reshape(found.values.shape)


def _doubt_codes(found: Found) -> None:
    """Warn of digits with zeros before them, or too many, that are taken for numbers."""
    coded = np.array([is_code(str(each)) for each in found.values.ravel().tolist()]).reshape(found.values.shape)
    if coded.any():
        column, row, at = place_of(found, coded)
        text = quoted(found.values[at])
        warnings.warn(
            f"`{quoted(column)}`: `{text}` in row {row} is read as the number {float(text):g}; if these are "
            f"names, as codes of places are, declare a label, `{found.name} : label[s]`, which keeps all their digits",
            GpdslWarning,
            stacklevel=2,
        )


@dataclass(frozen=True)
class Rule:
    """What the finite values of a kind must satisfy, and the mistake when they do not."""

    broken: Callable[[np.ndarray], np.ndarray]
    mistake: Callable[[str, int, str], errors.DataMistake]


RULES: dict[str, Rule] = {
    "count": Rule(lambda values: (values < 0) | (values != np.floor(values)), errors.NotACount),
    "positive": Rule(lambda values: values <= 0, errors.NotPositive),
    "unit": Rule(lambda values: (values <= 0) | (values >= 1), errors.NotAProportion),
}


def check_rule(found: Found, values: np.ndarray, kind: str, start: int = 0) -> None:
    """Raise Wrong at the first finite value that breaks the rule of its kind; kinds without a rule take any number.

    `values` are those of the rows after `start`.
    """
    rule = RULES.get(kind)
    if rule is None:
        return
    broken = np.isfinite(values) & rule.broken(np.where(np.isfinite(values), values, 1.0))
    if broken.any():
        column, row, at = place_of(found, broken)
        raise Wrong(rule.mistake(column, start + row, errors.shown(float(values[at]))))


def input_values(found: Found, kind: str) -> np.ndarray:
    """An input: every value known and finite, and right for its kind."""
    values = numbers(found)
    for start, piece in pieces(values):
        wrong = ~np.isfinite(piece)
        if wrong.any():
            column, row, at = place_of(found, wrong)
            value = "missing" if np.isnan(piece[at]) else errors.shown(float(piece[at]))
            raise Wrong(errors.NotFinite(column, start + row, value))
        check_rule(found, piece, kind, start)
    return values


def output_values(found: Found, kind: str) -> np.ndarray:
    """A real, positive, unit or count output: NaN where not observed."""
    values = numbers(found)
    infinite = np.isinf(values)
    if infinite.any():
        column, row, at = place_of(found, infinite)
        raise Wrong(errors.InfiniteOutput(column, row, errors.shown(float(values[at]))))
    check_rule(found, values, kind)
    if kind == "real":
        # The largest value of a real output has a variance that float64 holds, with its square.
        size = np.nan_to_num(np.abs(values))
        largest = float(np.max(size, initial=0.0))
        if largest > LARGEST or 0.0 < largest < 1.0 / LARGEST:
            column, row, at = place_of(found, size == largest)
            unit = f"1e{int(np.floor(np.log10(largest)))}"
            raise Wrong(OutOfScale(column, row, errors.shown(float(values[at])), unit))
    return values


def two_words(found: Found) -> tuple[Level, ...]:
    """The two values that a binary output holds in place of 0 and 1: -1 and 1, or two words, the first of which is 0.

    Words have the order of their categorical where that has one, unless they are words for no and yes.

    None of 0 and 1 themselves, and of several spellings of no and yes. A column of -1 alone, or of one of the words for
    no and yes, tells the other value.
    """
    if found.values.dtype != object:
        held = set(np.unique(found.values[~np.isnan(found.values)]).tolist())
    else:
        words = {str(each) for each in found.values.ravel().tolist() if not absent(each)}
        numbers = [number_of(word) for word in words]
        if any(each is None or each != each for each in numbers):  # "NA" of a data frame is a word
            words |= {_opposite(word) for word in words if len(words) == 1 and word.lower() in WORDS}
            known = [_two_valued(word) for word in words]
            same = None not in known and (len({*known}) == 1 or any(word.lower() not in WORDS for word in words))
            order = () if two_valued([*words]) else found.order()  # no is 0 in any order
            ordered = [word for word in order if word in words] if words <= {*order} else in_order(words)
            return tuple(ordered) if len(words) == 2 and not same else ()
        held = {each for each in numbers if each is not None}
    return (-1, 1) if -1.0 in held and held <= {-1.0, 1.0} else ()


def _opposite(word: str) -> str:
    """`no` of `yes`, in its capitals."""
    other = OPPOSITE[word.lower()]
    return other.upper() if word.isupper() else other.capitalize() if word[0].isupper() else other


def two_valued(levels: Sequence[object]) -> bool:
    """Whether levels are 0 and 1, or words for these, of which there are several spellings."""
    return tuple(levels) == (0, 1) or (bool(levels) and all(str(each).lower() in WORDS for each in levels))


def in_order(words: Iterable[str]) -> list[str]:
    """Two words by alphabet, but those of no and yes in this order, whatever their capitals."""
    alphabet = sorted(words)
    return sorted(alphabet, key=lambda word: WORDS[word.lower()]) if two_valued(alphabet) else alphabet


def binary_values(found: Found, words: Sequence[Level] = ()) -> np.ndarray:
    """A binary output as 0 and 1, or the places of its two words; NaN where not observed."""
    values = found.values
    worded = bool(words) and isinstance(words[0], str)
    if worded and not two_valued(words):
        places = {str(word): float(place) for place, word in enumerate(words)}
        flat = values.ravel().tolist()
        placed = [np.nan if absent(each) else places.get(str(each)) for each in flat]
        if None in placed:
            raise Wrong(
                errors.OtherWord(found.columns[0], errors.shown(flat[placed.index(None)]), errors.listed(words))
            )
        return np.array(placed, dtype=np.float64).reshape(values.shape)
    if values.dtype == object:
        said = [np.nan if each is None else _two_valued(str(each)) for each in values.ravel().tolist()]
        if None in said and worded:
            raise Wrong(
                errors.OtherWord(
                    found.columns[0], errors.shown(values.ravel().tolist()[said.index(None)]), errors.listed(words)
                )
            )
        if None in said:
            raise Wrong(_not_binary(found))
        values = np.array(said, dtype=np.float64).reshape(values.shape)
    known = set(np.unique(values[~np.isnan(values)]).tolist())
    low = -1 if tuple(words) == (-1, 1) else 0  # at a fit, or at that which the data are for
    if -1 - low in known and known <= {-1.0, 0.0, 1.0}:
        column = place_of(found, values == -1 - low)[0]
        raise Wrong(errors.NotBinary(column, f"`{-1 - low}`, where {low} and 1 are its two values"))
    if not known <= {low, 1.0}:
        raise Wrong(_not_binary(found))
    return np.where(values == -1.0, 0.0, values)


def _two_valued(word: str) -> float | None:
    known = WORDS.get(word.strip().lower())
    return number_of(word) if known is None else known


def _not_binary(found: Found) -> errors.DataMistake:
    """Of a column with other values than two, or of columns with two each that are not those of the others."""
    columns = found.values.reshape(len(found.values), -1).T
    held = [sorted_levels(column.tolist()) for column in columns]
    every = sorted_levels(found.values.ravel().tolist())
    wrong = [place for place, levels in enumerate(held) if len(levels) > 2]
    if len(held) > 1 and len(every) > 2 and not wrong:
        shared = {column: _distinct(levels) for column, levels in zip(found.columns, held, strict=True) if levels}
        said = "; ".join(f"`{errors.shown(column)}` holds {values}" for column, values in list(shared.items())[:4])
        return errors.DifferentWords(found.name, said + ("; and so on" if len(shared) > 4 else ""))
    place = wrong[0] if wrong else 0
    return errors.NotBinary(
        found.columns[min(place, len(found.columns) - 1)], _distinct(held[place] if wrong else every)
    )


def _distinct(levels: Sequence[Level]) -> str:
    return errors.listed((f"`{errors.shown(each)}`" for each in levels), limit=4)


def label_values(found: Found, index: Axis, levels: Sequence[Level]) -> np.ndarray:
    """A label output as class numbers from 0, NaN where not observed. Raises Wrong for a label that is no level."""
    counted = index.size is not None and tuple(levels) == tuple(range(1, index.size + 1))
    instead = (
        f"; `index {index.name} in 1..{str(index.name).upper()}` takes those that the data have" if counted else ""
    )
    _check_labels(found)
    text = any(isinstance(level, str) for level in levels)
    keys = {_key(level, text): number for number, level in enumerate(levels)}
    flat = found.values.ravel().tolist()
    coded = [np.nan if absent(each) else keys.get(_key(each, text)) for each in flat]
    wrong = np.array([each is None for each in coded]).reshape(found.values.shape)
    if wrong.any():
        column, row, at = place_of(found, wrong)
        raise Wrong(
            LabelOutside(column, row, errors.shown(found.values[at]), index.name or "", errors.listed(levels), instead)
        )
    return np.array(coded, dtype=np.float64).reshape(found.values.shape)


def distinct_levels(founds: Iterable[Found], most: int = MAX_LEVELS) -> tuple[Level, ...]:
    """The distinct labels of columns that share an index: in the order of their categories where all columns have the
    same one, else sorted. Raises Wrong when there are too many to be labels."""
    together: list[object] = []
    founds = list(founds)
    orders = {found.order() for found in founds}
    for found in founds:
        _check_labels(found)
        levels = sorted_levels(found.values.ravel().tolist())
        if len(levels) > most:
            raise Wrong(TooManyLevels(found.columns[0], len(levels), most))
        together += levels
    levels = sorted_levels(together)
    order = orders.pop() if len(orders) == 1 else ()
    if order == TRUTHS and {*levels} <= {0, 1}:
        return tuple(map(bool, levels))
    known = {_key(each, text=False): place for place, each in enumerate(order)}
    if all(_key(each, text=False) in known for each in levels):
        return tuple(sorted(levels, key=lambda each: known[_key(each, text=False)]))
    return levels


def _check_labels(found: Found) -> None:
    """Raise Wrong at the first label that is infinite, or a number that may have been rounded to another label."""
    if found.values.dtype == object:
        return
    wrong = np.abs(found.values) >= EXACT
    if wrong.any():
        column, row, at = place_of(found, wrong)
        value = float(found.values[at])
        mistake = errors.InfiniteOutput if np.isinf(value) else TooManyDigits
        raise Wrong(mistake(column, row, errors.shown(value)))


def sorted_levels(values: Iterable[object]) -> tuple[Level, ...]:
    """Distinct values without the missing ones: whole numbers as int; numbers before text, "9" before "10"."""
    return tuple(sorted({plain(each) for each in values if not absent(each)}, key=_place))


def _place(level: Level) -> tuple[bool, float, str]:
    """What levels are sorted by: numbers, then texts of numbers by these, then words."""
    number = number_of(level) if isinstance(level, str) else level
    known = number is not None and np.isfinite(number)
    return isinstance(level, str), float(number) if known and number is not None else np.inf, str(level)


def as_numbers(levels: tuple) -> tuple[float, ...]:
    """Levels that are numbers, or texts of different numbers, as "9" and "10" are; none where some are words."""
    known: list[float] = []
    for each in levels:
        number = float(each) if isinstance(each, bool) else number_of(str(each))
        if number is None or not np.isfinite(number):
            return ()
        known.append(number)
    return tuple(known) if len({*known}) == len(known) else ()


def numbers_in_order(levels: np.ndarray) -> tuple[str, ...]:
    """Texts that are numbers, in the order of these; none of words, and of what is no text."""
    names = tuple(map(str, levels)) if levels.dtype.kind in "OU" else ()
    return tuple(names[place] for place in np.argsort(as_numbers(names)))


def absent(value: object) -> bool:
    """Whether a value is missing."""
    return value is None or value != value  # NaN is the one value that differs from itself


def plain(value: object) -> Level:
    """A value as levels are kept: text, or a number, an int where it is whole."""
    if isinstance(value, str):
        return value
    if isinstance(value, date):
        return as_text(value)
    number = float(value)  # type: ignore[arg-type]
    return int(number) if number.is_integer() else number


def _key(value: object, text: bool) -> Level:
    """What labels are compared by: `text` when a level is text, so that 4 in a file meets "4" in a model."""
    if text:
        return str(plain(value))
    if isinstance(value, str):
        number = number_of(value)
        return value if number is None or number != number else plain(number)
    return plain(value)
