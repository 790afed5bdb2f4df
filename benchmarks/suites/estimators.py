"""Variance of the gradients of sampled expectations at equal numbers of likelihood evaluations: the papers' models.

Rows are simulated from each model; the marginals under which the expectations are taken lie around the true latents, as
they do near the end of a fit. Every number is a variance relative to the papers' own estimator: score-function
gradients with the control variate of SAVIGP appendix F from independent samples.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from report import show

import gpdsl
from gpdsl.data import bind
from gpdsl.inference.expected_log_likelihood import expected_log_likelihood
from gpdsl.inference.problem import as_arrays
from gpdsl.inference.sampling import SCHEMES, base_normals
from gpdsl.program.cache import precision
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program, make_program, make_rows

ROWS, SAMPLES, ESTIMATES = 20, 100, 400

MODELS: dict[str, tuple[str, dict[str, int]]] = {
    "Gaussian": ("boston", {"D": 2}),
    "Poisson, log Gaussian Cox": ("coal_mining", {}),
    "Bernoulli": ("wisconsin", {"D": 2}),
    "softmax of 3": ("usps", {"D": 2, "C": 3}),
    "warped Gaussian": ("creep", {"D": 2}),
    "regression network": ("gprn", {"D": 2, "P": 2}),
}

ESTIMATORS = {
    "score": ("score", "none"),
    "score, app. F": ("score", "constant"),
    "score, regression": ("score", "regression"),
    "pathwise": ("pathwise", "regression"),
}


def run() -> None:
    """One table for the gradients in means, one for those in variances."""
    tables: tuple[list, list] = ([], [])
    with precision("float64"):
        for title, (name, sizes) in MODELS.items():
            found = _variances(name, sizes)
            for place, table in enumerate(tables):
                unit = found["score, app. F", "iid"][place]
                for estimator in ESTIMATORS:
                    ratios = [found[estimator, sampling][place] / unit for sampling in ("iid", "antithetic", "qmc")]
                    table.append((title, estimator, *ratios))
    for what, table in zip(("means", "variances"), tables, strict=True):
        show(
            f"variance of gradients in the {what}, {SAMPLES} evaluations a row; score, app. F, iid = 1",
            ["likelihood", "gradients", "iid", "antithetic", "qmc"],
            table,
        )


def _variances(name: str, sizes: dict[str, int]) -> dict[tuple[str, str], tuple[float, float]]:
    """Variances, averaged over the gradients in all means and in all variances."""
    model = gpdsl.zoo(name)
    drawn = model.sample_prior(rows=ROWS, sizes=sizes, seed=1)
    data = bind(model.declarations, drawn.data)
    keys = jax.random.split(jax.random.key(0), ESTIMATES)
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for title, (gradients, control) in ESTIMATORS.items():
        program = make_program(
            model.declarations,
            data.sizes,
            data.levels,
            {},
            expectations="sampled",
            gradients=gradients,
            control=control,
        )
        rows = as_arrays(make_rows(program, data), "float64")
        q = _marginals(program, drawn.latents)
        compute = jax.jit(jax.vmap(lambda normals, p=program, r=rows, at=q: _gradient(p, r, at, normals)))
        for sampling in SCHEMES:
            normals = jax.vmap(
                lambda key, s=sampling, h=gradients == "score", p=program: base_normals(
                    key, SAMPLES, 1, ROWS, p.latents, h, s
                )
            )(keys)
            slopes = compute(normals)
            found[title, sampling] = tuple(float(np.asarray(a).var(axis=0).mean()) for a in slopes)
    return found


def _marginals(program: Program, latents: Any) -> Marginals:
    """Marginals a few tenths of a prior standard deviation around the true latents."""
    rng = np.random.default_rng(2)
    columns = []
    for group in program.groups:
        for member in group.members:
            values = np.asarray(latents[member.latent.name]).reshape(ROWS, -1)
            columns.append(values + 0.2 * rng.standard_normal(values.shape))
    mean = np.concatenate(columns, axis=1)[None]
    return Marginals(jnp.asarray(mean), jnp.asarray(rng.uniform(0.02, 0.1, mean.shape)))


def _gradient(program: Program, rows: Any, q: Marginals, normals: jax.Array) -> tuple[jax.Array, jax.Array]:
    parameters = program.parameters.constrain(as_arrays(program.parameters.unconstrained(), "float64"))
    slope = jax.grad(lambda q: jnp.sum(expected_log_likelihood(program, parameters, rows, q, normals)))(q)
    return slope.mean, slope.variance
