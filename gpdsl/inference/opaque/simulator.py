"""Opaque functions as one problem sees them: where they are called, what they gave, and surrogates made of it.

Compiled steps and calls of the functions alternate here; nothing compiled ever calls one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.forward import stopping_fit
from gpdsl.inference.ascent.joint import split_parameters
from gpdsl.inference.natural.profiled import profiled_bound
from gpdsl.inference.natural.sites import Sites
from gpdsl.inference.opaque.budget import has_slopes, jacobian
from gpdsl.inference.opaque.evaluations import Batch, Evaluations, Gaussian, Regression
from gpdsl.inference.opaque.steps import (
    Compiled,
    bound_step,
    density_step,
    latents_of,
    place_step,
    propose_step,
    pushed_step,
    shaken_step,
    shaped_of,
    slope_step,
)
from gpdsl.inference.opaque.surrogate import Anchors, Reads, Surrogate, opaque_reads
from gpdsl.inference.opaque.values import FAILED, Values, compiled_arguments, evaluate_externals
from gpdsl.inference.problem import Problem, as_arrays
from gpdsl.symbolic.translate import ExternalUse


@dataclass(frozen=True)
class Place:
    """A point of the search: hyperparameters, sites, and the Gaussian of what the opaque functions read."""

    point: Any
    sites: Sites
    q: Gaussian


@dataclass(frozen=True)
class Fitted:
    """Surrogates, the standard error of the bound that they give, and gradients as wrong as the residual's may be."""

    surrogate: Surrogate
    error: float
    noise: tuple[Float[np.ndarray, "rows J"], Float[np.ndarray, "rows J J"]]


@dataclass(frozen=True, eq=False)
class Simulator:
    """The compiled pieces of one problem around its opaque functions, with what these read."""

    problem: Problem
    reads: Reads
    compiled_place: Compiled
    compiled_shaken: Compiled
    compiled_density: Compiled
    compiled_slope: Compiled
    compiled_bound: Compiled
    compiled_profiled: Compiled
    arguments: Mapping[str, Compiled]
    likelihood_learnt: bool
    pushed: Mapping[str, Compiled]

    @classmethod
    def of(cls, problem: Problem) -> Simulator:
        """For the bound of variational inference."""
        return cls.around(problem, opaque_reads(problem.program), bound_step(problem), profiled_bound(problem))

    @classmethod
    def around(cls, problem: Problem, reads: Reads, value: Compiled, best: Compiled) -> Self:
        """For a value of sites and the best of it, as functions of what `bound_step` and `profiled_bound` take.

        Nothing is compiled before it is used.
        """
        return cls(
            problem,
            reads,
            problem.compiling(place_step(problem, reads)),
            problem.compiling(shaken_step(problem, reads)),
            problem.compiling(density_step(problem, reads)),
            problem.compiling(slope_step(problem, reads)),
            problem.compiling(value),
            problem.compiling(best),
            compiled_arguments(problem.program, propose_step(problem, reads)),
            bool(split_parameters(problem.program)[1]),
            pushed_step(problem, reads) if has_slopes(problem.program) else {},
        )

    @property
    def sloping(self) -> bool:
        """Whether the functions give derivatives."""
        return bool(self.pushed)

    def place(self, point: Any, sites: Sites) -> Gaussian:
        """The Gaussian of what the opaque functions read in each row; NaN where the sites give none."""
        mean, root = self.compiled_place(point, sites, self.problem.rows, self.problem.inducing)
        return Gaussian(np.asarray(mean, float), np.asarray(root, float))

    def evaluate(
        self, point: Any, q: Gaussian, z: Float[np.ndarray, "S rows J"], *, values_only: bool = False
    ) -> Batch:
        """Call the functions at m + R z, in every row; their gradients too, unless `values_only`."""
        x, uses, rows = q.at(z), self.problem.program.uses(), self.problem.rows

        def give(use: ExternalUse, known: Values) -> list[Array]:
            return self.arguments[use.key](known, point, rows, x)

        found = evaluate_externals(self.problem.program, uses, give)
        flat = {use.key: np.asarray(found[use.key], float).reshape(*x.shape[:2], -1) for use in uses}
        failed = np.asarray(found[FAILED], float)[:, 0] if FAILED in found else None
        if values_only or not self.sloping:
            return Batch(q, x, flat, failed)
        slopes = {use.key: self.slopes(use, point, x) for use in uses}
        known = np.all([np.isfinite(each).all(axis=(2, 3)) for each in slopes.values()], axis=0)
        slopes = {key: np.where(known[..., None, None], each, 0.0) for key, each in slopes.items()}
        return Batch(q, x, flat, failed, slopes, None if known.all() else 1.0 - known)

    def slopes(self, use: ExternalUse, point: Any, x: Float[np.ndarray, "S rows J"]) -> Float[np.ndarray, "S rows D J"]:
        """Derivatives of the values of a call in what it reads, by its gradient and the chain rule."""
        program, rows = self.problem.program, self.problem.rows
        passed = [np.asarray(a, float) for a in self.arguments[use.key]({}, point, rows, x)]
        flat = [a.reshape(-1, *shape) for a, (shape, _) in zip(passed, use.arguments, strict=True)]
        model = program.externals[use.function]
        with stopping_fit(model.account):
            outer = jacobian(model, use, flat, self.problem.count)
        total: np.ndarray | float = 0.0
        for place in range(self.reads.width):
            direction = np.zeros(self.reads.width)
            direction[place] = 1.0
            inner = self.pushed[use.key](point, rows, x, direction)
            chained = [
                np.einsum("rva,ra->rv", a.reshape(*a.shape[:2], -1), np.asarray(b, float).reshape(len(a), -1))
                for a, b in zip(outer, inner, strict=True)
            ]
            total = total + sum(chained)[..., None] * direction
        return np.asarray(total).reshape(*x.shape[:2], -1, self.reads.width)

    def surrogate(self, point: Any, q: Gaussian, known: Evaluations, quadratic: bool) -> Fitted:
        """Surrogates at q with the residual that they leave, and how sure they are."""
        found = known.regress(q, quadratic)
        said = list(found.held_out_by_batch())
        pairs = list(zip(found.batches, said, strict=True))
        residuals = [self.residual(point, batch, guess) for batch, guess in pairs]
        slopes = None
        if self.sloping and all(batch.failed is None and batch.blind is None for batch in found.batches):
            slopes = np.concatenate([self.residual_slopes(point, q, batch, guess) for batch, guess in pairs])
        moments = found.moments(np.concatenate(residuals), slopes, self.problem.options.seed + len(known.batches))
        anchors = self.anchored(found, said, residuals)
        slope, curvature = _gradients(q, moments.first, moments.second)
        numbers = {
            "centre": q.mean,
            "inverse": q.inverse,
            "covariance": q.root @ np.swapaxes(q.root, 1, 2),
            "coefficients": dict(found.coefficients),
            "level": moments.level,
            "slope": slope,
            "curvature": curvature,
            "anchors": anchors,
        }
        shapes = tuple((use.key, use.result) for use in self.problem.program.uses())
        made = Surrogate(**as_arrays(numbers, self.problem.options.dtype), reads=self.reads, shapes=shapes)
        return Fitted(made, moments.error, _gradients(q, moments.noise_first, moments.noise_second))

    def shaken(self, point: Any, sites: Sites, fitted: Fitted) -> Gaussian:
        """Where q would be if the residual were as wrong as it may be: the distance is the Monte-Carlo error."""
        slope, curvature = as_arrays(fitted.noise, self.problem.options.dtype)
        here = point, sites, self.problem.rows, self.problem.inducing
        mean, root = self.compiled_shaken(*here, slope, curvature)
        return Gaussian(np.asarray(mean, float), np.asarray(root, float))

    def residual(self, point: Any, batch: Batch, said: Mapping[str, np.ndarray]) -> Float[np.ndarray, "S rows"]:
        """What the log densities of the true values add to those of guesses."""
        here = point, self.problem.rows, batch.x
        true = self.compiled_density(*here, batch.values, batch.failed)
        return np.asarray(true - self.compiled_density(*here, values_alone(said), None), float)

    def residual_slopes(
        self, point: Any, q: Gaussian, batch: Batch, said: Mapping[str, np.ndarray]
    ) -> Float[np.ndarray, "S rows J"]:
        """Derivatives of the residual in z: pathwise, through the values and their slopes."""
        known, guess = batch.slopes_in(q), {key: values[:, :, 1:] for key, values in said.items()}
        total: np.ndarray | float = 0.0
        for sign, values, slopes in ((1.0, batch.values, known), (-1.0, values_alone(said), guess)):
            direct, through = self.compiled_slope(point, self.problem.rows, batch.x, values, None)
            total = total + sign * np.einsum("sni,nij->snj", np.asarray(direct, float), q.root)
            for key, each in through.items():
                total = total + sign * np.einsum("snjv,snv->snj", slopes[key], np.asarray(each, float))
        return np.asarray(total)

    def anchored(
        self, found: Regression, said: Sequence[Mapping[str, np.ndarray]], residuals: Sequence[np.ndarray]
    ) -> Anchors | None:
        """Points that a surrogate carries along: some of the last batch, where parameters of the likelihood move."""
        if not self.likelihood_learnt:
            return None
        return self.anchors(found.batches[-1], said[-1], found.weights[-len(residuals[-1]) :], residuals[-1])

    def anchors(self, batch: Batch, guess: Mapping[str, np.ndarray], weights: np.ndarray, r: np.ndarray) -> Anchors:
        """The first points of a batch, always as many of them, so that nothing is compiled again."""
        size = min(self.problem.choice.samples, len(batch.x))
        weights = weights[:size] / np.maximum(weights[:size].mean(axis=0), 1e-300)
        true, guessed = ({k: v[:size] for k, v in each.items()} for each in (batch.values, values_alone(guess)))
        latents = latents_of(self.problem, self.reads, jnp.asarray(batch.x[:size]))
        known, said = shaped_of(self.problem, latents, true), shaped_of(self.problem, latents, guessed)
        if batch.failed is not None:
            known[FAILED] = jnp.asarray(batch.failed[:size])[:, None]
        return Anchors(latents, known, said, jnp.asarray(weights), jnp.mean(jnp.asarray(weights * r[:size]), axis=0))

    def bound(self, point: Any, sites: Sites, normals: Array | None, surrogate: Surrogate) -> float:
        """The bound at a place, corrected by the residual."""
        rows, held, jitter = self.problem.rows, self.problem.inducing, self.problem.jitter
        return float(self.compiled_bound(point, sites, rows, held, normals, surrogate, jitter))

    def profiled(
        self, point: Any, sites: Sites, normals: Array | None, surrogate: Surrogate, iterations: int
    ) -> tuple[float, Any, Sites]:
        """The bound maximised over q from these sites, its gradient in the hyperparameters, and the best sites."""
        rows, held, jitter = self.problem.rows, self.problem.inducing, self.problem.jitter
        value, gradient, refined = self.compiled_profiled(
            point, sites, rows, held, normals, jitter, jnp.asarray(1.0), surrogate, jnp.asarray(iterations)
        )
        return float(value), gradient, refined


def values_alone(
    said: Mapping[str, Float[np.ndarray, "S rows E values"]],
) -> dict[str, Float[np.ndarray, "S rows values"]]:
    """Values alone, of values and derivatives."""
    return {key: each[:, :, 0] for key, each in said.items()}


def _gradients(q: Gaussian, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """With respect to the mean and the covariance: R^-T first, R^-T second R^-1 / 2."""
    inverse = q.inverse
    return np.einsum("nji,nj->ni", inverse, first), 0.5 * np.swapaxes(inverse, 1, 2) @ second @ inverse
