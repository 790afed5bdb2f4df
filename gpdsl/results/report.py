"""`fit.report`: model, data, fit, advice and pictures on one page of HTML that asks no other machine for anything.

Pictures, styles and formulas are inside, no script is, and all that comes from models and data is escaped.
"""

from __future__ import annotations

import base64
import hashlib
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from scipy.special import ndtri

from gpdsl.data import Data
from gpdsl.data.times import texts_of
from gpdsl.errors import GpdslError, plural, printable
from gpdsl.inference.inducing.loss import Loss
from gpdsl.replacing import written
from gpdsl.results.criticism.finding import SKIPPED
from gpdsl.results.fit import Fit
from gpdsl.results.levels import levels_of
from gpdsl.results.pictures.checks import FURTHEST, outputs_seen, places_in
from gpdsl.results.pictures.plot import KINDS, Asked, drawn, suited
from gpdsl.results.pictures.rows import Seen
from gpdsl.results.pictures.style import element, verify_matplotlib
from gpdsl.results.summary import estimate, in_brief, in_data_units, own_doubts, too_few
from gpdsl.symbolic.checking import all_warnings
from gpdsl.symbolic.graph import graph
from gpdsl.symbolic.latex.document import web

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# What to look at next: notes, the diagnosis, warnings about the model, and predictions that miss the data.

INSIDE, CHANCE, FAR = 0.9, 1e-3, 4.5
"""A central interval, how seldom chance alone may explain its share of the data, and how far a row may lie off."""


def advice(fit: Fit, seen: Seen | None) -> list[str]:
    """Sentences, the most urgent first; none where nothing is to be said."""
    said = [*fit.notes]
    if fit.interrupted:
        said.append(f"The fit was interrupted ({fit.message}): go on from it with start=.")
    elif "; " in fit.message.removeprefix("converged; best of"):  # that one start of several did is as it should be
        said.append(f"The optimiser ended so: {fit.message}.")
    if fit.inducing_loss is not None and not fit.choice.exact and not Loss(fit.inducing_loss, fit.rows).small:
        said.append(too_few(fit))
    said += own_doubts(fit)
    if seen is not None and seen.data is not None:
        said += _misses(seen)
    warned = [*all_warnings(fit.program.declarations)]
    return [*dict.fromkeys(said), *(f"Line {each.span.line} of the model: {each.message_text()}" for each in warned)]


def _misses(seen: Seen) -> Iterator[str]:
    """Where intervals hold too few or too many of the data, and rows far outside."""
    for name in outputs_seen(seen):
        output = seen.fit.program.declarations.outputs[name]
        if output.label is not None or output.kind == "binary" or seen.part[0].observed(name) is None:
            continue
        found = places_in(seen, name)
        found = found[np.isfinite(found)]
        if not len(found):  # none of the rows that were chosen has a value
            continue
        inside = int(np.sum(np.abs(found - 0.5) <= INSIDE / 2))
        share = inside / len(found)
        if scipy.stats.binom.cdf(inside, len(found), INSIDE) < CHANCE:
            yield (
                f"90% intervals of `{name}` hold {share:.0%} of its values: they are too narrow. Heavier tails "
                "(StudentT, NegativeBinomial), noise that varies, or a kernel with shorter length-scales may suit."
            )
        elif scipy.stats.binom.sf(inside - 1, len(found), INSIDE) < CHANCE:
            yield f"90% intervals of `{name}` hold {share:.0%} of its values: they are wider than the data ask for."
        away = np.abs(ndtri(np.clip(found, FURTHEST, 1 - FURTHEST)))
        if many := int(np.sum(away > FAR)):
            lie = f"values of `{name}` lie" if many > 1 else f"value of `{name}` lies"
            remedy = "look at these rows, or give the noise heavier tails."
            yield f"{many} {lie} further off than a normal residual of {FAR:g}: {remedy}"


# Pieces of a page: tables, figures, and the policy that forbids whatever is not on it.

LARGEST_SVG = 400_000
"""Bytes of a picture above which it is kept as an image of points."""

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif; color: #1c2126; background: #fff;
  max-width: 62rem; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .2rem; } h2 { font-size: 1.2rem; margin: 2rem 0 .6rem;
  border-bottom: 1px solid #d5dae0; padding-bottom: .2rem; }
p.lead { color: #56606b; margin: 0; }
nav { margin: 1rem 0; } nav a { margin-right: 1rem; color: #1f5fa8; }
table { border-collapse: collapse; font-size: .9rem; margin: .5rem 0; }
.wide { overflow-x: auto; }
th, td { text-align: left; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid #e6eaee; vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
pre { background: #f5f7f9; padding: .8rem; overflow-x: auto; font-size: .85rem; line-height: 1.4;
  white-space: pre-wrap; }
figure { margin: 1rem 0; break-inside: avoid; } figure img { max-width: 100%; height: auto; display: block; }
figcaption { color: #56606b; font-size: .9rem; }
ul.todo li { margin: .3rem 0; } ul.todo li::marker { color: #b3541e; }
math { font-family: "Latin Modern Math", "STIX Two Math", "STIX Math", "Cambria Math", "DejaVu Math TeX Gyre", math; }
.formulas { overflow: auto hidden; padding-bottom: .4rem; }
.equations td, .equations mtd { border: 0; }
.equations > mtr > mtd { text-align: left; padding: .35em .15em; }
.equations > mtr > mtd.left { text-align: right; }
.equations > mtr > mtd.where { padding-left: 2em; color: #56606b; }
.cases mtd { text-align: left; padding: .2em .5em; } .matrix mtd { padding: 0 .3em; }
.bold { font-weight: bold; }
@media print {
  body { font-size: 10.5pt; max-width: none; padding: 0; } nav { display: none; }
  h2, .wide + p, p:has(+ .wide) { break-after: avoid; } details > pre { display: block; }
  tr, figure { break-inside: avoid; } thead { display: table-header-group; }
  .wide { overflow: visible; } table { font-size: 8pt; } th, td { padding-right: .45rem; overflow-wrap: anywhere; }
  td.number, th.number { overflow-wrap: normal; white-space: nowrap; } figure img { max-height: 22cm; }
  pre { border: 1px solid #ccc; background: none; }
}
"""


def page(title: str, parts: Iterable[tuple[str, str, str]], lead: str) -> str:
    """The whole page, of parts with an anchor, a heading and a body."""
    parts = [each for each in parts if each[2]]
    allowed = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'sha256-{allowed}'; base-uri 'none'; form-action 'none'"
    links = "".join(f'<a href="#{anchor}">{text(heading)}</a>' for anchor, heading, _ in parts)
    body = "\n".join(
        f'<section id="{anchor}">\n<h2>{text(heading)}</h2>\n{inside}\n</section>' for anchor, heading, inside in parts
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f'<h1>{text(title)}</h1>\n<p class="lead">{text(lead)}</p>\n<nav>{links}</nav>\n{body}\n</body>\n</html>\n'
    )


def text(words: object) -> str:
    """Anything as text in which nothing is markup."""
    return escape(printable(str(words)))


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; numbers stand on the right."""
    lines = list(rows)
    if not lines:
        return ""
    right = [all(_is_number(row[place]) for row in lines) for place in range(len(head))]

    def line(cells: Sequence[object], kind: str) -> str:
        marks = [' class="number"' if each else "" for each in right]
        return "".join(f"<{kind}{m}>{text(c)}</{kind}>" for m, c in zip(marks, cells, strict=True))

    body = "".join(f"<tr>{line(each, 'td')}</tr>\n" for each in lines)
    return f'<div class="wide"><table>\n<thead><tr>{line(head, "th")}</tr></thead>\n<tbody>{body}</tbody></table></div>'


def _is_number(cell: object) -> bool:
    try:
        float(str(cell).replace("–", "nan") or "nan")
    except ValueError:
        return False
    return True


def figure(drawn: Figure, caption: str) -> str:
    """A picture with its caption: SVG, or points where that would be large."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "gpdsl"}):  # the same fit gives the same page
        raw, kind = _saved(drawn, "svg"), "svg+xml"
    if len(raw) > LARGEST_SVG:
        raw, kind = _saved(drawn, "png"), "png"
    return image(raw, kind, caption)


def _saved(drawn: Figure, kind: str) -> bytes:
    file = io.BytesIO()
    drawn.savefig(file, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    return file.getvalue()


def image(raw: bytes, kind: str, caption: str) -> str:
    """An image that is part of the page."""
    inside = base64.b64encode(raw).decode()
    words = text(caption)
    return (
        f'<figure><img src="data:image/{kind};base64,{inside}" alt="{words}">\n'
        f"<figcaption>{words}</figcaption></figure>"
    )


# What a page says of the data: one line for each column.

COLUMNS, LEVELS = 40, 8
"""That are listed."""

HEAD = ("column", "is", "values", "missing", "least", "median", "mean", "greatest", "sd")


def about_data(fit: Fit, data: Data | None) -> str:
    """A table of the columns that the model reads."""
    if data is None:
        return f"<p>Fitted to {plural(fit.rows, 'row')}; no data were given to this report.</p>"
    rows = list(_lines(fit, data))
    left = len(rows) - COLUMNS
    more = f"<p>and {left} columns more</p>" if left > 0 else ""
    fitted = "the rows that were fitted" if not fit.unlike_fitted(data) else f"not the {fit.rows} rows that were fitted"
    return f"<p>{plural(data.rows, 'row')} of {text(data.source)}: {fitted}.</p>\n{table(HEAD, rows[:COLUMNS])}{more}"


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
                label = known[number] if len(known) == len(places) else _element(name, place)
                column = np.asarray(element(values, place), float)
                column = column if role == "input" else column[element(data.observed[name], place)]
                missing = data.rows - len(column)
                yield label, f"{role}, {each.kind}", len(column), missing, *_spread(fit, data, name, column)


def _element(name: str, place: tuple[int, ...]) -> str:
    """`w[1, 2]`; the name alone of a number."""
    return name + (str([each + 1 for each in place]) if place else "")


def _spread(fit: Fit, data: Data, name: str, values: np.ndarray) -> tuple[str, ...]:
    """Least, median, mean, greatest and standard deviation; of labels how often each is met."""
    d = fit.program.declarations
    output, given = d.outputs.get(name), d.inputs.get(name)
    if not len(values):
        return ("–",) * 5
    levels: tuple = ()
    if output is not None and (output.label is not None or output.kind == "binary"):
        levels = levels_of(fit.program, name)
    elif given is not None and given.label is not None:
        levels, values = data.every_level[str(given.label.name)], values - 1  # inputs count from 1
    if levels:
        met = Counter(values.astype(int).tolist())
        said = ", ".join(f"{levels[each]} ({times})" for each, times in met.most_common(LEVELS))
        return (said + (", …" if len(met) > LEVELS else ""), "–", "–", "–", "–")
    if given is not None and given.unit and fit.calendar is not None:
        ends = fit.calendar.dates(
            name, fit.calendar.moments(np.quantile(values, [0, 0.5, 1], method="nearest"), given.unit)
        )
        least, median, most = texts_of(ends)
        return least, median, "–", most, "–"
    shown = (values.min(), np.median(values), values.mean(), values.max(), values.std())
    return tuple(f"{each:.4g}" for each in shown)


MOST = 30
"""Elements of parameters that are listed."""

CAPTIONS = {
    "residuals": "Randomised quantile residuals: standard normal where the model is right.",
    "calibration": "Calibration: how often the data lie where they should.",
    "rootogram": "Expected and observed counts; bars hang from what is expected, and should end at zero.",
    "bound": "What was maximised.",
    "parameters": "Learnt parameters.",
    "inducing": "Inducing points and data.",
}


def write_report(fit: Fit, path: Path, data: Any = None) -> None:
    """Write the page. Raises GpdslError for data that do not suit the model, and where nothing can be written."""
    if path.suffix.lower() not in {".html", ".htm"}:
        raise GpdslError(f"a report is a web page: expected a name ending in .html, got {path.name}")
    verify_matplotlib()
    whole = report(fit, data)
    with written(path) as file:
        file.write(whole)


def report(fit: Fit, data: Any = None) -> str:
    """The page as text."""
    d = fit.program.declarations
    bound = data if isinstance(data, Data) or data is None else fit.bind(data, None, outputs=False)
    asked = Asked(fit, bound, None, "held")
    parts = [
        ("next", "What to look at", _advice(fit, None if bound is None else asked.seen)),
        ("pictures", "Pictures", "\n".join(_pictures(asked))),
        ("model", "Model", _model(fit)),
        ("data", "Data", about_data(fit, bound)),
        ("fit", "Fit", f"<pre>{text(fit.summary())}</pre>\n{_parameters(fit)}"),
    ]
    return page(d.title or d.name, parts, in_brief(fit).strip("<>"))


def _advice(fit: Fit, seen: Seen | None) -> str:
    said = advice(fit, seen)
    if not said:
        looked = sum(each.name != SKIPPED for each in fit.inspection.findings)
        none = f"none of {plural(looked, 'check')} says that it is to be doubted"
        checked = none if looked else "no more was checked"
        return f"<p>Nothing was noted: the fit converged, and {checked}.</p>"
    return f'<ul class="todo">{"".join(f"<li>{text(each)}</li>" for each in said)}</ul>'


def _model(fit: Fit) -> str:
    d = fit.program.declarations
    drawing = image(graph(d).encode(), "svg+xml", "What depends on what: observed quantities are shaded.")
    source = f"<details open><summary>The text</summary>\n<pre>{text(d.source.own)}</pre></details>"
    return f'<div class="formulas">{web(d)}</div>\n{drawing}\n{source}'


def _parameters(fit: Fit) -> str:
    """Values element by element, with those in the units of the data where they differ."""
    lines = []
    for name in fit.parameters:
        held = "fixed" if name in fit.program.parameters.held else "learnt" if fit.settings is None else "its mean"
        values = np.asarray(estimate(fit, name), float)
        other = values * np.nan_to_num(in_data_units(fit, name), nan=1.0)
        for place in np.ndindex(*values.shape):
            lines.append((_element(name, place), f"{values[place]:.5g}", f"{other[place]:.5g}", held))
    more = f"<p>and {len(lines) - MOST} more</p>" if len(lines) > MOST else ""
    if not fit.standardised.sds:
        return table(("parameter", "value", ""), [(a, b, d) for a, b, _, d in lines[:MOST]]) + more
    return table(("parameter", "value", "in the units of the data", ""), lines[:MOST]) + more


def _pictures(asked: Asked) -> Iterator[str]:
    """The picture that suits the model, and every other that can be drawn."""
    try:
        first = suited(asked)
        yield figure(drawn(asked, first), f"{KINDS[first][0].capitalize()}.")
    except GpdslError as problem:
        yield f"<p>{text(problem)}</p>"
        first = ""
    for kind, caption in CAPTIONS.items():
        if kind == first or (asked.data is None and kind in {"residuals", "calibration", "rootogram"}):
            continue
        try:
            picture = drawn(asked, kind)
            picture.suptitle("")
        except GpdslError:  # no counts, no steps, no inducing points: nothing to show of them
            continue
        yield figure(picture, caption)
