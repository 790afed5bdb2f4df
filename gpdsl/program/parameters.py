"""Parameters of a model: where they start, which are learnt, and the bijection that keeps each in its domain."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtri

from gpdsl.errors import GpdslError
from gpdsl.language import model as m
from gpdsl.program.bijectors import Bijector, bijector
from gpdsl.program.reuse import identity
from gpdsl.symbolic.translate import Translator

Unconstrained = Mapping[str, Float[Array, "..."]]


@dataclass(frozen=True)
class DataStarts:
    """What the data say of where learnt parameters start (`program.starts`).

    `values` are starts of all of them, in their domains, whether a value is given or not, and `units` their scales.
    `given` have a value, and `far` one that is far from the scale of the data. `levels` start where latents that
    explain nothing would put them, `random` are drawn, `lengths` are length-scales and periods.
    """

    values: Mapping[str, np.ndarray] = field(default_factory=dict)
    units: Mapping[str, np.ndarray] = field(default_factory=dict)
    given: frozenset[str] = frozenset()
    levels: tuple[str, ...] = ()
    far: tuple[str, ...] = ()
    random: tuple[str, ...] = ()
    lengths: tuple[str, ...] = ()


@dataclass(frozen=True)
class Parameters:
    """All parameters of a program: `learnt` move, `held` keep their (constrained) values."""

    bijectors: Mapping[str, Bijector]
    initial: Mapping[str, np.ndarray]
    held: Mapping[str, np.ndarray]
    data: DataStarts = field(default_factory=DataStarts)

    @property
    def identity(self) -> Hashable:
        """What programs depend on, the declarations being the same: names, shapes, units, and values that are held."""
        shapes = {n: v.shape for n, v in self.initial.items()}
        return identity((shapes, {n: b.units for n, b in self.bijectors.items()}, self.held))

    def without_starts(self) -> Parameters:
        """The same where programs depend on them; the values to start from are no numbers."""
        unknown = {n: np.full_like(v, np.nan) for n, v in self.initial.items()}
        return replace(self, initial=unknown, data=DataStarts())

    def unconstrained(self) -> dict[str, np.ndarray]:
        """Starting point of the learnt parameters on the real line."""
        return {n: self.bijectors[n].inverse(v) for n, v in self.initial.items()}

    def learnt(self, values: Mapping[str, Float[Array, "..."]]) -> dict[str, Array]:
        """Learnt parameters on the real line, from values of all in their domains."""
        return {n: self.bijectors[n].inverse(values[n]) for n in self.initial}

    def constrain(self, learnt: Unconstrained) -> dict[str, Array]:
        """Values of all parameters in their domains, held ones included."""
        values = {n: self.bijectors[n].forward(jnp.asarray(u)) for n, u in learnt.items()}
        dtype = next(iter(values.values())).dtype if values else None
        return values | {n: jnp.asarray(v, dtype) for n, v in self.held.items()}


def make_parameters(
    translator: Translator, fixed: Collection[str] = (), initial: Mapping[str, object] | None = None
) -> Parameters:
    """Parameters with their declared shapes, the user's `init` values and `fixed` names applied.

    Raises GpdslError for an unknown name, a value outside the domain, or one of the wrong shape.
    """
    declared = translator.declarations.params
    for what, names in (("fixed", fixed), ("init", initial or {})):
        for name in names:
            if name not in declared:
                raise GpdslError(f"{what}: the model has no parameter `{name}`; it has {', '.join(declared) or 'none'}")
    values = {n: _start(translator, p, initial or {}) for n, p in declared.items()}
    held = {n for n, p in declared.items() if p.fixed} | set(fixed)
    return Parameters(
        bijectors={n: bijector(p.constraint, p.lower, p.upper) for n, p in declared.items()},
        initial={n: v for n, v in values.items() if n not in held},
        held={n: v for n, v in values.items() if n in held},
    )


def _start(translator: Translator, param: m.Param, initial: Mapping[str, object]) -> np.ndarray:
    shape, domain = translator.shape(param.axes), bijector(param.constraint, param.lower, param.upper)
    start = initial.get(param.name, param.initial)
    if domain.vector and param.name not in initial and not isinstance(param.initial, tuple):
        start = _unwritten(param.constraint, shape)
    try:
        given = np.asarray(start, dtype=float)
    except (TypeError, ValueError) as error:
        raise GpdslError(f"init: parameter `{param.name}`: expected numbers, got {start!r}") from error
    if given.shape != shape and (given.ndim or domain.vector):
        raise GpdslError(
            f"parameter `{param.name}`: expected {'' if domain.vector else 'a number or '}an array of shape {shape}, "
            f"got {f'shape {given.shape}' if given.ndim else 'one number'}"
        )
    value = np.broadcast_to(given, shape).astype(float)
    if not domain.contains(value):
        raise GpdslError(f"parameter `{param.name}` is {param.constraint}: expected {domain.domain}, got {value}")
    return value / value.sum(axis=-1, keepdims=True) if param.constraint == "simplex" else value


def _unwritten(constraint: str, shape: tuple[int, ...]) -> np.ndarray:
    """Where a simplex, ordered values or a factor start when the model does not say: nothing is preferred.

    Equal elements; no correlations; or the quantiles that cut a standard normal into equally probable parts.
    """
    count = shape[-1]
    if constraint == "simplex":
        return np.full(shape, 1.0 / count)
    if constraint == "correlation_factor":
        return np.broadcast_to(np.eye(count), shape)
    return np.broadcast_to(ndtri(np.arange(1, count + 1) / (count + 1)), shape)
