"""The log joint density over whitened values, for engines that know nothing of a model but that.

All values that observations read of the latents are functions of w ~ N(0, I): f = mean(x) + sqrt(scale) L w, K = L L',
latent by latent (SAVIGP eqs. 4 to 6, whitened, with the rows as inducing points).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
from jax.scipy.linalg import block_diag
from jaxtyping import Array, Float

from gpdsl.errors import GpdslError
from gpdsl.inference.ascent.lbfgs import unflat
from gpdsl.inference.bound import views, whitened_marginals
from gpdsl.inference.expected_log_likelihood import expected_log_likelihood, log_density
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.problem import Problem, Result, as_numpy
from gpdsl.kernels.functionals import Functionals
from gpdsl.program.cache import jit
from gpdsl.program.groups import Group
from gpdsl.program.joint import Marginals
from gpdsl.program.kept import Unique, reused, shapes_of
from gpdsl.program.parameters import DataStarts
from gpdsl.program.program import Program
from gpdsl.program.rows import Scope, row_count
from gpdsl.symbolic.expectations import latents_in
from gpdsl.symbolic.kinks import bends, jumps

Learnt = Mapping[str, Array]
"""Learnt parameters on the real line."""

AT_ONCE = 128
"""Places at which functions of parameters are compiled."""


@dataclass(frozen=True, eq=False)
class LogJoint:
    """log p(y | w, parameters) and log p(parameters) of a problem, as functions of arrays that JAX can trace.

    `learnt` are parameters on the real line, `problem.parameters` at the start; `white` are the values w of all
    latents; `data`, an argument of compiled functions and no constant in them, is the attribute of that name.
    """

    problem: Problem

    @property
    def data(self) -> Any:
        """The rows, and where the values are of the latents."""
        return self.problem.rows, self.problem.inducing

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """Latents of each group, and values of each."""
        return _sizes(self.problem.program, self.problem.inducing)

    @property
    def dimension(self) -> int:
        """How many values w has."""
        return sum(latents * size for latents, size in self.sizes)

    def start(self) -> Float[Array, " D"]:
        """The prior mean of w."""
        return jnp.zeros(self.dimension, self.problem.options.dtype)

    def latents(self, learnt: Learnt, white: Float[Array, " D"], data: Any) -> Float[Array, "rows columns"]:
        """What every row reads of the latents."""
        return self._given(self.problem.program.parameters.constrain(learnt), white, data).mean[0]

    def _given(self, parameters: Mapping[str, Array], white: Float[Array, " D"], data: Any) -> Marginals:
        """What w says of all that rows read: with inducing points some of it stays open."""
        (rows, inducing), problem = data, self.problem
        program = problem.program
        seen = views(program, parameters, inducing, rows, problem.layout.dense, problem.jitter)
        parts = [
            Whitened(mean, jnp.zeros((*mean.shape, 1), mean.dtype)) for mean in _split(_sizes(program, inducing), white)
        ]
        return whitened_marginals(seen, parts)

    def log_likelihood(self, learnt: Learnt, white: Float[Array, " D"], data: Any) -> Float[Array, ""]:
        """log p(all observations | w, parameters); of inducing values its mean over what these leave open.

        The latter is the bound of Hensman, Matthews, Filippone and Ghahramani (2015), eq. 4.
        """
        program, rows = self.problem.program, data[0]
        parameters = program.parameters.constrain(learnt)
        known = self._given(parameters, white, data)
        if not self.problem.choice.dense:
            alone = program.factorised or program  # given w, what stays open of one latent is independent of the others
            return jnp.sum(expected_log_likelihood(alone, parameters, rows, known))
        return jnp.sum(log_density(program, Scope(parameters, rows, known.mean[:, None]), (1, 1, row_count(rows))))

    def log_prior(self, learnt: Learnt) -> Float[Array, ""]:
        """Log density of the parameters that have priors; that of w is a standard normal's."""
        program = self.problem.program
        return jnp.asarray(program.log_prior(program.parameters.constrain(learnt)))

    def gaussian(
        self, learnt: Learnt, mean: Float[Array, " D"], root: Float[Array, "D D"], value: float, error: float = 0.0
    ) -> Result:
        """q(w) = N(mean, root root') at some parameters as a result, with the log evidence or its bound."""
        program, sizes = self.problem.program, _sizes(self.problem.program, self.problem.inducing)
        self._check("mean", np.shape(mean), (self.dimension,))
        self._check("root", np.shape(root), (self.dimension, self.dimension))
        parts = zip(program.groups, _split(sizes, mean), _split(sizes, root, len(mean)), strict=True)
        q = [Whitened(np.asarray(m), np.asarray(r if program.mixing else _own_root(g, r))) for g, m, r in parts]
        inducing = as_numpy(self.problem.inducing)
        return Result(as_numpy(dict(learnt)), inducing, q, np.ones(1), value, error)

    def apart(self, white: Float[Array, " D"]) -> list[Float[np.ndarray, "1 latents M"]]:
        """Values w of all latents, group by group."""
        return [np.asarray(part) for part in _split(_sizes(self.problem.program, self.problem.inducing), white)]

    def _check(self, what: str, found: tuple[int, ...], expected: tuple[int, ...]) -> None:
        if found != expected:
            engine = self.problem.options.engine
            raise GpdslError(f"engine = {engine}: the {what} has shape {found}, expected {expected}")


def together(posterior: Sequence[Whitened]) -> tuple[Float[Array, " D"], Float[Array, "D D"]]:
    """Mean and root of q over the values w of all latents, of groups whose latents depend on each other or do not."""
    mean = jnp.concatenate([jnp.ravel(jnp.asarray(q.mean[0])) for q in posterior])
    roots = [jnp.asarray(q.root[0]) for q in posterior]
    if all(root.shape[-1] == len(mean) for root in roots):
        return mean, jnp.concatenate([root.reshape(-1, len(mean)) for root in roots])
    own = (one if one.shape[0] == one.shape[1] else jnp.diag(one[:, 0]) for root in roots for one in root)
    return mean, block_diag(*own)


def kinked(program: Program) -> tuple[str, ...]:
    """Outputs whose log density may have kinks or jumps in the latents, where it has no curvature.

    Conditions on latents, absolute values, maxima and the like count even where their branches join smoothly.
    """
    return _outputs_where(bends, program)


def jumping(program: Program) -> tuple[str, ...]:
    """Outputs whose log density may jump in the latents: it has no derivative that tells."""
    return _outputs_where(lambda density, latents: bool(jumps(density, latents)), program)


def _outputs_where(holds: Callable[[sp.Expr, Sequence[sp.Symbol]], bool], program: Program) -> tuple[str, ...]:
    densities = [(each.outputs, each.log_density) for each in program.observations]
    found = [names for names, density in densities if holds(density, latents_in(program.translator, density))]
    return tuple(dict.fromkeys(name for names in found for name in names))


def _sizes(program: Program, inducing: Sequence[Functionals]) -> list[tuple[int, int]]:
    """Latents of each group, and values of each."""
    return [(group.size, len(points)) for group, points in zip(program.groups, inducing, strict=True)]


def _split(sizes: Sequence[tuple[int, int]], values: Array, *behind: int) -> list[Array]:
    """Values, or rows of a root, by group: [1, latents, M, *behind]."""
    ends = np.cumsum([latents * size for latents, size in sizes])[:-1]
    return [part.reshape(1, *size, *behind) for part, size in zip(jnp.split(values, ends), sizes, strict=True)]


def _own_root(group: Group, root: Float[Array, "1 latents M D"]) -> Float[Array, "1 latents M columns"]:
    """A root for each latent alone, of rows of a root of all values; standard deviations of row variables."""
    if group.per_row:
        return jnp.sqrt(jnp.sum(root**2, axis=-1, keepdims=True))
    return jnp.linalg.cholesky(root @ jnp.swapaxes(root, -1, -2))


# Densities of parameters on the real line.


def log_prior(program: Program, learnt: Learnt) -> Array:
    """Log density of the parameters that have priors, of their numbers on the real line."""
    return program.log_prior(program.parameters.constrain(dict(learnt))) + log_volume(program, learnt)


def log_volume(program: Program, learnt: Learnt) -> Array:
    """log |d theta / d u| of the parameters that have priors: densities of theta become those of u."""
    total = jnp.zeros(())
    for name in sorted(name for name in learnt if name in program.priors):
        if not (bijector := program.parameters.bijectors[name]).vector:  # element by element
            slope = jax.jvp(bijector.forward, (learnt[name],), (jnp.ones_like(learnt[name]),))[1]
            total += jnp.sum(jnp.log(jnp.abs(slope)))
            continue
        slopes = jax.jacfwd(partial(_measured, program, name))(learnt[name])
        total += jnp.linalg.slogdet(slopes.reshape(slopes.shape[0], -1))[1]
    return total


def _measured(program: Program, name: str, numbers: Array) -> Array:
    """What the prior of a parameter is a density of: its elements, all but the last of a simplex, as the others
    determine it, or those of the correlation matrix of a factor."""
    values = program.parameters.bijectors[name].forward(numbers)
    constraint = program.declarations.params[name].constraint
    if constraint != "correlation_factor":
        return jnp.ravel(values[..., :-1] if constraint == "simplex" else values)
    rows, columns = np.tril_indices(values.shape[-1], -1)
    return jnp.ravel((values @ jnp.swapaxes(values, -1, -2))[..., rows, columns])


def vectorised(
    program: Program, start: Learnt, of: Callable[[Program, Learnt], Array], how: Callable[..., Any], *key: str
) -> Callable[..., Any]:
    """`how`, as a gradient, of a function of learnt parameters in a vector, compiled once for all fits of a model."""
    unravel = partial(unflat, {name: jax.ShapeDtypeStruct(each.shape, each.dtype) for name, each in start.items()})

    def make(bare: Program) -> Callable[..., Any]:
        return jit(how(lambda vector: of(bare, unravel(vector))), brief=True)

    return of_model(program, make, of.__name__, how, key, shapes_of(dict(start)))


def of_model(program: Program, make: Callable[[Program], Callable[..., Any]], *key: Any) -> Callable[..., Any]:
    """What `make` makes of a program without its starts, once for all fits of a model: `key` tells others apart."""

    def bare() -> Callable[..., Any]:
        unknown = {name: np.full_like(value, np.nan) for name, value in program.parameters.initial.items()}
        return make(replace(program, parameters=replace(program.parameters, initial=unknown, data=DataStarts())))

    try:
        return reused((of_model, *key, program.identity), bare)  # which knows of starts their shapes alone
    except Unique:
        return bare()


def at_places(compiled: Callable[..., Any], points: Float[np.ndarray, "n d"]) -> np.ndarray:
    """What a program of many places says of each, so many at a time that it is compiled once."""
    count = max(-(-len(points) // AT_ONCE), 1)
    padded = np.resize(points, (count * AT_ONCE, points.shape[1]))
    parts = [np.asarray(compiled(padded[at : at + AT_ONCE]), float) for at in range(0, len(padded), AT_ONCE)]
    return np.concatenate(parts)[: len(points)]
