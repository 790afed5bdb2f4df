"""Basis functions of a latent: k(x, x') = phi(x)' S^-1 phi(x'), with any columns of Phi computed on their own.

Random Fourier features (Rahimi and Recht 2007) are drawn again from a seed and their index wherever they are needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from gpdsl.kernels.counters import Stream
from gpdsl.kernels.waves import waves
from gpdsl.program.groups import Group, KernelValues, kernel_values
from gpdsl.program.parameters import Unconstrained
from gpdsl.program.program import Program


class Features(Protocol):
    """m basis functions phi(x) and the prior precision S of their weights: f(x) = phi(x)'w, w ~ N(0, S^-1)."""

    @property
    def count(self) -> int:
        """m."""

    @property
    def diagonal(self) -> bool:
        """Whether S is diagonal."""

    def values(self, parameters: Unconstrained, x: Float[Array, "n d"], index: Int[Array, "k"]) -> Float[Array, "n k"]:
        """Columns `index` of Phi at the points x: the latent's arguments side by side."""

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


@dataclass(frozen=True)
class FourierFeatures:
    """Random Fourier features: feature 2 p is the cosine and feature 2 p + 1 the sine of wave p.

    Phi Phi' is k in expectation over the seed, and S is the identity. An odd number has a cosine more.
    """

    latent: Latent
    count: int
    seed: int
    diagonal: bool = True

    def values(self, parameters: Unconstrained, x: Float[Array, "n d"], index: Int[Array, "k"]) -> Float[Array, "n k"]:
        """Columns `index` of Phi."""
        scale, arguments = self.latent.kernel(parameters, x.shape[1])
        index = jnp.asarray(index)
        drawn = waves(self.latent.group.form, arguments, x, Stream(self.seed, index // 2, x.dtype))
        strength = jnp.sqrt(scale * drawn.power * (2.0 / self.count))
        phase = drawn.phase()
        turned = (index % 2) * (jnp.pi / 2)
        shape = strength * jnp.cos(turned if phase is None else phase - turned)
        value = shape if drawn.amplitude is None else shape * drawn.amplitude
        return jnp.broadcast_to(value.astype(x.dtype), (x.shape[0], index.shape[0]))

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
    """`count` random Fourier features of one latent process: element `element` of a group of the program."""
    return FourierFeatures(Latent(program, program.groups[group], element), count, seed)
