"""`covariance(form, parameters, A, B)`: the covariance of two arrays of functionals, and its diagonal.

Formulas follow Rasmussen and Williams (2006), chapter 4, with unit variance: a variance is a factor in the language.
Length-scales broadcast against the inputs' columns, so a vector of them is automatic relevance determination.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gpdsl.kernels import families
from gpdsl.kernels.columns import selected
from gpdsl.kernels.combined import Known, combined_covariance, combined_variance, integrated
from gpdsl.kernels.form import Base, ByFormula, Form, On, Patches, Product, Scaled, Sum, count
from gpdsl.kernels.formula import formula_covariance, formula_variance, mean_over_pairs, mean_within, patches_of
from gpdsl.kernels.fourier import Basis
from gpdsl.kernels.functionals import Coefficients, Functionals, Integrals, Values, squared_distance
from gpdsl.kernels.interdomain import between, features_of

# Matérn profiles as functions of the scaled square s = 2 nu r^2, with derivatives that are right at s = 0.
#
# With u = sqrt(s): h0 = e^-u, h1 = (1 + u) e^-u, h2 = (1 + u + u^2/3) e^-u, and h1' = -h0/2, h2' = -h1/6 in s. Written
# through u alone, automatic differentiation would divide zero by zero where two points meet.

SMALLEST = 1e-30
"""Below it the square root is kept constant: it has no derivative at zero, and what multiplies it is zero there."""


def exponential(s: Array) -> Array:
    """h0: the profile of Matern12."""
    return jnp.exp(-_root(s))


@jax.custom_jvp
def once_smooth(s: Array) -> Array:
    """h1: the profile of Matern32."""
    u = _root(s)
    return (1.0 + u) * jnp.exp(-u)


@jax.custom_jvp
def twice_smooth(s: Array) -> Array:
    """h2: the profile of Matern52."""
    u = _root(s)
    return (1.0 + u + u**2 / 3.0) * jnp.exp(-u)


@once_smooth.defjvp
def _once_smooth_jvp(at: Any, along: Any) -> tuple[Array, Array]:
    return once_smooth(at[0]), -exponential(at[0]) / 2.0 * along[0]


@twice_smooth.defjvp
def _twice_smooth_jvp(at: Any, along: Any) -> tuple[Array, Array]:
    return twice_smooth(at[0]), -once_smooth(at[0]) / 6.0 * along[0]


def _root(s: Array) -> Array:
    return jnp.sqrt(jnp.maximum(s, SMALLEST))


Points = Float[Array, "n D"]
OtherPoints = Float[Array, "m D"]
Parameter = Float[Array, "..."]


def _rational_quadratic(squares: Float[Array, "n m"], alpha: Parameter) -> Float[Array, "n m"]:
    return jnp.exp(-alpha * jnp.log1p(squares / (2.0 * alpha)))  # a power loses digits where alpha is large


def _periodic(a: Points, b: OtherPoints, ell: Parameter, period: Parameter) -> Float[Array, "n m"]:
    ell, period = jnp.broadcast_to(ell, a.shape[-1:]), jnp.broadcast_to(period, a.shape[-1:])
    phases = (
        jnp.square(jnp.sin(jnp.pi * (a[:, None, d] - b[None, :, d]) / period[d]) / ell[d]) for d in range(a.shape[-1])
    )
    return jnp.exp(-2.0 * sum(phases))  # type: ignore[operator]


def _cosine(a: Points, b: OtherPoints, period: Parameter) -> Float[Array, "n m"]:
    a, b = a / period, b / period
    return jnp.cos(2.0 * jnp.pi * (jnp.sum(a, axis=1)[:, None] - jnp.sum(b, axis=1)[None, :]))


def _stationary(profile: Callable[..., Array]) -> Callable[..., Array]:
    """A kernel from its profile, a function of squared scaled distances.

    One length-scale for all columns divides the distances: its gradient then needs no gradient in the inputs.
    """

    def kernel(a: Points, b: OtherPoints, ell: Parameter, **others: Parameter) -> Array:
        if jnp.ndim(ell) == 0:
            return profile(squared_distance(a, b) / (ell * ell), **others)
        return profile(squared_distance(a, b, ell), **others)

    return kernel


def _linear(a: Points, b: OtherPoints, ell: Parameter) -> Array:
    return (a / ell) @ (b / ell).T


def _polynomial(a: Points, b: OtherPoints, offset: Parameter, ell: Parameter, degree: int) -> Array:
    return (offset + _linear(a, b, ell)) ** degree


def _constant(a: Points, b: OtherPoints) -> Array:
    return jnp.ones((a.shape[0], b.shape[0]), a.dtype)


KERNELS: Mapping[str, Callable[..., Array]] = {
    "RBF": _stationary(lambda squares: jnp.exp(-0.5 * squares)),
    "Matern12": _stationary(exponential),
    "Matern32": _stationary(lambda squares: once_smooth(3.0 * squares)),
    "Matern52": _stationary(lambda squares: twice_smooth(5.0 * squares)),
    "RationalQuadratic": _stationary(_rational_quadratic),
    "Periodic": _periodic,
    "Cosine": _cosine,
    "Linear": _linear,
    "Polynomial": _polynomial,
    "ArcCosine": families.arc_cosine,
    "SpectralMixture": families.spectral_mixture,
    "Coregion": families.coregion,
    "Before": families.before,
    "After": families.after,
    "Constant": _constant,
    "Same": families.same,
}
"""Every kernel but `White`, whose value depends on the functionals being the same ones and not on their distance."""


def _linear_variance(a: Points, ell: Parameter) -> Float[Array, "n"]:
    return jnp.sum(jnp.square(a / ell), axis=1)


def _polynomial_variance(a: Points, offset: Parameter, ell: Parameter, degree: int) -> Float[Array, "n"]:
    return (offset + _linear_variance(a, ell)) ** degree


VARIANCES: Mapping[str, Callable[..., Array]] = {
    "Linear": _linear_variance,
    "Polynomial": _polynomial_variance,
    "ArcCosine": families.arc_cosine_variance,
    "SpectralMixture": families.spectral_mixture_variance,
    "Coregion": families.coregion_variance,
    "Before": families.before_variance,
    "After": families.after_variance,
}
"""Variance at each point, of the kernels for which it is not one everywhere."""


def covariance(form: Form, parameters: Sequence[Parameter], a: Functionals, b: Functionals | None = None) -> Array:
    """Covariance [len(a), len(b)] of two arrays of functionals; of `a` with itself when `b` is absent.

    `parameters` are scalars or one value per input column, in the form's order.
    """
    if isinstance(a, Values) and (b is None or isinstance(b, Values)):
        return _evaluate(form, iter(parameters), a, b)
    return combined_covariance(partial(_known, form, parameters), a, b)


def basis(form: Form, parameters: Sequence[Parameter], features: Coefficients) -> Basis:
    """The features of a kernel at these parameters, in the form's order. Raises Unsuited for one that has none."""
    return features_of(form, parameters, features, covariance)


def variance(form: Form, parameters: Sequence[Parameter], a: Functionals) -> Float[Array, "n"]:
    """The diagonal of `covariance(form, parameters, a)`, without the rest of it."""
    if isinstance(a, Values):
        return _diagonal(form, iter(parameters), a.points)
    return combined_variance(
        partial(_known, form, parameters),
        lambda p: _diagonal(form, iter(parameters), p.points),
        a,
    )


def _known(form: Form, parameters: Sequence[Parameter], a: Known, b: Known | None) -> Array:
    if isinstance(a, Coefficients) or isinstance(b, Coefficients):
        return between(form, parameters, a, b, covariance)
    if isinstance(a, Integrals):
        return integrated(form, parameters, a, b, covariance)
    if isinstance(b, Integrals):
        return integrated(form, parameters, b, a, covariance).T
    return _evaluate(form, iter(parameters), a, b)


def _evaluate(form: Form, parameters: Iterator[Parameter], a: Values, b: Values | None) -> Array:
    match form:
        case Base(name="White"):
            n, m = len(a), len(a if b is None else b)
            return jnp.eye(n, dtype=a.points.dtype) if b is None else jnp.zeros((n, m), a.points.dtype)
        case Base():
            others = a.points if b is None else b.points
            return KERNELS[form.name](a.points, others, **_arguments(form, parameters))
        case ByFormula(formula=formula):
            return formula_covariance(formula, _take(form, parameters), a.points, a.points if b is None else b.points)
        case On(numbers=numbers, kernel=kernel):
            known = [next(parameters) for _ in numbers]
            first = Values(selected(form, known, a.points))
            second = None if b is None else Values(selected(form, known, b.points))
            return _evaluate(kernel, parameters, first, second)
        case Patches(image=image, patch=patch, weighted=weighted):
            weights = next(parameters) if weighted else None
            first_patches = patches_of(a.points, image, patch)
            second_patches = first_patches if b is None else patches_of(b.points, image, patch)
            return mean_over_pairs(_between(form.kernel, parameters), first_patches, second_patches, weights)
        case Scaled(kernel=kernel):
            factor = next(parameters)
            return factor * _evaluate(kernel, parameters, a, b)
        case Sum(terms=terms):
            return sum(_evaluate(t, parameters, a, b) for t in terms)  # type: ignore[return-value]
        case Product(factors=factors):
            return functools.reduce(operator.mul, [_evaluate(f, parameters, a, b) for f in factors])


def _diagonal(form: Form, parameters: Iterator[Parameter], points: Points) -> Array:
    match form:
        case Base():
            arguments = _arguments(form, parameters)
            known = VARIANCES.get(form.name)
            return known(points, **arguments) if known else jnp.ones(points.shape[0], points.dtype)
        case ByFormula(formula=formula):
            return formula_variance(formula, _take(form, parameters), points)
        case On(numbers=numbers, kernel=kernel):
            return _diagonal(kernel, parameters, selected(form, [next(parameters) for _ in numbers], points))
        case Patches(image=image, patch=patch, weighted=weighted):
            weights = next(parameters) if weighted else None
            return mean_within(_between(form.kernel, parameters), patches_of(points, image, patch), weights)
        case Scaled(kernel=kernel):
            factor = next(parameters)
            return factor * _diagonal(kernel, parameters, points)
        case Sum(terms=terms):
            return sum(_diagonal(t, parameters, points) for t in terms)  # type: ignore[return-value]
        case Product(factors=factors):
            return functools.reduce(operator.mul, [_diagonal(f, parameters, points) for f in factors])


def _arguments(form: Base, parameters: Iterator[Parameter]) -> dict[str, Any]:
    return {name: next(parameters) for name in form.parameters} | dict(form.static)


def _take(form: Form, parameters: Iterator[Parameter]) -> list[Parameter]:
    """The parameters of a form."""
    return [next(parameters) for _ in range(count(form))]


def _between(kernel: Form, parameters: Iterator[Parameter]) -> Callable[[Points, OtherPoints], Array]:
    """The covariance of the patches of two images."""
    known = _take(kernel, parameters)
    return lambda p, q: _evaluate(kernel, iter(known), Values(p), Values(q))
