"""`fit.report`: model, data, fit, advice and pictures on one page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gpdsl.data import Data
from gpdsl.errors import GpdslError
from gpdsl.replacing import replacing
from gpdsl.results.fit import Fit
from gpdsl.results.pictures.plot import KINDS, Asked, suited
from gpdsl.results.pictures.rows import seen_of
from gpdsl.results.report.advice import advice
from gpdsl.results.report.data_part import about_data
from gpdsl.results.report.html import figure, image, page, table, text
from gpdsl.results.summary import in_brief
from gpdsl.symbolic.graph import graph
from gpdsl.symbolic.latex.web import web

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
    whole = report(fit, data)
    try:
        with replacing(path) as file:
            file.write(whole)
    except OSError as problem:
        raise GpdslError(f"cannot write {path}: {problem.strerror}") from problem


def report(fit: Fit, data: Any = None) -> str:
    """The page as text."""
    d = fit.program.declarations
    bound = data if isinstance(data, Data) or data is None else fit.bind(data, None, outputs=False)
    parts = [
        ("next", "What to look at", _advice(fit, bound)),
        ("pictures", "Pictures", "\n".join(_pictures(fit, bound))),
        ("model", "Model", _model(fit)),
        ("data", "Data", about_data(fit, bound)),
        ("fit", "Fit", _fit(fit)),
    ]
    return page(d.title or d.name, parts, in_brief(fit).strip("<>"))


def _advice(fit: Fit, data: Data | None) -> str:
    said = advice(fit, None if data is None else seen_of(fit, data))
    if not said:
        looked = len(fit.inspection.findings)
        checked = f"none of {looked} checks says that it is to be doubted" if looked else "no more was checked"
        return f"<p>Nothing was noted: the fit converged, and {checked}.</p>"
    return f'<ul class="todo">{"".join(f"<li>{text(each)}</li>" for each in said)}</ul>'


def _model(fit: Fit) -> str:
    d = fit.program.declarations
    drawing = image(graph(d).encode(), "svg+xml", "What depends on what: observed quantities are shaded.")
    source = f"<details open><summary>The text</summary>\n<pre>{text(d.source.own)}</pre></details>"
    return f'<div class="formulas">{web(d)}</div>\n{drawing}\n{source}'


def _fit(fit: Fit) -> str:
    return f"<pre>{text(fit.summary())}</pre>\n{_parameters(fit)}"


def _parameters(fit: Fit) -> str:
    """Values element by element, with those in the units of the data where they differ."""
    lines, other = [], fit.parameters_in_data_units
    for name, values in fit.parameters.items():
        held = "fixed" if name in fit.program.parameters.held else "learnt"
        for place in np.ndindex(*np.shape(values)):
            label = name + (str([each + 1 for each in place]) if place else "")
            own = f"{float(np.asarray(values)[place]):.5g}"
            lines.append((label, own, f"{float(np.asarray(other[name])[place]):.5g}" if name in other else own, held))
    more = f"<p>and {len(lines) - MOST} more</p>" if len(lines) > MOST else ""
    if not fit.standardised.sds:
        return table(("parameter", "value", ""), [(a, b, d) for a, b, _, d in lines[:MOST]]) + more
    return table(("parameter", "value", "in the units of the data", ""), lines[:MOST]) + more


def _pictures(fit: Fit, data: Data | None) -> Iterator[str]:
    """The picture that suits the model, and every other that can be drawn."""
    asked = Asked(fit, data, None, "held")
    try:
        first = suited(asked)
        yield figure(KINDS[first][1](asked), f"{KINDS[first][0].capitalize()}.")
    except GpdslError as problem:
        yield f"<p>{text(problem)}</p>"
        first = ""
    for kind, caption in CAPTIONS.items():
        if kind == first or (data is None and kind in {"residuals", "calibration", "rootogram"}):
            continue
        try:
            drawn = KINDS[kind][1](asked)
            drawn.suptitle("")
        except GpdslError:  # no counts, no steps, no inducing points: nothing to show of them
            continue
        yield figure(drawn, caption)
