"""The bound over the sites of rows in sets, maximised: natural gradients inside, L-BFGS over the parameters outside."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from gpdsl.data import Data
from gpdsl.inference.ascent.lbfgs import Outcome, Remembered, looked_at, maximise
from gpdsl.inference.bound import Layout
from gpdsl.inference.by_level.sites import Learnt, Levels, RowSites, Sets, sets_of
from gpdsl.inference.driver import Plan, searching
from gpdsl.inference.exact.levels import SMALL, falls_apart
from gpdsl.inference.exact.posterior import Regression
from gpdsl.inference.exact.whitening import functionals
from gpdsl.inference.plan.options import Options, decide
from gpdsl.inference.posteriors.families import parse_family
from gpdsl.inference.problem import Problem, Result, as_numpy
from gpdsl.inference.warm import Start
from gpdsl.program.joint import basis_columns
from gpdsl.program.program import Program, make_rows
from gpdsl.program.white import white_beside
from gpdsl.symbolic.concavity import log_concavity

ROWS, WIDEST, PARTS = 1000, SMALL, 24
"""Rows from which this is the default, values of the largest set up to which it is, and parts that are not alike."""

STEPS, AT_REST = 100, 1e-7
"""Natural-gradient steps at one place of the parameters at most, and the gain in nats that ends them."""


def plan_by_level(program: Program, data: Data, options: Options, _: Start | None = None) -> Plan | None:
    """The choice of sites in sets; None where something else is asked for or due."""
    plain = options.engine == "vi" and options.schedule == "joint" and options.optimizer == "auto"
    asked = not plain or options.inducing is not None or options.batch or options.learn_inducing
    asked = asked or options.expectations == "sampled" or options.posterior not in {"auto", "full", "coupled"}
    asked = asked or options.hyperparameters == "integrated"
    if asked or data.rows < ROWS or (options.devices or 1) > 1 or not _suited(program):
        return None
    rows, mixed = make_rows(program, data), program.mixing and options.posterior != "full"
    found = [(coupled, sets_of(program, rows, coupled=coupled)) for coupled in ((True, False) if mixed else (False,))]
    afforded = [each for each in found if _afforded(each[1])]
    if not afforded or (options.posterior == "coupled" and not afforded[0][0]):
        return None
    posterior = "coupled" if afforded[0][0] else "full"
    decided = replace(options, inducing=0, batch=0, posterior=posterior, optimizer="natural")
    choice = decide(decided, data.rows, opaque=False, sampled=False)
    reasons = {
        "posterior": "rows that share no level of a label are independent: each set of them is a small matrix",
        "optimizer": "natural gradients for q, L-BFGS for the rest",
    }
    plan = Layout(parse_family(posterior, True), True)
    sizes = tuple(size for own in afforded[0][1] for size in own.part.sizes)
    return Plan(replace(choice, reasons=reasons, sets=sizes), plan, functionals(program, rows), BY_LEVEL)


def _suited(program: Program) -> bool:
    """Whether all latents are independent at different levels, and every site has a positive precision."""
    if program.fields or program.opaque or program.sampled or not program.groups:
        return False
    apart = all(falls_apart(group) and not (group.per_row or white_beside(group)) for group in program.groups)
    return apart and log_concavity(program.translator, program.observations).holds


def _afforded(sets: list[Sets]) -> bool:
    return len(sets) <= PARTS and all(own.part.width <= WIDEST for own in sets)


class ByLevelSearch:
    """The parameters of the greatest bound."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        coupled = problem.program.coupled
        self.levels = Levels(problem.program, tuple(sets_of(problem.program, problem.rows, coupled=coupled)))
        size = len(basis_columns(problem.program))
        dtype = jnp.dtype(problem.options.dtype)
        self.sites = RowSites(jnp.zeros((problem.count, size), dtype), jnp.zeros((problem.count, size, size), dtype))
        begin = problem.parameters, problem.rows, self.sites
        self.target = problem.compiled(self.levels.target, *begin)
        self.slope = problem.compiled(jax.grad(self.levels.bound), *begin)
        self.bound = Remembered(self._best, problem.parameters)

    def _best(self, learnt: Learnt) -> tuple[float, Learnt]:
        """The bound maximised over the sites, which begin where they ended before, and its gradient there."""
        rows, sites, step = self.problem.rows, self.sites, 1.0
        value, target = self.target(learnt, rows, sites)
        if not np.isfinite(value):
            sites = jax.tree.map(jnp.zeros_like, sites)
            value, target = self.target(learnt, rows, sites)
        for _ in range(STEPS):
            tried = jax.tree.map(lambda old, new, step=step: old + step * (new - old), sites, target)
            found, following = self.target(learnt, rows, tried)
            gain = float(found - value)
            if np.isfinite(gain) and gain > -AT_REST:
                sites, value, target = tried, found, following
                if step == 1.0 and gain < AT_REST:
                    break
                step = min(1.0, 2.0 * step)
            elif step < 1e-6:
                break
            else:
                step *= 0.5
        if np.isfinite(value):
            self.sites = sites
        return float(value), self.slope(learnt, rows, sites)

    def run(self) -> str:
        """L-BFGS."""
        problem, report = self.problem, self.problem.monitor.report
        if not problem.parameters:  # nothing to learn
            return looked_at(self.bound, problem.parameters, report).message
        steps, tolerance, size = problem.choice.steps, problem.options.tolerance, problem.observed
        found = maximise(self.bound, problem.parameters, steps=steps, tolerance=tolerance, report=report, size=size)
        return found.message

    def finish(self) -> Result:
        """The best parameters so far, with the sites there."""
        best: Outcome = self.bound.best
        value, _ = self._best(best.point)
        problem, levels = self.problem, self.levels
        made = problem.compiled(levels.whitened, best.point, problem.rows, self.sites)
        values = as_numpy(made(best.point, problem.rows, self.sites))
        held = Regression(tuple(own.part for own in levels.sets), tuple(values))
        read = as_numpy(functionals(problem.program, problem.rows))
        return Result(as_numpy(best.point), read, [], np.ones(1), value, 0.0, regression=held)

    state = finish


BY_LEVEL = searching("by level", ByLevelSearch, refined=False)
