"""Whole functions drawn from an exact posterior: draws of the prior, bent to the data by Matheron's rule.

f = g + C B^-1 (z - H g - e) has the posterior of f for a draw g of the prior and e ~ N(0, I), in the notation of
`exact.posterior`: O(N) per point. Wilson et al. (2020), Efficiently sampling functions from GP posteriors, eq. 12.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float

from gpdsl.inference.exact.crossing import crossed
from gpdsl.inference.exact.posterior import Factorised, Regression, prior_view
from gpdsl.inference.posteriors.pathwise import PriorDraws, by_column, random_waves
from gpdsl.kernels.functionals import Functionals, every_point
from gpdsl.program.evaluation import functionals_at
from gpdsl.program.groups import kernel_values
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Conditioned:
    """Draws of the prior of each group, and B^-1 (z - H g - e) of each part of the observed values."""

    prior: list[PriorDraws]
    duals: list[Float[Array, "sets values draws"]]


def conditioned(
    regression: Regression,
    program: Program,
    parameters: Mapping[str, Array],
    read: Sequence[Functionals],
    parts: Sequence[Factorised],
    count: int,
    rng: np.random.Generator,
    seed: int,
) -> Conditioned:
    """So many draws; `program` is the one that was fitted, and `read` what the rows of the data read."""
    prior = random_waves(program, count, rng)
    drawn = np.zeros((count, len(read[0]) // len(program.groups[0].readings.basis), program.latents))
    for group, at, own in zip(program.groups, read, prior, strict=True):
        kernel = kernel_values(program.evaluator, group, parameters, every_point(at).shape[-1])
        basis = len(group.readings.basis)
        scaled = np.sqrt(np.asarray(kernel.scale))[:, None, None] * np.asarray(
            own.compiled(program, group, parameters, at, seed)
        )
        apart = scaled.reshape(group.size, basis, -1, count).transpose(3, 2, 1, 0)
        drawn[:, : apart.shape[1], group.start : group.start + basis * group.size] = apart.reshape(*apart.shape[:2], -1)
    duals = []
    for part, known, held in zip(regression.parts, regression.values, parts, strict=True):
        g = drawn[:, part.rows[:, :, None], part.columns[:, None, :]]
        signal = jnp.einsum("scen,dsnc->sden", held.loadings, g)
        told = part.values_of(signal.reshape(*signal.shape[:2], -1))
        left = jnp.asarray(known.z)[:, None] - told - rng.standard_normal(told.shape)
        duals.append(jax.vmap(lambda factor, b: cho_solve((factor, True), b.T))(held.factor, left))
    return Conditioned(prior, duals)


def conditioned_at(
    fitted: Program,
    regression: Regression,
    program: Program,
    rows: Rows,
    parameters: Mapping[str, Array],
    read: Sequence[Functionals],
    parts: Sequence[Factorised],
    drawn: Conditioned,
    seed: int,
) -> Float[Array, "draws rows columns"]:
    """What is read at rows of drawn functions, around their prior means."""
    seen, found = [prior_view(program, group, rows, parameters) for group in program.groups], []
    for view, own in zip(seen, drawn.prior, strict=True):
        new = functionals_at(view.group, view.group.readings.all, rows)
        found.append(by_column(view.group, view.kernel, own.at(view.group, view.kernel, new, seed)))
    total = jnp.concatenate(found, axis=-1)
    for part, known, duals in zip(regression.parts, parts, drawn.duals, strict=True):
        columns, cross = crossed(part, known.loadings, fitted, seen, read, rows)
        total = total.at[:, :, columns].add(jnp.einsum("scnv,svd->dnsc", cross, duals))
    return total
