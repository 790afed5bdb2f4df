"""The expected log likelihood of each row under q's marginals, by four estimators: SAVIGP section 4.6, Theorem 1.

Each takes marginal means and variances [K, rows, latents] and returns [K, rows]. Closed form and quadrature are exact
and differentiable; `pathwise` differentiates through the samples; `score` uses values of the log density alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float

from gpdsl.inference.opaque.surrogate import Anchors, Surrogate, penalised
from gpdsl.program.fine_quadrature import FINE_COUNT, fine_integral, of_two, quick_integral, quick_of_two
from gpdsl.program.joint import Marginals, basis_columns, block_root, moment_values
from gpdsl.program.program import Program
from gpdsl.program.quadrature import Integral, gauss_hermite, integral_of, split_integral
from gpdsl.program.rows import Rows, Scope, observed_mask
from gpdsl.symbolic.terms import ObservationTerms, Term

# Score-function gradients with control variates: SAVIGP Theorem 1 and appendix F, extended to a regression.
#
# With z standard normal and l = log p(y | m + s z),
#
#     dE[l]/dm_j = E[l z_j] / s_j,      dE[l]/dv_j = E[l (z_j^2 - 1)] / (2 v_j).
#
# Appendix F (control = `constant`) subtracts a multiple a of the score h itself, E[(l - a) h] = E[l h], with the
# optimal a = Cov[l h, h] / Var[h] for each gradient. By default (`regression`) l is regressed on 1, z_j, z_j^2 - 1 and
# z_i z_j for all latents at once: what the regression explains contributes exactly (these functions are orthogonal),
# only the residual is sampled. The products carry no gradient of their own; they take out the variance of a likelihood
# of a sum of latents. What is applied to one half of the samples is fitted on the other half, so the estimates stay
# unbiased.
#
# Of correlated latents, f = m + R z, with the root R of their covariance V = R R',
#
#     dE[l]/dm = R^-T E[l z],      dE[l]/dV = R^-T E[l (z z' - I)] R^-1 / 2.

RIDGE = 1e-6
ENOUGH = 2.0
"""Samples per coefficient below which a regression would add more variance than it takes away."""


def score_gradients(
    values: Float[Array, "S K rows"],
    normals: Float[Array, "S K rows latents"],
    variance: Float[Array, "K rows latents"],
    control: str = "regression",
) -> tuple[Float[Array, "K rows latents"], Float[Array, "K rows latents"]]:
    """Unbiased estimates of the gradients of E[l] with respect to marginal means and variances.

    `control` is `regression`, `constant` (appendix F) or `none`.
    """
    latents = normals.shape[-1]
    coefficients = _coefficients(values, normals, control, products=False)
    return (
        coefficients[..., :latents] / jnp.sqrt(variance),
        coefficients[..., latents : 2 * latents] / (2.0 * variance),
    )


def coupled_score_gradients(
    values: Float[Array, "S K rows"],
    normals: Float[Array, "S K rows latents"],
    root: Float[Array, "K rows latents latents"],
    control: str = "regression",
) -> tuple[Float[Array, "K rows latents"], Float[Array, "K rows latents latents"]]:
    """Unbiased estimates of the gradients of E[l] with respect to marginal means and covariances."""
    latents = normals.shape[-1]
    coefficients = _coefficients(values, normals, control, products=True)
    first, second = np.triu_indices(latents, 1)
    curvature = jnp.zeros((*coefficients.shape[:-1], latents, latents), values.dtype)
    curvature = curvature.at[..., first, second].set(coefficients[..., 2 * latents :])
    curvature = curvature + jnp.swapaxes(curvature, -1, -2)
    own = np.arange(latents)
    curvature = curvature.at[..., own, own].set(coefficients[..., latents : 2 * latents])
    half = solve_triangular(root, curvature, lower=True, trans=1)
    whole = solve_triangular(root, jnp.swapaxes(half, -1, -2), lower=True, trans=1)
    slope = solve_triangular(root, coefficients[..., :latents, None], lower=True, trans=1)[..., 0]
    return slope, 0.5 * whole


def samples_for(latents: int) -> int:
    """Samples from which on a regression on all z_j, z_j^2 - 1 and z_i z_j pays: half of them fit it."""
    return int(2 * ENOUGH * (2 * latents + latents * (latents - 1) // 2 + 1))


def _coefficients(
    values: Float[Array, "S K rows"], normals: Float[Array, "S K rows latents"], control: str, *, products: bool
) -> Float[Array, "K rows features"]:
    """E[l z_j], E[l (z_j^2 - 1)] and, where they are asked for or help the others, E[l z_i z_j]."""
    samples, latents = values.shape[0], normals.shape[-1]
    half = samples // 2
    z, log_p = jnp.moveaxis(normals, 0, -2), jnp.moveaxis(values, 0, -1)  # [K, rows, S, latents] and [K, rows, S]
    enough = control == "regression" and samples >= samples_for(latents)
    features = _features(z, products or enough)
    if control == "none":
        return jnp.mean(features * log_p[..., None], axis=-2)
    first, second = (features[..., :half, :], log_p[..., :half]), (features[..., half:, :], log_p[..., half:])
    estimate = _regressed if control == "regression" else _shifted
    return (estimate(first, second, latents) * (samples - half) + estimate(second, first, latents) * half) / samples


def _features(z: Float[Array, "K rows S latents"], products: bool) -> Float[Array, "K rows S features"]:
    """z and z^2 - 1, which the gradients are made of, and products of pairs."""
    latents = z.shape[-1]
    columns = [z, z**2 - 1.0]
    if products:
        first, second = np.triu_indices(latents, 1)
        columns.append(z[..., first] * z[..., second])
    return jnp.concatenate(columns, axis=-1)


def _shifted(fit: tuple[Array, Array], apply: tuple[Array, Array], latents: int) -> Float[Array, "K rows features"]:
    """E[(l - a) feature] estimated on `apply`, with the best constant a for each feature on `fit`: eq. 101."""
    del latents
    features, values = fit
    centred = features - jnp.mean(features, axis=-2, keepdims=True)
    spread = jnp.mean(centred**2, axis=-2)
    best = jnp.mean(features * values[..., None] * centred, axis=-2) / jnp.maximum(spread, jnp.finfo(spread.dtype).tiny)
    features, values = apply
    return jnp.mean((values[..., None] - best[..., None, :]) * features, axis=-2)


def _regressed(fit: tuple[Array, Array], apply: tuple[Array, Array], latents: int) -> Float[Array, "K rows features"]:
    """E[l * feature] estimated on `apply`, with the control function fitted on `fit`."""
    intercept, slopes = _regress(*fit)
    features, values = apply
    residual = values - intercept[..., None] - jnp.einsum("...sf,...f->...s", features, slopes)
    # E[z^2] = 1, E[(z^2 - 1)^2] = 2, E[(z_i z_j)^2] = 1: what a slope contributes to E[l * feature].
    exact = slopes * np.concatenate(
        [np.ones(latents), 2.0 * np.ones(latents), np.ones(features.shape[-1] - 2 * latents)]
    )
    return exact + jnp.mean(residual[..., None] * features, axis=-2)


def _regress(features: Array, values: Array) -> tuple[Array, Array]:
    """Least squares of values on features with an intercept; slopes are zero when there are too few samples."""
    samples, count = features.shape[-2:]
    centre = jnp.mean(values, axis=-1)
    if samples < ENOUGH * (count + 1):
        return centre, jnp.zeros((*values.shape[:-1], count), values.dtype)
    mean = jnp.mean(features, axis=-2, keepdims=True)
    centred = features - mean
    gram = jnp.einsum("...sf,...sg->...fg", centred, centred) / samples
    gram = gram + RIDGE * jnp.eye(count, dtype=gram.dtype)
    moment = jnp.einsum("...sf,...s->...f", centred, values - centre[..., None]) / samples
    slopes = jnp.linalg.solve(gram, moment[..., None])[..., 0]
    return centre - jnp.einsum("...f,...f->...", mean[..., 0, :], slopes), slopes


NODES = {1: 32, 2: 20}
"""Gauss–Hermite nodes per latent, by the number of arguments of the term."""

FINER_NODES = 33
"""The same of two arguments where it is asked how wrong that is."""


def expected_log_likelihood(
    program: Program,
    parameters: Mapping[str, Array],
    rows: Rows,
    marginals: Marginals,
    normals: Float[Array, "S K rows latents"] | None = None,
    externals: Mapping[str, Float[Array, "S K rows *axes"]] | Surrogate | None = None,
) -> Float[Array, "K rows"]:
    """Sum of all observations' terms. `normals` are needed by the sampled estimators, `externals` by opaque models.

    With a surrogate for the opaque functions their terms are sampled and differentiated through it.
    """
    scope = Scope(parameters, rows)
    total = jnp.zeros(marginals.mean.shape[:2], marginals.mean.dtype)
    sampled: dict[str, list[tuple[ObservationTerms, Term]]] = {}
    for observation in program.observations:
        for term in observation.terms:
            if term.method in EXACT:
                values = EXACT[term.method](program, observation, term, scope, marginals)
                total = total + row_sum(rows, observation, values, total.shape)
            else:
                sampled.setdefault(term.method, []).append((observation, term))
    if "pathwise" in sampled:
        assert normals is not None
        at = Scope(parameters, rows, marginals.at(program, normals))
        total = total + jnp.mean(_log_density(program, sampled["pathwise"], at, normals.shape[:3]), axis=0)
    if "score" in sampled and isinstance(externals, Surrogate):
        assert normals is not None
        drawn = marginals.at(program, normals)
        values = opaque_density(program, parameters, rows, drawn, externals.values(program, parameters, drawn))
        total = total + jnp.mean(values, axis=0) + externals.residual(program, parameters, marginals)
        if externals.anchors is not None:
            total = total + _moved(program, parameters, rows, externals.anchors)
    elif "score" in sampled:
        assert normals is not None and not isinstance(externals, Surrogate)
        total = total + _score(program, sampled["score"], scope, marginals, normals, externals or {})
    return total


def _closed(program: Program, observation: ObservationTerms, term: Term, scope: Scope, marginals: Marginals) -> Array:
    """The exact expectation found by `symbolic.gaussian`, evaluated at the marginal moments."""
    assert term.closed is not None
    given = moment_values(program, term.latents, marginals, observation.axes, term.closed.free_symbols)
    return program.evaluator(term.closed, scope, observation.axes, given)


def _quadrature(
    program: Program, observation: ObservationTerms, term: Term, scope: Scope, marginals: Marginals
) -> Array:
    """Quadrature over the one or two arguments of the term: Gauss–Hermite, split at kinks, or as fine as it takes."""
    integral = _integral(program, observation, term, scope, marginals)
    count = len(integral.symbols)
    if term.fine:
        return _fine(integral)[0]
    if integral.kinks:
        return split_integral(integral)
    return integral.by_rule(*gauss_hermite(count, NODES[count]))


def _integral(
    program: Program, observation: ObservationTerms, term: Term, scope: Scope, marginals: Marginals
) -> Integral:
    assert term.integrand is not None
    return integral_of(program, term.integrand, marginals, observation.axes, scope)


def quadrature_errors(
    program: Program, parameters: Mapping[str, Array], rows: Rows, marginals: Marginals
) -> tuple[Float[Array, "K rows"], Float[Array, "K rows"]]:
    """What a finer rule adds to the terms integrated by quadrature, and how wrong that may be.

    Of smooth functions of two arguments the latter is what nodes between the others add. Where two are split at kinks,
    nothing is known of it.
    """
    scope, shape = Scope(parameters, rows), marginals.mean.shape[:2]
    added = left = jnp.zeros(shape, marginals.mean.dtype)
    for observation in program.observations:
        for term in observation.terms:
            if not term.refinable:
                continue
            integral = _integral(program, observation, term, scope, marginals)
            known = _quadrature(program, observation, replace(term, fine=False), scope, marginals)
            value, open_ = _fine(integral)
            added = added + row_sum(rows, observation, value - known, shape)
            left = left + row_sum(rows, observation, open_, shape)
    return added, left


def quick_errors(
    program: Program, parameters: Mapping[str, Array], rows: Rows, marginals: Marginals
) -> tuple[Float[Array, "K rows"], Bool[Array, ""]]:
    """What a rule that costs little adds to terms without kinks, and whether that is right in all rows."""
    scope, shape = Scope(parameters, rows), marginals.mean.shape[:2]
    added, right = jnp.zeros(shape, marginals.mean.dtype), jnp.asarray(True)
    for observation in program.observations:
        for term in (term for term in observation.terms if term.refinable):
            integral = _integral(program, observation, term, scope, marginals)
            value, agree = _quick(integral)
            known = _quadrature(program, observation, replace(term, fine=False), scope, marginals)
            added, right = added + row_sum(rows, observation, value - known, shape), right & agree
    return added, right


def can_be_quick(program: Program) -> bool:
    """Whether `quick_errors` knows all terms that may be integrated more finely."""
    terms = [term.integrand for each in program.observations for term in each.terms if term.refinable]
    return all(each is not None and not each.kinks for each in terms)


def fine_count(program: Program) -> int:
    """At how many nodes of each row functions of two arguments are evaluated by finer rules."""
    terms = [term for each in program.observations for term in each.terms if term.refinable]
    two = [term for term in terms if term.integrand is not None and len(term.integrand.arguments) == 2]
    return len(two) * FINE_COUNT * (FINER_NODES + NODES[2])


def _quick(integral: Integral) -> tuple[Array, Bool[Array, ""]]:
    """An integral without kinks by the trapezoidal rule, or over two arguments by more nodes; whether it is right."""
    if len(integral.symbols) == 1:
        return quick_integral(integral)
    found, agree = quick_of_two(integral, (FINER_NODES, NODES[2]))
    return found[0], agree


def _fine(integral: Integral) -> tuple[Array, Array]:
    """An integral as fine as it takes, and how wrong that may be; of two arguments along the steeper one."""
    if len(integral.symbols) == 1:
        return fine_integral(integral)
    (value, other), left = of_two(integral, (FINER_NODES, NODES[2]))
    return value, left + jnp.abs(value - other)


EXACT = {"closed": _closed, "quadrature": _quadrature}


def row_sum(rows: Rows, observation: ObservationTerms, values: Array, shape: tuple[int, ...]) -> Array:
    """Sum of one observation over its axes, where observed: [*shape], the rows last."""
    mask = observed_mask(rows, observation)
    full = (*shape, *mask.shape[1:])
    values = jnp.where(mask > 0, jnp.broadcast_to(values, full), 0.0)
    return values.reshape(*shape, -1).sum(axis=-1)


def _log_density(
    program: Program, pairs: list[tuple[ObservationTerms, Term]], scope: Scope, shape: tuple[int, ...]
) -> Float[Array, "*shape"]:
    """Sum of the pairs, [*shape], the rows last."""
    total: Array | float = 0.0
    for observation, term in pairs:
        values = program.evaluator(term.expression, scope, observation.axes)
        total = total + row_sum(scope.rows, observation, values, shape)
    return total  # type: ignore[return-value]


def _moved(program: Program, parameters: Mapping[str, Array], rows: Rows, anchors: Anchors) -> Float[Array, "1 rows"]:
    """How the residual changes with the parameters of the likelihood."""
    true, said = (opaque_density(program, parameters, rows, anchors.latents, v) for v in (anchors.true, anchors.said))
    return (jnp.mean(anchors.weights * (true - said)[:, 0], axis=0) - anchors.level)[None]


def opaque_density(
    program: Program,
    parameters: Mapping[str, Array],
    rows: Rows,
    latents: Float[Array, "S K rows latents"],
    values: Mapping[str, Float[Array, "S K rows *axes"]],
) -> Float[Array, "S K rows"]:
    """Sum of the terms that read opaque values, at given latents and values."""
    pairs = [(o, term) for o in program.observations for term in o.terms if term.method == "score"]
    found = _log_density(program, pairs, Scope(parameters, rows, latents, values), latents.shape[:3])
    return penalised(found, values)


def log_density(program: Program, scope: Scope, shape: tuple[int, ...]) -> Float[Array, "*lead rows"]:
    """log p(y_n | f_n) of whole rows at given latent values, shape [*lead, rows] = `shape`."""
    pairs = [(o, Term(o.log_density, (), "pathwise", "")) for o in program.observations]
    return _log_density(program, pairs, scope, shape)


def _score(
    program: Program,
    pairs: list[tuple[ObservationTerms, Term]],
    scope: Scope,
    marginals: Marginals,
    normals: Array,
    externals: Mapping[str, Array],
) -> Float[Array, "K rows"]:
    """Value with score-function gradients for the marginals, ordinary ones for the likelihood's own parameters.

    The samples and the opaque values are constants here; the gradient with respect to the marginals is attached as a
    linear term whose value is zero.
    """
    fixed = jax.tree.map(jax.lax.stop_gradient, marginals)
    at = Scope(scope.parameters, scope.rows, fixed.at(program, normals), externals)
    values = penalised(_log_density(program, pairs, at, normals.shape[:3]), externals)
    return jnp.mean(values, axis=0) + _attached(program, values, normals, marginals, fixed)


def _attached(
    program: Program, values: Array, normals: Array, marginals: Marginals, fixed: Marginals
) -> Float[Array, "K rows"]:
    """Zero, with the score-function estimate of the gradient in the marginals."""
    if marginals.covariance is None or fixed.covariance is None:
        d_mean, d_variance = jax.lax.stop_gradient(score_gradients(values, normals, fixed.variance, program.control))
        moved = d_mean * (marginals.mean - fixed.mean) + d_variance * (marginals.variance - fixed.variance)
        return jnp.sum(moved, axis=-1)
    basis = basis_columns(program)
    root = block_root(fixed.covariance, basis)
    estimate = coupled_score_gradients(values, normals[..., basis], root, program.control)
    d_mean, d_covariance = jax.lax.stop_gradient(estimate)
    spread = (marginals.covariance - fixed.covariance)[..., basis[:, None], basis]
    moved = jnp.sum(d_mean * (marginals.mean - fixed.mean)[..., basis], axis=-1)
    return moved + jnp.sum(d_covariance * spread, axis=(-1, -2))
