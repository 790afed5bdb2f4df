"""E4xx: text that is larger, deeper or wilder than a model can be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from gpdsl.language.errors.base import Mistake, Named
from gpdsl.language.vocabulary import MAX_REPORTED


class TextTooLong(Mistake, code="E401"):
    """The whole text is too long."""

    characters: int
    limit: int
    message: ClassVar = "the model has {characters} characters; at most {limit} are read"
    help: ClassVar = "keep data in data files, not in the model"


class LineTooLong(Mistake, code="E402"):
    """One line is too long."""

    characters: int
    limit: int
    message: ClassVar = "this line has {characters} characters; at most {limit} are read"
    help: ClassVar = "break the line inside a bracket"


class TooDeep(Mistake, code="E403"):
    """Brackets or operators nested too deeply."""

    limit: int
    message: ClassVar = "this is nested more than {limit} levels deep"
    label: ClassVar = "too deep from here"
    help: ClassVar = "name parts of it with `let`; for many similar terms, declare an index and use `sum(q, ...)`"


class TooManyStatements(Mistake, code="E404"):
    """Too many statements."""

    limit: int
    message: ClassVar = "the model has more than {limit} statements"
    label: ClassVar = "reading stops here"
    help: ClassVar = "declare an index instead of many similar names: `index p in 1..4`, `latent f[p](x) ~ ...`"


class SizeOutOfRange(Mistake, code="E405"):
    """An axis that is empty or too long, or not a whole number."""

    size: str
    limit: int
    message: ClassVar = "`{size}` is not a possible size"
    label: ClassVar = "expected a whole number from 1 to {limit}"
    help: ClassVar = "rows of data need no index: every quantity is understood per row"


class TooManyElements(Named, code="E406"):
    """An array whose sizes multiply to too much."""

    elements: int
    limit: int
    message: ClassVar = "`{name}` would have {elements} elements; at most {limit} are possible"
    label: ClassVar = "too many elements"
    help: ClassVar = "use fewer indices or smaller ones"


class PowerTooLarge(Mistake, code="E407"):
    """A power of a power of a power."""

    limit: int
    message: ClassVar = "this power is too large: written out, its degree is above {limit}"
    label: ClassVar = "a constant exponent this large is surely not meant"
    help: ClassVar = "use `exp` for exponential growth, and parentheses if powers were stacked by accident"


class NotFinite(Mistake, code="E408"):
    """A number with no finite value."""

    text: str
    message: ClassVar = "`{text}` has no finite value"
    label: ClassVar = "overflow, division by zero or outside the function's domain"
    help: ClassVar = "change it so that its value is finite: numbers reach from -1e308 to 1e308"


class NameTooLong(Mistake, code="E409"):
    """A name too long to show."""

    limit: int
    message: ClassVar = "this name has more than {limit} characters"
    label: ClassVar = "too long"
    help: ClassVar = "use a shorter name and say more in a comment"


class TooManyTerms(Named, code="E410"):
    """A `let` that explodes once earlier ones are written out."""

    limit: int
    message: ClassVar = "written out, `{name}` has more than {limit} terms"
    label: ClassVar = "each `let` it uses multiplies its size"
    help: ClassVar = "build it from fewer `let`s that use each other several times"


class TooManyMistakes(Mistake, code="E411"):
    """The list of errors is cut."""

    more: int
    message: ClassVar = "{more} more errors are not shown"
    help: ClassVar = "correct the ones above first"


class TooManyCases(Named, code="E412"):
    """A `let` by too many cases."""

    limit: int
    message: ClassVar = "`{name}` is defined by more than {limit} cases"
    label: ClassVar = "first of them"
    help: ClassVar = "use conditions such as `{name}[p > 1]`, or read the numbers from a `const`"


class TooManyKernels(Mistake, code="E413"):
    """A power of a power of kernels."""

    limit: int
    message: ClassVar = "written out, this covariance function has more than {limit} kernels"
    label: ClassVar = "too large"
    help: ClassVar = "use smaller powers"


class TooManyObservations(Named, code="E414"):
    """An output whose elements are observed by too many lines."""

    limit: int
    message: ClassVar = "`{name}` is observed by more than {limit} lines"
    label: ClassVar = "one line too many"
    help: ClassVar = (
        "observe many elements by one line with an index, `{name}[p] ~ ...`, and let a `const` or `param` hold what "
        "differs between them"
    )


class TooManyLayers(Named, code="E415"):
    """Latents stacked on latents too high."""

    limit: int
    message: ClassVar = "`{name}` stands on more than {limit} latents stacked on each other"
    label: ClassVar = "one layer too many"
    help: ClassVar = "use fewer layers: functions of functions of functions soon are constant almost everywhere"


# E112 to E117 and E416: files that a model uses.


class UseNowhere(Mistake, code="E112"):
    """A `use` in a text that is no file."""

    message: ClassVar = "`use` in a text that lies in no folder"
    label: ClassVar = "a path is relative to the folder of the model"
    help: ClassVar = 'save the text as a file and load that, or name the folder: `gpdsl.compile(text, folder="models")`'


class UseOutside(Mistake, code="E113"):
    """A path that leads out of the folder of the model, or is absolute."""

    path: str
    why: str = "is not in the folder of the model"
    expected: str = "a model uses files of its own folder and of the folders in it"
    instead: str = "move the file there"
    message: ClassVar = "`{path}` {why}"
    label: ClassVar = "{expected}"
    help: ClassVar = (
        '{instead}, or allow its folder: `gpdsl.load("model.gpm", allow=["folder"])`, with `--allow folder` '
        "on the command line"
    )


class UseUnread(Mistake, code="E114"):
    """A file that cannot be read."""

    path: str
    why: str
    instead: str
    suggestion: str = ""
    message: ClassVar = "`{path}` cannot be read"
    label: ClassVar = "{why}"
    help: ClassVar = "{instead}"


class UseCycle(Mistake, code="E115"):
    """Files that use each other in a circle."""

    path: str
    cycle: str
    message: ClassVar = "`{path}` uses itself"
    label: ClassVar = "{cycle}"
    help: ClassVar = "remove one of these `use` lines; what several files need can stand in a file that all of them use"


class NotADefinition(Mistake, code="E116"):
    """A statement of a used file that is no definition."""

    model: str
    message: ClassVar = "a used file holds definitions only"
    label: ClassVar = "expected `function`, `kernel`, `density` or another `use`"
    help: ClassVar = "move this line to {model}, or the definitions to a file of their own"


class UsedTooMuch(Mistake, code="E416"):
    """Used files beyond a limit."""

    path: str
    what: str
    message: ClassVar = "too much is used: with `{path}`, {what}"
    label: ClassVar = "the limit is passed here"
    help: ClassVar = "put the definitions that this model needs into fewer and smaller files"


def in_order(mistakes: Iterable[Mistake]) -> tuple[Mistake, ...]:
    """Mistakes from the first line to the last, each once; a long list is cut."""
    by_place = sorted(mistakes, key=lambda each: (each.span.line, each.span.column, each.code))
    # The same sentence about the same line is the same mistake: `depth0[p]` twice in one kernel.
    first = {(each.span.line, each.code, each.message_text()): each for each in reversed(by_place)}
    ordered = [each for each in by_place if first[each.span.line, each.code, each.message_text()] is each]
    if len(ordered) > MAX_REPORTED:
        more = len(ordered) - MAX_REPORTED
        ordered = [*ordered[:MAX_REPORTED], TooManyMistakes(ordered[MAX_REPORTED].span, more)]
    return tuple(ordered)
