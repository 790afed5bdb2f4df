"""Posterior families over the whitened inducing values: SAVIGP eq. 8, q(w) = sum_k pi_k prod_j N(w_j; m_kj, S_kj).

A family says, for one group of latents, how its parameters give marginal moments, entropies and the cross entropy with
the prior. `whitened` turns any of them into the one form that predictions use. `families` lists them by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Int
from scipy.linalg import solve_triangular as solve_on_host

from gpdsl.errors import GpdslError
from gpdsl.inference.posteriors.features import Features, RowFeatures, information, inverse_root, row_moments
from gpdsl.kernels.numerics import log_det_factor, solve_lower
from gpdsl.language.options import OPTIONS

LOG_2PI = float(np.log(2.0 * np.pi))
INITIAL_SD = 0.1
"""Start narrow: an exponential likelihood sampled under a wide prior can overflow before the first step."""

Parameters = Mapping[str, Array]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Whitened:
    """Moments of the whitened inducing values of one group, on the device or the host: covariance is root root'.

    Of row variables, which are independent, `root` holds the standard deviations alone, [K, latents, rows, 1].
    """

    mean: Float[Array | np.ndarray, "K latents M"]
    root: Float[Array | np.ndarray, "K latents M M"]

    def moments(
        self, features: Features | RowFeatures
    ) -> tuple[Float[Array, "K latents rows"], Float[Array, "K latents rows"]]:
        """Means and variances of the latents at the features' rows, SAVIGP eqs. 37 to 39 at unit kernel scale."""
        if isinstance(features, RowFeatures):
            return row_moments(jnp.asarray(self.mean), jnp.asarray(self.root)[..., 0] ** 2, features)
        variance = project_root(features, jnp.asarray(self.root)) + features.residual
        return project(features, jnp.asarray(self.mean)), variance


class Held(Protocol):
    """What holds a posterior that is not one over whitened inducing values."""

    def arrays(self) -> dict[str, np.ndarray]:
        """What a file keeps."""


class Family(Protocol):
    """What every posterior family answers, for one group. Means and variances are for unit kernel scale.

    `features` are what the group's kind of latents has: `Features`, or `RowFeatures` of row variables. All methods but
    the first two take parameters as `prepare` returns them.
    """

    @property
    def components(self) -> int:
        """Number of mixture components."""

    def init(self, mean: Float[np.ndarray, "K latents M"], reads: int) -> dict[str, np.ndarray]:
        """Starting parameters around whitened means; `reads` counts what all rows read of a latent."""

    def prepare(self, q: Parameters, features: Any) -> Parameters:
        """What follows from the parameters, and the features of all rows, once for all other methods."""

    def moments(self, q: Parameters, features: Any) -> tuple[Array, Array]:
        """Means and variances [K, latents, rows] of the latents at the features' rows."""

    def entropy(self, q: Parameters) -> Float[Array, "K"]:
        """Entropy of each component."""

    def pairs(self, q: Parameters, features: Any) -> tuple[Float[Array, "K K"], Float[Array, "K K"]]:
        """(m_k - m_l)'(S_k + S_l)^-1 (m_k - m_l) and log |S_k + S_l|: what bounds of a mixture's entropy need."""

    def cross(self, q: Parameters, features: Any) -> Float[Array, "K"]:
        """E_k[log p(u)], SAVIGP eq. 19, in the same coordinates as `entropy`."""

    def whitened(self, q: Parameters, features: Any) -> Whitened:
        """The same distribution as means and roots of whitened values."""


def project(features: Features, vectors: Float[Array, "K latents M"]) -> Float[Array, "K latents rows"]:
    """phi(x)' vector for every row."""
    if features.phi.shape[0] == 1:
        return vectors @ features.phi[0].T
    return jnp.einsum("jnm,kjm->kjn", features.phi, vectors)


def project_square(features: Features, weights: Float[Array, "K latents M"]) -> Float[Array, "K latents rows"]:
    """phi(x)' diag(weights) phi(x) for every row."""
    return project(Features(features.phi**2, features.residual, features.factor), weights)


def project_root(features: Features, root: Float[Array, "K latents M columns"]) -> Float[Array, "K latents rows"]:
    """|root' phi(x)|^2 for every row."""
    return jnp.sum(jnp.square(features.phi @ root), axis=-1)


@dataclass(frozen=True)
class Full:
    """Gaussians with a full covariance per latent, by its Cholesky factor: one (SAVIGP 6.2.1), or a mixture (eq. 8).

    All of them are closed under linear maps, so whitened coordinates serve a dense posterior too.
    """

    components: int = 1

    def init(self, mean: Float[np.ndarray, "K latents M"], reads: int) -> dict[str, np.ndarray]:
        inducing = mean.shape[-1]
        root = np.zeros((*mean.shape, inducing))
        root[..., np.arange(inducing), np.arange(inducing)] = np.log(INITIAL_SD)
        return {"mean": mean, "root": root}

    def prepare(self, q: Parameters, features: Any) -> Parameters:
        """The diagonal of a root is kept by its logarithm."""
        raw = q["root"]
        diagonal = jnp.exp(jnp.diagonal(raw, axis1=-2, axis2=-1))
        return {**q, "root": jnp.tril(raw, -1) + diagonal[..., None] * jnp.eye(raw.shape[-1], dtype=raw.dtype)}

    def moments(self, q: Parameters, features: Features) -> tuple[Array, Array]:
        return project(features, q["mean"]), project_root(features, q["root"]) + features.residual

    def entropy(self, q: Parameters) -> Array:
        return 0.5 * jnp.sum(log_det_factor(q["root"]) + q["mean"].shape[-1] * (LOG_2PI + 1.0), axis=-1)

    def pairs(self, q: Parameters, features: Features) -> tuple[Array, Array]:
        """O(K^2 M^3) per latent: one Cholesky factor of S_k + S_l for each pair of components."""
        root, mean, count = q["root"], q["mean"], self.components
        own = jnp.diag(jnp.sum(log_det_factor(root) + mean.shape[-1] * jnp.log(2.0), axis=-1))
        first, second = np.triu_indices(count, 1)
        stacked = jnp.concatenate([root[first], root[second]], axis=-1)
        factor = jnp.linalg.cholesky(stacked @ jnp.swapaxes(stacked, -1, -2))
        apart = solve_triangular(factor, (mean[first] - mean[second])[..., None], lower=True)
        gaps, log_dets = jnp.sum(apart**2, axis=(1, 2, 3)), jnp.sum(log_det_factor(factor), axis=-1)
        table = jnp.zeros((count, count), mean.dtype)
        gaps, log_dets = table.at[first, second].set(gaps), table.at[first, second].set(log_dets)
        return gaps + gaps.T, log_dets + log_dets.T + own

    def cross(self, q: Parameters, features: Features) -> Array:
        squares = jnp.sum(q["mean"] ** 2, axis=-1) + jnp.sum(q["root"] ** 2, axis=(-1, -2))
        return -0.5 * jnp.sum(q["mean"].shape[-1] * LOG_2PI + squares, axis=-1)

    def whitened(self, q: Parameters, features: Features) -> Whitened:
        return Whitened(q["mean"], q["root"])


@dataclass(frozen=True)
class Diagonal:
    """Mixture of diagonal Gaussians (SAVIGP 6.2.2).

    Sparse: diagonal in the whitened inducing values. Dense: diagonal in the latent values at the rows themselves, so
    that their marginals are q's own (section 6.1); means are whitened in both, which changes nothing but conditioning.
    """

    components: int = 1
    dense: bool = False

    def init(self, mean: Float[np.ndarray, "K latents M"], reads: int) -> dict[str, np.ndarray]:
        return {"mean": mean, "log_sd": np.full(mean.shape, np.log(INITIAL_SD))}

    def prepare(self, q: Parameters, features: Any) -> Parameters:
        """The parameters are used as they are."""
        return q

    def moments(self, q: Parameters, features: Features) -> tuple[Array, Array]:
        weights = jnp.exp(2.0 * q["log_sd"])
        variance = weights if self.dense else project_square(features, weights) + features.residual
        return project(features, q["mean"]), variance

    def entropy(self, q: Parameters) -> Array:
        return jnp.sum(q["log_sd"] + 0.5 * (LOG_2PI + 1.0), axis=(-1, -2))

    def pairs(self, q: Parameters, features: Features) -> tuple[Array, Array]:
        means = project(features, q["mean"]) if self.dense else q["mean"]
        weights = jnp.exp(2.0 * q["log_sd"])
        sums = weights[:, None] + weights[None, :]
        gaps = (means[:, None] - means[None, :]) ** 2 / sums
        return jnp.sum(gaps, axis=(-1, -2)), jnp.sum(jnp.log(sums), axis=(-1, -2))

    def cross(self, q: Parameters, features: Features) -> Array:
        weights, count = jnp.exp(2.0 * q["log_sd"]), q["mean"].shape[-1]
        if self.dense:
            precision = jnp.sum(_inverse(features.factor) ** 2, axis=-2)  # diagonal of Kuu^-1
            traces = jnp.sum(weights * precision, axis=-1) + log_det_factor(features.factor)
        else:
            traces = jnp.sum(weights, axis=-1)
        return -0.5 * jnp.sum(count * LOG_2PI + jnp.sum(q["mean"] ** 2, axis=-1) + traces, axis=-1)

    def whitened(self, q: Parameters, features: Features) -> Whitened:
        sd = jnp.exp(q["log_sd"])
        if self.dense:
            return Whitened(q["mean"], _inverse(features.factor) * sd[..., None, :])
        return Whitened(q["mean"], sd[..., None] * jnp.eye(sd.shape[-1], dtype=sd.dtype))


@dataclass(frozen=True)
class PerRow(Diagonal):
    """Row variables: mixture of Gaussians that are diagonal over the rows."""

    def moments(self, q: Parameters, features: Any) -> tuple[Array, Array]:
        return row_moments(q["mean"], jnp.exp(2.0 * q["log_sd"]), features)

    def whitened(self, q: Parameters, features: Features) -> Whitened:
        return Whitened(q["mean"], jnp.exp(q["log_sd"])[..., None])


def _inverse(factor: Float[Array, "g M M"]) -> Float[Array, "g M M"]:
    return solve_lower(factor, jnp.broadcast_to(jnp.eye(factor.shape[-1], dtype=factor.dtype), factor.shape))


# The posterior families by name, and how many numbers each of them has to find.

SINGLE: dict[str, Callable[[bool], Family]] = {
    "coupled": lambda dense: Full(),
    "full": lambda dense: Full(),
    "linear": lambda dense: Linear(),
    "diagonal": lambda dense: Diagonal(1, dense),
}
MIXTURES: dict[str, Callable[[int, bool], Family]] = {
    "mixture": Diagonal,
    "mixture_full": lambda components, dense: Full(components),
}


def parse_family(text: str, dense: bool) -> Family:
    """The family a user named: `full`, `linear`, `diagonal`, `mixture(K)` or `mixture_full(K)`."""
    if text in SINGLE:
        return SINGLE[text](dense)
    match = re.fullmatch(r"(mixture|mixture_full)\(\s*([1-9][0-9]{0,2})\s*\)", text)
    if match:
        return MIXTURES[match.group(1)](int(match.group(2)), dense)
    raise GpdslError(f"posterior = {text!r}: expected {OPTIONS['posterior'].takes.expected}")


def size(family: Family, inducing: int, reads: int) -> int:
    """Numbers that say the posterior of one latent; `reads` counts what all rows read of it."""
    match family:
        case Linear():
            return inducing + reads
        case Full(components=count):
            return count * (inducing + inducing * (inducing + 1) // 2)
    return 2 * family.components * inducing


# --- The full Gaussian posterior by a number of parameters linear in the rows: SAVIGP Theorem 2 ----------------------


@dataclass(frozen=True)
class Linear(Full):
    """One Gaussian per latent whose covariance is S = (Kuu^-1 + sum_n lambda_n a_n a_n')^-1, a_n = Kuu^-1 k_u(x_n).

    This is where the optimum lies among all covariances (eq. 34; dense: eq. 35, a_n the unit vectors). Whitened,
    S^-1 = I + sum_n lambda_n phi_n phi_n'. A lambda is kept as its inverse hyperbolic sine: logarithmic where a row
    says much, and free to be negative, as at an outlier of a heavy-tailed likelihood. All NaN where S^-1 is not
    positive definite, which a line search steps back from.
    """

    def init(self, mean: Float[np.ndarray, "K latents M"], reads: int) -> dict[str, np.ndarray]:
        """Each read as informative as one observation with the prior's variance as noise."""
        return {"mean": mean, "site": np.full((*mean.shape[:2], reads), np.arcsinh(1.0))}

    def prepare(self, q: Parameters, features: Features) -> Parameters:
        """Roots of the covariances, from the features of all rows: O(reads M^2) per latent."""
        precision = information(features, jnp.sinh(q["site"][0]))
        return {"mean": q["mean"], "root": inverse_root(precision)[None]}


class Roots(NamedTuple):
    """What q says of the latents of a group at places together: f = mean + root u + what is left open, u ~ N(0, I).

    The places tell u; what inducing values leave open, with these variances, they do not.
    """

    columns: slice
    mean: Float[np.ndarray, "latents rows"]
    root: Float[np.ndarray, "latents rows M"]
    left: Float[np.ndarray, "latents rows"]


ELEMENTS = 2**20
"""More than a statement has."""


class Inverse(NamedTuple):
    """Of values z ~ N(0, B) in units of their noise: B^-1 among those of one row, alpha = B^-1 z, and a spread.

    To the spread, tr B - 1'B1 / n, the squares of the values about their mean add up in expectation.
    """

    beside: Float[np.ndarray, "values different"]
    """B^-1 of each value with those of its row, by their elements in order; 0 for what is not there."""
    alpha: Float[np.ndarray, " values"]
    spread: float
    rows: Int[np.ndarray, " values"]
    """The number of the row of each value."""
    elements: Int[np.ndarray, " values"]
    """Of which element of which statement each value is, as one number."""

    @property
    def places(self) -> Int[np.ndarray, " values"]:
        """Of which of the different elements each value is."""
        return np.unique(self.elements, return_inverse=True)[1]

    @property
    def diagonal(self) -> Float[np.ndarray, " values"]:
        """1 / B^-1_ii is the variance that the other values leave open."""
        return self.beside[np.arange(len(self.rows)), self.places]


def beside(
    inverse: Float[np.ndarray, "n n"], rows: Int[np.ndarray, " n"], elements: Int[np.ndarray, " n"]
) -> Float[np.ndarray, "n different"]:
    """That of values with this B^-1, of which one triangle is enough."""
    different, which = np.unique(elements, return_inverse=True)
    places = np.full((np.max(rows, initial=0) + 1, len(different)), -1)
    places[rows, which] = own = np.arange(len(rows))
    others = places[rows]
    found = inverse[np.maximum(own[:, None], others), np.minimum(own[:, None], others)]
    return np.where(others < 0, 0.0, found)


def spread_of(factor: Float[np.ndarray, "n n"]) -> float:
    """That of values with this Cholesky factor of B, lower triangular."""
    return float(np.sum(factor**2) - np.sum(np.sum(factor, axis=0) ** 2) / len(factor))


# What a posterior says of its latents at a few rows, in NumPy, from covariances of the prior: nothing is compiled.

Matrix = Float[np.ndarray, "n m"]


class Told(NamedTuple):
    """Covariances at some rows of two latents, by their columns, but for those that are 0; means of each, less those
    of its prior; and `Posterior.inverses`."""

    covariances: dict[tuple[int, int], Matrix]
    means: dict[int, Float[np.ndarray, " rows"]]
    inverses: Sequence[Inverse] = ()


@dataclass(frozen=True, eq=False)
class Covariances:
    """Of a group whose columns begin at `start`: scales, variances of white noise besides, and covariances at scale 1.

    `known` are those of what its posterior is over, `cross` of that with some rows, `own` of these.
    """

    start: int
    scale: Float[np.ndarray, " latents"]
    white: Float[np.ndarray, " latents"]
    known: Float[np.ndarray, "factors M M"]
    cross: Float[np.ndarray, "factors M rows"]
    own: Float[np.ndarray, "factors rows rows"]

    def latents(self) -> Iterator[tuple[int, int, float]]:
        """Column, kernel and scale of every latent."""
        for j, scale in enumerate(self.scale):
            yield self.start + j, min(j, len(self.known) - 1), float(scale)

    @cached_property
    def prior(self) -> dict[int, Matrix]:
        """Covariances of every latent at the rows, by its column."""
        return {column: scale * self.own[which] for column, which, scale in self.latents()}


def features(
    known: Float[np.ndarray, "M M"], cross: Float[np.ndarray, "M rows"], jitter: float
) -> Float[np.ndarray, "rows M"]:
    """phi = K_ru L'^-1 of whitened values, L L' = K_uu with the jitter of the fit."""
    lifted = known + jitter * np.mean(np.diagonal(known)) * np.eye(len(known))
    return np.asarray(solve_on_host(np.linalg.cholesky(lifted), cross, lower=True).T)


def told_by_values(groups: Sequence[Covariances], q: Sequence[Whitened], coupled: bool, jitter: float) -> Told:
    """By one Gaussian of whitened values, S = R R': K - phi phi' + phi S phi', SAVIGP eqs. 37 to 39 with all of K."""
    loaded, found, means = dict[int, Matrix](), dict[tuple[int, int], Matrix](), dict[int, np.ndarray]()
    for group, each in zip(groups, q, strict=True):
        phis = [features(known, cross, jitter) for known, cross in zip(group.known, group.cross, strict=True)]
        for column, which, scale in group.latents():
            mean, root = (np.asarray(own[0, column - group.start], float) for own in (each.mean, each.root))
            means[column] = np.sqrt(scale) * phis[which] @ mean
            loaded[column] = np.sqrt(scale) * phis[which] @ root
            found[column, column] = scale * (group.own[which] - phis[which] @ phis[which].T)
    pairs = ((a, b) for a in loaded for b in loaded if coupled or a == b)
    return Told({(a, b): found.get((a, b), 0.0) + loaded[a] @ loaded[b].T for a, b in pairs}, means)
