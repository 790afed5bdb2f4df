"""The exact posterior as a fit holds it: the data in units of their noise, from which everything else follows.

With B = I + H K H' = L L' and alpha = B^-1 z (`exact.system`), what is read of the latents at new rows has the mean
C alpha and loses the covariance V'V, V = L^-1 C', where C is its covariance with H f at the rows of the data. Nothing
is added to a diagonal, so that predictions and evidence are those of the same model, however small its noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float
from scipy.linalg import cho_solve

from gpdsl.errors import GpdslError
from gpdsl.inference.bound import GroupView
from gpdsl.inference.exact.crossing import crossed, crossed_by_level, loaded_by, values_first
from gpdsl.inference.exact.evidence import factorised
from gpdsl.inference.exact.parts import Part, by_level, sets_of
from gpdsl.inference.exact.whitening import (
    Whitened,
    signal_covariance,
)
from gpdsl.inference.posteriors.coupled import Block, block_of, left_open, processes, unexplained, with_processes
from gpdsl.inference.posteriors.family import Whitened as Inducing
from gpdsl.inference.posteriors.family import inverse_root
from gpdsl.inference.posteriors.features import Features, factorise, prior_variances
from gpdsl.kernels.functionals import Functionals, every_point
from gpdsl.program.cache import jit
from gpdsl.program.evaluation import functionals_at, prior_means
from gpdsl.program.groups import Group, kernel_values
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows

NUMBERS_AT_ONCE = 16_000_000
"""Covariances of new rows with the data that are held at a time: 128 MB."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Factorised:
    """One part, ready to predict: loadings, L and alpha."""

    loadings: Float[Array, "sets columns elements rows"]
    factor: Float[Array, "sets values values"]
    alpha: Float[Array, "sets values"]


@dataclass(frozen=True, eq=False)
class Regression:
    """The data of an exact fit: each `Part` of the observations, and its values in units of their noise."""

    parts: tuple[Part, ...]
    values: tuple[Whitened, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many observed values each set has that shares no latent with others."""
        return tuple(size for part in self.parts for size in part.sizes)

    def arrays(self) -> dict[str, np.ndarray]:
        """What a file keeps."""
        kept: dict[str, np.ndarray] = {}
        for number, (part, known) in enumerate(zip(self.parts, self.values, strict=True)):
            own = {name: getattr(part, name) for name in ("elements", "columns", "rows", "kept")}
            own |= {"z": known.z, "loadings": known.loadings}
            kept |= {f"regression.{number}.{name}": np.asarray(v) for name, v in own.items() if v is not None}
        return kept

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Regression | None:
        """The posterior of a file, None where it holds none of this kind."""
        parts: list[Part] = []
        values: list[Whitened] = []
        while (prefix := f"regression.{len(parts)}.") + "z" in arrays:
            own = {name: arrays.get(prefix + name) for name in ("elements", "columns", "rows", "kept", "z", "loadings")}
            values.append(Whitened(own.pop("z"), own.pop("loadings")))  # type: ignore[arg-type]  # checked by `check`
            parts.append(Part(**own))  # type: ignore[arg-type]
        return cls(tuple(parts), tuple(values)) if parts else None

    def check(self, program: Program, read: Sequence[Functionals], rows: int) -> None:
        """Raise ValueError where this is no posterior of the program with so many rows."""
        points = [leaf for each in read for leaf in jax.tree.leaves(each)]
        found = [np.ndim(leaf) == 2 and len(leaf) == rows and bool(np.all(np.isfinite(leaf))) for leaf in points]
        statements = len(program.observations)
        for part, known in zip(self.parts, self.values, strict=True):
            found += [part.elements.ndim == 3, part.columns.ndim == part.rows.ndim == 2]
            found += [part.kept is None or part.kept.ndim == 2]
            if not all(found):
                break
            sets, elements, seen = len(part.rows), part.elements.shape[1], part.rows.shape[1]
            shape = sets, part.columns.shape[1], elements, seen
            found += [np.shape(known.loadings) == shape, np.shape(known.z) == (sets, part.width)]
            found += [bool(np.all(np.isfinite(known.z))), bool(np.all(np.isfinite(known.loadings)))]
            found += [bool(np.all((part.elements >= 0) & (part.elements[..., :1] < statements)))]
            found += [part.elements.shape == (sets, elements, 2), len(part.columns) == sets]
            found += [
                *(_within(own, program.latents) for own in np.unique(part.columns, axis=0)),
                *(_within(np.unique(own), rows) for own in part.rows),
            ]
            if part.kept is not None:
                found += [len(part.kept) == sets, *(_within(own[own >= 0], elements * seen) for own in part.kept)]
        if not all(found):
            raise ValueError("the data of an exact fit do not fit together")

    def factorised(
        self,
        program: Program,
        parameters: Mapping[str, Array],
        read: Sequence[Functionals],
        compiled: dict[Any, Callable[..., Any]],
    ) -> list[Factorised]:
        """The parts of the program that was fitted, at its (constrained) parameters and what its rows read.

        `compiled` keeps what was compiled, for the same data at other parameters.

        Raises GpdslError where a matrix has no Cholesky factor, which a fit that ended well has.
        """
        found = []
        for number, (part, known) in enumerate(zip(self.parts, self.values, strict=True)):

            def matrix(loadings: Array, parameters: Any, read: Any, part: Part = part) -> Array:
                return signal_covariance(program, part, loadings, parameters, read)

            loadings = jnp.asarray(known.loadings)
            compute = compiled.setdefault(("part", number), jit(matrix))
            matrices = np.asarray(compute(loadings, dict(parameters), list(read)))
            factors = [factor for each in matrices if (factor := factorised(each)) is not None]
            if len(factors) < len(matrices):
                raise GpdslError(
                    "the covariance of the data has no Cholesky factor at the fitted parameters: the noise is too "
                    "small beside the signal for this precision; fix it at a larger value, or use dtype='float64'"
                )
            whole = np.tril(np.stack(factors))
            z = np.asarray(known.z, whole.dtype)
            alpha = [cho_solve((f, True), each, check_finite=False) for f, each in zip(whole, z, strict=True)]
            found.append(Factorised(loadings, jnp.asarray(whole), jnp.asarray(np.stack(alpha))))
        return found

    def marginals(
        self,
        fitted: Program,
        program: Program,
        rows: Rows,
        parameters: Mapping[str, Array],
        read: Sequence[Functionals],
        parts: Sequence[Factorised],
    ) -> Marginals:
        """Means and variances at rows of all that `program` reads of the latents of the `fitted` one.

        With the covariances among them where the program asks for these. `parts` are what `factorised` gives.
        """
        seen = [prior_view(program, group, rows, parameters) for group in program.groups]
        scale = jnp.concatenate([jnp.tile(v.kernel.scale, len(v.group.readings.all)) for v in seen])
        count = _by_row(seen[0]).shape[0]
        mean = prior_means(program.evaluator, program.groups, parameters, rows, count)
        variance = scale * jnp.concatenate([_by_row(view) for view in seen], axis=1)
        covariance = unexplained(seen, mean) if program.coupled else None
        for part, known in zip(self.parts, parts, strict=True):
            if by_level(part, fitted.groups):
                found = (mean, variance, covariance)
                mean, variance, covariance = _told_by_level(part, known, fitted, seen, read, rows, found)
                continue
            columns, cross = crossed(part, known.loadings, fitted, seen, read, rows)
            lost = jax.vmap(partial(solve_triangular, lower=True))(known.factor, values_first(cross))
            lost = lost.reshape(*lost.shape[:2], columns.shape[1], count)
            told = jnp.einsum("scnv,sv->nsc", cross, known.alpha)
            mean = mean.at[:, columns].add(told)
            variance = variance.at[:, columns].add(-jnp.moveaxis(jnp.sum(lost**2, axis=1), -1, 0))
            if covariance is not None:
                between = jnp.einsum("svcn,svdn->nscd", lost, lost)
                covariance = covariance.at[:, columns[:, :, None], columns[:, None, :]].add(-between)
        variance = jnp.maximum(variance, 0.0)  # a difference of nearly equal numbers at the rows of the data
        if covariance is None:
            return Marginals(mean[None], variance[None])
        own = np.arange(variance.shape[1])
        return Marginals(mean[None], variance[None], covariance.at[:, own, own].set(variance)[None])

    def blocks(
        self,
        fitted: Program,
        program: Program,
        rows: Rows,
        parameters: Mapping[str, Array],
        read: Sequence[Functionals],
        parts: Sequence[Factorised],
    ) -> list[Block]:
        """Covariances between rows, K - V'V, of the latents of each set of observed values, and of latents of none."""
        seen = [prior_view(program, group, rows, parameters) for group in program.groups]
        left = [left_open(view, rows) for view in seen]
        told: dict[tuple[int, ...], Array] = {}
        for part, known in zip(self.parts, parts, strict=True):
            columns, cross = crossed(part, known.loadings, fitted, seen, read, rows)
            lost = jax.vmap(partial(solve_triangular, lower=True))(known.factor, values_first(cross))
            lost = lost.reshape(*lost.shape[:2], columns.shape[1], -1)
            each, which = np.unique(columns, axis=0, return_inverse=True)
            for number, own in enumerate(map(tuple, each.tolist())):
                its = lost[np.flatnonzero(which.ravel() == number)]
                told[own] = told.get(own, 0.0) - jnp.einsum("svcn,svdm->cndm", its, its)  # type: ignore[arg-type]
        found = [block_of(own, with_processes(lost, own, seen, left)[None]) for own, lost in told.items()]
        told_about = {column for block in found for column in block.columns}
        for view, of_group in zip(seen, left, strict=True):
            alone = zip(processes(view.group), of_group, strict=True)
            found += [block_of(own, each[None]) for own, each in alone if int(own[0]) not in told_about]
        return found

    def at_inducing(
        self, program: Program, parameters: Mapping[str, Array], read: Sequence[Functionals], jitter: float
    ) -> list[Inducing]:
        """The same posterior over the whitened values of what the rows read, for a fit that starts from this one.

        With u = sqrt(scale) F w, F F' = K and A = H sqrt(scale) F, w has the precision I + A'A and the mean of A'z.
        """
        kernels, factors = [], []
        for group, at in zip(program.groups, read, strict=True):
            kernels.append(kernel_values(program.evaluator, group, parameters, every_point(at).shape[-1]))
            factors.append(factorise(group, kernels[-1], at, jitter))
        sizes = [group.size * f.shape[-1] for group, f in zip(program.groups, factors, strict=True)]
        precision, moment = jnp.zeros((sum(sizes), sum(sizes))), jnp.zeros(sum(sizes))
        for part, known in zip(self.parts, self.values, strict=True):
            loaded = loaded_by(part, jnp.asarray(known.loadings), program, kernels, factors)

            def add(total: tuple[Array, Array], own: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
                return (total[0] + own[0].T @ own[0], total[1] + own[0].T @ own[1]), None

            (precision, moment), _ = jax.lax.scan(add, (precision, moment), (loaded, jnp.asarray(known.z)))
        root = inverse_root(precision[None])[0]
        ends = np.cumsum(sizes)[:-1]
        pieces = zip(jnp.split(root @ (root.T @ moment), ends), jnp.split(root, ends), program.groups, strict=True)
        return [Inducing(m.reshape(1, g.size, -1), r.reshape(1, g.size, -1, r.shape[-1])) for m, r, g in pieces]

    def rows_at_once(self, program: Program) -> int:
        """New rows that are looked at together."""
        by_row = [part.width * (part.width + program.latents) for part in self.parts if by_level(part, program.groups)]
        whole = sum(sum(part.sizes) for part in self.parts if not by_level(part, program.groups)) * program.latents
        return max(1, NUMBERS_AT_ONCE // max(whole, *by_row, 1))


def _told_by_level(
    part: Part,
    known: Factorised,
    fitted: Program,
    seen: Sequence[GroupView],
    read: Sequence[Functionals],
    rows: Rows,
    prior: tuple[Array, Array, Array | None],
) -> tuple[Array, Array, Array | None]:
    """Means, variances and covariances at rows, of which each has to do with the sets of its own levels alone."""
    mean, variance, covariance = prior
    every = jnp.arange(len(mean))[:, None]
    for sets in sets_of(part, fitted.groups, [view.group for view in seen], read, rows):
        columns, cross = crossed_by_level(part, known.loadings, fitted, seen, read, rows, sets)
        factor, alpha = known.factor[sets.clip(0)], known.alpha[sets.clip(0)]
        lost = jax.vmap(partial(solve_triangular, lower=True))(factor, jnp.swapaxes(cross, 1, 2))
        mean = mean.at[every, columns].add(jnp.einsum("ncv,nv->nc", cross, alpha))
        variance = variance.at[every, columns].add(-jnp.sum(lost**2, axis=1))
        if covariance is not None:
            between = jnp.einsum("nvc,nvd->ncd", lost, lost)
            covariance = covariance.at[every[:, :, None], columns[:, :, None], columns[:, None, :]].add(-between)
    return mean, variance, covariance


def _within(places: np.ndarray, size: int) -> bool:
    """Whether these are different whole numbers from 0 to below `size`, at least one."""
    whole = np.issubdtype(places.dtype, np.integer) and places.size > 0 and len(np.unique(places)) == places.size
    return bool(whole and places.min() >= 0 and places.max() < size)


def prior_view(program: Program, group: Group, rows: Rows, parameters: Mapping[str, Array]) -> GroupView:
    """A group as if nothing of it were explained, in the form in which posteriors by inducing values have it."""
    at = functionals_at(group, group.readings.all, rows)
    kernel = kernel_values(program.evaluator, group, parameters, every_point(at).shape[-1])
    prior = prior_variances(group, kernel, at)
    nothing = jnp.zeros((*prior.shape, 1), prior.dtype)
    return GroupView(group, kernel, Features(nothing, prior, nothing))


def _by_row(view: GroupView) -> Float[Array, "rows columns"]:
    """Prior variances at unit scale, one column per reading and process."""
    assert isinstance(view.features, Features)
    group, prior = view.group, view.features.residual
    apart = jnp.broadcast_to(prior, (group.size, prior.shape[-1])).reshape(group.size, len(group.readings.all), -1)
    return jnp.swapaxes(apart, 0, 1).reshape(group.size * len(group.readings.all), -1).T
