"""Opaque functions between compiled steps: arguments come out of one compiled call, values go into the next.

They are never called from inside a compiled program: they may block, fail, or run elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.forward import call
from gpdsl.program.compilation import jit
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows, Scope
from gpdsl.symbolic.translate import ExternalUse

Values = dict[str, Float[Array, "..."]]
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
    """Call each opaque function in turn; `arguments` gives them as arrays [*lead, rows, *dims]."""
    values: Values = {}
    for use in uses:
        passed = [np.asarray(a) for a in arguments(use, values)]
        lead = passed[0].shape[: passed[0].ndim - len(use.arguments[0][0])]
        rows = lead[-1]
        flat = [a.reshape(-1, *shape) for a, (shape, _) in zip(passed, use.arguments, strict=True)]
        result = call(program.externals[use.function], flat, use.result, data_rows=rows)
        values[use.key] = jnp.asarray(result.reshape(*lead, *use.result), passed[0].dtype)
    return values


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
