"""A posterior over weights as a fit holds it: q(w) on the host, and the marginals of the latent at any rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float

from gpdsl.errors import need, shown
from gpdsl.inference.plan.options import Choice, Options
from gpdsl.inference.posteriors.coupled import Block, block_of
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.posteriors.pathwise import PriorDraws, random_waves, refuse_unsuited
from gpdsl.inference.posteriors.posterior import UNLIKE, Arrays, Paths, Posterior
from gpdsl.inference.problem import as_arrays
from gpdsl.inference.quadruply_stochastic.basis import Basis
from gpdsl.inference.quadruply_stochastic.sums import covariances, inputs_of, moments, over_slabs
from gpdsl.inference.quadruply_stochastic.weights import Features, Index, Weights
from gpdsl.kernels.functionals import Values
from gpdsl.kernels.numerics import cholesky, solve_lower
from gpdsl.program.evaluation import prior_means
from gpdsl.program.groups import columns_of, kernel_values
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows

BLOCK = 4_000
"""Basis functions at a time, when a fit predicts."""


KINDS = {
    "fourier": "random Fourier features",
    "inducing": "inducing points, predictions augmented (QSGP Proposition 4)",
    "relevance": "relevance vectors before pruning",
}


@dataclass(frozen=True, eq=False)
class WeightSpace:
    """q(w) over basis functions. Random ones are drawn again from the seed wherever they are needed.

    `stiffness` is the sum of the expected precisions -E[d^2 log p / df^2] over the rows of the data.
    """

    q: Weights
    basis: Basis
    seed: int
    stiffness: float
    jitter: float = 0.0
    """By which the diagonal of a dense S was raised, as a share of it."""

    @property
    def features(self) -> int:
        """m."""
        return self.q.curvature.shape[0]

    def marginals(self, program: Program, rows: Rows, parameters: Mapping[str, Array], q: Weights) -> Marginals:
        """Mean and variance of the latent at rows: phi mu and phi C C' phi', some functions at a time.

        `parameters` are constrained, and `q` is this posterior's on the device.
        """
        (features, learnt), x = self.read(program, parameters), inputs_of(program, rows)
        projected, variance = moments(features, learnt, x, q, BLOCK)
        if self.basis.kind == "inducing" and q.columns == self.features:
            variance = variance + left_open(features, learnt, x, self.jitter)
        elif self.basis.kind == "inducing":
            variance = variance + augmentation(features, learnt, x, self.stiffness, BLOCK)
        prior: Array = prior_means(program.evaluator, program.groups, parameters, rows, variance.shape[0])
        return Marginals((prior[:, 0] + projected[:, 0])[None, :, None], jnp.asarray(variance)[None, :, None])

    def blocks(self, program: Program, rows: Rows, parameters: Mapping[str, Array], q: Weights) -> list[Block]:
        """Covariances of the latent between rows; what inducing points leave open is correlated as it should be."""
        (features, learnt), x = self.read(program, parameters), inputs_of(program, rows)
        total = covariances(features, learnt, x, q, BLOCK)
        if self.basis.kind == "inducing":
            prior = features.latent.covariance(learnt, x)
            if q.columns == self.features:
                told = explained(features, learnt, x, self.jitter)
                total = total + prior - told.T @ told
            else:  # the variance of each row's own weight, and the prior's correlations between them
                own = jnp.diagonal(prior)
                share = jnp.sqrt(augmentation(features, learnt, x, self.stiffness, BLOCK) / own)
                total = total + prior * share[:, None] * share
        return [block_of((0,), total[None, None, :, None, :])]

    def read(self, program: Program, parameters: Mapping[str, Array]) -> tuple[Features, Mapping[str, Array]]:
        """The basis functions, and what is learnt on the real line."""
        numbers = {name: jnp.asarray(values) for name, values in self.basis.numbers().items()}
        learnt = program.parameters.learnt(parameters) | numbers
        features = self.basis.features(self.basis.program(program), self.features, self.seed)
        return features, learnt

    def arrays(self) -> dict[str, np.ndarray]:
        """What a file keeps."""
        kept: dict[str, Any] = {"vectors": self.q.vectors, "curvature": self.q.curvature, "stiffness": self.stiffness}
        kept["jitter"] = self.jitter
        kept |= {"centres": self.basis.centres, "precision": self.basis.precision}
        return {f"weights.{name}": np.asarray(values) for name, values in kept.items() if values is not None}


def left_open(
    features: Features, learnt: Mapping[str, Array], x: Float[Array, "n d"], jitter: float
) -> Float[Array, "n"]:
    """Variance of the latent at points x given its values at the points of all functions.

    It is what the augmented weight adds where q is the best Gaussian: Proposition 4 knows no more than its diagonal.
    """
    own = jax.vmap(lambda point: features.latent.covariance(learnt, point[None])[0, 0])(x)
    return jnp.maximum(own - jnp.sum(explained(features, learnt, x, jitter) ** 2, axis=0), 0.0)


def explained(
    features: Features, learnt: Mapping[str, Array], x: Float[Array, "n d"], jitter: float
) -> Float[Array, "m n"]:
    """V with V'V the prior covariance at points x that the values at the points of all functions explain."""
    every = jnp.arange(features.count)
    factor = cholesky(features.cross_precision(learnt, every, every), jitter)
    return solve_lower(factor, features.values(learnt, x, every).T)


def augmentation(
    features: Features, learnt: Mapping[str, Array], x: Float[Array, "n d"], stiffness: float, size: int
) -> Float[Array, "n"]:
    """What a basis function k(., x*) of its own adds to the variance at each point x*: QSGP Proposition 4.

    Its weight has the variance 1 / (h + k(x*, x*)) with h = sum_l precision_l k(x_l, x*)^2 over the rows, of which the
    inducing points are a sample.
    """

    def add(total: Array, index: Index, live: Array) -> Array:
        return total + features.values(learnt, x, index) ** 2 @ live

    squares = over_slabs(features.count, size, add, jnp.zeros(x.shape[0], x.dtype))
    own = jax.vmap(lambda point: features.latent.covariance(learnt, point[None])[0, 0])(x)
    return own**2 / (stiffness / features.count * squares + own)


# Whole functions drawn from a posterior over weights: Phi(x) w for w from q, and what inducing points leave open.


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Weighted:
    """Drawn weights; of inducing points also draws of the prior, and K^-1 of their values there where q is dense."""

    weights: Float[Array, "m draws"]
    prior: PriorDraws | None = None
    duals: Float[Array, "m draws"] | None = None


def _weighted(
    held: WeightSpace, program: Program, parameters: Mapping[str, Array], count: int, rng: Any, seed: int
) -> Weighted:
    """So many draws of q."""
    features, learnt = held.read(program, parameters)
    q, every = held.q, jnp.arange(held.features)
    alone = np.asarray(q.deviation(features.precision(learnt, every), every))
    normals = rng.standard_normal((q.columns, count)), rng.standard_normal((held.features, count))
    weights = np.asarray(q.vectors[0])[:, None] + np.asarray(q.vectors[1:]).T @ normals[0] + alone[:, None] * normals[1]
    if held.basis.kind != "inducing":
        return Weighted(jnp.asarray(weights))
    refuse_unsuited(program)
    (prior,) = random_waves(program, count, rng, seed)
    if q.columns < held.features:
        return Weighted(jnp.asarray(weights), prior)
    assert held.basis.centres is not None
    values = _prior_at(program, parameters, prior, jnp.asarray(held.basis.centres))
    values = values + jnp.sqrt(held.jitter * features.precision(learnt, every))[:, None] * rng.standard_normal(
        values.shape
    )
    factor = cholesky(features.cross_precision(learnt, every, every), held.jitter)
    return Weighted(jnp.asarray(weights), prior, cho_solve((factor, True), values))


def _weighted_at(
    held: WeightSpace, program: Program, rows: Rows, parameters: Mapping[str, Array], drawn: Weighted
) -> Float[Array, "draws rows 1"]:
    """Drawn functions at rows, around their prior mean; some basis functions at a time."""
    (features, learnt), x = held.read(program, parameters), inputs_of(program, rows)
    left = drawn.weights if drawn.duals is None else drawn.weights - drawn.duals

    def add(total: Array, index: Index, live: Array) -> Array:
        return total + (features.consecutive(learnt, x, index) * live) @ left[index]

    total = over_slabs(held.features, BLOCK, add, jnp.zeros((x.shape[0], left.shape[1]), x.dtype))
    if drawn.prior is not None:
        prior = _prior_at(program, parameters, drawn.prior, x)
        if drawn.duals is None:  # the variance of the row's own weight
            own = jax.vmap(lambda point: features.latent.covariance(learnt, point[None])[0, 0])(x)
            prior = prior * jnp.sqrt(augmentation(features, learnt, x, held.stiffness, BLOCK) / own)[:, None]
        total = total + prior
    return total.T[..., None]


def _prior_at(
    program: Program, parameters: Mapping[str, Array], prior: PriorDraws, x: Float[Array, "n d"]
) -> Float[Array, "n draws"]:
    group = program.groups[0]
    kernel = kernel_values(program.evaluator, group, parameters)
    return jnp.sqrt(kernel.scale[0]) * prior.at(group, kernel, Values(x))[0]


POINTS = {"fourier": (False, False), "inducing": (True, False), "relevance": (True, True)}
"""Whether basis functions have centres, and precisions of their own."""


@dataclass(frozen=True, eq=False)
class OverWeights(Posterior):
    """Held by q(w) over basis functions; there are no inducing inputs."""

    held: WeightSpace
    whitened = False

    @staticmethod
    def suits(program: Program, choice: Choice) -> bool:
        return choice.weights is not None

    def stored(self, arrays: Arrays, rows: int, options: Options) -> tuple[tuple[Whitened, ...], WeightSpace]:
        need(not self.inducing, UNLIKE)
        q = Weights(arrays["weights.vectors"], arrays["weights.curvature"])
        basis = Basis(options.basis, arrays.get("weights.centres"), arrays.get("weights.precision"))
        stiffness, jitter = float(arrays["weights.stiffness"]), float(arrays.get("weights.jitter", 0.0))
        return (), WeightSpace(q, basis, options.seed, stiffness, jitter)

    def components(self, choice: Choice) -> int:
        assert choice.weights is not None
        named = f"chevron({choice.weights.chevron})" if choice.weights.chevron else "diagonal"
        need(choice.posterior == named, f"choice: posterior is {shown(choice.posterior)}: expected {named}")
        return 1

    def check(self, choice: Choice, options: Options) -> None:
        q, basis = self.held.q, self.held.basis
        assert choice.weights is not None
        shape = 1 + choice.weights.chevron, choice.weights.features
        need(q.vectors.shape == shape and q.curvature.shape == shape[1:], "weights: not as many as chosen")
        numbers = [q.vectors, q.curvature, basis.centres, basis.precision]
        plain = all(each is None or each.dtype == self.dtype for each in numbers)
        need(plain, "weights: not of the precision of the fit")
        need(self.held.stiffness >= 0 and np.all(np.asarray(q.curvature) >= 0), "weights: curvatures below 0")
        given = basis.centres is not None, basis.precision is not None
        need(given == POINTS[options.basis], "weights: not those of this basis")
        points = shape[1], columns_of(self.program.groups[0], self.program.translator)
        need(basis.centres is None or basis.centres.shape == points, "weights: centres of another shape")
        precision = basis.precision
        need(precision is None or (precision.shape == shape[1:] and np.all(precision > 0)), "weights: precisions")

    def support(self, choice: Choice, rows: int) -> str:
        return f"{self.held.features} {KINDS[self.held.basis.kind]}"

    def carried(self) -> tuple[tuple[Whitened, ...], float, WeightSpace]:
        return (), self.jitter, self.held

    @cached_property
    def numbers(self) -> tuple[Any, Weights]:
        """The parameters, and the arrays of q."""
        return as_arrays((dict(self.parameters), self.held.q), self.dtype)

    def marginals_at(self, program: Program, rows: Rows, parameters: Mapping[str, Array], numbers: Any) -> Marginals:
        return self.held.marginals(program, rows, parameters, numbers)

    def blocks_at(self, program: Program, rows: Rows, parameters: Mapping[str, Array], numbers: Any) -> list[Block]:
        return self.held.blocks(program.without_sums(), rows, parameters, numbers)

    def paths(self, component: np.ndarray, rng: np.random.Generator, seed: int) -> Paths:
        """Phi(x) w for w from q, and what inducing points leave open."""
        drawn = _weighted(self.held, self.program, self.numbers[0], len(component), rng, seed)
        return Paths(partial(_weighted_at, self.held), (self.numbers[0], drawn))
