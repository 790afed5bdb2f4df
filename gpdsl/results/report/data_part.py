"""What a page says of the data: one line for each column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from gpdsl.data import Data
from gpdsl.data.times import texts_of
from gpdsl.results.fit import Fit
from gpdsl.results.pictures.style import element
from gpdsl.results.report.html import table, text

COLUMNS, LEVELS = 40, 8
"""That are listed."""

HEAD = ("column", "is", "values", "missing", "least", "median", "mean", "greatest", "sd")


def about_data(fit: Fit, data: Data | None) -> str:
    """A table of the columns that the model reads."""
    if data is None:
        return f"<p>{fit.rows} rows were fitted; no data were given to this report.</p>"
    rows = list(_lines(fit, data))
    left = len(rows) - COLUMNS
    more = f"<p>and {left} columns more</p>" if left > 0 else ""
    fitted = "the rows that were fitted" if not fit.unlike_fitted(data) else f"not the {fit.rows} rows that were fitted"
    return f"<p>{data.rows} rows of {text(data.source)}: {fitted}.</p>\n{table(HEAD, rows[:COLUMNS])}{more}"


def _lines(fit: Fit, data: Data) -> Iterator[tuple[object, ...]]:
    d = fit.program.declarations
    for role, declared in (("input", d.inputs), ("output", d.outputs)):
        for name, each in declared.items():
            values = (data.inputs if role == "input" else data.outputs).get(name)
            if values is None:
                continue
            known = data.column_names.get(name, ())
            places = list(np.ndindex(*values.shape[1:]))
            for number, place in enumerate(places):
                label = (
                    known[number]
                    if len(known) == len(places)
                    else name + (str([p + 1 for p in place]) if place else "")
                )
                there = None if role == "input" else element(data.observed[name], place)
                column = np.asarray(element(values, place), float)
                column = column if there is None else column[there]
                yield label, f"{role}, {each.kind}", len(column), data.rows - len(column), *_spread(fit, name, column)


def _spread(fit: Fit, name: str, values: np.ndarray) -> tuple[str, ...]:
    """Least, median, mean, greatest and standard deviation; of labels how often each is met."""
    d = fit.program.declarations
    output, given = d.outputs.get(name), d.inputs.get(name)
    if not len(values):
        return ("–",) * 5
    if output is not None and output.label is not None:
        count = fit.program.translator.size(output.label)
        levels = fit.program.levels.get(str(output.label.name), tuple(range(1, count + 1)))
        met = Counter(values.astype(int).tolist())
        said = ", ".join(f"{levels[each]} ({times})" for each, times in met.most_common(LEVELS))
        return (said + (", …" if len(met) > LEVELS else ""), "–", "–", "–", "–")
    if given is not None and given.unit and fit.calendar is not None:
        ends = fit.calendar.dates(name, fit.calendar.moments(np.quantile(values, [0, 0.5, 1]), given.unit))
        least, median, most = texts_of(ends)
        return least, median, "–", most, "–"
    shown = (values.min(), np.median(values), values.mean(), values.max(), values.std())
    return tuple(f"{each:.4g}" for each in shown)
