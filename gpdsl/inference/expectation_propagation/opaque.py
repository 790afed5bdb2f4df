"""Expectation propagation where the likelihood calls opaque functions, which are evaluated between compiled steps.

Rounds are those of variational inference (`opaque.simulated`): evaluate at points drawn from q, fit surrogates to all
evaluations that still count, find the best there is on these without any, and go there as far as points say something.
The tilted moments come from the surrogates and are corrected by the evaluations themselves,

    log Z_n = log Z_n(surrogate) + log sum_s w_s p(y | true)^alpha - log sum_s w_s p(y | surrogate)^alpha,

w_s the importance weights of the points under the cavity: with points enough the answer is that of the function,
however poor the surrogate. What a surrogate says at a point was learnt without that point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.inference.expectation_propagation.objective import converged, doubts
from gpdsl.inference.expectation_propagation.sites import Fixed, evidence
from gpdsl.inference.expectation_propagation.tilted import Tilted
from gpdsl.inference.natural.sites import Setting, Sites
from gpdsl.inference.opaque.evaluations import Judged, Regression
from gpdsl.inference.opaque.simulated import LADDER, Rounds
from gpdsl.inference.opaque.simulator import Simulator, values_alone
from gpdsl.inference.opaque.surrogate import FAILED, Anchors, Surrogate, opaque_reads
from gpdsl.inference.plan.options import EP_SAMPLES
from gpdsl.inference.problem import FRESH_SETS, Problem, Result
from gpdsl.inference.sampling import sum_and_error


class _Simulator(Simulator):
    """What the rounds ask of a problem, for tilted moments: all points that count stay with the surrogates."""

    def anchored(
        self, found: Regression, said: Sequence[Mapping[str, np.ndarray]], residuals: Sequence[np.ndarray]
    ) -> Anchors:
        """All of them, filled up to a power of two times those of a round by points of weight 0: few shapes compile."""
        count = len(found.weights)
        size = self.problem.choice.samples
        while size < count:
            size *= 2

        def filled(array: np.ndarray) -> np.ndarray:
            return np.concatenate([array, np.repeat(array[:1], size - count, axis=0)])

        def joined(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
            return {key: filled(np.concatenate([part[key] for part in parts])) for key in parts[0]}

        x = filled(np.concatenate([batch.x for batch in found.batches]))
        latents = self.steps.latents(jnp.asarray(x))
        true = self.steps.shaped(latents, joined([batch.values for batch in found.batches]))
        guessed = self.steps.shaped(latents, joined([values_alone(each) for each in said]))
        failed = [np.zeros(batch.x.shape[:2]) if batch.failed is None else batch.failed for batch in found.batches]
        if any(each.any() for each in failed):
            true[FAILED] = jnp.asarray(filled(np.concatenate(failed)), latents.dtype)[:, None]
        weights = np.concatenate([found.weights, np.zeros((size - count, x.shape[1]))])
        return Anchors(latents, true, guessed, jnp.asarray(weights, latents.dtype), jnp.zeros(x.shape[1]))

    def fixed(
        self, point: Any, sites: Sites, normals: Any, surrogate: Surrogate, sweeps: int
    ) -> tuple[Any, Any, Fixed]:
        """Evidence, gradient and fixed point on the surrogates."""
        rows, held, jitter = self.problem.rows, self.problem.inducing, self.problem.jitter
        given = normals, jitter, surrogate, jnp.asarray(sweeps)
        return self.compiled_profiled(point, sites, rows, held, *given)  # type: ignore[no-any-return]

    def profiled(
        self, point: Any, sites: Sites, normals: Array | None, surrogate: Surrogate, iterations: int
    ) -> tuple[float, Any, Sites]:
        """The evidence at the fixed point, its gradient in the hyperparameters, and the sites there."""
        value, gradient, fixed = self.fixed(point, sites, normals, surrogate, iterations)
        return float(value), gradient, fixed.sites


class EpOpaque(Rounds):
    """The fixed point of the sites, and what is learnt on the evidence, with its Monte-Carlo error.

    The evidence is no bound: it may fall on the way to a fixed point, and no step is taken back because of that.
    """

    simulator: _Simulator

    def __init__(self, problem: Problem, tilted: Tilted) -> None:
        self.tilted, self.doubt = tilted, ""
        """What a user must know of the end, if anything."""

        def bound(setting: Setting, sites: Sites, normals: Any, surrogate: Surrogate) -> Array:
            return evidence(tilted.using(normals, surrogate), setting, sites)

        reads = opaque_reads(problem.program, whole=True)
        super().__init__(problem, _Simulator(problem, reads, bound, converged(problem, tilted)))
        self.kept = 0

    def fell(self, judged: Judged) -> bool:
        self.trust = self.trust.grown()
        return False

    def regain(self) -> None:
        """Of a higher evidence no place is better."""

    def confirm(self) -> None:
        """By samples of the surrogates that it was not chosen for, and the evaluations that there are."""
        if self.fitted is None:
            return
        best, surrogate = self.best, self.fitted.surrogate
        numbers = range(1, FRESH_SETS + 1)
        found = [self.simulator.bound(best.point, best.sites, self.normals(each), surrogate) for each in numbers]
        value, scatter = sum_and_error(np.asarray(found))
        self.judged = Judged(value, float(np.hypot(self.judged.error, scatter)))

    def normals(self, fresh: int = 0) -> Float[Array, "S 1 rows latents"] | None:
        key = jax.random.fold_in(jax.random.key(self.problem.options.seed), fresh)
        return self.tilted.normals(key, EP_SAMPLES, self.problem.count, self.problem.program.latents)

    def result(self) -> Result:
        if self.fitted is not None:
            best = self.best
            known = best.point, best.sites, self.normals(), self.fitted.surrogate
            fixed = self.simulator.fixed(*known, LADDER[0])[2]
            self.doubt = doubts(int(fixed.steady) >= 2, float(fixed.swept.stuck), self.problem.count)
        return super().result()
