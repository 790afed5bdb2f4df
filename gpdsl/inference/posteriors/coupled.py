"""One Gaussian across all latents, by a site with a block of covariances per row: O(rows Q^2) parameters.

With the whitened values w of all latents stacked, row n reads f_n = prior_n + Phi_n w + residual_n, where Phi_n is
block diagonal by latent. The best Gaussian has the precision I + sum_n Phi_n' Lambda_n Phi_n (SAVIGP eq. 34, with a
Q x Q block Lambda_n instead of a number per latent), and a natural-gradient step leads to the sites

    Lambda*_n = -2 dL_ell/dV_n,      lambda*_n = dL_ell/dm_n + Lambda*_n m_n,

for the expected log likelihood L_ell under f_n ~ N(m_n, V_n). A depth and a velocity of which only the ratio is
observed keep their correlation this way, and with it their spread. No eigenvalue of a block is clipped: a likelihood
that is not log-concave may need a negative one, and a step after which the sum is not positive definite is shortened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from gpdsl.inference.bound import GroupView
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.posteriors.features import RowFeatures
from gpdsl.kernels.numerics import log_det_factor
from gpdsl.program.evaluation import prior_means
from gpdsl.program.joint import Marginals, covariance_table
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows


@dataclass(frozen=True)
class _View:
    """The features of one group's rows, [readings, rows, M], with the latents as leading axis `j` where they differ."""

    phi: Float[Array, "... readings rows M"]
    axes: str
    scale: Float[Array, "latents"]
    readings: int

    @property
    def size(self) -> int:
        """Whitened values of the group: those of one latent after those of the other."""
        return self.scale.shape[0] * self.phi.shape[-1]


def joint_posterior(
    seen: Sequence[GroupView],
    linear: Float[Array, "rows columns"],
    precision: Float[Array, "rows columns columns"],
    prior: Float[Array, "rows columns"],
) -> tuple[list[Whitened], Float[Array, ""]]:
    """q(w) given the sites, group by group, and its KL divergence. All NaN where the precision is indefinite.

    The covariance of all of w is root root', and each group has its rows of that root: the columns are common.
    """
    parts = [_features(view) for view in seen]
    scale = jnp.sqrt(jnp.concatenate([jnp.tile(part.scale, part.readings) for part in parts]))
    total = _precision(seen, parts, precision * scale[:, None] * scale)
    moment = _moment(seen, parts, (linear - jnp.einsum("nij,nj->ni", precision, prior)) * scale)
    identity = jnp.eye(total.shape[0], dtype=total.dtype)
    factor = jnp.linalg.cholesky(identity + total)
    root = solve_triangular(factor, identity, lower=True, trans=1)
    mean = root @ (root.T @ moment)
    divergence = 0.5 * (jnp.sum(root**2) + jnp.sum(mean**2) - mean.shape[0] + log_det_factor(factor))
    ends = np.cumsum([part.size for part in parts])[:-1]
    pieces = zip(parts, jnp.split(mean, ends), jnp.split(root, ends), strict=True)
    shapes = [(part, m, r, (1, part.scale.shape[0], part.phi.shape[-1])) for part, m, r in pieces]
    return [Whitened(m.reshape(shape), r.reshape(*shape, -1)) for _, m, r, shape in shapes], divergence


def joint_marginals(
    program: Program,
    parameters: Mapping[str, Array],
    rows: Rows,
    seen: Sequence[GroupView],
    posterior: Sequence[Whitened],
) -> Marginals:
    """Means and covariances of all that is read of the latents at each row: SAVIGP eqs. 21 to 23 with full V_n."""
    means = []
    for view, q in zip(seen, posterior, strict=True):
        part = _features(view, q.mean.shape[-1])
        mean = jnp.einsum(f"{part.axes},jm->nrj", part.phi, jnp.asarray(q.mean)[0]) * jnp.sqrt(part.scale)
        means.append(mean.reshape(mean.shape[0], -1))
    mean, loaded = jnp.concatenate(means, axis=1), loadings_of(seen, posterior)
    mean = mean + prior_means(program.evaluator, program.groups, parameters, rows, mean.shape[0])
    covariance = loaded @ jnp.swapaxes(loaded, 1, 2) + unexplained(seen, mean)
    return Marginals(mean[None], jnp.diagonal(covariance, axis1=1, axis2=2)[None], covariance[None])


def loadings_of(seen: Sequence[GroupView], posterior: Sequence[Whitened]) -> Float[Array, "rows columns R"]:
    """What the rows read of the standard normals behind all whitened values: their products are covariances."""
    found = []
    for view, q in zip(seen, posterior, strict=True):
        part = _features(view, q.mean.shape[-1])
        loaded = jnp.einsum(f"{part.axes},jmR->nrjR", part.phi, jnp.asarray(q.root)[0])
        scaled = loaded * jnp.sqrt(part.scale)[:, None]
        found.append(scaled.reshape(scaled.shape[0], -1, scaled.shape[-1]))
    return jnp.concatenate(found, axis=1)


def _features(view: GroupView, inducing: int = 0) -> _View:
    """The features of a group; row variables have one of their own per row, and none at new rows."""
    scale, readings = view.kernel.scale, len(view.group.readings.all)
    if isinstance(view.features, RowFeatures):
        count, dtype = view.features.new.shape[0], scale.dtype
        known = view.features.numbers is not None
        phi = jnp.eye(count, dtype=dtype) if known else jnp.zeros((count, inducing), dtype)
        return _View(phi[None], "rnm", scale, readings)
    phi = view.features.phi
    phi = phi.reshape(phi.shape[0], readings, -1, phi.shape[-1])
    return _View(phi[0], "rnm", scale, readings) if phi.shape[0] == 1 else _View(phi, "jrnm", scale, readings)


def _precision(
    seen: Sequence[GroupView], parts: Sequence[_View], weights: Float[Array, "rows columns columns"]
) -> Float[Array, "R R"]:
    """sum_n Phi_n' W_n Phi_n, block by block."""
    blocks = []
    for view, part in zip(seen, parts, strict=True):
        row = []
        for other, there in zip(seen, parts, strict=True):
            inside = weights[:, _columns(view), _columns(other)]
            inside = inside.reshape(inside.shape[0], part.readings, view.group.size, there.readings, other.group.size)
            second = there.axes.translate(str.maketrans("jrm", "ksl"))
            block = jnp.einsum(f"nrjsk,{part.axes},{second}->jmkl", inside, part.phi, there.phi)
            row.append(block.reshape(part.size, there.size))
        blocks.append(row)
    return jnp.block(blocks)


def _moment(
    seen: Sequence[GroupView], parts: Sequence[_View], linear: Float[Array, "rows columns"]
) -> Float[Array, "R"]:
    """sum_n Phi_n' linear_n."""
    found = []
    for view, part in zip(seen, parts, strict=True):
        inside = linear[:, _columns(view)].reshape(-1, part.readings, view.group.size)
        found.append(jnp.einsum(f"nrj,{part.axes}->jm", inside, part.phi).ravel())
    return jnp.concatenate(found)


def _columns(view: GroupView) -> slice:
    return slice(view.group.start, view.group.stop)


def unexplained(seen: Sequence[GroupView], like: Float[Array, "rows columns"]) -> Float[Array, "rows columns columns"]:
    """Covariances of what the inducing values do not explain: within a latent, among what is read of it jointly."""
    total = jnp.zeros((*like.shape, like.shape[1]), like.dtype)
    for view in seen:
        group, part = view.group, _features(view)
        if isinstance(view.features, RowFeatures):
            left = jnp.full((1, like.shape[0]), 1.0 if view.features.numbers is None else 0.0, like.dtype)
        else:
            left = view.features.residual
        by_reading = left.reshape(left.shape[0], part.readings, -1)  # [latents or 1, readings, rows]
        scaled = jnp.moveaxis(by_reading * part.scale[:, None, None], 2, 0)  # [rows, latents, readings]
        own = jnp.swapaxes(scaled, 1, 2).reshape(like.shape[0], -1)
        columns = np.arange(group.start, group.stop)
        total = total.at[:, columns, columns].add(own)
        if group.readings.sums:
            table = covariance_table(replace(group, start=0), own)
            for i, j, _ in group.readings.sums:
                first, second = (group.start + k * group.size + np.arange(group.size) for k in (i, j))
                total = total.at[:, first, second].add(table[i][j]).at[:, second, first].add(table[i][j])
    return total
