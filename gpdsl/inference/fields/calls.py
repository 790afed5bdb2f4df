"""Calls of opaque functions that take fields: one call is one evaluation, and gives the results of all rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gpdsl.forward import evaluate, stopping_fit
from gpdsl.forward.errors import ForwardModelError
from gpdsl.forward.fields import per_field
from gpdsl.forward.mistakes import EverythingFailed
from gpdsl.inference.fields.emulator import result_shape, varying
from gpdsl.program.compilation import jit
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows, Scope, row_count
from gpdsl.symbolic.translate import ExternalUse

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
