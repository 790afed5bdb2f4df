"""The engines there are, and which of them plans a fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from gpdsl.data import Data
from gpdsl.errors import GpdslError, quoted
from gpdsl.inference.ascent.adam import adam_search
from gpdsl.inference.ascent.joint import AlternatingSearch, LbfgsSearch
from gpdsl.inference.bound import Layout
from gpdsl.inference.by_level import plan_by_level
from gpdsl.inference.corrected.engine import plan_corrected
from gpdsl.inference.driver import CheckedSearch, Engine, Plan, Planner, Search, searching
from gpdsl.inference.exact.engine import plan_exact
from gpdsl.inference.exact.gridded import Gridded
from gpdsl.inference.exact.predictive import Exact
from gpdsl.inference.expectation_propagation.engine import fit_ep
from gpdsl.inference.fields.plan import OverFields
from gpdsl.inference.inducing.start import start_inducing
from gpdsl.inference.layered.planning import plan_layered
from gpdsl.inference.layered.predictive import Layered
from gpdsl.inference.mcmc.engine import plan_mcmc
from gpdsl.inference.natural.minibatch import MinibatchSearch
from gpdsl.inference.natural.profiled import ProfiledSearch, SitesProfile
from gpdsl.inference.opaque.budget import is_simulated
from gpdsl.inference.opaque.simulated import Rounds
from gpdsl.inference.opaque.stochastic import StochasticSearch
from gpdsl.inference.over_parameters.engine import ParametersProfile
from gpdsl.inference.plan.options import Choice, Options, decide
from gpdsl.inference.plan.planning import decided
from gpdsl.inference.plan.refusals import of_parameters, refuse_together
from gpdsl.inference.posteriors.family import Full
from gpdsl.inference.posteriors.posterior import Posterior
from gpdsl.inference.problem import Problem
from gpdsl.inference.quadruply_stochastic.engine import plan_qsgp
from gpdsl.inference.quadruply_stochastic.posterior import OverWeights
from gpdsl.inference.summed import plan_summed
from gpdsl.inference.warm import Start
from gpdsl.language.options import name_engine
from gpdsl.language.vocabulary import STATEMENTS
from gpdsl.program.program import Program
from gpdsl.program.white import training

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


PLANNERS: list[Planner] = [plan_layered, plan_qsgp, plan_exact, plan_by_level, plan_summed, _plan_with_q]
"""Asked one after the other, after the engines that users have registered."""


POSTERIORS: list[type[Posterior]] = [Exact, Gridded, OverWeights, OverFields, Layered, Posterior]
"""What holds the posterior of a fit: the first that suits its choices."""


def plan(program: Program, data: Data, options: Options, start: Start | None = None) -> Plan:
    """Everything that can be decided before the first step. Raises GpdslError for what cannot work."""
    if options.beta != 1 or options.parameters == "gaussian":
        refuse_together(options)
    options = options if program.groups else of_parameters(program, options)
    own = _registered.get(options.engine)
    planners = PLANNERS if own is None or program.inner else [partial(_plan_registered, *own)]
    if options.engine == "mcmc" and not program.inner:
        planners = [partial(plan_mcmc, PLANNERS)]
    elif options.posterior == "corrected":
        planners = [partial(plan_corrected, PLANNERS)]
    found = next(found for each in planners if (found := each(program, data, options, start)) is not None)
    if found.engine.profiled is None and options.explores:
        what = "hyperparameters = integrated" if options.parameters == "point" else "parameters = gaussian"
        raise GpdslError(
            f"{what} explores the evidence of exact inference, or the bound of natural gradients "
            f"on all rows; here the plan is {found.engine.name}: leave engine, posterior, batch, optimizer "
            "and schedule out"
        )
    return found


Against = Callable[[Program], str | None]


_registered: dict[str, tuple[Engine, Against]] = {}
"""Engines, and why they cannot fit a program, if so."""


def _nothing_against(program: Program) -> None:
    """No reason why an engine should not fit a program."""


def register_engine(
    name: str,
    begin: Callable[[Problem], Search],
    *,
    meaning: str = "registered by the user",
    against: Against = _nothing_against,
) -> None:
    """Make an engine the answer to `infer NAME` and `engine = "NAME"`, for this process; a second one replaces it.

    `begin` takes a problem to a search (`Search`); `LogJoint` has the densities that it needs, and makes its result.
    All values of the latents at the rows are its own, with one Gaussian across them. `against` says why it cannot fit a
    program, or returns None; opaque functions and fields are none of its. Raises GpdslError for a name that an
    engine of gpdsl or a statement has, and for what is no function.
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
