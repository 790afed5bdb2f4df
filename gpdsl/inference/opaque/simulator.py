"""Opaque functions as one problem sees them: where they are called, what they gave, and surrogates made of it.

Compiled steps and calls of the functions alternate here; nothing compiled ever calls one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.forward import stopping_fit
from gpdsl.inference.ascent.joint import split_parameters
from gpdsl.inference.expected_log_likelihood import expected_log_likelihood
from gpdsl.inference.natural.profiled import Asked, profiled_bound, setting_of
from gpdsl.inference.natural.sites import Sites, site_elbo
from gpdsl.inference.opaque.budget import HELD_OUT, assessed_rows, assessing, has_slopes, jacobian, looks
from gpdsl.inference.opaque.evaluations import Batch, Evaluations, Gaussian, Points, Regression
from gpdsl.inference.opaque.steps import Compiled, Steps
from gpdsl.inference.opaque.surrogate import (
    FAILED,
    Anchors,
    Reads,
    Surrogate,
    Values,
    compiled_arguments,
    evaluate_externals,
    hermite,
)
from gpdsl.inference.problem import FRESH_SETS, Problem, Rest, as_arrays
from gpdsl.inference.sampling import some_rows_sum_and_error, sum_and_error
from gpdsl.program.joint import Marginals
from gpdsl.program.program import take_rows
from gpdsl.program.rows import Rows
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


class Simulator:
    """The compiled pieces of one problem around its opaque functions, with what these read.

    Of a value of sites (`bound` at a setting of them, with samples and surrogates), and of the best of it, as
    `profiled_bound` gives that. Nothing is compiled before it is used.
    """

    def __init__(
        self, problem: Problem, reads: Reads, bound: Callable[..., Array] = site_elbo, best: Compiled | None = None
    ) -> None:
        def value(point: Any, sites: Sites, rest: Rest, surrogate: Any) -> Array:
            setting = setting_of(problem, point, rest.held, rest.rows, rest.jitter)
            return bound(setting, sites, rest.normals, surrogate)

        self.problem, self.reads, self.steps = problem, reads, Steps(problem, reads)
        self.compiled_place = problem.compiling(self.steps.place)
        self.compiled_shaken = problem.compiling(self.steps.shaken)
        self.compiled_density = problem.compiling(self.steps.density)
        self.compiled_slope = problem.compiling(self.steps.slope)
        self.compiled_bound = problem.compiling(value)
        self.compiled_profiled = problem.compiling(best or partial(profiled_bound, problem, None))
        self.arguments = compiled_arguments(problem.program, self.steps.propose)
        self.likelihood_learnt = bool(split_parameters(problem.program)[1])
        uses = problem.program.uses() if has_slopes(problem.program) else ()
        self.pushed = {use.key: problem.compiling(self.steps.pushed(use)) for use in uses}

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
            direct, through = self.compiled_slope(point, self.problem.rows, batch.x, values)
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
        latents = self.steps.latents(jnp.asarray(batch.x[:size]))
        known, said = self.steps.shaped(latents, true), self.steps.shaped(latents, guessed)
        if batch.failed is not None:
            known[FAILED] = jnp.asarray(batch.failed[:size])[:, None]
        return Anchors(latents, known, said, jnp.asarray(weights), jnp.mean(jnp.asarray(weights * r[:size]), axis=0))

    def bound(self, point: Any, sites: Sites, normals: Array | None, surrogate: Surrogate) -> float:
        """The bound at a place, corrected by the residual."""
        return float(self.compiled_bound(point, sites, self.problem.rest(normals), surrogate))

    def profiled(
        self, point: Any, sites: Sites, normals: Array | None, surrogate: Surrogate, iterations: int
    ) -> tuple[float, Any, Sites]:
        """The bound maximised over q from these sites, its gradient in the hyperparameters, and the best sites."""
        rest, asked = self.problem.rest(normals), Asked(jnp.asarray(iterations))
        value, gradient, refined, _ = self.compiled_profiled(point, sites, rest, surrogate, asked)
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


# The bound of an opaque likelihood where steps ended, by evaluations that led none of them, and its standard error.

AFTERWARDS = 2_000_000
"""Offset of the random streams of evaluations after the last step."""

Look = Callable[[Rows, Array], tuple[Any, Any]]


def by_halves(
    problem: Problem,
    parameters: Mapping[str, Array],
    rows: Rows,
    q: Marginals,
    weights: Float[Array, "K"],
    normals: Float[Array, "S K rows latents"],
    values: Mapping[str, Array],
) -> Float[Array, "2 rows"]:
    """Each row's expected log likelihood by either half of the samples, which know nothing of each other."""
    half = len(normals) // 2
    found = []
    for part in (slice(0, half), slice(half, None)) if half else (slice(None),):
        some = {key: value[part] for key, value in values.items()}
        found.append(weights @ expected_log_likelihood(problem.program, parameters, rows, q, normals[part], some))
    return jnp.stack(found)


def fresh_bound(problem: Problem, look: Look, seed: int) -> tuple[float, float] | None:
    """The bound and its standard error, as far as the budget goes; None where it allows for no look.

    `look` evaluates the functions at samples of a key, and gives what `by_halves` does and what the bound has besides.
    """
    count, choice, program = problem.count, problem.choice, problem.program
    times = looks(program, assessing(program, choice, count))
    if not times:
        return None
    key, some = jax.random.fold_in(jax.random.key(seed), AFTERWARDS), assessed_rows(choice, count)
    rows = problem.rows
    if some < count:
        rows = take_rows(rows, np.sort(np.random.default_rng([seed, 1]).choice(count, some, replace=False)))
    found = [look(rows, jax.random.fold_in(key, number)) for number in range(times)]
    estimates = np.concatenate([np.asarray(each, float) for each, _ in found])
    total, error = some_rows_sum_and_error(estimates, count)
    return total + float(found[0][1]), error


# The bound of a fit with surrogates, by evaluations that chose neither q nor the surrogates, and its standard error.
#
# What surrogates leave unexplained at the points that they were fitted to, and q with them, understates what they leave
# elsewhere, most of all at a kink. So the last evaluations of a fit are made where it ends:
#
#     E_q[log p] = E_q[log p(surrogate)] + E_q[log p(true) - log p(surrogate)],
#
# the first by samples, which cost nothing, the second by a few sets of points that know nothing of each other.


def held_out_bound(
    simulator: Simulator,
    place: tuple[Any, Sites, Gaussian],
    surrogate: Surrogate,
    points: int,
    normals: Callable[[int], Array | None],
    seed: Sequence[int],
) -> tuple[float, float]:
    """The bound at a place and its standard error; `normals` gives samples for the surrogates by number."""
    point, sites, q = place
    alone = without_residual(surrogate)
    bounds = [simulator.bound(point, sites, normals(number), alone) for number in range(1, FRESH_SETS + 1)]
    return sum_and_error(np.asarray(bounds), _left_open(simulator, point, q, surrogate, points, seed))


def without_residual(surrogate: Surrogate) -> Surrogate:
    """The polynomials alone."""
    names = ("level", "slope", "curvature")
    nothing: dict[str, Any] = {name: jnp.zeros_like(getattr(surrogate, name)) for name in names}
    if surrogate.anchors is not None:
        weights, level = map(jnp.zeros_like, (surrogate.anchors.weights, surrogate.anchors.level))
        nothing["anchors"] = replace(surrogate.anchors, weights=weights, level=level)
    return replace(surrogate, **nothing)


def _left_open(
    simulator: Simulator, point: Any, q: Gaussian, surrogate: Surrogate, points: int, seed: Sequence[int]
) -> Float[np.ndarray, "sets rows"]:
    """What true values add to the log density of the surrogates' in every row, by each set of points.

    Parameters that functions read are where they are, not about it.
    """
    rows, width = q.mean.shape
    sets = min(HELD_OUT, points)
    each, seeds = points // sets, np.random.SeedSequence(seed).spawn(sets)
    z = np.concatenate([Points(rows, width, own.generate_state(2)).next(each) for own in seeds])
    z[..., len(simulator.reads.columns) :] = 0.0
    batch = simulator.evaluate(point, q, z, values_only=True)
    r = simulator.residual(point, batch, _said(surrogate, batch.x))
    return r.reshape(sets, each, rows).mean(axis=1)


def _said(surrogate: Surrogate, x: Float[np.ndarray, "S rows J"]) -> dict[str, Float[np.ndarray, "S rows 1 values"]]:
    """Values of the polynomials."""
    centre, inverse, coefficients = jax.tree.map(
        lambda a: np.asarray(a, float), (surrogate.centre, surrogate.inverse, dict(surrogate.coefficients))
    )
    quadratic = next(iter(coefficients.values())).shape[1] > 1 + x.shape[-1]
    features = hermite(np.einsum("nij,snj->sni", inverse, x - centre), quadratic)
    return {key: np.einsum("snf,nfd->snd", features, each)[:, :, None] for key, each in coefficients.items()}
