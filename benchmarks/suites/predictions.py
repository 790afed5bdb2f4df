"""Seconds of predictions of 1000 rows by the models of the zoo: the first of a kind, the next, intervals."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

from report import show

import gpdsl

ROWS, NEW = 80, 1000
"""That are fitted, and that are predicted."""

SKIPPED = {"usps": "its columns are pixels", "airline": "as `boston`", "seismic_external": "a function is missing"}


def run() -> None:
    """Means and standard deviations of all outputs; then these again; then 90% intervals."""
    lines = []
    for name in gpdsl.zoo_names():
        if name in SKIPPED:
            continue
        model = gpdsl.zoo(name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            drawn = [model.sample_prior(rows=count, seed=count).data for count in (ROWS, NEW)]
            fit = model.fit(drawn[0], steps=20, progress=False)
            outputs = [each for each, output in model.declarations.outputs.items() if output.label is None]

            def moments(fit: gpdsl.Fit = fit, new: Any = drawn[1]) -> gpdsl.Prediction:
                prediction = fit.predict(new)
                for output in fit.model.declarations.outputs:
                    prediction.sd(output)
                return prediction

            seconds = [_seconds(moments), min(_seconds(moments) for _ in range(3))]
            prediction = moments()
            seconds.append(_seconds(lambda p=prediction, names=outputs: [p.interval(each) for each in names]))
        lines.append((name, *(f"{each:.3f}" for each in seconds)))
    show(f"predictions of {NEW} rows, seconds", ["model", "first", "again", "intervals"], lines)


def _seconds(compute: Callable[[], object]) -> float:
    start = time.perf_counter()
    compute()
    return time.perf_counter() - start
