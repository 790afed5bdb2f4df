"""What several looks at a fit read of it: its kernels at a few points, by one program, and all else in NumPy.

A program of its own for each look would take longer to compile than most fits do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gpdsl.data import Data, some_rows
from gpdsl.inference.posteriors.family import Covariances, Inverse, Matrix, Told, features
from gpdsl.inference.posteriors.features import prior_covariances
from gpdsl.inference.posteriors.posterior import few_sizes, filled_up
from gpdsl.inference.problem import as_arrays
from gpdsl.kernels.form import has_white
from gpdsl.kernels.functionals import Values, every_point
from gpdsl.language.warnings.report import unused_names
from gpdsl.program.evaluation import functionals_at, prior_means
from gpdsl.program.groups import Group, kernel_values
from gpdsl.program.kept import on_use
from gpdsl.program.program import Program, make_rows, take_rows
from gpdsl.program.rows import Rows
from gpdsl.program.white import smooth, training, white_beside

if TYPE_CHECKING:
    from gpdsl.results.fit import Fit

NEAR = 300
"""Rows next to each other, and rows anywhere, at which a kernel is looked at."""

ROWS, VALUES = 60, 600
"""Rows at which the posterior is looked at, spread at random, and values of all latents there at most."""

FEW = 8
"""Values, and rows, of which less tell nothing of latents."""

FEW_COLUMNS = 50
"""Of inputs, of which neighbours are looked for."""

WHITE = "White() in a kernel follows rows one by one, and is no noise of one normal output"
"""What keeps looks from being made."""

LARGEST = 3000
"""Values that a posterior is over, up to which its matrices are made once more."""

WIDE = 10 * NEAR
"""Rows up to which kernels are looked at in all of them, where latents are compared row by row."""


class AtReadings(NamedTuple):
    """What q says, above prior means, of what the rows read: without what inducing values leave open."""

    loaded: list[dict[int, Float[np.ndarray, "rows M"]]]
    """Of each latent sqrt(scale) Phi R, by the column of a reading, with R the root of its covariance."""
    mean: Float[np.ndarray, "rows columns"]
    spread: Float[np.ndarray, "rows columns"]
    """Standard deviations."""


@dataclass(eq=False)
class Seen:
    """A fit and the data as it knows them, with what was found out for one look and serves the next."""

    fit: Fit
    data: Data

    @cached_property
    def values(self) -> int:
        """How many are observed."""
        return sum(int(np.sum(known)) for known in self.data.observed.values())

    @cached_property
    def program(self) -> Program:
        """The fit's, with white noise in kernels as noise of observed values where it is that."""
        return training(self.fit.program, dense=True)

    @cached_property
    def white(self) -> bool:
        """Whether white noise stays beside another kernel: a posterior of values of latents is of both."""
        return any(map(white_beside, self.program.groups))

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Those of the program, without white noise beside other kernels."""
        return tuple(smooth(self.program, each) if white_beside(each) else each for each in self.program.groups)

    @cached_property
    def rows(self) -> Rows:
        """The data as the program reads them."""
        return make_rows(self.fit.program, self.fit.standardised.applied(self.data))

    @cached_property
    def some(self) -> Int[np.ndarray, " some"]:
        """The rows at which the posterior is looked at."""
        count = min(ROWS, self.data.rows, VALUES // max(self.fit.program.latents, 1))
        return some_rows(self.data.rows, count)

    @cached_property
    def plain(self) -> bool:
        """Whether rows read the values of every latent at one place each, and no sums of them."""
        groups = () if self.fit.program.inner or self.fit.program.fields else self.groups
        return bool(groups) and all(
            not group.per_row and len(group.readings.all) == len(group.readings.basis) == 1 for group in groups
        )

    @cached_property
    def compares(self) -> bool:
        """Whether latents that an observation mixes are independent in a posterior of whitened values."""
        fit = self.fit
        mixed = fit.program.mixing and fit.at_rows.independent and not fit.choice.posterior.startswith("mixture")
        return bool(mixed) and self.on_host and self.data.rows <= WIDE

    @cached_property
    def replays(self) -> bool:
        """Whether the posterior is one of values of latents that determine what every row reads."""
        return self.on_host and self.fit.choice.dense and not self.fit.at_rows.by_data and self.data.rows <= WIDE

    @cached_property
    def at_readings(self) -> AtReadings:
        """The posterior at what rows read of the latents, of which it is one Gaussian."""
        program, rows = self.fit.program, self.data.rows
        loaded: list[dict[int, np.ndarray]] = []
        mean, spread = np.zeros((2, rows, program.latents))
        for number, (group, q) in enumerate(zip(program.groups, self.fit.posterior, strict=True)):
            at = [f"reading {reading}" for reading in range(len(group.readings.all))]
            phis = [[self.features(number, which, each) for each in at] for which in range(group.factors)]
            for j, scale in enumerate(np.sqrt(self.scale(number))):
                loaded.append({})
                for reading, own in enumerate(phis[min(j, group.factors - 1)]):
                    phi = scale * own
                    column = group.start + reading * group.size + j
                    loaded[-1][column] = root = phi @ np.asarray(q.root[0, j], float)
                    mean[:, column] = phi @ np.asarray(q.mean[0, j], float)
                    spread[:, column] = np.sqrt(np.sum(root**2, axis=1))
        return AtReadings(loaded, mean, spread)

    @cached_property
    def on_host(self) -> bool:
        """Whether the posterior is one Gaussian of values of latents alone, few enough: its matrices are soon made."""
        fit, program = self.fit, self.fit.program
        if not self.groups or program.inner or program.fields or fit.options.drawn or len(fit.weights) > 1:
            return False
        plain = all(self._reads_values(group) for group in self.groups)
        known = all(isinstance(each, Values) for each in fit.inducing) and len(fit.inducing) == len(self.groups)
        if not plain or not known or sum(map(len, fit.inducing)) > LARGEST:
            return False
        return fit.at_rows.on_host and (not fit.at_rows.by_data or (self.plain and not self.white))

    def _reads_values(self, group: Group) -> bool:
        """Whether rows read values of a group's latents, and nothing else of them."""
        if group.per_row or group.points or group.readings.sums or has_white(group.form):
            return False
        return all(isinstance(self._at(group, (each,)), Values) for each in group.readings.all)

    def _at(self, group: Group, readings: Any) -> Any:
        return functionals_at(group, readings, self.rows)

    def points(self, group: Group) -> Float[np.ndarray, "n D"]:
        """Where the rows read a group's latents."""
        return np.asarray(every_point(self._at(group, group.readings.atoms)), float)

    def reaches(self, group: Group) -> bool:
        """Whether it has a value at a place, whose likeness to another one a kernel tells."""
        return not (group.per_row or has_white(group.form)) and set(group.inputs) <= self.rows.inputs.keys()

    def above(self, number: int) -> bool:
        """Whether a group's latents are functions of others, with inducing points where these lead."""
        group = self.groups[number]
        latent = set(group.inputs) & self.fit.program.inner and not (group.per_row or has_white(group.form))
        return bool(latent) and isinstance(self.fit.inducing[number], Values)

    @cached_property
    def _places(self) -> list[dict[str, Float[np.ndarray, "n D"]]]:
        """Of each group, the points at which its kernel is looked at, by what they are."""
        fit, found = self.fit, list[dict[str, np.ndarray]]()
        for number, group in enumerate(self.groups):
            own: dict[str, np.ndarray] = {}
            if self.reaches(group):
                mixed = self.points(group)
                mixed = mixed[np.random.default_rng(0).permutation(len(mixed))]
                # The points next to one of them, itself first, in units of each column's spread.
                spread = np.std(mixed, axis=0)
                apart = np.sum(((mixed - mixed[0]) / np.where(spread > 0, spread, 1.0)) ** 2, axis=1)
                own |= {"near": np.asarray(mixed[np.argsort(apart, kind="stable")[:NEAR]]), "far": mixed[:NEAR]}
            elif self.above(number):
                own["far"] = np.asarray(every_point(fit.inducing[number]), float)[:NEAR]
            if self.plain:
                own["some"] = self.points(group)[self.some]
            if self.on_host:
                own["known"] = np.asarray(every_point(fit.inducing[number]), float)
            if self.compares or self.replays:
                at = [every_point(self._at(group, (each,))) for each in group.readings.all]
                own |= {f"reading {place}": np.asarray(each, float) for place, each in enumerate(at)}
            found.append(own)
        return found

    @cached_property
    def _kernels(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]]:
        """Of each group what `_covariances` has, at all different points of `_places`, and which these are."""
        points, numbers = [], []
        for group, own in zip(self.groups, self._places, strict=True):
            different = np.concatenate(list(own.values())) if own else np.zeros((1, 1))
            which = np.arange(len(different))
            if not has_white(group.form):  # which is another one in every row
                different, which = np.unique(different, axis=0, return_inverse=True)
            ends = np.cumsum([len(each) for each in own.values()])[:-1]
            points.append(different[filled_up(len(different), few_sizes(len(different)))])
            numbers.append(dict(zip(own, np.split(which.ravel(), ends), strict=True)) if own else {})
        used = tuple(bool(own) for own in self._places)
        given = as_arrays((dict(self.fit.parameters), points), self.fit.options.dtype)
        program, known_by = self.fit.program, (_covariances, self.fit.program.known_by, used)
        compute = on_use(known_by, lambda: partial(_covariances, program, self.groups, used), True)
        found = compute(*given)
        return [
            (np.asarray(scale, float), np.asarray(each, float), np.asarray(white, float), own)
            for (scale, each, white), own in zip(found, numbers, strict=True)
        ]

    def scale(self, number: int) -> Float[np.ndarray, " latents"]:
        """What multiplies the kernel of each latent of a group."""
        return self._kernels[number][0]

    def covariances(self, number: int, one: str, other: str) -> Float[np.ndarray, "factors n m"]:
        """Of each different kernel of a group, at unit scale, between points that `_places` names."""
        _, found, _, own = self._kernels[number]
        return found[:, own[one]][:, :, own[other]]

    def features(self, number: int, which: int, at: str) -> Float[np.ndarray, "rows M"]:
        """phi of whitened values, of one kernel of a group, at points that `_places` names."""
        known, cross = self.covariances(number, "known", "known")[which], self.covariances(number, "known", at)[which]
        return features(known, cross, self.fit.jitter)

    @cached_property
    def prior(self) -> dict[int, Matrix]:
        """Covariances at `some` rows of every latent, by its column, of those that are `plain`."""
        return {column: each for group in self._groups("some") for column, each in group.prior.items()}

    @cached_property
    def posterior(self) -> dict[tuple[int, int], Matrix]:
        """Covariances at `some` rows of two latents, by their columns, but for those that are 0."""
        return self._told.covariances if self.on_host else self._elsewhere()

    def marginals(self) -> tuple[Float[np.ndarray, "some columns"], Float[np.ndarray, "some columns"]]:
        """Means and variances of all latents at `some` rows, where these are `plain` and `on_host`."""
        rows, parameters = take_rows(self.rows, self.some), as_arrays(dict(self.fit.parameters), self.fit.options.dtype)
        prior = prior_means(self.program.evaluator, self.program.groups, parameters, rows, len(self.some))
        told = [self._told.means[column] for column in sorted(self._told.means)]
        variances = [np.diagonal(self.posterior[column, column]) for column in sorted(self._told.means)]
        return np.asarray(prior, float) + np.stack(told, axis=1), np.stack(variances, axis=1)

    def inverses(self) -> Iterable[Inverse]:
        """Where the data hold the posterior: those of `Posterior.inverses`."""
        return self._told.inverses if self.on_host else self.fit.at_rows.inverses()

    @cached_property
    def _told(self) -> Told:
        return self.fit.at_rows.told_on_host(self._groups("known"))

    def _groups(self, known: str) -> list[Covariances]:
        pairs = (known, known), (known, "some"), ("some", "some")
        return [
            Covariances(group.start, scale, white, *(self.covariances(number, *pair) for pair in pairs))
            for number, (group, (scale, _, white, _)) in enumerate(zip(self.groups, self._kernels, strict=True))
        ]

    def _elsewhere(self) -> dict[tuple[int, int], Matrix]:
        """By programs of their own."""
        some, fit, program = self.data.take(self.some), self.fit, self.program
        blocks = fit.at_rows.blocks(program, fit.beliefs(some, program=program).rows, some.rows)
        return {
            (a, b): np.asarray(block.covariance[0][i, :, j, :], float)
            for block in blocks
            for i, a in enumerate(block.columns)
            for j, b in enumerate(block.columns)
        }


def columns_of(fit: Fit, data: Data) -> dict[str, Float[np.ndarray, " values"]]:
    """The numbers that rows have for inputs; none where some are none, or of many columns.

    Without those that bounds of `Censored` alone read: a value tells whether it is at its own.
    """
    own, inputs = fit.program.declarations, {name: np.asarray(each) for name, each in data.inputs.items()}
    censored = [each for each in own.observations if each.distribution.name == "Censored"]
    if censored:
        inside = [replace(each, distribution=each.distribution.components[0]) for each in censored]
        rest = replace(own, observations=(*inside, *(each for each in own.observations if each not in censored)))
        before, after = ({getattr(each, "name", "") for each in unused_names(model)} for model in (own, rest))
        inputs = {name: each for name, each in inputs.items() if name in before or name not in after}
    if not all(each.dtype.kind in "fiu" for each in inputs.values()):
        return {}
    found = {
        f"{name}[{k}]" if each.size > data.rows else name: own
        for name, each in inputs.items()
        for k, own in enumerate(each.reshape(data.rows, -1).T.astype(float), 1)
    }
    return found if len(found) <= FEW_COLUMNS else {}


def _covariances(
    program: Program,
    smooth_groups: tuple[Group, ...],
    used: tuple[bool, ...],
    parameters: Mapping[str, Array],
    points: list[Array],
) -> list[tuple[Array, Array, Array]]:
    """Of every group without white noise the scales, covariances at some points if used, and the noise's variances."""

    def of(group: Group, at: Array) -> tuple[Array, Array]:
        kernel = kernel_values(program.evaluator, group, parameters)
        return kernel.scale, prior_covariances(group, kernel, Values(at))

    found = []
    for group, whole, at, asked in zip(smooth_groups, program.groups, points, used, strict=True):
        scale, among = of(group, at) if asked else (kernel_values(program.evaluator, group, parameters).scale, at)
        white = jnp.zeros_like(scale)
        if asked and white_beside(whole) and not has_white(group.form):
            scales, alone = of(whole, at[:1])
            white = scales * alone[:, 0, 0] - scale * among[:, 0, 0]
        found.append((scale, among, white))
    return found
