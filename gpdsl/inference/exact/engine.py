"""Maximising the exact log evidence: L-BFGS over the learnt parameters, and the posterior that follows from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from jaxtyping import Array

from gpdsl.data import Data
from gpdsl.inference.ascent.lbfgs import Outcome, Remembered, looked_at, maximise
from gpdsl.inference.ascent.saddles import maximise_off_saddles
from gpdsl.inference.bound import Layout
from gpdsl.inference.driver import Plan, searching
from gpdsl.inference.exact.evidence import Evidence, Learnt, evidence_of
from gpdsl.inference.exact.levels import falls_apart
from gpdsl.inference.exact.posterior import Regression
from gpdsl.inference.exact.some_rows import SAMPLED_FROM, rough_search, some_rows, starts
from gpdsl.inference.exact.system import System, make_system
from gpdsl.inference.exact.whitening import Whitened, functionals, largest_variance, whitened
from gpdsl.inference.plan.options import Options, decide
from gpdsl.inference.posteriors.families import parse_family
from gpdsl.inference.problem import Problem, Result, as_numpy
from gpdsl.inference.resolution import rounding_note
from gpdsl.inference.warm import Start
from gpdsl.program.program import Program, make_rows
from gpdsl.program.rows import Rows

EXACT_VALUES = 4000
"""Up to so many observed values the default is exact inference, where that is possible: an evaluation of the evidence
and its gradient takes a second. Parts that share no latent count as one matrix that takes as long as all of theirs."""

EXACT_PARTS = 24
"""Parts that are not alike up to which it is the default: each has its place in the compiled programs."""

EXACT_NUMBERS = 4 * EXACT_VALUES**2
"""Numbers in all matrices together, and in the loadings of all values on all latents, up to which it is: 512 MB."""


def plan_exact(program: Program, data: Data, options: Options, _: Start | None = None) -> Plan | None:
    """The choice of exact inference and what the rows read of each group; None where something else is asked or due."""
    many = data.rows > EXACT_VALUES and not all(falls_apart(group) for group in program.groups)
    if _asked_otherwise(program, options) or (options.inducing is None and many):
        return None
    rows = make_rows(program, data)
    system = make_system(program, rows)
    if system is None or not system.parts or (options.inducing is None and not _afforded(system)):
        return None
    read = functionals(program, rows)
    plain = replace(options, inducing=0, batch=0, posterior="full", optimizer="lbfgs")
    choice = decide(plain, data.rows, opaque=False, sampled=False)
    reason = "observations are normal about linear functions of the latents, so that the evidence has a closed form"
    if program.mixing:
        reason += f"; {', '.join(f'`{name}`' for name in program.mixing)} mixes latents, which makes them correlated"
    reasons = {"posterior": reason, "optimizer": "the evidence itself, without q"}
    posterior = "coupled" if program.mixing else "full"
    choice = replace(choice, posterior=posterior, reasons=reasons, exact=system.sizes)
    return Plan(choice, Layout(parse_family(posterior, True), True), read, EXACT)


def _afforded(system: System) -> bool:
    """Whether programs and memory are small, and it takes no longer than one matrix of the largest size."""
    sizes = np.asarray(system.sizes, float)
    loadings = float(np.sum(sizes)) * system.program.latents
    numbers = max(float(np.sum(sizes**2)), loadings)
    return len(system.parts) <= EXACT_PARTS and numbers <= EXACT_NUMBERS and np.sum(sizes**3) <= EXACT_VALUES**3


def _asked_otherwise(program: Program, options: Options) -> bool:
    """Whether the options ask for something that exact inference is not."""
    suited = {"auto", "coupled"} if program.mixing else {"auto", "full", "coupled"}
    asked = options.inducing or options.batch or options.learn_inducing or (options.devices or 1) > 1
    plain = options.engine == "vi" and options.schedule == "joint" and options.optimizer == "auto"
    plain = plain and options.beta == 1  # with beta the best q is not the posterior
    return bool(asked) or not plain or options.expectations == "sampled" or options.posterior not in suited


class ExactSearch:
    """The parameters of greatest evidence (times their priors), and the exact posterior there."""

    def __init__(self, problem: Problem) -> None:
        system = make_system(problem.program, problem.rows)
        assert system is not None  # the plan has seen to it
        self.problem, self.system = problem, system
        self.evidence = Remembered(evidence_of(problem, system), problem.parameters)
        self.on_some: Remembered | None = None
        """The evidence of some rows, where the search began on them."""

    def run(self) -> str:
        """L-BFGS; on some of the rows first, where they are many."""
        return self._search().message

    def state(self) -> Result:
        """The best parameters so far, those of some rows before those of all."""
        best = self.evidence.best
        if self.on_some is not None and not np.isfinite(best.value) and np.isfinite(self.on_some.best.value):
            self.evidence(self.on_some.best.point)
        return _finished(self.problem, self.system, self.evidence.best)

    finish = state

    def _search(self) -> Outcome:
        problem, evidence, start = self.problem, self.evidence, self.problem.parameters
        if not start:  # nothing to learn
            return looked_at(evidence, start, problem.monitor.report)
        if problem.continued:
            return _maximised(problem, evidence, start)
        if problem.count < SAMPLED_FROM:
            begin = starts(problem, evidence)
            found = rough_search(problem, evidence, begin if len(begin) > 1 else ())
            return _maximised(problem, evidence, found.point)
        some = some_rows(problem)
        self.on_some = None if some is None else some.evidence
        there = None if some is None else some.searched()
        if there is not None and evidence(there.outcome.point)[0] >= evidence(start)[0]:
            return _maximised(problem, there.conditioned(evidence), there.origin)
        return _maximised(problem, evidence, start)


class ExactProfile:
    """The evidence at any parameters, and the exact posterior there."""

    def __init__(self, problem: Problem, _: Result) -> None:
        system = make_system(problem.program, problem.rows)
        assert system is not None  # the plan has seen to it
        self.problem, self.system, self.evidence = problem, system, evidence_of(problem, system)

    def __call__(self, learnt: Learnt) -> tuple[float, Learnt]:
        """Log evidence, log priors included, and gradient."""
        return self.evidence(learnt)

    def at(self, learnt: Learnt) -> Result:
        """The posterior there, which takes no evidence: its value is left out."""
        return _finished(self.problem, self.system, Outcome(learnt, np.nan, "", 0))


def _finished(problem: Problem, system: System, outcome: Outcome) -> Result:
    """The result at the best point of a search."""
    ended = problem.shared(_ended, outcome.point, problem.rows, context=system, brief=True)
    numbers, variances = as_numpy(ended(outcome.point, problem.rows))
    inducing = as_numpy(functionals(problem.program, problem.rows))
    notes = rounding_note(list(map(float, variances)), max(system.sizes), problem.options.dtype)
    held = Regression(system.parts, tuple(numbers))
    return Result(as_numpy(outcome.point), inducing, [], np.ones(1), outcome.value, 0.0, regression=held, notes=notes)


def _ended(_: Problem, system: System) -> Callable[..., tuple[list[Whitened], list[Array]]]:
    """What the posterior is made of, and the largest prior variances of the parts."""

    def ended(at: Learnt, rows: Rows) -> tuple[list[Whitened], list[Array]]:
        program = system.program
        numbers, read, parameters = (
            whitened(system, at, rows)[0],
            functionals(program, rows),
            program.parameters.constrain(at),
        )
        pairs = zip(system.parts, numbers, strict=True)
        return numbers, [largest_variance(program, p, w.loadings, parameters, read) for p, w in pairs]

    return ended


def _maximised(problem: Problem, evidence: Evidence, start: Learnt) -> Outcome:
    steps, tolerance = problem.choice.steps, problem.options.tolerance
    report, size = problem.monitor.report, problem.observed
    search = maximise_off_saddles if problem.may_have_saddles else maximise
    return search(evidence, start, steps=steps, tolerance=tolerance, report=report, size=size)


EXACT = searching("exact", ExactSearch, refined=False, profiled=ExactProfile)
