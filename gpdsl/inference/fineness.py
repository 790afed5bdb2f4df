"""Whether the quadratures of a bound were fine enough at the end of a fit, and a fit by finer ones where not.

Gauss–Hermite quadrature is quick, and exact for functions that are gentle over the width of q. Where they may be steep
the bound is looked at again, by a rule that tells steep places apart: what is said is always its bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.inference.bound import views
from gpdsl.inference.expected_log_likelihood import can_be_quick, quadrature_errors, quick_errors
from gpdsl.inference.posteriors.coupled import marginals_of
from gpdsl.inference.posteriors.features import prior_variances
from gpdsl.inference.problem import Problem, Result, as_arrays, as_numpy
from gpdsl.inference.warm import Start, carry
from gpdsl.program.cache import jit
from gpdsl.program.evaluation import functionals_at
from gpdsl.program.fine_quadrature import may_be_steep
from gpdsl.program.groups import kernel_values
from gpdsl.program.joint import Marginals
from gpdsl.program.program import take_rows
from gpdsl.program.rows import Rows, Scope, row_count
from gpdsl.symbolic.arguments import integrand_of

SAID = 1e-6
"""Nats that no error is stated of."""

ENOUGH = 3e-3
"""Nats that the expected log likelihood of a row may be wrong by during a fit: what is said at its end is the bound of
the finer rule in any case, and a search by that takes several times as long."""

NEAR = 1.5
"""Standard deviations of a latent nearer than which singularities make more than a tenth of that."""

LOOKED_AT = 4096
"""Rows, spread evenly, that are looked at."""


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
    scope = Scope(parameters, rows if rows.mesh is not None else as_numpy(rows))
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


def _widest(problem: Problem, _: Any) -> Callable[..., tuple[Mapping[str, Array], Float[Array, "1 1 columns"]]]:
    def compute(learnt: Any, rows: Rows) -> tuple[Mapping[str, Array], Float[Array, "1 1 columns"]]:
        parameters = problem.program.parameters.constrain(learnt)
        return parameters, prior_widths(problem, parameters, rows)[None, None]

    return compute


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
            problem.shared(_added, numbers, some, brief=True) if plain else jit(_added(problem, space), brief=True)
        )
        added, left, worst = (float(each) for each in compiled(numbers, some))
        return share * added, share * left if share * left > SAID else 0.0, worst

    return look


def _quickly_added(problem: Problem, _: Any) -> Callable[[Any, Rows], tuple[Array, Array, Array]]:
    """What the trapezoidal rule adds to the bound of some rows, the most it adds to a row, and whether it is right."""

    def compute(result: Any, rows: Rows) -> tuple[Array, Array, Array]:
        parameters, q, weights = _seen(problem, result, rows)
        by_row, right = quick_errors(problem.program, parameters, rows, q)
        added = weights @ by_row
        return jnp.sum(added), jnp.max(jnp.abs(added)), right

    return compute


def _seen(problem: Problem, result: Any, rows: Rows) -> tuple[Mapping[str, Array], Marginals, Array]:
    """Parameters, marginals of some rows, and weights of a result."""
    program, (learnt, inducing, posterior, weights) = problem.program, result
    parameters = program.parameters.constrain(learnt)
    seen = views(program, parameters, inducing, rows, problem.layout.dense, problem.jitter)
    return parameters, marginals_of(program, parameters, rows, seen, posterior), weights


def _added(problem: Problem, space: Any) -> Callable[[Any, Rows], tuple[Array, Array, Array]]:
    """What a finer rule adds to the bound of some rows, how wrong that may be, and the most it adds to a row."""
    program = problem.program

    def compute(result: Any, rows: Rows) -> tuple[Array, Array, Array]:
        learnt, _, posterior, weights = result
        parameters: Mapping[str, Array]
        if space:
            parameters = program.parameters.constrain(learnt)
            q = space.marginals(program, rows, parameters, posterior)
        else:
            parameters, q, weights = _seen(problem, result, rows)
        added, left = (weights @ each for each in quadrature_errors(program, parameters, rows, q))
        return jnp.sum(added), jnp.sum(left), jnp.max(jnp.abs(added))

    return compute
