"""The probing call: each opaque function is called once before a fit, so that a wrong shape ends it at the start.

It is called at the prior means of the latents and the initial parameters, at the first rows of the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gpdsl.data import Data
from gpdsl.forward import ForwardModel, Policy, evaluate
from gpdsl.inference.opaque.derivatives import check_gradient
from gpdsl.inference.opaque.values import Values, arguments_of
from gpdsl.inference.problem import as_arrays
from gpdsl.program.compilation import jit
from gpdsl.program.evaluation import prior_means
from gpdsl.program.program import Program, make_rows, take_rows
from gpdsl.program.rows import Rows
from gpdsl.symbolic.translate import ExternalUse

MOST_ROWS = 8


def probe(program: Program, data: Data, dtype: Any) -> None:
    """Call each opaque function that the likelihood needs once. Raises ForwardModelError for what comes back wrong.

    A function under `penalise` or `retry` may fail here as anywhere, but not by a wrong shape or type.
    """
    uses = program.uses() if program.opaque else ()
    models = [program.externals[use.function] for use in uses]
    count = min(_rows(uses) if any(model.vectorized for model in models) else 1, data.rows)
    rows = as_arrays(take_rows(make_rows(program, data), slice(0, count)), dtype)
    parameters = as_arrays(program.parameters.unconstrained(), dtype)
    values: Values = {}
    for use, model in zip(uses, models, strict=True):

        def arguments(learnt: Mapping[str, Array], rows: Rows, known: Values, use: ExternalUse = use) -> list[Array]:
            constrained = program.parameters.constrain(learnt)
            means = prior_means(program.evaluator, program.groups, constrained, rows, count)
            return arguments_of(program, use, constrained, rows, means, known)

        passed = [np.asarray(a) for a in jit(arguments)(parameters, rows, values)]
        values[use.key] = jnp.asarray(_probed(model, passed, use), dtype)
        if model.gradient is not None:
            check_gradient(model, use, passed)


def _probed(model: ForwardModel, arguments: list[np.ndarray], use: ExternalUse) -> np.ndarray:
    """Values, made up where the function failed and may."""
    if not model.failures.attempts and not model.failures.penalises:
        return evaluate(model, arguments, use.result).values
    found = evaluate(replace(model, policy=Policy(0, "penalise")), arguments, use.result)
    model.account.penalised -= int(found.failed.sum())
    return np.where(np.isfinite(found.values), found.values, 1.0)


def _rows(uses: Sequence[ExternalUse]) -> int:
    """So few rows that a result with its axes in another order, or without rows, has another shape."""
    lengths = {n for use in uses for shape in (use.result, *(shape for shape, _ in use.arguments)) for n in shape}
    return next(count for count in range(2, MOST_ROWS + 1) if count not in lengths or count == MOST_ROWS)
