"""What is decided before the first step: the posterior and its layout, the optimiser, where inducing points start."""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gpdsl.data import Data, DataError, TooManyInducing
from gpdsl.errors import GpdslError
from gpdsl.inference.bound import Layout
from gpdsl.inference.driver import Engine
from gpdsl.inference.engines import registered
from gpdsl.inference.exact.engine import exact_choice
from gpdsl.inference.expectation_propagation.suited import suited
from gpdsl.inference.inducing.start import spanning_rows, start_inducing
from gpdsl.inference.opaque.budget import is_simulated, refuse_scores, within_budget
from gpdsl.inference.plan.batches import numbers_learnt
from gpdsl.inference.plan.coupling import choose_coupling
from gpdsl.inference.plan.options import Choice, Options, decide
from gpdsl.inference.plan.refusals import of_parameters
from gpdsl.inference.posteriors.families import parse_family
from gpdsl.inference.posteriors.family import Diagonal, Full
from gpdsl.inference.problem import as_arrays
from gpdsl.inference.quadruply_stochastic.choice import decide_weights
from gpdsl.inference.warm import Start
from gpdsl.kernels.covariance import covariance
from gpdsl.kernels.functionals import Functionals, Values
from gpdsl.kernels.numerics import jitter_for
from gpdsl.program.compilation import jit
from gpdsl.program.groups import Group, kernel_values
from gpdsl.program.program import Program
from gpdsl.program.white import training, white_beside


@dataclass(frozen=True)
class Plan:
    """The decisions for some data: choices, the layout of the posterior, and where the inducing points start."""

    choice: Choice
    layout: Layout
    inducing: list[Functionals]


def plan(program: Program, data: Data, options: Options, start: Start | None = None) -> Plan:
    """Decide everything that can be decided before the first step. Raises GpdslError for what cannot work."""
    options = options if program.groups else of_parameters(options)
    own = registered(options.engine)
    if own is not None:
        return _of_registered(own, program, data, options)
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


def _of_registered(engine: Engine, program: Program, data: Data, options: Options) -> Plan:
    """One Gaussian across all values at the rows. Raises GpdslError for what such an engine cannot fit."""
    reason = engine.against(program)
    if program.opaque or program.fields:
        reason = "it differentiates densities, of latents row by row"
    if options.batch or options.posterior != "auto":
        reason = "it takes all values at all rows together: leave batch and posterior out"
    if reason:
        raise GpdslError(f"engine = {engine.name} does not cover this fit: {reason}")
    posterior = "coupled" if program.mixing else "full"
    plain = replace(options, engine="vi", inducing=0, batch=0, posterior=posterior, optimizer="natural")
    choice = decide(plain, data.rows, opaque=False, sampled=program.sampled)
    inducing, _ = start_inducing(training(program, dense=True), data, choice, options.seed, options.dtype)
    reasons = {"posterior": f"engine = {engine.name}"}
    return Plan(replace(choice, optimizer=engine.name, reasons=reasons), Layout(Full(), True), inducing)


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
