"""Opaque functions as one problem sees them: where they are called, what they gave, and surrogates made of it.

Compiled steps and calls of the functions alternate here; nothing compiled ever calls one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.inference.alternating import split_parameters
from gpdsl.inference.bound import views
from gpdsl.inference.evaluations import Batch, Evaluations, Gaussian
from gpdsl.inference.expected_log_likelihood import opaque_density
from gpdsl.inference.natural import Sites, site_elbo, site_marginals, site_target
from gpdsl.inference.opaque import FAILED, Values, compiled_arguments, evaluate_externals
from gpdsl.inference.problem import Problem, as_arrays
from gpdsl.inference.profiled import profiled_bound, split_point
from gpdsl.inference.surrogate import Anchors, Surrogate, column_covariance, opaque_columns
from gpdsl.program.joint import Marginals, block_root
from gpdsl.program.rows import Rows
from gpdsl.symbolic.translate import ExternalUse

Compiled = Callable[..., Any]


@dataclass(frozen=True)
class Fitted:
    """Surrogates, the standard error of the bound that they give, and gradients as wrong as the residual's may be."""

    surrogate: Surrogate
    error: float
    noise: tuple[Float[np.ndarray, "rows J"], Float[np.ndarray, "rows J J"]]


@dataclass(frozen=True, eq=False)
class Simulator:
    """The compiled pieces of one problem around its opaque functions, which read `columns` of the marginals."""

    problem: Problem
    columns: tuple[int, ...]
    compiled_place: Compiled
    compiled_shaken: Compiled
    compiled_density: Compiled
    compiled_bound: Compiled
    compiled_profiled: Compiled
    arguments: Mapping[str, Compiled]
    likelihood_learnt: bool

    @classmethod
    def of(cls, problem: Problem) -> Simulator:
        """Nothing is compiled before it is used."""
        columns = opaque_columns(problem.program)
        return cls(
            problem,
            columns,
            problem.compiling(_place(problem, columns)),
            problem.compiling(_shaken(problem, columns)),
            problem.compiling(_density(problem, columns)),
            problem.compiling(_bound(problem)),
            problem.compiling(profiled_bound(problem)),
            compiled_arguments(problem.program, _propose(problem, columns)),
            bool(split_parameters(problem.program)[1]),
        )

    def place(self, point: Any, sites: Sites) -> Gaussian:
        """The Gaussian of what the opaque functions read in each row; NaN where the sites give none."""
        mean, root = self.compiled_place(point, sites, self.problem.rows, self.problem.inducing)
        return Gaussian(np.asarray(mean, float), np.asarray(root, float))

    def evaluate(self, point: Any, q: Gaussian, z: Float[np.ndarray, "S rows J"]) -> Batch:
        """Call the functions at m + R z, in every row."""
        x, uses, rows = q.at(z), self.problem.program.uses(), self.problem.rows

        def give(use: ExternalUse, known: Values) -> list[Array]:
            return self.arguments[use.key](known, point, rows, x)

        found = evaluate_externals(self.problem.program, uses, give)
        flat = {use.key: np.asarray(found[use.key], float).reshape(*x.shape[:2], -1) for use in uses}
        return Batch(q, x, flat, np.asarray(found[FAILED], float)[:, 0] if FAILED in found else None)

    def surrogate(self, point: Any, q: Gaussian, known: Evaluations, quadratic: bool) -> Fitted:
        """Surrogates at q with the residual that they leave, and how sure they are."""
        found = known.regress(q, quadratic)
        said = list(found.held_out_by_batch())
        residuals = [self.residual(point, batch, guess) for batch, guess in zip(found.batches, said, strict=True)]
        moments = found.moments(np.concatenate(residuals), self.problem.options.seed + len(known.batches))
        anchors = None
        if self.likelihood_learnt:
            anchors = self.anchors(found.batches[-1], said[-1], found.weights[-len(residuals[-1]) :], residuals[-1])
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
        made = Surrogate(**as_arrays(numbers, self.problem.options.dtype), columns=self.columns, shapes=shapes)
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
        return np.asarray(true - self.compiled_density(*here, said, None), float)

    def anchors(self, batch: Batch, guess: Mapping[str, np.ndarray], weights: np.ndarray, r: np.ndarray) -> Anchors:
        """The first points of a batch, always as many of them, so that nothing is compiled again."""
        size = min(self.problem.choice.samples, len(batch.x))
        weights = weights[:size] / np.maximum(weights[:size].mean(axis=0), 1e-300)
        true, guessed = ({k: v[:size] for k, v in each.items()} for each in (batch.values, guess))
        latents = _latents(self.problem, self.columns, jnp.asarray(batch.x[:size]))
        known, said = _shaped(self.problem, latents, true), _shaped(self.problem, latents, guessed)
        if batch.failed is not None:
            known[FAILED] = jnp.asarray(batch.failed[:size])[:, None]
        return Anchors(latents, known, said, jnp.asarray(weights), jnp.mean(jnp.asarray(weights * r[:size]), axis=0))

    def bound(self, point: Any, sites: Sites, normals: Array, surrogate: Surrogate) -> float:
        """The bound at a place, corrected by the residual."""
        rows, held, jitter = self.problem.rows, self.problem.inducing, self.problem.jitter
        return float(self.compiled_bound(point, sites, rows, held, normals, surrogate, jitter))

    def profiled(self, point: Any, sites: Sites, normals: Array, surrogate: Surrogate) -> tuple[float, Any, Sites]:
        """The bound maximised over q from these sites, its gradient in the hyperparameters, and the best sites."""
        rows, held, jitter = self.problem.rows, self.problem.inducing, self.problem.jitter
        value, gradient, refined = self.compiled_profiled(
            point, sites, rows, held, normals, jitter, jnp.asarray(1.0), surrogate
        )
        return float(value), gradient, refined


def _gradients(q: Gaussian, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """With respect to the mean and the covariance: R^-T first, R^-T second R^-1 / 2."""
    inverse = q.inverse
    return np.einsum("nji,nj->ni", inverse, first), 0.5 * np.swapaxes(inverse, 1, 2) @ second @ inverse


def _marginals(problem: Problem, point: Any, sites: Sites, rows: Rows, held: Any) -> Marginals:
    program = problem.program
    learnt, inducing = split_point(point, held)
    parameters = program.parameters.constrain(learnt)
    seen = views(program, parameters, inducing, rows, problem.layout.dense, problem.jitter)
    return site_marginals(program, parameters, rows, seen, sites)[0]


def _place(problem: Problem, columns: tuple[int, ...]) -> Compiled:
    program = problem.program

    def place(point: Any, sites: Sites, rows: Rows, held: Any) -> tuple[Array, Array]:
        q = _marginals(problem, point, sites, rows, held)
        root = block_root(column_covariance(program, q, columns), np.arange(len(columns)))
        return q.mean[0][:, np.asarray(columns)], root

    return place


def _shaken(problem: Problem, columns: tuple[int, ...]) -> Compiled:
    """The place after a full step whose gradients are off by this much."""
    place, program = _place(problem, columns), problem.program

    def shaken(point: Any, sites: Sites, rows: Rows, held: Any, slope: Array, curvature: Array) -> tuple[Array, Array]:
        q = _marginals(problem, point, sites, rows, held)

        def linear(q: Marginals) -> Array:
            spread = column_covariance(program, q, columns)
            return jnp.sum(slope * q.mean[0][:, np.asarray(columns)]) + jnp.sum(curvature * spread)

        change = site_target(q, jax.grad(linear)(q))
        moved = Sites(sites.linear + change.linear, sites.precision + change.precision)
        return place(point, moved, rows, held)

    return shaken


def _latents(problem: Problem, columns: tuple[int, ...], x: Float[Array, "S rows J"]) -> Float[Array, "S 1 rows all"]:
    """All columns, where only some matter."""
    x = jnp.asarray(x, problem.options.dtype)[:, None]
    return jnp.zeros((*x.shape[:-1], problem.program.latents), x.dtype).at[..., np.asarray(columns)].set(x)


def _shaped(problem: Problem, latents: Array, values: Mapping[str, Array | np.ndarray]) -> dict[str, Array]:
    """Values of opaque calls in their declared shapes."""
    shapes = {use.key: use.result for use in problem.program.uses()}
    return {k: jnp.asarray(v, latents.dtype).reshape(*latents.shape[:3], *shapes[k]) for k, v in values.items()}


def _propose(problem: Problem, columns: tuple[int, ...]) -> Compiled:
    def propose(point: Any, rows: Rows, x: Array) -> tuple[Mapping[str, Array], Rows, Array]:
        learnt, _ = split_point(point, problem.inducing)
        return problem.program.parameters.constrain(learnt), rows, _latents(problem, columns, x)

    return propose


def _density(problem: Problem, columns: tuple[int, ...]) -> Compiled:
    """Log densities [S, rows] of the terms with opaque values, at points and values that are known or guessed."""
    program = problem.program

    def density(point: Any, rows: Rows, x: Array, values: Mapping[str, Array], failed: Array | None) -> Array:
        latents = _latents(problem, columns, x)
        known = _shaped(problem, latents, values)
        if failed is not None:
            known[FAILED] = jnp.asarray(failed, latents.dtype)[:, None]
        learnt, _ = split_point(point, problem.inducing)
        return opaque_density(program, program.parameters.constrain(learnt), rows, latents, known)[:, 0]

    return density


def _bound(problem: Problem) -> Compiled:
    program, dense = problem.program, problem.layout.dense

    def bound(point: Any, sites: Sites, rows: Rows, held: Any, normals: Array, surrogate: Any, jitter: Any) -> Array:
        learnt, inducing = split_point(point, held)
        return site_elbo(program, learnt, inducing, sites, rows, dense, normals, surrogate, jitter)

    return bound
