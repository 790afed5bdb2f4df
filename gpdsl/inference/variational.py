"""The variational engine: options → decisions → the optimiser that suits them → a result that is finite, or an error."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from gpdsl.data import Data, DataError, TooManyInducing
from gpdsl.errors import GpdslError
from gpdsl.inference.bound import Layout
from gpdsl.inference.gradient import fit_adam, fit_lbfgs
from gpdsl.inference.inducing import kmeans_centres
from gpdsl.inference.monitor import Monitor, Report
from gpdsl.inference.options import Choice, Options, decide
from gpdsl.inference.posterior import parse_family
from gpdsl.inference.problem import Problem, Result, as_arrays
from gpdsl.inference.profiled import fit_profiled
from gpdsl.inference.stochastic import fit_stochastic_natural
from gpdsl.kernels.numerics import jitter_for
from gpdsl.program.groups import stack_inputs
from gpdsl.program.program import Program, make_rows

ENGINES: dict[str, Callable[[Problem], Result]] = {
    "natural": fit_profiled,
    "stochastic natural": fit_stochastic_natural,
    "lbfgs": fit_lbfgs,
    "adam": fit_adam,
}

ESCALATIONS = 3
"""Times the jitter is multiplied by ten thousand^(1/2) when a factorisation fails at the start."""


def plan(program: Program, options: Options, rows: int) -> tuple[Choice, Layout]:
    """The decisions for this many rows, and the layout of the posterior."""
    choice = decide(options, rows, opaque=program.opaque, sampled=program.sampled)
    if choice.inducing > rows:
        raise DataError(TooManyInducing(choice.inducing, rows))
    return choice, Layout(parse_family(options.posterior, choice.dense), choice.dense)


def infer(
    program: Program, data: Data, options: Options, callback: Callable[[Report], None] | None = None
) -> tuple[Result, Monitor, Choice, float]:
    """Fit q and all learnt parameters. Returns the result, its history, the decisions and the jitter used.

    Raises GpdslError, naming the latents, when no jitter makes their covariance matrices positive definite.
    """
    choice, layout = plan(program, options, data.rows)
    engine = "stochastic natural" if choice.optimizer == "natural" and program.opaque else choice.optimizer
    monitor = Monitor(choice.steps, callback, f"{options.posterior} posterior, {engine}")
    rows = as_arrays(make_rows(program, data), options.dtype)
    inducing = as_arrays(start_inducing(program, data, choice, options), options.dtype)
    parameters = as_arrays(program.parameters.unconstrained(), options.dtype)
    jitter = jitter_for(jnp.dtype(options.dtype))
    for _ in range(ESCALATIONS):
        problem = Problem(program, rows, data.rows, layout, choice, options, parameters, inducing, jitter, monitor)
        result = ENGINES[engine](problem)
        if np.isfinite(result.elbo) or result.interrupted:
            return result, monitor, choice, jitter
        jitter *= 100.0
    raise GpdslError(_diagnosis(program, choice, options))


def start_inducing(program: Program, data: Data, choice: Choice, options: Options) -> list[np.ndarray]:
    """Inducing inputs of each group: the rows themselves when dense, k-means centres otherwise."""
    rows, rng, found = make_rows(program, data), np.random.default_rng(options.seed), {}
    for group in program.groups:
        if group.inputs not in found:
            inputs = np.asarray(stack_inputs(group.inputs, rows))
            found[group.inputs] = inputs if choice.dense else kmeans_centres(inputs, choice.inducing, rng)
    return [found[group.inputs] for group in program.groups]


def _diagnosis(program: Program, choice: Choice, options: Options) -> str:
    names = ", ".join(f"`{n}`" for g in program.groups for n in g.names)
    size = "rows" if choice.dense else "inducing points"
    return (
        f"the bound is not a finite number at the starting values of the parameters (latents {names}, {options.dtype}).\n"
        f"  Likely causes: a likelihood that is infinite at the prior mean; a length-scale far beyond the spread of the "
        f"{size}; inputs of very different scales.\n"
        "  help: give starting values in the model or with init={...}, standardise the inputs"
        + (", or use dtype='float64'" if options.dtype == "float32" else "")
    )
