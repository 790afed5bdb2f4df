"""An engine of one's own: Laplace's approximation, for any likelihood that is twice differentiable in the latents.

q is the Gaussian at the mode of the whitened values w, with the curvature there, and the log evidence is that of the
integral over it (Rasmussen and Williams 2006, sections 3.4 and 5.5.1):

    log Z = log p(y | w*) - |w*|^2 / 2 - log |H| / 2,      H = I - d^2 log p(y | w*) / dw^2.

Eigenvalues of H below 1, of likelihoods that are not log-concave, count as 1, as those of the prior: log Z has no upper
bound where one vanishes, and parameters at which it does would be taken for the best ones.

Likelihoods with kinks or jumps are refused, and parameters at which no mode is found count as impossible.

    python examples/laplace_engine.py
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import gpdsl
from gpdsl.engines import LogJoint, Problem, Program, Remembered, Result, kinked, maximise

NEWTON_STEPS, HALVINGS = 50, 20

SETTLED = 1e-5
"""Nats that one more Newton step may promise at a mode."""


class Laplace:
    """L-BFGS over the evidence that the mode of w for every set of parameters gives."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.joint = problem, LogJoint(problem)
        self.white, self.unsound = self.joint.start(), False
        given = problem.parameters, self.white, self.joint.data
        compiled = problem.shared(_evidence, *given)  # compiled once for all fits of a model and a number of rows
        self.mode = problem.shared(_mode, *given)

        def evidence(learnt: Any) -> tuple[float, Any]:
            (value, (mode, height)), gradient = compiled(learnt, self.white, self.joint.data)
            if np.isfinite(value):
                self.white = mode  # the next search for a mode begins here
            self.unsound |= bool(np.isfinite(height) and not np.isfinite(value))
            return float(value), gradient

        self.evidence = Remembered(evidence, problem.parameters)

    def run(self) -> str:
        """Maximise the evidence over what is learnt."""
        steps, tolerance = self.problem.choice.steps, self.problem.options.tolerance
        report, size, begin = self.problem.monitor.report, self.problem.observed, self.problem.parameters
        message = "converged"
        if begin:
            message = maximise(self.evidence, begin, steps=steps, tolerance=tolerance, report=report, size=size).message
        else:
            report(1, self.evidence(begin)[0])
        if self.unsound and not np.isfinite(self.evidence.best.value):
            raise gpdsl.GpdslError(
                "engine = laplace: at none of the parameters tried did Newton's method end at a mode with a positive "
                "definite curvature: use engine = vi"
            )
        return message

    def state(self) -> Result:
        """The Gaussian at the best parameters so far."""
        best = self.evidence.best
        mode, hessian = self.mode(best.point, self.white, self.joint.data)
        values, vectors = np.linalg.eigh(np.asarray(hessian, float))
        return self.joint.gaussian(best.point, mode, vectors / np.sqrt(np.maximum(values, 1.0)), best.value)

    finish = state


def _evidence(problem: Problem, _: Any, *given: Any) -> Any:
    return jax.value_and_grad(Approximation(LogJoint(problem)).log_evidence, has_aux=True)(*given)


def _mode(problem: Problem, _: Any, *given: Any) -> Any:
    return Approximation(LogJoint(problem)).mode(*given)


@dataclass(frozen=True)
class Approximation:
    """The mathematics, as functions of arrays."""

    joint: LogJoint

    def objective(self, learnt: Any, white: Float[Array, " D"], data: Any) -> Float[Array, ""]:
        """log p(y, w)."""
        return self.joint.log_likelihood(learnt, white, data) - 0.5 * jnp.sum(white**2)

    def curvature(self, learnt: Any, white: Float[Array, " D"], data: Any) -> Float[Array, "D D"]:
        """H, minus the Hessian of log p(y, w)."""
        return -jax.hessian(self.objective, argnums=1)(learnt, white, data)

    def step(self, learnt: Any, white: Float[Array, " D"], data: Any, hessian: Float[Array, "D D"]) -> Array:
        """Newton's step, up even where a likelihood is not log-concave."""
        values, vectors = jnp.linalg.eigh(hessian)
        slope = jax.grad(self.objective, argnums=1)(learnt, white, data)
        return vectors @ ((vectors.T @ slope) / jnp.maximum(jnp.abs(values), 1e-3))

    def mode(self, learnt: Any, white: Float[Array, " D"], data: Any) -> tuple[Array, Array]:
        """w* by Newton's method, every step as far as log p(y, w) rises; and H there."""

        def better(state: Any) -> Any:
            white, _, number = state
            move = self.step(learnt, white, data, self.curvature(learnt, white, data))
            shares = 0.5 ** jnp.arange(HALVINGS)
            values = jax.lax.map(lambda share: self.objective(learnt, white + share * move, data), shares)
            best = jnp.argmax(jnp.nan_to_num(values, nan=-jnp.inf))
            rises = values[best] > self.objective(learnt, white, data)
            moved = jnp.where(rises, shares[best], 0.0) * move
            return white + moved, jnp.max(jnp.abs(moved)), number + 1

        def going(state: Any) -> Array:
            return (state[1] > 1e-9) & (state[2] < NEWTON_STEPS)

        found, _, _ = jax.lax.while_loop(going, better, (white, jnp.asarray(1.0, white.dtype), 0))
        return found, self.curvature(learnt, found, data)

    def log_evidence(self, learnt: Any, white: Float[Array, " D"], data: Any) -> tuple[Array, tuple[Array, Array]]:
        """log Z, and w* with log p(y, w*); NaN where w* is no mode with a curvature."""
        found, hessian = jax.lax.stop_gradient(self.mode(jax.lax.stop_gradient(learnt), white, data))
        values, vectors = jnp.linalg.eigh(hessian)
        slope = jax.grad(self.objective, argnums=1)(learnt, found, data)
        step = vectors @ ((vectors.T @ slope) / values)
        sound = (values[0] > 0) & (jnp.abs(slope @ step) < SETTLED)
        mode = found + step - jax.lax.stop_gradient(step)  # w*, with its gradient in the parameters: that of the step
        curved = jnp.sum(vectors * (self.curvature(learnt, mode, data) @ vectors), axis=0)  # `values`, with a gradient
        log_det = jnp.sum(jnp.log(jnp.maximum(curved, 1.0)))
        height = self.objective(learnt, mode, data)
        value = height - 0.5 * log_det + self.joint.log_prior(learnt)
        return jnp.where(sound, value, jnp.nan), (found, height)


def against(program: Program) -> str | None:
    """Why a program has no curvature to approximate with."""
    names = ", ".join(kinked(program))
    return f"the likelihood of {names} has kinks or jumps in the latents; use engine = vi" if names else None


gpdsl.register_engine("laplace", Laplace, meaning="Laplace's approximation at the mode", against=against)

MODEL = """
input x : real
output n : count
param s2 : positive = 1 ~ LogNormal(0, 1)
param ell : positive = 1 ~ LogNormal(0, 1)
latent f(x) ~ GP(0, s2 * RBF(ell))
n ~ Poisson(exp(f))
infer laplace
"""


def main() -> None:
    """Counts with a rate that varies: Laplace's approximation beside variational inference."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-3, 3, 60))
    data = {"x": x, "n": rng.poisson(np.exp(1 + np.sin(2 * x)))}
    model = gpdsl.compile(MODEL)
    laplace, vi = model.fit(data), model.fit(data, engine="vi")
    print(laplace.summary())
    print(f"log evidence by Laplace {laplace.elbo:.3f}, bound of variational inference {vi.elbo:.3f}")


if __name__ == "__main__":
    main()
