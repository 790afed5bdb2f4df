"""What a mistake in data is: a value with a code, a row and templates; and the exception that carries them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from gpdsl.errors import GpdslError, quoted

MAX_SHOWN = 10


@dataclass(frozen=True)
class DataMistake:
    """One mistake. Subclasses give the code and the templates, filled with the fields of the instance.

    A field `row` counts from 1; a field `suggestion`, when not empty, replaces the help by "did you mean ...?".
    """

    code: ClassVar[str] = ""
    message: ClassVar[str] = ""
    help: ClassVar[str] = ""
    suggested_help: ClassVar[str] = ""

    def _fill(self, template: str) -> str:
        return template.format(**{each.name: getattr(self, each.name) for each in fields(self)})

    def message_text(self) -> str:
        """What is wrong, in one sentence."""
        return self._fill(self.message)

    def help_text(self) -> str:
        """What to do; may be empty."""
        return self._fill(self.suggested_help if getattr(self, "suggestion", "") else self.help)


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


@dataclass(frozen=True)
class TooManyInducing(DataMistake):
    """More inducing points than rows to place them on."""

    requested: int
    rows: int
    code: ClassVar = "D140"
    message: ClassVar = "{requested} inducing points cannot be placed on {rows} rows"
    help: ClassVar = "ask for at most `inducing = {rows}`, or leave `inducing` out to use every row"


@dataclass(frozen=True)
class OutsideFeatures(DataMistake):
    """A row where inducing features say nothing."""

    column: str
    row: int
    value: str
    low: str
    high: str
    features: str
    code: ClassVar = "D141"
    message: ClassVar = "row {row}: {column} = {value} lies outside {low} to {high}, where {features} has its features"
    help: ClassVar = "give wider bounds, or leave `over` out: bounds a little beyond the rows are taken then"
