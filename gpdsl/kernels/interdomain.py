"""Inducing features that are not points: covariances among coefficients of a family, and with values of the process.

A family knows its features for single kernels; sums, products and factors are put together here. Features of a sum are
those of its terms; of a product, all products of features of its factors, whose covariances are products too: they are
features of the process on as many copies of the inputs, of which the one that is modelled is the diagonal.

An image-convolutional process f is the mean of another, g, over the patches of an image. Patches as features are values
of g at some of them: van der Wilk, Rasmussen and Hensman (2017), section 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import block_diag
from jaxtyping import Array, Complex, Float

from gpdsl.kernels import fourier
from gpdsl.kernels.columns import selected
from gpdsl.kernels.form import Base, Form, On, Patches, Product, Scaled, Sum, block_of, count, describe, only_white
from gpdsl.kernels.formula import AT_ONCE, patches_of
from gpdsl.kernels.fourier import SMOOTHNESS, Basis, Family, Unsuited
from gpdsl.kernels.functionals import Coefficients, Values
from gpdsl.kernels.spherical import SPHERICAL, on_a_sphere, spherical

# Projections of Matérn processes on the eigenfunctions of the Laplacian on an interval, as inducing features.
#
# With k(r) = sum_m c_m r^m exp(-lam r) on [a, b], L = b - a, y = x - a, the eigenfunctions of slope zero at both ends
# are cos w_j y, w_j = pi j / L, and the features u_j = int f cos(w_j y) dx. With b_j = lam + i w_j,
#
#     cov(u_j, f(x)) = S_j cos w_j y - sum_k r_jk (y^k exp(-lam y) + (-1)^j (L - y)^k exp(-lam (L - y))),
#     cov(u_i, u_j)  = S_j L / 2 [i = j] - (1 + (-1)^(i + j)) sum_k r_ik J_jk,
#
#     S_j = 2 Re sum_m c_m m! b_j^-(m + 1),    r_jk = Re sum_(m >= k) c_m m! / k! b_j^(k - m - 1),
#     J_jk = int_0^L y^k exp(-lam y) cos(w_j y) dy,
#
# and twice the first on the diagonal for j = 0. S is the spectral density; what stands beside it is what the ends cut
# off. Without that these would be the features of Solin and Särkkä (2020), who change the kernel in this way; with it
# they are features of the process itself, and bounds are below its evidence. Outside, at a distance d from the nearer
# end, k(d + y) is expanded in powers of y, and the covariance is a sum of J_jk.

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


# The features of any covariance function.

Points = Float[Array, "n D"]
Seen = Callable[[Points], Points]
"""The columns that a kernel sees of points, or functions of them."""

FAMILIES: dict[str, Family] = {"fourier": fourier.fourier, "eigen": eigen}
"""What a family's features are for one kernel of the table, of the columns that it sees."""

PATCHES = "patches"
"""The family of values at patches: its `Coefficients` are at images, of which the patch at the top left counts."""

OfValues = Callable[[Form, Sequence[Array], Values, Values], Array]
"""The covariance of values under a kernel with these parameters."""


def features_of(form: Form, parameters: Sequence[Array], features: Coefficients, of_values: OfValues) -> Basis:
    """The features of a kernel at these parameters, in the form's order. Raises Unsuited for one that has none."""
    return _Reading(features, iter(parameters), of_values).of(form, lambda points: points)


def between(form: Form, parameters: Sequence[Array], a: Any, b: Any, of_values: OfValues) -> Float[Array, "n m"]:
    """Covariance of coefficients with themselves (`b` is absent or of the same features), or with values."""
    if isinstance(a, Values):
        return between(form, parameters, b, a, of_values).T
    found = features_of(form, parameters, a, of_values)
    if isinstance(b, Values):
        return found.weights[:, None] * found.functions(b.points).T
    return found.among


@dataclass(frozen=True, eq=False)
class _Reading:
    """One reading of a form from left to right, which takes the parameters in their order."""

    features: Coefficients
    parameters: Iterator[Array]
    of_values: OfValues

    def of(self, form: Form, seen: Seen, rounded: bool = False) -> Basis:
        """The features of a part of the kernel; `rounded` where the columns that it sees lie on a sphere."""
        points = self.features.points
        match form:
            case Base(name="Constant"):
                return _finite(jnp.ones(1, points.dtype), lambda points: jnp.ones_like(points[:, :1]), seen)
            case Base(name="Linear"):
                ell, width = next(self.parameters), seen(points).shape[1]
                return _finite(jnp.broadcast_to(1.0 / ell, (width,)), lambda points: points, seen)
            case Base() if self.features.family == SPHERICAL:
                return self._spherical(form, seen, rounded)
            case Base() if self.features.family in FAMILIES:
                arguments = {name: next(self.parameters) for name in form.parameters}
                found = FAMILIES[self.features.family](form.name, arguments, seen(points), self.features.count)
                return Basis(found.weights, found.among, lambda points: found.functions(seen(points)))
            case Patches() if self.features.family == PATCHES:
                return self._patches(form, seen)
            case On() if _columns_alone(form):
                return self.of(form.kernel, lambda points: selected(form, (), seen(points)))
            case On(numbers=names) if self.features.family == SPHERICAL:
                known = [next(self.parameters) for _ in names]
                on_it = on_a_sphere(form, seen(points).shape[1])
                return self.of(form.kernel, lambda points: selected(form, known, seen(points)), on_it)
            case Scaled(kernel=kernel):
                factor, found = jnp.sqrt(next(self.parameters)), self.of(kernel, seen)
                return Basis(factor * found.weights, found.among, found.functions)
            case Sum(terms=terms):
                parts = [self.of(term, seen) for term in terms if not only_white(term)]
                if parts:
                    return _side_by_side(parts)
            case Product(factors=factors):
                return reduce(_crossed, [self.of(factor, seen) for factor in factors])
        raise Unsuited(f"the kernel {describe(form)} has no features of this kind")

    def _spherical(self, form: Base, seen: Seen, rounded: bool) -> Basis:
        known = [next(self.parameters) for _ in form.parameters]
        arguments = dict(zip(form.parameters, known, strict=True)) | dict(form.static)

        def kernel(a: Points, b: Float[Array, "m D"]) -> Float[Array, "n m"]:
            return self.of_values(form, known, Values(a), Values(b))

        found = spherical(form, arguments, seen(self.features.points), self.features.count, kernel, rounded)
        return Basis(found.weights, found.among, lambda points: found.functions(seen(points)))

    def _patches(self, form: Patches, seen: Seen) -> Basis:
        """Values g(z), each divided by its standard deviation: cov(g(z), f(x)) is the mean of w[p] k(z, x[p])."""
        weights = next(self.parameters) if form.weighted else None
        known = [next(self.parameters) for _ in range(count(form.kernel))]
        at = patches_of(seen(self.features.points), form.image, form.patch)[:, 0]

        def kernel(a: Points, b: Float[Array, "m D"]) -> Float[Array, "n m"]:
            return self.of_values(form.kernel, known, Values(a), Values(b))

        among = kernel(at, at)
        scale = 1.0 / jnp.sqrt(jnp.diagonal(among))

        def functions(points: Points) -> Float[Array, "n M"]:
            images = patches_of(seen(points), form.image, form.patch)
            mean = jax.checkpoint(lambda patches: _mean(kernel(patches, at), weights))
            return jax.lax.map(mean, images, batch_size=max(1, AT_ONCE // (images.shape[1] * len(at))))

        return Basis(scale, scale[:, None] * among * scale[None, :], functions)


def _mean(values: Float[Array, "P M"], weights: Float[Array, "P"] | None) -> Float[Array, "M"]:
    """Over the patches of one image, each times its weight where there are weights."""
    return jnp.mean(values, axis=0) if weights is None else weights @ values / weights.size


def _columns_alone(form: On) -> bool:
    """Whether a kernel is on columns as they are, and on no functions of them."""
    return all(each.is_Symbol and bool(block_of(each)) for each in form.columns)


def images_of(form: Form, width: int) -> list[tuple[Patches, np.ndarray]]:
    """Every mean over patches in a kernel of so many columns, and which of the columns its pixels are."""
    return _images(form, np.arange(width))


def _images(form: Form, columns: np.ndarray) -> list[tuple[Patches, np.ndarray]]:
    match form:
        case Patches():
            return [(form, columns)]
        case On() if _columns_alone(form):
            return _images(form.kernel, np.asarray(selected(form, (), jnp.asarray(columns)[None]))[0].astype(int))
        case Scaled(kernel=kernel):
            return _images(kernel, columns)
        case Sum(terms=parts) | Product(factors=parts):
            return [each for part in parts for each in _images(part, columns)]
    return []


def _finite(
    weights: Float[Array, "M"], functions: Callable[[Points], Array], seen: Callable[[Points], Points]
) -> Basis:
    """Independent coefficients of a few functions, which are all there is to the process."""
    return Basis(weights, jnp.eye(len(weights), dtype=weights.dtype), lambda points: functions(seen(points)))


def _side_by_side(parts: Sequence[Basis]) -> Basis:
    return Basis(
        jnp.concatenate([each.weights for each in parts]),
        block_diag(*[each.among for each in parts]),
        lambda points: jnp.concatenate([each.functions(points) for each in parts], axis=1),
    )


def _crossed(one: Basis, other: Basis) -> Basis:
    def functions(points: Points) -> Float[Array, "n M"]:
        each = one.functions(points)[:, :, None] * other.functions(points)[:, None, :]
        return each.reshape(len(points), -1)

    return Basis(jnp.kron(one.weights, other.weights), jnp.kron(one.among, other.among), functions)
