"""The bound maximised over the sites of a dense posterior on a CPU: LAPACK between small compiled programs.

The iterations are those of `refine`. Of each, `lapack` gives q from the sites by one factorisation and one inverse per
latent, and a program whose work is linear in the rows the expected log likelihood, the target and the next trial. When
they have settled, the gradient in the hyperparameters is that at fixed q of the values at the rows (the bound does not
change with q there), with (alpha alpha' - R) / 2 as the slope in each prior covariance, in the gradient of a program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.inference.bound import GroupView, Views, assemble, by_reading
from gpdsl.inference.exact.evidence import triangle_slope
from gpdsl.inference.natural.lapack import RowPosterior, is_covariance, row_posterior
from gpdsl.inference.natural.refine import Progress, before_any, judged, next_trial
from gpdsl.inference.natural.sites import Setting, Sites, of_latents, site_target, site_units, step_lengths
from gpdsl.inference.posteriors.features import inducing_covariances
from gpdsl.inference.problem import Problem
from gpdsl.kernels.functionals import Functionals
from gpdsl.program.groups import Group
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows
from gpdsl.symbolic.concavity import KINKED

Weights = list[tuple[Float[Array, "latents M"], Float[Array, "latents M"]]]
"""Of each group, precisions and linear terms of the sites about the prior's mean, for latents of unit scale."""

Moments = list[tuple[Float[Array | np.ndarray, "latents M"], Float[Array | np.ndarray, "latents M"]]]
"""Of each group, means (without the prior's) and variances of the values, for unit scale."""

LARGE = 512
"""Values from which on the gradient's loops over matrices are worth a compiler that takes twice as long: half the time
with many columns. Those of the covariances alone take as long without it."""

Given = tuple[Rows, list[Functionals], Array | float]
"""Rows, inducing values and jitter."""


def in_row_space(problem: Problem) -> bool:
    """Whether the sites of this problem are fitted so."""
    program = problem.program
    plain = not (program.coupled or program.opaque or any(group.per_row for group in program.groups))
    alone = problem.rows.mesh is None and jax.default_backend() == "cpu"
    suited = plain and alone and problem.layout.dense and problem.options.dtype == "float64" and bool(program.groups)
    return suited and _smooth(program)


def _smooth(program: Program) -> bool:
    """Whether no expectation by nodes or samples is of a function with kinks in the latents.

    Of |y - f| the best q lies at kinks that the nodes make in the bound, where slopes at fixed q of the values and at
    fixed sites are those of different sides.
    """
    terms = [term for observation in program.observations for term in observation.terms if term.method != "closed"]
    kinks = [kink for term in terms for kink in term.expression.atoms(*KINKED) if kink.free_symbols & set(term.latents)]
    return not kinks


@dataclass(frozen=True)
class _Found:
    """q of every latent, group by group."""

    latents: Sequence[Sequence[RowPosterior]]

    @property
    def moments(self) -> Moments:
        """Means and variances."""
        return [(np.stack([q.mean for q in of]), np.stack([q.variance for q in of])) for of in self.latents]

    @property
    def divergence(self) -> float:
        """The KL divergence of all latents."""
        return sum(q.divergence for of in self.latents for q in of)

    @property
    def slopes(self) -> Slopes:
        """What the bound's slopes in the prior are made of."""
        return [
            (
                np.stack([q.alpha for q in of]),
                [q.shrinkage for q in of],
                np.asarray([q.growth for q in of]),
            )
            for of in self.latents
        ]


Slopes = list[tuple[Any, list[Any], Any]]
"""Of each group, [latents, M] alphas, [M, M] matrices R, and growths: see `RowPosterior`."""


Place = Callable[[Problem, Any, Given], Setting]
"""The setting at a point."""


@dataclass(frozen=True)
class RowSpace:
    """The functions of one problem. `at` gives the setting at a point; the rows come with the other arguments."""

    problem: Problem
    at: Place

    def place(self, point: Any, given: Given) -> Setting:
        """The setting at a point."""
        return self.at(self.problem, point, given)

    def begin(self, point: Any, sites: Sites, given: Given) -> tuple[list[Array], Array, Progress, Sites, Weights]:
        """Prior covariances of unit scale, log prior of the parameters, and the first trial: the sites themselves."""
        setting = self.place(point, given)
        seen = setting.views()
        progress = before_any(sites)
        trial = next_trial(progress, site_units(seen, sites))
        log_prior = jnp.asarray(setting.log_prior, sites.linear.dtype)
        return _covariances(setting, seen), log_prior, progress, trial, _weights(seen, trial)

    def step(
        self,
        point: Any,
        given: Given,
        normals: Any,
        tolerance: Any,
        p: Progress,
        trial: Sites,
        moments: Moments,
        divergence: Any,
    ) -> tuple[Progress, Sites, Weights, Array]:
        """One iteration: the bound at the trial, of which the moments and divergence are known, and the next trial."""
        setting = self.place(point, given)
        seen = setting.views()
        units = site_units(seen, trial)
        q = _at(seen, moments)
        value, slope = jax.value_and_grad(lambda q: jnp.sum(seen.expected(q, normals)))(q)
        value = value - divergence
        target = site_target(q, slope)
        found = value, target, jnp.sum(step_lengths(q, trial, target)), None
        after = judged(p, trial, found, units, tolerance)
        following = next_trial(after, units)
        return after, following, _weights(seen, following), value

    def gradient(self, point: Any, given: Given, normals: Any, moments: Moments, slopes: Slopes) -> Any:
        """The bound's gradient in the point, at fixed q of the values."""
        here = self.place(point, given)
        seen = here.views()
        q = _at(seen, moments)

        def parts(at: Any) -> tuple[list[Array], list[Array], Array, Array]:
            setting = self.place(at, given)
            views = setting.views()
            own = jnp.asarray(jnp.sum(views.expected(q, normals)) + setting.log_prior)
            return _covariances(setting, views), [view.kernel.scale for view in views], views.prior(setting.count), own

        (_, scales, prior, own), pull = jax.vjp(parts, point)
        of_prior = [
            by_reading(view.group, (alphas / jnp.sqrt(scale)[:, None])[None])[0]
            for view, scale, (alphas, *_) in zip(seen, scales, slopes, strict=True)
        ]
        grown = [growth / scale for scale, (*_, growth) in zip(scales, slopes, strict=True)]
        of_matrices = [_matrix_slope(view.group, *each[:2]) for view, each in zip(seen, slopes, strict=True)]
        return pull((of_matrices, grown, jnp.concatenate(of_prior).T, jnp.ones_like(own)))[0]


def _at(seen: Views, moments: Moments) -> Marginals:
    return assemble(seen, [(jnp.asarray(mean)[None], jnp.asarray(variance)[None]) for mean, variance in moments])


def _covariances(setting: Setting, seen: Sequence[GroupView]) -> list[Float[Array, "g M M"]]:
    pairs = zip(seen, setting.inducing, strict=True)
    return [inducing_covariances(view.group, view.kernel, points, setting.jitter) for view, points in pairs]


def _weights(seen: Views, sites: Sites) -> Weights:
    linear = sites.linear - sites.precision * seen.prior(len(sites.linear))
    return [of_latents(view, linear, sites.precision)[::-1] for view in seen]


def _matrix_slope(group: Group, alphas: Array, shrinkages: Sequence[Array]) -> Float[Array, "g M M"]:
    """The slope in the covariances of a group, of unit scale: that of several latents where they have one matrix."""
    each = [triangle_slope(alpha, shrinkage) for alpha, shrinkage in zip(alphas, shrinkages, strict=True)]
    return sum(each[1:], start=each[0])[None] if group.factors == 1 else jnp.stack(each)


# --- what calls them --------------------------------------------------------------------------------------------


def _function(problem: Problem, wanted: tuple[Place, str], *arguments: Any) -> Any:
    place, name = wanted
    return getattr(RowSpace(problem, place), name)(*arguments)


class Ascent:
    """The programs of a problem, compiled, and the loop between them."""

    def __init__(self, problem: Problem, place: Place, start: Any, sites: Sites, given: Given, normals: Any) -> None:
        def compiled(
            name: str, *arguments: Any, brief: bool = problem.brief, fused: bool = False
        ) -> Callable[..., Any]:
            return problem.shared(_function, *arguments, context=(place, name), brief=brief, fused=fused)

        self._begin = compiled("begin", start, sites, given)
        _, _, progress, trial, weights = self._begin(start, sites, given)
        self._unknown = _Found([[_unknown(w) for w in np.asarray(precision)] for precision, _ in weights])
        unknown = self._unknown
        known = progress, trial, unknown.moments, unknown.divergence
        self._step = compiled("step", start, given, normals, 0.0, *known)
        shapes = [_shapes(*precision.shape) for precision, _ in weights]
        gradient = start, given, normals, unknown.moments, shapes
        large = max(precision.shape[-1] for precision, _ in weights) > LARGE
        self._gradient = compiled("gradient", *gradient, fused=large) if jax.tree.leaves(start) else None

    def __call__(
        self,
        point: Any,
        sites: Sites,
        given: Given,
        normals: Any,
        tolerance: float,
        iterations: int,
        sloped: bool = True,
    ) -> tuple[Array, Any, Sites, bool]:
        """Bound, gradient, sites, and whether these settled. Without leaves in the point there is no gradient, nor
        where none is asked for."""
        matrices, log_prior, progress, trial, weights = self._begin(point, sites, given)
        priors, best = [np.asarray(matrix) for matrix in matrices], self._unknown
        if not all(is_covariance(each) for matrices in priors for each in matrices):
            return jnp.asarray(jnp.nan), point, sites, True
        while not progress.done and int(progress.iterations) < iterations:
            found = _latents(priors, weights) or self._unknown
            known = progress, trial, found.moments, found.divergence
            progress, trial, weights, value = self._step(point, given, normals, tolerance, *known)
            best = found if float(value) == float(progress.elbo) else best
        gradient = point
        if sloped and self._gradient is not None and best is not self._unknown:
            gradient = self._gradient(point, given, normals, best.moments, best.slopes)
        whole: Any = np.asarray(progress.elbo) + np.asarray(log_prior)
        return whole, gradient, progress.sites, bool(progress.done)


def _latents(priors: Sequence[np.ndarray], weights: Weights) -> _Found | None:
    """q of every latent; None where the sites of one make it no Gaussian."""
    found = []
    for matrices, (precision, linear) in zip(priors, weights, strict=True):
        sites = list(zip(np.asarray(precision), np.asarray(linear), strict=True))
        each = [row_posterior(matrices[min(j, len(matrices) - 1)], *of) for j, of in enumerate(sites)]
        if any(q is None for q in each):
            return None
        found.append([q for q in each if q is not None])
    return _Found(found)


def _unknown(like: np.ndarray) -> RowPosterior:
    """A posterior of which nothing is a number."""
    none = np.full_like(like, np.nan)
    return RowPosterior(none, none, np.nan, np.nan, none, none, np.zeros((0, 0)))


def _shapes(latents: int, size: int) -> tuple[Any, list[Any], Any]:
    """Shapes of the slopes of a group."""
    each = lambda *shape: jax.ShapeDtypeStruct(shape, np.float64)  # noqa: E731
    return each(latents, size), [each(size, size)] * latents, each(latents)
