"""The exact posterior as a fit holds it: the data in units of their noise, from which everything else follows.

With B = I + H K H' = L L' and alpha = B^-1 z (`exact.system`), what is read of the latents at new rows has the mean
C alpha and loses the covariance V'V, V = L^-1 C', where C is its covariance with H f at the rows of the data. Nothing
is added to a diagonal, so that predictions and evidence are those of the same model, however small its noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float
from scipy.linalg import cho_solve

from gpdsl.errors import GpdslError
from gpdsl.inference.bound import GroupView
from gpdsl.inference.exact.evidence import factorised
from gpdsl.inference.exact.system import Part
from gpdsl.inference.exact.whitening import (
    Whitened,
    at_rows,
    kernel_arguments,
    kinds,
    signal_covariance,
    with_nothing,
)
from gpdsl.inference.posteriors.coupled import unexplained
from gpdsl.inference.posteriors.family import Whitened as Inducing
from gpdsl.inference.posteriors.features import Features, factorise, prior_variances
from gpdsl.inference.posteriors.linear import inverse_root
from gpdsl.kernels.covariance import covariance
from gpdsl.kernels.functionals import Functionals, every_point
from gpdsl.program.compilation import jit
from gpdsl.program.evaluation import functionals_at, prior_means
from gpdsl.program.groups import Group, KernelValues, kernel_values
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows

NUMBERS_AT_ONCE = 16_000_000
"""Covariances of new rows with the data that are held at a time: 128 MB."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Factorised:
    """One part, ready to predict: loadings, L and alpha."""

    loadings: Float[Array, "columns elements rows"]
    factor: Float[Array, "values values"]
    alpha: Float[Array, " values"]


@dataclass(frozen=True, eq=False)
class Regression:
    """The data of an exact fit: each `Part` of the observations, and its values in units of their noise."""

    parts: tuple[Part, ...]
    values: tuple[Whitened, ...]

    @property
    def size(self) -> int:
        """Observed values that share latents, at most."""
        return max((part.size for part in self.parts), default=0)

    def arrays(self) -> dict[str, np.ndarray]:
        """What a file keeps."""
        kept: dict[str, np.ndarray] = {}
        for number, (part, known) in enumerate(zip(self.parts, self.values, strict=True)):
            own: dict[str, Any] = {
                "elements": part.elements,
                "columns": part.columns,
                "rows": part.rows,
                "kept": part.kept,
            }
            own |= {"z": known.z, "loadings": known.loadings}
            kept |= {f"regression.{number}.{name}": np.asarray(v) for name, v in own.items() if v is not None}
        return kept

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Regression | None:
        """The posterior of a file, None where it holds none of this kind."""
        parts: list[Part] = []
        values: list[Whitened] = []
        while (prefix := f"regression.{len(parts)}.") + "z" in arrays:
            elements = tuple((int(s), int(number)) for s, number in arrays[prefix + "elements"])
            columns = tuple(map(int, arrays[prefix + "columns"]))
            parts.append(Part(elements, columns, arrays[prefix + "rows"], arrays.get(prefix + "kept")))
            values.append(Whitened(arrays[prefix + "z"], arrays[prefix + "loadings"]))
        return cls(tuple(parts), tuple(values)) if parts else None

    def check(self, program: Program, read: Sequence[Functionals], rows: int) -> None:
        """Raise ValueError where this is no posterior of the program with so many rows."""
        points = [leaf for each in read for leaf in jax.tree.leaves(each)]
        found = [np.ndim(leaf) == 2 and len(leaf) == rows and bool(np.all(np.isfinite(leaf))) for leaf in points]
        statements = len(program.observations)
        for part, known in zip(self.parts, self.values, strict=True):
            shape = len(part.columns), len(part.elements), len(part.rows)
            found += [np.shape(known.loadings) == shape, np.shape(known.z) == (part.size,), np.ndim(part.rows) == 1]
            found += [bool(np.all(np.isfinite(known.z))), bool(np.all(np.isfinite(known.loadings)))]
            found += [all(0 <= s < statements and number >= 0 for s, number in part.elements)]
            found += [_within(np.asarray(part.columns), program.latents), _within(part.rows, rows)]
            found += [part.kept is None or _within(part.kept, len(part.elements) * len(part.rows))]
        if not all(found):
            raise ValueError("the data of an exact fit do not fit together")

    def factorised(
        self, program: Program, parameters: Mapping[str, Array], read: Sequence[Functionals]
    ) -> list[Factorised]:
        """The parts of the program that was fitted, at its (constrained) parameters and what its rows read.

        Raises GpdslError where a matrix has no Cholesky factor, which a fit that ended well has.
        """
        found = []
        for part, known in zip(self.parts, self.values, strict=True):

            def matrix(loadings: Array, parameters: Any, read: Any, part: Part = part) -> Array:
                return signal_covariance(program, part, loadings, parameters, read)

            loadings = jnp.asarray(known.loadings)
            factor = factorised(jit(matrix)(loadings, dict(parameters), list(read)))
            if factor is None:
                raise GpdslError(
                    "the covariance of the data has no Cholesky factor at the fitted parameters: the noise is too "
                    "small beside the signal for this precision; fix it at a larger value, or use dtype='float64'"
                )
            alpha = cho_solve((factor, True), np.asarray(known.z, factor.dtype), check_finite=False)
            found.append(Factorised(loadings, jnp.asarray(np.tril(factor)), jnp.asarray(alpha)))
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
        seen = [_prior(program, group, rows, parameters) for group in program.groups]
        scale = jnp.concatenate([jnp.tile(v.kernel.scale, len(v.group.readings.all)) for v in seen])
        count = _by_row(seen[0]).shape[0]
        mean = prior_means(program.evaluator, program.groups, parameters, rows, count)
        variance = scale * jnp.concatenate([_by_row(view) for view in seen], axis=1)
        covariance = unexplained(seen, mean) if program.coupled else None
        for part, known in zip(self.parts, parts, strict=True):
            columns, cross = _crossed(part, known, fitted, seen, read, rows)
            lost = solve_triangular(known.factor, cross.reshape(-1, cross.shape[-1]).T, lower=True)
            lost = lost.reshape(-1, len(columns), count)
            mean = mean.at[:, columns].add((cross @ known.alpha).T)
            variance = variance.at[:, columns].add(-jnp.sum(lost**2, axis=0).T)
            if covariance is not None:
                between = jnp.einsum("vcn,vdn->ncd", lost, lost)
                covariance = covariance.at[:, columns[:, None], columns[None, :]].add(-between)
        variance = jnp.maximum(variance, 0.0)  # a difference of nearly equal numbers at the rows of the data
        if covariance is None:
            return Marginals(mean[None], variance[None])
        own = np.arange(variance.shape[1])
        return Marginals(mean[None], variance[None], covariance.at[:, own, own].set(variance)[None])

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
            loaded = _loaded(part, jnp.asarray(known.loadings), program, kernels, factors)
            precision, moment = precision + loaded.T @ loaded, moment + loaded.T @ jnp.asarray(known.z)
        root = inverse_root(precision[None])[0]
        ends = np.cumsum(sizes)[:-1]
        pieces = zip(jnp.split(root @ (root.T @ moment), ends), jnp.split(root, ends), program.groups, strict=True)
        return [Inducing(m.reshape(1, g.size, -1), r.reshape(1, g.size, -1, r.shape[-1])) for m, r, g in pieces]

    def rows_at_once(self, program: Program) -> int:
        """New rows that are looked at together."""
        return max(1, NUMBERS_AT_ONCE // max(self.size * program.latents, 1))


def _within(places: np.ndarray, size: int) -> bool:
    """Whether these are different whole numbers from 0 to below `size`, at least one."""
    whole = np.issubdtype(places.dtype, np.integer) and places.size > 0 and len(np.unique(places)) == places.size
    return bool(whole and places.min() >= 0 and places.max() < size)


def _loaded(
    part: Part,
    loadings: Float[Array, "columns elements rows"],
    program: Program,
    kernels: Sequence[KernelValues],
    factors: Sequence[Float[Array, "factors M M"]],
) -> Float[Array, "values whitened"]:
    """A of one part: what its values read of the whitened values of all processes."""
    found, padded, (_, elements, count) = [], with_nothing(loadings), loadings.shape
    for group, kernel, factor in zip(program.groups, kernels, factors, strict=True):
        own = [jnp.zeros((elements * count, factor.shape[-1]))] * group.size
        for kind in kinds(group, part.columns):
            apart = factor[kind.factor].reshape(len(group.readings.basis), -1, factor.shape[-1])[:, part.rows]
            for place, process in enumerate(kind.processes):
                weights = jnp.stack([padded[places[place]] for places in kind.columns.values()])
                read = jnp.einsum("ren,rnm->enm", weights, apart[np.asarray(list(kind.columns))])
                own[process] = jnp.sqrt(kernel.scale[process]) * read.reshape(elements * count, -1)
        found += own
    whole = jnp.concatenate(found, axis=1)
    return whole if part.kept is None else whole[part.kept]


def _prior(program: Program, group: Group, rows: Rows, parameters: Mapping[str, Array]) -> GroupView:
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


def _crossed(
    part: Part,
    known: Factorised,
    fitted: Program,
    seen: Sequence[GroupView],
    read: Sequence[Functionals],
    rows: Rows,
) -> tuple[np.ndarray, Float[Array, "columns rows values"]]:
    """The columns whose latents a part tells about, and their covariances with its values without noise."""
    columns: list[int] = []
    found: list[Array] = []
    padded, (_, elements, count) = with_nothing(known.loadings), known.loadings.shape
    for before, view, of_all in zip(fitted.groups, seen, read, strict=True):
        group, at = view.group, at_rows(of_all, part.rows)
        new = functionals_at(group, group.readings.all, rows)
        for kind in kinds(before, part.columns):
            block = covariance(group.form, kernel_arguments(view.kernel, kind.factor), new, at)
            apart = block.reshape(len(group.readings.all), -1, len(before.readings.basis), count)
            for place, process in enumerate(kind.processes):
                weights = jnp.stack([padded[places[place]] for places in kind.columns.values()])
                some = apart[:, :, np.asarray(list(kind.columns))]
                crossed = view.kernel.scale[process] * jnp.einsum("snrm,rem->snem", some, weights)
                found.append(crossed.reshape(*crossed.shape[:2], elements * count))
                columns += [group.start + s * group.size + int(process) for s in range(len(group.readings.all))]
    cross = jnp.concatenate(found)
    return np.asarray(columns), cross if part.kept is None else cross[..., part.kept]
