"""What a column looks like to somebody who does not know its data: numbers, times, words, and how they lie."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
import scipy
from jaxtyping import Float

from gpdsl.data.columns import Found
from gpdsl.data.convert import TRUTHS, is_code, limit_of, number_of, readings
from gpdsl.data.errors import LIMIT, DataError, shown
from gpdsl.data.table import NAMED_MONTH, YEAR_LAST, Table, moment_by_digits, moment_in
from gpdsl.data.values import LARGEST, Level, Wrong, absent, distinct_levels, plain
from gpdsl.errors import GpdslWarning, quoted
from gpdsl.language.model import Declarations

NEAREST = 2000
"""Rows whose neighbours are looked for."""
FEW = 20
"""Words that a column may always have; of more, half as many as rows."""
FAR = 1000.0
"""Units of spread between two levels."""
COUNTED = 1000
"""Whole numbers that are mostly above are amounts, not counts."""
MEASURED = 20
"""Whole numbers that are never below are measurements that were rounded, or counts that are nearly normal anyway."""
SMALL = 0.01
"""Numbers of which none is above are amounts in a large unit, as 1e-9 of seconds, and no proportions."""
YEARS = 1000, 2999
"""Whole numbers that a column called a year may hold."""
YEAR_NAME = re.compile(r"(.*[\W_])?year", re.IGNORECASE)
IDENTIFIER = re.compile(r"(.*[\W_])?id|.*[a-z]I[Dd]", re.IGNORECASE)
GRADES = 10
"""Grades that whole numbers from 1 may be; counts have a 0, or are more."""
GRADE_NAME = re.compile(r"(.*[\W_])?(grade|rating|mark|score|level|rank|quality)s?", re.IGNORECASE)
ORDERS = (
    ("low", "medium", "high"),
    ("low", "mid", "high"),
    ("small", "medium", "large"),
    ("bad", "fair", "good"),
    ("poor", "fair", "good"),
    ("poor", "fair", "good", "excellent"),
    ("never", "rarely", "sometimes", "often", "always"),
)
"""Words that everybody orders in one way."""
SKEWED = 0.5
"""Skewness from which positive values are not nearly symmetric."""
OF_AXES = "it is no column but an array: write a model by hand, with `input x : real[{sizes}]` in place of several"
SIGNS = re.compile(r"[$€£¥%\s]|(?<=\d)['’](?=\d{3})")
"""What is written around numbers, and between thousands."""


@dataclass(frozen=True, eq=False)
class Look:
    """One column. Its kind is `number`, `time`, `text`, or `none` with the reason why no model can use it."""

    column: str
    kind: str
    values: np.ndarray
    """Numbers, seconds, or text with None where it is missing."""
    missing: int = 0
    levels: tuple[Level, ...] = ()
    reason: str = ""

    @property
    def known(self) -> np.ndarray:
        """What is not missing."""
        lost = [each is None for each in self.values] if self.kind == "text" else np.isnan(self.values)
        return self.values[~np.asarray(lost, dtype=bool)]

    @property
    def numbered(self) -> bool:
        """Whether it counts the rows, as an identifier does."""
        return self.kind == "number" and len(self.values) > 2 and bool(np.all(np.diff(self.values) == 1.0))


def look(table: Table, column: str) -> Look:
    """Look at one column. Never raises: what cannot be read is of no kind."""
    try:
        values = table.columns[column]
    except DataError as problem:
        return Look(column, "none", np.empty(0), reason=str(problem).splitlines()[0])
    if values.ndim != 1:
        return Look(column, "none", values, reason=OF_AXES.format(sizes=", ".join(map(str, values.shape[1:]))))
    if values.dtype != object:
        days = [moment_by_digits(each) for each in values.tolist()]
        if days and None not in days:
            return _judged(Look(column, "time", np.array([_seconds(each) for each in days])))
        return _by_name(column, values) or _judged(Look(column, "number", values, int(np.isnan(values).sum())))
    missing = sum(each is None for each in values)
    moments = [each if isinstance(each, datetime | None) else _moment(each) for each in values]
    if sum(each is None for each in moments) == missing < len(values):
        return _judged(Look(column, "time", np.array([_seconds(each) for each in moments]), missing))
    odd = [row for row, each in enumerate(moments) if each is None and values[row] is not None]
    if 2 * len(odd) < len(values) - missing:
        reason = f"its times are no column of times: row {odd[0] + 1} holds `{shown(values[odd[0]])}`, which is none"
        return Look(column, "none", values, missing, reason=reason)
    try:
        levels = distinct_levels([Found(column, values, (column,))])
    except Wrong:
        levels = ()
    levels = levels if len(levels) <= max(FEW, len(values) / 2) else ()
    texts = [str(each).strip() for each in values if each is not None]
    reason = "" if levels else "it is text that differs in nearly every row"
    if texts and (reason := _not_words(texts) or _not_numbers(values) or reason):
        return Look(column, "none", values, missing, reason=reason)
    return _judged(Look(column, "text", values, missing, levels))


def _moment(text: str) -> datetime | None:
    """The moment of a text; none of a code such as `00120101`, which would be a day of the year 12."""
    return None if is_code(text) else moment_in(text)


def _not_words(texts: Sequence[str]) -> str:
    """What texts are instead, with how it is written; nothing of words."""
    if all(map(YEAR_LAST.fullmatch, texts)):
        return f"its dates, such as {texts[0]}, {_day_order(texts)}: write them as 2024-01-05"
    if all(map(NAMED_MONTH.search, texts)):
        return f"its dates, such as {texts[0]}, have names of months: write them as 2024-01-05"
    return ""


def _not_numbers(values: np.ndarray) -> str:
    """What keeps a column from being numbers: signs around them, or an entry that is none; nothing of words.

    A few words among whole numbers that recur are codes, as `1`, `2` and `B` are.
    """
    texts = {row: str(each).strip() for row, each in enumerate(values) if each is not None}
    read = {row: number_of(_undressed(text)) for row, text in texts.items()}
    odd = [row for row, number in read.items() if number is None]
    held = {number for number in read.values() if number is not None}
    count, words = len(texts) - len(odd), {texts[row] for row in odd}
    if len(odd) >= count:
        return ""
    recurring = all(number.is_integer() for number in held) and 2 * len(held) <= count
    rare = len(held) > FEW and (len(words) == 1 or 20 * len(odd) < count)
    if odd and (not recurring or rare or not any(any(map(str.isalnum, word)) for word in words)):
        limit = limit_of(texts[odd[0]])
        told = f"; write `{limit}`: {LIMIT}" if limit else ""
        reason = f"row {odd[0] + 1} holds `{shown(texts[odd[0]])}`, which is none{told}"
        return f"its numbers are no column of numbers: {reason}"
    dressed = next((text for text in texts.values() if _undressed(text) != text), "")
    if odd or not dressed:
        return ""
    plain = " or ".join(readings(SIGNS.sub("", dressed)).values())
    return f"its numbers, such as {dressed}, are written with signs: write plain numbers, as {plain}"


def _undressed(text: str) -> str:
    """A number without what is written around it, and without commas between its thousands."""
    return next(iter(readings(SIGNS.sub("", text)).values()), text)


def _day_order(texts: Sequence[str]) -> str:
    """Which number of dates is no month, where one alone is at times above 12."""
    parts = [[int(each) for each in re.split("[/.-]", text)[:2]] for text in texts]
    above = any(first > 12 for first, _ in parts), any(second > 12 for _, second in parts)
    return {(True, False): "have the day first", (False, True): "have the month first"}.get(
        above, "do not say which number is the month"
    )


def _by_name(column: str, values: np.ndarray) -> Look | None:
    """Whole numbers that are years or identifiers, as the name of their column says; nothing for others."""
    if not np.all(values == np.floor(values)) or not np.all(np.abs(values) < LARGEST):
        return None
    if YEAR_NAME.fullmatch(column) and np.all((YEARS[0] <= values) & (values <= YEARS[1])):
        return _judged(Look(column, "time", np.array([_seconds(datetime(int(each), 1, 1)) for each in values])))
    if IDENTIFIER.fullmatch(column):
        levels = tuple(int(each) for each in np.unique(values))
        if len(levels) > len(values) / 2:
            return Look(
                column, "none", values, reason="which is another number in nearly every row, as identifiers are"
            )
        return _judged(Look(column, "text", np.array([int(each) for each in values], dtype=object), levels=levels))
    return None


def _judged(found: Look) -> Look:
    """A column that says nothing is of no kind."""
    known = found.known
    if not len(known):
        reason = "it is empty"
    elif found.kind == "number" and not np.all(np.isfinite(known)):
        row = int(np.flatnonzero(np.isinf(found.values))[0])
        reason = f"it is infinite in row {row + 1}: leave the field empty where a value is missing"
    elif found.kind == "number" and not np.all(np.abs(known) <= LARGEST):
        reason = f"it has values above {LARGEST:.0e}"
    elif len(set(known.tolist())) == 1:
        reason = "it is the same in every row" + " that has it" * bool(found.missing)
    else:
        return found
    return Look(found.column, "none", found.values, found.missing, reason=reason)


def _seconds(moment: datetime | None) -> float:
    if moment is None:
        return float("nan")
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def output_kind(found: Look) -> str:
    """The kind of an output whose values these are, as the language has it: `label` for more than two words."""
    if grades_of(found):
        return "ordinal"
    if found.kind == "text":
        return "binary" if len(found.levels) == 2 else "label"
    known = found.known
    if set(known.tolist()) in ({0.0, 1.0}, {-1.0, 1.0}):
        return "binary"
    if whole(known) and known.min() < MEASURED and np.median(known) <= COUNTED:
        return "label" if len(set(known.tolist())) == 2 else "count"
    if np.all(known > 0):
        return "unit" if SMALL < np.max(known) < 1 else "positive" if _skewed(known) else "real"
    return "real"


def grades_of(found: Look) -> tuple[Level, ...]:
    """The levels of an output that looks like grades, from lowest to highest; nothing of others.

    Numbers are grades where each of 1 to 3, or up to 10, is there and none else, often; words where they are known
    to be, or letters of a column that is called so.
    """
    if found.kind == "text":
        words = tuple(str(each) for each in found.levels)
        known = next((each for each in ORDERS if sorted(each) == sorted(word.lower() for word in words)), ())
        if known:
            return tuple(sorted(words, key=lambda word: known.index(word.lower())))
        letters = len(words) > 2 and words in (tuple("ABCDEF"[: len(words)]), tuple("abcdef"[: len(words)]))
        return words if letters and GRADE_NAME.fullmatch(found.column) else ()
    values = np.unique(found.known)
    count = len(values)
    few = 3 <= count <= GRADES and len(found.known) >= 4 * count
    return tuple(range(1, count + 1)) if few and np.array_equal(values, np.arange(1, count + 1)) else ()


def whole(known: np.ndarray) -> bool:
    """Whether numbers could be counts."""
    return bool(np.all((known >= 0) & (known == np.floor(known))))


def _skewed(known: np.ndarray) -> bool:
    """Whether positive values are more symmetric on the scale of their logarithm, over a range where that matters."""
    skewness = _skewness(known)
    return known.max() > 3 * known.min() and skewness > SKEWED and abs(_skewness(np.log(known))) < skewness


def _skewness(values: np.ndarray) -> float:
    centred = values - values.mean()
    return float(np.mean(centred**3) / np.mean(centred**2) ** 1.5)


def heavy(values: np.ndarray) -> bool:
    """Whether some values lie so far out that a normal distribution would hardly have them."""
    middle = np.median(values)
    spread = 1.4826 * np.median(np.abs(values - middle))
    return bool(spread > 0 and np.any(np.abs(values - middle) > 6 * spread))


def dispersion(inputs: Sequence[Look], counts: Float[np.ndarray, " rows"]) -> float:
    """Variance over mean of counts at the same place: 1 for a Poisson distribution.

    The variance is half the mean squared difference of each row and its nearest neighbour of the same words, in units
    of the columns' spread; without inputs it is that of all rows.
    """
    seen = np.flatnonzero(~np.isnan(counts))
    some = seen[np.linspace(0, len(seen) - 1, min(len(seen), NEAREST)).astype(int)]
    known = counts[some]
    if not inputs or len(some) < 3:
        return float(known.var() / known.mean())
    places = np.stack([_place(each)[some] for each in inputs], axis=1)
    _, nearest = scipy.spatial.cKDTree(places).query(places, k=2)
    other = np.where(nearest[:, 0] == np.arange(len(some)), nearest[:, 1], nearest[:, 0])
    return float(np.mean((known - known[other]) ** 2) / 2 / known.mean())


def _place(found: Look) -> Float[np.ndarray, " rows"]:
    """A column in units of its spread; the levels of words far from each other."""
    if found.kind == "text":
        return FAR * np.unique(np.array([str(each) for each in found.values]), return_inverse=True)[1]
    return (found.values - found.values.mean()) / found.values.std()


# The levels of later data as a fit knows them: truths in any spelling, and those that look like known ones.


def truths_as(levels: Mapping[str, tuple], declarations: Declarations, founds: Mapping[str, Found]) -> dict[str, Found]:
    """The same columns, with truths as the levels by index have them: truths, words such as TRUE, or 0 and 1."""
    result = dict(founds)
    for name, found in founds.items():
        label = (declarations.inputs.get(name) or declarations.outputs[name]).label
        known = levels.get(label.name or "", ()) if label is not None else ()
        said = {_truth(level): level for level in known}
        words = any(isinstance(level, str) for level in known)
        if None in said or len(said) != len(known) or not (words or found.values.dtype == object):
            continue
        if len(said) < 2 and not {*map(str, known)} & {*TRUTHS}:  # a 1 alone may count
            continue
        flat = found.values.ravel().tolist()
        if all(absent(each) or _truth(each) is not None for each in flat):
            values = np.empty(len(flat), object)
            values[:] = [None if absent(each) else said.get(_truth(each), each) for each in flat]
            result[name] = replace(found, values=values.reshape(found.values.shape))
    return result


def _truth(value: object) -> bool | None:
    """The truth that a level or an entry stands for: False and True in any capitals, 0 and 1; None for others."""
    return {"0": False, "false": False, "1": True, "true": True}.get(
        str(value if isinstance(value, str) else plain(value)).lower()
    )


def warn_of_spellings(column: str, new: Sequence[Level], known: Sequence[Level]) -> None:
    """Warn of levels that an earlier fit has not seen, and that look like one that it has: ` paris` beside `Paris`."""
    if not new:
        return
    seen = {_folded(level): level for level in known}
    for level in new:
        meant = seen.get(_folded(level))
        if meant is not None:
            warnings.warn(
                f"`{column}`: {quoted(level)} is no level that the fit has seen, and follows the prior; did you mean "
                f"{quoted(meant)}?",
                GpdslWarning,
                stacklevel=2,
            )


def _folded(level: Level) -> str:
    """A level whatever its capitals and blanks, as the moment, the truth or the whole number that it stands for."""
    if isinstance(level, str) and (moment := moment_in(level)) is not None:
        return moment.isoformat()
    text = "".join(str(level).split()).casefold()
    text = {"false": "0", "true": "1"}.get(text, text)
    number = number_of(text)
    return str(int(number)) if number is not None and np.isfinite(number) and number == np.floor(number) else text
