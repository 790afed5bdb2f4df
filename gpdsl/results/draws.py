"""Draws of the latents, each row on its own, and what expressions are at them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

import jax.numpy as jnp
import numpy as np
import sympy as sp
from jaxtyping import Array, Float, Int

from gpdsl.results.expectation import Beliefs, sample_latents
from gpdsl.symbolic.terms import has_external


@dataclass(frozen=True, eq=False)
class LatentDraws:
    """Standard normals behind the latents, and the mixture component of each draw and row."""

    beliefs: Beliefs
    normals: Float[Array, "draws K rows latents"]
    component: Int[np.ndarray, "draws rows"]

    @classmethod
    def of(cls, beliefs: Beliefs, count: int, rng: np.random.Generator) -> Self:
        """`count` draws of every row."""
        component = rng.choice(len(beliefs.weights), size=(count, beliefs.count), p=beliefs.weights)
        return cls(beliefs, jnp.asarray(rng.standard_normal((count, *beliefs.marginals.mean.shape))), component)

    def values(
        self,
        expression: sp.Expr,
        keys: tuple[str, ...],
        drawn: Mapping[sp.Symbol, np.ndarray] = MappingProxyType({}),
    ) -> Float[Array, "draws rows *keys"]:
        """An expression at the drawn latents, with the outputs `drawn` before [draws, rows, *keys]."""
        beliefs, given = self.beliefs, {symbol: jnp.asarray(each)[:, None] for symbol, each in drawn.items()}
        opaque = has_external(beliefs.program.translator, expression)
        latents, externals = sample_latents(beliefs, len(self.component), opaque, self.normals)
        values = jnp.asarray(beliefs.program.evaluator(expression, beliefs.scope(latents, externals), keys, given))
        axes = values.shape[values.ndim - len(keys) :] if values.ndim >= len(keys) else (1,) * len(keys)
        values = jnp.broadcast_to(values, (*latents.shape[:2], beliefs.count, *axes))
        draws, rows = np.indices(self.component.shape)
        return values[draws, self.component, rows]
