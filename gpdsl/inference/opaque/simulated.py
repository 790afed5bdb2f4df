"""Natural gradients from evaluations of opaque functions that are spent sparingly: propose, evaluate, update.

Every round evaluates the opaque functions at some points per row, drawn from q (randomised Sobol points), fits
surrogates to these and to all earlier points that still count (`inference.evaluations`), and maximises the bound in
which the surrogates stand for the functions, corrected by the residual (`inference.surrogate`): with respect to q by
natural gradients, to the hyperparameters by L-BFGS. None of this costs an evaluation. The step is shortened to where
the points say something (`inference.trust`), undone if the bound turns out to have fallen, and the fit ends when q
neither moves nor could be elsewhere, for all the noise in the residual.
"""

from __future__ import annotations

import copy
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from gpdsl.inference.ascent.lbfgs import maximise
from gpdsl.inference.natural.profiled import outer_point, split_point, whitened_at
from gpdsl.inference.natural.site_starts import start_sites
from gpdsl.inference.natural.sites import Sites, blend
from gpdsl.inference.opaque.budget import LAST_SHARE, held_out, point_cost
from gpdsl.inference.opaque.evaluations import Batch, Damping, Evaluations, Judged, Points, Trust, change, distance
from gpdsl.inference.opaque.simulator import Fitted, Place, Simulator, held_out_bound
from gpdsl.inference.opaque.surrogate import MOST_POLYNOMIALS, Surrogate, feature_count, is_quadratic, opaque_reads
from gpdsl.inference.problem import Problem, Result, as_numpy, tidy
from gpdsl.inference.sampling import base_normals
from gpdsl.program.cache import jit

SETTLED = 0.02
"""Change of the means, in posterior standard deviations, and of the logarithms of these, that does not matter."""

OUTER_STEPS = 10
"""Iterations of L-BFGS over the hyperparameters between two evaluations."""

MOST_AT_ONCE = 8
"""Multiple of the first round's points that a round may take when noise is all that moves q."""

PROGRESS = 8.0
"""Multiple of what noise moves q by, from which on a round that moves it further has more points than it needs."""

SURROGATE_SAMPLES = 256
"""Samples, of the surrogates alone, in which the bound is maximised; fewer for more rows, whose errors average out."""

SURROGATE_NUMBERS = 4_000_000

LADDER = (1000, 100, 30, 10, 4)
"""Natural-gradient steps on one set of surrogates, fewer where they lead too far."""

LEAST_ROUND = 0.5
"""Of the points of the first round: a bound from fewer says too little to undo a step for."""

LEAST_PART = 1e-2
"""Of the way to other hyperparameters."""


class Rounds:
    """Rounds of evaluations. The reported bound is corrected by the residual, with its error."""

    def __init__(self, problem: Problem, simulator: Simulator | None = None) -> None:
        self.problem, self.simulator = problem, simulator or Simulator(problem, opaque_reads(problem.program))
        self.known = Evaluations()
        point, sites = outer_point(problem, problem.parameters, problem.inducing), start_sites(problem)
        self.here = Place(point, sites, self.simulator.place(point, sites))
        self.best = self.here
        self.judged, self.noise, self.confirmed = Judged(), np.inf, False
        self.fitted: Fitted | None = None
        self.safest: tuple[Judged, Place, Fitted] | None = None
        self.trust, self.damping = Trust(), Damping()
        self.size, self.kept = problem.choice.samples, held_out(problem.choice)
        width = self.simulator.reads.width
        self.quadratic = is_quadratic(self.size, width, self.simulator.sloping)
        self.points = Points(problem.count, width, problem.options.seed)
        self.blend = jit(blend)

    def run(self) -> str:
        """All rounds, and what they came to."""
        message = self.rounds()
        self.regain()
        self.confirm()
        self.confirmed = True
        return message

    def state(self) -> Result:
        """The best place so far."""
        return copy.copy(self).result()

    def finish(self) -> Result:
        """The best place, of which most is certain."""
        if not self.confirmed:
            self.regain()
        return self.result()

    def rounds(self) -> str:
        """Evaluate and improve until q rests, the budget is used up, or all rounds are done."""
        for number in range(1, self.problem.choice.steps + 1):
            size = self.affordable()
            if size == 0:
                return self.ended("the budget of evaluations is used up")
            self.known.add(self.evaluate(size))
            if not self.quadratic and self.carried():  # bounds of linear surrogates say nothing beside the better ones
                self.quadratic, self.judged, self.safest = True, Judged(), None
            fitted = self.simulator.surrogate(self.here.point, self.here.q, self.known, self.quadratic)
            value = self.simulator.bound(self.here.point, self.here.sites, self.normals(), fitted.surrogate)
            self.problem.monitor.report(number, value)
            if self.fell(Judged(value, fitted.error)):
                if self.trust.exhausted:
                    return f"stopped: no step raises the bound{self.accuracy()}"
                continue
            self.accept(Judged(value, fitted.error), fitted)
            noise = distance(self.here.q, self.simulator.shaken(self.here.point, self.here.sites, fitted))
            self.noise = noise if np.isfinite(noise) else np.inf
            self.here, whole = self.improved(fitted.surrogate)
            moved = distance(self.best.q, self.here.q)
            self.damp(whole)
            if whole and max(distance(self.best.q, self.here.q), self.noise) < SETTLED:
                self.best = self.here
                return f"converged{self.accuracy()}"
            self.resize(moved, whole)
        return self.ended("all steps done")

    def accept(self, judged: Judged, fitted: Fitted) -> None:
        """Go on from here."""
        self.best, self.judged, self.fitted = self.here, judged, fitted
        if self.safest is None or judged.least > self.safest[0].least:
            self.safest = judged, self.here, fitted

    def ended(self, message: str) -> str:
        """The end before q rests: where the last step led, unless the points so far say that the bound fell there."""
        if not self.trust.refused and self.fitted is not None:
            judged, fitted = self.judge(self.here)
            if not judged.below(self.judged):
                self.accept(judged, fitted)
        return message + self.accuracy()

    def judge(self, place: Place) -> tuple[Judged, Fitted]:
        """The bound at a place by the points evaluated so far, wherever they were drawn, and its surrogates."""
        fitted = self.simulator.surrogate(place.point, place.q, self.known, self.quadratic)
        value = self.simulator.bound(place.point, place.sites, self.normals(), fitted.surrogate)
        return Judged(value, fitted.error), fitted

    def accuracy(self) -> str:
        """What is known of the Monte-Carlo error, for the message of a fit."""
        return f": Monte-Carlo error about {self.noise:.2g} posterior standard deviations"

    def damp(self, whole: bool) -> None:
        """Go part of the way only, where steps that the trust region does not shorten undo each other."""
        if not whole:
            self.damping = Damping()
            return
        self.damping = self.damping.after(change(self.best.q, self.here.q))
        if self.damping.taken < 1.0:
            self.here, _ = self.shortened(self.here.point, self.here.sites, self.damping.taken)

    def affordable(self) -> int:
        """Points per row of the next round, as far as the budget goes; none where so few are left that they mislead."""
        size = min(self.size, self.left() - self.kept)
        return size if size >= LEAST_ROUND * self.problem.choice.samples else 0

    def left(self) -> int:
        """Points per row that the budget has."""
        account, each = self.problem.program.account, self.problem.count * point_cost(self.problem.program)
        return int(min(np.inf if account is None else account.remaining / each, 1e9))

    def resize(self, moved: float, whole: bool) -> None:
        """More points a round, where noise moves q and the batches that count are far from enough to bring it down.

        Fewer again, where q goes on its way and noise has little to do with it.
        """
        least = self.problem.choice.samples
        if (whole or np.isfinite(self.noise)) and self.noise > SETTLED and moved < 2.0 * self.noise:
            batches = len(self.known.weights(self.here.q)[0])
            if batches * (self.noise / SETTLED) ** 2 > 2 * batches + 2:
                self.size = min(2 * self.size, MOST_AT_ONCE * least)
        elif moved > PROGRESS * self.noise:
            self.size = max(self.size // 2, least)

    def carried(self) -> bool:
        """Whether all points that count carry quadratic surrogates together, where those of one round do not."""
        width = self.simulator.reads.width
        few = feature_count(width, True) <= MOST_POLYNOMIALS
        return few and is_quadratic(int(self.known.worth(self.here.q)), width, self.simulator.sloping)

    def evaluate(self, size: int) -> Batch:
        """The opaque functions at new points drawn from q."""
        return self.simulator.evaluate(self.here.point, self.here.q, self.points.next(size))

    def normals(self, fresh: int = 0) -> Float[Array, "S 1 rows latents"] | None:
        """Common random numbers of the whole fit, so that q rests when the surrogates do; or fresh ones."""
        problem = self.problem
        key = jax.random.fold_in(jax.random.key(problem.options.seed), fresh)
        count = SURROGATE_NUMBERS // max(problem.count * problem.program.latents, 1)
        count = min(SURROGATE_SAMPLES, max(SURROGATE_SAMPLES // 4, count))
        return base_normals(key, count, 1, problem.count, problem.program.latents)

    def fell(self, judged: Judged) -> bool:
        """Whether the bound is lower than at the best place by more than its error; the next way starts there then.

        The bound there is judged again with all that is known by now, and so are the surrogates.
        """
        if not self.judged.known or not judged.below(self.judged):
            self.trust = self.trust.grown()
            return False
        self.judged, fitted = self.judge(self.best)
        if not judged.below(self.judged):
            return False
        self.trust, self.damping, self.here = self.trust.shrunk(), Damping(), self.best
        self.here, _ = self.improved(fitted.surrogate)
        return True

    def improved(self, surrogate: Surrogate) -> tuple[Place, bool]:
        """The best q and hyperparameters the surrogates know of, as far as they can be trusted; whether that is all.

        Where the maximum is too far, hyperparameters go a part of the way there, each with its best q. Without any, q
        takes a part of the straight line; once this lowered the bound, natural gradients stop earlier on their way
        instead, which is curved and ascends.
        """
        point, sites = self.maximised(surrogate, LADDER[0])
        q = self.simulator.place(point, sites)
        if self.trust.covers(self.here.q, q):
            return Place(point, sites, q), True
        if jax.tree.leaves(point):
            return self.profiled_part(surrogate, point), False
        for iterations in LADDER[1:] if self.trust.refused else ():
            point, sites = self.maximised(surrogate, iterations)
            q = self.simulator.place(point, sites)
            if self.trust.covers(self.here.q, q):
                return Place(point, sites, q), False
        return self.shortened(point, sites)

    def profiled_part(self, surrogate: Surrogate, point: Any) -> Place:
        """A part of the way to other hyperparameters, with the best q there."""
        here, share = self.here, 1.0
        while share > LEAST_PART:
            share *= 0.5
            at = jax.tree.map(lambda a, b: a + share * (b - a), here.point, point)  # noqa: B023 - used at once
            sites = self.simulator.profiled(at, here.sites, self.normals(), surrogate, LADDER[0])[2]
            q = self.simulator.place(at, sites)
            if self.trust.covers(here.q, q):
                return Place(at, sites, q)
        sites = self.simulator.profiled(here.point, here.sites, self.normals(), surrogate, LADDER[-1])[2]
        return self.shortened(here.point, sites)[0]

    def maximised(self, surrogate: Surrogate, iterations: int) -> tuple[Any, Sites]:
        """Hyperparameters and sites after so many natural-gradient steps, for every look at the hyperparameters."""
        best, normals = (-np.inf, self.here.point, self.here.sites), self.normals()

        def objective(at: Any) -> tuple[float, Any]:
            nonlocal best
            value, gradient, sites = self.simulator.profiled(at, best[2], normals, surrogate, iterations)
            if value > best[0]:
                best = value, at, sites
            return value, gradient

        if jax.tree.leaves(self.here.point):
            within = self.trust.around(self.here.point, self.problem.program.parameters.bijectors)
            maximise(
                objective, self.here.point, steps=OUTER_STEPS, tolerance=1e-6, report=lambda *_: None, within=within
            )
        else:
            objective(self.here.point)
        return best[1:]

    def shortened(self, point: Any, sites: Sites, share: float = 1.0) -> tuple[Place, bool]:
        """The way from the best place to another, halved until the trust region covers it; and whether it never was."""
        start = self.best
        while True:
            at = jax.tree.map(lambda a, b: a + share * (b - a), start.point, point)  # noqa: B023 - used at once
            mixed = self.blend(start.sites, sites, share)
            q = self.simulator.place(at, mixed)
            if self.trust.covers(start.q, q) or share < 1e-3:
                return Place(at, mixed, q), share == 1.0
            share *= 0.5

    def confirm(self) -> None:
        """Judge the best place by points that chose neither it nor the surrogates."""
        points = min(max(self.problem.choice.samples, self.known.points // LAST_SHARE), self.left())
        if self.fitted is not None and points:
            place = self.best.point, self.best.sites, self.best.q
            rest = points, self.normals, [self.problem.options.seed, 1]
            self.judged = Judged(*held_out_bound(self.simulator, place, self.fitted.surrogate, *rest))

    def result(self) -> Result:
        """The best place, whitened."""
        problem, best = self.problem, self.best
        learnt, inducing = split_point(best.point, problem.inducing)
        posterior = tidy(whitened_at(problem, best.point, best.sites))
        found = self.judged.value, self.judged.error
        return Result(as_numpy(learnt), as_numpy(inducing), posterior, np.ones(1), *found, sites=best.sites)

    def regain(self) -> None:
        """Back to a place of which more is certain than of where the search ended."""
        if self.safest is not None and self.judged.below(Judged(self.safest[0].least)):
            self.judged, self.best, self.fitted = self.safest
