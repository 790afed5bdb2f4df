"""Random waves of a covariance function: k(x, x') is the expectation of the products of a random wave at x and x'.

A wave is g(x) exp(i phase(x)) with a random power: for a stationary kernel g = 1 and the phase is w'x, w drawn from the
spectral density (Rahimi and Recht 2007). Powers multiply and phases add where kernels multiply; where kernels are added
a wave belongs to one of the terms. What a wave is made of depends on its index and a seed alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from gpdsl.kernels.counters import Stream
from gpdsl.kernels.form import Base, Form, On, Product, Scaled, Sum
from gpdsl.kernels.selected import selected

Points = Float[Array, "n D"]
Parameter = Float[Array, "..."]


@dataclass(frozen=True)
class Waves:
    """Waves at some points: E[power Re(conj(wave(x)) wave(x'))] = k(x, x').

    The phase is the sum over `parts` of points times frequencies in radians. `amplitude` is g(x), or None for 1.
    """

    power: Float[Array, "k"]
    parts: tuple[tuple[Points, Float[Array, "k D"]], ...] = ()
    amplitude: Float[Array, "n k"] | None = None

    def phase(self) -> Float[Array, "n k"] | None:
        """The phase of every wave at every point; None where all are zero."""
        phases = [points @ frequencies.T for points, frequencies in self.parts]
        return functools.reduce(jnp.add, phases) if phases else None


def waves(form: Form, parameters: Sequence[Parameter], points: Points, stream: Stream) -> Waves:
    """Random waves of a covariance function with these parameters, in the form's order; differentiable in them."""
    return _waves(form, iter(parameters), points, stream)


def _waves(form: Form, parameters: Iterator[Parameter], points: Points, stream: Stream) -> Waves:
    match form:
        case Base():
            arguments = {name: next(parameters) for name in form.parameters} | dict(form.static)
            return WAVES[form.name](points, stream, **arguments)
        case On(numbers=numbers, kernel=kernel):
            return _waves(kernel, parameters, selected(form, [next(parameters) for _ in numbers], points), stream)
        case Scaled(kernel=kernel):
            factor = next(parameters)
            inner = _waves(kernel, parameters, points, stream)
            return Waves(factor * inner.power, inner.parts, inner.amplitude)
        case Product(factors=factors):
            return _product([_waves(factor, parameters, points, stream) for factor in factors])
        case Sum(terms=terms):
            choice = stream.choices(len(terms))
            return _mixture([_waves(term, parameters, points, stream) for term in terms], choice)
    raise TypeError(form)


def _product(factors: Sequence[Waves]) -> Waves:
    """Frequencies of the factors add: the spectral density of a product is the convolution of theirs."""
    power = functools.reduce(jnp.multiply, [each.power for each in factors])
    amplitudes = [each.amplitude for each in factors if each.amplitude is not None]
    amplitude = functools.reduce(jnp.multiply, amplitudes) if amplitudes else None
    return Waves(power, _merged(part for each in factors for part in each.parts), amplitude)


def _mixture(terms: Sequence[Waves], choice: Array) -> Waves:
    """Each wave is one of the terms', as `choice` says."""
    chosen = [choice == i for i in range(len(terms))]
    power = sum(jnp.where(here, len(terms) * each.power, 0.0) for here, each in zip(chosen, terms, strict=True))
    parts = [
        (points, jnp.where(here[:, None], frequencies, 0.0))
        for here, each in zip(chosen, terms, strict=True)
        for points, frequencies in each.parts
    ]
    amplitude = None
    if any(each.amplitude is not None for each in terms):
        gains = [1.0 if each.amplitude is None else each.amplitude for each in terms]
        amplitude = sum(jnp.where(here, gain, 0.0) for here, gain in zip(chosen, gains, strict=True))
    return Waves(power, _merged(parts), amplitude)  # type: ignore[arg-type]


def _merged(parts: Any) -> tuple[tuple[Points, Array], ...]:
    """Frequencies at the same points, added: one matrix product instead of several."""
    together: dict[int, tuple[Points, Array]] = {}
    for points, frequencies in parts:
        known = together.get(id(points))
        together[id(points)] = (points, frequencies if known is None else known[1] + frequencies)
    return tuple(together.values())


def _ones(stream: Stream) -> Float[Array, "k"]:
    return jnp.ones(stream.index.shape, stream.dtype)


def _rbf(points: Points, stream: Stream, ell: Parameter) -> Waves:
    return Waves(_ones(stream), ((points, stream.normals(points.shape[1]) / ell),))


def _matern(freedom: int) -> Callable[..., Waves]:
    """Of smoothness nu the frequencies are Student's t of 2 nu degrees of freedom (RW 2006, eq. 4.15)."""

    def draw(points: Points, stream: Stream, ell: Parameter) -> Waves:
        normals = stream.normals(points.shape[1] + freedom)
        gaussian, others = normals[:, freedom:], normals[:, :freedom]
        spread = jnp.sqrt(jnp.mean(jnp.square(others), axis=1, keepdims=True))
        return Waves(_ones(stream), ((points, gaussian / spread / ell),))

    return draw


def _periodic(points: Points, stream: Stream, ell: Parameter, period: Parameter) -> Waves:
    """An RBF kernel of the points on circles: |(cos, sin) - (cos', sin')|^2 = 4 sin(pi (x - x') / period)^2."""
    angle = 2.0 * jnp.pi * points / period
    circles = jnp.concatenate([jnp.cos(angle), jnp.sin(angle)], axis=1)
    ell = jnp.tile(jnp.broadcast_to(ell, points.shape[1:]), 2)
    return _rbf(circles, stream, ell)


def _cosine(points: Points, stream: Stream, period: Parameter) -> Waves:
    frequency = jnp.broadcast_to(2.0 * jnp.pi / period, points.shape[1:])
    return Waves(_ones(stream), ((points, jnp.broadcast_to(frequency, (*stream.index.shape, *frequency.shape))),))


def _spectral_mixture(
    points: Points, stream: Stream, weights: Float[Array, "Q"], means: Parameter, sds: Parameter
) -> Waves:
    """One component of the mixture each; of every column the frequency has either sign."""
    columns, components = points.shape[1], weights.shape[0]
    choice = stream.choices(components)
    per_column = lambda a: jnp.broadcast_to(a[:, None] if a.ndim == 1 else a, (components, columns))[choice]  # noqa: E731
    signs = jnp.where(stream.uniforms(columns) < 0.5, -1.0, 1.0)
    frequencies = 2.0 * jnp.pi * (signs * per_column(means) + per_column(sds) * stream.normals(columns))
    return Waves(components * weights[choice], ((points, frequencies),))


def _constant(points: Points, stream: Stream) -> Waves:
    return Waves(_ones(stream))


def _linear(points: Points, stream: Stream, ell: Parameter) -> Waves:
    """One of the columns each, D times as strong."""
    columns = points.shape[1]
    amplitude = (points / ell)[:, stream.choices(columns)]
    return Waves(columns * _ones(stream), (), amplitude)


WAVES: Mapping[str, Callable[..., Waves]] = {
    "RBF": _rbf,
    "Matern12": _matern(1),
    "Matern32": _matern(3),
    "Matern52": _matern(5),
    "Periodic": _periodic,
    "Cosine": _cosine,
    "SpectralMixture": _spectral_mixture,
    "Constant": _constant,
    "Linear": _linear,
}
"""How waves of each kernel of the table are drawn."""
