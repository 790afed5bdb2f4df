"""The variational engine: options → decisions → the optimiser that suits them → a finite result, or an error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gpdsl.data import Data, DataError, TooManyInducing
from gpdsl.data.memory_maps import stays_on_disk
from gpdsl.errors import GpdslError
from gpdsl.inference.ascent.adam import fit_adam
from gpdsl.inference.ascent.alternating import fit_alternating
from gpdsl.inference.ascent.joint import fit_lbfgs
from gpdsl.inference.attempts import attempt
from gpdsl.inference.bound import Layout
from gpdsl.inference.carrying import carry
from gpdsl.inference.diagnosis import diagnose
from gpdsl.inference.exact.engine import exact_choice, fit_exact
from gpdsl.inference.expectation_propagation import fit_ep, suited
from gpdsl.inference.fields.plan import infer_fields
from gpdsl.inference.fineness import finely
from gpdsl.inference.inducing.start import spanning_rows, start_inducing
from gpdsl.inference.keeping import Keep
from gpdsl.inference.monitor import Monitor, Report
from gpdsl.inference.natural.minibatch import fit_minibatch_natural
from gpdsl.inference.natural.profiled import fit_profiled
from gpdsl.inference.opaque.budget import is_simulated, refuse_scores, within_budget
from gpdsl.inference.opaque.simulated import fit_simulated
from gpdsl.inference.opaque.stochastic import fit_stochastic_natural
from gpdsl.inference.plan.batches import numbers_learnt
from gpdsl.inference.plan.coupling import choose_coupling
from gpdsl.inference.plan.options import Choice, Options, decide
from gpdsl.inference.plan.refusals import of_parameters
from gpdsl.inference.posteriors.families import parse_family
from gpdsl.inference.posteriors.family import Diagonal
from gpdsl.inference.problem import Problem, Result, as_arrays
from gpdsl.inference.quadruply_stochastic.choice import decide_weights
from gpdsl.inference.quadruply_stochastic.engine import fit_qsgp
from gpdsl.inference.sharding import shards_for
from gpdsl.inference.sides import from_all_sides
from gpdsl.inference.threads import threads_for
from gpdsl.inference.warm import Start, check_start
from gpdsl.kernels.covariance import covariance
from gpdsl.kernels.functionals import Functionals, Values
from gpdsl.kernels.numerics import jitter_for, jitters_for
from gpdsl.program.compilation import jit
from gpdsl.program.groups import Group, kernel_values
from gpdsl.program.program import Program, make_rows
from gpdsl.program.rows import Rows
from gpdsl.program.white import notes_on_white, training, white_beside

ENGINES: dict[str, Callable[[Problem], Result]] = {
    "exact": fit_exact,
    "ep": fit_ep,
    "qsgp": fit_qsgp,
    "natural": fit_profiled,
    "simulated natural": fit_simulated,
    "stochastic natural": fit_stochastic_natural,
    "minibatch natural": fit_minibatch_natural,
    "lbfgs": fit_lbfgs,
    "adam": fit_adam,
    "adadelta": fit_adam,
    "alternating": fit_alternating,
}


@dataclass(frozen=True)
class Plan:
    """The decisions for some data: choices, the layout of the posterior, and where the inducing points start."""

    choice: Choice
    layout: Layout
    inducing: list[Functionals]


def plan(program: Program, data: Data, options: Options, start: Start | None = None) -> Plan:
    """Decide everything that can be decided before the first step. Raises GpdslError for what cannot work."""
    options = options if program.groups else of_parameters(options)
    if options.engine == "qsgp":
        return Plan(decide_weights(program, options, data.rows), Layout(Diagonal(1), False), [])
    exact = exact_choice(program, data, options)
    if exact is not None:
        choice, read = exact
        return Plan(choice, Layout(parse_family(choice.posterior, True), True), read)
    per_row = any(group.per_row for group in program.groups)
    learnt, facts = numbers_learnt(program, options), {"opaque": program.opaque, "sampled": program.sampled}
    latents = sum(group.size for group in program.groups)
    choice = decide(options, data.rows, **facts, per_row=per_row, learnt=learnt, latents=latents)
    program = training(program, dense=choice.dense)
    if choice.inducing > data.rows:
        raise DataError(TooManyInducing(choice.inducing, data.rows))
    choice = _with_inducing_start(program, choice, options)
    inducing, dense = start_inducing(program, data, choice, options.seed, options.dtype)
    if start is not None:
        choice, inducing = _inducing_of(start, program, choice, inducing, options)
    determined = dense and not any(map(white_beside, program.groups)) and not kernel_parameters_learnt(program)
    if determined and choice.posterior in {"full", "linear", "coupled"}:
        reduced = [_spanning(program, g, z, options) for g, z in zip(program.groups, inducing, strict=True)]
        if sum(map(len, reduced)) < 0.7 * sum(map(len, inducing)):
            inducing, dense = reduced, False
    simulated = is_simulated(program, options, choice)
    if program.opaque:
        if not simulated:
            refuse_scores(program)
        choice = within_budget(program, options, choice, data.rows)
    if options.posterior == "auto":
        sites = choice.optimizer == "natural" or options.engine == "ep"
        choice = choose_coupling(program, choice, inducing, data.rows, sites=sites, simulated=simulated)
    if options.engine == "ep":
        choice = suited(program, choice, options)
    return Plan(choice, Layout(parse_family(choice.posterior, dense), dense, options.entropy), inducing)


def _inducing_of(
    start: Start, program: Program, choice: Choice, inducing: list[Functionals], options: Options
) -> tuple[Choice, list[Functionals]]:
    """The inducing points of the fit to start from, unless it has none or another number of them was asked for."""
    if start.onto is not None:
        return replace(choice, inducing=max(map(len, start.onto))), list(start.onto)
    known = None if choice.dense or start.dense else start.inducing_for(program)
    if known is None or (options.inducing is not None and any(len(z) != options.inducing for z in known)):
        return choice, inducing
    reasons = {**choice.reasons, "inducing": "as in the fit it starts from"}
    return replace(choice, inducing=max(map(len, known)), reasons=reasons), known


def _with_inducing_start(program: Program, choice: Choice, options: Options) -> Choice:
    """Points can be chosen for a kernel that stays; centres do well whatever it becomes."""
    start, reason = options.inducing_start, "as asked"
    if start == "auto":
        learnt = kernel_parameters_learnt(program)
        start, reason = ("kmeans", "the kernel is learnt") if learnt else ("best", "the kernel is known")
    if choice.dense:
        return choice
    return replace(choice, inducing_start=start, reasons={**choice.reasons, "inducing_start": reason})


def kernel_parameters_learnt(program: Program) -> bool:
    """Whether any learnt parameter enters a kernel."""
    translator = program.translator
    for group in program.groups:
        for member in group.members:
            for expression in (*member.kernel.arguments, *member.kernel.factors):
                for symbol in translator.scalar(expression).free_symbols:
                    ref = translator.references[symbol]
                    if ref.kind == "param" and ref.name in program.parameters.initial:
                        return True
    return False


def _spanning(program: Program, group: Group, inducing: Functionals, options: Options) -> Functionals:
    """The rows that carry a dense posterior when the kernel is known: the others' values follow from theirs."""
    if group.factors > 1 or group.per_row or not isinstance(inducing, Values):
        return inducing
    rows = np.asarray(inducing.points)
    jitter = jitter_for(jnp.dtype(options.dtype))

    def matrix(parameters: dict[str, Array], points: Array) -> Array:
        kernel = kernel_values(program.evaluator, group, program.parameters.constrain(parameters), points.shape[-1])
        return covariance(group.form, [a[0] for a in kernel.arguments], Values(points))

    start = as_arrays(program.parameters.unconstrained(), options.dtype)
    values = np.asarray(jit(matrix)(start, jnp.asarray(rows, options.dtype)), float)
    if not np.all(np.isfinite(values)):  # said by the fit, with the reason
        return inducing
    return Values(rows[spanning_rows(values, jitter * float(np.mean(np.diag(values))))])


def _placed(rows: Rows, options: Options) -> Rows:
    """The rows on the device, but for memory maps where the engine reads what it needs of them."""
    if options.engine != "qsgp":
        return as_arrays(rows, options.dtype)
    return jax.tree.map(lambda a: a if stays_on_disk(a) else as_arrays(a, options.dtype), rows)


def _engine(choice: Choice, options: Options, program: Program) -> str:
    if options.engine in {"ep", "qsgp"}:
        return options.engine
    if choice.exact:
        return "exact"
    if options.schedule == "alternating":
        return "alternating"
    if choice.optimizer != "natural":
        return choice.optimizer
    if choice.batch or not program.opaque:
        return "minibatch natural" if choice.batch else "natural"
    return "simulated natural" if is_simulated(program, options, choice) else "stochastic natural"


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
    if program.fields:
        return infer_fields(program, data, options, callback, start, keep)
    if start is not None:
        check_start(start, program)
    if program.account is not None and options.evaluations is not None:
        program.account.budget = options.evaluations
    process = start if start is not None and start.weight_space is None else None
    planned = plan(program, data, options, process)
    choice, layout = planned.choice, planned.layout
    plain = bool(choice.exact) or choice.weights is not None
    program = (program if plain else training(program, dense=choice.dense)).under(choice.posterior)
    engine = _engine(choice, options, program)
    monitor = Monitor(choice.steps, callback, f"{choice.posterior} posterior, {engine}")
    numbers: Any = np.arange(data.rows)
    rows = _placed(replace(make_rows(program, data), numbers=numbers), options)
    inducing = as_arrays(planned.inducing, options.dtype)
    parameters = as_arrays(program.parameters.unconstrained(), options.dtype)
    shards = shards_for(options.devices, layout.dense, program.opaque)
    rows, count = shards.rows(rows)
    inducing, parameters = shards.everywhere((inducing, parameters))
    for jitter in (0.0,) if choice.exact else jitters_for(options.dtype):
        known = process if inducing and not choice.exact else None
        begun = None if known is None else carry(known, program, parameters, inducing, jitter)
        problem = Problem(program, rows, count, layout, choice, options, parameters, inducing, jitter, monitor, begun)
        weights = None if start is None else start.weight_space
        problem = replace(problem, begun_weights=weights, copies=count - data.rows, continued=start is not None)
        with threads_for(max(map(len, planned.inducing), default=0)):
            monitor.keep = None if keep is None else partial(keep, choice, jitter, monitor)
            result = attempt(problem, ENGINES[engine])
            if engine not in {"exact", "ep"}:
                result = from_all_sides(problem, result, ENGINES[engine])
                result = finely(problem, result, ENGINES[engine])
            monitor.ended(result)
        if result.interrupted and not np.isfinite(result.elbo) and not _faulty(program):
            raise KeyboardInterrupt  # before the first state that is worth anything
        if np.isfinite(result.elbo) or result.interrupted:
            return replace(result, notes=result.notes + notes_on_white(program)), monitor, choice, jitter
        if not inducing:
            raise GpdslError(
                "the bound is not a finite number from the first step on: check `init` and the scale of the data"
            )
        trouble = diagnose(program, parameters, inducing, rows, options.dtype, jitter)
        if not trouble.matrix:
            break
    raise GpdslError(f"the bound is not a finite number: {trouble.text}")
