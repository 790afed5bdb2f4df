"""Projections of Matérn processes on the eigenfunctions of the Laplacian on an interval, as inducing features.

With k(r) = sum_m c_m r^m exp(-lam r) on [a, b], L = b - a, y = x - a, the eigenfunctions of slope zero at both ends are
cos w_j y, w_j = pi j / L, and the features u_j = int f cos(w_j y) dx. With b_j = lam + i w_j,

    cov(u_j, f(x)) = S_j cos w_j y - sum_k r_jk (y^k exp(-lam y) + (-1)^j (L - y)^k exp(-lam (L - y))),
    cov(u_i, u_j)  = S_j L / 2 [i = j] - (1 + (-1)^(i + j)) sum_k r_ik J_jk,

    S_j = 2 Re sum_m c_m m! b_j^-(m + 1),    r_jk = Re sum_(m >= k) c_m m! / k! b_j^(k - m - 1),
    J_jk = int_0^L y^k exp(-lam y) cos(w_j y) dy,

and twice the first on the diagonal for j = 0. S is the spectral density; what stands beside it is what the ends cut
off. Without that these would be the features of Solin and Särkkä (2020), who change the kernel in this way; with it
they are features of the process itself, and bounds are below its evidence. Outside, at a distance d from the nearer
end, k(d + y) is expanded in powers of y, and the covariance is a sum of J_jk.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

from gpdsl.kernels import fourier
from gpdsl.kernels.fourier import SMOOTHNESS, Basis, Unsuited

POLYNOMIALS: Mapping[int, tuple[float, ...]] = {1: (1.0,), 2: (1.0, 1.0), 3: (1.0, 1.0, 1.0 / 3.0)}
"""c_m / lam^m."""


def eigen(kernel: str, arguments: Mapping[str, Array], corners: Float[Array, "2 D"], count: int) -> Basis:
    """`count` eigenfunctions: those of `RBF` under a normal density, for a Matérn kernel those of the Laplacian."""
    if kernel not in SMOOTHNESS:
        return fourier.eigen(kernel, arguments, corners, count)
    if corners.shape[1] != 1:
        raise Unsuited(
            f"eigenfunctions of an interval are those of one column, and {kernel} sees {corners.shape[1]}: write a sum "
            f"or a product of kernels of single columns, such as {kernel}(ell, on = x[1]) * {kernel}(ell, on = x[2])"
        )
    n, ell = SMOOTHNESS[kernel], jnp.reshape(arguments["ell"], ())
    return _Projections(n, math.sqrt(2 * n - 1) / ell, corners[0, 0], corners[1, 0], count).basis()


@dataclass(frozen=True)
class _Projections:
    """The projections on the first `count` eigenfunctions of one interval."""

    n: int
    lam: Float[Array, ""]
    start: Float[Array, ""]
    end: Float[Array, ""]
    count: int

    def basis(self) -> Basis:
        """The features, each divided by its standard deviation."""
        cut = self._cut() @ self._integrals().T
        found = jnp.diag(self._density() * 0.5 * self.length * jnp.where(self._numbers() == 0.0, 2.0, 1.0))
        found = found - (1.0 + self._signs()[:, None] * self._signs()[None, :]) * 0.5 * (cut + cut.T)
        scale = 1.0 / jnp.sqrt(jnp.diagonal(found))
        return Basis(scale, scale[:, None] * found * scale[None, :], lambda points: self(points[:, 0]))

    def __call__(self, x: Float[Array, "n"]) -> Float[Array, "n M"]:
        """cov(u, f(x)), inside the interval and outside."""
        y = jnp.clip(x - self.start, 0.0, self.length)[:, None]
        beyond = jnp.maximum(jnp.maximum(self.start - x, x - self.end), 0.0)[:, None]
        ends = self._decays(y) @ self._cut().T + self._signs() * (self._decays(self.length - y) @ self._cut().T)
        inside = self._density() * jnp.cos(self._frequencies() * y) - ends
        outside = self._expanded(beyond) @ self._integrals().T
        outside = jnp.where((x > self.end)[:, None], self._signs() * outside, outside)
        return jnp.where(beyond > 0.0, outside, inside)

    @property
    def length(self) -> Float[Array, ""]:
        return self.end - self.start

    def _numbers(self) -> Float[Array, "M"]:
        return jnp.arange(self.count, dtype=self.length.dtype)

    def _signs(self) -> Float[Array, "M"]:
        """(-1)^j."""
        return 1.0 - 2.0 * (self._numbers() % 2.0)

    def _frequencies(self) -> Float[Array, "M"]:
        return jnp.pi / self.length * self._numbers()

    def _rates(self) -> Complex[Array, "M"]:
        return self.lam + 1j * self._frequencies()

    def _coefficients(self) -> list[Float[Array, ""]]:
        """c_m."""
        return [each * self.lam**m for m, each in enumerate(POLYNOMIALS[self.n])]

    def _density(self) -> Float[Array, "M"]:
        """S."""
        rates = self._rates()
        terms = [c * math.factorial(m) / rates ** (m + 1) for m, c in enumerate(self._coefficients())]
        return 2.0 * jnp.real(sum(terms))  # type: ignore[arg-type]

    def _cut(self) -> Float[Array, "M n"]:
        """r."""
        rates, known = self._rates(), list(enumerate(self._coefficients()))
        columns = [
            sum(c * (math.factorial(m) / math.factorial(k)) / rates ** (m - k + 1) for m, c in known[k:])
            for k in range(self.n)
        ]
        return jnp.real(jnp.stack(columns, axis=1))

    def _integrals(self) -> Float[Array, "M n"]:
        """J."""
        rates = jnp.conj(self._rates())
        turns, columns, partial = rates * self.length, [], jnp.zeros_like(rates)
        for k in range(self.n):
            partial = partial + turns**k / math.factorial(k)
            columns.append(math.factorial(k) / rates ** (k + 1) * (1.0 - jnp.exp(-turns) * partial))
        return jnp.real(jnp.stack(columns, axis=1))

    def _decays(self, y: Float[Array, "m 1"]) -> Float[Array, "m n"]:
        """y^k exp(-lam y)."""
        return jnp.exp(-self.lam * y) * jnp.concatenate([y**k for k in range(self.n)], axis=1)

    def _expanded(self, d: Float[Array, "m 1"]) -> Float[Array, "m n"]:
        """What multiplies y^k exp(-lam y) in k(d + y)."""
        known = list(enumerate(self._coefficients()))
        columns = [sum(c * math.comb(m, k) * d ** (m - k) for m, c in known[k:]) for k in range(self.n)]
        return jnp.exp(-self.lam * d) * jnp.concatenate(columns, axis=1)
