"""Standard normals for expectations over univariate Gaussians (SAVIGP Theorem 1): quasi-Monte-Carlo, mirrored, iid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jax.scipy.special import ndtri
from jax.typing import DTypeLike
from jaxtyping import Array, Float
from scipy.special import ndtri as host_ndtri

from gpdsl.kernels.counters import quick_normals
from gpdsl.program.cache import jit

Shape = tuple[int, int, int, int]


def base_normals(
    key: Array,
    samples: int,
    components: int,
    rows: int,
    latents: int,
    halves: bool = False,
    sampling: str = "qmc",
) -> Float[Array, "samples components rows latents"]:
    """Standard normals by the scheme of that name: `qmc`, `antithetic` or `iid`.

    Each of them is marginally standard normal under every scheme, so estimates are unbiased; the rows' errors are
    independent, so they average out in the sum over the data. With `halves` the two halves of the samples are drawn
    independently of each other: estimators that fit on one half and apply to the other need that.
    """
    drawn = _drawing((samples, components, rows, latents), halves, sampling)
    # outside compiled functions one program instead of one for every operation
    return drawn(key) if isinstance(key, jax.core.Tracer) else _compiled(drawn)(key)


@lru_cache
def _drawing(shape: Shape, halves: bool, sampling: str) -> Callable[[Array], Array]:
    """Draws of a shape, as a function of the key."""
    draw = SCHEMES[sampling]
    return (lambda key: _halves(draw, key, shape)) if halves else (lambda key: draw(key, shape))


_compiled = lru_cache(jit)


def _halves(draw: Callable[[Array, Shape], Array], key: Array, shape: Shape) -> Array:
    """Two halves of the samples that do not know of each other."""
    first, second = jax.random.split(key)
    half, rest = shape[0] // 2, shape[1:]
    return jnp.concatenate([draw(first, (half, *rest)), draw(second, (shape[0] - half, *rest))])


def _kronecker(key: Array, shape: Shape) -> Float[Array, "samples components rows latents"]:
    """Randomised quasi-Monte-Carlo: a Kronecker sequence over the samples, shifted anew for every component and row."""
    # Powers of the inverse root of x^(d+1) = x + 1, the generalised golden ratio: a low-discrepancy sequence.
    dimension = shape[-1]
    root = 2.0
    for _ in range(64):
        root = (1.0 + root) ** (1.0 / (dimension + 1))
    slopes = jnp.asarray((1.0 / root) ** np.arange(1, dimension + 1))
    lattice = (jnp.arange(1, shape[0] + 1)[:, None] * slopes) % 1.0
    shift = jax.random.uniform(key, shape[1:], dtype=slopes.dtype)
    uniform = (lattice[:, None, None, :] + shift) % 1.0
    tiny = jnp.finfo(uniform.dtype).eps
    return ndtri(jnp.clip(uniform, tiny, 1.0 - tiny))


def _antithetic(key: Array, shape: Shape) -> Float[Array, "samples components rows latents"]:
    """Pairs z, -z: odd functions of a sample cancel exactly. An odd number of samples leaves one without its mirror."""
    drawn = _independent(key, ((shape[0] + 1) // 2, *shape[1:]))
    return jnp.concatenate([drawn, -drawn])[: shape[0]]


def _independent(key: Array, shape: Shape) -> Float[Array, "samples components rows latents"]:
    return quick_normals(key, shape) if jnp.result_type(float) == jnp.float32 else jax.random.normal(key, shape)


def even_normals(count: int, width: int) -> Float[np.ndarray, "S width"]:
    """So many normals, the same ones every time."""
    uniform = scipy.stats.qmc.Sobol(width, seed=0).random(count)
    found: Float[np.ndarray, "S width"] = host_ndtri(np.clip(uniform, 1e-9, 1.0 - 1e-9))
    return found


ENOUGH = 2
"""Times as many normals as latents from which their covariance is made 1."""


@lru_cache(maxsize=4)
def shared_normals(
    seed: int, samples: int, components: int, latents: int, sampling: str
) -> Float[np.ndarray, "samples components 1 latents"]:
    """The same for all rows, by `qmc` or `antithetic`, without a device and without anything to compile.

    Antithetic ones that are many have the covariance 1 exactly, so that means and variances of linear functions are.
    Else a scrambled Sobol sequence, of which each component has a part; equal parts of it by a power of two are such
    sets on their own, which scatter by more than the error of all of them.
    """
    generator = np.random.default_rng(seed)
    if sampling == "antithetic" or latents > scipy.stats.qmc.Sobol.MAXDIM:
        drawn = generator.standard_normal(((samples + 1) // 2, components, 1, latents))
        if samples % 2 == 0 and len(drawn) >= ENOUGH * latents:
            factors = np.linalg.cholesky(np.einsum("skrl,skrm->klm", drawn, drawn) / len(drawn))
            drawn = np.einsum("klm,skrm->skrl", np.linalg.inv(factors), drawn)
        return np.concatenate([drawn, -drawn])[:samples]
    sequence = scipy.stats.qmc.Sobol(latents, seed=generator).random_base2((samples * components - 1).bit_length())
    uniform = sequence[: samples * components].reshape(components, samples, 1, latents)
    tiny = np.finfo(float).eps
    return host_ndtri(np.clip(np.swapaxes(uniform, 0, 1), tiny, 1.0 - tiny))


SCHEMES: dict[str, Callable[[Array, Shape], Array]] = {
    "qmc": _kronecker,
    "antithetic": _antithetic,
    "iid": _independent,
}


# --- A sum of sampled expectations and its standard error, from replicates: behind every `elbo_se` -------------------


FEWEST = 2.5
"""Degrees of freedom that are assumed at least: of two or fewer no variance exists."""

Variances = tuple[Float[np.ndarray, "strata"], int]
"""Variances of means, and the degrees of freedom of each."""


def sum_and_error(*parts: Float[np.ndarray, "_ ..."]) -> tuple[float, float]:
    """Sum over parts and strata of the means over R replicates, and its standard error.

    Replicates are estimates of the same numbers, independent of each other: sets of samples, not the samples of a set,
    which quasi-Monte-Carlo and mirroring make dependent. Strata are independent of each other too: rows, where each has
    samples of its own. The error is NaN of one replicate.
    """
    rows = [np.asarray(part, float).reshape(len(part), -1) for part in parts]
    return float(sum(np.sum(np.mean(each, axis=0)) for each in rows)), _error([_variances(each) for each in rows])


def some_rows_sum_and_error(replicates: Float[np.ndarray, "R n"], count: int) -> tuple[float, float]:
    """The sum over `count` rows and its standard error, from n of them, drawn without replacement.

    `replicates` are estimates of each, or one that is exact. The variance is that of two-stage sampling: that of the
    rows' means, which has a part of the samples' in it, and the rest of that.
    """
    drawn = replicates.shape[1]
    within, freedom = _variances(replicates) if len(replicates) > 1 else (np.zeros(1), 1)
    between, rows = _variances(count * np.mean(replicates, axis=0)[:, None])
    parts = [(within * count / drawn, freedom), (np.maximum(1.0 - drawn / count, 0.0) * between, rows)]
    return float(count * np.mean(replicates)), _error(parts)


def _variances(replicates: Float[np.ndarray, "R strata"]) -> Variances:
    count = len(replicates)
    return np.var(replicates, axis=0, ddof=1) / count if count > 1 else np.full(replicates.shape[1:], np.nan), count - 1


def _error(parts: list[Variances]) -> float:
    """The root of the sum of variances, and more where these are known from few replicates.

    Scores are then of Student's t, whose variance nu / (nu - 2) is put into the error, so that theirs is 1. The degrees
    of freedom nu are Satterthwaite's, without what the scatter of variances adds to their squares.
    """
    total = float(sum(np.sum(variances) for variances, _ in parts))
    if not total > 0.0:
        return total
    squares = sum(float(np.sum((variances / total) ** 2)) / (freedom + 2) for variances, freedom in parts)
    nu = max(1.0 / squares - 2.0, FEWEST)
    return float(np.sqrt(total * nu / (nu - 2.0)))


# Weighted least squares, row by row, with what each fit would say of a point that it has not seen.

RIDGE = 1e-8
"""Relative addition to the normal equations of a regression, whose polynomials have about unit size."""

CLOSED = 1e-3
"""Least share of its own values that a regression leaves open at a point; with less, it says nothing without them."""


def least_squares(
    features: Float[np.ndarray, "rows P E F"],
    weights: Float[np.ndarray, "rows P"],
    targets: Mapping[str, Float[np.ndarray, "rows P E D"]],
) -> tuple[dict[str, Float[np.ndarray, "rows F D"]], dict[str, Float[np.ndarray, "rows P E D"]]]:
    """Coefficients of each target, and its values at every point by the regression without that point.

    A point has E equations: its value, and its derivatives where they are known. What a regression without a point says
    follows from the one with it: residuals (I - H)^-1 e, with the point's own block H of the projection.
    """
    rows, points, equations, count = features.shape
    weighted = (features * (weights / points)[:, :, None, None]).reshape(rows, -1, count)
    gram = np.swapaxes(features.reshape(rows, -1, count), 1, 2) @ weighted + RIDGE * np.eye(count)
    influence = np.linalg.solve(gram, np.swapaxes(weighted, 1, 2))  # [rows, F, P E]
    by_point = np.moveaxis(influence.reshape(rows, count, points, equations), 2, 1)
    left_open = np.eye(equations) - features @ by_point
    if equations == 1:
        inverse = 1.0 / np.maximum(left_open, CLOSED)
    else:
        inverse = np.linalg.inv(left_open + CLOSED * np.eye(equations))
    coefficients, held_out = {}, {}
    for key, values in targets.items():
        coefficients[key] = influence @ values.reshape(rows, points * equations, -1)
        residual = values - features @ coefficients[key][:, None]
        held_out[key] = values - inverse @ residual
    return coefficients, held_out


def spread_normals(key: Array, shape: tuple[int, ...], dtype: DTypeLike) -> Float[Array, "S rows latents"]:
    """Normals in pairs of opposite sign, of each number one pair from every equal share of the distribution's half.

    What is linear in them averages out, and most of what is a sum of functions of one each. S is even.
    """
    half = shape[0] // 2, *shape[1:]
    which, where, side = jax.random.split(key, 3)
    shares = jnp.broadcast_to(jnp.arange(half[0], dtype=dtype)[:, None, None], half)
    shares = jax.random.permutation(which, shares, axis=0, independent=True)
    inside = jax.random.uniform(where, half, dtype, minval=jnp.finfo(dtype).eps)
    found = jax.random.rademacher(side, half, dtype) * ndtri(0.5 * (shares + inside) / half[0])
    return jnp.concatenate([found, -found])


def passes(
    key: Array, shape: tuple[int, int, int], sets: int, dtype: DTypeLike, even: bool, nodes: bool
) -> tuple[Float[Array, "S rows latents"], Float[Array, "sets"]]:
    """Standard normals of passes through layers, [passes, rows, latents], and the weights of sets of them.

    Independent ones; `spread_normals` where they are to be `even` and their number is; or the `nodes` of a quadrature,
    for one number that is random.
    """
    weights = jnp.full(sets, 1.0 / sets, dtype)
    if nodes:
        at, weighed = np.polynomial.hermite_e.hermegauss(sets)
        weights = jnp.asarray(weighed / np.sum(weighed), dtype)
        return jnp.broadcast_to(jnp.asarray(at, dtype)[:, None, None], shape), weights
    if even and shape[0] % 2 == 0:
        return spread_normals(key, shape, dtype), weights
    return jax.random.normal(key, shape, dtype), weights
