"""The engine `qsgp`: hyperparameters from some rows, sweeps or sampled steps, and an unbiased bound at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np
import sympy as sp
from jaxtyping import Array

from gpdsl.data import Data
from gpdsl.inference.blocks import machine_for
from gpdsl.inference.bound import Layout
from gpdsl.inference.driver import ALL_DONE, STAYED, Plan, better, drive, searching
from gpdsl.inference.natural.profiled import ProfiledSearch
from gpdsl.inference.plan.options import Choice, Options, WeightChoice
from gpdsl.inference.posteriors.family import Diagonal, Full
from gpdsl.inference.problem import Monitor, Problem, Result, as_arrays, as_numpy
from gpdsl.inference.quadruply_stochastic.basis import InducingFeatures, place_basis
from gpdsl.inference.quadruply_stochastic.choice import MOST_SOLVED, decide_weights, explain_weights
from gpdsl.inference.quadruply_stochastic.posterior import WeightSpace
from gpdsl.inference.quadruply_stochastic.sampled import SampledFit
from gpdsl.inference.quadruply_stochastic.sums import gathered, inputs_of, moments, slab, whole_divergence
from gpdsl.inference.quadruply_stochastic.swept import Slopes, slopes
from gpdsl.inference.quadruply_stochastic.unsampled import SolvedFit, SweptFit, notes_on_width, steadied
from gpdsl.inference.quadruply_stochastic.weights import Features, FourierFeatures, Weights, start_weights
from gpdsl.inference.sampling import some_rows_sum_and_error
from gpdsl.inference.warm import Start
from gpdsl.kernels.numerics import jitter_for
from gpdsl.program.cache import jit, precision
from gpdsl.program.evaluation import functionals_at
from gpdsl.program.parameters import Prior
from gpdsl.program.program import Program, take_rows
from gpdsl.program.rows import Rows
from gpdsl.symbolic.terms import ObservationTerms
from gpdsl.symbolic.translate import Ref, axis_key

# What keeps a start on few rows sensible: priors so weak that they speak only where those rows say nothing.

REACH = 3.0
"""Standard deviation of the logarithm of a positive parameter around its start: a factor of 20."""

RESOLUTION = 1e-3
"""Error of the outputs that the noise must cover, in their standard deviations: single precision fits no closer."""


def restrained(problem: Problem) -> Program:
    """The program with weak priors of what has none: a MAP estimate from its rows stays finite.

    Some rows alone say of a column that does not matter only that its length-scale is large, and of outputs without
    noise that there is none; the logarithm of the first goes to any number, and with the second no step is stable.
    """
    # A log-normal prior of each learnt positive parameter.
    translator, found = problem.program.translator, {}
    for name, start in problem.program.parameters.initial.items():
        param = translator.declarations.params[name]
        if param.constraint == "positive" and np.all(start > 0):
            keys = tuple(map(axis_key, param.axes))
            value = translator.symbol(Ref("param", name, keys), positive=True)
            centre = float(np.mean(np.log(start)))
            found[name] = Prior(-(((sp.log(value) - centre) / REACH) ** 2) / 2, keys)
    return replace(problem.program, priors={**found, **problem.program.priors, **_noise(problem)})


def _noise(problem: Problem) -> dict[str, Prior]:
    """What independent errors of the outputs take from the expected log likelihood: their variance times n p / 2.

    p is the precision of the observation, where it is Gaussian and no number of the rows is in it.
    """
    if not problem.program.conjugate:
        return {}
    rows, found = problem.rows, {}
    for observation in problem.program.observations:
        for inverse_variance in _precisions(problem.program, observation):
            name = observation.outputs[0]
            values, known = as_numpy((rows.outputs[name], rows.observed[name]))
            seen = np.asarray(values, float)[known > 0]
            spread = RESOLUTION * float(np.std(seen))
            found[f"noise of {name}"] = Prior(-problem.count * spread**2 * inverse_variance / 2, ())
    return found


def _precisions(program: Program, observation: ObservationTerms) -> Iterator[sp.Expr]:
    """Minus the second derivative of the log density in its output, where that reads parameters without axes alone."""
    references = program.translator.references
    for symbol in observation.log_density.free_symbols:
        if references[symbol].kind == "output":
            precision = -sp.diff(observation.log_density, symbol, 2)
            read = [references[each] for each in precision.free_symbols]
            if read and all(ref.kind == "param" and not ref.positions for ref in read):
                yield precision


# Where the hyperparameters start: as exact inference on some of the rows finds them, QSGP appendix I.1.

DTYPE = "float64"
STEPS = 60
"""Most evaluations of the bound of the rows, which a start need not maximise to the last digit."""


def start_parameters(problem: Problem, count: int) -> tuple[dict[str, Array], bool]:
    """The learnt parameters, on the real line, that `count` rows alone would give; the declared ones for none.

    The rows' posterior is a full Gaussian, dense in the rows: for a Gaussian likelihood this is the exact GP. Weak
    priors keep what the rows do not determine near the declared values; values that are not finite numbers are not
    taken. Tells also whether the user has interrupted the search.
    """
    if not count:
        return problem.parameters, False
    rng = np.random.default_rng([problem.options.seed, 2])
    index = np.sort(rng.choice(problem.count, count, replace=False))
    with precision(DTYPE), machine_for(count):
        rows = as_arrays(take_rows(problem.rows, index), DTYPE)
        inducing = [functionals_at(group, group.readings.all, rows) for group in problem.program.groups]
        some = replace(
            problem,
            rows=replace(rows, numbers=jnp.arange(count)),
            count=count,
            layout=Layout(Full(), True),
            choice=Choice(True, 0, 0, 0, "natural", STEPS, {}),
            options=replace(problem.options, dtype=DTYPE, tolerance=1e-5),
            parameters=as_arrays(problem.parameters, DTYPE),
            inducing=inducing,
            jitter=jitter_for(jnp.dtype(DTYPE)),
            monitor=Monitor(STEPS, problem.monitor.callback, f"hyperparameters from {count} rows"),
        )
        found = drive(some.monitor, ProfiledSearch(replace(some, program=restrained(some))))
    sound = all(np.all(np.isfinite(value)) for value in found.parameters.values())
    taken = as_arrays(found.parameters, problem.options.dtype) if sound else problem.parameters
    return taken, found.interrupted


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


ASCENTS: dict[str, Callable[[Problem, Features, Weights, dict[str, Array]], Ascent]] = {
    "running": SweptFit,
    "sampled": SampledFit,
    "solved": SolvedFit,
}
"""How sums over basis functions are had."""


def plan_qsgp(program: Program, data: Data, options: Options, _: Start | None = None) -> Plan:
    """The decisions; there are no inducing points."""
    return Plan(decide_weights(program, options, data.rows), Layout(Diagonal(1), False), [], QSGP)


class QsgpSearch:
    """The bound maximised over q(w) and the learnt parameters: QSGP sections 2 and 3."""

    def __init__(self, problem: Problem) -> None:
        choice, options, self.plain = chosen(problem), problem.options, problem.program
        begun = _known(problem, choice)
        learnt, self.interrupted = start_parameters(problem, choice.start_rows if begun is None else 0)
        basis = place_basis(options.basis, _points(problem), choice.features, options.seed)
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
        assessed = lambda state: assess(problem, features, *state)  # noqa: E731
        (q, learnt), (value, error, stiffness), stayed = better(assessed, first, (ascent.q, ascent.learnt))
        jitter = features.jitter if isinstance(features, InducingFeatures) else 0.0
        held = WeightSpace(as_numpy(q), self.basis.at(as_numpy(learnt)), problem.options.seed, stiffness, jitter)
        parameters = {name: np.asarray(learnt[name]) for name in self.plain.parameters.initial}
        value += ascent.constant if isinstance(ascent, SolvedFit) else 0.0
        notes = notes_on_width(problem, features, q, learnt) + _noisy_mean(problem.options.basis, choice)
        notes += _same_everywhere(features, q)
        message = STAYED if stayed else ""
        return Result(parameters, [], [], np.ones(1), value, error, message, held=held, notes=notes)


def _noisy_mean(basis: str, choice: WeightChoice) -> tuple[str, ...]:
    """Sampled steps end about the best weights, at a distance that nobody measures."""
    if basis != "inducing" or choice.sums != "sampled":
        return ()
    return (
        "sampled steps end beside the best mean, as far as their noise takes them; q is solved for where features is "
        f"at most {MOST_SOLVED} and feature_sums is left out",
    )


def _same_everywhere(features: Features, q: Weights) -> tuple[str, ...]:
    """Of waves with independent weights, whose variances add up to the same wherever they are."""
    if not isinstance(features, FourierFeatures) or q.columns:
        return ()
    return (
        "standard deviations of the latent are the same everywhere: they do not grow away from the rows, where "
        "predictions are not to be trusted; with chevron = features, where these are few, and engine = vi they do",
    )


State = tuple[Weights, dict[str, Array]]
"""q(w), and the learnt parameters on the real line."""


def _known(problem: Problem, choice: WeightChoice) -> WeightSpace | None:
    """The posterior of the fit it starts from, where that is one over the same basis functions."""
    begun, options = problem.begun_held, problem.options
    if not isinstance(begun, WeightSpace) or begun.features != choice.features or begun.q.columns != choice.chevron:
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


QSGP = searching("qsgp", QsgpSearch, explain=explain_weights)
