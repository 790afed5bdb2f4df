"""Basis functions that are covariances with points: inducing points (S = K) and relevance vectors (S = diag(s)).

QSGP appendices I.2 and I.3. Both keep the points, which random Fourier features do not need.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gpdsl.data import some_rows
from gpdsl.inference.quadruply_stochastic.sums import Held
from gpdsl.inference.quadruply_stochastic.swept import State
from gpdsl.inference.quadruply_stochastic.weights import Features, Latent, dtype_of, fourier_features
from gpdsl.kernels.covariance import covariance, variance
from gpdsl.kernels.functionals import Values
from gpdsl.program.parameters import Unconstrained, bijector
from gpdsl.program.program import Program

PRECISION = "prior precision of the weights"
"""Name of the parameter that holds s: no name of the language has spaces."""

STARTING_PRECISION = 1.0
FINITE = 1e4
"""Precisions below this are said to be finite: the points of these functions are the relevance vectors (I.3)."""


@dataclass(frozen=True, eq=False)
class Basis:
    """What basis functions are made of: their kind, and for those of points the points and (relevance) s."""

    kind: str = "fourier"
    centres: Float[np.ndarray, "m d"] | None = None
    precision: Float[np.ndarray, "m"] | None = None

    @property
    def relevant(self) -> Float[np.ndarray, "r d"]:
        """The relevance vectors: points whose functions have a finite precision."""
        assert self.centres is not None and self.precision is not None
        return self.centres[self.precision < FINITE]

    def numbers(self) -> dict[str, np.ndarray]:
        """What joins the learnt parameters, on the real line: log s."""
        return {} if self.precision is None else {PRECISION: np.log(self.precision)}

    def at(self, learnt: Mapping[str, np.ndarray]) -> Basis:
        """The same functions at learnt parameters."""
        return replace(self, precision=np.exp(learnt[PRECISION])) if PRECISION in learnt else self

    def program(self, program: Program) -> Program:
        """The program with the precisions among its learnt parameters, where there are any."""
        if self.precision is None:
            return program
        known = program.parameters
        bijectors = {**known.bijectors, PRECISION: bijector("positive")}
        initial = {**known.initial, PRECISION: self.precision}
        return replace(program, parameters=replace(known, bijectors=bijectors, initial=initial))

    def features(self, program: Program, count: int, seed: int) -> Features:
        """The basis functions of the one latent of a program. Raises GpdslError for a kernel that has none."""
        if self.kind == "fourier":
            return fourier_features(program, count, seed)
        assert self.centres is not None
        latent = Latent(program, program.groups[0])
        return (InducingFeatures if self.kind == "inducing" else RelevanceFeatures)(latent, self.centres)


def place_basis(kind: str, points: Float[np.ndarray, "n d"], count: int, seed: int) -> Basis:
    """A basis of `count` functions: random ones, or covariances with some of the points (all when there are fewer).

    Points may be repeated: nothing here divides by K.
    """
    if kind == "fourier":
        return Basis()
    chosen = some_rows(len(points), count, [seed, 3])
    centres = np.asarray(points)[chosen]
    if kind == "relevance":
        return Basis(kind, centres, np.full(len(centres), STARTING_PRECISION))
    return Basis(kind, centres)


@dataclass(frozen=True, eq=False)
class _Centred:
    """Covariances with points."""

    latent: Latent
    centres: Float[np.ndarray, "m d"]

    @property
    def count(self) -> int:
        """m."""
        return self.centres.shape[0]

    def consecutive(
        self, parameters: Unconstrained, x: Float[Array, "n d"], index: Int[Array, "k"]
    ) -> Float[Array, "n k"]:
        """`values`: covariances have nothing in common."""
        return self.values(parameters, x, index)

    def values(self, parameters: Unconstrained, x: Float[Array, "n d"], index: Int[Array, "k"]) -> Float[Array, "n k"]:
        """Columns `index` of Phi."""
        return self._values(parameters, x, index)

    def _values(self, parameters: Unconstrained, x: Float[Array, "n d"], index: Int[Array, "k"]) -> Float[Array, "n k"]:
        scale, arguments = self.latent.kernel(parameters)
        return scale * covariance(self.latent.group.form, arguments, Values(x), Values(self._at(index, x.dtype)))

    def _at(self, index: Int[Array, "k"], dtype: jnp.dtype) -> Float[Array, "k d"]:
        return jnp.asarray(self.centres, dtype)[index]


@dataclass(frozen=True, eq=False)
class InducingFeatures(_Centred):
    """phi_j(x) = k(x, z_j) and S = K(z, z): with a point at every row, the exact GP prior at the rows.

    `jitter` raises the diagonal of S by this share, where it is factorised.
    """

    jitter: float = 0.0
    diagonal = False

    def precision(self, parameters: Unconstrained, index: Int[Array, "k"]) -> Float[Array, "k"]:
        """k(z_j, z_j)."""
        return (1.0 + self.jitter) * self._variance(parameters, index)

    def cross_precision(self, parameters: Unconstrained, i: Int[Array, "k"], j: Int[Array, "l"]) -> Float[Array, "k l"]:
        """K(z_i, z_j)."""
        crossed = self._values(parameters, self._at(i, dtype_of(parameters)), j)
        if not self.jitter:
            return crossed
        return crossed + jnp.where(i[:, None] == j, self.jitter * self._variance(parameters, i)[:, None], 0.0)

    def _variance(self, parameters: Unconstrained, index: Int[Array, "k"]) -> Float[Array, "k"]:
        at = self._at(index, dtype_of(parameters))
        scale, arguments = self.latent.kernel(parameters)
        return scale * variance(self.latent.group.form, arguments, Values(at))


class RelevanceFeatures(_Centred):
    """phi_j(x) = k(x, z_j) / sqrt(s_j): the weights' prior precisions s are taken into the functions, so that S = I.

    Phi S^-1 Phi' is that of k(x, z_j) with S = diag(s). A function whose s grows without bound vanishes.
    """

    diagonal = True

    def values(self, parameters: Unconstrained, x: Float[Array, "n d"], index: Int[Array, "k"]) -> Float[Array, "n k"]:
        """Columns `index` of Phi."""
        # Positive through exp on the real line; learnt by its fixed point (`relevance`), not by gradients.
        logarithms = jax.lax.stop_gradient(jnp.asarray(parameters[PRECISION]))[index]
        return self._values(parameters, x, index) * jnp.exp(-0.5 * logarithms)

    def precision(self, parameters: Unconstrained, index: Int[Array, "k"]) -> Float[Array, "k"]:
        """Ones."""
        return jnp.ones(jnp.shape(index), dtype_of(parameters))

    def cross_precision(self, parameters: Unconstrained, i: Int[Array, "k"], j: Int[Array, "l"]) -> Float[Array, "k l"]:
        """The identity."""
        return jnp.asarray(i[:, None] == j[None, :], dtype_of(parameters))


# Prior precisions of relevance vectors by their fixed point, which finds zeros where gradients hardly move.
#
# The bound is stationary in s_j where s_j E_q[w_j^2] = 1. With gamma_j = 1 - s_j V_q[w_j], how well w_j is determined,
# that is s_j = gamma_j / E_q[w_j]^2 (MacKay 1992; Tipping 2001, eq. 16): the same point, in fewer steps.


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
