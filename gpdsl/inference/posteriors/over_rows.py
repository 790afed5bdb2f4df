"""The posterior of what is read of the latents at many rows together: covariances between rows, and their roots.

At unit kernel scale a latent with whitened inducing values of covariance S has phi S phi' + K - phi phi' over the rows:
SAVIGP eqs. 37 to 39 with all of K. Programs here read no sums (`Program.without_sums`), and the rows are new ones,
where row variables have their prior.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.linalg.lapack import dpstrf

from gpdsl.errors import GpdslError
from gpdsl.inference.bound import GroupView, views
from gpdsl.inference.posteriors.coupled import loadings_of
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.posteriors.features import RowFeatures, prior_covariances
from gpdsl.kernels.functionals import Functionals
from gpdsl.program.evaluation import functionals_at
from gpdsl.program.groups import Group
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows

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


def verify_size(blocks: Sequence[Block], count: int) -> None:
    """Raise GpdslError where these (shapes of) blocks over so many rows are more than is held."""
    numbers = sum(block.covariance.size for block in blocks)
    if numbers > MOST:
        raise GpdslError(
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
