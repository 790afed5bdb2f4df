"""`engine = mcmc`: the search of exact or variational inference, and chains that begin where it has ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import jax
import numpy as np

from gpdsl.data import Data
from gpdsl.errors import GpdslError
from gpdsl.inference.driver import Plan, Planner
from gpdsl.inference.integrated.profile import Integrated
from gpdsl.inference.machine import machine_for
from gpdsl.inference.mcmc.chains import Agreement, Chains, agreement, sample
from gpdsl.inference.mcmc.targets import Collapsed, Joint
from gpdsl.inference.monitor import Monitor
from gpdsl.inference.plan.options import Options
from gpdsl.inference.problem import Result
from gpdsl.inference.warm import Start
from gpdsl.program.program import Program

CHAINS, WARM_UP, DRAWS = 4, 500, 500
"""By default, of each chain the last two."""

KEPT = 400
"""Draws of latents, evenly spaced over all chains, that predictions average over; parameters keep all."""

LARGEST = 3000
"""Rows of a posterior that chains are to move in: each step factorises a matrix of all of them."""

NONE_KEPT = "interrupted before the chains had ended: no draw was kept, and these are the values that the search found"

AGREED, ENOUGH = 1.01, 400
"""R-hat up to which chains agree, and effective draws from which quantiles are steady (Vehtari et al. 2021)."""


def plan_mcmc(others: Sequence[Planner], program: Program, data: Data, options: Options, start: Start | None) -> Plan:
    """The plan, by other engines, of the search that the chains begin with."""
    reason = _against(program, data, options)
    if reason:
        raise GpdslError(f"engine = mcmc does not cover this fit: {reason}")
    plain = replace(options, engine="vi", inducing=options.inducing or 0, batch=0, hyperparameters="point")
    planned = next(found for each in others if (found := each(program, data, plain, start)) is not None)
    if planned.engine.profiled is None:
        raise GpdslError(f"engine = mcmc begins with natural gradients, and not with {planned.engine.name}")
    return replace(planned, engine=replace(planned.engine, target=Collapsed if planned.choice.exact else Joint))


def _against(program: Program, data: Data, options: Options) -> str:
    """Why chains cannot be had; empty where they can."""
    if program.opaque or program.fields:
        return "it differentiates densities, of latents row by row"
    if options.batch:
        return "chains move in the latents at all rows: leave batch out"
    if data.rows > LARGEST and not options.inducing:
        return (
            f"{data.rows} rows, where each step of a chain factorises a matrix of all: take {LARGEST} of them, or "
            "inducing points, as inducing = 100"
        )
    if options.inducing and program.sampled:
        return "what inducing points leave open of an observation would be sampled in every step: leave inducing out"
    if options.posterior != "auto" or options.optimizer != "auto" or options.schedule != "joint":
        return "it has no family of q and no optimiser of its own: leave posterior, optimizer and schedule out"
    return ""


def sampled(result: Result, options: Options, rows: int, monitor: Monitor) -> Result:
    """The result of the search with the draws of chains; Ctrl-C leaves it as it is."""
    if result.interrupted or result.target is None or not (result.parameters or result.posterior):
        return result
    count, warm_up, draws = options.chains or CHAINS, options.warm_up or WARM_UP, options.draws or DRAWS
    try:
        with machine_for(rows):
            target = result.target()
            chains = sample(target, count, warm_up, draws, options.seed, partial(monitor.explored, stage="sampling"))
            kept = np.unique(np.linspace(0, count * draws - 1, min(KEPT, count * draws)).astype(int))
            results = tuple(target.at(chains.at(*divmod(int(number), draws))) for number in kept)
    except KeyboardInterrupt:
        return replace(result, interrupted=True, notes=(*result.notes, NONE_KEPT))
    found = agreement({str(n): leaf for n, leaf in enumerate(jax.tree.leaves(chains.positions))})
    about, doubts = told(chains, found)
    every = {name: np.asarray(values) for name, values in chains.positions["learnt"].items()}
    weights = np.full(len(results), 1.0 / len(results))
    integrated = Integrated(weights, results, float("nan"), found.bulk, 0, about=about, chains=every)
    return replace(result, integrated=integrated, notes=(*result.notes, *doubts))


def told(chains: Chains, found: Agreement) -> tuple[str, tuple[str, ...]]:
    """What the chains did in a line, and what is doubtful about them, with a remedy."""
    count, draws = chains.shape
    worst = (
        f"R-hat at most {found.r_hat:.3f}, effective draws at least {found.bulk:.0f} (bulk), {found.tail:.0f} (tail)"
    )
    about = f"{count} chains of {draws} draws: {worst}, {chains.divergences} divergences"
    doubts = []
    if found.r_hat > AGREED and count > 1:
        doubts.append(f"the chains do not agree (R-hat {found.r_hat:.3f}, trusted up to {AGREED}): ask for more draws")
    if min(found.bulk, found.tail) < ENOUGH:
        few = min(found.bulk, found.tail)
        doubts.append(f"{few:.0f} effective draws are few for quantiles, which need {ENOUGH}: ask for more draws")
    if chains.divergences:
        doubts.append(
            f"{chains.divergences} draws diverged, so that a part of the posterior may be missing: priors that keep "
            "scales away from 0 help, or a longer warm_up"
        )
    return about, tuple(doubts)
