"""Looking at a fit: the curvature of its evidence, and everything else, the cheapest first.

It takes a second or two, or a tenth of what the fit took if that is more, and never more than some seconds: what there
was no time for is named. With `diagnose = full` nothing is left out.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from gpdsl.errors import GpdslError, described
from gpdsl.inference.curvature import Curvature, Unknown, curvature, natural_errors
from gpdsl.inference.machine import machine_for
from gpdsl.inference.problem import as_arrays
from gpdsl.program.precision import precision
from gpdsl.results.criticism.determined import at_edges, of_curvature
from gpdsl.results.criticism.findings import LOOKS, judged
from gpdsl.results.criticism.inspected import Ended, Inspection
from gpdsl.results.fitting import on_device

if TYPE_CHECKING:
    from gpdsl.results.fit import Fit

LEAST, MOST, SHARE = 1.0, 4.0, 0.1
"""Seconds after which nothing else is begun, at least and at most, and as a share of those of the fit."""

TROUBLE = (GpdslError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError, MemoryError)
"""What a look may end in, at models that nobody has thought of."""


def inspect(fit: Fit, ended: Ended) -> Inspection:
    """All that there is time for."""
    data = fit.standardised.removed(ended.data)
    begun, full = time.perf_counter(), fit.options.diagnose == "full"
    seconds = np.inf if full else min(max(LEAST, SHARE * fit.seconds), MOST)
    edges = list(at_edges(fit))
    errors, lacking, findings, left = {}, "", [finding for finding, _ in edges], []
    quiet = np.errstate(all="ignore")  # of evidences that are not finite
    with precision(fit.options.dtype), on_device(fit.options.device), machine_for(fit.rows), quiet:
        try:
            found = _curvature(fit, ended, seconds)
            errors = natural_errors(fit.program.parameters, found, as_arrays(dict(ended.learnt), fit.options.dtype))
            findings += of_curvature(found, {name for _, names in edges for name in names})
        except Unknown as reason:
            lacking = str(reason)
        for name, (look, price) in LOOKS.items():
            if time.perf_counter() - begun + price > seconds:
                left.append(name)
                continue
            try:
                findings += look(fit, data)
            except TROUBLE as problem:  # a summary is worth more than a look at it
                left.append(f"{name} ({described(problem)[:100]})")
    return Inspection(errors, lacking, judged(fit, findings), tuple(left))


def _curvature(fit: Fit, ended: Ended, seconds: float) -> Curvature:
    """Raises Unknown."""
    if not ended.learnt:
        raise Unknown("nothing was learnt")
    if fit.options.beta != 1:
        raise Unknown(f"with beta = {fit.options.beta:g} the bound is not one of the evidence")
    if fit.settings is not None:
        raise Unknown("parameters are averaged over, with standard deviations")
    if fit.interrupted:
        raise Unknown("the search was interrupted")
    if ended.profile is None:
        how = f"{fit.choice.optimizer} moves q and parameters together"
        raise Unknown(f"{how}, so that the bound at the best q of other parameters is not known")
    learnt, bound = as_arrays(dict(ended.learnt), fit.options.dtype), None if fit.program.sampled else ended.bound
    return curvature(fit.program, ended.profile(), learnt, bound, fit.rows, seconds)
