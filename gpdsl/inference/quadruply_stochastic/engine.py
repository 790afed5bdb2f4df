"""The engine `qsgp`: hyperparameters from some rows, sweeps or sampled steps, and an unbiased bound at the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gpdsl.data import Data
from gpdsl.inference.assessment import STAYED
from gpdsl.inference.bound import Layout
from gpdsl.inference.driver import ALL_DONE, Plan, searching
from gpdsl.inference.estimators.sampling import some_rows_sum_and_error
from gpdsl.inference.plan.options import Options
from gpdsl.inference.plan.weights import WeightChoice
from gpdsl.inference.posteriors.family import Diagonal
from gpdsl.inference.problem import Problem, Result, as_arrays, as_numpy
from gpdsl.inference.quadruply_stochastic.basis import InducingFeatures, place_basis
from gpdsl.inference.quadruply_stochastic.choice import MOST_SOLVED, decide_weights
from gpdsl.inference.quadruply_stochastic.estimators import Slopes, slopes
from gpdsl.inference.quadruply_stochastic.features import Features
from gpdsl.inference.quadruply_stochastic.located import gathered
from gpdsl.inference.quadruply_stochastic.posterior import WeightSpace
from gpdsl.inference.quadruply_stochastic.reading import inputs_of, moments, slab, whole_divergence
from gpdsl.inference.quadruply_stochastic.sampled_fit import SampledFit
from gpdsl.inference.quadruply_stochastic.solved import SolvedFit, steadied
from gpdsl.inference.quadruply_stochastic.start import start_parameters
from gpdsl.inference.quadruply_stochastic.swept_fit import SweptFit
from gpdsl.inference.quadruply_stochastic.weights import Weights, start_weights
from gpdsl.inference.quadruply_stochastic.width import notes_on_width
from gpdsl.inference.warm import Start
from gpdsl.program.compilation import jit
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows

ASSESSED_ROWS = 2_000
"""Rows on which the bound at the end is estimated."""

PROBED = 256
"""Basis functions from which the curvature in a weight is guessed at the start."""


class Ascent(Protocol):
    """A way to improve q and the hyperparameters, which numbers that are not finite do not move."""

    @property
    def q(self) -> Weights:
        """The posterior so far."""

    @property
    def learnt(self) -> dict[str, Array]:
        """The learnt parameters so far, on the real line."""

    def advance(self) -> tuple[int, float]:
        """Some steps: how many were done in all, and an estimate of the bound; not finite where they failed."""

    def working_memory(self) -> int:
        """Bytes that a compiled call of steps takes besides what it changes."""


ASCENTS: dict[str, Callable[[Problem, Features, Weights, dict[str, Array]], Ascent]] = {
    "running": SweptFit,
    "sampled": SampledFit,
    "solved": SolvedFit,
}
"""How sums over basis functions are had."""


def plan_qsgp(program: Program, data: Data, options: Options, _: Start | None = None) -> Plan | None:
    """The decisions where it is asked for; there are no inducing points."""
    if options.engine != "qsgp":
        return None
    return Plan(decide_weights(program, options, data.rows), Layout(Diagonal(1), False), [], QSGP)


class QsgpSearch:
    """The bound maximised over q(w) and the learnt parameters: QSGP sections 2 and 3."""

    def __init__(self, problem: Problem) -> None:
        choice, options, self.plain = chosen(problem), problem.options, problem.program
        begun = _known(problem, choice)
        learnt, self.interrupted = start_parameters(problem, choice.start_rows if begun is None else 0)
        basis = place_basis(self.plain, options.basis, _points(problem), choice.features, options.seed)
        self.basis = basis if begun is None else begun.basis
        self.problem = problem = replace(problem, program=self.basis.program(self.plain))
        features = self.basis.features(problem.program, choice.features, options.seed)
        if isinstance(features, InducingFeatures) and choice.sums == "solved":
            features = steadied(features, learnt, options.dtype)
        self.features = features
        learnt |= as_arrays(self.basis.numbers(), options.dtype)
        q = _start(problem, features, learnt, choice) if begun is None else as_arrays(begun.q, options.dtype)
        self.first: State | None = None if begun is None else (q, learnt)
        self.stepping = False
        self.ascent: Ascent = ASCENTS[choice.sums](problem, features, q, learnt)

    def run(self) -> str:
        """All steps."""
        if self.interrupted:
            raise KeyboardInterrupt
        done, steps = 0, self.problem.choice.steps
        while done < steps:
            self.stepping = True
            done, bound = self.ascent.advance()
            self.stepping = False
            self.problem.monitor.report(min(done, steps), bound)
            if not np.isfinite(bound):
                return "stopped: the bound is not a finite number, and the last state that was is kept"
        return self.ascent.message if isinstance(self.ascent, SolvedFit) else ALL_DONE

    def state(self) -> Result:
        """Where it is."""
        return self._ended(None)

    def finish(self) -> Result:
        """Where it ends, or its start where that is another fit and better."""
        if self.stepping:  # an interrupt in the middle of a step may come before the result of a call was kept
            raise KeyboardInterrupt
        return self._ended(self.first)

    def _ended(self, first: State | None) -> Result:
        problem, features, ascent, choice = self.problem, self.features, self.ascent, chosen(self.problem)
        (q, learnt), (value, error, stiffness), stayed = _better(problem, features, first, (ascent.q, ascent.learnt))
        jitter = features.jitter if isinstance(features, InducingFeatures) else 0.0
        held = WeightSpace(as_numpy(q), self.basis.at(as_numpy(learnt)), problem.options.seed, stiffness, jitter)
        parameters = {name: np.asarray(learnt[name]) for name in self.plain.parameters.initial}
        value += ascent.constant if isinstance(ascent, SolvedFit) else 0.0
        notes = notes_on_width(problem, features, q, learnt) + _noisy_mean(problem.options.basis, choice)
        message = STAYED if stayed else ""
        return Result(parameters, [], [], np.ones(1), value, error, message, weight_space=held, notes=notes)


def _noisy_mean(basis: str, choice: WeightChoice) -> tuple[str, ...]:
    """Sampled steps end about the best weights, at a distance that nobody measures."""
    if basis != "inducing" or choice.sums != "sampled":
        return ()
    return (
        "sampled steps end beside the best mean, as far as their noise takes them; q is solved for where features is "
        f"at most {MOST_SOLVED} and feature_sums is left out",
    )


State = tuple[Weights, dict[str, Array]]
"""q(w), and the learnt parameters on the real line."""


def _better(
    problem: Problem, features: Features, first: State | None, last: State
) -> tuple[State, tuple[float, float, float], bool]:
    """The end of a search with what is said of it, or its start from another fit (if it is one) where that is better.

    The same rows judge both. Tells also whether it is the start.
    """
    at_last = assess(problem, features, *last)
    if first is None:
        return last, at_last, False
    at_first = assess(problem, features, *first)
    return (last, at_last, False) if at_last[0] >= at_first[0] else (first, at_first, True)


def _known(problem: Problem, choice: WeightChoice) -> WeightSpace | None:
    """The posterior of the fit it starts from, where that is one over the same basis functions."""
    begun, options = problem.begun_weights, problem.options
    if begun is None or begun.features != choice.features or begun.q.columns != choice.chevron:
        return None
    if begun.basis.kind != options.basis or (options.basis == "fourier" and begun.seed != options.seed):
        return None
    return begun


def _points(problem: Problem) -> np.ndarray:
    """The latent's arguments at all rows, where basis functions have places."""
    if problem.options.basis == "fourier":
        return np.zeros((0, 0))
    return np.asarray(inputs_of(problem.program, problem.rows), problem.options.dtype)


def chosen(problem: Problem) -> WeightChoice:
    """The decisions about the weights."""
    assert problem.choice.weights is not None
    return problem.choice.weights


def _start(problem: Problem, features: Features, learnt: dict[str, Array], choice: WeightChoice) -> Weights:
    """The prior mean, with the curvature that all weights have on average."""
    rows = gathered(problem, np.arange(min(problem.count, PROBED)))

    def guess(learnt: dict[str, Array], rows: Rows) -> Array:
        index, _ = slab(0, min(PROBED, features.count), features.count)
        values = features.values(learnt, inputs_of(problem.program, rows), index)
        unit = jnp.ones(values.shape[0], values.dtype)
        known = slopes(problem.program, learnt, rows, jnp.zeros_like(unit), jnp.sum(values**2, axis=1))
        return problem.count * jnp.mean(known.precision[:, None] * values**2)

    curvature = float(np.maximum(np.nan_to_num(jit(guess)(learnt, rows)), 0.0))
    return start_weights(features.count, choice.chevron, curvature, problem.options.dtype)


def assess(problem: Problem, features: Features, q: Weights, learnt: dict[str, Array]) -> tuple[float, float, float]:
    """The bound, its standard error, and the sum of the rows' expected precisions.

    The divergence is exact (for a dense S it lacks its constant), the likelihood from rows drawn without replacement.
    """
    size, count = chosen(problem).block, min(problem.count, ASSESSED_ROWS)
    index = np.random.default_rng([problem.options.seed, 1]).choice(problem.count, count, replace=False)

    def compute(q: Weights, learnt: dict[str, Array], rows: Rows) -> tuple[Slopes, Array]:
        projected, variance = moments(features, learnt, inputs_of(problem.program, rows), q, size)
        known = slopes(problem.program, learnt, rows, projected[:, 0], variance)
        prior = problem.program.log_prior(problem.program.parameters.constrain(learnt))
        return known, prior - whole_divergence(features, learnt, q, size)

    found: Any = problem.compiled(compute, q, learnt, taken := gathered(problem, index))(q, learnt, taken)
    values, rest = np.asarray(found[0].value, float), float(found[1])
    with np.errstate(invalid="ignore"):  # values that are not finite are told by the bound
        total, error = some_rows_sum_and_error(values[None], problem.count)
    stiffness = problem.count * float(np.mean(found[0].precision))
    return total + rest, error, stiffness


QSGP = searching("qsgp", QsgpSearch)
