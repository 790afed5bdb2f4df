"""`engine = mcmc`: the search of exact or variational inference, and chains that begin where it has ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.data import Data
from gpdsl.errors import GpdslError
from gpdsl.inference.blocks import machine_for
from gpdsl.inference.driver import Plan, Planner
from gpdsl.inference.exact.engine import ExactProfile
from gpdsl.inference.exact.evidence import log_evidence
from gpdsl.inference.exact.system import System
from gpdsl.inference.integrated import Integrated
from gpdsl.inference.log_joint import LogJoint, jumping, log_volume
from gpdsl.inference.mcmc.chains import Chains, Differentiable, Position, agreement, known_at, log_prior, nuts, told
from gpdsl.inference.mcmc.slices import WIDEST, Called, Nowhere, spread, told_by
from gpdsl.inference.mcmc.tempered import tempered, warming
from gpdsl.inference.opaque.budget import Spent
from gpdsl.inference.plan.options import Options
from gpdsl.inference.problem import Monitor, Problem, Result, as_arrays
from gpdsl.inference.sides import SEVERAL
from gpdsl.inference.symmetries import images_of_all, symmetry_of
from gpdsl.inference.warm import Start
from gpdsl.program.program import Program

# What chains draw from: the posterior of parameters alone where the latents integrate out, else of both.
#
# With normal observations the latents have a closed form given the parameters, which are all that a chain moves in.
# Otherwise it moves in the learnt parameters on the real line and in the whitened values w ~ N(0, I) of the latents.


@dataclass(frozen=True, eq=False)
class Evidence:
    """p(parameters | y), with the latents integrated out: exact inference at every place."""

    problem: Problem
    system: System

    def place(self, position: Position, data: Any) -> tuple[Position, Float[Array, ""]]:
        """The parameters themselves."""
        return position, jnp.zeros(())

    def log_likelihood(self, position: Position, data: Any) -> Float[Array, ""]:
        """The log evidence."""
        program, learnt = self.system.program, position["learnt"]
        return log_evidence(self.system, learnt, data) - program.log_prior(program.parameters.constrain(learnt))

    def log_prior(self, position: Position, data: Any) -> Float[Array, ""]:
        """Of the parameters on the real line."""
        program, learnt = self.system.program, position["learnt"]
        return program.log_prior(program.parameters.constrain(learnt)) + log_volume(program, learnt)


class Collapsed:
    """Chains in the parameters alone."""

    def __init__(self, problem: Problem, result: Result) -> None:
        self.problem, self.profile, self.data = problem, ExactProfile(problem, result), problem.rows
        self.made = Evidence, self.profile.system
        self.start: Position = {"learnt": as_arrays(result.parameters, problem.options.dtype)}
        self.without_prior = without_prior(problem)

    def sample(self, *asked: Any) -> Chains:
        """By the No-U-Turn sampler, each draw in one of the modes that signs and exchanges make of one."""
        found = no_u_turn_at(self, *asked)
        symmetry = symmetry_of(self.problem.program, self.profile, self.start["learnt"])
        return found.in_all(symmetry.numbers, self.problem.options.seed)

    def at(self, position: Position) -> Result:
        """The exact posterior."""
        return self.profile.at(position["learnt"])


@dataclass(frozen=True, eq=False)
class Whole:
    """p(parameters, w | y), the whitened values of all latents at the rows included."""

    problem: Problem
    nothing: None = None

    def place(self, position: Position, data: Any) -> tuple[Position, Float[Array, ""]]:
        """w, of v or as it is."""
        known, sites = data
        if sites is None:
            return position, jnp.zeros(())
        white, wider = spread(self.problem, position["learnt"], position["white"], known, sites)
        return {**position, "white": white}, wider

    def log_likelihood(self, position: Position, data: Any) -> Float[Array, ""]:
        """Of all observations given w."""
        return LogJoint(self.problem).log_likelihood(position["learnt"], position["white"], data[0])

    def log_prior(self, position: Position, data: Any) -> Float[Array, ""]:
        """Of the parameters on the real line and of w."""
        return log_prior(LogJoint(self.problem), position["learnt"], position["white"])


class Joint:
    """Chains in parameters and latents: in v as `slices` has it, but in w itself where they go on to the prior, or
    where rows mix latents: of a product, what sites say at one place is wrong at another."""

    def __init__(self, problem: Problem, result: Result) -> None:
        self.problem, self.joint = problem, LogJoint(problem)
        sites = told_by(problem, result)
        if problem.options.temperatures or (sites is not None and sites.coupled):
            sites = None
        white = np.concatenate([np.ravel(q.mean[0]) for q in result.posterior])
        start = {"learnt": result.parameters, "white": white if sites is None else 0 * white}
        self.start: Position = as_arrays(start, problem.options.dtype)
        self.made = Whole, None
        self.data = self.joint.data, sites
        self.without_prior = without_prior(problem)

    def sample(self, *asked: Any) -> Chains:
        """By the No-U-Turn sampler, each draw in one of the modes that signs and exchanges make of one."""
        found = no_u_turn_at(self, *asked)
        return found.in_all(images_of_all(self.joint, self.start["learnt"]), self.problem.options.seed)

    def at(self, position: Position) -> Result:
        """Latents that are known at the rows."""
        return known_at(self.joint, position)


def no_u_turn_at(target: Differentiable, *asked: Any) -> Chains:
    """Chains of the No-U-Turn sampler, at one temperature or at several that exchange their places."""
    temperatures = target.problem.options.temperatures
    return nuts(target, *asked) if temperatures is None else tempered(target, temperatures, *asked)


def without_prior(problem: Problem) -> tuple[str, ...]:
    """Learnt parameters that are flat on the real line."""
    return tuple(name for name in problem.parameters if name not in problem.program.priors)


CHAINS, WARM_UP, DRAWS = 4, 500, 500
"""By default, of each chain the last two."""

KEPT = 400
"""Draws of latents, evenly spaced and as many of each chain, that predictions average over; parameters keep all."""

LARGEST = 3000
"""Rows of a posterior that chains are to move in: each step factorises a matrix of all of them."""

FOUND = "no draw was kept, and these are the values that the search found"

NONE_KEPT = f"interrupted before the chains had ended: {FOUND}"

NONE_PAID = f"the budget of evaluations ended before the chains had warmed up: {FOUND}; allow more evaluations"

A_DRAW, LEAST_A_DRAW = 8, 2
"""Densities that a draw by slices takes, about and at least."""

NO_BEGINNING = (
    "the functions fail, or the density is 0, at all places next to these values where chains were to begin: "
    f"{FOUND}; compare policy = penalise with a function that has values everywhere, or init nearer to where it has"
)

ONE_OF_SEVERAL = (
    f"the search found {SEVERAL}, and chains may stay about the one where they begin, of which R-hat tells nothing: "
    "set temperatures = 10"
)

WITH_SITES = {"natural", "simulated natural", "stochastic natural"}
"""Searches whose result has a Gaussian site for each row."""

OF_SEARCH = 4
"""Part of a budget of evaluations that the search may take."""


def plan_mcmc(others: Sequence[Planner], program: Program, data: Data, options: Options, start: Start | None) -> Plan:
    """The plan, by other engines, of the search that the chains begin with."""
    reason = _against(program, data, options)
    if reason:
        raise GpdslError(f"engine = mcmc does not cover this fit: {reason}")
    _afford(program, options, data.rows)
    plain = replace(
        options,
        engine="vi",
        inducing=options.inducing or 0,
        batch=0,
        hyperparameters="point",
        evaluations=of_search(options),
    )
    planned = next(found for each in others if (found := each(program, data, plain, start)) is not None)
    if by_values(program):
        values = sum(group.size * len(z) for group, z in zip(program.groups, planned.inducing, strict=True))
        if values > WIDEST:
            raise GpdslError(
                f"engine = mcmc does not cover this fit: {values} values of the latents, of which a matrix is taken: "
                f"take fewer rows, {WIDEST} values at most"
            )
        if planned.engine.name not in WITH_SITES:
            raise GpdslError(f"engine = mcmc begins with sites of rows here, which {planned.engine.name} has not")
        return replace(planned, engine=replace(planned.engine, target=Called))
    if planned.engine.profiled is None:
        raise GpdslError(f"engine = mcmc begins with natural gradients, and not with {planned.engine.name}")
    return replace(planned, engine=replace(planned.engine, target=Collapsed if planned.choice.exact else Joint))


def of_search(options: Options) -> int | None:
    """The evaluations of a budget that a search may spend: chains after it have the rest."""
    budget = options.evaluations
    return budget if budget is None or options.engine != "mcmc" else -(-budget // OF_SEARCH)


def _against(program: Program, data: Data, options: Options) -> str:
    """Why chains cannot be had; empty where they can."""
    if program.fields:
        return "chains move in latents row by row"
    if options.batch:
        return "chains move in the latents at all rows: leave batch out"
    if data.rows > LARGEST and not options.inducing:
        return (
            f"{data.rows} rows, where each step of a chain factorises a matrix of all: take {LARGEST} of them, or "
            "inducing points, as inducing = 100"
        )
    if options.inducing and (program.sampled or by_values(program)):
        return "what inducing points leave open of an observation would be sampled in every step: leave inducing out"
    if options.temperatures and by_values(program):
        return "temperatures belong to the No-U-Turn sampler, and chains move by values here: leave temperatures out"
    if options.posterior != "auto" or options.optimizer != "auto" or options.schedule != "joint":
        return "it has no family of q and no optimiser of its own: leave posterior, optimizer and schedule out"
    return ""


def _afford(program: Program, options: Options, rows: int) -> None:
    """Raise GpdslError for a budget of evaluations that cannot pay for the draws that tune the chains."""
    count, warm_up, draws = _asked(options)
    each = rows * len(program.uses()) * count
    least, usual = warm_up * LEAST_A_DRAW * each, (warm_up + draws) * A_DRAW * each
    if options.evaluations is not None and options.evaluations * (OF_SEARCH - 1) < OF_SEARCH * least:
        raise GpdslError(
            f"evaluations = {options.evaluations}: {count} chains take {least:,} at least before their first "
            f"draw, beside a quarter for the search, and about {usual:,} in all; allow more, or ask for fewer chains, "
            "a shorter warm_up or fewer rows"
        )


def by_values(program: Program) -> bool:
    """Whether the density has no derivatives that tell."""
    return program.opaque or bool(jumping(program))


def explain_chains(program: Program, options: Options, rows: int) -> str:
    """What follows the search, in words."""
    count, warm_up, draws = _asked(options)
    how = "No-U-Turn sampler"
    if by_values(program):
        how = f"elliptical slices, about {A_DRAW} densities a draw"
    if options.temperatures:
        warm_up, how = warming(warm_up), f"{how} at {options.temperatures} temperatures, which exchange their places"
    lines = ["", "", "chains", f"  {count} of {draws} draws after {warm_up} that tune them: {how}"]
    if each := rows * len(program.uses()):
        every = count * (warm_up + draws) * A_DRAW * each
        bound = "" if options.evaluations is None else f"; never more than {options.evaluations:,} with the search"
        lines.append(f"    evaluations: {each:,} a density, about {every:,} in all{bound}")
    return "\n".join(lines)


def _asked(options: Options) -> tuple[int, int, int]:
    """Chains, draws that tune each, and draws of each."""
    return options.chains or CHAINS, options.warm_up or WARM_UP, options.draws or DRAWS


def sampled(result: Result, options: Options, rows: int, monitor: Monitor) -> Result:
    """The result of the search with the draws of chains; Ctrl-C leaves it as it is where there are none yet."""
    if result.interrupted or result.target is None or not (result.parameters or result.posterior):
        return result
    count, warm_up, draws = _asked(options)
    try:
        with machine_for(rows):
            target = result.target()
            chains = target.sample(count, warm_up, draws, options.seed, partial(monitor.explored, stage="sampling"))
            made = chains.shape[1]
            kept = np.unique(np.linspace(0, made - 1, max(KEPT // count, 1)).astype(int))
            results = tuple(target.at(chains.at(chain, int(draw))) for chain in range(count) for draw in kept)
    except KeyboardInterrupt:
        return replace(result, interrupted=True, notes=(*result.notes, NONE_KEPT))
    except Nowhere:
        return replace(result, notes=(*result.notes, NO_BEGINNING))
    except Spent:
        return replace(result, notes=(*result.notes, NONE_PAID))
    found = agreement({str(n): leaf for n, leaf in enumerate(jax.tree.leaves(chains.positions))})
    about, doubts = told(chains, found)
    if chains.interrupted:
        doubts += (f"interrupted after {made} of {draws} draws of each chain",)
        result = replace(result, interrupted=True)
    elif made < draws:
        doubts += (f"the budget of evaluations ended after {made} of {draws} draws of each chain",)
    every = {name: np.asarray(values) for name, values in chains.positions["learnt"].items()}
    weights = np.full(len(results), 1.0 / len(results))
    said = chains.statistics
    integrated = Integrated(
        weights, results, float("nan"), found.bulk, 0, about=about, chains=every, statistics=said, kept=kept
    )
    return replace(result, integrated=integrated, notes=(*_of_chains(result.notes, options), *doubts))


def _of_chains(notes: Sequence[str], options: Options) -> tuple[str, ...]:
    """The notes of the search: where it has found several maxima, it is chains that have to go to all of them."""
    apart = [note for note in notes if SEVERAL in note]
    others = tuple(note for note in notes if note not in apart)
    return others if not apart or options.temperatures else (*others, ONE_OF_SEVERAL)
