"""Predictive log densities log E_q[p(y|f)]: exact where log p is quadratic, else by adaptive quadrature or samples."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float
from scipy.special import logsumexp as log_sum_on_host

from gpdsl.errors import GpdslWarning, plural
from gpdsl.inference.expected_log_likelihood import log_density
from gpdsl.inference.sampling import shared_normals
from gpdsl.program.joint import column_roots
from gpdsl.program.program import Program
from gpdsl.program.quadrature import STEPS
from gpdsl.results.cells import ENOUGH, LogFunction, RowFunction, around_mode, around_modes, gradients, log_mean
from gpdsl.results.expectation import Beliefs
from gpdsl.results.integrals import sample_latents
from gpdsl.results.simulations import SETS
from gpdsl.symbolic.expectations import has_external, latents_in
from gpdsl.symbolic.functions import floor
from gpdsl.symbolic.kinks import bends, kinks
from gpdsl.symbolic.terms import quadratic

# Log densities of rows at draws of their latents, through opaque functions too.

SAMPLES = 4096
OPAQUE_SAMPLES = 1024


def log_densities(beliefs: Beliefs, latents: Array, externals: dict[str, Array]) -> Float[Array, "S K rows"]:
    """log p(y_n | f_n) of every row at these latents."""
    shape = (*latents.shape[:2], beliefs.count)
    return log_density(beliefs.program, beliefs.scope(latents, externals), shape)


def log_average(values: Float[Array, "S K rows"]) -> Float[Array, "K rows"]:
    """The logarithm of the mean of densities over draws."""
    return logsumexp(values, axis=0) - jnp.log(values.shape[0])


def drawn_log_densities(beliefs: Beliefs) -> Float[np.ndarray, "S K rows"]:
    """log p(y_n | f_n) of every row at draws of its latents from each component."""
    if is_opaque(beliefs.program):
        return np.asarray(opaque_log_densities(beliefs))
    latents, _ = sample_latents(beliefs, SAMPLES, need_externals=False)
    return np.asarray(beliefs.compile("densities", lambda known, at: log_densities(known, at, {}))(latents))


def is_opaque(program: Program) -> bool:
    """Whether rows have densities by samples alone: through opaque functions, or fields."""
    densities = [o.log_density for o in program.observations]
    return bool(program.fields) or any(has_external(program.translator, d) for d in densities)


def opaque_log_densities(beliefs: Beliefs) -> Float[Array, "S K rows"]:
    """The same at draws, through opaque functions, called in between at as many samples as the budget allows."""
    simulations, count = beliefs.simulations, OPAQUE_SAMPLES if np.any(beliefs.marginals.variance) else 1
    if simulations is None or not simulations.uses:
        if simulations is not None:
            count = simulations.likelihood_samples(beliefs, count)
        latents, externals = sample_latents(beliefs, count, need_externals=False)
    else:
        latents, externals = sample_latents(beliefs, count, need_externals=True)
        allowed = simulations.likelihood_samples(beliefs, len(latents))
        some = np.arange(allowed) * len(latents) // allowed  # of all sets
        latents, externals = latents[some], {key: value[some] for key, value in externals.items()}
    if simulations is not None and simulations.likelihoods:
        externals |= simulations.likelihood_values(beliefs, latents, externals)
    return log_densities(beliefs, latents, externals)


AGREE = 1e-7
"""Nats to which two rules have to agree; cells serve rows where they do not."""

AGREE_OF_MANY = 0.01
"""Nats to which rules have to agree of one of many draws, over which errors average out; and how well samples do."""

MOST_LATENTS = 16
"""Of which samples are drawn around modes: each takes the curvature along all of them."""

CELLS_AT_ONCE = 1 << 14

UNSURE = 0.1
"""Nats by which a log density may be wrong without a warning."""

FOLDED = 1 << 16
"""Rows times components that are taken together."""


def log_predictive(beliefs: Beliefs, rough: bool = False, many: bool = False) -> Float[np.ndarray, "rows"]:
    """log p(y_n | data) at every row of `beliefs.rows`, which must hold the outputs.

    `rough` for a draw of all latents; `many` for one of many draws of which something is open: where the quadrature
    along two latents is not right to a hundredth of a nat there are samples, which take a thousandth of cells.
    """
    return _combine(beliefs, of_components(beliefs, rough, many))


def of_components(beliefs: Beliefs, rough: bool = False, many: bool = False) -> Float[Array | np.ndarray, "K rows"]:
    """The same under each component alone: in each pass through layers."""
    if is_opaque(beliefs.program):
        return log_average(opaque_log_densities(beliefs))
    size = max(FOLDED // len(beliefs.weights), 1)
    some = [beliefs.part(slice(at, at + size)) for at in range(0, beliefs.count, size)]
    found = [_of_folded(part.folded(), rough or beliefs.rough, many).reshape(-1, part.count) for part in some]
    return np.concatenate(found, axis=1)


def _of_folded(beliefs: Beliefs, rough: bool, many: bool) -> Float[np.ndarray, "1 rows"]:
    """Log densities of rows with one component each; without cells where those are `rough` samples themselves."""
    densities = [o.log_density for o in beliefs.program.observations]
    involved = _columns(beliefs, densities)
    if not rough and _wants_cells(beliefs, densities, involved):
        return _in_cells(beliefs, involved)
    values = beliefs.compile("density", lambda known: _method(known, densities, involved)(known, involved))()
    if values.ndim == 2:
        return np.asarray(values)
    found, fewer = np.asarray(values)
    sampled = len(involved) > 2
    agree = _at_least(AGREE_OF_MANY if many or sampled else AGREE, beliefs)
    unsure = np.flatnonzero(np.any(~(np.abs(found - fewer) <= agree), axis=0))
    if unsure.size and not (rough or (many and sampled)):
        found = found.copy()
        better = _around_modes if sampled else _by_samples if many else _in_cells
        found[:, unsure] = better(beliefs.part(unsure), involved)
    return found


def _at_least(tolerance: float, beliefs: Beliefs) -> float:
    """A tolerance that rounding allows: in single precision cells would be halved for ever."""
    return max(tolerance, 64.0 * float(jnp.finfo(beliefs.marginals.mean.dtype).eps))


def _wants_cells(beliefs: Beliefs, densities: Sequence[sp.Expr], involved: Sequence[int]) -> bool:
    """Of one latent, and of two where a density jumps or bends; what is quadratic is exact without."""
    translator = beliefs.program.translator
    if quadratic(translator, densities):
        return False
    bending = any(bends(density, latents_in(translator, density)) for density in densities)
    return len(involved) == 1 or (len(involved) == 2 and bending)


def _method(
    beliefs: Beliefs, densities: Sequence[sp.Expr], involved: Sequence[int]
) -> Callable[[Beliefs, list[int]], Array]:
    if not involved:
        return _certain
    if quadratic(beliefs.program.translator, densities):
        return _gaussian
    return _adaptive if len(involved) <= 2 else _sampled


def _columns(beliefs: Beliefs, densities: Sequence[sp.Expr]) -> list[int]:
    """Columns of the latents the outputs depend on; generic reads stand for all their elements."""
    program, found = beliefs.program, set()
    for density in densities:
        for symbol in latents_in(program.translator, density):
            ref = program.translator.references[symbol]
            if all(isinstance(p, int) for p in ref.positions):
                found.add(program.evaluator.column(symbol))
            else:
                found.update(range(*program.evaluator.columns[ref.name, ref.reading]))
    return sorted(found)


def _row_function(beliefs: Beliefs, involved: list[int]) -> RowFunction:
    """Log density of rows with one component each as a function of the standard normals behind the involved latents."""
    index, base = jnp.asarray(involved, int), beliefs.marginals.mean[0]
    root = column_roots(beliefs.program, beliefs.marginals, 0, involved) if involved else None

    def function(normals: Array) -> Array:
        moved = normals if root is None else jnp.einsum("nij,nj->ni", root, normals)
        latents = base.at[:, index].set(base[:, index] + moved)
        return log_density(beliefs.program, beliefs.scope(latents), (beliefs.count,))

    return function


def _origin(beliefs: Beliefs, involved: list[int]) -> Float[Array, "rows J"]:
    """Where all standard normals behind the involved latents are 0."""
    return jnp.zeros((beliefs.count, len(involved)), beliefs.marginals.mean.dtype)


def _certain(beliefs: Beliefs, involved: list[int]) -> Float[Array, "1 rows"]:
    """The log density itself: no output reads a latent."""
    return _row_function(beliefs, involved)(_origin(beliefs, involved))[None]


def _in_cells(beliefs: Beliefs, involved: list[int]) -> Float[np.ndarray, "1 rows"]:
    """By cells between the places where the outputs' densities jump or bend."""
    tables = beliefs.compile("lines", lambda known: _lines(known, involved))()
    cuts = [(np.asarray(level[0]), np.asarray(slopes[0])) for level, slopes in tables]
    function, enough = _log_function(beliefs, involved), _at_least(ENOUGH, beliefs)
    return log_mean(function, cuts, beliefs.count, len(involved), enough)[None]


def _log_function(beliefs: Beliefs, involved: list[int]) -> LogFunction:
    """The log density of rows at normals, some at a time; their number is rounded up, for few programs."""

    def at(known: Beliefs, normals: Array) -> Array:
        return jax.lax.map(_row_function(known, involved), normals)

    def function(rows: np.ndarray, normals: np.ndarray) -> np.ndarray:
        found = np.empty(normals.shape[:2])
        for start in range(0, len(rows), CELLS_AT_ONCE):
            part = slice(start, start + CELLS_AT_ONCE)
            count = len(rows[part])
            size = min(CELLS_AT_ONCE, max(64, 1 << (count - 1).bit_length()))
            chosen = np.pad(rows[part], (0, size - count))
            given = np.pad(np.moveaxis(normals[part], 1, 0), ((0, 0), (0, size - count), (0, 0)))
            values = beliefs.part(chosen).compile("cells", at)(given.astype(beliefs.marginals.mean.dtype))
            found[part] = np.asarray(values)[:, :count].T
        return found

    return function


def _lines(beliefs: Beliefs, involved: list[int]) -> list[tuple[Array, Array]]:
    """Level [1, rows] and slopes [1, rows, J] in the normals of what is zero where a density jumps or bends."""
    program, index, found = beliefs.program, jnp.asarray(involved, int), []
    units = jnp.concatenate([jnp.zeros((1, len(involved))), jnp.eye(len(involved))])
    moved = jnp.einsum("nij,uj->uni", column_roots(program, beliefs.marginals, 0, involved), units)[:, None]
    latents = jnp.broadcast_to(beliefs.marginals.mean, (len(units), *beliefs.marginals.mean.shape))
    scope = beliefs.scope(latents.at[..., index].add(moved))
    for observation in program.observations:
        density = observation.log_density
        bending = latents_in(program.translator, density)
        for kink in (kinks(density, bending) if bends(density, bending) else ()) or ():
            line, stepping = (kink.args[0], True) if isinstance(kink, floor) else (kink, False)
            values = jnp.asarray(program.evaluator(line, scope, observation.axes))
            shape = (*latents.shape[:3], *values.shape[values.ndim - len(observation.axes) :])
            values = jnp.broadcast_to(values, shape).reshape(*latents.shape[:3], -1)
            for level, *others in jnp.moveaxis(values, -1, 0):
                slopes = jnp.stack([each - level for each in others], axis=-1)
                near = jnp.floor(level)
                steps = [near + k for k in range(-STEPS, STEPS + 1)] if stepping else [jnp.zeros_like(level)]
                found += [(level - step, slopes) for step in steps]
    return found


def _gaussian(beliefs: Beliefs, involved: list[int]) -> Float[Array, "1 rows"]:
    """log of int exp(quadratic) N: exact.

    With the standard normals z behind the latents, l(z) of slope b and curvature -A at 0, and C = I + A:
    log E = l(m) - m'm/2 - log|C| / 2 at the mode m = C^-1 b of both. At 0 that would be the difference of two numbers
    as large as the square of what is not noise in units of the noise. Of directions that the outputs do not read there
    is but rounding in A and b.
    """
    function, origin = _row_function(beliefs, involved), _origin(beliefs, involved)
    _, b, hessian = gradients(function, origin)
    curvature, turn = jnp.linalg.eigh(-hessian)
    rounding = 4 * len(involved) * jnp.finfo(b.dtype).eps * jnp.max(jnp.abs(curvature), axis=1, keepdims=True)
    read = jnp.abs(curvature) > rounding
    c = 1.0 + jnp.where(read, curvature, 0.0)
    mode = jnp.einsum("nij,nj->ni", turn, jnp.where(read, jnp.einsum("nij,ni->nj", turn, b), 0.0) / c)
    return (function(mode) - 0.5 * jnp.sum(mode**2, axis=1) - 0.5 * jnp.sum(jnp.log(c), axis=1))[None]


def _adaptive(beliefs: Beliefs, involved: list[int]) -> Float[Array, "2 1 rows"]:
    """One or two latents: Gauss–Hermite quadrature around the mode of p(y|f) q(f), as wide as a narrow one needs.

    It is exact for what is smooth; where its two rules disagree, it is not.
    """
    return around_mode(_row_function(beliefs, involved), _origin(beliefs, involved))[:, None]


def _sampled(beliefs: Beliefs, involved: list[int]) -> Float[Array, "2 1 rows"]:
    """log mean over samples of p(y|f), for several latents; SAVIGP section 7. The second is off by its error."""
    del involved
    values = log_densities(beliefs, *sample_latents(beliefs, SAMPLES, need_externals=False))
    found, sets = log_average(values), jnp.stack([log_average(some) for some in jnp.split(values, SETS)])
    error = jnp.std(jnp.exp(sets - found), axis=0, ddof=1) / np.sqrt(SETS)
    return jnp.stack([found, found + error])


def _by_samples(beliefs: Beliefs, involved: list[int]) -> Float[np.ndarray, "1 rows"]:
    """The same of few rows, whose number is rounded up for few programs."""
    some = beliefs.filled_up
    return np.asarray(some.compile("sampled", lambda known: _sampled(known, involved)[0])())[:, : beliefs.count]


def _around_modes(beliefs: Beliefs, involved: list[int]) -> Float[np.ndarray, "1 rows"]:
    """By samples from where the outputs are likely: those of the latents' own law may all be far from there."""
    some, count = beliefs.filled_up, len(involved)
    if count > MOST_LATENTS:
        found, off = np.asarray(some.compile("sampled of many", lambda known: _sampled(known, involved))())[:, 0]
        error = off - found
    else:
        sizes = SAMPLES // 4, SAMPLES
        starts, normals = (
            shared_normals(beliefs.seed + k, size, 1, count, "qmc").reshape(-1, count) for k, size in enumerate(sizes)
        )

        def compute(known: Beliefs, starts: Array, normals: Array) -> tuple[Array, Array]:
            return around_modes(_row_function(known, involved), known.count, starts, normals)

        dtype = beliefs.marginals.mean.dtype
        found, error = some.compile("modes", compute)(jnp.asarray(starts, dtype), jnp.asarray(normals, dtype))
    _warn_of_error(np.asarray(error)[: beliefs.count], "their outputs are far from what samples of the latents say")
    return np.asarray(found)[None, : beliefs.count]


def _warn_of_error(errors: Float[np.ndarray, "rows"], why: str) -> None:
    """A warning where log densities are known to no better than `UNSURE`."""
    unsure = int(np.count_nonzero(~(errors <= UNSURE)))
    if unsure:
        warnings.warn(
            f"log densities of {plural(unsure, 'row')} are known to {np.max(errors):.2g} nats at worst, "
            f"above {UNSURE:g}: {why}; judge those by `prediction.quantile` or `probability`",
            GpdslWarning,
            stacklevel=9,
        )


def _error_of_passes(beliefs: Beliefs, per_component: Float[np.ndarray, "K rows"]) -> Float[np.ndarray, "rows"]:
    """The error of log densities of rows of which sets of passes through layers differ."""
    index = np.split(np.arange(len(beliefs.weights)), SETS)
    each = np.stack([_log_sum(per_component[i], beliefs.weights[i]) for i in index])
    shares = np.exp(each - np.max(each, axis=0))
    return np.std(shares, axis=0, ddof=1) / np.sqrt(SETS) / np.maximum(np.mean(shares, axis=0), 1e-300)


def _combine(beliefs: Beliefs, per_component: Float[Array | np.ndarray, "K rows"]) -> np.ndarray:
    found = np.asarray(per_component)
    if beliefs.program.inner:
        why = (
            f"few of {len(beliefs.weights)} passes through layers come near their outputs, as the noise is narrow or "
            "the outputs are far out"
        )
        _warn_of_error(_error_of_passes(beliefs, found), why)
    return _log_sum(found, beliefs.weights)


def _log_sum(values: Float[np.ndarray, "K rows"], weights: Float[np.ndarray, "K"]) -> Float[np.ndarray, "rows"]:
    """log of the weighted sum of exponentials, on the host: JAX compiles a dozen programs for it."""
    with np.errstate(divide="ignore"):
        return np.asarray(log_sum_on_host(values, axis=0, b=weights[:, None]), values.dtype)
