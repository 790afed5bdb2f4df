"""What inducing points lose of the evidence, in nats: prior variance left open against what the likelihood can tell.

With rho_n = Lambda_n r_n, r_n the variance of row n's latent that the inducing values leave open and Lambda_n the
precision with which the row tells it (1 / s2 for normal noise, -E[d^2 log p / df^2] otherwise), the collapsed bound of
data from the model lies below the evidence by

    sum_n rho_n / 2  <=  E[log p(y) - bound]  <=  sum_n rho_n:

Burt, Rasmussen and van der Wilk (2020), Convergence of sparse variational inference, Lemma 2. Where what is left open
is independent from row to row it is the sum of rho_n - log(1 + rho_n) / 2, between the two, which is taken here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.data import Data
from gpdsl.inference.bound import assemble, by_reading, views
from gpdsl.inference.estimators.expected_log_likelihood import expected_log_likelihood
from gpdsl.inference.estimators.sampling import base_normals
from gpdsl.inference.inducing.canonical import hashes
from gpdsl.inference.plan.options import Choice, Options
from gpdsl.inference.posteriors.row_variables import RowFeatures
from gpdsl.inference.problem import Result, as_arrays
from gpdsl.program.compilation import jit
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


def loss_of(program: Program, data: Data, options: Options, found: tuple[Result, Any, Choice, float]) -> Loss:
    """What the inducing points of a result lose, by so many rows that their values choose."""
    result, _, choice, jitter = found
    plain = training(program if program.factorised is None else program.factorised, dense=False)
    every = make_rows(program, data)
    index = _chosen(every, data.rows)
    compute, total = jit(_open_to_data(plain, choice, options, jitter)), 0.0
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


def _open_to_data(program: Program, choice: Choice, options: Options, jitter: float) -> Any:
    """rho of some rows, summed over what they read: [rows]."""

    def compute(learnt: Any, inducing: Any, posterior: Any, rows: Rows, number: Array) -> Float[Array, "rows"]:
        parameters = program.parameters.constrain(learnt)
        seen = views(program, parameters, inducing, rows, False, jitter)
        heaviest = [jax.tree.map(lambda a: a[:1], q) for q in posterior]
        moments = [q.moments(view.features) for q, view in zip(heaviest, seen, strict=True)]
        q = assemble(program, parameters, rows, seen, moments)
        count, normals = q.mean.shape[1], None
        if program.sampled:
            key = jax.random.fold_in(jax.random.key(options.seed), number)
            normals = base_normals(key, choice.samples, 1, count, program.latents)
        slope = jax.grad(lambda q: jnp.sum(expected_log_likelihood(program, parameters, rows, q, normals, None)))(q)
        told = jnp.maximum(-2.0 * slope.variance[0], 0.0)
        return jnp.sum(told * jnp.concatenate([_left_open(view) for view in seen], axis=0).T, axis=1)

    return compute


def _left_open(view: Any) -> Float[Array, "columns rows"]:
    """Variance that inducing values leave open in what the rows read of a group's latents."""
    if isinstance(view.features, RowFeatures):
        return jnp.zeros((view.group.size, view.features.new.shape[0]))
    residual = jnp.broadcast_to(view.features.residual, (view.group.size, view.features.residual.shape[-1]))
    found: Array = by_reading(view.group, (view.kernel.scale[:, None] * residual)[None])[0]
    return found
