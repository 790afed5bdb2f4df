"""Values of opaque functions between compiled steps, and quadratic surrogates of them, one per row.

They are never called from inside a compiled program, as they may block, fail, or run elsewhere: arguments come out of
one compiled call, values go into the next. Where q puts the latents of a row, x = m + R z, every value of an opaque
function is regressed on Hermite polynomials of z up to degree two. The surrogate is a formula: the expected log
likelihood and its gradients go through it, at no cost in evaluations, as often as an optimiser asks. What the log
likelihood of the true values adds to that of the values of the surrogates, r, is what a control variate leaves: small,
and estimated by the identities of `inference.score`,

    dE[r]/dm = R^-T E[r z],      dE[r]/dV = R^-T E[r (z z' - I)] R^-1 / 2,

estimated at the points that have been evaluated and held while q moves by what `inference.simulated` allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.forward import ForwardModel, ForwardModelError, call, evaluate, stand_ins, stopping_fit
from gpdsl.forward.errors import EverythingFailed
from gpdsl.program.cache import jit
from gpdsl.program.joint import Marginals, basis_columns, covariance_table
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows, Scope
from gpdsl.symbolic.expectations import latents_in
from gpdsl.symbolic.translate import ExternalUse

Values = dict[str, Float[Array, "..."]]

FAILED = "failed samples"
"""Among the values of opaque calls, which are named by their keys: the samples without a value, as 1."""

Arguments = Callable[[ExternalUse, Values], Sequence[Array | np.ndarray]]


def arguments_of(
    program: Program,
    use: ExternalUse,
    parameters: Mapping[str, Array],
    rows: Rows,
    latents: Float[Array, "*lead rows latents"],
    values: Values,
) -> list[Array]:
    """Arguments of one opaque call at these latent values, each [*lead, rows, *dims]. Traceable."""
    scope = Scope(parameters, rows, latents, values)
    found = []
    for shape, elements in use.arguments:
        parts = [
            jnp.broadcast_to(jnp.asarray(program.evaluator(e, scope), latents.dtype), latents.shape[:-1])
            for e in elements
        ]
        stacked = jnp.stack(parts, axis=-1) if parts else jnp.zeros((*latents.shape[:-1], 0))
        found.append(stacked.reshape(*latents.shape[:-1], *shape))
    return found


def evaluate_externals(program: Program, uses: Sequence[ExternalUse], arguments: Arguments) -> Values:
    """Call each opaque function in turn; `arguments` gives them as arrays [*lead, rows, *dims].

    All values are finite. Where failures are penalised, a sample without a value gets that of another sample of its
    row, and in a fit `values[FAILED]` [*lead, rows] is 1 there: `penalised` takes it from there. Raises
    ForwardModelError, in a fit `Stopped`.
    """
    values: Values = {}
    for use in uses:
        passed = [np.asarray(a) for a in arguments(use, values)]
        lead = passed[0].shape[: passed[0].ndim - len(use.arguments[0][0])]
        rows = lead[-1]
        flat = [a.reshape(-1, *shape) for a, (shape, _) in zip(passed, use.arguments, strict=True)]
        model = program.externals[use.function]
        with stopping_fit(model.account):
            result, failed = _with_stand_ins(model, flat, use, rows)
        if model.failures.penalises:
            mask = jnp.asarray(failed.reshape(lead), passed[0].dtype)
            values[FAILED] = jnp.maximum(mask, values[FAILED]) if FAILED in values else mask
        values[use.key] = jnp.asarray(result.reshape(*lead, *use.result), passed[0].dtype)
    return values


def _with_stand_ins(
    model: ForwardModel, arguments: Sequence[np.ndarray], use: ExternalUse, rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """Finite values, and which rows of the batch failed. A row of the data without any gets those of another row."""
    if not model.account.fitting:
        return call(model, arguments, use.result, data_rows=rows), np.zeros(len(arguments[0]), bool)
    found = evaluate(model, arguments, use.result, data_rows=rows)
    if not found.failed.any():
        return found.values, found.failed
    if found.failed.all():
        raise ForwardModelError(EverythingFailed(model.name, len(found.failed)))
    source = stand_ins(found.failed, rows)
    source[source < 0] = np.flatnonzero(~found.failed)[0]
    return found.values[source], found.failed


def penalised(values: Float[Array, "S K rows"], externals: Mapping[str, Array]) -> Float[Array, "S K rows"]:
    """Log densities of samples, where those whose opaque function failed count as the worst of their row's samples.

    The posterior is pushed away from where the function fails, by a finite amount, and the regression that serves as
    control variate is not led astray. A row without any success, or without samples, counts as the worst of all.
    """
    if FAILED not in externals:
        return values
    failed = externals[FAILED] > 0
    known = jnp.where(failed, jnp.inf, jax.lax.stop_gradient(values))
    worst = jnp.min(known, axis=0, keepdims=True)
    worst = jnp.where(jnp.isfinite(worst), worst, jnp.min(known))
    return jnp.where(failed, worst, values)


def compiled_arguments(
    program: Program,
    latents_of: Callable[..., tuple[Mapping[str, Array], Rows, Array]],
) -> dict[str, Callable[..., list[Array]]]:
    """One compiled function per opaque call; `latents_of(*args)` gives parameters, rows and latent samples."""

    def make(use: ExternalUse) -> Callable[..., list[Array]]:
        def function(values: Values, *args: object) -> list[Array]:
            parameters, rows, latents = latents_of(*args)
            return arguments_of(program, use, parameters, rows, latents, values)

        return jit(function)

    return {use.key: make(use) for use in program.uses()}


@dataclass(frozen=True)
class Reads:
    """What opaque functions read in a row: columns of the marginals, and learnt parameters, with their shapes.

    Parameters are seen on their unconstrained scales, where points differ from the current values by a smoothing: what
    the values do along them is learnt like what they do along latents.
    """

    columns: tuple[int, ...]
    parameters: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def width(self) -> int:
        """Numbers read in a row."""
        return len(self.columns) + sum(math.prod(shape) for _, shape in self.parameters)

    def flat(self, program: Program, parameters: Mapping[str, Array], like: Array) -> Float[Array, "P"]:
        """The parameters that are read, unconstrained."""
        inverse = {name: program.parameters.bijectors[name].inverse for name, _ in self.parameters}
        parts = [jnp.ravel(inverse[name](jnp.asarray(parameters[name]))) for name, _ in self.parameters]
        return jnp.concatenate([jnp.zeros(0), *parts]).astype(like.dtype)

    def constrained(self, program: Program, flat: Float[Array, "*lead P"]) -> dict[str, Float[Array, "..."]]:
        """Values of those parameters in their domains, sample by sample."""
        found, start = {}, 0
        for name, shape in self.parameters:
            part = flat[..., start : start + math.prod(shape)].reshape(*flat.shape[:-1], *shape)
            found[name], start = program.parameters.bijectors[name].forward(part), start + math.prod(shape)
        return found


SMOOTHING = 0.1
"""Standard deviation of parameters about their current values, on unconstrained scales, where functions are called."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Anchors:
    """Points with their true and their surrogate values, where parameters of the likelihood are learnt.

    The residual changes with these: by the difference of log densities here, whose mean is `level` where they are now.
    """

    latents: Float[Array, "S 1 rows latents"]
    true: Mapping[str, Float[Array, "S 1 rows *axes"]]
    said: Mapping[str, Float[Array, "S 1 rows *axes"]]
    weights: Float[Array, "S rows"]
    level: Float[Array, "rows"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Surrogate:
    """Polynomials in z = inverse (x - centre) for every opaque call, and the linear model of the residual.

    `coefficients` [rows, features, values] by call; `level`, `slope` and `curvature` are the residual's mean and its
    gradients in the mean and covariance of x, at `centre` and `covariance`.
    """

    centre: Float[Array, "rows J"]
    inverse: Float[Array, "rows J J"]
    covariance: Float[Array, "rows J J"]
    coefficients: Mapping[str, Float[Array, "rows features values"]]
    level: Float[Array, "rows"]
    slope: Float[Array, "rows J"]
    curvature: Float[Array, "rows J J"]
    anchors: Anchors | None
    reads: Reads = field(metadata={"static": True})
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = field(metadata={"static": True})

    def values(
        self, program: Program, parameters: Mapping[str, Array], latents: Float[Array, "*lead rows latents"]
    ) -> dict[str, Float[Array, "..."]]:
        """What the surrogates say the opaque calls give at these latent values and parameters."""
        x = latents[..., np.asarray(self.reads.columns)]
        if self.reads.parameters:
            flat = self.reads.flat(program, parameters, x)
            x = jnp.concatenate([x, jnp.broadcast_to(flat, (*x.shape[:-1], flat.size))], axis=-1)
        z = jnp.einsum("nij,...nj->...ni", self.inverse, x - self.centre)
        quadratic = next(iter(self.coefficients.values())).shape[1] > 1 + self.reads.width
        features = hermite(z, quadratic, jnp)
        found = {}
        for key, shape in self.shapes:
            flat = jnp.einsum("...nf,nfd->...nd", features, self.coefficients[key])
            found[key] = flat.reshape(*flat.shape[:-1], *shape)
        return found

    def residual(self, program: Program, parameters: Mapping[str, Array], q: Marginals) -> Float[Array, "1 rows"]:
        """The expected residual, to first order in the moments of q and in the parameters that are read."""
        width = len(self.reads.columns)
        moved = q.mean[0][:, np.asarray(self.reads.columns)] - self.centre[:, :width]
        spread = column_covariance(program, q, self.reads.columns) - self.covariance[:, :width, :width]
        found = self.level + jnp.sum(self.slope[:, :width] * moved, -1)
        found = found + jnp.sum(self.curvature[:, :width, :width] * spread, (-1, -2))
        if self.reads.parameters:
            flat = self.reads.flat(program, parameters, moved)
            found = found + jnp.sum(self.slope[:, width:] * (flat - self.centre[:, width:]), -1)
        return found[None]


def hermite(z: Any, quadratic: bool, np_like: Any = np) -> Any:
    """Orthonormal polynomials of standard normals: 1, z_i, and with `quadratic` (z_i^2 - 1) / sqrt 2 and z_i z_j."""
    parts = [np_like.ones_like(z[..., :1]), z]
    if quadratic:
        first, second = np.triu_indices(z.shape[-1], 1)
        parts += [(z**2 - 1.0) / np.sqrt(2.0), z[..., first] * z[..., second]]
    return np_like.concatenate(parts, axis=-1)


def feature_count(width: int, quadratic: bool) -> int:
    """Number of polynomials in that many variables."""
    return 1 + width + (width * (width + 1) // 2 if quadratic else 0)


def hermite_slopes(z: Float[np.ndarray, "*lead J"], quadratic: bool) -> Float[np.ndarray, "*lead J F"]:
    """Derivatives of the polynomials in z."""
    width = z.shape[-1]
    eye = np.broadcast_to(np.eye(width), (*z.shape, width))
    parts = [np.zeros((*z.shape, 1)), eye]
    if quadratic:
        first, second = np.triu_indices(width, 1)
        products = eye[..., first] * z[..., None, second] + eye[..., second] * z[..., None, first]
        parts += [np.sqrt(2.0) * eye * z[..., None], products]
    return np.concatenate(parts, axis=-1)


ENOUGH = 1.2
"""Points per polynomial from which on a regression is worth having."""

MOST_POLYNOMIALS = 400
"""Polynomials above which the default stays with linear surrogates."""

FEWEST = 16
"""Points per row and round by default, at least: more than a regression in one or two variables needs."""


def is_quadratic(points: int, width: int, slopes: bool = False) -> bool:
    """Whether that many points per row carry a quadratic surrogate in that many variables; slopes count too.

    Slopes at no more points than variables leave the curvature along one direction open.
    """
    if slopes and points < width + 2:
        return False
    return points * (1 + slopes * width) >= ENOUGH * feature_count(width, True)


def points_for(width: int, quadratic: bool = True, slopes: bool = False) -> int:
    """Points per row and round by default, or where linear surrogates have to do."""
    if not quadratic or feature_count(width, True) > MOST_POLYNOMIALS:
        return int(np.ceil(ENOUGH * feature_count(width, False) / (1 + slopes * width)))
    if slopes:
        return max(FEWEST // 2, int(np.ceil(ENOUGH * (width + 2))))
    return max(FEWEST, int(np.ceil(ENOUGH * feature_count(width, True))))


def opaque_reads(program: Program, whole: bool = False) -> Reads:
    """What terms with opaque values read of the latents, and the learnt parameters that opaque functions do.

    With `whole`, all that a row reads of the latents: what moments of whole rows are made of.
    """
    names = passed_parameters(program)
    starts = program.parameters.unconstrained()
    columns = tuple(map(int, basis_columns(program))) if whole else _opaque_columns(program)
    return Reads(columns, tuple((name, np.shape(starts[name])) for name in names))


def passed_parameters(program: Program) -> list[str]:
    """Learnt parameters in the arguments of opaque functions."""
    elements = (e for use in program.uses() for _, each in use.arguments for e in each)
    references = [program.translator.references[symbol] for e in elements for symbol in e.free_symbols]
    named = {ref.name for ref in references if ref.kind in {"param", "gathered"}}
    return [name for name in program.parameters.initial if name in named]


def _opaque_columns(program: Program) -> tuple[int, ...]:
    """Columns of the marginals that terms with opaque values read."""
    found: set[int] = set()
    for observation in program.observations:
        for term in observation.terms:
            if term.method == "score":
                for symbol in latents_in(program.translator, term.expression):
                    found |= set(read_columns(program, symbol, observation.axes))
    return tuple(sorted(found))


def read_columns(program: Program, symbol: Any, axes: Sequence[str]) -> list[int]:
    """The columns that a latent symbol stands for along these axes."""
    every = program.evaluator.of_latent(symbol, np.arange(program.latents)[None], tuple(axes))
    return [int(column) for column in np.unique(every)]


def column_covariance(program: Program, q: Marginals, columns: Sequence[int]) -> Float[Array, "rows J J"]:
    """Covariances among some columns of a single Gaussian's marginals, row by row."""
    picked = np.asarray(columns)
    if q.covariance is not None:
        return q.covariance[0][:, picked[:, None], picked]
    variance = q.variance[0]
    total = variance[:, :, None] * jnp.eye(variance.shape[-1], dtype=variance.dtype)
    for group in program.groups:
        if group.readings.sums:
            table = covariance_table(group, variance)
            for i, j, _ in group.readings.sums:
                first, second = (group.start + k * group.size + np.arange(group.size) for k in (i, j))
                total = total.at[:, first, second].set(table[i][j]).at[:, second, first].set(table[i][j])
    return total[:, picked[:, None], picked]
