"""Why a bound is not a finite number: the latent, its kernel and matrix, or the likelihood and the row, by looking.

JAX answers a factorisation that fails with NaN and no word. When a fit ends there, its matrices and densities at the
last parameters are computed once more on the host, in float64, and the first that explains the failure is named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from gpdsl.inference.ascent.lbfgs import flat, unflat
from gpdsl.inference.integrated import Learnt, Profile, widest_of
from gpdsl.inference.proposals import reach
from gpdsl.inference.symmetries import element_names
from gpdsl.kernels.covariance import covariance
from gpdsl.kernels.form import describe
from gpdsl.kernels.functionals import Functionals, blocks, every_point
from gpdsl.program.evaluation import prior_means
from gpdsl.program.groups import Group, kernel_values
from gpdsl.program.parameters import Parameters
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows, Scope, observed_mask
from gpdsl.symbolic.conditions import condition
from gpdsl.symbolic.expectations import latents_in
from gpdsl.symbolic.kinks import CORNERS

LARGEST = 2500
"""Matrices above this size are judged by a random part of them."""

NEARLY_ONE = 0.9999
"""Correlation between the two most distant points beyond which a kernel sees all points as one."""

LIFTED = 1e-4
"""Jitter with which any covariance matrix has a Cholesky factor that is one of a kernel."""

NO_NOISE = (
    "the noise is next to nothing beside the latents, which {} does not resolve.\n"
    "  help: start from more of it (init={{...}}), or give it a lower bound or a prior, or fix it"
)


@dataclass(frozen=True)
class Trouble:
    """What is wrong and what to do about it, in sentences for the user; `matrix` says whether more jitter may help."""

    text: str
    matrix: bool = False


@dataclass(frozen=True)
class _Matrix:
    """A covariance matrix at unit scale, the points it belongs to, and the size of the numbers its entries are made of.

    Covariances of differences of nearby values are small differences of large numbers, whose rounding they keep.
    """

    values: np.ndarray
    points: np.ndarray
    size: int
    terms: float


def diagnose(
    program: Program,
    learnt: Mapping[str, Array],
    inducing: Sequence[Functionals],
    rows: Rows,
    dtype: str,
    jitter: float,
    exact: bool = False,
) -> Trouble:
    """The reason at these (unconstrained) parameters. With `exact` inference noise lifts the matrices, not jitter."""
    jitter = LIFTED if exact else jitter
    parameters = program.parameters.constrain(dict(learnt))
    for name, value in parameters.items():
        if not np.all(np.isfinite(np.asarray(value))):
            return Trouble(f"parameter `{name}` is not finite.\n  help: give it another start, bounds or a prior")
    for group, functionals in zip(program.groups, inducing, strict=True):
        found = None if group.per_row else _kernel_trouble(program, group, parameters, functionals, dtype, jitter)
        if found is not None:
            return Trouble(found, matrix=True)
    other = NO_NOISE.format(dtype) if exact else _unexplained(program, dtype)
    return Trouble(_likelihood_trouble(program, parameters, rows) or other)


def _kernel_trouble(
    program: Program,
    group: Group,
    parameters: Mapping[str, Array],
    functionals: Functionals,
    dtype: str,
    jitter: float,
) -> str | None:
    """The first covariance matrix of a group without a Cholesky factor in this precision, and the likely cause."""
    names = ", ".join(f"`{name}`" for name in group.names)
    kernel = kernel_values(program.evaluator, group, parameters)
    scale = np.asarray(kernel.scale, float)
    if not np.all(np.isfinite(scale)) or np.any(scale < 0):
        return f"the variance of latent {names} is {scale.min():.3g}.\n  help: a factor of a kernel must stay positive"
    for which in range(group.factors):
        matrix = _matrix(group, [a[which] for a in kernel.arguments], functionals)
        found = _matrix_trouble(matrix, dtype, jitter)
        if found is not None:
            what, cause = found
            return (
                f"the covariance matrix of latent {names}, kernel {describe(group.form)}, size {matrix.size}, {what}.\n"
                f"  Likely cause: {cause}"
            )
    return None


def _matrix(group: Group, arguments: Sequence[Array], functionals: Functionals) -> _Matrix:
    points = np.asarray(every_point(functionals), float)
    values = np.asarray(covariance(group.form, list(arguments), functionals), float)
    size = values.shape[0]
    if size > LARGEST:
        some = np.sort(np.random.default_rng(0).choice(size, LARGEST, replace=False))
        values = values[np.ix_(some, some)]
    return _Matrix(values, points, size, _largest_terms(group, arguments, functionals))


def _largest_terms(group: Group, arguments: Sequence[Array], functionals: Functionals) -> float:
    """The largest variance that a weighted sum of values would have if nothing in it cancelled."""

    def deviation(elementary: Functionals) -> np.ndarray:
        return np.sqrt(np.diag(np.asarray(covariance(group.form, list(arguments), elementary), float)))

    sums = [block for block in blocks(functionals) if len(block) > 1]
    return max((float(np.max(sum(abs(w) * deviation(e) for w, e in block)) ** 2) for block in sums), default=0.0)


def _matrix_trouble(matrix: _Matrix, dtype: str, jitter: float) -> tuple[str, str] | None:
    values = matrix.values
    if not np.all(np.isfinite(values)):
        return "has entries that are not finite", "a kernel parameter at the edge of its range, or inputs of huge size"
    eigenvalues = np.linalg.eigvalsh(values)
    largest, smallest = float(eigenvalues[-1]), float(eigenvalues[0])
    lifted = jitter * float(np.mean(np.diag(values)))
    rounding = {"float64": 2e-16, "float32": 1.2e-7}[dtype] * max(largest * len(values), matrix.terms)
    if smallest + lifted > rounding:
        return None
    what = f"is not positive definite in {dtype} with jitter {jitter:.0e} (eigenvalues {smallest:.2g} to {largest:.2g})"
    return what, _cause(matrix, smallest, rounding, dtype)


def _cause(matrix: _Matrix, smallest: float, rounding: float, dtype: str) -> str:
    values, points = matrix.values, matrix.points
    if smallest < -10.0 * rounding:
        return "the kernel is not a covariance: it has negative eigenvalues; `gpdsl check` looks for them"
    repeated = len(points) - len(np.unique(points, axis=0))
    if repeated:
        return f"{repeated} of the {len(points)} points are repeated; average or remove repeated rows, or set inducing"
    sd = np.sqrt(np.diag(values))
    if np.min(values / np.outer(sd, sd)) > NEARLY_ONE:
        return (
            "the length-scale is far beyond the spread of the points, so that they all look the same; "
            "standardise the inputs, or bound the length-scale or give it a prior"
        )
    if dtype == "float32":
        return "single precision is too coarse for this matrix; use dtype='float64', or fewer inducing points"
    return "the points are too close together for a kernel this smooth; use fewer inducing points or a rougher kernel"


def _likelihood_trouble(program: Program, parameters: Mapping[str, Array], rows: Rows) -> str | None:
    """The first observed value whose log density is not finite at the prior mean of the latents."""
    if program.opaque:
        return None
    count = next(iter(rows.observed.values())).shape[0]
    latents = prior_means(program.evaluator, program.groups, parameters, rows, count)
    scope = Scope(parameters, rows, latents)
    for observation in program.observations:
        values = program.evaluator(observation.log_density, scope, observation.axes)
        mask = np.asarray(observed_mask(rows, observation)) > 0
        wrong = np.argwhere(mask & ~np.isfinite(np.broadcast_to(np.asarray(values, float), mask.shape)))
        if len(wrong):
            row, *rest = wrong[0]
            output = observation.outputs[0]
            where = f"[{', '.join(str(i + 1) for i in rest)}]" if rest else ""
            value = np.asarray(rows.outputs[output])[row].ravel()
            seen = f"{value[0]:.6g}" if len(value) == 1 else ", ".join(f"{v:.6g}" for v in value[:4])
            return (
                f"the log density of `{output}{where}` ~ {observation.distribution} is not finite in row {row + 1} "
                f"(`{output}` = {seen}) at the prior mean of the latents.\n"
                "  help: correct the value if the distribution rules it out; otherwise give the parameters other "
                "starting values in the model or with init={...}, or standardise the output"
            )
    return None


def _unexplained(program: Program, dtype: str) -> str:
    names = ", ".join(f"`{name}`" for group in program.groups for name in group.names)
    return (
        f"matrices and densities are finite at the prior mean (latents {names}, {dtype}), but not all over the prior: "
        "the likelihood overflows, as exponentials of latents with a large variance do, or is no number, as the "
        "logarithm of what may be negative.\n"
        "  help: start from a smaller kernel variance, or from a prior mean nearer to the data (init={...}), or say "
        "what holds elsewhere, `if inside > 0 then log(inside) else -1000`"
        + (", or use dtype='float64'" if dtype == "float32" else "")
    )


# How far the data determine what is learnt: the curvature of the evidence at the end of a search.
#
# It is the matrix -d^2 log Z / du^2 over the learnt parameters u on the real line, with log Z the evidence or its bound
# maximised over q, log priors included, by differences of its gradient: the inverse is the covariance of a
# normal approximation of p(u | y). The bound at a q that stays would be far too steep.

STEP = 1e-3
"""Of a difference, on the real line: parameters are in units of the data, positive ones by their logarithms."""

WIDEST_REAL = 100.0
"""Of parameters of either sign as `integrated.WIDEST` of others, in the units in which they are searched for."""

OTHER = 1e-3
"""Nats an observed value by which the bound may differ from that of the search, if it is the same maximum over q."""


MOVED = 0.1
"""Share of a flat direction from which it leaves an element open."""


class Unknown(Exception):
    """Why there is no curvature, in words for the user."""


@dataclass(frozen=True, eq=False)
class Curvature:
    """At `place`, the learnt parameters on the real line: the matrix, and the gradient of the evidence.

    `names` are those of the elements, `widest` the standard deviations on the real line beyond which an element is not
    determined.
    """

    names: tuple[str, ...]
    place: Float[np.ndarray, " d"]
    matrix: Float[np.ndarray, "d d"]
    slope: Float[np.ndarray, " d"]
    widest: Float[np.ndarray, " d"]

    def directions(self) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d d"]]:
        """Curvatures in units of `widest`, smallest first, and their directions, as columns: flat ones are below 1."""
        values, vectors = np.linalg.eigh(self.matrix * self.widest * self.widest[:, None])
        return values, vectors

    @property
    def axes(self) -> Float[np.ndarray, "d known"]:
        """Steps of a standard deviation along the directions that are determined: a root of their covariance."""
        values, vectors = self.directions()
        known = values >= 1.0
        return np.asarray(vectors[:, known] * self.widest[:, None] / np.sqrt(values[known]))

    @property
    def covariance(self) -> Float[np.ndarray, "d d"]:
        """Of the normal approximation; infinite where a flat direction moves an element."""
        values, vectors = self.directions()
        known = values >= 1.0
        found = self.axes @ self.axes.T
        moved = np.any(np.abs(vectors[:, ~known]) > MOVED, axis=1)
        found[moved, :] = found[:, moved] = np.nan
        found[moved, moved] = np.inf
        return found

    @property
    def left(self) -> float:
        """Nats that a step of Newton's method would still gain, along what is determined."""
        values, vectors = self.directions()
        along = (self.slope * self.widest) @ vectors
        return float(0.5 * np.sum(along[values >= 1.0] ** 2 / values[values >= 1.0]))


def curvature(program: Program, profile: Profile, learnt: Learnt, bound: float | None, rows: int) -> Curvature:
    """At the end of a search, by the gradient there and a step beside it along each element.

    `bound` is what the search has ended with, None where that is a mean over other samples. Raises Unknown.
    """
    place = flat(dict(learnt))

    def slope(at: np.ndarray) -> tuple[float, np.ndarray]:
        found, gradient = profile(unflat(dict(learnt), at))
        told = flat(dict(gradient))
        if not (np.isfinite(found) and np.all(np.isfinite(told))):
            raise Unknown("the evidence is not finite beside the end of the search")
        return float(found), told

    here, gradient = slope(place)
    if bound is not None and not abs(here - bound) < OTHER * rows:
        raise Unknown(f"the bound has another maximum over q at its end: {here:.6g} and not {bound:.6g} nats")
    widest, refs = widest_of(program, learnt, WIDEST_REAL), program.translator.references
    corners = {e for each in program.observations for e in each.log_density.atoms(condition, *CORNERS)}
    corners = {e for e in corners if any(refs[symbol].name in learnt for symbol in e.free_symbols)}
    if all(latents_in(program.translator, each) for each in corners):
        rows_of = np.asarray([(gradient - slope(place + step)[1]) / STEP for step in STEP * np.eye(len(place))])
    else:
        gradient, rows_of = np.zeros(len(place)), _about_corners(slope, place, here, widest)
    return Curvature(element_names(program.parameters, learnt), place, 0.5 * (rows_of + rows_of.T), gradient, widest)


def _about_corners(
    slope: Callable[[np.ndarray], tuple[float, np.ndarray]], top: np.ndarray, here: float, widest: np.ndarray
) -> Float[np.ndarray, "d d"]:
    """The curvature about the top of an evidence that is made of pieces, flat ones where |y - m| is summed.

    Axes are from gradients on either side, as those of `modes.around`, and widths from the fall along each.
    """

    def width(axis: np.ndarray) -> float:
        found = [reach(lambda at: slope(at)[0], top, here, side * axis) for side in (-1, 1)]
        return min(float(np.mean(found)), float(np.min(widest / np.maximum(np.abs(axis), 1e-300))))

    scales = np.array([width(unit) for unit in np.eye(len(top))])
    across = [slope(top - step)[1] - slope(top + step)[1] for step in np.diag(0.5 * scales)]
    scaled = np.asarray(across) * scales
    values, directions = np.linalg.eigh(0.5 * (scaled + scaled.T))
    axes = scales * directions.T / np.sqrt(np.maximum(values, 1e-3))[:, None]
    axes *= np.array([width(axis) for axis in axes])[:, None]
    return np.asarray(np.linalg.inv(axes.T @ axes))


def natural_errors(parameters: Parameters, found: Curvature, learnt: Learnt) -> dict[str, np.ndarray]:
    """Standard errors of the learnt parameters in their domains, by the delta method; infinite where undetermined."""
    steps = STEP * np.eye(len(found.place))
    like = {name: np.asarray(value, float) for name, value in learnt.items()}
    beside = [unflat(like, at) for at in (*(found.place + steps), *(found.place - steps))]
    forward: dict[str, Callable[[Any], Any]] = {name: parameters.bijectors[name].forward for name in learnt}
    values: dict[str, np.ndarray] = {
        name: np.asarray(forward[name](np.stack([at[name] for at in beside])), float) for name in learnt
    }
    count, covariance = len(found.place), found.covariance
    errors = {}
    for name in parameters.initial:
        slopes = np.moveaxis(values[name][:count] - values[name][count:], 0, -1) / (2 * STEP)
        errors[name] = _spread(slopes.reshape(-1, count), covariance).reshape(slopes.shape[:-1])
    return errors


def _spread(slopes: Float[np.ndarray, "elements d"], covariance: Float[np.ndarray, "d d"]) -> np.ndarray:
    """Standard deviations of what is linear with these slopes."""
    spread = np.empty(len(slopes))
    for number, each in enumerate(slopes):
        own = np.flatnonzero(each)
        spread[number] = np.sqrt(each[own] @ covariance[np.ix_(own, own)] @ each[own])
    return np.where(np.isnan(spread), np.inf, spread)
