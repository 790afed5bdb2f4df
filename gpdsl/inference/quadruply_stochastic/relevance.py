"""Prior precisions of relevance vectors by their fixed point, which finds zeros where gradients hardly move.

The bound is stationary in s_j where s_j E_q[w_j^2] = 1. With gamma_j = 1 - s_j V_q[w_j], how well w_j is
determined, that is s_j = gamma_j / E_q[w_j]^2 (MacKay 1992; Tipping 2001, eq. 16): the same point, in fewer steps.
"""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
from jaxtyping import Array, Float

from gpdsl.inference.quadruply_stochastic.basis import PRECISION
from gpdsl.inference.quadruply_stochastic.sums import Held
from gpdsl.inference.quadruply_stochastic.swept import State

FASTEST = 1.5
"""Factor by which a precision changes at most after a pass over the rows, in which its weight is hardly found again."""

LEAST = 1e-6
"""Of gamma, which rounding and weights that are not settled could make zero or less."""

LARGEST = 1e12


def repositioned(state: State) -> State:
    """The state with every precision moved towards its fixed point, and the weights that the rows' duals have there.

    q holds v = sqrt(s) w, whose prior is N(0, I), and v = Phi' alpha for functions that 1 / sqrt(s) scales. The
    average, which is q and tells the slope in the hyperparameters, keeps w.
    """
    q, logarithms = state.held.average, state.learnt[PRECISION]
    index = jnp.arange(logarithms.shape[0])
    variance = q.deviation(jnp.ones_like(logarithms), index) ** 2
    settled = jnp.clip(1.0 - variance, LEAST, 1.0)
    factor = jnp.clip(settled / (q.vectors[0] ** 2 + LEAST / LARGEST), 1.0 / FASTEST, FASTEST)
    moved = jnp.minimum(logarithms + jnp.log(factor), jnp.log(LARGEST))
    change: Float[Array, "m"] = jnp.exp(moved - logarithms)
    scale = 1.0 / jnp.sqrt(change)
    held = Held(state.held.now * scale, replace(q, vectors=q.vectors / scale, curvature=q.curvature / change))
    return replace(state, held=held, learnt={**state.learnt, PRECISION: moved})
