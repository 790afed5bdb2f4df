"""Opaque functions between compiled steps: arguments come out of one compiled call, values go into the next.

They are never called from inside a compiled program: they may block, fail, or run elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.forward import ForwardModel, ForwardModelError, call, evaluate, stand_ins, stopping_fit
from gpdsl.forward.mistakes import EverythingFailed
from gpdsl.program.cache import jit
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows, Scope
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
