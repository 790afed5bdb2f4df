"""From options to a result: decisions, the engine that suits them, a finite bound or an error that says why not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np

from gpdsl.data import Data
from gpdsl.data.table import stays_on_disk
from gpdsl.errors import GpdslError
from gpdsl.inference.attempts import attempt
from gpdsl.inference.blocks import first_again, shards_for, unobserved_after
from gpdsl.inference.diagnosis import diagnose
from gpdsl.inference.driver import Keep, Plan
from gpdsl.inference.engines import NATURAL, plan
from gpdsl.inference.fields.plan import explain_fields, infer_fields
from gpdsl.inference.fineness import finely
from gpdsl.inference.layered.shallow import from_the_last_layer
from gpdsl.inference.machine import machine_for
from gpdsl.inference.mcmc.engine import explain_chains, of_search
from gpdsl.inference.mixtures import attempt_mixture, exact_parameters
from gpdsl.inference.natural.row_space import in_row_space
from gpdsl.inference.over_parameters.engine import explain_gaussian
from gpdsl.inference.plan.explain import explain
from gpdsl.inference.plan.options import Choice, Options
from gpdsl.inference.plan.planning import trained
from gpdsl.inference.problem import Monitor, Problem, Report, Result, as_arrays
from gpdsl.inference.sides import from_all_sides
from gpdsl.inference.warm import Start, carry, check_start
from gpdsl.kernels.functionals import Values
from gpdsl.kernels.numerics import jitters_for
from gpdsl.program.program import Program, make_rows
from gpdsl.program.white import notes_on_white


def _faulty(program: Program) -> bool:
    """Whether an opaque function has ended the fit, which says so whatever the fit came to."""
    return program.account is not None and program.account.fault is not None


def infer(
    program: Program,
    data: Data,
    options: Options,
    callback: Callable[[Report], None] | None = None,
    start: Start | None = None,
    keep: Keep | None = None,
) -> tuple[Result, Monitor, Choice, float]:
    """Fit q and all learnt parameters, from another fit's if there is a `start`.

    Returns the result, its history, the decisions and the jitter used.

    Raises GpdslError, naming the latents, when no jitter makes their covariance matrices positive definite, and
    KeyboardInterrupt when the user stops it before there is anything to return.
    """
    if program.account is not None and (budget := of_search(options)) is not None:
        program.account.budget = budget
    if program.fields:
        return infer_fields(program, data, options, callback, start, keep)
    if start is not None:
        check_start(start, program)
    process = start if start is not None and start.held is None else None
    planned = plan(program, data, options, process)
    if planned.engine.name == "layered" and start is None:
        pairs = zip(planned.inducing, program.groups, strict=True)
        points = {name: len(z) for z, group in pairs if not group.per_row for name in group.names}
        program, start = from_the_last_layer(program, data, options, points, infer)
        process = start
        planned = plan(program, data, options, process)
    choice, layout, engine = planned.choice, planned.layout, planned.engine
    plain = layout.family.components == 1
    known_exact = None if plain or start is not None else exact_parameters(layout.family, program, data, options, infer)
    program = trained(program, choice)
    monitor = Monitor(choice.steps, callback, f"{choice.posterior} posterior, {engine.name}")
    first = _problem(program, data, options, planned, monitor)
    if start is not None:
        first = replace(first, begun_held=start.held, continued=True)
    inducing, parameters = first.inducing, first.parameters
    for jitter in (0.0,) if choice.exact else jitters_for(options.dtype):
        known = process if inducing and not choice.exact else None
        begun = None if known is None else carry(known, program, parameters, inducing, jitter)
        problem = replace(first, jitter=jitter, begun=begun)
        fresh = start is None and keep is None and plain and engine.name == NATURAL.name
        whole = filled_up(problem) if fresh else problem
        with machine_for(max(map(len, planned.inducing), default=0)):
            monitor.keep = None if keep is None else partial(keep, choice, jitter, monitor)
            result = attempt(whole, engine.fit) if plain else attempt_mixture(problem, engine.fit, known_exact)
            if engine.refined:
                result = finely(whole, from_all_sides(whole, result, engine.fit), engine.fit)
            result = result if whole is problem else of_first(result, first.count)
            monitor.ended(result)
        if result.interrupted and not np.isfinite(result.elbo) and not _faulty(program):
            raise KeyboardInterrupt  # before the first state that is worth anything
        if np.isfinite(result.elbo) or result.interrupted:
            profile = None if engine.profiled is None else partial(engine.profiled, problem, result)
            apart = any(group.apart for group in program.groups)
            notes = result.notes + (notes_on_white(program) if apart else ())
            target = None if engine.target is None else partial(engine.target, problem, result)
            return replace(result, notes=notes, profile=profile, target=target), monitor, choice, jitter
        if not inducing:
            raise GpdslError(
                "the bound is not a finite number from the first step on: check `init` and the scale of the data"
            )
        trouble = diagnose(program, parameters, inducing, first.rows, options.dtype, jitter)
        if not trouble.matrix:
            break
    raise GpdslError(f"the bound is not a finite number: {trouble.text}")


def _problem(program: Program, data: Data, options: Options, planned: Plan, monitor: Monitor) -> Problem:
    """What is planned, with the rows and the start on the devices; memory maps stay where an engine reads some rows."""
    numbers: Any = np.arange(data.rows)
    found = replace(make_rows(program, data), numbers=numbers)
    on_disk = stays_on_disk if options.engine == "qsgp" else lambda _: False
    found = jax.tree.map(lambda a: a if on_disk(a) else as_arrays(a, options.dtype), found)
    shards = shards_for(options.devices, planned.layout.dense, program.opaque)
    rows, count = shards.rows(found)
    begin = as_arrays((planned.inducing, program.parameters.unconstrained()), options.dtype)
    inducing, parameters = shards.everywhere(begin)
    problem = Problem(program, rows, count, planned.layout, planned.choice, options, parameters, inducing, 0.0, monitor)
    return replace(problem, copies=count - data.rows)


def explained(program: Program, data: Data, options: Options) -> str:
    """The plan for a fit, in words."""
    if program.fields:
        return explain_fields(program, data, options)
    decided = plan(program, data, options)
    shards_for(options.devices, decided.layout.dense, program.opaque)
    told = decided.engine.explain or explain
    text = told(trained(program, decided.choice), options, decided, data.rows)
    if options.engine == "mcmc":
        return text + explain_chains(program, options, data.rows)
    return text + explain_gaussian(program) if options.parameters == "gaussian" else text


# Dense fits of nearly as many rows share their programs: rows in which nothing is observed fill them up.
#
# Compiling takes longer than such a fit, and the folds of a cross-validation differ by a row. Copies of the first come
# last, and nothing is observed in them: q is the prior's there given the others, and says nothing of these. What a
# result holds of the first rows is what it would hold without the copies.

EACH = 16
"""Rows are filled up to a multiple of so many."""

LEAST, FEW = 128, 2000
"""Rows below which so many more would be a tenth of them, and above which no program takes as long as its runs."""


def filled_up(problem: Problem) -> Problem:
    """The problem with more rows, where it is one whose programs depend on how many there are; else as it is."""
    more = -problem.count % EACH
    plain = all(isinstance(each, Values) and len(each) == problem.count for each in problem.inducing)
    fits = LEAST <= problem.count <= FEW and plain and not problem.program.sampled and in_row_space(problem)
    if not more or not fits:
        return problem
    longer = unobserved_after(problem.rows, more), first_again(problem.inducing, more)
    rows, inducing = as_arrays(longer, problem.options.dtype)
    return replace(problem, rows=rows, count=problem.count + more, inducing=inducing)


def of_first(result: Result, rows: int) -> Result:
    """What a result says of the first rows, which the later ones have not touched."""

    def first(tree: Any) -> Any:
        return jax.tree.map(lambda a: np.asarray(a)[:rows], tree)

    posterior = [replace(q, mean=q.mean[..., :rows], root=q.root[..., :rows, :rows]) for q in result.posterior]
    return replace(result, inducing=first(result.inducing), posterior=posterior, sites=first(result.sites))
