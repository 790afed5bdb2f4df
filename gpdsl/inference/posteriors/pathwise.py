"""Whole functions drawn from a posterior: a draw of the prior that is bent to what the inducing values say.

Wilson et al. (2020), Efficiently sampling functions from GP posteriors: with v drawn from q and a function
g of the prior, f(x) = mean(x) + sqrt(scale) (g(x) + k_u(x)' L^-T (v - L^-1 g(Z))), O(M) per point. g is a sum of random
waves (Rahimi and Recht 2007). Every draw has waves of its own, so that means and covariances of draws are those of the
posterior for any number W of waves; given the waves of one draw, the prior covariance between two points is off by a
standard deviation of at most 1 / sqrt(2 W) of the variance.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Int

from gpdsl.errors import GpdslError
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.posteriors.features import factorise, inducing_covariances, sparse_features
from gpdsl.kernels.combined import FINE, along
from gpdsl.kernels.counters import Stream
from gpdsl.kernels.covariance import covariance
from gpdsl.kernels.functionals import (
    Coefficients,
    Derivatives,
    Elementary,
    Functionals,
    Integrals,
    Values,
    blocks,
    every_point,
)
from gpdsl.kernels.numerics import solve_lower
from gpdsl.kernels.waves import unsuited, waves
from gpdsl.language.inducing import BOUNDLESS
from gpdsl.lowering.table import cosine
from gpdsl.program.cache import jit
from gpdsl.program.evaluation import functionals_at
from gpdsl.program.groups import Group, KernelValues, columns_of, kernel_values
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows

WAVES = 1024
"""Of every draw."""

AT_ONCE = 2**21
"""Values of waves that are held at a time: 16 MB."""

ROUNDING = 8.0
"""Jitters that a difference of covariances gets."""

FINER, FINEST, BEYOND = 8, 4_096, 0.25
"""Times as many points as features of a net on which a draw of the prior tells these, points at most, and the share of
a column's range that it reaches beyond the corners: `eigen` features of RBF look there too."""


def refuse_unsuited(program: Program, inducing: Sequence[Functionals] = ()) -> None:
    """Raise GpdslError for a latent that no sum of waves is a draw of, or whose inducing features no draw tells."""
    for group, at in itertools.zip_longest(program.groups, inducing):
        if group.per_row:
            why: str | None = "it has a value of its own in each row"
        elif group.points:
            why = "it is a field, with its points alone"
        elif at is not None and any(part.family in BOUNDLESS for part in _coefficients(at)):
            why = "draws are known by their values, which its inducing features are not"
        else:
            why = unsuited(group.form, columns_of(group, program.translator))
        if why is not None:
            raise GpdslError(
                f"no whole functions of `{group.names[0]}` can be drawn: {why}; prediction.draws draws all rows of a "
                "prediction together, whatever the kernel"
            )


def random_waves(program: Program, draws: int, rng: np.random.Generator, seed: int) -> list[PriorDraws]:
    """Draws of every group of a program from the prior; those of one seed begin at random places of its stream."""
    found, first = [], int(rng.integers(2**31))
    for group in program.groups:
        shape = group.size, draws, WAVES
        sizes, starts = jnp.asarray(rng.rayleigh(size=shape)), jnp.asarray(rng.random(shape))
        found.append(PriorDraws(sizes, starts, (first + np.arange(group.size) * draws * WAVES) % 2**31, seed))
        first += group.size * draws * WAVES
    return found


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PriorDraws:
    """Sums of waves: their sizes and starts, with normal sines and cosines, and the number of each process's first.

    All else of the waves is drawn again from the seed, wherever they are needed.
    """

    sizes: Float[Array, "processes draws waves"]
    starts: Float[Array, "processes draws waves"]
    first: Int[Array | np.ndarray, "processes"]
    seed: int = field(metadata={"static": True})

    def alone(self, number: Array) -> PriorDraws:
        """The draw of this number."""
        sizes, starts = (jax.lax.dynamic_slice_in_dim(a, number, 1, axis=1) for a in (self.sizes, self.starts))
        return PriorDraws(sizes, starts, self.first + number * self.sizes.shape[-1], self.seed)

    def at(self, group: Group, kernel: KernelValues, at: Functionals) -> Float[Array, "processes values draws"]:
        """Functionals of the draws of each process of a group, for unit scale."""
        processes, draws, count = self.sizes.shape

        def one(process: int) -> Array:
            arguments = arguments_of(group, kernel, process)
            index = self.first[process] + jnp.arange(draws * count)
            size, start = self.sizes[process].ravel(), self.starts[process].ravel()

            def some(points: Float[Array, "n D"]) -> Float[Array, "n draws"]:
                drawn = waves(group.form, arguments, points, Stream(self.seed, index, points.dtype))
                heights = jnp.sqrt(drawn.power / count) * size * cosine(drawn.turns(start))
                heights = heights if drawn.amplitude is None else heights * drawn.amplitude
                every = jnp.broadcast_to(heights, (len(points), draws * count))
                return jnp.sum(every.reshape(-1, draws, count), axis=-1)

            def values(points: Float[Array, "n D"]) -> Float[Array, "n draws"]:
                return _in_blocks(some, points, max(1, AT_ONCE // (draws * count)))

            return _at(values, at)

        return jnp.stack([one(process) for process in range(processes)])

    def compiled(
        self, program: Program, group: Group, parameters: Mapping[str, Array], at: Functionals
    ) -> Float[Array, "processes values draws"]:
        """`at` with the kernel at these parameters."""
        return _reading(program, next(n for n, own in enumerate(program.groups) if own is group))(self, parameters, at)


@lru_cache(maxsize=16)
def _reading(program: Program, number: int) -> Callable[[PriorDraws, Mapping[str, Array], Functionals], Array]:
    """What draws of one group's prior have at some functionals, compiled once for all draws of a seed."""
    group = program.groups[number]

    def values(own: PriorDraws, parameters: Mapping[str, Array], at: Functionals) -> Array:
        return own.at(group, kernel_values(program.evaluator, group, parameters), at)

    return jit(values)


def arguments_of(group: Group, kernel: KernelValues, process: int) -> tuple[Array, ...]:
    """The numbers of the kernel of one process."""
    return tuple(a[0 if group.factors == 1 else process] for a in kernel.arguments)


def _in_blocks(function: Callable[[Array], Array], points: Float[Array, "n D"], size: int) -> Float[Array, "n draws"]:
    """A function of points, so many at a time."""
    count = len(points)
    if count <= size:
        return function(points)
    padded = jnp.pad(points, ((0, -count % size), (0, 0)), mode="edge")
    found = jax.lax.map(function, padded.reshape(-1, size, points.shape[1]))
    return found.reshape(len(padded), -1)[:count]


def _at(values: Callable[[Array], Array], at: Functionals) -> Float[Array, "n draws"]:
    """Functionals of functions that are known by their values."""

    def elementary(part: Elementary) -> Array:
        if isinstance(part, Integrals):
            shares, weights = (jnp.asarray(each, part.lower.dtype) for each in FINE)
            at = (0.5 * (part.lower + part.upper) + (part.upper - part.lower) * shares).reshape(-1, 1)
            found = values(at).reshape(len(part), len(shares), -1)
            return (part.upper - part.lower) * jnp.einsum("nsd,s->nd", found, weights)
        function = values
        for column in part.columns if isinstance(part, Derivatives) else ():
            function = along(function, column)
        return function(part.points)

    return jnp.concatenate([sum(weight * elementary(part) for weight, part in block) for block in blocks(at)])


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Bent:
    """Draws of one group: of the prior, and the weights L^-T (v - L^-1 g(Z)) of what bends them at Z, `inducing`."""

    prior: PriorDraws
    weights: Float[Array, "processes M draws"]
    inducing: Functionals

    def alone(self, number: Array) -> Bent:
        """The draw of this number."""
        weights = jax.lax.dynamic_slice_in_dim(self.weights, number, 1, axis=2)
        return replace(self, prior=self.prior.alone(number), weights=weights)


def bent(
    program: Program,
    parameters: Mapping[str, Array],
    posterior: Sequence[Whitened],
    inducing: Sequence[Functionals],
    jitter: float,
    component: np.ndarray,
    rng: np.random.Generator,
    seed: int,
) -> list[Bent]:
    """Draws of each group, one for each number of a component of the mixture."""
    found, width = [], np.shape(posterior[0].root)[-1]
    common = rng.standard_normal((len(component), 1, width)) if program.coupled else None
    prior = random_waves(program, len(component), rng, seed)
    for group, q, at, waved in zip(program.groups, posterior, inducing, prior, strict=True):
        kernel = kernel_values(program.evaluator, group, parameters)
        factor = factorise(group, kernel, at, jitter)
        factor = jnp.broadcast_to(factor, (group.size, *factor.shape[1:]))
        own = rng.standard_normal((len(component), group.size, np.shape(q.root)[-1]))
        normals = own if common is None else np.broadcast_to(common, own.shape)
        mean, root = np.asarray(q.mean), np.asarray(q.root)
        v = [mean[k] + np.einsum("jmr,jr->jm", root[k], z) for k, z in zip(component, normals, strict=True)]
        values = _drawn(program, group, parameters, at, waved, jitter, rng)
        # L L' has a share more on its diagonal than the covariance of g(Z), and so gets what L whitens
        level = jnp.sqrt(jitter / (1.0 + jitter) * jnp.mean(jnp.sum(factor**2, axis=-1), axis=-1))
        values = values + level[:, None, None] * rng.standard_normal(values.shape)
        white = jax.vmap(partial(solve_triangular, lower=True))(factor, values)
        weights = jax.vmap(partial(solve_triangular, lower=True, trans=1))(factor, np.stack(v, axis=-1) - white)
        found.append(Bent(waved, weights, at))
    return found


def _coefficients(at: Functionals) -> list[Coefficients]:
    return [part for block in blocks(at) for _, part in block if isinstance(part, Coefficients)]


def _drawn(
    program: Program,
    group: Group,
    parameters: Mapping[str, Array],
    at: Functionals,
    waved: PriorDraws,
    jitter: float,
    rng: np.random.Generator,
) -> Array:
    """Functionals of draws of the prior, [processes, M, draws].

    Features u that are not known by values are drawn given those at a net of points z around their corners: from a
    normal of mean Kuz Kzz^-1 g(z) and covariance Kuu - Kuz Kzz^-1 Kzu. Their covariance is exact, and so is that with
    g(x) where g(z) tells either of the two.
    """
    features = _coefficients(at)
    if not features:
        return waved.compiled(program, group, parameters, at)
    net = Values(jnp.asarray(np.concatenate([_net(part) for part in features]), every_point(at).dtype))
    values = waved.compiled(program, group, parameters, net)

    def told(parameters: Mapping[str, Array], at: Functionals, net: Values, values: Array, normals: Array) -> Array:
        kernel = kernel_values(program.evaluator, group, parameters)
        factor = factorise(group, kernel, net, jitter)
        phi = sparse_features(group, kernel, net, at, factor).phi
        white = solve_lower(jnp.broadcast_to(factor, (group.size, *factor.shape[1:])), values)
        among = inducing_covariances(group, kernel, at, ROUNDING * jitter)
        return phi @ white + jnp.linalg.cholesky(among - phi @ jnp.swapaxes(phi, -1, -2)) @ normals

    normals = jnp.asarray(rng.standard_normal((group.size, len(at), values.shape[-1])), values.dtype)
    return jit(told)(parameters, at, net, values, normals)


def _net(features: Coefficients) -> Float[np.ndarray, "n D"]:
    """Points around the corners of features, evenly spread along every column."""
    low, high = np.asarray(features.points, float)
    low, high = low - BEYOND * (high - low), high + BEYOND * (high - low)
    count = min(FINER * features.size, FINEST)
    if len(low) == 1:
        return np.linspace(low, high, count)
    return low + (high - low) * scipy.stats.qmc.Sobol(len(low), seed=0).random_base2(math.ceil(math.log2(count)))


def bent_at(
    program: Program, rows: Rows, parameters: Mapping[str, Array], drawn: Sequence[Bent]
) -> Float[Array, "draws rows columns"]:
    """What is read at rows of drawn functions, around their prior means."""
    found = []
    for group, own in zip(program.groups, drawn, strict=True):
        new = functionals_at(group, group.readings.all, rows)
        kernel = kernel_values(program.evaluator, group, parameters)
        cross = [covariance(group.form, arguments_of(group, kernel, j), new, own.inducing) for j in range(group.size)]
        told = jnp.stack([each @ weights for each, weights in zip(cross, own.weights, strict=True)])
        found.append(by_column(group, kernel, own.prior.at(group, kernel, new) + told))
    return jnp.concatenate(found, axis=-1)


def by_column(
    group: Group, kernel: KernelValues, values: Float[Array, "processes values draws"]
) -> Float[Array, "draws rows columns"]:
    """Scaled values of each process, one reading after the other, as columns of marginals."""
    scaled = jnp.sqrt(kernel.scale)[:, None, None] * values
    apart = scaled.reshape(group.size, len(group.readings.all), -1, scaled.shape[-1])
    turned = jnp.transpose(apart, (3, 2, 1, 0))
    return turned.reshape(*turned.shape[:2], -1)
