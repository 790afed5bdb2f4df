"""Basis functions of a latent: k(x, x') = phi(x)' S^-1 phi(x'), with any columns of Phi computed on their own.

Random Fourier features (Rahimi and Recht 2007) are drawn again from a seed and their index wherever they are needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from gpdsl.errors import GpdslError
from gpdsl.kernels.counters import Stream
from gpdsl.kernels.covariance import covariance
from gpdsl.kernels.functionals import Values
from gpdsl.kernels.waves import turning, unsuited, waves
from gpdsl.lowering.table import cosine
from gpdsl.program.groups import Group, KernelValues, columns_of, kernel_values
from gpdsl.program.parameters import Unconstrained
from gpdsl.program.program import Program

SHARED = 32
"""Columns from which on a cosine and a sine with one wave's turns take less time than two features on their own."""


class Features(Protocol):
    """m basis functions phi(x) and the prior precision S of their weights: f(x) = phi(x)'w, w ~ N(0, S^-1)."""

    @property
    def latent(self) -> Latent:
        """Whose functions they are."""

    @property
    def count(self) -> int:
        """m."""

    @property
    def diagonal(self) -> bool:
        """Whether S is diagonal."""

    def values(self, parameters: Unconstrained, x: Float[Array, "n d"], index: Int[Array, "k"]) -> Float[Array, "n k"]:
        """Columns `index` of Phi at the points x: the latent's arguments side by side."""

    def consecutive(
        self, parameters: Unconstrained, x: Float[Array, "n d"], index: Int[Array, "k"]
    ) -> Float[Array, "n k"]:
        """`values` at indices that follow each other, which may have much in common."""

    def precision(self, parameters: Unconstrained, index: Int[Array, "k"]) -> Float[Array, "k"]:
        """The diagonal of S at `index`."""

    def cross_precision(self, parameters: Unconstrained, i: Int[Array, "k"], j: Int[Array, "l"]) -> Float[Array, "k l"]:
        """Rows i and columns j of S."""


@dataclass(frozen=True)
class Latent:
    """One latent process of a program: element `element` of `group`."""

    program: Program
    group: Group
    element: int

    def kernel(self, parameters: Unconstrained, columns: int) -> tuple[Array, tuple[Array, ...]]:
        """Its variance and the parameters of its form at these (unconstrained) values."""
        known = self.program.parameters.constrain(parameters)
        values: KernelValues = kernel_values(self.program.evaluator, self.group, known, columns)
        which = 0 if self.group.factors == 1 else self.element
        return values.scale[self.element], tuple(argument[which] for argument in values.arguments)

    def covariance(
        self, parameters: Unconstrained, x: Float[Array, "n d"], other: Float[Array, "k d"] | None = None
    ) -> Float[Array, "n k"]:
        """The prior covariance of its values at points, with those at other points if there are any."""
        scale, arguments = self.kernel(parameters, x.shape[1])
        return scale * covariance(self.group.form, arguments, Values(x), None if other is None else Values(other))


@dataclass(frozen=True)
class FourierFeatures:
    """Random Fourier features: feature 2 p is the cosine and feature 2 p + 1 the sine of wave p.

    Phi Phi' is k in expectation over the seed, and S is the identity. Waves that do not turn have no sine: of a kernel
    in which none does, every feature is a wave of its own.
    """

    latent: Latent
    count: int
    seed: int
    diagonal: bool = True

    @property
    def per_wave(self) -> int:
        """How many features a wave has."""
        return 2 if turning(self.latent.group.form) else 1

    def values(self, parameters: Unconstrained, x: Float[Array, "n d"], index: Int[Array, "k"]) -> Float[Array, "n k"]:
        """Columns `index` of Phi."""
        scale, arguments = self.latent.kernel(parameters, x.shape[1])
        number, part = jnp.divmod(jnp.asarray(index), self.per_wave)
        drawn = waves(self.latent.group.form, arguments, x, Stream(self.seed, number, x.dtype))
        strength = jnp.sqrt(scale * drawn.power * (self.per_wave / self.count))
        value = strength * cosine(drawn.turns(-0.25 * part.astype(x.dtype)))
        value = value if drawn.amplitude is None else value * drawn.amplitude
        return jnp.broadcast_to(value.astype(x.dtype), (x.shape[0], number.shape[0]))

    def consecutive(
        self, parameters: Unconstrained, x: Float[Array, "n d"], index: Int[Array, "k"]
    ) -> Float[Array, "n k"]:
        """`values`; where waves have many columns, each is drawn once for its cosine and its sine."""
        if self.per_wave == 1 or x.shape[1] < SHARED:
            return self.values(parameters, x, index)
        size, first = index.shape[0], index[0] // 2
        scale, arguments = self.latent.kernel(parameters, x.shape[1])
        drawn = waves(
            self.latent.group.form, arguments, x, Stream(self.seed, first + jnp.arange(size // 2 + 1), x.dtype)
        )
        strength = jnp.sqrt(scale * drawn.power * (2 / self.count))
        amplitude = strength if drawn.amplitude is None else strength * drawn.amplitude
        turns = drawn.turns(jnp.zeros_like(drawn.power))
        both = cosine(turns[..., None] - jnp.asarray([0.0, 0.25], x.dtype)) * amplitude[..., None]
        both = jnp.broadcast_to(both.astype(x.dtype), (x.shape[0], *both.shape[-2:])).reshape(x.shape[0], -1)
        return jax.lax.dynamic_slice_in_dim(both, index[0] - 2 * first, size, axis=1)

    def precision(self, parameters: Unconstrained, index: Int[Array, "k"]) -> Float[Array, "k"]:
        """Ones."""
        return jnp.ones(jnp.shape(index), dtype_of(parameters))

    def cross_precision(self, parameters: Unconstrained, i: Int[Array, "k"], j: Int[Array, "l"]) -> Float[Array, "k l"]:
        """The identity."""
        return jnp.asarray(i[:, None] == j[None, :], dtype_of(parameters))


def dtype_of(parameters: Unconstrained) -> jnp.dtype:
    """The precision of some parameters; JAX's own where there are none."""
    return jnp.result_type(*parameters.values()) if parameters else jnp.zeros(()).dtype


def fourier_features(program: Program, count: int, seed: int, group: int = 0, element: int = 0) -> FourierFeatures:
    """`count` random Fourier features of one latent process: element `element` of a group of the program.

    Raises GpdslError when a part of its kernel has none.
    """
    latent = Latent(program, program.groups[group], element)
    why = unsuited(latent.group.form, columns_of(latent.group, program.translator))
    if why is not None:
        name = latent.group.names[0]
        raise GpdslError(f"latent `{name}` has no random Fourier features: {why}; use basis = inducing, or engine = vi")
    return FourierFeatures(latent, count, seed)
