"""Where the hyperparameters start: as exact inference on some of the rows finds them, QSGP appendix I.1."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gpdsl.inference.bound import Layout
from gpdsl.inference.driver import drive
from gpdsl.inference.machine import machine_for
from gpdsl.inference.monitor import Monitor
from gpdsl.inference.natural.profiled import ProfiledSearch
from gpdsl.inference.plan.options import Choice
from gpdsl.inference.posteriors.family import Full
from gpdsl.inference.problem import Problem, as_arrays
from gpdsl.inference.quadruply_stochastic.restraint import restrained
from gpdsl.kernels.numerics import jitter_for
from gpdsl.program.evaluation import functionals_at
from gpdsl.program.precision import precision
from gpdsl.program.program import take_rows

DTYPE = "float64"
STEPS = 60
"""Most evaluations of the bound of the rows, which a start need not maximise to the last digit."""


def start_parameters(problem: Problem, count: int) -> tuple[dict[str, Array], bool]:
    """The learnt parameters, on the real line, that `count` rows alone would give; the declared ones for none.

    The rows' posterior is a full Gaussian, dense in the rows: for a Gaussian likelihood this is the exact GP. Weak
    priors keep what the rows do not determine near the declared values; values that are not finite numbers are not
    taken. Tells also whether the user has interrupted the search.
    """
    if not count:
        return problem.parameters, False
    rng = np.random.default_rng([problem.options.seed, 2])
    index = np.sort(rng.choice(problem.count, count, replace=False))
    with precision(DTYPE), machine_for(count):
        rows = as_arrays(take_rows(problem.rows, index), DTYPE)
        inducing = [functionals_at(group, group.readings.all, rows) for group in problem.program.groups]
        some = replace(
            problem,
            rows=replace(rows, numbers=jnp.arange(count)),
            count=count,
            layout=Layout(Full(), True),
            choice=Choice(True, 0, 0, 0, "natural", STEPS, {}),
            options=replace(problem.options, dtype=DTYPE, tolerance=1e-5),
            parameters=as_arrays(problem.parameters, DTYPE),
            inducing=inducing,
            jitter=jitter_for(jnp.dtype(DTYPE)),
            monitor=Monitor(STEPS, problem.monitor.callback, f"hyperparameters from {count} rows"),
        )
        found = drive(some.monitor, ProfiledSearch(replace(some, program=restrained(some))))
    sound = all(np.all(np.isfinite(value)) for value in found.parameters.values())
    taken = as_arrays(found.parameters, problem.options.dtype) if sound else problem.parameters
    return taken, found.interrupted
