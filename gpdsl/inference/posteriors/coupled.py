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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float
from scipy.linalg.lapack import dpstrf

from gpdsl.errors import GpdslError
from gpdsl.inference.bound import GroupView, Views, views, whitened_marginals
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.posteriors.features import Features, RowFeatures, prior_covariances
from gpdsl.kernels.functionals import Functionals
from gpdsl.kernels.numerics import log_det_factor
from gpdsl.program.evaluation import functionals_at
from gpdsl.program.groups import Group
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


def joint_marginals(seen: Views, posterior: Sequence[Whitened], *, in_blocks: bool = False) -> Marginals:
    """Means and covariances of all that is read of the latents at each row: SAVIGP eqs. 21 to 23 with full V_n.

    What they are products of is large: `in_blocks` of rows it stays near the processor.
    """
    means = []
    for view, q in zip(seen, posterior, strict=True):
        part = _features(view, q.mean.shape[-1])
        mean = jnp.einsum(f"{part.axes},jm->nrj", part.phi, jnp.asarray(q.mean)[0]) * jnp.sqrt(part.scale)
        means.append(mean.reshape(mean.shape[0], -1))
    mean = jnp.concatenate(means, axis=1)
    mean = mean + seen.prior(mean.shape[0])
    products = _in_blocks if in_blocks and _divides(seen) else _products
    covariance = products(seen, posterior) + unexplained(seen, mean)
    return Marginals(mean[None], jnp.diagonal(covariance, axis1=1, axis2=2)[None], covariance[None])


ROWS_AT_ONCE = 32
"""Rows whose loadings are in memory together."""


def _products(seen: Sequence[GroupView], posterior: Sequence[Whitened]) -> Float[Array, "rows columns columns"]:
    loaded = loadings_of(seen, posterior)
    return loaded @ jnp.swapaxes(loaded, 1, 2)


def _divides(seen: Sequence[GroupView]) -> bool:
    """Whether rows come in full blocks, and are told apart by their features alone."""
    features = [view.features for view in seen]
    if any(isinstance(each, RowFeatures) for each in features):
        return False
    counts = {_features(view).phi.shape[-2] for view in seen}
    return all(count > ROWS_AT_ONCE and count % ROWS_AT_ONCE == 0 for count in counts)


def _in_blocks(seen: Sequence[GroupView], posterior: Sequence[Whitened]) -> Float[Array, "rows columns columns"]:
    """The products, of some rows after the other."""

    def of_block(start: Array) -> Array:
        return _products([_some_rows(view, start) for view in seen], posterior)

    count = _features(seen[0]).phi.shape[-2]
    blocks = jax.lax.map(of_block, jnp.arange(0, count, ROWS_AT_ONCE))
    return blocks.reshape(count, *blocks.shape[2:])


def _some_rows(view: GroupView, start: Array) -> GroupView:
    """The features of a block of rows, for each reading."""
    assert isinstance(view.features, Features)
    readings = len(view.group.readings.all)
    phi = view.features.phi.reshape(view.features.phi.shape[0], readings, -1, view.features.phi.shape[-1])
    part = jax.lax.dynamic_slice_in_dim(phi, start, ROWS_AT_ONCE, axis=2)
    return replace(view, features=replace(view.features, phi=part.reshape(len(phi), -1, phi.shape[-1])))


def marginals_of(seen: Views, posterior: Sequence[Whitened]) -> Marginals:
    """Marginals under one Gaussian of all latents where the program is coupled, else under one of each group."""
    if seen.program.coupled:
        return joint_marginals(seen, posterior, in_blocks=True)
    return whitened_marginals(seen, posterior)


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


# The posterior of what is read of the latents at many rows together: covariances between rows, and their roots.
#
# At unit kernel scale a latent with whitened inducing values of covariance S has phi S phi' + K - phi phi' over the
# rows: SAVIGP eqs. 37 to 39 with all of K. Programs here read no sums (`Program.without_sums`), and the rows are new
# ones, where row variables have their prior.

MOST = 25_000_000
"""Covariances that are held at a time: those of one latent at 5000 rows."""

ROUNDING = 64.0
"""Units of rounding of the largest variance that a covariance of rows may be off: below them a root ends."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Block:
    """Columns of the marginals that depend on each other, and their covariances over the rows for each component."""

    columns: tuple[int, ...] = field(metadata={"static": True})
    covariance: Float[Array | np.ndarray, "K columns rows columns rows"]

    def root(self, component: int) -> Float[np.ndarray, "values rank"]:
        """A root of one covariance by pivoted Cholesky: rows that lie close together make it nearly singular."""
        columns, rows = self.covariance.shape[1:3]
        given = np.asarray(self.covariance[component])
        whole = given.astype(float).reshape(columns * rows, -1)
        tolerance = ROUNDING * float(np.finfo(given.dtype).eps) * max(float(np.max(np.diagonal(whole))), 0.0)
        factor, pivots, rank, _ = dpstrf(whole, tol=tolerance, lower=1)
        root = np.zeros((len(whole), rank))
        root[pivots - 1] = np.tril(factor)[:, :rank]
        return root


def processes(group: Group) -> np.ndarray:
    """The columns of each latent process of a group, [processes, readings]."""
    return group.start + np.arange(group.size)[:, None] + group.size * np.arange(len(group.readings.all))


class TooManyRows(GpdslError):
    """There is no room for covariances between so many rows."""


def verify_size(blocks: Sequence[Block], count: int) -> None:
    """Raise TooManyRows where these (shapes of) blocks over so many rows are more than is held."""
    numbers = sum(block.covariance.size for block in blocks)
    if numbers > MOST:
        raise TooManyRows(
            f"{count} rows: joint draws and covariances need a matrix over all rows, which for this model goes to "
            f"{int(count * (MOST / numbers) ** 0.5)} rows; ask for fewer of them"
        )


def left_open(
    view: GroupView, rows: Rows, phi: Float[Array, "g n M"] | None = None
) -> Float[Array, "latents readings rows readings rows"]:
    """Of each process of a group the prior covariance that features `phi` do not explain; all of it without any."""
    group, readings = view.group, len(view.group.readings.all)
    if isinstance(view.features, RowFeatures):
        left = jnp.eye(view.features.new.shape[0], dtype=view.features.new.dtype)[None]
    else:
        left = prior_covariances(group, view.kernel, functionals_at(group, group.readings.all, rows))
        left = left if phi is None else left - phi @ jnp.swapaxes(phi, -1, -2)
    scaled = view.kernel.scale[:, None, None] * left
    shape = readings, scaled.shape[-1] // readings
    return scaled.reshape(-1, *shape, *shape)


def whitened_blocks(
    program: Program,
    rows: Rows,
    parameters: Mapping[str, Array],
    posterior: Sequence[Whitened],
    inducing: Sequence[Functionals],
    jitter: float,
) -> list[Block]:
    """The blocks of a posterior over whitened inducing values: one of each process, or one of all that are coupled."""
    seen = views(program, parameters, inducing, rows, False, jitter)
    left = [left_open(v, rows, None if isinstance(v.features, RowFeatures) else v.features.phi) for v in seen]
    if program.coupled:
        loaded = loadings_of(seen, posterior)
        total = jnp.einsum("ncR,mdR->cndm", loaded, loaded)
        return [block_of(range(program.latents), with_processes(total, range(program.latents), seen, left)[None])]
    found = []
    for view, q, open_ in zip(seen, posterior, left, strict=True):
        for number, columns in enumerate(processes(view.group)):
            told = _explained(view, q, number)
            found.append(block_of(columns, open_[number] + told.reshape(-1, *open_.shape[1:])))
    return found


def block_of(columns: Iterable[int], covariance: Float[Array, "K columns rows columns rows"]) -> Block:
    """A block of these columns."""
    return Block(tuple(map(int, columns)), covariance)


def _explained(view: GroupView, q: Whitened, process: int) -> Float[Array, "K values values"]:
    """phi S phi' of one process."""
    if isinstance(view.features, RowFeatures):
        return jnp.zeros((len(q.mean), *[view.features.new.shape[0]] * 2))
    phi = view.features.phi
    loaded = phi[min(process, len(phi) - 1)] @ jnp.asarray(q.root)[:, process]
    return view.kernel.scale[process] * loaded @ jnp.swapaxes(loaded, -1, -2)


def with_processes(
    total: Float[Array, "columns rows columns rows"],
    columns: Iterable[int],
    seen: Sequence[GroupView],
    left: Sequence[Array],
) -> Float[Array, "columns rows columns rows"]:
    """Covariances of some columns, with those that each of their processes has on its own added."""
    places = {int(column): place for place, column in enumerate(columns)}
    for view, of_group in zip(seen, left, strict=True):
        for own, each in zip(processes(view.group), of_group, strict=True):
            if int(own[0]) in places:
                at = np.asarray([places[int(column)] for column in own])
                total = total.at[at[:, None], :, at[None, :]].add(jnp.swapaxes(each, 1, 2))
    return total
