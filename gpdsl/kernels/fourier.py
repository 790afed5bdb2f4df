"""Variational Fourier features of Matérn kernels on an interval: Hensman, Durrande and Solin (2018), section 4.

With n = 1, 2, 3 for Matern12, 32, 52, lam = sqrt(2 n - 1) / ell and z = (f, ..., f^(n-1)), the kernel's Hilbert space
on [a, b] has the inner product

    <g, h> = int (d/dx + lam)^n g (d/dx + lam)^n h dx / q + z_g(a)' P^-1 z_h(a),    P = cov(z(a)),

and the features of functions phi_m are u_m = <f, phi_m>, so that cov(u_m, f(x)) = phi_m(x), which no parameter enters,
and cov(u_m, u_n) = <phi_m, phi_n>. The functions are 1, cos w (x - a) and sin w (x - a), w = 2 pi m / (b - a), whose
covariances are diagonal plus low rank. They and their derivatives agree at both ends, as f does not: powers of s,
where s goes from -1 to 1, stand beside them, and make the features complete, however near the ends the rows are (n of
them do; more make what is left open fall as fast near the ends as in the middle, but are soon nearly dependent).
Features are divided by the root of their part of the diagonal. At x outside the interval, f given all of f inside
depends on z at the nearer end, and so does cov(u_m, f(x)).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

# What a family of inducing features says of itself: covariances among them, and with values of the process.


@dataclass(frozen=True)
class Basis:
    """Features u of a process f: cov(u) is `among`, cov(u_m, f(x)) is `weights[m] * functions(x)[m]`.

    The functions depend on no parameter of the kernel where the family says so. Features have about unit variance, so
    that jitter is as small to each of them.
    """

    weights: Float[Array, "M"]
    among: Float[Array, "M M"]
    functions: Callable[[Float[Array, "n D"]], Float[Array, "n M"]]


Family = Callable[[str, Mapping[str, Array], Float[Array, "k D"], int], Basis]
"""From the name of a kernel, its parameters, where the features are, and how many, to the features.

Raises Unsuited for a kernel, or a number of columns, that the family has no features for.
"""


class Unsuited(Exception):
    """Why a kernel has no features of a family, in words."""


SMOOTHNESS = {"Matern12": 1, "Matern32": 2, "Matern52": 3}
"""n."""


def fourier(kernel: str, arguments: Mapping[str, Array], corners: Float[Array, "2 D"], count: int) -> Basis:
    """`count` features: the constant, cosines and sines, then powers of s."""
    if kernel not in SMOOTHNESS:
        raise Unsuited(f"Fourier features are known of Matern12, Matern32 and Matern52, not of {kernel}")
    if corners.shape[1] != 1:
        raise Unsuited(
            f"Fourier features are those of one column, and {kernel} sees {corners.shape[1]}: write a sum or a product "
            f"of kernels of single columns, such as {kernel}(ell, on = x[1]) * {kernel}(ell, on = x[2])"
        )
    n, ell = SMOOTHNESS[kernel], jnp.reshape(arguments["ell"], ())
    powers = min(2 * n - 1, n + 1, count - 1)
    return _Functions(n, math.sqrt(2 * n - 1) / ell, corners[0, 0], corners[1, 0], count - powers, powers).basis()


@dataclass(frozen=True)
class _Functions:
    """So many functions 1, cos, sin, and powers of s, of one interval."""

    n: int
    lam: Float[Array, ""]
    start: Float[Array, ""]
    end: Float[Array, ""]
    waves: int
    powers: int

    def basis(self) -> Basis:
        """The features, each divided by the root of its part of the diagonal."""
        inside = self._integrals() / (2.0 * self.lam, 4.0 * self.lam**3, 16.0 / 3.0 * self.lam**5)[self.n - 1]
        ends = self._root() @ self._at_end(-1.0)
        weights = 1.0 / jnp.sqrt(jnp.diagonal(inside))
        ends = ends * weights[None, :]
        among = weights[:, None] * inside * weights[None, :] + ends.T @ ends
        return Basis(weights, among, lambda points: self(points[:, 0]))

    @property
    def length(self) -> Float[Array, ""]:
        return self.end - self.start

    @property
    def even(self) -> Float[Array, "c"]:
        """Frequencies of cosines, 0 among them."""
        return 2.0 * jnp.pi / self.length * self._counted(0, self.waves // 2 + 1)

    @property
    def odd(self) -> Float[Array, "s"]:
        """Frequencies of sines."""
        return 2.0 * jnp.pi / self.length * self._counted(1, (self.waves + 1) // 2)

    def _counted(self, first: int, stop: int) -> Float[Array, "k"]:
        return jnp.arange(first, stop, dtype=self.length.dtype)

    def __call__(self, x: Float[Array, "n"]) -> Float[Array, "n M"]:
        """phi at x inside the interval, and what is left of z at the nearer end outside."""
        beyond = jnp.maximum(jnp.maximum(self.start - x, x - self.end), 0.0)[:, None]
        turns, s = (x - self.start)[:, None], (2.0 * (x - self.start) / self.length - 1.0)[:, None]
        within = jnp.concatenate(
            [
                jnp.cos(turns * self.even[None, :]),
                jnp.sin(turns * self.odd[None, :]),
                *[s**k for k in range(1, self.powers + 1)],
            ],
            axis=1,
        )
        right = (x > self.end)[:, None]
        ahead = jnp.where(right, 1.0, -1.0)
        left_of = self._decays(beyond)
        outside = jnp.zeros_like(within)
        for order, (decay, low, high) in enumerate(zip(left_of, self._at_end(-1.0), self._at_end(1.0), strict=True)):
            outside = outside + ahead**order * decay * jnp.where(right, high[None, :], low[None, :])
        return jnp.where(beyond == 0.0, within, outside)

    def _at_end(self, s: float) -> Float[Array, "n M"]:
        """phi, phi', ... at the end where s is -1 or 1."""
        still, moving, rate = jnp.zeros_like(self.even), jnp.zeros_like(self.odd), 2.0 / self.length
        waves = [(jnp.ones_like(self.even), moving), (still, self.odd), (-(self.even**2), moving)]
        powers, one = range(1, self.powers + 1), jnp.ones_like(rate)
        ramps: list[list[Array | float]] = [
            [s**k for k in powers],
            [rate * k * s ** (k - 1) for k in powers],
            [rate**2 * k * (k - 1) * s ** abs(k - 2) for k in powers],
        ]
        every = [[*w, *(jnp.reshape(each * one, 1) for each in r)] for w, r in zip(waves, ramps, strict=True)]
        return jnp.stack([jnp.concatenate(parts) for parts in every[: self.n]])

    def _root(self) -> Float[Array, "n n"]:
        """B with B'B = P^-1."""
        one, zero, lam = jnp.ones_like(self.lam), jnp.zeros_like(self.lam), self.lam
        rows = {
            1: [[one]],
            2: [[one, zero], [zero, 1.0 / lam]],
            3: [
                [one, zero, zero],
                [zero, math.sqrt(3.0) / lam, zero],
                [one / math.sqrt(8.0), zero, 3.0 / (math.sqrt(8.0) * lam**2)],
            ],
        }[self.n]
        return jnp.stack([jnp.stack(row) for row in rows])

    def _decays(self, t: Float[Array, "n 1"]) -> list[Array]:
        """What multiplies f, f', ... at an end in the mean of f at a distance t from it."""
        u = self.lam * t
        parts = {1: [1.0 + 0.0 * t], 2: [1.0 + u, t], 3: [1.0 + u + 0.5 * u**2, t * (1.0 + u), 0.5 * t**2]}[self.n]
        return [jnp.exp(-u) * part for part in parts]

    def _integrals(self) -> Float[Array, "M M"]:
        """int (d/dx + lam)^n phi_i (d/dx + lam)^n phi_j dx."""
        size = (self.lam**2 + jnp.concatenate([self.even, self.odd]) ** 2) ** self.n
        waves = jnp.diag(0.5 * self.length * size.at[0].multiply(2.0))
        if not self.powers:
            return waves
        applied = self._applied()
        even, odd = self._moments(self.even), self._moments(self.odd)
        turn = lambda w: (self.lam + 1j * w)[:, None] ** self.n  # noqa: E731
        crossed = jnp.concatenate(
            [jnp.real(turn(self.even) * (even @ applied.T)), jnp.imag(turn(self.odd) * (odd @ applied.T))]
        )
        degrees = self._counted(0, self.powers + 1)
        both = degrees[:, None] + degrees[None, :]
        plain = jnp.where(both % 2 == 0, self.length / (both + 1.0), 0.0)
        return jnp.block([[waves, crossed], [crossed.T, applied @ plain @ applied.T]])

    def _applied(self) -> Float[Array, "powers degrees"]:
        """Coefficients, from the constant on, of (d/dx + lam)^n s^k."""
        degrees = self.powers + 1
        slope = 2.0 / self.length * jnp.diag(self._counted(1, degrees), 1)
        each = self.lam * jnp.eye(degrees, dtype=slope.dtype) + slope
        return jnp.linalg.matrix_power(each, self.n)[:, 1:].T

    def _moments(self, w: Float[Array, "f"]) -> Complex[Array, "f degrees"]:
        """int s^k exp(i w (x - a)) dx, by parts: all waves end as they begin."""
        resting = w == 0.0
        turning = 1j * jnp.where(resting, 1.0, w)
        found = [jnp.where(resting, self.length, 0.0) + 0.0j]
        for k in range(1, self.powers + 1):
            ends = 1.0 - (-1.0) ** k
            moving = (ends - 2.0 * k / self.length * found[-1]) / turning
            found.append(jnp.where(resting, (2.0 - ends) / 2.0 * self.length / (k + 1.0), moving))
        return jnp.stack(found, axis=1)


# Eigenfunctions of RBF under a normal density of the inputs: Rasmussen and Williams (2006), section 4.3.1.
#
# With p the density of N(m, s^2) and int k(x, x') v_i(x) p(x) dx = lambda_i v_i(x'), the features are
# u_i = int f v_i p dx / sqrt(lambda_i): they are independent with unit variance, and cov(u_i, f(x)) = sqrt(lambda_i)
# v_i(x). In one column, with a = 1 / (4 s^2), b = 1 / (2 ell^2), c = sqrt(a^2 + 2 a b) and A = a + b + c,
#
#     lambda_k = sqrt(2 a / A) (b / A)^k,   v_k(x) = (c / a)^(1/4) exp(-(c - a) x^2) H_k(sqrt(2 c) x) / sqrt(2^k k!),
#
# x from m; in several, products of these. The density has the middle of the box as its mean, and a quarter of its width
# as its standard deviation.


def eigen(kernel: str, arguments: Mapping[str, Array], corners: Float[Array, "2 D"], count: int) -> Basis:
    """`count` eigenfunctions, by the sum of their degrees."""
    if kernel != "RBF":
        raise Unsuited(f"eigenfunctions are known of RBF, Matern12, Matern32 and Matern52, not of {kernel}")
    width, dtype = corners.shape[1], corners.dtype
    degrees = lowest_degrees(count, width)
    most = int(degrees.max())
    ell = jnp.broadcast_to(arguments["ell"], (width,))
    middle, spread = 0.5 * (corners[0] + corners[1]), 0.25 * (corners[1] - corners[0])
    a, b = 0.25 / spread**2, 0.5 / ell**2
    c = jnp.sqrt(a**2 + 2.0 * a * b)
    total = a + b + c
    logs = 0.5 * jnp.log(2.0 * a / total)[None, :] + jnp.asarray(degrees, dtype) * jnp.log(b / total)[None, :]

    def functions(points: Float[Array, "n D"]) -> Float[Array, "n M"]:
        moved = points - middle[None, :]
        first = (c / a)[None, :] ** 0.25 * jnp.exp(-(c - a)[None, :] * moved**2)
        each = _hermite(jnp.sqrt(2.0 * c)[None, :] * moved, first, most)
        return functools.reduce(jnp.multiply, [each[degrees[:, d], :, d] for d in range(width)]).T

    return Basis(jnp.exp(0.5 * jnp.sum(logs, axis=1)), jnp.eye(count, dtype=dtype), functions)


def _hermite(z: Float[Array, "n D"], first: Float[Array, "n D"], most: int) -> Float[Array, "degrees n D"]:
    """`first` times H_k(z) / sqrt(2^k k!), k up to the most."""
    # a loop: hundreds written out take minutes to compile

    def following(known: tuple[Array, Array], k: Array) -> tuple[tuple[Array, Array], Array]:
        before, last = known
        new = jnp.sqrt(2.0 / (k + 1.0)) * z * last - jnp.sqrt(k / (k + 1.0)) * before
        return (last, new), new

    begun = first, jnp.sqrt(2.0) * z * first
    rest = jax.lax.scan(following, begun, jnp.arange(1, max(most, 1), dtype=z.dtype))[1]
    return jnp.concatenate([jnp.stack(begun), rest])[: most + 1]


@functools.lru_cache(maxsize=64)
def lowest_degrees(count: int, width: int) -> np.ndarray:
    """`count` different degrees in so many columns, those with the smallest sums first: [count, width]."""
    found: list[tuple[int, ...]] = []
    for total in itertools.count():
        for bars in itertools.combinations(range(total + width - 1), width - 1):
            ends = (-1, *bars, total + width - 1)
            found.append(tuple(ends[i + 1] - ends[i] - 1 for i in range(width)))
            if len(found) == count:
                return np.asarray(found)
    raise AssertionError  # the numbers do not end
