"""Expectation propagation with hyperparameters: sites to convergence inside, L-BFGS on log Z_q outside.

Or both at once, a step of Adam after every sweep (SEP, section 2.3): `optimizer = adam`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.errors import GpdslError
from gpdsl.inference.ascent.lbfgs import looked_at, maximise
from gpdsl.inference.driver import ALL_DONE, drive
from gpdsl.inference.expectation_propagation import objective as ep
from gpdsl.inference.expectation_propagation.sites import Fixed, evidence
from gpdsl.inference.expectation_propagation.tilted import Tilted, choose_tilted, nodes_of
from gpdsl.inference.natural.profiled import at_sites, outer_point, setting_of
from gpdsl.inference.natural.site_starts import start_sites
from gpdsl.inference.natural.sites import Setting, Sites
from gpdsl.inference.opaque.evaluations import Judged, Regression
from gpdsl.inference.opaque.simulated import LADDER, Rounds
from gpdsl.inference.opaque.simulator import Simulator, values_alone
from gpdsl.inference.opaque.surrogate import FAILED, Anchors, Surrogate, opaque_reads
from gpdsl.inference.plan.options import EP_SAMPLES, Choice, Options
from gpdsl.inference.problem import FRESH_SETS, Problem, Result, as_arrays
from gpdsl.inference.resolution import above_certainty, may_be_coarse
from gpdsl.inference.sampling import sum_and_error
from gpdsl.program.cache import jit
from gpdsl.program.program import Program
from gpdsl.symbolic.numeric import written

ENOUGH, ROUNDED = 1e-6, 64.0
"""Nats that quadratures may leave log Z wrong by; and of rounding, as a multiple of that of log Z."""

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
    power = tilted_of(problem).power
    found, doubt = _at_power(problem, power)
    for lower in [each for each in LOWER if each < power]:
        if found.interrupted or not doubt:
            break
        other, lasting = _at_power(problem, lower)
        found = replace(found, interrupted=other.interrupted)
        if not lasting and np.isfinite(other.elbo):
            note = f"expectation propagation did not settle at power = {power:g}: this is the answer of {lower:g}"
            found, doubt = replace(other, notes=(note,)), ""
    notes = (f"neither log Z nor the posterior can be relied on{doubt}; try engine = vi",) if doubt else ()
    return replace(found, message=found.message + doubt, notes=(*found.notes, *notes))


def _at_power(problem: Problem, power: float) -> tuple[Result, str]:
    """The fit at one power, and why to doubt it; empty where its sites have settled."""
    search: Any = EpOpaque if problem.program.calls else ep.EpMinibatch if problem.choice.batch else EpSearch
    begun = search(problem, tilted_of(problem, power))
    found = drive(problem.monitor, begun)
    impossible = above_certainty(problem, as_arrays(found.parameters, problem.options.dtype), found.elbo)
    if impossible:  # such sites are no fixed point
        found = replace(found, message=found.message.replace("converged", "not settled"))
    return found, begun.doubt + impossible


def tilted_of(problem: Problem, power: float | None = None) -> Tilted:
    """How the tilted distributions of a problem are integrated, at another power than its own where one is given."""
    return choose_tilted(problem.program, power or problem.choice.power, problem.options.expectations)


class EpSearch:
    """Sites to their fixed point, and what is learnt on the evidence there or at the same time."""

    def __init__(self, problem: Problem, tilted: Tilted) -> None:
        self.problem, self.tilted = problem, tilted
        self.before = problem.monitor.history[-1][0] if problem.monitor.history else 0
        point = outer_point(problem, problem.parameters, problem.inducing)
        self.start = start_sites(problem)
        self.best = _Best(point, self.start)
        key = jax.random.key(problem.options.seed)
        block = setting_of(problem, point, problem.inducing, problem.rows).block(self.start.coupled)
        normals = tilted.normals(key, problem.choice.samples, block or problem.count, problem.program.latents)
        self.rest = problem.rest(normals)
        self.wrong = 0.0
        """Nats that a finer quadrature changes log Z by."""
        self.finer: EpSearch | None = None
        """The search that goes on with a finer quadrature."""
        self.turn: ep.Turn | None = None
        """Where sites and parameters move in turn."""

    def run(self) -> str:
        """The search, and another one from its end where its quadratures were too coarse."""
        message = self._together() if self.problem.choice.optimizer in {"adam", "adadelta"} else self._outside()
        self.wrong = self._error(self.best)
        if self.wrong > ENOUGH and self.tilted.refinable:
            point = self.best.point
            learnt, points = point["parameters"], point["inducing"] or self.problem.inducing
            begun = replace(self.problem, parameters=learnt, inducing=points)
            self.finer = EpSearch(begun, replace(self.tilted, fine=True))
            return f"{self.finer.run()}; with finer quadrature, since log Z was wrong by {self.wrong:.2g} nats"
        return "not settled" if self.doubt and message == "converged" else message

    @property
    def doubt(self) -> str:
        """What a user must know of the best point, if anything."""
        if self.finer is not None:
            return self.finer.doubt
        return ep.doubts(self.best.settled, self.best.stuck, self.problem.count)

    def state(self) -> Result:
        """The best point so far."""
        if self.finer is not None and np.isfinite(self.finer.best.value):
            return self.finer.state()
        if self.turn is not None:
            return at_sites(self.problem, *self.turn.sound, self.problem.monitor.last)
        error = self.wrong if self.wrong > ENOUGH else 0.0
        return at_sites(self.problem, self.best.point, self.best.sites, self.best.value, error)

    def finish(self) -> Result:
        """The best point, its sites at rest."""
        if self.turn is not None:
            self._rest()
        return self.state()

    def _error(self, best: _Best) -> float:
        """What a finer quadrature adds to or takes from log Z; 0 where nothing over one argument is steep."""
        problem, finest = self.problem, self.tilted.fine and not self.tilted.one
        asked = finest or self.tilted.refinable
        one = asked and self.tilted.one
        gentle = not asked or (one and not may_be_coarse(problem, best.point["parameters"], every=True))
        if gentle or not np.isfinite(best.value):
            return 0.0
        rows, held, normals, jitter = self.rest

        def value(point: Any, sites: Sites, rows: Any, held: Any) -> Array:
            fine = replace(self.tilted, fine=True, finest=finest).using(normals)
            return evidence(fine, setting_of(problem, point, held, rows, jitter), sites)

        finer = float(jit(value, brief=True)(best.point, best.sites, rows, held))
        off, rounding = abs(finer - best.value), ROUNDED * float(jnp.finfo(problem.options.dtype).eps) * abs(finer)
        return 0.0 if off < rounding else off

    def _outside(self) -> str:
        """L-BFGS over what is learnt; every value is that of a fixed point."""
        problem, point, warm = self.problem, self.best.point, self.start
        compute = problem.compiled(ep.converged(problem, self.tilted), point, warm, self.rest, brief=problem.brief)

        def objective(at: Any) -> tuple[float, Any]:
            nonlocal warm
            value, gradient, fixed = compute(at, warm, self.rest)
            lost = not np.isfinite(float(value)) or float(fixed.swept.stuck) > 0
            if lost and warm is not self.start:
                value, gradient, fixed = compute(at, self.start, self.rest)
            if not np.isfinite(float(value)) or self._doubtful(fixed):
                return -np.inf, gradient
            self._note(at, fixed, float(value))
            warm = self.best.sites if np.isfinite(self.best.value) else fixed.sites
            return float(value), gradient

        if not jax.tree.leaves(point):
            return looked_at(objective, point, self._report).message
        return maximise(objective, point, **{**problem.asked, "report": self._report, "size": None}).message

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

    def _together(self) -> str:
        """A sweep and a step of Adam in turn, until the evidence no longer rises; then sweeps alone."""
        problem, optimiser, message = self.problem, ep.optimiser_of(self.problem), ALL_DONE
        self.turn = ep.first_turn(problem, self.best.point, self.start, optimiser)
        given = self.turn, self.rest
        step = problem.compiled(ep.inner_step(problem, self.tilted, optimiser), *given, brief=problem.brief)
        trace: list[float] = []
        lost = 0
        for number in range(1, problem.choice.steps + 1):
            self.turn, value = step(self.turn, self.rest)
            if not np.isfinite(float(value)):
                lost += 1
                if lost > ep.RETRIES:
                    message = ep.LOST
                    break
                continue
            lost = 0
            trace.append(float(value))
            self._report(number, trace[-1])
            if _settled(trace, problem.options.tolerance):
                message = "converged"
                break
        self._rest()
        return message

    def _rest(self) -> None:
        """From where sites and parameters moved in turn to the fixed point of the sites there."""
        assert self.turn is not None
        point, sites = self.turn.sound
        value, _, fixed = jit(ep.converged(self.problem, self.tilted))(point, sites, self.rest)
        self.turn = None
        self._note(point, fixed, float(value))


def _settled(trace: list[float], tolerance: float, window: int = 20) -> bool:
    """Whether the mean of the last steps is no better than that of those before, by more than the tolerance."""
    if len(trace) < 2 * window:
        return False
    late, early = float(np.mean(trace[-window:])), float(np.mean(trace[-2 * window : -window]))
    return late - early < max(tolerance, 1e-9) * max(1.0, abs(late)) * window


# What expectation propagation does with a program, as lines of the plan.


def explain_sites(choice: Choice) -> list[str]:
    """The posterior, by its sites."""
    per = "row, for all its latents together" if choice.posterior == "coupled" else "row and latent"
    name = "expectation propagation" if choice.power == 1 else f"power expectation propagation, power {choice.power:g}"
    lines = [
        f"  one Gaussian site per {per}, of the rank of what a row reads: {name} (SEP eqs. 2 and 10)",
        "  what inducing values leave open enters row by row, as in FITC",
    ]
    return lines + ([f"  power: {choice.reasons['power']}"] if "power" in choice.reasons else [])


def explain_tilted(program: Program, options: Options, choice: Choice) -> list[str]:
    """How moments of the tilted distributions are computed, and why."""
    tilted = choose_tilted(program, choice.power, options.expectations)
    count = nodes_of(tilted, program, choice.samples)
    how = {
        "closed": "closed form",
        "quadrature": f"quadrature, {count} nodes about the current posterior",
        "sampled": f"{count} quasi-Monte-Carlo points from the current posterior, reweighted",
    }[tilted.method]
    if program.calls:
        count = nodes_of(tilted, program, EP_SAMPLES)
        names = ", ".join(sorted({use.function for use in program.uses()}))
        how = f"{tilted.method}, {count} points, of surrogates of {names}, corrected by reweighted evaluations"
    lines = [f"  {how}", f"    why: {tilted.reason}"]
    for observation, formula in zip(program.observations, tilted.formulas, strict=False):
        lines.append(f"    log normaliser of {', '.join(observation.outputs)}: {written(formula)}")
    return lines


# --- What expectation propagation asks of a program, and which posterior it takes where nobody chose one -------------


def suited(program: Program, choice: Choice, options: Options) -> Choice:
    """The choice for this engine. Raises GpdslError for a program it does not cover."""
    if program.calls and (choice.batch or choice.optimizer != "lbfgs"):
        names = ", ".join(sorted({f"`{use.function}`" for use in program.uses()}))
        what = f"optimizer = {choice.optimizer}" if not choice.batch else f"batch = {choice.batch}"
        raise GpdslError(
            f"{names} is opaque, and engine = ep evaluates opaque functions for all rows in rounds, which {what} does "
            "not: set batch = 0 and leave optimizer out"
        )
    jointly = [name for group in program.groups if group.readings.sums for name in group.names]
    if not jointly or choice.posterior == "coupled":
        return choice
    named = ", ".join(f"`{name}`" for name in jointly)
    reason = f"a row reads {named} in several places, which belong to one site"
    if choice.batch:
        raise GpdslError(f"{reason}, which minibatches do not cover: set batch = 0 with engine = ep")
    if options.posterior == "auto":
        return replace(choice, posterior="coupled", reasons={**choice.reasons, "posterior": reason})
    raise GpdslError(f"{reason}: use posterior = coupled with engine = ep")


# Expectation propagation where the likelihood calls opaque functions, which are evaluated between compiled steps.
#
# Rounds are those of variational inference (`opaque.simulated`): evaluate at points drawn from q, fit surrogates to all
# evaluations that still count, find the best there is on these without any, and go there as far as points say anything.
# The tilted moments come from the surrogates and are corrected by the evaluations themselves,
#
#     log Z_n = log Z_n(surrogate) + log sum_s w_s p(y | true)^alpha - log sum_s w_s p(y | surrogate)^alpha,
#
# w_s the importance weights of the points under the cavity: with points enough the answer is that of the function,
# however poor the surrogate. What a surrogate says at a point was learnt without that point.


class _Simulator(Simulator):
    """What the rounds ask of a problem, for tilted moments: all points that count stay with the surrogates."""

    def anchored(
        self, found: Regression, said: Sequence[Mapping[str, np.ndarray]], residuals: Sequence[np.ndarray]
    ) -> Anchors:
        """All of them, filled up to a power of two times those of a round by points of weight 0: few shapes compile."""
        count = len(found.weights)
        size = self.problem.choice.samples
        while size < count:
            size *= 2

        def filled(array: np.ndarray) -> np.ndarray:
            return np.concatenate([array, np.repeat(array[:1], size - count, axis=0)])

        def joined(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
            return {key: filled(np.concatenate([part[key] for part in parts])) for key in parts[0]}

        x = filled(np.concatenate([batch.x for batch in found.batches]))
        latents = self.steps.latents(jnp.asarray(x))
        true = self.steps.shaped(latents, joined([batch.values for batch in found.batches]))
        guessed = self.steps.shaped(latents, joined([values_alone(each) for each in said]))
        failed = [np.zeros(batch.x.shape[:2]) if batch.failed is None else batch.failed for batch in found.batches]
        if any(each.any() for each in failed):
            true[FAILED] = jnp.asarray(filled(np.concatenate(failed)), latents.dtype)[:, None]
        weights = np.concatenate([found.weights, np.zeros((size - count, x.shape[1]))])
        return Anchors(latents, true, guessed, jnp.asarray(weights, latents.dtype), jnp.zeros(x.shape[1]))

    def fixed(
        self, point: Any, sites: Sites, normals: Any, surrogate: Surrogate, sweeps: int
    ) -> tuple[Any, Any, Fixed]:
        """Evidence, gradient and fixed point on the surrogates."""
        given = self.problem.rest(normals), surrogate, jnp.asarray(sweeps)
        return self.compiled_profiled(point, sites, *given)  # type: ignore[no-any-return]

    def profiled(
        self, point: Any, sites: Sites, normals: Array | None, surrogate: Surrogate, iterations: int
    ) -> tuple[float, Any, Sites]:
        """The evidence at the fixed point, its gradient in the hyperparameters, and the sites there."""
        value, gradient, fixed = self.fixed(point, sites, normals, surrogate, iterations)
        return float(value), gradient, fixed.sites


class EpOpaque(Rounds):
    """The fixed point of the sites, and what is learnt on the evidence, with its Monte-Carlo error.

    The evidence is no bound: it may fall on the way to a fixed point, and no step is taken back because of that.
    """

    simulator: _Simulator

    def __init__(self, problem: Problem, tilted: Tilted) -> None:
        self.tilted, self.doubt = tilted, ""
        """What a user must know of the end, if anything."""

        def bound(setting: Setting, sites: Sites, normals: Any, surrogate: Surrogate) -> Array:
            return evidence(tilted.using(normals, surrogate), setting, sites)

        reads = opaque_reads(problem.program, whole=True)
        super().__init__(problem, _Simulator(problem, reads, bound, ep.converged(problem, tilted)))
        self.kept = 0

    def fell(self, judged: Judged) -> bool:
        self.trust = self.trust.grown()
        return False

    def regain(self) -> None:
        """Of a higher evidence no place is better."""

    def confirm(self) -> None:
        """By samples of the surrogates that it was not chosen for, and the evaluations that there are."""
        if self.fitted is None:
            return
        best, surrogate = self.best, self.fitted.surrogate
        numbers = range(1, FRESH_SETS + 1)
        found = [self.simulator.bound(best.point, best.sites, self.normals(each), surrogate) for each in numbers]
        value, scatter = sum_and_error(np.asarray(found))
        self.judged = Judged(value, float(np.hypot(self.judged.error, scatter)))

    def normals(self, fresh: int = 0) -> Float[Array, "S 1 rows latents"] | None:
        key = jax.random.fold_in(jax.random.key(self.problem.options.seed), fresh)
        return self.tilted.normals(key, EP_SAMPLES, self.problem.count, self.problem.program.latents)

    def result(self) -> Result:
        if self.fitted is not None:
            best = self.best
            known = best.point, best.sites, self.normals(), self.fitted.surrogate
            fixed = self.simulator.fixed(*known, LADDER[0])[2]
            self.doubt = ep.doubts(int(fixed.steady) >= 2, float(fixed.swept.stuck), self.problem.count)
        return super().result()
