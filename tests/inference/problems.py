"""The problems of small models, for tests of one engine's parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

import gpdsl
from gpdsl.inference.infer import plan
from gpdsl.inference.problem import Monitor, Problem, as_arrays
from gpdsl.kernels.numerics import jitter_for
from gpdsl.program.program import make_rows
from gpdsl.results.fitting import prepare


def problem_of(model: gpdsl.Model | str, data: Mapping[str, np.ndarray], **given: Any) -> Problem:
    """What `fit` would hand to an engine, at the declared parameters."""
    compiled = gpdsl.compile(model) if isinstance(model, str) else model
    program, bound, options = prepare(compiled, data, {}, given)
    planned = plan(program, bound, options)
    program = program.coupling if planned.choice.posterior == "coupled" else program
    numbered = replace(make_rows(program, bound), numbers=np.arange(bound.rows))
    arrays = numbered, program.parameters.unconstrained(), planned.inducing
    rows, start, inducing = as_arrays(arrays, options.dtype)
    chosen, jitter = (planned.layout, planned.choice, options), jitter_for(np.dtype(options.dtype))
    return Problem(program, rows, bound.rows, *chosen, start, inducing, jitter, Monitor(1))
