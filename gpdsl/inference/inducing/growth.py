"""What inducing points lose, and as many of them as it takes where nobody asks for a number: fit, look, add, go on.

Points are chosen greedily, or as centres of clusters, under the kernel that the fit before has found (or that patches
of rows find, where it is bent), and the next fit starts from that one. It ends where the loss is slight, where more
points no longer raise the bound, or where the next fit would take more work than a budget allows; of all fits the best
is returned, with what it still loses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import sympy as sp

from gpdsl.data import Data
from gpdsl.inference.driver import Task
from gpdsl.inference.exact.engine import plan_exact
from gpdsl.inference.inducing.choosing import bending, choose_more, dense_gain
from gpdsl.inference.inducing.loss import Loss, certified_loss, loss_of
from gpdsl.inference.infer import infer
from gpdsl.inference.layered.settled import no_worse_than_one, passing
from gpdsl.inference.plan.options import EXACT_ROWS, Choice, Options
from gpdsl.inference.problem import Found, Monitor, Report, Result, as_arrays
from gpdsl.inference.summed import told_of_waves, waves_of, with_waves
from gpdsl.inference.warm import Start
from gpdsl.kernels.functionals import Functionals
from gpdsl.kernels.interdomain import PATCHES
from gpdsl.language.inducing import read_features
from gpdsl.program.program import Program, at_values
from gpdsl.program.white import training
from gpdsl.symbolic.terms import weighed, with_gradients

ALONE = 2.0
"""Times as much for the last of several layers alone, after a search that has gone through all of them thousands of
times: what its points lose depth does not make up for (8,600 rows: -0.11 with 800 of them, exactly at most -0.19)."""

NEAR = 0.1
"""Nats a row that more inducing points may make up for, when depth gains no more. What few points seem to lose tells
too little: a fourth to a fourteenth of what more of them gained on 8,600 rows."""

GOING_ON, GENTLE = 200, 0.005
"""Steps of all layers from a fit of the last one alone, and their length: many inducing points bear no long ones."""

FEW, GOING_ON_ALL = 2_000, 50
"""Rows that are all seen in each of these steps, with a point for as many of them: so many steps cost as much."""

UNTOLD = "what inducing points lose cannot be told: the likelihood is opaque, and has no curvature that weighs it"


def infer_growing(task: Task) -> Found:
    """`infer`, with as many inducing points as it takes where nobody asks for a number of them.

    `Result.loss` says what they lose, `loss_bounds` what is certain of it, and a note what cannot be told. All are None
    where nothing is lost: without inducing points.
    """
    if task.program.inner:  # inducing points are at samples: the diagnosis tells what they lose
        found = infer(task)
        anew = (task.program, task.options) if task.start is None else task.start.anew
        if anew is None:
            return found
        callback = None if task.callback is None else passing(task.callback)
        begun = replace(task, program=anew[0], options=anew[1], callback=callback)
        grown = partial(_grown_to, begun, found.monitor)
        return no_worse_than_one(begun, found, grown, partial(_layers_go_on, begun, found))
    found, bounds, asked = _grown(task), None, (task.program, task.data, task.options)
    if found.choice.exact:
        return found
    try:
        bounds = certified_loss(*asked, found)
        result = _assessed(*asked, found, np.inf if bounds is None else bounds[1])
    except KeyboardInterrupt:
        return found.but(interrupted=True)
    return found._replace(result=replace(result, loss_bounds=bounds))


def _assessed(program: Program, data: Data, options: Options, found: Found, most: float) -> Result:
    """The result, with what points lose whose number was asked for, `most` at its parameters, or why none can tell."""
    result, _, choice, _ = found
    points = any(not group.per_row for group in program.groups) and not (program.fields or choice.weights)
    if result.loss is not None or result.interrupted or not points or choice.dense or choice.exact:
        return result
    if program.opaque:
        return replace(result, notes=(*result.notes, UNTOLD))
    if counts_bending(options, choice, result.message):
        return replace(result, loss=_assess(program, data, options, found, most)[0])
    return replace(result, loss=loss_of(program, data, options, found).within(most))


def _layers_go_on(task: Task, found: Found, program: Program, start: Start) -> Found:
    """The better of layers that were found, and those that go on from a fit of the last one alone."""
    steps = min(GOING_ON, GOING_ON_ALL) if task.data.rows <= FEW else GOING_ON
    chosen = replace(task.options, steps=steps, learning_rate=GENTLE)
    points, keep = max(len(z) for z in start.inducing), task.keep
    told = f"{points} inducing points of the last layer give more than depth gives with {found.choice.inducing}"
    if points <= found.choice.inducing:
        told = f"the {points} of one layer, from which all go on: its bound was higher than theirs"
    kept = None if keep is None else lambda choice, *rest: keep(_because(choice, told), *rest)
    later = infer(replace(task.after(found.monitor), program=program, options=chosen, start=start, keep=kept))
    history = later.monitor.after(found.monitor)
    if not later.result.elbo > found.result.elbo:
        return found.but(interrupted=later.result.interrupted)._replace(monitor=history)
    return later._replace(monitor=history, choice=_because(later.choice, told))


def _because(choice: Choice, told: str) -> Choice:
    """The choice with a reason for its inducing points."""
    return replace(choice, reasons={**choice.reasons, "inducing": told})


def _grown_to(task: Task, before: Monitor, one: Task, bound: float) -> Found:
    """A fit of one layer that ends where no number of inducing points would raise its bound so far."""
    return _grown(replace(one, callback=task.callback).after(before, "the last layer alone, "), bound)


def _grown(task: Task, bound: float = -np.inf) -> Found:
    """The fit without what is certain, which ends where it seems that it cannot come above a bound."""
    program, data, options = asked = task.program, task.data, task.options
    many = data.rows > EXACT_ROWS and bound == -np.inf  # layers go on from points
    chosen = with_waves(*asked, task.start) if many else options
    best = infer(replace(task, options=chosen))
    if chosen is not options:
        best = best._replace(choice=told_of_waves(best.choice, data.rows))
    if task.start is not None or best.choice.exact or not _left_open(program, options, best.choice):
        return best
    loss = None
    try:
        loss, unbent = _assess(*asked, best)
        while not (loss.small or best.result.interrupted or best.result.elbo + NEAR * data.rows < bound):
            best.monitor.explored(0, 1, "more inducing variables")
            begin = _next(task, unbent, best, loss, ALONE if bound > -np.inf else 1.0)
            if begin is None:
                break
            found = _continued(task, best, begin)
            history = found.monitor.after(best.monitor)
            if not found.result.elbo > best.result.elbo:
                best = best.but(interrupted=found.result.interrupted)._replace(monitor=history)
                break
            best = found._replace(monitor=history)
            loss, unbent = _assess(*asked, best)
    except KeyboardInterrupt:  # between two fits, or before the next has found anything
        best = best.but(interrupted=True)
    return best.but(loss=loss)


def _assess(program: Program, data: Data, options: Options, found: Found, most: float = np.inf) -> tuple[Loss, Program]:
    """What is lost: what is open at the hyperparameters, and their being bent; and the program where they are not.

    No more than what is open where they are not: there the bound is no higher than where its search has ended. Kernels
    that are the same everywhere only roughly gain on any patch, with as many points as one likes.
    """
    result, _, choice, _ = found
    if choice.exact:
        return Loss(0.0, data.rows), program
    if result.interrupted:
        return loss_of(program, data, options, found), program
    here = at_values(program, program.parameters.constrain(as_arrays(result.parameters, options.dtype)))
    gained = dense_gain(here, data, options, choice, result.elbo)
    if gained is not None:
        return Loss(gained.nats, data.rows), gained.program
    bent, loss = bending(here, data, options, choice), loss_of(program, data, options, found).within(most)
    if bent.nats == 0.0:
        return loss, here
    there = found.but(parameters=bent.program.parameters.unconstrained())
    most = max(loss.nats, loss_of(program, data, options, there).nats)
    return loss.plus(bent.nats).within(most), bent.program


def _left_open(program: Program, options: Options, choice: Choice) -> bool:
    """Whether the number of inducing points may change, and it can be told what they lose."""
    asked = options.inducing is not None or choice.dense or options.engine != "vi"
    points = any(not group.per_row for group in program.groups)
    several = options.learn_inducing or (options.devices or 1) > 1
    return points and _natural(options, choice) and not (asked or several or program.opaque or program.fields)


def counts_bending(options: Options, choice: Choice, message: str) -> bool:
    """Whether the loss of a fit that ended so counts that points have bent parameters, besides what they leave open.

    Of patches it does not: the dense inference that tells takes every pair of them of every pair of rows.
    """
    if any(each.family == PATCHES for written in choice.families for each in read_features(written) or ()):
        return False
    ended = message.startswith("converged") or bool(choice.batch and options.steps is None)
    return ended and _natural(options, choice)


def _natural(options: Options, choice: Choice) -> bool:
    """Whether q is one Gaussian at its best, by natural gradients or a formula, as in dense inference on patches."""
    summed = options.optimizer == "auto" and choice.optimizer == "lbfgs" and choice.posterior == "full"
    return options.engine == "vi" and (choice.optimizer == "natural" or summed) and options.schedule == "joint"


@dataclass(frozen=True)
class _Begin:
    """Where the next fit begins: the options it has, and its inducing points, None for exact inference."""

    program: Program
    options: Options
    inducing: list[Functionals] | None


def _next(task: Task, unbent: Program, best: Found, loss: Loss, times: float) -> _Begin | None:
    """More inducing points, or exact inference where that takes no more work; None where so many budgets end."""
    result, _, choice, _ = best
    program, data, options = task.program, task.data, task.options
    there = at_values(program, program.parameters.constrain(as_arrays(result.parameters, options.dtype)))
    dense = replace(options, inducing=0, batch=None)
    if data.telling <= EXACT_ROWS and options.batch is None and plan_exact(there, data, dense) is not None:
        return _Begin(there, dense, None)
    chosen = choose_more((unbent, there), data, options, best, loss, times)
    if chosen is None:
        return None
    written = (waves_of(chosen) or None) if choice.summed else None
    there = unbent if choice.summed and written is None else there  # waves that were too long have taken all for noise
    return _Begin(there, replace(options, posterior=choice.posterior, inducing=written), chosen)


def _continued(task: Task, best: Found, begin: _Begin) -> Found:
    """The fit that goes on from the best so far."""
    result, monitor, choice, jitter = best
    values = {**begin.program.parameters.held, **begin.program.parameters.initial}
    posterior = result.inducing, result.posterior, result.weights
    start = Start(training(task.program, dense=False), values, *posterior, jitter, False, onto=begin.inducing)
    found = infer(replace(task.after(monitor), program=begin.program, options=begin.options, start=start))
    reasons = dict(found.choice.reasons)
    if begin.inducing is not None:
        reasons = {**choice.reasons, "inducing": f"{choice.inducing} lost too much"}
    return found._replace(choice=replace(found.choice, reasons=reasons))


# beta-VI: the divergence of q from the prior counts beta times (SGPVI section 3.1; Higgins et al. 2017).


def infer_tempered(task: Task) -> Found:
    """`infer_growing`, with the divergence of q counted `options.beta` times."""
    beta, callback, keep = task.options.beta, task.callback, task.keep

    def told(report: Report) -> None:
        assert callback is not None
        callback(replace(report, elbo=beta * report.elbo))

    def kept(choice, jitter, monitor, state, ended):  # type: ignore[no-untyped-def]
        assert keep is not None
        keep(choice, jitter, _history(monitor, beta), lambda: _result(state(), beta), ended)

    hears, keeps = None if callback is None else told, None if keep is None else kept
    found = infer_growing(replace(task, program=tempered(task.program, beta), callback=hears, keep=keeps))
    return found._replace(result=_result(found.result, beta), monitor=_history(found.monitor, beta))


def tempered(program: Program, beta: float) -> Program:
    """The program whose log likelihood and log priors count 1 / beta."""
    weight, translator = 1 / sp.Rational(str(beta)), program.translator
    observations = tuple(weighed(translator, each, weight, program.expectations) for each in program.observations)
    priors = {name: replace(each, log_density=weight * each.log_density) for name, each in program.priors.items()}
    observations = with_gradients(translator, observations, program.gradients)
    return replace(program, observations=observations, priors=priors)


def _result(result: Result, beta: float) -> Result:
    """What is in nats of the tempered bound, in those of beta-VI's."""
    loss, bounds = result.loss, result.loss_bounds
    return replace(
        result,
        elbo=beta * result.elbo,
        elbo_se=beta * result.elbo_se,
        loss=None if loss is None else replace(loss, nats=beta * loss.nats),
        loss_bounds=None if bounds is None else (beta * bounds[0], beta * bounds[1]),
    )


def _history(monitor: Monitor, beta: float) -> Monitor:
    return replace(monitor, history=[(step, beta * value, seconds) for step, value, seconds in monitor.history])
