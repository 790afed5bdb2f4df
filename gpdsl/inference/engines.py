"""The engines there are, in the order in which they are asked whether a fit is theirs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gpdsl.errors import GpdslError, quoted
from gpdsl.inference.ascent.adam import adam_search
from gpdsl.inference.ascent.alternating import AlternatingSearch
from gpdsl.inference.ascent.joint import LbfgsSearch
from gpdsl.inference.checked_search import CheckedSearch
from gpdsl.inference.driver import Engine, Search, nothing_against, searching
from gpdsl.inference.exact.engine import ExactSearch
from gpdsl.inference.expectation_propagation.engine import fit_ep
from gpdsl.inference.natural.minibatch import MinibatchSearch
from gpdsl.inference.natural.profiled import ProfiledSearch
from gpdsl.inference.opaque.budget import is_simulated
from gpdsl.inference.opaque.simulated import Rounds
from gpdsl.inference.opaque.stochastic import StochasticSearch
from gpdsl.inference.plan.options import Choice, Options
from gpdsl.inference.problem import Problem
from gpdsl.inference.quadruply_stochastic.engine import QsgpSearch
from gpdsl.language.options import name_engine
from gpdsl.language.vocabulary import STATEMENTS
from gpdsl.program.program import Program

ENGINES = [
    Engine("ep", lambda program, choice, options: options.engine == "ep", fit_ep, refined=False),
    searching("qsgp", lambda program, choice, options: options.engine == "qsgp", QsgpSearch),
    searching("exact", lambda program, choice, options: bool(choice.exact), ExactSearch, refined=False),
    searching("alternating", lambda program, choice, options: options.schedule == "alternating", AlternatingSearch),
    searching("lbfgs", lambda program, choice, options: choice.optimizer == "lbfgs", LbfgsSearch),
    searching("adam", lambda program, choice, options: choice.optimizer == "adam", adam_search),
    searching("adadelta", lambda program, choice, options: choice.optimizer == "adadelta", adam_search),
    searching("minibatch natural", lambda program, choice, options: bool(choice.batch), MinibatchSearch),
    searching("natural", lambda program, choice, options: not program.opaque, ProfiledSearch),
    searching("simulated natural", lambda program, choice, options: is_simulated(program, options, choice), Rounds),
    searching("stochastic natural", lambda program, choice, options: True, StochasticSearch),
]


_registered: dict[str, Engine] = {}


def register_engine(
    name: str,
    begin: Callable[[Problem], Search],
    *,
    meaning: str = "registered by the user",
    against: Callable[[Program], str | None] = nothing_against,
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
    _registered[name] = searching(
        name,
        lambda program, choice, options: options.engine == name,
        partial(CheckedSearch, name, begin),
        refined=False,
        against=against,
    )


def registered(name: str) -> Engine | None:
    """The engine of this name that a user has registered."""
    return _registered.get(name)


def engine_for(program: Program, choice: Choice, options: Options) -> Engine:
    """The first engine that the decisions ask for."""
    return next(engine for engine in [*_registered.values(), *ENGINES] if engine.asked(program, choice, options))
