"""What a mistake in data is: a value with a code, a row and templates; and the exception that carries them."""

from __future__ import annotations

from typing import ClassVar

from gpdsl.errors import GpdslError, Worded, quoted

MAX_SHOWN = 10


class DataMistake(Worded):
    """One mistake. Subclasses give the code and the templates.

    A field `row` counts from 1, a field `remedy` is the help of a class without a template, and a field `suggestion`,
    when not empty, replaces it by "did you mean ...?".
    """

    suggested_help: ClassVar[str] = ""

    def help_text(self) -> str:
        """What to do; may be empty."""
        return self.filled(self.suggested_help) if getattr(self, "suggestion", "") else super().help_text()


class ColumnMistake(DataMistake):
    """One in a column."""

    column: str


class CellMistake(ColumnMistake):
    """One in a value of a column; `row` counts from 1."""

    row: int
    value: str


class DataError(GpdslError):
    """Data that a model cannot take: every mistake found in one run.

    `mistakes` are the values, `source` names the data; the text of the exception is their rendering.
    """

    def __init__(self, *mistakes: DataMistake, source: str = "data", lines: object = None) -> None:
        self.mistakes = mistakes
        self.source = source
        shown = [render(mistake, source, lines) for mistake in mistakes[:MAX_SHOWN]]
        hidden = len(mistakes) - len(shown)
        super().__init__("\n".join([*shown, *([f"... and {hidden} more"] if hidden > 0 else [])]))


def render(mistake: DataMistake, source: str, lines: object = None) -> str:
    """The text of one mistake: `file:line: error[code]: what`, then what to do.

    `lines`, an array, gives the line of the file for each row; without it only the row is named.
    """
    row = getattr(mistake, "row", None)
    line = lines[row - 1] if row is not None and lines is not None else None  # type: ignore[index]
    place = f"{source}:{line}" if line is not None else source
    text = f"{place}: error[{mistake.code}]: {mistake.message_text()}"
    advice = mistake.help_text()
    return f"{text}\n   help: {advice}" if advice else text


def shown(value: object) -> str:
    """A value of the data as a message shows it: short, on one line."""
    text = f"{value:g}" if isinstance(value, float) else quoted(value)
    return text if len(text) <= 40 else text[:39] + "…"


def listed(values: object, limit: int = 12) -> str:
    """Values one after another, cut when there are many."""
    words = [shown(value) for value in values]  # type: ignore[attr-defined]
    return ", ".join(words[:limit]) + (f", ... ({len(words)} in all)" if len(words) > limit else "")


class TooManyInducing(DataMistake, code="D140"):
    """More inducing points than rows to place them on."""

    requested: int
    rows: int
    option: str = "inducing"
    message: ClassVar = "{requested} inducing points cannot be placed on {rows} rows"
    help: ClassVar = "ask for at most `{option} = {rows}`, or leave `{option}` out to use every row"


class OutsideFeatures(CellMistake, code="D141"):
    """A row where inducing features say nothing."""

    low: str
    high: str
    features: str
    message: ClassVar = "row {row}: {column} = {value} lies outside {low} to {high}, where {features} has its features"
    help: ClassVar = "give wider bounds, or leave `over` out: bounds a little beyond the rows are taken then"


# D10x to D13x: what can be wrong with a table, a column or a value.

# --- columns and their shapes -----------------------------------------------------------------------------------


class MissingColumn(DataMistake, code="D101"):
    """No column for a quantity of the model."""

    kind: str
    name: str
    wanted: str
    columns: str
    suggestion: str = ""
    argument: str = ""
    """What the command line is told, quoted for a shell."""
    message: ClassVar = "no column for {kind} `{name}`: expected {wanted}"
    help: ClassVar = (
        "the columns are {columns}; say which holds `{name}`: columns={{'{name}': ...}} in Python, "
        "--column {name}=... on the command line"
    )
    suggested_help: ClassVar = (
        "did you mean the column `{suggestion}`? then pass columns={{'{name}': '{suggestion}'}} in Python, "
        "--column {argument} on the command line"
    )


class UnknownMapping(DataMistake, code="D102"):
    """`columns=` names something the model does not observe."""

    name: str
    names: str
    message: ClassVar = "columns= names `{name}`, but the model has no such input or output"
    help: ClassVar = "the inputs and outputs are {names}"


class WrongWidth(DataMistake, code="D103"):
    """Too many or too few columns for an axis."""

    name: str
    found: int
    expected: int
    columns: str
    why: str
    message: ClassVar = "`{name}` has {found} columns ({columns}), expected {expected} as in {why}"
    help: ClassVar = "drop columns or change the size; a letter, as in `real[D]`, takes as many columns as there are"


class WrongShape(DataMistake, code="D104"):
    """An array with the wrong number of axes or the wrong lengths."""

    name: str
    shape: str
    expected: str
    message: ClassVar = "`{name}` is an array of shape {shape}, expected {expected}"
    help: ClassVar = "the first axis holds the rows, the others follow the declaration of `{name}`"


class DifferentLengths(DataMistake, code="D105"):
    """Two quantities with different numbers of rows."""

    name: str
    length: int
    other: str
    other_length: int
    message: ClassVar = "`{name}` has {length} rows, but `{other}` has {other_length}"
    help: ClassVar = "every input and output needs one entry per row"


class SizesDisagree(DataMistake, code="D106"):
    """One dimension letter bound to two sizes."""

    letter: str
    name: str
    size: int
    other: str
    other_size: int
    message: ClassVar = "`{letter}` is {size} by `{name}`, but {other_size} by {other}"
    help: ClassVar = "quantities that share a letter share a size: use another letter, or other columns"


class UnboundSize(DataMistake, code="D107"):
    """A dimension letter nothing in the data determines."""

    letter: str
    names: str
    message: ClassVar = "nothing in the data says how large `{letter}` is (it sizes {names})"
    help: ClassVar = "write the size in the model, as in `index p in 1..2`"


class NoRows(DataMistake, code="D108"):
    """A table without rows."""

    message: ClassVar = "there are no rows"
    help: ClassVar = "at least one row below the column names is needed"


class ConstantColumn(DataMistake, code="D109"):
    """An input column that never varies."""

    name: str
    column: str
    value: str
    latents: str
    message: ClassVar = (
        "column `{column}` is {value} in every row: nothing can be learnt about how {latents} varies with it"
    )
    help: ClassVar = "drop the column from input `{name}`, or give data in which it varies"


# --- values -----------------------------------------------------------------------------------------------------


DECIMALS = (
    "commas before decimals are read between `;` or tabs, where no number of the file has a point; "
    "pandas.read_csv(file, decimal=',') reads them anywhere"
)
EITHER = (
    "or `{pointed}` if the comma is before decimals and not between thousands: pandas.read_csv(file, sep=None, "
    "engine='python') reads the one with thousands=',' and the other with decimal=','"
)
LIMIT = "that values end there is said in the model, by `Censored(Normal(f, s), lower = ...)` or `upper = ...`"


class TextInColumn(CellMistake, code="D110"):
    """Text where a number belongs; `suggestion` is the number that it may be, and `how` files with such are read."""

    suggestion: str = ""
    how: str = DECIMALS
    message: ClassVar = "column `{column}`, row {row}: `{value}` is not a number"
    help: ClassVar = "correct the value; only an output may be missing, and is then left empty"
    suggested_help: ClassVar = "write `{suggestion}`; {how}"


class NotFinite(CellMistake, code="D111"):
    """A missing or infinite value where one is needed."""

    message: ClassVar = "column `{column}`, row {row}: the input is {value}"
    help: ClassVar = "inputs must be known: fill the value in, or drop the row; only outputs may be missing"


class InfiniteOutput(CellMistake, code="D112"):
    """An infinite observation."""

    message: ClassVar = "column `{column}`, row {row}: the output is {value}"
    help: ClassVar = "leave the value empty when it was not observed"


class NotACount(CellMistake, code="D113"):
    """A negative or fractional count."""

    message: ClassVar = "column `{column}`, row {row}: `{value}` is not a count, expected 0, 1, 2, ..."
    help: ClassVar = "correct the value, or declare the quantity `real`"


class NotPositive(CellMistake, code="D114"):
    """Zero or less where a positive number belongs."""

    message: ClassVar = "column `{column}`, row {row}: `{value}` is not positive"
    help: ClassVar = "correct the value, or declare the quantity `real`"


class NotAProportion(CellMistake, code="D160"):
    """Zero, one or beyond where a number strictly between belongs."""

    message: ClassVar = "column `{column}`, row {row}: `{value}` does not lie strictly between 0 and 1"
    help: ClassVar = "move 0 and 1 inside, such as to 0.001 and 0.999, or declare the quantity `real`"


class OrderUnknown(ColumnMistake, code="D161"):
    """Levels of an ordinal output written as text, whose order nothing says."""

    index: str
    levels: str
    message: ClassVar = "column `{column}` holds the levels {levels}, and nothing says in which order they stand"
    help: ClassVar = (
        "list them in the model, the lowest first, as `index {index} in {{{levels}}}` does by alphabet; "
        "or give the column of a data frame as an ordered categorical"
    )


class NotBinary(ColumnMistake, code="D115"):
    """A column that is not two-valued."""

    values: str
    message: ClassVar = "column `{column}` is declared binary, but holds {values}"
    help: ClassVar = "expected 0 and 1, -1 and 1, true and false, or two words; for more values declare `label[c]`"


class OtherWord(ColumnMistake, code="D166"):
    """A word that a binary output of two words did not have when it was fitted."""

    value: str
    words: str
    message: ClassVar = "column `{column}` holds `{value}`, where the fit knows {words}"
    help: ClassVar = "write one of them, or fit again with both words that there are"


class DifferentWords(DataMistake, code="D167"):
    """Elements of a binary output that have two values each, and not the same two."""

    output: str
    columns: str
    message: ClassVar = "the elements of `{output}` have different values: {columns}"
    help: ClassVar = "all elements share one coding: write 0 and 1, or the same two words, in every column"


class CannotStandardise(ColumnMistake, code="D119"):
    """A column without any spread."""

    value: str
    message: ClassVar = "column `{column}` is {value} in every row and cannot be standardised"
    help: ClassVar = "drop the column, which says nothing about the rows, or leave its quantity out: standardise=[...]"


class NothingObserved(DataMistake, code="D118"):
    """An output without a single observed value."""

    name: str
    message: ClassVar = "output `{name}` has no observed value in any row"
    help: ClassVar = "give it values, or remove it from the model"
