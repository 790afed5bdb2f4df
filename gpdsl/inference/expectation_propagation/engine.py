"""Expectation propagation with hyperparameters: sites to convergence inside, L-BFGS on log Z_q outside.

Or both at once, a step of Adam after every sweep (SEP, section 2.3): `optimizer = adam`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from gpdsl.inference.ascent.lbfgs import Outcome, looked_at, maximise
from gpdsl.inference.ceiling import above_certainty
from gpdsl.inference.expectation_propagation.minibatch import LOST, RETRIES, fit_ep_minibatch, optimiser_of
from gpdsl.inference.expectation_propagation.objective import converged, doubts, first_turn, inner_step
from gpdsl.inference.expectation_propagation.opaque import fit_ep_opaque
from gpdsl.inference.expectation_propagation.sweep import Fixed, evidence
from gpdsl.inference.expectation_propagation.tilted import Tilted, choose_tilted
from gpdsl.inference.fineness import may_be_coarse
from gpdsl.inference.natural.profiled import at_sites, outer_point, setting_of
from gpdsl.inference.natural.site_starts import start_sites
from gpdsl.inference.natural.sites import Sites
from gpdsl.inference.problem import Problem, Result, as_arrays
from gpdsl.program.compilation import jit

ENOUGH = 1e-6
"""Nats that quadratures may leave log Z wrong by."""

LOWER = 0.9, 0.5
"""Powers tried in turn where the sites do not settle: ever smaller shares of a site leave its cavity proper."""


@dataclass
class _Best:
    """The best point of a search, with its sites."""

    point: Any
    sites: Sites
    value: float = -np.inf
    stuck: float = 0.0
    settled: bool = True


def fit_ep(problem: Problem) -> Result:
    """Maximise the EP estimate of the log marginal likelihood over the learnt parameters."""
    tilted = tilted_of(problem)
    search = fit_ep_minibatch if problem.choice.batch else _settling
    search = fit_ep_opaque if problem.program.calls else search
    found, doubt = _looked_over(problem, *search(problem, tilted))
    for power in [each for each in LOWER if each < tilted.power]:
        if found.interrupted or not doubt:
            break
        other, lasting = _looked_over(problem, *search(problem, tilted_of(problem, power)))
        found = replace(found, interrupted=other.interrupted)
        if not lasting and np.isfinite(other.elbo):
            note = (
                f"expectation propagation did not settle at power = {tilted.power:g}: this is the answer of {power:g}"
            )
            found, doubt = replace(other, notes=(note,)), ""
    notes = (f"neither log Z nor the posterior can be relied on{doubt}; try engine = vi",) if doubt else ()
    return replace(found, message=found.message + doubt, notes=(*found.notes, *notes))


def _looked_over(problem: Problem, found: Result, doubt: str) -> tuple[Result, str]:
    """The same, doubted where its log Z is above what the likelihood allows at all: such sites are no fixed point."""
    impossible = above_certainty(problem, as_arrays(found.parameters, problem.options.dtype), found.elbo)
    if not impossible:
        return found, doubt
    return replace(found, message=found.message.replace("converged", "not settled")), doubt + impossible


def _settling(problem: Problem, tilted: Tilted) -> tuple[Result, str]:
    """The fit at one power, and why to doubt it; empty where its sites have settled."""
    run = _Run(problem, tilted)
    problem.monitor.state = lambda: at_sites(problem, run.best.point, run.best.sites, run.best.value)
    outcome = run.together() if problem.choice.optimizer in {"adam", "adadelta"} else run.outside()
    best = run.best
    wrong = 0.0 if outcome.interrupted else run.error(best)
    if wrong > ENOUGH and tilted.refinable:
        begun = replace(
            problem, parameters=best.point["parameters"], inducing=best.point["inducing"] or problem.inducing
        )
        found, doubt = _settling(begun, replace(tilted, fine=True))
        said = f"{found.message}; with finer quadrature, since log Z was wrong by {wrong:.2g} nats"
        return replace(found, message=said), doubt
    doubt = doubts(best.settled, best.stuck, problem.count)
    message = "not settled" if doubt and outcome.message == "converged" else outcome.message
    found = at_sites(problem, best.point, best.sites, best.value)
    error = float(np.hypot(found.elbo_se, wrong if wrong > ENOUGH else 0.0))
    return replace(found, elbo_se=error, message=message, interrupted=outcome.interrupted), doubt


def tilted_of(problem: Problem, power: float | None = None) -> Tilted:
    """How the tilted distributions of a problem are integrated, at another power than its own where one is given."""
    return choose_tilted(problem.program, power or problem.choice.power, problem.options.expectations)


class _Run:
    """The moving parts of one fit."""

    def __init__(self, problem: Problem, tilted: Tilted) -> None:
        self.problem, self.tilted = problem, tilted
        self.before = problem.monitor.history[-1][0] if problem.monitor.history else 0
        point = outer_point(problem, problem.parameters, problem.inducing)
        self.start = start_sites(problem)
        self.best = _Best(point, self.start)
        key = jax.random.key(problem.options.seed)
        block = setting_of(problem, point, problem.inducing, problem.rows).block(self.start.coupled)
        normals = tilted.normals(key, problem.choice.samples, block or problem.count, problem.program.latents)
        self.fixed = problem.rows, problem.inducing, normals, problem.jitter

    def error(self, best: _Best) -> float:
        """What a finer quadrature adds to or takes from log Z; 0 where nothing may be steep."""
        problem, finest = self.problem, self.tilted.fine and not self.tilted.one
        asked = finest or self.tilted.refinable
        gentle = not may_be_coarse(problem, best.point["parameters"], every=True) if asked else True
        if gentle or not np.isfinite(best.value):
            return 0.0
        rows, held, normals, jitter = self.fixed

        def value(point: Any, sites: Sites, rows: Any, held: Any) -> Array:
            fine = replace(self.tilted, fine=True, finest=finest).using(normals)
            return evidence(fine, setting_of(problem, point, held, rows, jitter), sites)

        return abs(float(jit(value, brief=True)(best.point, best.sites, rows, held)) - best.value)

    def outside(self) -> Outcome:
        """L-BFGS over what is learnt; every value is that of a fixed point."""
        problem, point, warm = self.problem, self.best.point, self.start
        compute = problem.compiled(converged(problem, self.tilted), point, warm, *self.fixed, brief=problem.brief)

        def objective(at: Any) -> tuple[float, Any]:
            nonlocal warm
            value, gradient, fixed = compute(at, warm, *self.fixed)
            lost = not np.isfinite(float(value)) or float(fixed.swept.stuck) > 0
            if lost and warm is not self.start:
                value, gradient, fixed = compute(at, self.start, *self.fixed)
            if not np.isfinite(float(value)) or self._doubtful(fixed):
                return -np.inf, gradient
            warm = fixed.sites
            self._note(at, fixed, float(value))
            return float(value), gradient

        if not jax.tree.leaves(point):
            return looked_at(objective, point, self._report)
        return maximise(
            objective,
            point,
            steps=problem.choice.steps,
            tolerance=problem.options.tolerance,
            report=self._report,
        )

    def _report(self, step: int, value: float) -> None:
        """Steps are counted on from those at another power."""
        self.problem.monitor.report(self.before + step, value)

    def _doubtful(self, fixed: Fixed) -> bool:
        """Whether a value cannot be compared with the best: no fixed point is behind it, and one behind that."""
        worse = float(fixed.swept.stuck) > self.best.stuck or (int(fixed.steady) < 2 and self.best.settled)
        return bool(np.isfinite(self.best.value)) and worse

    def _note(self, point: Any, fixed: Fixed, value: float) -> None:
        if value > self.best.value:
            settled = int(fixed.steady) >= 2
            self.best = _Best(point, fixed.sites, value, float(fixed.swept.stuck), settled)

    def together(self) -> Outcome:
        """A sweep and a step of Adam in turn, until the evidence no longer rises; then sweeps alone."""
        problem, optimiser = self.problem, optimiser_of(self.problem)
        turn = first_turn(problem, self.best.point, self.start, optimiser)
        step = problem.compiled(inner_step(problem, self.tilted, optimiser), turn, *self.fixed, brief=problem.brief)
        outcome, trace, lost = Outcome(turn.point, -np.inf, "all steps done", 0), [], 0
        problem.monitor.state = lambda: at_sites(problem, *turn.sound, problem.monitor.last)
        try:
            for number in range(1, problem.choice.steps + 1):
                turn, value = step(turn, *self.fixed)
                if not np.isfinite(float(value)):
                    lost += 1
                    if lost > RETRIES:
                        outcome.message = LOST
                        break
                    continue
                lost = 0
                trace.append(float(value))
                self._report(number, trace[-1])
                if _settled(trace, problem.options.tolerance):
                    outcome.message = "converged"
                    break
        except KeyboardInterrupt:
            outcome.interrupted, outcome.message = True, "interrupted"
        point, sites = turn.sound
        finish = jit(converged(problem, self.tilted))
        value, _, fixed = finish(point, sites, *self.fixed)
        self._note(point, fixed, float(value))
        outcome.value = self.best.value
        return outcome


def _settled(trace: list[float], tolerance: float, window: int = 20) -> bool:
    """Whether the mean of the last steps is no better than that of those before, by more than the tolerance."""
    if len(trace) < 2 * window:
        return False
    late, early = float(np.mean(trace[-window:])), float(np.mean(trace[-2 * window : -window]))
    return late - early < max(tolerance, 1e-9) * max(1.0, abs(late)) * window
