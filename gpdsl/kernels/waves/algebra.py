"""What a random wave is, and how waves combine where kernels are multiplied and added.

A wave is g(x) exp(2 pi i turns(x)) with a power: for a stationary kernel g = 1 and the turns are w'x, w drawn from the
spectral density (Rahimi and Recht 2007). Powers multiply and turns add where kernels multiply; where kernels are added
a wave belongs to one of the terms.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

Points = Float[Array, "n D"]
Part = tuple[Points, Float[Array, "k D"]]


@dataclass(frozen=True)
class Waves:
    """Waves at some points: E[power Re(conj(wave(x)) wave(x'))] = k(x, x').

    The turns are the sum over `parts` of points times frequencies, in whole turns. `amplitude` is g(x), or None for 1.
    """

    power: Float[Array, "k"]
    parts: tuple[Part, ...] = ()
    amplitude: Float[Array, "n k"] | None = None

    def turns(self, start: Float[Array, "k"]) -> Float[Array, "n k"] | Float[Array, "k"]:
        """How often each wave has turned at each point, from `start` on."""
        if not self.parts:
            return start
        first, *others = self.parts
        one = jnp.ones((first[0].shape[0], 1), first[0].dtype)  # one column more costs less than a sum afterwards
        wider = jnp.concatenate([first[0], one], axis=1), jnp.concatenate([first[1], start[:, None]], axis=1)
        return functools.reduce(jnp.add, [points @ frequencies.T for points, frequencies in (wider, *others)])


def product(factors: Sequence[Waves]) -> Waves:
    """Frequencies of the factors add: the spectral density of a product is the convolution of theirs."""
    power = functools.reduce(jnp.multiply, [each.power for each in factors])
    amplitudes = [each.amplitude for each in factors if each.amplitude is not None]
    amplitude = functools.reduce(jnp.multiply, amplitudes) if amplitudes else None
    return Waves(power, _merged(part for each in factors for part in each.parts), amplitude)


def mixture(terms: Sequence[Waves], choice: Int[Array, "k"]) -> Waves:
    """Each wave is one of the terms', as `choice` says, where all are equally likely."""
    chosen = [choice == i for i in range(len(terms))]
    power = _selected(chosen, [len(terms) * each.power for each in terms])
    parts = [
        (points, jnp.where(here[:, None], frequencies, 0.0))
        for here, each in zip(chosen, terms, strict=True)
        for points, frequencies in each.parts
    ]
    amplitudes = [each.amplitude for each in terms]
    if all(each is None for each in amplitudes):
        return Waves(power, _merged(parts))
    return Waves(power, _merged(parts), _selected(chosen, [1.0 if each is None else each for each in amplitudes]))


def _selected(chosen: Sequence[Array], values: Sequence[Array | float]) -> Array:
    return functools.reduce(jnp.add, [jnp.where(here, v, 0.0) for here, v in zip(chosen, values, strict=True)])


def _merged(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Frequencies at the same points, added: one matrix product instead of several."""
    together: dict[int, Part] = {}
    for points, frequencies in parts:
        known = together.get(id(points))
        together[id(points)] = (points, frequencies if known is None else known[1] + frequencies)
    return tuple(together.values())
