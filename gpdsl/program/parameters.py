"""Parameters of a model: where they start, which are learnt, and the bijection that keeps each in its domain."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.errors import GpdslError
from gpdsl.language import model as m
from gpdsl.symbolic.translate import Translator


@dataclass(frozen=True)
class Bijector:
    """A map from the real line onto a parameter's domain, its inverse, and a test of membership."""

    forward: Callable[[Array], Array]
    inverse: Callable[[np.ndarray], np.ndarray]
    contains: Callable[[np.ndarray], bool]
    domain: str


BIJECTORS: dict[str, Bijector] = {
    "real": Bijector(lambda u: u, lambda c: c, lambda c: bool(np.all(np.isfinite(c))), "finite numbers"),
    "positive": Bijector(jnp.exp, np.log, lambda c: bool(np.all((c > 0) & np.isfinite(c))), "numbers above 0"),
    "unit": Bijector(
        jax.nn.sigmoid,
        lambda c: np.log(c) - np.log1p(-c),
        lambda c: bool(np.all((c > 0) & (c < 1))),
        "numbers strictly between 0 and 1",
    ),
}

Unconstrained = Mapping[str, Float[Array, "..."]]


@dataclass(frozen=True)
class Parameters:
    """All parameters of a program: `learnt` move, `held` keep their (constrained) values."""

    constraints: Mapping[str, str]
    initial: Mapping[str, np.ndarray]
    held: Mapping[str, np.ndarray]

    def unconstrained(self) -> dict[str, np.ndarray]:
        """Starting point of the learnt parameters on the real line."""
        return {n: BIJECTORS[self.constraints[n]].inverse(v) for n, v in self.initial.items()}

    def constrain(self, learnt: Unconstrained) -> dict[str, Array]:
        """Values of all parameters in their domains, held ones included."""
        values = {n: BIJECTORS[self.constraints[n]].forward(jnp.asarray(u)) for n, u in learnt.items()}
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
    values = {n: _start(translator, p, (initial or {}).get(n, p.initial)) for n, p in declared.items()}
    held = {n for n, p in declared.items() if p.fixed} | set(fixed)
    return Parameters(
        constraints={n: p.constraint for n, p in declared.items()},
        initial={n: v for n, v in values.items() if n not in held},
        held={n: v for n, v in values.items() if n in held},
    )


def _start(translator: Translator, param: m.Param, start: object) -> np.ndarray:
    shape = translator.shape(param.axes)
    try:
        given = np.asarray(start, dtype=float)
    except (TypeError, ValueError) as error:
        raise GpdslError(f"init: parameter `{param.name}`: expected numbers, got {start!r}") from error
    if given.ndim and given.shape != shape:
        raise GpdslError(
            f"parameter `{param.name}`: expected a number or an array of shape {shape}, got shape {given.shape}"
        )
    value = np.broadcast_to(given, shape).astype(float)
    bijector = BIJECTORS[param.constraint]
    if not bijector.contains(value):
        raise GpdslError(f"parameter `{param.name}` is {param.constraint}: expected {bijector.domain}, got {value}")
    return value
