"""Parameters of a model: where they start, which are learnt, and the bijection that keeps each in its domain."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
from jaxtyping import Array, Float
from scipy.special import expit, ndtri, softmax

from gpdsl.errors import GpdslError
from gpdsl.language import model as m
from gpdsl.language.model import interval
from gpdsl.program.kept import identity
from gpdsl.symbolic.density_mass import log_mass
from gpdsl.symbolic.laws import Law, dirichlet, law_of, lkj, log_density
from gpdsl.symbolic.translate import Ref, Translator, axis_key

# Bijections between unconstrained numbers and the domains of parameters.

SIMPLEX_ERROR = 1e-6
"""By how much the elements of a simplex that a user writes may fail to add up to 1; they are scaled."""


@dataclass(frozen=True)
class Bijector:
    """A map from unconstrained numbers onto a domain, its inverse (of NumPy or JAX arrays), and a test of membership.

    `vector` maps act along the last axis, whose length the inverse may shorten, or two of them. `units`: of `in_units`.
    """

    forward: Callable[[Array], Array]
    inverse: Callable[[Any], Any]
    contains: Callable[[np.ndarray], bool]
    domain: str
    vector: bool = False
    units: np.ndarray | None = None


def _of(values: Any) -> Any:
    """The library whose arrays these are."""
    return jnp if isinstance(values, jax.Array) else np


def _sigmoid(u: Any) -> Any:
    return jax.nn.sigmoid(u) if isinstance(u, jax.Array) else expit(u)


def _simplex(u: Any) -> Any:
    """Softmax of the numbers and a zero: the additive log-ratio map, a bijection of R^(k-1) onto the open simplex."""
    numpy, last = _of(u), jax.nn.softmax if isinstance(u, jax.Array) else softmax
    return last(numpy.concatenate([u, numpy.zeros_like(u[..., :1])], axis=-1), axis=-1)


def _ordered(u: Array) -> Array:
    """The first number, then positive steps exp(u)."""
    return _of(u).cumsum(_of(u).concatenate([u[..., :1], _of(u).exp(u[..., 1:])], axis=-1), axis=-1)


def _factor(u: Array) -> Array:
    """Rows on the unit sphere: tanh of each number is a share of what the entries before it leave of length 1.

    Lewandowski, Kurowicka and Joe (2009): the shares are partial correlations.
    """
    size = int((1 + np.sqrt(1 + 8 * u.shape[-1])) / 2)
    shares = jnp.zeros((*u.shape[:-1], size, size), u.dtype).at[..., *np.tril_indices(size, -1)].set(jnp.tanh(u))
    left = jnp.cumprod(jnp.sqrt(1.0 - shares**2), axis=-1)
    before = jnp.concatenate([jnp.ones_like(left[..., :1]), left[..., :-1]], axis=-1)
    return jnp.tril((shares + jnp.eye(size, dtype=u.dtype)) * before)


def _of_factor(c: Any) -> Any:
    """The numbers of a factor."""
    numpy, below = _of(c), np.tril_indices(c.shape[-1], -1)
    left = 1.0 - numpy.cumsum(c**2, axis=-1) + c**2
    return numpy.arctanh((c / numpy.sqrt(numpy.maximum(left, 1e-300)))[..., *below])


def _is_factor(c: np.ndarray) -> bool:
    lower = c.ndim > 1 and c.shape[-1] == c.shape[-2] and not np.any(np.triu(c, 1))
    lengths = np.abs(np.sum(c**2, axis=-1) - 1) <= SIMPLEX_ERROR
    return bool(lower and np.all(lengths) and np.all(np.diagonal(c, axis1=-2, axis2=-1) > 0))


def _is_simplex(c: np.ndarray) -> bool:
    return bool(np.all(c > 0) and np.all(np.abs(c.sum(axis=-1) - 1) <= SIMPLEX_ERROR))


BIJECTORS: dict[str, Bijector] = {
    "real": Bijector(lambda u: u, lambda c: c, lambda c: bool(np.all(np.isfinite(c))), "finite numbers"),
    "positive": Bijector(
        lambda u: _of(u).exp(u),
        lambda c: _of(c).log(c),
        lambda c: bool(np.all((c > 0) & np.isfinite(c))),
        "numbers above 0",
    ),
    "unit": Bijector(
        _sigmoid,
        lambda c: _of(c).log(c) - _of(c).log1p(-c),
        lambda c: bool(np.all((c > 0) & (c < 1))),
        "numbers strictly between 0 and 1",
    ),
    "simplex": Bijector(
        _simplex,
        lambda c: _of(c).log(c[..., :-1]) - _of(c).log(c[..., -1:]),
        _is_simplex,
        "positive numbers that add up to 1 along the last axis",
        vector=True,
    ),
    "correlation_factor": Bijector(
        _factor,
        _of_factor,
        _is_factor,
        "a lower triangular matrix with a positive diagonal and rows of length 1",
        vector=True,
    ),
    "ordered": Bijector(
        _ordered,
        lambda c: _of(c).concatenate([c[..., :1], _of(c).log(_of(c).diff(c, axis=-1))], axis=-1),
        lambda c: bool(np.all(np.isfinite(c)) and np.all(np.diff(c, axis=-1) > 0)),
        "finite numbers that increase along the last axis",
        vector=True,
    ),
}
"""The bijector of each constraint without bounds."""


def bijector(constraint: str, lower: float | None = None, upper: float | None = None) -> Bijector:
    """The bijector of a constraint, narrowed by bounds, which are never attained."""
    if lower is None and upper is None:
        return BIJECTORS[constraint]
    if constraint == "positive" and lower is None:
        lower = 0.0
    if lower is not None and upper is not None:
        return _between(lower, upper)
    return _above(lower) if lower is not None else _below(upper or 0.0)


def in_units(bijector: Bijector, units: np.ndarray) -> Bijector:
    """The same domain, from numbers that count units: an elementwise bijector of a scaled argument."""

    def of(u: Any) -> np.ndarray:
        return units.astype(u.dtype)

    scaled = replace(bijector, units=units, forward=lambda u: bijector.forward(u * of(u)))
    return replace(scaled, inverse=lambda c: bijector.inverse(c) / of(c))


def _between(lower: float, upper: float) -> Bijector:
    width = upper - lower
    return Bijector(
        lambda u: lower + width * _sigmoid(u),
        lambda c: _of(c).log(c - lower) - _of(c).log(upper - c),
        lambda c: bool(np.all((c > lower) & (c < upper))),
        f"numbers strictly between {lower:g} and {upper:g}",
    )


def _above(lower: float) -> Bijector:
    return Bijector(
        lambda u: lower + _of(u).exp(u),
        lambda c: _of(c).log(c - lower),
        lambda c: bool(np.all((c > lower) & np.isfinite(c))),
        f"numbers above {lower:g}",
    )


def _below(upper: float) -> Bijector:
    return Bijector(
        lambda u: upper - _of(u).exp(u),
        lambda c: _of(c).log(upper - c),
        lambda c: bool(np.all((c < upper) & np.isfinite(c))),
        f"numbers below {upper:g}",
    )


Unconstrained = Mapping[str, Float[Array, "..."]]


@dataclass(frozen=True)
class DataStarts:
    """What the data say of where learnt parameters start (`program.starts`).

    `values` are starts of all of them, in their domains, whether a value is given or not, and `units` their scales.
    `given` have a value, and `far` one that is far from the scale of the data. `levels` start where latents that
    explain nothing would put them, `random` are drawn, `lengths` are length-scales and periods, and `cycles` are starts
    of periods and frequencies by the cycles of the outputs (`program.cycles`), `others` values of these that are next
    best, and `steps` how far to go along these, on the real line, when a search begins.
    """

    values: Mapping[str, np.ndarray] = field(default_factory=dict)
    units: Mapping[str, np.ndarray] = field(default_factory=dict)
    given: frozenset[str] = frozenset()
    levels: tuple[str, ...] = ()
    far: tuple[str, ...] = ()
    random: tuple[str, ...] = ()
    lengths: tuple[str, ...] = ()
    cycles: Mapping[str, np.ndarray] = field(default_factory=dict)
    others: Mapping[str, np.ndarray] = field(default_factory=dict)
    steps: Mapping[str, float] = field(default_factory=dict)


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
                raise GpdslError(f"{what}: {_no_parameter(name, translator.declarations)}")
    values = {n: _start(translator, p, initial or {}) for n, p in declared.items()}
    held = {n for n, p in declared.items() if p.fixed} | set(fixed)
    return Parameters(
        bijectors={n: bijector(p.constraint, p.lower, p.upper) for n, p in declared.items()},
        initial={n: v for n, v in values.items() if n not in held},
        held={n: v for n, v in values.items() if n in held},
    )


def _no_parameter(name: str, declarations: m.Declarations) -> str:
    """What is said of a name that is no parameter's: of levels that are inferred, and of `ell=3`, what they are."""
    there = ", ".join(declarations.params) or "none"
    if name in declarations.latents or name in declarations.lets:
        return f"`{name}` is inferred with the latents, and has no value to start or be held at; parameters: {there}"
    alone = name.partition("=")[0].strip()
    if alone in declarations.params:
        return f"`{name}` has a value; name `{alone}` alone, and give the value by init (--init {name})"
    return f"the model has no parameter `{name}`; it has {there}"


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


# Priors of parameters: the log densities that make a point estimate a MAP estimate.
#
# A prior is a density of the parameter itself, not of the unconstrained number behind it: no Jacobian is added, so that
# the mode does not depend on how the parameter is mapped to the real line. It is that of the distribution between the
# bounds of the parameter: the log probability there, a number, is subtracted.


@dataclass(frozen=True)
class Prior:
    """Log density of one generic element along `axes`; for a simplex or a factor, of all its elements together.

    What is subtracted of it for bounds is the mean of the elements, where their distributions differ.
    """

    log_density: sp.Expr
    axes: tuple[str, ...]


def prior_of(translator: Translator, param: m.Param) -> Prior:
    """The prior of a parameter that declares one."""
    assert param.prior is not None
    keys = tuple(axis_key(a) for a in param.axes)
    if param.constraint == "simplex":
        return _dirichlet(translator, param, param.prior, keys)
    if param.constraint == "correlation_factor":
        return _lkj(translator, param, param.prior, keys)
    value = translator.symbol(Ref("param", param.name, keys), positive=param.positive)
    law = law_of(translator, param.prior, {}, keys)
    return Prior(log_density(law, value) - _log_inside(translator, param, law), keys)


def _log_inside(translator: Translator, param: m.Param, law: Law) -> sp.Expr:
    """Log probability between the bounds of the parameter, the mean over elements."""
    keys, (low, high), found = tuple(axis_key(a) for a in param.axes), interval(param), []
    alike = not any(leaf.free_symbols for leaf in law.leaves())
    for at in np.ndindex(() if alike else translator.shape(param.axes)):
        assert param.prior is not None
        place = dict(zip(keys, (each + 1 for each in at), strict=False))
        mass = log_mass(law if alike else law_of(translator, param.prior, place, keys), low, high)
        if not np.isfinite(mass):
            raise GpdslError(
                f"the prior of `{param.name}`, `{law.name}`, has no probability between {low:g} and {high:g}, where "
                "the parameter lies; choose a prior with values there, or other bounds"
            )
        found.append(mass)
    mean = float(np.mean(found))
    return sp.Float(mean) if mean else sp.S.Zero


def _dirichlet(translator: Translator, param: m.Param, call: m.DistributionCall, keys: tuple[str, ...]) -> Prior:
    """The elements of a simplex are written out: their density is joint."""
    concentration = call.arguments["concentration"]
    places = range(1, translator.size(param.axes[-1]) + 1)
    values = [translator.symbol(Ref("param", param.name, (*keys[:-1], i)), positive=True) for i in places]
    weights = [translator.scalar(concentration, {keys[-1]: i}) for i in places]
    return Prior(dirichlet(weights, values), keys[:-1])


def _lkj(translator: Translator, param: m.Param, call: m.DistributionCall, keys: tuple[str, ...]) -> Prior:
    """The diagonal of a factor is written out."""
    places = range(1, translator.size(param.axes[-1]) + 1)
    diagonal = [translator.symbol(Ref("param", param.name, (*keys[:-2], i, i)), positive=True) for i in places]
    return Prior(lkj(translator.scalar(call.arguments["eta"], {}), diagonal), keys[:-2])
