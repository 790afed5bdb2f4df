"""How much of the evidence inducing points can have lost at the parameters of a fit, for certain: two bounds of it.

Normal noise, in units of which a row is z = S h + e: with Q = S Phi Phi'S the covariance that inducing values explain,
R what they leave open, which has no negative eigenvalue and none above its trace t,

    log N(z; 0, Q + I) - t / 2  <=  log N(z; 0, Q + R + I)  <=  -log |2 pi (Q + I)| / 2 - z'(Q + (1 + t) I)^-1 z / 2

(Titsias 2009; Titsias 2014, Burt, Rasmussen and van der Wilk 2020, section 3). Both take one pass over the rows,
O(N M^2), and hold for any data. Latents that share no row have an evidence each.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.linalg import cho_factor, cho_solve

from gpdsl.data import Data
from gpdsl.inference.bound import views
from gpdsl.inference.estimators.expected_log_likelihood import expected_log_likelihood
from gpdsl.inference.plan.options import Choice, Options
from gpdsl.inference.posteriors.features import Features
from gpdsl.inference.problem import Result, as_arrays
from gpdsl.program.compilation import jit
from gpdsl.program.evaluation import prior_means
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program, make_rows, take_rows
from gpdsl.program.rows import Rows
from gpdsl.program.white import training

AT_ONCE = 4_096
"""Rows of a pass that are held at once."""


def certified_loss(
    program: Program, data: Data, options: Options, found: tuple[Result, Any, Choice, float]
) -> tuple[float, float] | None:
    """Nats of the evidence that are lost at least and at most; None where no formula tells.

    It tells where observations are normal about one latent each, which is read at the row's own inputs.
    """
    result, _, choice, jitter = found
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
    for begin in range(0, data.rows, AT_ONCE):
        rows = as_arrays(take_rows(every, slice(begin, begin + AT_ONCE)), options.dtype)
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
