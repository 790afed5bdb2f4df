"""The columns of `on = ...` at some points: slices of the input's columns, and formulas of them."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import sympy as sp
from jaxtyping import Array, Float

from gpdsl.kernels.form import On, block_of
from gpdsl.lowering.table import evaluate


def selected(form: On, numbers: Sequence[Array], points: Float[Array, "n D"]) -> Float[Array, "n d"]:
    """What the kernel inside sees; `numbers` are those of the formulas, one per column where they have several."""
    known = dict(zip(form.numbers, numbers, strict=True))

    def load(symbol: sp.Symbol) -> Array:
        columns = block_of(symbol)
        return known[symbol.name] if columns is None else points[:, slice(*columns)]

    values = [jnp.asarray(evaluate(column, load), points.dtype) for column in form.columns]
    wide = [jnp.broadcast_to(v, (points.shape[0], v.shape[-1] if v.ndim else 1)) for v in values]
    return wide[0] if len(wide) == 1 else jnp.concatenate(wide, axis=1)
