"""Calls of opaque functions that take fields: one call is one evaluation, and gives the results of all rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.linalg import cho_factor, cho_solve

from gpdsl.forward import evaluate, stopping_fit
from gpdsl.forward.errors import EverythingFailed, ForwardModelError
from gpdsl.forward.registry import per_field
from gpdsl.program.cache import jit
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows, Scope, row_count
from gpdsl.symbolic.translate import ExternalUse

# Emulators of opaque functions of fields: all results of all calls so far, interpolated by a sum of three kernels.
#
# A result is taken for a polynomial of third degree in everything that is passed to the function and differs between
# its calls, around the mean of the latest ones, with a Gaussian prior on the coefficients under which linear ones are
# large and the others small. In terms of inner products of arguments, s = (a - c)'(a' - c) / mean |a - c|^2, that is
# the kernel
#
#     k(a, a') = s + s^2 / (2 rho) + s^3 / (6 rho^2),
#
# so that hundreds of arguments cost nothing: the emulator has one coefficient per call and result. Calls count less the
# further away from the latest they are, as the remainder of a polynomial of third degree grows. The one number rho and
# the size of the remainder are those that predict each of the latest calls best from all others (leave-one-out).

CURVATURES = (0.3, 3.0, 30.0, 300.0, 3000.0)
"""Candidates for rho: how much less the second degree matters than the first."""

REMAINDERS = (1e-8, 1e-6, 1e-4, 1e-2)
"""Candidates for the variance of what no polynomial explains, relative to that of the linear part."""

LEAST = 256
"""Calls that an emulator has room for at first."""

MOST = 1500
"""Calls that are kept: the latest."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Emulator:
    """The mean of the interpolation: `points` are the arguments of earlier calls, less `centre` and scaled."""

    points: Float[Array, "E P"]
    centre: Float[Array, "P"]
    scale: Float[Array, ""]
    rho: Float[Array, ""]
    weights: Float[Array, "E O"]
    level: Float[Array, "O"]

    def __call__(self, arguments: Float[Array, "P"]) -> Float[Array, "O"]:
        """Results at other arguments."""
        inner = self.points @ ((arguments - self.centre) * self.scale)
        return self.level + _kernel(inner, self.rho) @ self.weights


def _kernel(inner: Array, rho: Array | float) -> Array:
    return inner + inner**2 / (2.0 * rho) + inner**3 / (6.0 * rho**2)


def fit_emulator(arguments: Float[np.ndarray, "E P"], results: Float[np.ndarray, "E O"], latest: int) -> Emulator:
    """The emulator of all calls, the `latest` ones standing at the end."""
    arguments, results = arguments[-MOST:], results[-MOST:]
    latest = min(latest, len(arguments))
    centre, level = arguments[-latest:].mean(axis=0), results[-latest:].mean(axis=0)
    length = np.sqrt(max(np.mean(np.sum((arguments[-latest:] - centre) ** 2, axis=1)), np.finfo(float).tiny))
    points, around = (arguments - centre) / length, results - level
    inner = points @ points.T
    far = np.maximum(np.diagonal(inner), 1.0) ** 3
    best: tuple[float, float, np.ndarray] = (np.inf, CURVATURES[-1], np.zeros_like(around))
    for rho, remainder in itertools.product(CURVATURES, REMAINDERS):
        matrix = _kernel(inner, rho)
        matrix[np.diag_indices_from(matrix)] += remainder * far
        try:
            factor = cho_factor(matrix, lower=True)
        except np.linalg.LinAlgError:
            continue
        weights = cho_solve(factor, around)
        inverse = np.diagonal(cho_solve(factor, np.eye(len(matrix))))
        missed = float(np.mean((weights[-latest:] / inverse[-latest:, None]) ** 2))
        if missed < best[0]:
            best = missed, rho, weights
    _, rho, weights = best
    return Emulator(*map(jnp.asarray, (_padded(points), centre, 1.0 / length, rho, _padded(weights), level)))


def _padded(table: Float[np.ndarray, "E P"]) -> Float[np.ndarray, "padded P"]:
    """With rows of zeros, which say nothing, so that few sizes ever get compiled."""
    size = max(LEAST, 1 << (len(table) - 1).bit_length())
    return np.concatenate([table, np.zeros((size - len(table), table.shape[1]))])


def varying(program: Program, use: ExternalUse, arguments: list[Array]) -> Array:
    """What the emulator of a function is given, [*lead, numbers]: the arguments that are computed from fields."""
    rows = program.translator.field_calls[use.function]
    lead = arguments[0].ndim - len(use.arguments[0][0]) - rows[0]
    parts = [a.reshape(*a.shape[:lead], -1) for a, each in zip(arguments, moving(program, use), strict=True) if each]
    return jnp.concatenate(parts, axis=-1)


def moving(program: Program, use: ExternalUse) -> tuple[bool, ...]:
    """Which arguments depend on latents; the others are the same in every call."""
    reads = [{s for e in elements for s in e.free_symbols} for _, elements in use.arguments]
    references = program.translator.references
    moved = {"latent", "external", "reduced"}
    return tuple(any(references[s].kind in moved for s in each) for each in reads)


def result_shape(program: Program, use: ExternalUse, count: int) -> tuple[int, ...]:
    """The shape of the result of one call: of all rows, where anything that is passed differs between them."""
    return (count, *use.result) if any(program.translator.field_calls[use.function]) else use.result


def emulated(
    program: Program,
    parameters: Mapping[str, Array],
    rows: Rows,
    latents: Float[Array, "1 D"],
    known: Mapping[str, Emulator | Array],
) -> dict[str, Float[Array, "rows *dims"]]:
    """Results of all opaque functions at these fields, by emulators or as they are known; nothing without any."""
    values: dict[str, Array] = {}
    count = row_count(rows)
    for use in program.uses() if known else ():
        scope = Scope(parameters, rows, latents, values)
        found, shape = known[use.key], result_shape(program, use, count)
        if isinstance(found, Emulator):
            found = found(varying(program, use, program.evaluator.field_arguments(use, scope)))
        values[use.key] = found.reshape(shape if len(shape) > len(use.result) else (1, *shape))
    return values


FIELD_CALLS = 128
"""Fields at which an opaque function is called for a prediction: each call may take minutes."""


@dataclass(frozen=True, eq=False)
class Called:
    """Results of one opaque function at some fields: those whose call succeeded in every function."""

    arguments: Float[np.ndarray, "S P"]
    results: Float[np.ndarray, "S *dims"]


class FieldCalls:
    """Calls the opaque functions of a program; arguments are computed in compiled steps between the calls."""

    def __init__(self, program: Program, uses: Sequence[ExternalUse] | None = None) -> None:
        self.program = program
        self.uses = program.uses() if uses is None else tuple(uses)
        flags = program.translator.field_calls
        self.models = {use.key: per_field(program.externals[use.function], flags[use.function]) for use in self.uses}
        self._arguments = {use.key: jit(self._making(use)) for use in self.uses}

    def _making(self, use: ExternalUse) -> Callable[..., tuple[list[Array], Array]]:
        def make(parameters: Mapping[str, Array], rows: Rows, fields: Array, values: Mapping[str, Array]) -> Any:
            scope = Scope(parameters, rows, fields[:, None, :], values)
            passed = self.program.evaluator.field_arguments(use, scope)
            return passed, varying(self.program, use, passed)

        return make

    def __call__(
        self,
        parameters: Mapping[str, Array],
        rows: Rows,
        fields: Float[Array, "S D"],
        before: Mapping[str, Float[Array, "S rows *dims"]] = MappingProxyType({}),
    ) -> tuple[dict[str, Called], Int[np.ndarray, "good"]]:
        """What every function gives, and the numbers of the fields for which all of them did.

        `before` are results of other functions, which are passed on.

        Raises ForwardModelError, in a fit `Stopped`, when nothing is left, or when failures are not to be penalised.
        """
        count = row_count(rows)
        values: dict[str, Array] = dict(before)
        found: dict[str, Called] = {}
        good = np.arange(len(fields))
        for use in self.uses:
            model, shape = self.models[use.key], result_shape(self.program, use, count)
            passed, moving = self._arguments[use.key](parameters, rows, fields[good], values)
            with stopping_fit(model.account):
                answered = evaluate(model, [np.asarray(a) for a in passed], shape)
                if answered.failed.all():
                    raise ForwardModelError(EverythingFailed(model.name, len(good)))
            kept = ~answered.failed
            good, results = good[kept], answered.values[kept]
            found = {key: Called(each.arguments[kept], each.results[kept]) for key, each in found.items()}
            found[use.key] = Called(np.asarray(moving)[kept], results)
            full = len(shape) > len(use.result)
            values = {key: value[kept] for key, value in values.items()}
            values[use.key] = jnp.asarray(results if full else results[:, None], fields.dtype)
        return found, good


def field_samples(
    program: Program,
    uses: Sequence[ExternalUse],
    parameters: Mapping[str, Array],
    rows: Rows,
    fields: Float[Array, "S D"],
    before: Mapping[str, Float[Array, "S 1 rows *dims"]] = MappingProxyType({}),
) -> tuple[Float[Array, "S 1 1 D"], dict[str, Float[Array, "S 1 rows *dims"]]]:
    """Fields, and the results of opaque functions there, for predictions.

    A field at which a call failed, and is to be penalised, gives way to another.
    """
    if not uses:
        return fields[:, None, None], {}
    known = {key: value[:, 0] for key, value in before.items()}
    found, good = FieldCalls(program, uses)(parameters, rows, fields, known)
    place = np.resize(np.arange(len(good)), len(fields))
    values = {}
    for use in uses:
        results = jnp.asarray(found[use.key].results, fields.dtype)[place]
        values[use.key] = results[:, None] if results.ndim > 1 + len(use.result) else results[:, None, None]
    return fields[good][place][:, None, None], values


def probe_fields(program: Program, parameters: Mapping[str, Array], rows: Rows, fields: Float[Array, "1 D"]) -> None:
    """Call each opaque function once, so that a wrong shape ends a fit at its start."""
    FieldCalls(program)(parameters, rows, fields)
