"""Random numbers by counter: number `draw` of stream `index`, always the same, from a seed and without any state.

Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror, Shaw 2011), written out so that what was drawn for a saved fit is
drawn again by every version of JAX, in single and in double precision alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt32

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
BITS = 24
"""Bits of a uniform number: as many as single precision holds exactly."""

CENTRAL = (
    *(2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 2.1858087e-04),
    *(-1.25372503e-03, -4.17768164e-03, 0.246640727, 1.50140941),
)
OUTER = (
    *(-2.00214257e-04, 1.00950558e-04, 1.34934322e-03, -3.67342844e-03, 5.73950773e-03),
    *(-7.6224613e-03, 9.43887047e-03, 1.00167406, 2.83297682),
)
"""Of the inverse error function over its argument, in -log(1 - x^2) and its root."""

MOST_STRATA = 64
"""So many neighbouring indices make choices that are spread evenly."""


def threefry(
    key: tuple[UInt32[Array, "..."], UInt32[Array, "..."]], first: UInt32[Array, "..."], second: UInt32[Array, "..."]
) -> tuple[UInt32[Array, "..."], UInt32[Array, "..."]]:
    """Two random words for each pair of counters."""
    keys = (*key, key[0] ^ key[1] ^ jnp.uint32(PARITY))
    first, second = first + keys[0], second + keys[1]
    for block in range(5):
        for rotation in ROTATIONS[block % 2]:
            first = first + second
            second = ((second << rotation) | (second >> (32 - rotation))) ^ first
        first = first + keys[(block + 1) % 3]
        second = second + keys[(block + 2) % 3] + jnp.uint32(block + 1)
    return first, second


def quick_normal_quantile(probability: Float[Array, "..."]) -> Float[Array, "..."]:
    """Where a standard normal's distribution function has this value, to single precision (Giles 2010, table 5).

    XLA's inverse error function takes five times as long on CPU, for a logarithm that is not vectorised.
    """
    from_middle = 2.0 * probability - 1.0
    tail = -jnp.log(4.0 * probability * (1.0 - probability))
    ratio = jnp.where(tail < 5.0, _polynomial(CENTRAL, tail - 2.5), _polynomial(OUTER, jnp.sqrt(tail) - 3.0))
    return math.sqrt(2.0) * from_middle * ratio


def quick_normals(key: Array, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Standard normals in single precision, in a fifth of the time that `jax.random.normal` takes on CPU."""
    count = math.prod(shape)
    words = jax.random.key_data(key)
    counters = jnp.arange(-(-count // 2), dtype=jnp.uint32)
    bits = jnp.concatenate(threefry((words[0], words[1]), counters, jnp.zeros_like(counters)))[:count]
    return quick_normal_quantile(_uniform(bits, jnp.dtype("float32"))).reshape(shape)


def _uniform(bits: UInt32[Array, "..."], dtype: jnp.dtype) -> Float[Array, "..."]:
    """Numbers of (0, 1), never 0 or 1."""
    drawn = ((bits >> (32 - BITS)).astype(dtype) + 0.5) * 2.0**-BITS
    return jnp.minimum(drawn, 1.0 - jnp.finfo(dtype).epsneg)  # the last one rounds to 1 in single precision


def _polynomial(coefficients: tuple[float, ...], x: Float[Array, "..."]) -> Float[Array, "..."]:
    total = jnp.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    return total


@dataclass
class Stream:
    """Random numbers for each of some indices: every call takes the next ones, as from an iterator.

    The numbers of an index do not depend on which others stand beside it.
    """

    seed: int
    index: Int[Array, "k"]
    dtype: jnp.dtype
    taken: int = 0
    strata: int = field(default=1)

    def uniforms(self, count: int) -> Float[Array, "k count"]:
        """Uniform on (0, 1), never 0 or 1."""
        pairs = -(-count // 2)
        counters = jnp.arange(self.taken, self.taken + pairs, dtype=jnp.uint32)
        self.taken += pairs
        index = jnp.asarray(self.index).astype(jnp.uint32)
        words = threefry(self._key, *jnp.broadcast_arrays(index[:, None], counters[None, :]))
        bits = jnp.stack(words, axis=-1).reshape(index.shape[0], 2 * pairs)[:, :count]
        return _uniform(bits, self.dtype)

    def normals(self, count: int) -> Float[Array, "k count"]:
        """Standard normal."""
        drawn = self.uniforms(count)
        if drawn.dtype == jnp.float32:
            return quick_normal_quantile(drawn)
        return jnp.sqrt(2.0).astype(self.dtype) * jax.lax.erf_inv(2.0 * drawn - 1.0)

    def choices(self, count: int) -> Int[Array, "k"]:
        """One of 0 to `count` - 1: uniform over seeds, and among neighbouring indices each equally often.

        The first choices are digits of the index, moved by a random offset; when there are too many for that, they are
        uniform without more. Either way they are independent of each other.
        """
        if self.strata * count > MOST_STRATA:
            return jnp.minimum((self.uniforms(1)[:, 0] * count).astype(jnp.int32), count - 1)
        zero = jnp.uint32(0)
        offset = threefry(self._key, zero - jnp.uint32(1), zero)[0] >> 1
        stride, self.strata = self.strata, self.strata * count
        moved = jnp.asarray(self.index).astype(jnp.uint32) + offset
        return (moved // jnp.uint32(stride) % jnp.uint32(count)).astype(jnp.int32)

    def signs(self, points: Float[Array, "n D"]) -> Float[Array, "n k"]:
        """Each -1 or 1: the same at equal points, and independent at others."""
        first, second = self._key
        for column in jax.lax.stop_gradient(points).T + 0.0:  # 0 and -0 are equal
            digits = jax.lax.bitcast_convert_type(column, jnp.uint32).reshape(len(points), -1)
            first, second = threefry((first, second), digits[:, 0], digits[:, -1])
        index, counter = jnp.asarray(self.index).astype(jnp.uint32), jnp.uint32(self.taken)
        self.taken += 1
        words, _ = threefry((first[:, None], second[:, None]), index, counter)
        return jnp.where(words >> 31, 1.0, -1.0).astype(self.dtype)

    @property
    def _key(self) -> tuple[Array, Array]:
        return jnp.uint32(self.seed & 0xFFFFFFFF), jnp.uint32((self.seed >> 32) & 0xFFFFFFFF)
