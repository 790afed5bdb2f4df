"""Integrals of a process over intervals of its one input: covariances in closed form.

With K1(t) the integral of a stationary kernel from 0 to t and K2 that of K1, the integral from a to b has with the
value at x the covariance K1(b - x) - K1(a - x), and with the integral from c to d it has
K2(b - c) + K2(a - d) - K2(b - d) - K2(a - c). Kernels that are polynomials in each of their points are integrated by a
Gauss rule, which is exact for them.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf
from jaxtyping import Array, Float

from gpdsl.kernels.form import Base, Form, On, Product, Scaled, Sum, count
from gpdsl.kernels.functionals import Integrals, Values

NODES, WEIGHTS = (0.5 * each for each in np.polynomial.legendre.leggauss(12))
"""On an interval of length one, around its middle: exact for polynomials of degree 23."""

FINE = (0.5 * np.polynomial.legendre.leggauss(64)[0], 0.5 * np.polynomial.legendre.leggauss(64)[1])
"""Shares of an interval, from its middle, and their weights: for mean functions, which no formula integrates."""

Profile = Callable[[Array], Array]
OfValues = Callable[[Form, Sequence[Array], Values, Values], Array]
"""The covariance of values under a kernel with these parameters."""


def _primitive(value: Profile, slope: Profile) -> Profile:
    """A function with a derivative that is right where its parts have none, at zero."""
    function = jax.custom_jvp(value)
    function.defjvp(lambda at, along: (function(at[0]), slope(at[0]) * along[0]))
    return function


def _rbf(t: Array) -> Array:
    return jnp.exp(-0.5 * t**2)


def _rbf1(t: Array) -> Array:
    return np.sqrt(np.pi / 2.0) * erf(t / np.sqrt(2.0))


def _rbf2(t: Array) -> Array:
    return t * _rbf1(t) + jnp.expm1(-0.5 * t**2)


def _half(t: Array) -> Array:
    return jnp.exp(-jnp.abs(t))


def _half1(t: Array) -> Array:
    return -jnp.sign(t) * jnp.expm1(-jnp.abs(t))


def _half2(t: Array) -> Array:
    return jnp.abs(t) + jnp.expm1(-jnp.abs(t))


def _once(t: Array) -> Array:
    u = np.sqrt(3.0) * jnp.abs(t)
    return (1.0 + u) * jnp.exp(-u)


def _once1(t: Array) -> Array:
    u = np.sqrt(3.0) * jnp.abs(t)
    return jnp.sign(t) / np.sqrt(3.0) * (2.0 - (2.0 + u) * jnp.exp(-u))


def _once2(t: Array) -> Array:
    u = np.sqrt(3.0) * jnp.abs(t)
    return (2.0 * u + u * jnp.exp(-u) + 3.0 * jnp.expm1(-u)) / 3.0


def _twice(t: Array) -> Array:
    u = np.sqrt(5.0) * jnp.abs(t)
    return (1.0 + u + u**2 / 3.0) * jnp.exp(-u)


def _twice1(t: Array) -> Array:
    u = np.sqrt(5.0) * jnp.abs(t)
    return jnp.sign(t) / np.sqrt(5.0) * (8.0 / 3.0 - (8.0 + 5.0 * u + u**2) / 3.0 * jnp.exp(-u))


def _twice2(t: Array) -> Array:
    u = np.sqrt(5.0) * jnp.abs(t)
    return (8.0 * u + (7.0 * u + u**2) * jnp.exp(-u) + 15.0 * jnp.expm1(-u)) / 15.0


def _wave1(t: Array) -> Array:
    return jnp.sin(t)


def _wave2(t: Array) -> Array:
    return 2.0 * jnp.sin(0.5 * t) ** 2


def _both(kernel: Profile, once: Profile, twice: Profile) -> tuple[Profile, Profile]:
    first = _primitive(once, kernel)
    return first, _primitive(twice, first)


PRIMITIVES: Mapping[str, tuple[Profile, Profile]] = {
    "RBF": _both(_rbf, _rbf1, _rbf2),
    "Matern12": _both(_half, _half1, _half2),
    "Matern32": _both(_once, _once1, _once2),
    "Matern52": _both(_twice, _twice1, _twice2),
    "Cosine": _both(jnp.cos, _wave1, _wave2),
}
"""K1 and K2 of kernels at unit length-scale; of `Cosine` where the period is 2 pi."""


def integrated(
    form: Form, parameters: Sequence[Array], a: Integrals, b: Integrals | Values | None, of_values: OfValues
) -> Float[Array, "n m"]:
    """Covariance of integrals with values, or with integrals; of `a` with itself when `b` is absent."""
    return _integrated(form, iter(parameters), a, a if b is None else b, of_values)


def _integrated(
    form: Form, parameters: Iterator[Array], a: Integrals, b: Integrals | Values, of_values: OfValues
) -> Array:
    match form:
        case Base(name=name) if name in PRIMITIVES:
            (length,) = (jnp.reshape(next(parameters), ()) for _ in form.parameters)
            return _stationary(*PRIMITIVES[name], length / (2.0 * np.pi) if name == "Cosine" else length, a, b)
        case On(columns=(column,), kernel=kernel) if column.is_Symbol:
            return _integrated(kernel, parameters, a, b, of_values)
        case Scaled(kernel=kernel):
            factor = next(parameters)
            return factor * _integrated(kernel, parameters, a, b, of_values)
        case Sum(terms=terms):
            return functools.reduce(operator.add, [_integrated(t, parameters, a, b, of_values) for t in terms])
        case Base() | Product():
            known = [next(parameters) for _ in range(count(form))]
            return _by_rule(lambda p, q: of_values(form, known, Values(p), Values(q)), a, b)
    raise TypeError(f"{form} has no integrals")  # refused by the checker


def _stationary(once: Profile, twice: Profile, length: Array, a: Integrals, b: Integrals | Values) -> Array:
    lower, upper = a.lower / length, a.upper / length
    if isinstance(b, Values):
        x = b.points.T / length
        return length * (once(upper - x) - once(lower - x))
    c, d = b.lower.T / length, b.upper.T / length
    return length**2 * ((twice(upper - c) - twice(lower - c)) - (twice(upper - d) - twice(lower - d)))


def _by_rule(kernel: Callable[[Array, Array], Array], a: Integrals, b: Integrals | Values) -> Array:
    """Weighted sums of the covariances of values at the nodes."""
    size, other = len(NODES), len(NODES) if isinstance(b, Integrals) else 1
    at = b.points if isinstance(b, Values) else nodes_of(b)
    values = kernel(nodes_of(a), at).reshape(len(a), size, len(b), other)
    found = jnp.einsum("nimj,ni->nmj", values, weights_of(a))
    return found[..., 0] if isinstance(b, Values) else jnp.einsum("nmj,mj->nm", found, weights_of(b))


def nodes_of(a: Integrals) -> Float[Array, "nodes 1"]:
    """Points of a Gauss rule on each interval, one interval after the other."""
    middle, length = 0.5 * (a.lower + a.upper), a.upper - a.lower
    return (middle + length * NODES).reshape(-1, 1)


def weights_of(a: Integrals) -> Float[Array, "n nodes"]:
    """The weights of its points."""
    return (a.upper - a.lower) * WEIGHTS
