"""From options to a result: the engines there are, which of them plans a fit, and a bound or why there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np

from gpdsl.data import Data
from gpdsl.data.table import stays_on_disk
from gpdsl.errors import GpdslError, quoted
from gpdsl.inference.ascent.adam import adam_search
from gpdsl.inference.ascent.joint import AlternatingSearch, LbfgsSearch
from gpdsl.inference.attempts import attempt
from gpdsl.inference.blocks import first_again, machine_for, mesh_for, over_devices, unobserved_after
from gpdsl.inference.bound import Layout
from gpdsl.inference.by_level import plan_by_level
from gpdsl.inference.corrected import plan_corrected
from gpdsl.inference.diagnosis import diagnose
from gpdsl.inference.driver import CheckedSearch, Engine, Plan, Planner, Search, Task, searching
from gpdsl.inference.exact.engine import plan_exact
from gpdsl.inference.exact.gridded import Gridded
from gpdsl.inference.exact.predictive import Exact
from gpdsl.inference.expectation_propagation.engine import fit_ep
from gpdsl.inference.fields.plan import OverFields, explain_fields, infer_fields
from gpdsl.inference.inducing.start import start_inducing
from gpdsl.inference.integrated import explain_auto
from gpdsl.inference.layered.planning import plan_layered
from gpdsl.inference.layered.predictive import Layered
from gpdsl.inference.layered.settled import from_the_last_layer
from gpdsl.inference.mcmc.engine import explain_chains, of_search, plan_mcmc
from gpdsl.inference.mixtures import attempt_mixture, exact_parameters
from gpdsl.inference.natural.minibatch import MinibatchSearch
from gpdsl.inference.natural.profiled import ProfiledSearch, SitesProfile
from gpdsl.inference.natural.row_space import in_row_space
from gpdsl.inference.opaque.budget import is_simulated
from gpdsl.inference.opaque.simulated import Rounds
from gpdsl.inference.opaque.stochastic import StochasticSearch
from gpdsl.inference.over_parameters import ParametersProfile, explain_gaussian
from gpdsl.inference.plan.explain import explain
from gpdsl.inference.plan.options import Choice, Options, decide
from gpdsl.inference.plan.planning import decided
from gpdsl.inference.plan.refusals import of_parameters, refuse_of_rows, refuse_together
from gpdsl.inference.posteriors.family import Full
from gpdsl.inference.posteriors.posterior import Posterior
from gpdsl.inference.problem import Found, Monitor, Problem, as_arrays, of_first
from gpdsl.inference.quadruply_stochastic.engine import plan_qsgp
from gpdsl.inference.quadruply_stochastic.posterior import OverWeights
from gpdsl.inference.resolution import finely
from gpdsl.inference.sides import from_all_sides
from gpdsl.inference.summed import plan_summed, told_of_waves, with_waves
from gpdsl.inference.warm import Start, carry, check_start
from gpdsl.kernels.functionals import Values
from gpdsl.kernels.numerics import jitters_for
from gpdsl.language.calls import answering
from gpdsl.language.options import name_engine
from gpdsl.language.vocabulary import STATEMENTS
from gpdsl.program.program import Program, make_rows
from gpdsl.program.white import notes_on_white, training

# The engines there are, and which of them plans a fit.

Suits = Callable[[Program, Choice, Options], bool]

PARAMETERS = searching("lbfgs", LbfgsSearch, profiled=ParametersProfile)
"""Of models without latents, whose evidence is their likelihood."""

NATURAL = searching("natural", ProfiledSearch, profiled=SitesProfile)

SEARCHES: list[tuple[Suits, Engine]] = [
    (lambda program, choice, options: options.engine == "ep", Engine("ep", fit_ep, refined=False)),
    (lambda program, choice, options: options.schedule == "alternating", searching("alternating", AlternatingSearch)),
    (lambda program, choice, options: choice.optimizer == "lbfgs" and not program.groups, PARAMETERS),
    (lambda program, choice, options: choice.optimizer == "lbfgs", searching("lbfgs", LbfgsSearch)),
    (lambda program, choice, options: choice.optimizer == "adam", searching("adam", adam_search)),
    (lambda program, choice, options: choice.optimizer == "adadelta", searching("adadelta", adam_search)),
    (lambda program, choice, options: bool(choice.batch), searching("minibatch natural", MinibatchSearch)),
    (lambda program, choice, options: not program.opaque, NATURAL),
    (lambda program, choice, options: is_simulated(program, options, choice), searching("simulated natural", Rounds)),
    (lambda program, choice, options: True, searching("stochastic natural", StochasticSearch)),
]
"""Of what is decided as for variational inference: the first that suits the decisions fits."""


def _plan_with_q(program: Program, data: Data, options: Options, start: Start | None) -> Plan:
    choice, layout, inducing = decided(program, data, options, start)
    engine = next(engine for suits, engine in SEARCHES if suits(program, choice, options))
    return Plan(choice, layout, inducing, engine)


PLANNERS: list[Planner] = [plan_exact, plan_by_level, plan_summed, _plan_with_q]
"""Asked one after the other, where neither the option `engine` nor layers choose another one."""


POSTERIORS: list[type[Posterior]] = [Exact, Gridded, OverWeights, OverFields, Layered, Posterior]
"""What holds the posterior of a fit: the first that suits its choices."""


def plan(program: Program, data: Data, options: Options, start: Start | None = None) -> Plan:
    """Everything that can be decided before the first step. Raises GpdslError for what cannot work."""
    if options.beta != 1 or options.parameters == "gaussian":
        refuse_together(options)
    options = options if program.groups else of_parameters(program, options)
    if options.importance > 1 or options.rows.startswith("network"):
        refuse_of_rows(program, options)
    planners, own = PLANNERS, _registered.get(options.engine)
    if options.engine == "mcmc" and not program.inner:
        planners = [partial(plan_mcmc, PLANNERS)]
    elif options.posterior == "corrected":
        planners = [partial(plan_corrected, PLANNERS)]
    elif program.inner or options.engine == "qsgp":
        planners = [plan_layered if program.inner else plan_qsgp]
    elif own is not None:
        planners = [partial(_plan_registered, *own)]
    found = next(found for each in planners if (found := each(program, data, options, start)) is not None)
    if found.engine.profiled is None and options.explores:
        what = "hyperparameters = integrated" if options.parameters == "point" else "parameters = gaussian"
        names = ("engine", "posterior", "optimizer", "batch", "schedule")
        asked = [f"{name} = {given}" for name in names if (given := getattr(options, name)) != getattr(Options(), name)]
        rest = "set batch = 0" if found.choice.batch else "take engine = mcmc, which draws them"
        raise GpdslError(
            f"{what} explores the evidence of exact inference, or the bound of natural gradients on all rows; "
            f"here the plan is {found.engine.name}: " + (f"leave out {', '.join(asked)}" if asked else rest)
        )
    return found


def trained(program: Program, choice: Choice, white: Callable[..., Program] = training) -> Program:
    """The program whose latents a fit with these choices infers, or holds: `white` is `training`, or `predicting`."""
    plain = bool(choice.exact) or choice.weights is not None  # latents are inferred with their white noise
    found = program if plain else white(program, dense=choice.dense)
    return found.coupling if choice.posterior == "coupled" else found


Against = Callable[[Program], str | None]


_registered: dict[str, tuple[Engine, Against]] = {}
"""Engines, and why they cannot fit a program, if so."""


def _nothing_against(program: Program) -> None:
    """No reason why an engine should not fit a program."""


@answering
def register_engine(
    name: str,
    begin: Callable[[Problem], Search],
    *,
    meaning: str = "registered by the user",
    against: Against = _nothing_against,
) -> None:
    """Make an engine the answer to `infer NAME` and `engine = "NAME"`, for this process; a second one replaces it.

    `begin` takes a problem to a search (`gpdsl.engines.Search`); `gpdsl.engines.LogJoint` has the densities that it
    needs, and makes its result: one Gaussian across all values of the latents at the rows. `against` says why it
    cannot fit a program, or returns None; opaque functions and fields it is never given. Raises GpdslError for a name
    that an engine of gpdsl or a statement has, and for what is no function.
    """
    if not callable(begin) or not callable(against):
        raise GpdslError(f"engine {quoted(name)}: expected functions of a problem, and of a program")
    if name in list(STATEMENTS):
        raise GpdslError(f"engine {name}: statements begin with this word; choose another name")
    name_engine(name, meaning)
    _registered[name] = searching(name, partial(CheckedSearch, name, begin), refined=False), against


def _plan_registered(
    engine: Engine, against: Against, program: Program, data: Data, options: Options, start: Start | None
) -> Plan:
    """One Gaussian across all values at the rows. Raises GpdslError for what such an engine cannot fit."""
    reason = against(program)
    if program.opaque or program.fields:
        reason = "it differentiates densities, of latents row by row"
    if options.batch or options.posterior != "auto":
        reason = "it takes all values at all rows together: leave batch and posterior out"
    if reason:
        raise GpdslError(f"engine = {engine.name} does not cover this fit: {reason}")
    posterior = "coupled" if program.mixing else "full"
    plain = replace(options, engine="vi", inducing=0, batch=0, posterior=posterior, optimizer="natural")
    choice = decide(plain, data.rows, opaque=False)
    inducing, _ = start_inducing(training(program, dense=True), data, choice, options.seed, options.dtype)
    reasons = {"posterior": f"engine = {engine.name}"}
    return Plan(replace(choice, optimizer=engine.name, reasons=reasons), Layout(Full(), True), inducing, engine)


# From options to a result: decisions, the engine that suits them, a finite bound or an error that says why not.


def _faulty(program: Program) -> bool:
    """Whether an opaque function has ended the fit, which says so whatever the fit came to."""
    return program.account is not None and program.account.fault is not None


def infer(task: Task) -> Found:
    """Fit q and all learnt parameters, from another fit's if there is a `start`.

    Raises GpdslError, naming the latents, when no jitter makes their covariance matrices positive definite, and
    KeyboardInterrupt when the user stops it before there is anything to return.
    """
    program, data, options, start, keep = task.program, task.data, task.options, task.start, task.keep
    if program.account is not None and (budget := of_search(options)) is not None:
        program.account.budget = budget
    if program.fields:
        return infer_fields(task)
    if start is not None:
        check_start(start, program)
    process = start if start is not None and start.held is None else None
    planned = plan(program, data, options, process)
    if planned.engine.name == "layered" and start is None:
        pairs = zip(planned.inducing, program.groups, strict=True)
        points = {name: len(z) for z, group in pairs if not group.per_row for name in group.names}
        program, start = from_the_last_layer(task, points, infer)
        process = start
        planned = plan(program, data, options, process)
    choice, layout, engine = planned.choice, planned.layout, planned.engine
    plain = layout.family.components == 1
    known_exact = None if plain or start is not None else exact_parameters(layout.family, task, infer)
    program = trained(program, choice)
    monitor = Monitor(choice.steps, task.callback, f"{choice.posterior} posterior, {engine.name}")
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
            profile = result.profile
            if profile is None and engine.profiled is not None:
                profile = partial(engine.profiled, problem, result)
            if whole is not problem:  # programs of the profile are those of the search
                profile, result = partial(SitesProfile, whole, result, first.count), of_first(result, first.count)
            monitor.ended(result)
        if result.interrupted and not np.isfinite(result.elbo) and not _faulty(program):
            raise KeyboardInterrupt  # before the first state that is worth anything
        if np.isfinite(result.elbo) or result.interrupted:
            apart = any(group.apart for group in program.groups)
            notes = result.notes + (notes_on_white(program) if apart else ())
            target = None if engine.target is None else partial(engine.target, problem, result)
            return Found(replace(result, notes=notes, profile=profile, target=target), monitor, choice, jitter)
        if not inducing:
            raise GpdslError(
                "the bound is not a finite number from the first step on: check `init` and the scale of the data"
            )
        trouble = diagnose(program, parameters, inducing, first.rows, options.dtype, jitter, bool(choice.exact))
        if not trouble.matrix:
            break
    raise GpdslError(f"the bound is not a finite number: {trouble.text}")


def _problem(program: Program, data: Data, options: Options, planned: Plan, monitor: Monitor) -> Problem:
    """What is planned, with the rows and the start on the devices; memory maps stay where an engine reads some rows."""
    numbers: Any = np.arange(data.rows)
    found = replace(make_rows(program, data), numbers=numbers)
    on_disk = stays_on_disk if options.engine == "qsgp" else lambda _: False
    found = jax.tree.map(lambda a: a if on_disk(a) else as_arrays(a, options.dtype), found)
    mesh = mesh_for(options.devices, planned.layout.dense, program.opaque)
    begin = as_arrays((planned.inducing, program.parameters.unconstrained()), options.dtype)
    rows, (inducing, parameters) = (found, begin) if mesh is None else over_devices(mesh, found, begin)
    count = next(iter(rows.observed.values())).shape[0]
    problem = Problem(program, rows, count, planned.layout, planned.choice, options, parameters, inducing, 0.0, monitor)
    return replace(problem, copies=count - data.rows)


def explained(program: Program, data: Data, options: Options) -> str:
    """The plan for a fit, in words."""
    if program.fields:
        fields = explain_fields(program, data, options)
        return fields + explain_chains(program, options, data.rows) if options.engine == "mcmc" else fields
    asked = with_waves(program, data, options)
    decided = plan(program, data, asked)
    if asked is not options:
        decided = replace(decided, choice=told_of_waves(decided.choice, data.rows))
    mesh_for(options.devices, decided.layout.dense, program.opaque)
    told = decided.engine.explain or explain
    text = told(trained(program, decided.choice), options, decided, data.rows)
    if options.engine == "mcmc":
        return text + explain_chains(program, options, data.rows)
    if options.hyperparameters == "auto":
        text += explain_auto(program, None if options.plugs_in else decided.engine.profiled)
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
