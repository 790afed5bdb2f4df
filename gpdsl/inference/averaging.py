"""After a search: settings of the parameters, and draws of the latents, that predictions average over."""

from __future__ import annotations

from gpdsl.inference.corrected.engine import corrected
from gpdsl.inference.integrated.explore import integrated
from gpdsl.inference.mcmc.engine import sampled
from gpdsl.inference.monitor import Monitor
from gpdsl.inference.plan.options import Options
from gpdsl.inference.problem import Result
from gpdsl.program.program import Program


def averaged_over(program: Program, result: Result, options: Options, rows: int, monitor: Monitor) -> Result:
    """The result with what the options ask for; Ctrl-C leaves it as it is."""
    if options.hyperparameters == "integrated":
        result = integrated(program, result, options, rows, monitor)
    if result.target is None:
        return result
    draw = corrected if options.posterior == "corrected" else sampled
    return draw(result, options, rows, monitor)
