"""Inducing features that are not points: covariances among coefficients of a family, and with values of the process.

A family knows its features for single kernels; sums, products and factors are put together here. Features of a sum are
those of its terms; of a product, all products of features of its factors, whose covariances are products too: they are
features of the process on as many copies of the inputs, of which the one that is modelled is the diagonal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

import jax.numpy as jnp
from jax.scipy.linalg import block_diag
from jaxtyping import Array, Float

from gpdsl.kernels import fourier
from gpdsl.kernels.columns import selected
from gpdsl.kernels.form import Base, Form, On, Product, Scaled, Sum, block_of, describe, nothing_but_white
from gpdsl.kernels.fourier import Basis, Family, Unsuited
from gpdsl.kernels.functionals import Coefficients, Values

Points = Float[Array, "n D"]
Seen = Callable[[Points], Points]
"""The columns that a kernel sees of points, or functions of them."""

FAMILIES: dict[str, Family] = {"fourier": fourier.fourier, "eigen": fourier.eigen}
"""What a family's features are for one kernel of the table, of the columns that it sees."""


def basis(form: Form, parameters: Sequence[Array], features: Coefficients) -> Basis:
    """The features of a kernel at these parameters, in the form's order. Raises Unsuited for one that has none."""
    return _of(form, iter(parameters), features, lambda points: points)


def between(form: Form, parameters: Sequence[Array], a: Any, b: Any) -> Float[Array, "n m"]:
    """Covariance of coefficients with themselves (`b` is absent or of the same features), or with values."""
    if isinstance(a, Values):
        return between(form, parameters, b, a).T
    found = basis(form, parameters, a)
    if isinstance(b, Values):
        return found.weights[:, None] * found.functions(b.points).T
    return found.among


def _of(form: Form, parameters: Iterator[Array], features: Coefficients, seen: Seen) -> Basis:
    match form:
        case Base(name="Constant"):
            return _finite(jnp.ones(1, features.points.dtype), lambda points: jnp.ones_like(points[:, :1]), seen)
        case Base(name="Linear"):
            ell, width = next(parameters), seen(features.points).shape[1]
            return _finite(jnp.broadcast_to(1.0 / ell, (width,)), lambda points: points, seen)
        case Base():
            arguments = {name: next(parameters) for name in form.parameters}
            found = FAMILIES[features.family](form.name, arguments, seen(features.points), features.count)
            return Basis(found.weights, found.among, lambda points: found.functions(seen(points)))
        case On(columns=columns, kernel=kernel) if all(each.is_Symbol and block_of(each) for each in columns):
            return _of(kernel, parameters, features, lambda points: selected(form, (), seen(points)))
        case Scaled(kernel=kernel):
            factor, found = jnp.sqrt(next(parameters)), _of(kernel, parameters, features, seen)
            return Basis(factor * found.weights, found.among, found.functions)
        case Sum(terms=terms):
            parts = [_of(term, parameters, features, seen) for term in terms if not nothing_but_white(term)]
            if parts:
                return _side_by_side(parts)
        case Product(factors=factors):
            return reduce(_crossed, [_of(factor, parameters, features, seen) for factor in factors])
    raise Unsuited(f"the kernel {describe(form)} has no features of this kind")


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
