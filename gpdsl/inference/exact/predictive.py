"""Predictions of the exact posterior.

With B = I + H K H' = L L' and alpha = B^-1 z (`exact.system`), what is read of the latents at new rows has the mean
C alpha and loses the covariance V'V, V = L^-1 C', where C is its covariance with H f at the rows of the data. Nothing
is added to a diagonal, so that predictions and evidence are those of the same model, however small its noise.

Whole functions are draws of the prior, bent to the data by Matheron's rule: f = g + C B^-1 (z - H g - e) has the
posterior of f for a draw g of the prior and e ~ N(0, I): O(N) per point. Wilson et al. (2020), Efficiently sampling
functions from GP posteriors, eq. 12.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float
from scipy.linalg import cho_solve as solve_with, get_lapack_funcs

from gpdsl.errors import GpdslError, need, plural, shown
from gpdsl.inference.bound import GroupView
from gpdsl.inference.exact.evidence import factorised_in_place
from gpdsl.inference.exact.parts import Part, by_level, sets_of
from gpdsl.inference.exact.posterior import (
    PLACES,
    New,
    Regression,
    crossed,
    crossed_by_level,
    told_by_data,
    values_first,
    values_of,
    values_read,
)
from gpdsl.inference.exact.system import Prior, Whitened as InUnits, statement
from gpdsl.inference.plan.options import Choice, Options
from gpdsl.inference.posteriors import posterior
from gpdsl.inference.posteriors.coupled import Block, block_of, left_open, processes, unexplained, with_processes
from gpdsl.inference.posteriors.family import Covariances, Inverse, Told, Whitened, beside, spread_of
from gpdsl.inference.posteriors.features import Features, prior_variances
from gpdsl.inference.posteriors.pathwise import PriorDraws, by_column, random_waves, refuse_unsuited
from gpdsl.inference.problem import as_arrays, as_numpy
from gpdsl.inference.warm import Later
from gpdsl.kernels.functionals import Functionals
from gpdsl.kernels.numerics import jitter_for
from gpdsl.program.cache import jit, precision
from gpdsl.program.evaluation import functionals_at, prior_means
from gpdsl.program.groups import Group, kernel_values
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows

ROUNDING = (0, 1, 10, 100, 1000)
"""Multiples of the rounding of the largest variance that may be added to the noise."""

QUICKER = 10
"""By how much a factorisation and an inverse of one large matrix take less than so many products of small ones."""

NUMBERS_AT_ONCE = 16_000_000
"""Covariances of new rows with the data that are held at a time: 128 MB."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Factorised:
    """One part, ready to predict: loadings, L and alpha."""

    loadings: Float[Array | np.ndarray, "sets columns elements rows"]
    factor: Float[Array | np.ndarray, "sets values values"]
    alpha: Float[Array | np.ndarray, "sets values"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Conditioned:
    """Draws of the prior of each group, and B^-1 (z - H g - e) of each part of the observed values.

    With what is `known` of the parts, and what the rows of the data `read`.
    """

    prior: list[PriorDraws]
    duals: list[Float[Array, "sets values draws"]]
    known: Any
    read: list[Functionals]


def marginals_told(mean: Array, variance: Array, covariance: Array | None) -> Marginals:
    """Those of rows, with covariances of what is read there, if any, that have these variances."""
    variance = jnp.maximum(variance, 0.0)  # a difference of nearly equal numbers at the rows of the data
    if covariance is None:
        return Marginals(mean[None], variance[None])
    own = np.arange(variance.shape[1])
    return Marginals(mean[None], variance[None], covariance.at[:, own, own].set(variance)[None])


@dataclass(frozen=True, eq=False)
class Exact(posterior.Posterior):
    """Held by the data in units of their noise; `inducing` is what the rows of the data read."""

    held: Regression
    whitened, by_data = False, True

    @staticmethod
    def suits(program: Program, choice: Choice) -> bool:
        return bool(choice.exact or choice.sets) and not choice.grid

    def stored(self, arrays: posterior.Arrays, rows: int, options: Options) -> tuple[tuple[Whitened, ...], Regression]:
        need(len(self.inducing) == len(self.program.groups), posterior.UNLIKE)
        held = Regression.from_arrays(arrays)
        held.check(self.program, self.inducing, rows)
        return (), held

    def check(self, choice: Choice, options: Options) -> None:
        need(choice.dense == (choice.inducing == 0), posterior.DENSE)
        kind, parts = "coupled" if self.program.mixing else "full", self.held.parts
        apart = bool(choice.sets) and choice.posterior == "full"
        need(apart or choice.posterior == kind, f"choice: posterior is {shown(choice.posterior)}: expected {kind}")
        need((choice.exact or choice.sets) == self.held.sizes, "choice: exact is not the sizes of the data")
        need(choice.grid or all(part.grid is None for part in parts), "choice: the data are on a grid, and it has none")
        places = [getattr(part, name) for part in parts for name in PLACES]
        whole = all(each is None or each.dtype.kind == "i" for each in places)
        need(whole, "the places of the data are no whole numbers")
        numbers = [array for each in self.held.values for array in (each.z, each.loadings)]
        need(all(array.dtype == self.dtype for array in numbers), "the data are not of the precision of the fit")

    def support(self, choice: Choice, rows: int) -> str:
        sizes, what = self.held.sizes, "exact, of" if choice.exact else "by level,"
        blocks = f", in {len(sizes)} blocks, the largest of {max(sizes)}" if len(sizes) > 1 else ""
        return f"{what} {plural(sum(sizes), ('observed' if choice.exact else 'latent') + ' value')}{blocks}"

    def carried(self) -> tuple[Later, float, None]:
        """Over the whitened values of what the rows read, when these are looked at."""
        jitter = jitter_for(np.dtype(self.dtype))
        return Later(len(self.inducing), partial(self._at_inducing, jitter)), jitter, None

    def _at_inducing(self, jitter: float) -> list[Whitened]:
        with precision(self.dtype):
            parameters, read = as_arrays((dict(self.parameters), list(self.inducing)), self.dtype)
            compute = jit(lambda numbers, read: self.held.at_inducing(self.program, numbers, read, jitter), brief=True)
            return list(as_numpy(compute(parameters, read)))

    @cached_property
    def numbers(self) -> tuple[Any, tuple[Any, list[Functionals]]]:
        """The parameters, every part factorised there, and what the rows of the data read.

        Raises GpdslError where a matrix has no Cholesky factor, which a fit that ended well has but for rounding.
        """
        parameters, read = as_arrays((dict(self.parameters), list(self.inducing)), self.dtype)
        found = []
        for number, known in enumerate(self.held.values):
            compute = self.compiled.setdefault(("part", number), jit(self._signal(number)))
            found.append(_factorised(np.asarray(compute(known.loadings, parameters, read)), known))
        return parameters, (as_arrays(found, self.dtype), read)

    def numbers_of(self, each: Sequence[posterior.Posterior]) -> tuple[Any, tuple[Any, list[Functionals]]]:
        """All matrices of a part by one program."""
        several = [own for own in each if isinstance(own, Exact)]
        parameters, found = posterior.stacked([dict(own.parameters) for own in several]), []
        for number in range(len(self.held.parts)):
            known = [own.held.values[number] for own in several]
            loadings = np.stack([one.loadings for one in known])
            signals = jit(jax.vmap(self._signal(number), in_axes=(0, 0, None)))
            compute = self.compiled.setdefault(("parts", number), signals)
            matrices = np.asarray(compute(loadings, parameters, list(self.inducing)))
            found.append(posterior.stacked(list(map(_factorised, matrices, known))))
        return parameters, (found, list(self.inducing))

    def _signal(self, number: int) -> Callable[[Array, Any, Any], Array]:
        """H K H' of a part, at some loadings, parameters and what the rows read."""

        def matrix(loadings: Array, parameters: Any, read: Any) -> Array:
            return Prior(self.program, parameters, read).signal(self.held.parts[number], loadings)

        return matrix

    def rows_at_once(self, program: Program) -> int:
        parts, groups = self.held.parts, program.groups
        by_row = [part.width * (part.width + program.latents) for part in parts if by_level(part, groups)]
        whole = sum(sum(part.sizes) for part in parts if not by_level(part, groups)) * program.latents
        return min(posterior.ROWS_AT_ONCE, max(1, NUMBERS_AT_ONCE // max(whole, *by_row, 1)))

    def marginals_at(self, program: Program, rows: Rows, parameters: Mapping[str, Array], numbers: Any) -> Marginals:
        """With covariances among all that is read where the program asks for these."""
        (parts, read), fitted = numbers, self.program
        seen = [prior_view(program, group, rows, parameters) for group in program.groups]
        new, variance = New(fitted, read, seen, rows), prior_variance_of_rows(seen)
        mean = prior_means(program.evaluator, program.groups, parameters, rows, len(variance))
        covariance = unexplained(seen, mean) if program.coupled else None
        for part, known in zip(self.held.parts, parts, strict=True):
            if by_level(part, fitted.groups):
                mean, variance, covariance = _told_by_level(part, known, new, (mean, variance, covariance))
                continue
            columns, cross = crossed(part, known.loadings, new)
            lost = _lost(known, cross)
            told = jnp.einsum("scnv,sv->nsc", cross, known.alpha)
            mean = mean.at[:, columns].add(told)
            variance = variance.at[:, columns].add(-jnp.moveaxis(jnp.sum(lost**2, axis=1), -1, 0))
            if covariance is not None:
                between = jnp.einsum("svcn,svdn->nscd", lost, lost)
                covariance = covariance.at[:, columns[:, :, None], columns[:, None, :]].add(-between)
        return marginals_told(mean, variance, covariance)

    def blocks_at(self, program: Program, rows: Rows, parameters: Mapping[str, Array], numbers: Any) -> list[Block]:
        """K - V'V of the latents of each set of observed values, and of latents of none."""
        (parts, read), program = numbers, program.without_sums()
        seen = [prior_view(program, group, rows, parameters) for group in program.groups]
        new = New(self.program, read, seen, rows)
        left = [left_open(view, rows) for view in seen]
        told: dict[tuple[int, ...], Array] = {}
        for part, known in zip(self.held.parts, parts, strict=True):
            columns, cross = crossed(part, known.loadings, new)
            lost = _lost(known, cross)
            each, which = np.unique(columns, axis=0, return_inverse=True)
            for number, own in enumerate(map(tuple, each.tolist())):
                its = lost[np.flatnonzero(which.ravel() == number)]
                told[own] = told.get(own, 0.0) - jnp.einsum("svcn,svdm->cndm", its, its)  # type: ignore[arg-type]
        return blocks_told(told, seen, left)

    def paths(self, component: np.ndarray, rng: np.random.Generator, seed: int) -> posterior.Paths:
        """So many draws of the prior of each group, and B^-1 (z - H g - e) of each part of the observed values."""
        fitted, count, (parameters, (known, read)) = self.program, len(component), self.numbers
        refuse_unsuited(fitted)
        prior = random_waves(fitted, count, rng, seed)
        drawn = at_the_data(fitted, parameters, read, prior)
        duals = []
        for number, (part, held) in enumerate(zip(self.held.parts, self.held.values, strict=True)):
            g = drawn[:, part.rows[:, :, None], part.columns[:, None, :]]
            signal = jnp.einsum("scen,dsnc->sden", jnp.asarray(held.loadings), g)
            told = part.values_of(signal.reshape(*signal.shape[:2], -1))
            duals.append(self.dual(number, jnp.asarray(held.z)[:, None] - told - rng.standard_normal(told.shape)))
        return posterior.Paths(self._drawn_at, (parameters, Conditioned(prior, duals, known, read)))

    def dual(self, number: int, left: Float[Array, "sets draws values"]) -> Float[Array, "sets values draws"]:
        """B^-1 times something, of one part."""
        (factors, _) = self.numbers[1]
        return jax.vmap(lambda factor, b: cho_solve((factor, True), b.T))(factors[number].factor, left)

    @property
    def on_host(self) -> bool:
        return all(part.grid is None for part in self.held.parts)

    def told_on_host(self, groups: Sequence[Covariances]) -> Told:
        return told_by_data(groups, self.held)

    def multiplications(self, rows: int) -> float:
        sizes = [(part.width, part.grid is None) for part in self.held.parts for _ in part.rows]
        return sum(n**3 / QUICKER if whole else float(n) ** 1.5 for n, whole in sizes)

    def inverses(self) -> Iterator[Inverse]:
        _, (parts, _) = self.numbers
        for part, known in zip(self.held.parts, parts, strict=True):
            sets = zip(np.asarray(known.factor, float), np.asarray(known.alpha, float), strict=True)
            for number, (factor, alpha) in enumerate(sets):
                (potri,) = get_lapack_funcs(("potri",), (factor,))
                inverse = potri(np.asfortranarray(factor), lower=1)[0]
                kept, *whose = part.rows_of(number)
                own = np.flatnonzero(kept >= 0)
                known, (rows, elements) = np.ix_(own, own), (each[own] for each in whose)
                near = beside(inverse[known], rows, elements)
                yield Inverse(near, alpha[own], spread_of(factor[known]), rows, elements)

    def values(self, program: Program, rows: Rows, mean: np.ndarray) -> Sequence[np.ndarray] | None:
        key = "values", program.known_by
        if None in [statement(each, o) for each in (self.program, program) for o in each.observations]:
            return None  # by levels, of sites
        read = self.compiled.setdefault(key, jit(partial(values_read, self.program, program), brief=True))
        return values_of(as_numpy(read(dict(self.parameters), rows, mean), float), self.inverses())

    def _drawn_at(
        self, program: Program, rows: Rows, parameters: Mapping[str, Array], drawn: Conditioned
    ) -> Float[Array, "draws rows columns"]:
        """What is read at rows of drawn functions, around their prior means."""
        seen = [prior_view(program, group, rows, parameters) for group in program.groups]
        new, total = New(self.program, drawn.read, seen, rows), prior_at(seen, rows, drawn.prior)
        for part, known, duals in zip(self.held.parts, drawn.known, drawn.duals, strict=True):
            columns, cross = crossed(part, known.loadings, new)
            total = total.at[:, :, columns].add(jnp.einsum("scnv,svd->dnsc", cross, duals))
        return total


def at_the_data(
    fitted: Program, parameters: Mapping[str, Array], read: Sequence[Functionals], prior: Sequence[PriorDraws]
) -> Float[np.ndarray, "draws rows columns"]:
    """What the rows of the data read of draws of the prior."""
    count = prior[0].sizes.shape[1]
    drawn = np.zeros((count, len(read[0]) // len(fitted.groups[0].readings.basis), fitted.latents))
    for group, at, own in zip(fitted.groups, read, prior, strict=True):
        kernel = kernel_values(fitted.evaluator, group, parameters)
        basis = len(group.readings.basis)
        scaled = np.sqrt(np.asarray(kernel.scale))[:, None, None] * np.asarray(
            own.compiled(fitted, group, parameters, at)
        )
        apart = scaled.reshape(group.size, basis, -1, count).transpose(3, 2, 1, 0)
        own_columns = slice(group.start, group.start + basis * group.size)
        drawn[:, : apart.shape[1], own_columns] = apart.reshape(*apart.shape[:2], -1)
    return drawn


def prior_at(seen: Sequence[GroupView], rows: Rows, prior: Sequence[PriorDraws]) -> Float[Array, "draws rows columns"]:
    """What new rows read of draws of the prior."""
    found = []
    for view, own in zip(seen, prior, strict=True):
        new = functionals_at(view.group, view.group.readings.all, rows)
        found.append(by_column(view.group, view.kernel, own.at(view.group, view.kernel, new)))
    return jnp.concatenate(found, axis=-1)


def blocks_told(told: Mapping[tuple[int, ...], Array], seen: Sequence[GroupView], left: Sequence[Array]) -> list[Block]:
    """Blocks of the columns that are told about, `told` less than their prior covariances, and of all others."""
    found = [block_of(own, with_processes(lost, own, seen, left)[None]) for own, lost in told.items()]
    told_about = {column for block in found for column in block.columns}
    for view, of_group in zip(seen, left, strict=True):
        alone = zip(processes(view.group), of_group, strict=True)
        found += [block_of(own, each[None]) for own, each in alone if int(own[0]) not in told_about]
    return found


def _factorised(matrices: Float[np.ndarray, "sets values values"], known: InUnits) -> Factorised:
    """One part, from H K H' of its sets. Raises GpdslError where one has no factor."""
    factors = [factor for each in matrices if (factor := _rounded(each)) is not None]
    if len(factors) < len(matrices):
        raise GpdslError(
            "the covariance of the data has no Cholesky factor at the fitted parameters: the noise is too "
            "small beside the signal for this precision; fix it at a larger value, or use dtype='float64'"
        )
    whole = np.tril(np.stack(factors))
    z = np.asarray(known.z, whole.dtype)
    alpha = [solve_with((f, True), each, check_finite=False) for f, each in zip(whole, z, strict=True)]
    return Factorised(known.loadings, whole, np.stack(alpha))  # type: ignore[arg-type]  # of NumPy, to be traced


def _rounded(signal: Float[np.ndarray, "values values"]) -> Float[np.ndarray, "values values"] | None:
    """The factor of I + H K H', or of that with as little of its own size on the diagonal as its rounding may ask for.

    The program that found the evidence rounds in another order, and noise-free data leave nothing but rounding.
    """
    size = float(np.finfo(signal.dtype).eps * np.max(np.diagonal(signal), initial=0.0))
    for share in ROUNDING:
        matrix = np.array(signal).T
        matrix[np.diag_indices(len(matrix))] += share * size
        with suppress(np.linalg.LinAlgError):
            return factorised_in_place(matrix)
    return None


def _lost(
    known: Factorised, cross: Float[Array, "sets columns rows values"]
) -> Float[Array, "sets values columns rows"]:
    """V = L^-1 C' of every set."""
    lost = jax.vmap(partial(solve_triangular, lower=True))(known.factor, values_first(cross))
    return lost.reshape(*lost.shape[:2], *cross.shape[1:3])


def _told_by_level(
    part: Part, known: Factorised, new: New, prior: tuple[Array, Array, Array | None]
) -> tuple[Array, Array, Array | None]:
    """Means, variances and covariances at rows, of which each has to do with the sets of its own levels alone."""
    mean, variance, covariance = prior
    every = jnp.arange(len(mean))[:, None]
    for sets in sets_of(part, new.fitted.groups, [view.group for view in new.seen], new.read, new.rows):
        columns, cross = crossed_by_level(part, jnp.asarray(known.loadings), new, sets)
        factor, alpha = known.factor[sets.clip(0)], known.alpha[sets.clip(0)]
        lost = jax.vmap(partial(solve_triangular, lower=True))(factor, jnp.swapaxes(cross, 1, 2))
        mean = mean.at[every, columns].add(jnp.einsum("ncv,nv->nc", cross, alpha))
        variance = variance.at[every, columns].add(-jnp.sum(lost**2, axis=1))
        if covariance is not None:
            between = jnp.einsum("nvc,nvd->ncd", lost, lost)
            covariance = covariance.at[every[:, :, None], columns[:, :, None], columns[:, None, :]].add(-between)
    return mean, variance, covariance


def prior_view(program: Program, group: Group, rows: Rows, parameters: Mapping[str, Array]) -> GroupView:
    """A group as if nothing of it were explained, in the form in which posteriors by inducing values have it."""
    at = functionals_at(group, group.readings.all, rows)
    kernel = kernel_values(program.evaluator, group, parameters)
    prior = prior_variances(group, kernel, at)
    nothing = jnp.zeros((*prior.shape, 1), prior.dtype)
    return GroupView(group, kernel, Features(nothing, prior, nothing))


def prior_variance_of_rows(seen: Sequence[GroupView]) -> Float[Array, "rows columns"]:
    """Prior variances of everything that is read."""
    scale = jnp.concatenate([jnp.tile(v.kernel.scale, len(v.group.readings.all)) for v in seen])
    return scale * jnp.concatenate([_by_row(view) for view in seen], axis=1)


def _by_row(view: GroupView) -> Float[Array, "rows columns"]:
    """Prior variances at unit scale, one column per reading and process."""
    assert isinstance(view.features, Features)
    group, prior = view.group, view.features.residual
    apart = jnp.broadcast_to(prior, (group.size, prior.shape[-1])).reshape(group.size, len(group.readings.all), -1)
    return jnp.swapaxes(apart, 0, 1).reshape(group.size * len(group.readings.all), -1).T
