"""What a fit cannot resolve: noise below the jitter of covariance matrices or below rounding, and coarse quadratures.

Gauss–Hermite quadrature is quick, and exact for functions that are gentle over the width of q. Where they may be steep
the bound is looked at again, by a rule that tells steep places apart: what is said is always its bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.data import Data
from gpdsl.inference.bound import views
from gpdsl.inference.expected_log_likelihood import can_be_quick, fine_count, quadrature_errors, quick_errors
from gpdsl.inference.natural.sites import Sites
from gpdsl.inference.plan.options import Choice
from gpdsl.inference.posteriors.coupled import marginals_of
from gpdsl.inference.posteriors.features import prior_variances
from gpdsl.inference.problem import Problem, Result, as_arrays, as_numpy
from gpdsl.inference.warm import Start, carry
from gpdsl.kernels.functionals import Functionals
from gpdsl.program.cache import jit
from gpdsl.program.evaluation import functionals_at
from gpdsl.program.fine_quadrature import may_be_steep
from gpdsl.program.groups import kernel_values
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program, take_rows
from gpdsl.program.rows import Rows, Scope, observed_mask, row_count
from gpdsl.symbolic.arguments import integrand_of
from gpdsl.symbolic.numeric import evaluate
from gpdsl.symbolic.terms import ObservationTerms, output_value, with_law

CONTINUOUS = ("real", "positive", "unit")
"""Kinds of outputs that have densities, and not probabilities."""

SAME_VALUES = "nothing tells signal from noise"
"""Of outputs of which every value is the same."""

MATTERS = 1 / 300
"""Share of an observation's noise variance from which jitter or rounding is said."""


NO_NOISE = 1e-12
"""Share of the range of values below which noise is none; of the largest value where there is no range."""


COARSE = 1e-3
"""Share of the spread of an input from which its rounding is said."""

UNKNOWN, UNKNOWN_SHARE = 3.0, 0.01
"""Standard error of a bound, in nats and as a share of it, from which both are beyond use."""


def rounding_note(variances: Sequence[float], size: int, dtype: str) -> tuple[str, ...]:
    """Of exact inference: `variances` of signals in units of their noise, in matrices of up to `size` values."""
    largest = max(variances, default=0.0)
    share = largest * size * float(np.finfo(dtype).eps)
    if not share > MATTERS:
        return ()
    return (
        f"the noise variance is 1/{largest:.1g} of the signal's, which {dtype} hardly resolves with {size} values: "
        "parameters and evidence are those of interpolation; give the noise a lower bound or a prior, or fix it",
    )


def notes_on_constants(program: Program, data: Data) -> tuple[str, ...]:
    """Of outputs of which every value is the same: with a noise that is learnt, the evidence has no upper bound."""
    found = []
    for name, values in data.outputs.items():
        known, kind = values[data.observed[name]], program.declarations.outputs[name].kind
        if kind in CONTINUOUS and known.size > 1 and np.ptp(known) == 0 and _noise_moves(program, name):
            found.append(
                f"all {known.size} values of `{name}` are {known.flat[0]:g}: {SAME_VALUES}, and the "
                "bound grows with every step to less noise; it says nothing, nor do the parameters: fix them, or give "
                "them priors"
            )
    return tuple(found)


def _noise_moves(program: Program, output: str) -> bool:
    """Whether the width of a density of an output is learnt, as far as its law tells: slopes may be held at 0."""
    refs, found = program.translator.references, []
    for law in (each.law for each in program.observations if output in each.outputs):
        noise: Any = None if law is None else law.arguments.get("sd", law.arguments.get("scale"))
        known = [refs[each] for each in getattr(noise, "free_symbols", ())]
        moving = any(ref.kind == "latent" or ref.name in program.parameters.initial for ref in known)
        found.append(moving or not hasattr(noise, "free_symbols"))
    return any(found)


def notes_on_inputs(program: Program, data: Data) -> tuple[str, ...]:
    """Of inputs of latents that are far from zero, in units of their spread, beyond what single precision resolves."""
    found = {}
    for name in {each for latent in program.declarations.latents.values() for each in latent.arguments}:
        if name not in data.inputs:
            continue
        columns = np.asarray(data.inputs[name], float).reshape(data.rows, -1)
        rounding, spread = np.finfo(np.float32).eps * np.max(np.abs(columns), axis=0), np.std(columns, axis=0)
        worst = int(np.argmax(rounding - COARSE * spread))
        if rounding[worst] > COARSE * spread[worst] > 0:
            column = data.column_names[name][min(worst, len(data.column_names[name]) - 1)]
            found[name] = (
                f"column `{column}` holds values near {np.mean(columns[:, worst]):.6g} that spread by "
                f"{spread[worst]:.2g}, which float32 rounds to steps of {rounding[worst]:.1g}: distances between rows "
                "have lost their digits; subtract a constant from the column, or ask for dtype = float64"
            )
    return tuple(found[name] for name in sorted(found))


def notes_on_samples(program: Program, choice: Choice, bound: float, error: float) -> tuple[str, ...]:
    """Of a sampled bound that is hardly known."""
    if not program.sampled or not np.isfinite(error) or error < max(UNKNOWN, UNKNOWN_SHARE * abs(bound)):
        return ()
    return (
        f"samples leave the bound unknown by {error:.2g} nats: it tells little, and posterior and parameters may "
        f"follow the errors of the samples; ask for more of them, as samples = {4 * max(choice.samples, 1)}",
    )


def notes_on_noise(program: Program, data: Data, learnt: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """Of outputs that are explained without a rest, as a single value is: the noise goes to zero, the bound up."""
    found = {}
    for observation in program.observations:
        output, law = observation.outputs[0], observation.law
        noise = None if law is None else law.arguments.get("sd", law.arguments.get("scale"))
        symbols = [] if noise is None else sorted(noise.free_symbols, key=str)
        refs = [program.translator.references[symbol] for symbol in symbols]
        if noise is None or [ref.kind for ref in refs] != ["param"] or refs[0].name not in program.parameters.initial:
            continue
        least = float(np.min(evaluate(noise, {symbols[0]: learnt[refs[0].name]})))
        known = data.outputs[output][data.observed[output]]
        size = float(np.max(np.abs(known), initial=0.0)) or 1.0
        spread = float(np.ptp(known)) if known.size else 0.0
        if least < (max(NO_NOISE * spread, np.finfo(float).eps * size) if spread else NO_NOISE * size):
            found[output] = (
                f"the noise of `{output}` is {least:.1g}: its values are explained without a rest, and the bound grows "
                f"with every step to less noise; it says nothing, nor do the parameters: fix `{refs[0].name}`, or give "
                "it a lower bound or a prior"
            )
    return tuple(found.values())


def jitter_note(problem: Problem, learnt: Mapping[str, Array], sites: Sites) -> tuple[str, ...]:
    """Of a dense posterior by sites, at unconstrained parameters.

    Jitter is a share of each latent's variance. It stands in the covariance of the rows like noise of the latents, and
    matters where an observation tells more than that.
    """
    if not problem.choice.dense:
        return ()  # of what inducing points leave open, jitter is little
    precision = np.asarray(sites.precision)
    own = np.diagonal(precision, axis1=1, axis2=2) if sites.coupled else precision
    given = learnt, problem.inducing
    variances = np.asarray(problem.shared(_variances, *given, brief=True)(*given))
    share = float(np.max(own * variances, initial=0.0)) * problem.jitter
    if not share > MATTERS:
        return ()
    return (
        f"jitter, {problem.jitter:.0e} of the latents' variance, is {share:.2g} of an observation's noise variance: "
        "the bound takes it for noise, predictions at new rows do not; give the noise a lower bound or a prior",
    )


def _variances(
    problem: Problem, _: Any, learnt: Mapping[str, Array], inducing: Sequence[Functionals]
) -> Float[Array, " columns"]:
    """The mean prior variance of what is read of each latent; none of row variables, whose covariance has no jitter."""
    program = problem.program
    parameters, found = program.parameters.constrain(learnt), []
    for group, points in zip(program.groups, inducing, strict=True):
        kernel = kernel_values(program.evaluator, group, parameters)
        unit = 0.0 if group.per_row else jnp.mean(prior_variances(group, kernel, points), axis=1)
        found.append(jnp.tile(kernel.scale * unit, len(group.readings.all)))
    return jnp.concatenate(found)


# --- What no log evidence exceeds: every observed value where its distribution has its highest density ---------------


SYMMETRIC = {"Normal", "StudentT", "Laplace", "Logistic"}
"""Laws whose density is highest at their mean, wherever that is."""

SLACK = 1e-3
"""Nats an observed value, for what samples and rounding are off by."""


def above_certainty(problem: Problem, learnt: Mapping[str, Array], value: float) -> str:
    """Why a log evidence cannot be, at unconstrained parameters; empty where it can, or nothing tells."""
    most = _most(problem, learnt)
    if not value > most + SLACK * problem.observed:
        return ""
    return f"; log Z is above {most:.6g}, which it would be if every latent were known and fitted best"


def _most(problem: Problem, learnt: Mapping[str, Array]) -> float:
    if np.isfinite(problem.ceiling):
        return problem.ceiling
    program, total = problem.program, 0.0
    parameters = program.parameters.constrain(dict(learnt))
    for observation in program.observations:
        best = _best(problem, observation)
        if best is None:
            return float("inf")
        values = program.evaluator(best.log_density, Scope(parameters, problem.rows), best.axes)
        total += float(jnp.sum(observed_mask(problem.rows, observation) * values))
    return total + float(program.log_prior(parameters))


def _best(problem: Problem, observation: ObservationTerms) -> ObservationTerms | None:
    """The observation where its mean is what is observed; None where that is not its best, or asks for latents."""
    law, translator = observation.law, problem.program.translator
    if law is None or law.name not in SYMMETRIC:
        return None
    mean = output_value(translator, observation)
    found = with_law(translator, observation, replace(law, arguments={**law.arguments, "mean": mean}))
    kinds = {translator.references[symbol].kind for symbol in found.log_density.free_symbols}
    return found if kinds <= {"input", "const", "param", "output", "index", "gathered"} else None


SAID = 1e-6
"""Nats that no error is stated of."""

ENOUGH = 3e-3
"""Nats that the expected log likelihood of a row may be wrong by during a fit: what is said at its end is the bound of
the finer rule in any case, and a search by that takes several times as long."""

NEAR = 1.5
"""Standard deviations of a latent nearer than which singularities make more than a tenth of that."""

LOOKED_AT = 4096
"""Rows, spread evenly, that are looked at."""

MOST_NODES = 1_000_000
"""Of finer rules over two arguments, in all rows: a search by more takes minutes, and hours for hundreds of rows."""


def finely(problem: Problem, result: Result, engine: Callable[[Problem], Result]) -> Result:
    """The result with the right bound; of another search, from there, where the quadrature of this one was too coarse.

    What the finer rule leaves open adds to `elbo_se`.
    """
    program = problem.program
    known = result.posterior or result.held is not None
    if "quadrature" not in program.methods or not known or not np.isfinite(result.elbo):
        return result
    if not may_be_coarse(problem, as_arrays(result.parameters, problem.options.dtype)):
        return result
    try:
        return _looked_at(problem, result, engine)
    except KeyboardInterrupt:  # between two searches
        return replace(result, interrupted=True)


def _looked_at(problem: Problem, result: Result, engine: Callable[[Problem], Result]) -> Result:
    look = _looking(problem)
    added, left, worst = look(result)
    known = replace(result, elbo=result.elbo + added, elbo_se=float(np.hypot(result.elbo_se, left)))
    refinable = any(term.refinable for observation in problem.program.observations for term in observation.terms)
    if worst <= ENOUGH or result.interrupted or problem.program.opaque or not refinable:
        return known
    if problem.count * fine_count(problem.program) > MOST_NODES:
        note = (
            f"a quadrature over two latents left the bound of a row wrong by {worst * problem.options.beta:.2g} nats: "
            "what is said is right, but the search went by it, as one by a finer quadrature takes too long; "
            "expectations = sampled has no such error"
        )
        return replace(known, notes=(*known.notes, note))
    found = engine(replace(problem, program=problem.program.fine, **begun_at(problem, result), continued=True))
    if not found.elbo >= known.elbo:
        return replace(known, interrupted=found.interrupted)
    worst *= problem.options.beta
    said = f"{found.message}; with finer quadrature, since the bound of a row was wrong by {worst:.2g} nats"
    error = float(np.hypot(found.elbo_se, look(found)[1]))
    return replace(found, message=said, elbo_se=error, notes=tuple(dict.fromkeys((*result.notes, *found.notes))))


def begun_at(problem: Problem, result: Result) -> dict[str, Any]:
    """Where the next search begins: at the parameters, inducing points and posterior of the last."""
    parameters = as_arrays(result.parameters, problem.options.dtype)
    if result.held is not None:
        return {"parameters": parameters, "begun_held": result.held}
    inducing = as_arrays(result.inducing, problem.options.dtype)
    values = {name: np.asarray(each) for name, each in problem.program.parameters.constrain(parameters).items()}
    known = result.posterior, result.weights, problem.jitter, problem.layout.dense
    start = Start(problem.program, values, result.inducing, *known)
    begun = carry(start, problem.program, parameters, inducing, problem.jitter)
    return {"parameters": parameters, "inducing": inducing, "begun": begun}


def may_be_coarse(problem: Problem, learnt: dict[str, Array], every: bool = False) -> bool:
    """Whether a quadrature (or `every` term) may be of a function that is steep over the prior's width.

    `learnt` are the parameters on the real line. q is taken to be no wider than the prior.
    """
    program, rows = problem.program, _some_rows(problem)
    found = problem.shared(_widest, learnt, rows, brief=True)(learnt, rows)
    parameters, widest = as_numpy(found)  # nothing is compiled for what is on the host
    scope = Scope(parameters, replace(as_numpy(rows), mesh=None))
    for observation in program.observations:
        for term in observation.terms:
            integrand = term.integrand
            if integrand is None and every and len(term.latents) == 1:
                integrand = integrand_of(program.translator, term.expression, term.latents)
            if integrand is None or (len(integrand.arguments) > 1 and integrand.kinks):
                continue
            several, axes = len(integrand.arguments) > 1, observation.axes
            if several or may_be_steep(program, integrand, axes, scope, widest, NEAR):
                return True
    return False


def _widest(
    problem: Problem, _: Any, learnt: Any, rows: Rows
) -> tuple[Mapping[str, Array], Float[Array, "1 1 columns"]]:
    parameters = problem.program.parameters.constrain(learnt)
    return parameters, prior_widths(problem, parameters, rows)[None, None]


def prior_widths(problem: Problem, parameters: Mapping[str, Array], rows: Rows) -> Float[Array, " columns"]:
    """Standard deviations of all that rows read of latents, the largest of any row."""
    program, variances = problem.program, []
    for group in program.groups:
        at = None if group.per_row else functionals_at(group, group.readings.all, rows)
        kernel = kernel_values(program.evaluator, group, parameters)
        unit = 1.0 if at is None else jnp.max(prior_variances(group, kernel, at), axis=-1)
        variances.append(jnp.tile(kernel.scale * unit, len(group.readings.all)))
    return jnp.sqrt(jnp.concatenate(variances)).astype(problem.options.dtype)


def _some_rows(problem: Problem) -> Rows:
    """Rows that stand for all; all of them where q is one of the rows' values."""
    each = -(-problem.count // LOOKED_AT)
    if problem.layout.dense or each == 1 or any(group.per_row for group in problem.program.groups):
        return problem.rows
    return take_rows(problem.rows, slice(None, None, each))


def _looking(problem: Problem) -> Callable[[Result], tuple[float, float, float]]:
    """What a finer rule adds to the bound of a result, how wrong that may be, and the most it adds to a row.

    Where many rows depend on inducing points alone, some of them stand for all.
    """
    dtype, some = problem.options.dtype, _some_rows(problem)
    share, quick = problem.count / row_count(some), can_be_quick(problem.program)

    def look(result: Result) -> tuple[float, float, float]:
        space: Any = result.held
        posterior = list(result.posterior) if space is None else space.q
        known = (result.parameters, result.inducing, posterior, result.weights)
        numbers = as_arrays(known, dtype)
        plain = space is None
        if plain and quick:
            added, worst, right = problem.shared(_quickly_added, numbers, some, brief=True)(numbers, some)
            if right:
                return share * float(added), 0.0, float(worst)
        compiled = (
            problem.shared(_added, numbers, some, brief=True)
            if plain
            else jit(partial(_added, problem, space), brief=True)
        )
        added, left, worst = (float(each) for each in compiled(numbers, some))
        return share * added, share * left if share * left > SAID else 0.0, worst

    return look


def _quickly_added(problem: Problem, _: Any, result: Any, rows: Rows) -> tuple[Array, Array, Array]:
    """What the trapezoidal rule adds to the bound of some rows, the most it adds to a row, and whether it is right."""
    parameters, q, weights = _seen(problem, result, rows)
    by_row, right = quick_errors(problem.program, parameters, rows, q)
    added = weights @ by_row
    return jnp.sum(added), jnp.max(jnp.abs(added)), right


def _seen(problem: Problem, result: Any, rows: Rows) -> tuple[Mapping[str, Array], Marginals, Array]:
    """Parameters, marginals of some rows, and weights of a result."""
    program, (learnt, inducing, posterior, weights) = problem.program, result
    parameters = program.parameters.constrain(learnt)
    seen = views(program, parameters, inducing, rows, problem.layout.dense, problem.jitter)
    return parameters, marginals_of(seen, posterior), weights


def _added(problem: Problem, space: Any, result: Any, rows: Rows) -> tuple[Array, Array, Array]:
    """What a finer rule adds to the bound of some rows, how wrong that may be, and the most it adds to a row."""
    program = problem.program
    learnt, _, posterior, weights = result
    parameters: Mapping[str, Array]
    if space:
        parameters = program.parameters.constrain(learnt)
        q = space.marginals(program, rows, parameters, posterior)
    else:
        parameters, q, weights = _seen(problem, result, rows)
    added, left = (weights @ each for each in quadrature_errors(program, parameters, rows, q))
    return jnp.sum(added), jnp.sum(left), jnp.max(jnp.abs(added))
