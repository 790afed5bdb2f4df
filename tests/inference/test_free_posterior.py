"""A dense posterior of the latents that stays as it is while the prior moves."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from gpdsl.inference.bound import Layout, carried
from gpdsl.inference.posteriors.family import Full
from gpdsl.kernels.functionals import Values
from tests.inference.test_layered import _program

TEXT = """
input x : real
output y : real
param m : real = 0.3
param s2 : positive = 1.5
param ell : positive = 0.8
latent f(x) ~ GP(m, s2 * RBF(ell))
y ~ Normal(f, 0.3)
"""


def test_latents_keep_their_means_and_covariances_under_another_prior(rng: np.random.Generator) -> None:
    x = np.array([-1.0, 0.1, 0.7, 1.5])
    program, rows, _ = _program(TEXT, {"x": x, "y": np.zeros(4)})
    root = np.tril(0.4 * rng.standard_normal((1, 1, 4, 4)))
    q = {"mean": jnp.asarray(rng.standard_normal((1, 1, 4))), "root": jnp.asarray(root)}
    points = [Values(jnp.asarray(x[:, None]))]
    state = {"parameters": program.parameters.unconstrained(), "inducing": points, "posterior": {"groups": [q]}}
    changed = {"m": jnp.asarray(-0.9), "s2": jnp.asarray(0.1), "ell": jnp.asarray(-1.0)}
    move = jax.jit(lambda state, changed: carried(program, Layout(Full(), dense=True), state, changed, rows, 1e-10))
    after = move(state, changed)

    def moments(learnt: dict, q: dict) -> tuple[np.ndarray, np.ndarray]:
        known = {name: float(each) for name, each in program.parameters.constrain(learnt).items()}
        prior = known["s2"] * (np.exp(-0.5 * ((x[:, None] - x) / known["ell"]) ** 2) + 1e-10 * np.eye(4))
        white = np.asarray(Full().prepare(q, None)["root"][0, 0])
        spread = np.linalg.cholesky(prior) @ white
        return known["m"] + np.linalg.cholesky(prior) @ np.asarray(q["mean"][0, 0]), spread @ spread.T

    before, now = moments(state["parameters"], q), moments(after["parameters"], after["posterior"]["groups"][0])
    np.testing.assert_allclose(now[0], before[0], atol=1e-7)
    np.testing.assert_allclose(now[1], before[1], atol=1e-7)
