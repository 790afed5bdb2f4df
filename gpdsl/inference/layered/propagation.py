"""Rows on their way through the layers: moments at sampled arguments, samples of them, and so on (SGPVI eq. 78)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from gpdsl.inference.bound import by_reading
from gpdsl.inference.expected_log_likelihood import expected_log_likelihood
from gpdsl.inference.posteriors.family import Whitened, project
from gpdsl.inference.posteriors.features import (
    Features,
    RowFeatures,
    factorise,
    gaussian_arguments,
    moments_at,
    prior_covariances,
    row_features,
    sparse_features,
)
from gpdsl.inference.sampling import passes
from gpdsl.kernels.functionals import Functionals, Values
from gpdsl.program.evaluation import functionals_at, prior_means, stack_inputs
from gpdsl.program.groups import Group, KernelValues, kernel_values
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows, row_count
from gpdsl.symbolic.readings import OWN

LEAST = 1e-20
"""Variance below which a sample is its mean: a square root has no slope at zero."""

NUDGE = 10.0
"""Times the jitter that covariances of replicas get: they are differences of larger ones."""


class Posterior(Protocol):
    """q of the whitened inducing values of one group, or of the row variables of one."""

    def moments(self, features: Features | RowFeatures) -> tuple[Array, Array]:
        """Means and variances [1, latents, rows] at unit kernel scale."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Gaussians:
    """One Gaussian of the whitened inducing values of each latent, by its covariance: what slopes are taken in."""

    mean: Float[Array, "1 latents M"]
    covariance: Float[Array, "1 latents M M"]

    def moments(self, features: Features) -> tuple[Float[Array, "1 latents rows"], Float[Array, "1 latents rows"]]:
        """Means and variances at the features' rows, at unit kernel scale."""
        variance = jnp.sum((features.phi @ self.covariance) * features.phi, axis=-1) + features.residual
        return project(features, self.mean), variance


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Drawn:
    """What is random in a pass: standard normals of inner latents, and whitened values of row variables by group."""

    normals: Float[Array, "S rows latents"]
    white: Mapping[int, Float[Array, "S rows elements"]]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Moments:
    """Moments of one group in every pass (in all alike where the first axis is 1), and samples of them."""

    mean: Float[Array, "S rows columns"]
    variance: Float[Array, "S rows columns"]
    values: Float[Array, "S rows columns"]


class OneGroup(NamedTuple):
    """One group at some parameters: its kernel, its inducing functionals, and q of the whitened values of these."""

    group: Group
    kernel: KernelValues
    inducing: Functionals
    q: Any
    jitter: Array | float


@dataclass(frozen=True)
class Layers:
    """The layers of a program as functions of numbers.

    The columns of `sharp` latents hold samples, without variance, so that what formulas read of them goes with what
    follows from them; those of others hold moments. Passes come in sets of so many `replicas` of each row, which see
    the same functions: inner layers are sampled for all of them jointly (SGPVI eq. 82).
    """

    program: Program
    sharp: frozenset[str]
    replicas: int = 1

    def marginals(
        self,
        parameters: Mapping[str, Array],
        inducing: Sequence[Functionals],
        posterior: Mapping[int, Posterior],
        rows: Rows,
        drawn: Drawn,
        jitter: Array | float,
    ) -> Marginals:
        """Marginals of all latents in each pass, given the samples of those that they are functions of."""
        mean = variance = values = jnp.zeros_like(drawn.normals)
        for place in self.program.order:
            group = self.program.groups[place]
            own = slice(group.start, group.stop)
            kernel = kernel_values(self.program.evaluator, group, parameters)
            at = self.at_samples(group, rows, values)
            given = OneGroup(group, kernel, inducing[place], posterior[place], jitter)
            found = self._group(given, at, row_count(rows), parameters, drawn.normals[..., own])
            if place in drawn.white:
                prior = prior_means(self.program.evaluator, [group], parameters, rows, row_count(rows))
                found = replace(found, values=prior + jnp.sqrt(kernel.scale) * drawn.white[place])
            names = set(group.names)
            values = values.at[..., own].set(found.values) if names & self.program.inner else values
            sharp = bool(names & self.sharp)
            mean = mean.at[..., own].set(found.values if sharp else found.mean)
            variance = variance if sharp else variance.at[..., own].set(found.variance)
        return Marginals(mean, variance)

    def at_samples(self, group: Group, rows: Rows, values: Float[Array, "S rows latents"]) -> tuple[Rows, Array | None]:
        """The rows with sampled arguments, those of one pass after the other, and all sampled values there.

        Just the rows where all arguments are known.
        """
        if not set(group.inputs) & self.program.inner:
            return rows, None
        samples, count, latents = values.shape
        flat = {n: jnp.broadcast_to(v, (samples, *v.shape)).reshape(-1, *v.shape[1:]) for n, v in rows.inputs.items()}
        translator = self.program.translator
        for name in self.program.inner:
            first, last = self.program.evaluator.columns[name, OWN]
            shape = translator.shape(translator.declarations.axes_of(name))
            flat[name] = values[..., first:last].reshape(samples * count, *shape)
        return Rows(flat, {}, {}), values.reshape(-1, latents)

    def _group(
        self, given: OneGroup, at: tuple[Rows, Array | None], count: int, parameters: Any, normals: Array
    ) -> Moments:
        """Moments of a group at its arguments, and samples of what other latents are functions of."""
        group, (rows, known), scale = given.group, at, given.kernel.scale[:, None]
        mean, variance, features = self._unscaled(given, rows)
        mean, variance = by_reading(group, jnp.sqrt(scale) * mean)[0].T, by_reading(group, scale * variance)[0].T
        mean = mean + prior_means(self.program.evaluator, [group], parameters, rows, len(mean), known)
        mean, variance = (each.reshape(-1, count, each.shape[-1]) for each in (mean, variance))
        if group.per_row or not set(group.names) & self.program.inner:
            return Moments(mean, variance, mean)
        if self.replicas > 1 and set(group.names) & self._of_rows:
            assert isinstance(features, Features) and isinstance(given.q, Whitened)
            off = self._jointly(given, features, rows, normals)
        else:
            off = jnp.sqrt(jnp.maximum(variance, LEAST)) * self._in_sets(normals)
        return Moments(mean, variance, mean + off)

    def _unscaled(self, given: OneGroup, rows: Rows) -> tuple[Array, Array, Features | RowFeatures | None]:
        """Means and variances [1, latents, rows] at unit kernel scale, and the features by which they are found."""
        group, kernel, inducing, q, jitter = given
        if group.per_row:
            features: Features | RowFeatures = row_features(rows, kernel.scale.dtype)
        else:
            read = functionals_at(group, group.readings.all, rows)
            features = sparse_features(group, kernel, inducing, read, factorise(group, kernel, inducing, jitter))
        return *q.moments(features), features

    @property
    def ties_replicas(self) -> bool:
        """Whether replicas are sampled together: where inner latents are functions of row variables."""
        return bool(self._of_rows & self.program.inner & self.program.declarations.latents.keys())

    @cached_property
    def _of_rows(self) -> frozenset[str]:
        """Latents that are functions of row variables, directly or through others."""
        found: set[str] = set(self.program.declarations.rows)
        for latent in self.program.declarations.latents.values():
            if found & set(latent.arguments):
                found.add(latent.name)
        return frozenset(found)

    def _in_sets(self, normals: Float[Array, "S rows columns"]) -> Float[Array, "S rows columns"]:
        """The same normals for all replicas of a row, which see one value of what does not differ between them."""
        if self.replicas == 1:
            return normals
        apart = normals.reshape(-1, self.replicas, *normals.shape[1:])[:, :1]
        return jnp.broadcast_to(apart, (len(apart), self.replicas, *normals.shape[1:])).reshape(normals.shape)

    def _jointly(
        self, given: OneGroup, features: Features, rows: Rows, normals: Float[Array, "S rows columns"]
    ) -> Float[Array, "S rows columns"]:
        """Deviations of a group from its means, sampled for all replicas of a row together."""
        group, kernel, _, q, jitter = given
        sets = lambda a: jnp.swapaxes(a.reshape(-1, self.replicas, *a.shape[1:]), 1, 2)  # noqa: E731
        count = normals.shape[1]
        phi = jax.vmap(lambda a: sets(a.reshape(-1, count, a.shape[-1])))(features.phi)  # [g, sets, rows, replicas, M]
        points = sets((p := stack_inputs(group.inputs, rows)).reshape(-1, count, p.shape[-1]))
        among = jax.vmap(jax.vmap(lambda x: prior_covariances(group, kernel, Values(x)), out_axes=1), out_axes=1)
        open_ = among(points) - phi @ jnp.swapaxes(phi, -1, -2)
        told = phi @ jnp.asarray(q.root)[0, :, None, None]
        identity = NUDGE * jitter * jnp.eye(self.replicas, dtype=phi.dtype)
        total = open_ + told @ jnp.swapaxes(told, -1, -2) + identity
        root = jnp.sqrt(kernel.scale)[:, None, None, None, None] * jnp.linalg.cholesky(total)
        off = jnp.einsum("lanij,anjl->anil", root, sets(normals))
        return jnp.swapaxes(off, 1, 2).reshape(normals.shape)


# The bound of layers: what is expected of the last one over samples of the others, less divergences (SGPVI eq. 78).
#
# With S replicas of the variables of rows, log of the mean of their weights stands in place of the expectation
# (SGPVI eqs. 77 and 82), and rises towards the log of the integral over them.


def inner_width(program: Program) -> int:
    """Numbers that are sampled in a pass of a row: values of inner latents, and row variables."""
    return sum(group.size for group in program.groups if set(group.names) & program.inner)


SAMPLED = 4
"""Samples of the last layer for each pass, where its expectation has no formula and no quadrature."""


@dataclass(frozen=True)
class Expected:
    """The part of the bound that is a sum over rows, estimated from some of them in `samples` passes.

    Each pass has as many replicas of a row as the layers say. There are no passes where all moments that the likelihood
    asks for are averages with a formula (`averages`).
    """

    layers: Layers
    samples: int
    total: int
    even: bool = False
    """Whether passes are spread evenly over their distribution."""
    quadrature: bool = False
    """Whether they are the nodes of one, where one number is sampled a row."""

    def __call__(
        self,
        parameters: Mapping[str, Array],
        inducing: Sequence[Functionals],
        posterior: Mapping[int, Posterior],
        rows: Rows,
        key: Array,
        jitter: Array | float,
    ) -> Float[Array, ""]:
        """Expected log likelihood less divergences of row variables, as of all rows."""
        if not self.samples:
            return self._averaged(parameters, inducing, posterior, rows, jitter)
        program, replicas = self.layers.program, self.layers.replicas
        shape = self.samples * replicas, row_count(rows)
        own, other = jax.random.split(key)
        exact = self.quadrature and inner_width(program) == 1
        size = *shape, program.latents
        normals, weights = passes(own, size, self.samples, precision_of(inducing), self.even, exact)
        variables = {place: row_moments(posterior[place], rows, normals.dtype) for place in self.variables}
        white = {place: mean + sd * normals[..., self._own(place)] for place, (mean, sd) in variables.items()}

        def likelihood(white: Mapping[int, Array]) -> Float[Array, "S rows"]:
            found = self.layers.marginals(parameters, inducing, posterior, rows, Drawn(normals, white), jitter)
            given = None
            if program.sampled:
                # replicas see the same functions: of noise of their own, the log of a mean weight would take the best
                given = jax.random.normal(other, (SAMPLED, self.samples, *normals.shape[1:]), normals.dtype)
                given = jnp.repeat(given, replicas, axis=1)
            return expected_log_likelihood(program, parameters, rows, found, given)

        apart = [place for place in self._rows if replicas == 1 or place not in variables]
        costs = sum(_divergence(posterior[place], rows) for place in apart)
        values = likelihood(white) if replicas == 1 else self._weighed(likelihood, white, variables)
        return self.total / shape[1] * (jnp.sum(weights @ values) - costs)

    def _averaged(
        self,
        parameters: Mapping[str, Array],
        inducing: Sequence[Functionals],
        posterior: Mapping[int, Posterior],
        rows: Rows,
        jitter: Array | float,
    ) -> Float[Array, ""]:
        """The same without samples: from the moments of latents at Gaussian arguments."""
        program, count = self.layers.program, row_count(rows)
        means = variances = jnp.zeros((count, program.latents), precision_of(inducing))
        for place in program.order:
            group, z, q = program.groups[place], inducing[place], posterior[place]
            kernel = kernel_values(program.evaluator, group, parameters)
            if group.per_row:
                mean, sd = row_moments(q, rows, means.dtype)
                mean, variance = mean.T, (sd**2).T
            else:
                assert isinstance(q, Gaussians | Whitened)
                spread = q.covariance if isinstance(q, Gaussians) else q.root @ jnp.swapaxes(q.root, -1, -2)
                at = gaussian_arguments(program, group, rows, (means, variances))
                mean, variance = moments_at(group, kernel, z, (jnp.asarray(q.mean)[0], spread[0]), at, jitter)
            own, scale = slice(group.start, group.stop), kernel.scale[:, None]
            prior = prior_means(program.evaluator, [group], parameters, rows, count)
            means = means.at[:, own].set(prior + (jnp.sqrt(scale) * mean).T)
            variances = variances.at[:, own].set((scale * variance).T)
        values = expected_log_likelihood(program, parameters, rows, Marginals(means[None], variances[None]))
        costs = sum(_divergence(posterior[place], rows) for place in self._rows)
        return self.total / count * (jnp.sum(values) - costs)

    @property
    def variables(self) -> tuple[int, ...]:
        """The places of row variables that latents are functions of."""
        program = self.layers.program
        return tuple(p for p in self._rows if set(program.groups[p].names) & program.inner)

    @property
    def _rows(self) -> tuple[int, ...]:
        return tuple(place for place, group in enumerate(self.layers.program.groups) if group.per_row)

    def _own(self, place: int) -> slice:
        group = self.layers.program.groups[place]
        return slice(group.start, group.stop)

    def _weighed(
        self, likelihood: Callable[[Any], Array], white: dict[int, Array], variables: Mapping[int, tuple[Array, Array]]
    ) -> Float[Array, "samples rows"]:
        """Log of the mean weight of a row's replicas, p(y, w) / q(w).

        Where nothing else ties replicas to each other, the gradient in q(w) is the doubly reparameterised one (Tucker
        et al., 2019): the score of a weight is zero in expectation, and what is left goes with squares of weights. The
        plain one drowns in noise as there are more replicas (Rainforth et al., 2018).
        """
        apart = not self.layers.ties_replicas

        def weights(white: Mapping[int, Array]) -> Float[Array, "samples replicas rows"]:
            found = likelihood(white)
            for place, (mean, sd) in variables.items():
                m, s = (stop_gradient(mean), stop_gradient(sd)) if apart else (mean, sd)
                found = found + jnp.sum(0.5 * ((white[place] - m) / s) ** 2 + jnp.log(s), axis=-1)
                found = found - 0.5 * jnp.sum(white[place] ** 2, axis=-1)
            return found.reshape(self.samples, self.layers.replicas, -1)

        if apart:
            share = jax.nn.softmax(stop_gradient(weights(white)), axis=1)
            white = {p: _slowed(value, share.reshape(*value.shape[:2], 1)) for p, value in white.items()}
        return logsumexp(weights(white), axis=1) - jnp.log(self.layers.replicas)


@jax.custom_vjp
def _slowed(value: Array, share: Array) -> Array:
    """The value itself, with a gradient that is a share of its own."""
    return value


_slowed.defvjp(lambda value, share: (value, share), lambda share, slope: (slope * share, jnp.zeros_like(share)))


def row_moments(q: Posterior, rows: Rows, dtype: Any) -> tuple[Array, Array]:
    """Means and standard deviations of the variables of rows, whitened, [rows, elements]."""
    mean, variance = q.moments(row_features(rows, dtype))
    return mean[0].T, jnp.sqrt(variance[0].T)


def precision_of(inducing: Sequence[Functionals]) -> Any:
    """The precision of a fit."""
    return jax.tree.leaves(inducing)[0].dtype


def _divergence(q: Posterior, rows: Rows) -> Float[Array, ""]:
    """Of the variables of some rows from their prior."""
    mean, variance = q.moments(row_features(rows, jnp.zeros(()).dtype))
    return 0.5 * jnp.sum(variance + mean**2 - 1.0 - jnp.log(variance))


def divergence(q: Whitened) -> Float[Array, ""]:
    """Of whitened inducing values from their prior; the root is lower triangular."""
    diagonal = jnp.diagonal(q.root, axis1=-2, axis2=-1)
    return 0.5 * (jnp.sum(q.mean**2) + jnp.sum(q.root**2) - diagonal.size - 2.0 * jnp.sum(jnp.log(jnp.abs(diagonal))))
