"""Scores of predictions, as in the tables of papers. data: rows with outputs; name: an output, the first by default."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpdsl.errors import GpdslError
from gpdsl.language.calls import answering
from gpdsl.results.fit import Fit
from gpdsl.results.levels import in_words, levels_of, numbered_levels


@answering
def nlpd(fit: Fit, data: Any) -> float:
    """Mean negative log predictive density in nats per row; for labels, the negative log probability (NLP).

    Rows without any observed output do not count.
    """
    seen = fit.bind(data, None, outputs=True).observed_rows
    return float(-np.mean(fit.log_predictive_density(data)[seen]))


@answering
def rmse(fit: Fit, data: Any, name: str | None = None) -> float:
    """Root mean squared error of the predictive mean over the observed entries of an output that is a number."""
    name, bound = _output(fit, name), fit.bind(data, None, outputs=True)
    if fit.program.declarations.outputs[name].label is not None:
        raise GpdslError(f"`{name}` is a label, and its mean are probabilities: use error_rate, or nlpd")
    gap = fit.predict(data).mean(name) - bound.outputs[name]
    return float(np.sqrt(np.mean(gap[bound.observed[name]] ** 2)))


@answering
def sse(fit: Fit, data: Any, name: str | None = None) -> float:
    """Standardised squared error: mean squared error over the variance of the observed values (SAVIGP 9.2)."""
    name, bound = _output(fit, name), fit.bind(data, None, outputs=True)
    error, spread = rmse(fit, data, name), np.std(bound.outputs[name][bound.observed[name]])
    if not spread:
        raise GpdslError(f"sse: the observed values of `{name}` are all the same, and have no variance; use rmse")
    return float((error / spread) ** 2)


@answering
def crps(fit: Fit, data: Any, name: str | None = None) -> float:
    """Mean continuous ranked probability score of the observed entries of an output, in its units: 0 is best."""
    name, bound = _output(fit, name), fit.bind(data, None, outputs=True)
    seen = np.where(bound.observed[name], bound.outputs[name], np.nan)
    if fit.program.declarations.outputs[name].kind == "binary":
        seen = in_words(levels_of(fit.program, name), seen)
    return float(np.nanmean(fit.predict(data).crps(name, seen)))


@answering
def error_rate(fit: Fit, data: Any, name: str | None = None) -> float:
    """Share of rows whose most probable label, or binary value, is not the observed one.

    Raises GpdslError for an output that is neither.
    """
    name, bound = _output(fit, name), fit.bind(data, None, outputs=True)
    if not numbered_levels(fit.program, name)[0]:
        raise GpdslError(f"error_rate: `{name}` is neither binary nor a label; use rmse, crps or nlpd")
    mean = fit.predict(data).mean(name)
    chosen = (mean > 0.5) if fit.program.declarations.outputs[name].label is None else np.argmax(mean, axis=-1)
    wrong = chosen != bound.outputs[name]
    return float(np.mean(wrong[bound.observed[name]]))


def _output(fit: Fit, name: str | None) -> str:
    if not isinstance(fit, Fit):
        raise GpdslError(f"expected a fit, and then the data, got {type(fit).__name__} first")
    outputs = fit.program.declarations.outputs
    if name is not None and name not in outputs:
        raise GpdslError(f"the model has no output `{name}`; it has {', '.join(outputs)}")
    return name or next(iter(outputs))
