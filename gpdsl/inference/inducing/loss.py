"""What inducing points lose of the evidence, in nats: prior variance left open against what the likelihood can tell.

With rho_n = Lambda_n r_n, r_n the variance of row n's latent that the inducing values leave open and Lambda_n the
precision with which the row tells it (1 / s2 for normal noise, -E[d^2 log p / df^2] otherwise), the collapsed bound of
data from the model lies below the evidence by

    sum_n rho_n / 2  <=  E[log p(y) - bound]  <=  sum_n rho_n:

Burt, Rasmussen and van der Wilk (2020), Convergence of sparse variational inference, Lemma 2. Where what is left open
is independent from row to row it is the sum of rho_n - log(1 + rho_n) / 2, between the two, which is taken here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.linalg import cho_factor, cho_solve

from gpdsl.data import Data, some_rows
from gpdsl.inference.bound import assemble, by_reading, views
from gpdsl.inference.expected_log_likelihood import expected_log_likelihood
from gpdsl.inference.inducing.start import hashes
from gpdsl.inference.layered.propagation import Drawn, Layers, row_moments
from gpdsl.inference.plan.options import Options
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.posteriors.features import Features, RowFeatures
from gpdsl.inference.problem import Found, as_arrays
from gpdsl.inference.sampling import base_normals, spread_normals
from gpdsl.kernels.functionals import Functionals
from gpdsl.program.cache import jit
from gpdsl.program.evaluation import prior_means
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program, make_rows, take_rows
from gpdsl.program.rows import Rows
from gpdsl.program.white import training

ASSESSED = 4_096
"""Rows looked at, which stand for all."""

AT_ONCE = 1_024

SLIGHT = 1e-3
"""Nats a row, and one in all, that are too little to be worth more inducing points."""

MUCH = 10.0
"""Times as many, of which a fit warns."""


@dataclass(frozen=True)
class Loss:
    """Nats that inducing points lose of the evidence of so many rows, about."""

    nats: float
    rows: int

    @property
    def slight(self) -> float:
        """Nats that would not be worth more inducing points."""
        return max(1.0, SLIGHT * self.rows)

    def plus(self, nats: float) -> Loss:
        """So much more."""
        return Loss(self.nats + nats, self.rows)

    def within(self, most: float) -> Loss:
        """No more than so much."""
        return Loss(min(self.nats, most), self.rows)

    @property
    def small(self) -> bool:
        """Whether more inducing points are not worth it."""
        return self.nats <= self.slight

    @property
    def much(self) -> bool:
        """Whether it has to be said loudly."""
        return self.nats > MUCH * self.slight


def loss_of(program: Program, data: Data, options: Options, found: Found) -> Loss:
    """What the inducing points of a result lose, by so many rows that their values choose."""
    result, _, choice, jitter = found
    plain = training(program if program.factorised is None else program.factorised, dense=False)
    every = make_rows(program, data)
    index = _chosen(every, data.rows)

    # rho of some rows, summed over what they read: [rows].
    def open_to_data(learnt: Any, inducing: Any, posterior: Any, rows: Rows, number: Array) -> Float[Array, "rows"]:
        parameters = plain.parameters.constrain(learnt)
        seen = views(plain, parameters, inducing, rows, False, jitter)
        heaviest = [jax.tree.map(lambda a: a[:1], q) for q in posterior]
        moments = [q.moments(view.features) for q, view in zip(heaviest, seen, strict=True)]
        q = assemble(seen, moments)
        count, normals = q.mean.shape[1], None
        if plain.sampled:
            key = jax.random.fold_in(jax.random.key(options.seed), number)
            normals = base_normals(key, choice.samples, 1, count, plain.latents)
        slope = jax.grad(lambda q: jnp.sum(seen.expected(q, normals)))(q)
        told = jnp.maximum(-2.0 * slope.variance[0], 0.0)
        return jnp.sum(told * jnp.concatenate([_left_open(view) for view in seen], axis=0).T, axis=1)

    compute, total = jit(open_to_data), 0.0
    given = as_arrays((result.parameters, result.inducing, result.posterior), options.dtype)
    for begin in range(0, len(index), AT_ONCE):
        own = index[begin : begin + AT_ONCE]
        padded = np.resize(own, AT_ONCE) if len(index) > AT_ONCE else own
        rows = as_arrays(take_rows(every, padded), options.dtype)
        rho = np.asarray(compute(*given, rows, jnp.asarray(begin)), float)[: len(own)]
        total += float(np.sum(rho - 0.5 * np.log1p(rho)))
    return Loss(total * data.rows / len(index), data.rows)


def _chosen(rows: Rows, count: int) -> np.ndarray:
    """Numbers of the rows with the smallest hashes of their inputs: the same rows, however they are sorted."""
    if count <= ASSESSED:
        return np.arange(count)
    leaves = [np.asarray(each, float).reshape(count, -1) for each in jax.tree.leaves((rows.inputs, rows.outputs))]
    return np.sort(np.argsort(hashes(np.nan_to_num(np.concatenate(leaves, axis=1))), kind="stable")[:ASSESSED])


def _left_open(view: Any) -> Float[Array, "columns rows"]:
    """Variance that inducing values leave open in what the rows read of a group's latents."""
    if isinstance(view.features, RowFeatures):
        return jnp.zeros((view.group.size, view.features.new.shape[0]))
    residual = jnp.broadcast_to(view.features.residual, (view.group.size, view.features.residual.shape[-1]))
    found: Array = by_reading(view.group, (view.kernel.scale[:, None] * residual)[None])[0]
    return found


# How much of the evidence inducing points can have lost at the parameters of a fit, for certain: two bounds of it.
#
# Normal noise, in units of which a row is z = S h + e: with Q = S Phi Phi'S the covariance that inducing values
# explain, R what they leave open, which has no negative eigenvalue and none above its trace t,
#
#     log N(z; 0, Q + I) - t / 2  <=  log N(z; 0, Q + R + I)  <=  -log |2 pi (Q + I)| / 2 - z'(Q + (1 + t) I)^-1 z / 2
#
# (Titsias 2009; Titsias 2014, Burt, Rasmussen and van der Wilk 2020, section 3). Both take one pass over the rows, O(N
# M^2), and hold for any data. Latents that share no row have an evidence each.


ROWS_AT_ONCE = 4_096
"""Rows of a pass that are held at once."""


def certified_loss(program: Program, data: Data, options: Options, found: Found) -> tuple[float, float] | None:
    """Nats of the evidence that are lost at least and at most; None where no formula tells.

    It tells where observations are normal about one latent each, which is read at the row's own inputs.
    """
    result, _, choice, jitter = found
    if result.loss_bounds is not None:  # rows are summed up
        return result.loss_bounds
    if choice.exact or choice.dense or choice.weights is not None or program.fields or program.sampled:
        return None
    program = training(program, dense=False)
    plain = all(not group.per_row and len(group.readings.all) == 1 for group in program.groups)
    if not plain or not program.conjugate or program.mixing:
        return None
    every = make_rows(program, data)
    total: Any
    add_up, total = jit(_sums(program, jitter), brief=True), 0.0
    given = as_arrays((result.parameters, result.inducing), options.dtype)
    for begin in range(0, data.rows, ROWS_AT_ONCE):
        rows = as_arrays(take_rows(every, slice(begin, begin + ROWS_AT_ONCE)), options.dtype)
        part = jax.tree.map(lambda a: np.asarray(a, float), add_up(*given, rows))
        total = part if begin == 0 else jax.tree.map(np.add, total, part)
    latents = (latent for group in total for latent in zip(*group, strict=True))
    upper = sum(_gap(gram, told, float(squares), float(left)) for gram, told, squares, left in latents)
    return (0.0, upper) if np.isfinite(upper) else None


def _sums(program: Program, jitter: float) -> Any:
    """Of some rows: Phi'S^2 Phi, Phi'S z, z'z and t, of each latent of each group."""

    def compute(learnt: Any, inducing: Any, rows: Rows) -> list[tuple[Array, Array, Array, Array]]:
        parameters = program.parameters.constrain(learnt)
        seen = views(program, parameters, inducing, rows, False, jitter)
        count = next(iter(rows.observed.values())).shape[0]
        prior = prior_means(program.evaluator, program.groups, parameters, rows, count)[None]

        def expected(mean: Array, variance: Array) -> Array:
            return jnp.sum(expected_log_likelihood(program, parameters, rows, Marginals(mean, variance)))

        slope, bend = jax.grad(expected, argnums=(0, 1))(prior, jnp.zeros_like(prior))
        precision = jnp.maximum(-2.0 * bend[0], 0.0)  # [rows, latents]
        told = jnp.where(precision > 0, slope[0] / jnp.sqrt(jnp.where(precision > 0, precision, 1.0)), 0.0)
        found = []
        for view in seen:
            own = slice(view.group.start, view.group.stop)
            features, scale = view.features, view.kernel.scale
            assert isinstance(features, Features)
            weight = jnp.sqrt(scale * precision[:, own]).T  # [latents, rows]
            phi = jnp.broadcast_to(features.phi, (view.group.size, *features.phi.shape[1:])) * weight[..., None]
            open_part = jnp.sum(weight**2 * features.residual, axis=1)
            z = told[:, own].T
            found.append(
                (jnp.einsum("jnm,jnk->jmk", phi, phi), jnp.einsum("jnm,jn->jm", phi, z), jnp.sum(z**2, 1), open_part)
            )
        return found

    return compute


def _gap(gram: Float[np.ndarray, "M M"], told: Float[np.ndarray, "M"], squares: float, left: float) -> float:
    """Between the two bounds, in which log |Q + I| cancels."""

    def quadratic(noise: float) -> float:
        """z'(Q + noise I)^-1 z, by Woodbury's identity."""
        inner = cho_factor(noise * np.eye(len(gram)) + gram)
        return float(squares - told @ cho_solve(inner, told)) / noise

    return 0.5 * (quadratic(1.0) - quadratic(1.0 + left) + left)


# What inducing points lose where latents are functions of others: by the rule of `loss`, at samples of these.
#
# What is told of a row is how much its part of the bound falls as the variance rises that inducing values leave open,
# through the layers above too.

PASSES, ROWS, STEP = 16, 400, 1e-2
"""Passes of rows, as many of these at most, and of differences in the share of the variance that values leave open."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Opened:
    """q of inducing values, with such a share more of the variance that they leave open."""

    q: Whitened
    share: Array

    def moments(self, features: Features) -> tuple[Array, Array]:
        """Means and variances at the arguments, at unit kernel scale."""
        mean, variance = self.q.moments(features)
        return mean, variance + self.share * features.residual


def loss_through_layers(
    program: Program,
    data: Data,
    parameters: Mapping[str, np.ndarray],
    posterior: tuple[Sequence[Functionals], Sequence[Whitened], float],
    dtype: str,
) -> Loss:
    """By the parameters in their domains and the posterior of a fit: inducing points, q of values there, and jitter."""
    (inducing, every, jitter), some = posterior, some_rows(data.rows, ROWS)
    layers, made = Layers(program, program.sharp), replace(make_rows(program, data), numbers=np.arange(data.rows))
    shape = PASSES, len(some), program.latents
    normals = jit(lambda key: spread_normals(key, shape, jnp.dtype(dtype)), brief=True)(jax.random.key(0))

    def likelihood(share: Any, parameters: Any, inducing: Any, q: Any, rows: Rows) -> Float[Array, " rows"]:
        opened, white = dict[int, Any](enumerate(q)), dict[int, Array]()
        for place, group in enumerate(program.groups):
            if group.per_row:
                mean, sd = row_moments(q[place], rows, normals.dtype)
                white[place] = mean + sd * normals[..., group.start : group.stop]
            else:
                opened[place] = Opened(q[place], share[place])
        found = layers.marginals(parameters, inducing, opened, rows, Drawn(normals, white), jitter)
        return jnp.mean(expected_log_likelihood(program, parameters, rows, found, normals[None]), axis=0)

    given = as_arrays((dict(parameters), list(inducing), list(every), take_rows(made, some)), dtype)
    shares = as_arrays(list(STEP * np.eye(len(program.groups) + 1)[:, 1:]), dtype)
    compute = jit(likelihood, brief=True)
    none, *more = (np.asarray(compute(each, *given), float) for each in shares)
    rho = np.maximum(2.0 * (none - np.stack(more)) / STEP, 0.0)
    return Loss(float(np.sum(rho - 0.5 * np.log1p(rho))) * data.rows / len(some), data.rows)
