"""`Model.fit`, step by step: bind the data, make the program, decide, infer, wrap up."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from gpdsl.data import Data, bind
from gpdsl.data.errors import listed
from gpdsl.errors import GpdslError, GpdslWarning, quoted
from gpdsl.forward import Accounting, fitting, resolve
from gpdsl.forward.registry import explain_externals
from gpdsl.inference.corrected import drawn
from gpdsl.inference.driver import Task
from gpdsl.inference.fields.plan import probe_called
from gpdsl.inference.inducing.growth import infer_growing, infer_tempered
from gpdsl.inference.inducing.loss import Loss
from gpdsl.inference.infer import explained, trained
from gpdsl.inference.integrated import integrated
from gpdsl.inference.opaque.budget import probe
from gpdsl.inference.over_parameters import gaussian
from gpdsl.inference.plan.explain import explain_kernels
from gpdsl.inference.plan.options import Choice, Options, make_options, settled
from gpdsl.inference.problem import Monitor, Report, Result, as_arrays
from gpdsl.inference.resolution import notes_on_constants, notes_on_inputs, notes_on_noise, notes_on_samples
from gpdsl.inference.warm import Start, check_start
from gpdsl.inference.watch import honour_interrupts, watching
from gpdsl.language.calls import Named, Parameters, path_of
from gpdsl.language.model import Declarations
from gpdsl.program.cache import precision
from gpdsl.program.kept import on_use
from gpdsl.program.parameters import make_parameters
from gpdsl.program.program import Program, make_program
from gpdsl.program.standardise import ANY, Asked, Units, standardise
from gpdsl.program.starts import start_from_data
from gpdsl.program.white import predicting
from gpdsl.results.checkpoint import (
    PATIENCE,
    Checkpoint,
    kept_before,
    noisy,
    not_below,
    progress_bar,
    steps_left,
    verify_data,
)
from gpdsl.results.criticism.finding import Ended, Inspected
from gpdsl.results.criticism.plugged import worth_averaging
from gpdsl.results.fit import Fit
from gpdsl.results.settings import Settings
from gpdsl.results.summary import STOPPED, doubts, too_few, verify_progress
from gpdsl.shown import in_notebook
from gpdsl.symbolic.checking import grave_warnings

if TYPE_CHECKING:
    from gpdsl.model import Model


Columns = Mapping[str, str]


def prepare(
    model: Model,
    data: Any,
    columns: Columns,
    given: Mapping[str, Any] | Options,
    start: Start | None = None,
    check: Callable[[Data], None] | None = None,
    asked: Asked = None,
    units: Units = ANY,
) -> tuple[Program, Data, Options]:
    """Everything before inference: checked options, bound data, and the program, with the parameters of `start`.

    Inputs and outputs that are `asked` for are standardised, as are those of the fit to start at, whose `units` count.
    `check` is of the data of a fit that is resumed, which has gone on from `options.init`.
    """
    options = make_options(model.declarations.infer.options, given, model.declarations.latents)
    if start is not None and options.inducing is None:
        options = replace(options, inducing=start.told_of(model.declarations.latents))
    externals = resolve(model.declarations, model.externals)
    calendar = None if start is None else start.calendar
    if not isinstance(columns, Mapping):
        raise GpdslError(f"columns: expected a dictionary such as {{'x': 'height'}}, got {quoted(repr(columns))[:60]}")
    levels = None if start is None else start.program.levels
    bound = bind(model.declarations, data, calendar=calendar, columns=columns, before=levels)
    if start is not None:
        _check_levels(start.program.levels, bound.levels)
    options = settled(options, bound.rows)
    if asked is not None or units is not ANY or model.declarations.infer.standardise:
        bound = standardise(model.declarations, bound, asked, units)
    if check is not None:
        check(bound)
    with precision(options.dtype):
        program = make_program(
            model.declarations,
            bound.sizes,
            bound.levels,
            externals,
            expectations=options.expectations,
            gradients=options.gradients,
            control=options.control_variate,
            fixed=options.fixed,
            initial=options.init,
            inducing=options.inducing,
        )
        valued = {name for name, param in model.declarations.params.items() if param.given} | set(options.init)
        parameters = program.parameters
        if start is not None:
            check_start(start, program)
            known = start.initial(program)
            first = {**options.init, **known} if check is not None else {**known, **options.init}
            parameters = make_parameters(program.translator, options.fixed, first)
            valued |= set(known)
        fixed = [*options.fixed, *(name for name, param in model.declarations.params.items() if param.fixed)]
        if loose := [name for name in fixed if name not in valued]:  # any value would be a guess about units
            raise GpdslError(
                f"fixed: parameter `{loose[0]}` has no value to be fixed at; give it one with "
                f"init={{'{loose[0]}': ...}} or where it is declared, `param {loose[0]} : ... = ...`"
            )
        parameters = start_from_data(parameters, program.translator, bound, valued, options.seed)
    return replace(program, parameters=parameters), bound, options


def _check_levels(before: Mapping[str, tuple], levels: Mapping[str, tuple]) -> None:
    """Raise GpdslError for as many levels as before that are others: parameters are carried over by place."""
    for name in set(before) & set(levels):
        known, own = (list(map(str, each[name])) for each in (before, levels))
        if len(known) == len(own) and {*known} != {*own}:
            raise GpdslError(
                f"start: the levels of `{name}` are {listed(known)} there and {listed(own)} here; fit without start"
            )


def start_of(fit: Any) -> Start:
    """What another fit knows. Raises GpdslError for anything else than a fit."""
    if not isinstance(fit, Fit):
        hint = "; read a saved fit with gpdsl.load_fit" if isinstance(fit, (str, os.PathLike)) else ""
        raise GpdslError(f"start: expected a fit, got {type(fit).__name__}{hint}")
    posterior, jitter, held = fit.at_rows.carried()
    known = trained(fit.program, fit.choice), fit.parameters, fit.inducing, posterior, fit.weights, jitter
    everywhere = {name for name, number in fit.choice.own.items() if number == 0}
    return Start(*known, fit.choice.dense, held, fit.calendar, told=fit.options.inducing, everywhere=everywhere)


def units_of(fit: Fit, *, resumed: bool = False) -> Units:
    """In which units the parameters of another fit hold."""
    said = "the fit that `resume` goes on from" if resumed else Units.said
    return Units(fit.standardised, {**fit.program.declarations.inputs, **fit.program.declarations.outputs}, said)


@dataclass(frozen=True, eq=False)
class _Asked:
    """What a fit is of, how it is to be made, what its simulators cost, and when it began."""

    model: Model
    program: Program
    bound: Data
    options: Options
    columns: dict[str, str]
    account: Accounting
    begun: float
    log_jacobian: float
    """Nats by which the bound of standardised outputs is above that of the outputs in their own units."""

    def fit(self, result: Result, choice: Choice, jitter: float, monitor: Monitor) -> Fit:
        """A fit of what the inference has found."""
        fitted = trained(self.program, choice, predicting)
        constrain = on_use(("constrain", fitted.known_by), lambda: fitted.parameters.constrain)
        values = constrain(as_arrays(result.parameters, self.options.dtype))
        parameters = Parameters((name, np.asarray(values[name])) for name in self.model.declarations.params)
        found = result.integrated
        settings = None if found is None else Settings.of(found, constrain, self.options.dtype)
        noise = notes_on_constants(fitted, self.bound) or notes_on_noise(fitted, self.bound, parameters)
        inputs = notes_on_inputs(fitted, self.bound) if self.options.dtype == "float32" else ()
        samples = notes_on_samples(fitted, choice, result.elbo, result.elbo_se)
        return Fit(
            program=fitted,
            options=self.options,
            choice=choice,
            parameters=parameters,
            inducing=tuple(result.inducing),
            posterior=tuple(result.posterior),
            weights=result.weights,
            jitter=jitter,
            elbo=result.elbo - self.log_jacobian,
            elbo_se=result.elbo_se,
            history=np.asarray(monitor.history, float).reshape(-1, 3) - [0.0, self.log_jacobian, 0.0],
            message=result.message,
            rows=self.bound.rows,
            seconds=time.perf_counter() - self.begun,
            compile_seconds=monitor.compile_seconds,
            columns=Named(self.columns),
            interrupted=result.interrupted,
            usage=self.account.usage(),
            held=result.held,
            notes=(*result.notes, *noise, *inputs, *samples, *doubts(fitted, parameters)),
            inducing_loss=None if result.loss is None else result.loss.nats,
            inducing_loss_bounds=result.loss_bounds,
            digests=self.bound.digests,
            calendar=self.bound.calendar,
            standardised=self.bound.standardised,
            settings=settings,
        )


def fit_model(
    model: Model,
    data: Any,
    columns: Columns,
    callback: Callable[[Report], None] | None,
    progress: bool | None,
    given: Mapping[str, Any] | Options,
    start: Any = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    standardised: Asked = None,
) -> Fit:
    """See `Model.fit`."""
    if callback is not None and not callable(callback):
        raise GpdslError(f"callback: expected a function that takes a Progress, got {quoted(repr(callback))[:60]}")
    begun, before = time.perf_counter(), kept_before(model, given, start, checkpoint) if resume else None
    begun_at = start if before is None else before
    known = None if begun_at is None else start_of(begun_at)
    verify = None if before is None else partial(verify_data, checkpoint, before)
    units = ANY if begun_at is None else units_of(begun_at, resumed=before is not None)
    program, bound, options = prepare(model, data, columns, given, known, verify, standardised, units)
    if before is not None and not before.interrupted and options.steps == before.options.steps:
        return before
    if before is not None and known is not None and program.inner and "inducing" not in before.choice.reasons:
        known = replace(known, anew=(prepare(model, data, columns, given, None, None, standardised, units)[0], options))
    _warn(model.declarations)
    honour_interrupts()  # there is nothing to keep yet
    standard = bound.standardised
    unasked = standardised is None and not model.declarations.infer.standardise
    if unasked and standard.sds and known is not None and known.program.declarations != model.declarations:
        said = ", ".join(f"`{name}`" for name in standard.sds)
        said += " are in standard deviations, as in that fit, and so are starting values, priors and constants here"
        warnings.warn(f"start: {said}: say standardise = True if that is meant", GpdslWarning, stacklevel=3)
    log_jacobian = float(np.sum(standard.log_jacobian(bound.observed))) if standard.sds else 0.0
    account = program.account or Accounting()
    asked = _Asked(model, program, bound, options, dict(columns), account, begun, log_jacobian)
    ended = None if before is None or noisy(before) else before
    keep = None if checkpoint is None else Checkpoint(path_of(checkpoint, "checkpoint"), asked.fit, ended)
    with (
        precision(options.dtype),
        on_device(options.device),
        progress_shown(progress, callback) as report,
        watching() as watch,
        keep or nullcontext(),
    ):
        found, loss = _search(asked, options if before is None else steps_left(before, options), report, known, keep)
    fault = None if watch.asked else account.fault  # Ctrl-C ends the processes of simulators as well
    message = found.message if fault is None else f"{STOPPED} by `{fault.mistake.function}`"
    fit = replace(found, message=message, interrupted=found.interrupted or watch.asked)
    if options.inducing is None and loss is not None and loss.much and not fit.interrupted:
        warnings.warn(too_few(fit), GpdslWarning, stacklevel=3)
    if options.learning_rate is not None and _without_rate(fit):
        said = "is of Adam, and this fit takes steps as long as they gain: leave it out, or say optimizer = adam"
        warnings.warn(f"learning_rate = {options.learning_rate:g} {said}", GpdslWarning, stacklevel=3)
    if fault is None:
        fit = fit if before is None else not_below(before, fit)
        if program.opaque:
            verify_progress(fit)
    if checkpoint is not None and np.isfinite(fit.elbo):
        try:
            fit.save(Path(checkpoint))
        except GpdslError as error:  # a full disk is no reason to lose the fit
            error.fit = fit
            raise
    if fault is not None:
        fault.fit = fit if np.isfinite(fit.elbo) else None
        raise fault from fault.__cause__
    return fit


def _search(
    asked: _Asked,
    options: Options,
    report: Callable[[Report], None] | None,
    known: Start | None,
    keep: Checkpoint | None,
) -> tuple[Fit, Loss | None]:
    """The fit in which an inference with the steps of `options` ends, and what its inducing points lose."""
    program, bound = asked.program, asked.bound
    if program.fields:
        probe_called(program, bound, options.dtype)
    elif program.opaque:
        probe(program, bound, options.dtype)
    with fitting(asked.account):
        told = None if report is None else _counting(report, asked.account, asked.log_jacobian)
        infer = infer_growing if options.beta == 1 else infer_tempered
        result, monitor, choice, jitter = infer(Task(program, bound, options, told, known, keep))
        searched = result.elbo
        if options.parameters == "gaussian":
            result = gaussian(program, result, asked.options, bound.rows, monitor)
        ended = Ended(bound, result.profile, searched, result.parameters)
        why = ""
        if options.hyperparameters == "auto" and not options.plugs_in:
            why = worth_averaging(asked.fit(result, choice, jitter, monitor), ended)
        if options.hyperparameters == "integrated" or why:
            result = integrated(program, result, asked.options, bound.rows, monitor, why)
        if result.target is not None:
            result = drawn(result, asked.options, bound.rows, monitor)
    fit = asked.fit(result, choice, jitter, monitor)
    return replace(fit, inspected=Inspected(None if options.diagnose == "no" else ended)), result.loss


def _without_rate(fit: Fit) -> bool:
    """Whether nothing was found by steps of Adam, although nobody said so."""
    chosen, steady = fit.choice.optimizer, not (fit.choice.batch or fit.program.opaque or fit.program.inner)
    return fit.options.engine in {"vi", "ep"} and (chosen == "lbfgs" or chosen == "natural" and steady)


def _counting(report: Callable[[Report], None], account: Accounting, log_jacobian: float) -> Callable[[Report], None]:
    """The callback, told the bound in the units of the data, and what opaque functions have cost so far."""
    return lambda each: report(replace(each, elbo=each.elbo - log_jacobian, usage=account.usage()))


def _warn(declarations: Declarations) -> None:
    """Say what a fit should not start without: what is no covariance, no density, or a density without a bound."""
    source = declarations.source
    for doubt in grave_warnings(declarations).warnings:
        line = doubt.span.line
        place = f"{source.part(line).name}:{source.number(line)}"
        warnings.warn(f"{place}: {doubt.message_text()} [{doubt.code}]", GpdslWarning, stacklevel=4)


def on_device(name: str | None) -> Any:
    if name is None:
        return nullcontext()
    try:
        devices = jax.devices(name)
    except RuntimeError as error:
        present = sorted({d.platform for d in jax.devices()})
        raise GpdslError(f"device = {name!r} is not available here; JAX sees {', '.join(present)}") from error
    return jax.default_device(devices[0])


def progress_shown(wanted: bool | None, callback: Callable[[Report], None] | None) -> Any:
    """What shows progress: of long fits where somebody looks, unless they said whether they want it."""
    if wanted is None and not ((sys.stderr is not None and sys.stderr.isatty()) or in_notebook()):
        wanted = False
    if wanted is False:
        return nullcontext(callback)
    return progress_bar(callback, 0.0 if wanted else PATIENCE)


# `Model.explain`: bind the data, make the program, decide, and say so.


def explain_model(model: Model, data: Any, columns: Columns, given: Mapping[str, Any], asked: Asked) -> str:
    """See `Model.explain`."""
    program, bound, options = prepare(model, data, columns, given, asked=asked)
    with precision(options.dtype), on_device(options.device):
        planned = explained(program, bound, options)
    called = [program.externals[name] for name in sorted({use.function for use in program.uses()})]
    return "\n".join([planned, *explain_externals(called), *explain_kernels(model.declarations)])
