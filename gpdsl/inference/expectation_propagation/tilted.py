"""Moments of the tilted distributions p(y_n|f_n)^alpha N(f_n | a_n, V_n) / Z_n, row by row.

All that expectation propagation needs of a likelihood is log Z_n and its first two derivatives in the cavity's mean
a_n. Z_n is closed form where the mathematics allows (`symbolic.closed`), a sum over a lattice for one or two latents
that a row reads together, or over quasi-random points for more. The nodes f = m_n + R_n z lie about the current
marginals N(m_n, R_n R_n'), which the tilted distributions come close to; for fixed nodes the derivatives are exactly
those of the sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from gpdsl.inference.expectation_propagation import lattices
from gpdsl.inference.expected_log_likelihood import row_sum
from gpdsl.inference.opaque.surrogate import Surrogate
from gpdsl.inference.sampling import base_normals
from gpdsl.program.joint import Marginals, basis_columns, moment_values
from gpdsl.program.program import Program
from gpdsl.program.quadrature import integral_of
from gpdsl.program.rows import Rows, Scope
from gpdsl.symbolic.arguments import Integrand, integrand_of
from gpdsl.symbolic.closed import POWER, tilted_normaliser
from gpdsl.symbolic.expectations import latents_in
from gpdsl.symbolic.gaussian import joint_moments_of, moments_of
from gpdsl.symbolic.terms import ObservationTerms
from gpdsl.symbolic.translate import axis_key

RIDGE = 1e-9
"""Added to the covariance of a row's points, of which there may be fewer than latents."""


@dataclass(frozen=True)
class Tilted:
    """How the tilted distributions of a program are integrated: `closed`, `quadrature` or `sampled`, and why.

    `separate` says that every factor of the likelihood reads one latent, so that each has a tilted distribution of its
    own; `formulas` are the closed forms, one per observation; `points` are standard normals to sample with,
    `surrogate` stands for opaque functions, and carries along all points at which these are known.
    """

    method: str
    reason: str
    power: float
    separate: bool
    formulas: tuple[sp.Expr, ...] = ()
    points: Float[Array, "S 1 rows latents"] | None = None
    surrogate: Surrogate | None = None
    along: Integrand | None = None
    """What the only factor of a row is a function of, where it has one argument."""
    fine: bool = False
    """Whether a quadrature over one argument tells steep places apart, or one over two has more nodes."""
    finest: bool = False
    """Whether one over two has yet more, which tells how wrong the fine one is."""

    @property
    def one(self) -> bool:
        """Whether integrals are over one argument each."""
        return self.separate or self.along is not None

    @property
    def refinable(self) -> bool:
        """Whether it can be `fine`, and is not."""
        return self.method == "quadrature" and not self.fine

    def using(self, points: Float[Array, "S 1 rows latents"] | None, surrogate: Surrogate | None = None) -> Tilted:
        """The same with base points, where moments are sampled, and surrogates, where functions are opaque."""
        return replace(self, points=points, surrogate=surrogate)

    def normals(self, key: Array, samples: int, rows: int, latents: int) -> Float[Array, "S 1 rows latents"] | None:
        """Base points of the `sampled` method, the same at every call with one key.

        Each row's are symmetric and have the identity as covariance, so that a tilted distribution that is q itself
        has exactly q's moments. Without it q shrinks, by what points vary too little, from sweep to sweep.
        """
        if self.method != "sampled":
            return None
        half = base_normals(key, -(-samples // 2), 1, rows, latents)
        covariance = jnp.einsum("sknj,sknl->knjl", half, half) / half.shape[0]
        root = jnp.linalg.cholesky(covariance + RIDGE * jnp.eye(latents, dtype=half.dtype))
        even = solve_triangular(root, jnp.moveaxis(half, 0, -1), lower=True)
        even = jnp.moveaxis(even, -1, 0)
        return jnp.concatenate([even, -even])


def choose_tilted(program: Program, power: float, expectations: str) -> Tilted:
    """The method for a program's likelihood at this power."""
    separate = not program.coupled and _separate(program)
    if program.calls:
        method = "quadrature" if len(basis_columns(program)) <= 2 else "sampled"
        return Tilted(method, "an opaque function is known at the points evaluated so far", power, False)
    if expectations == "sampled":
        return Tilted("sampled", "as asked", power, False)
    if expectations == "auto" and not _overlapping(program):
        found = [_closed_form(program, each, power) for each in program.observations]
        if all(each is not None for each in found):
            formulas = tuple(each for each in found if each is not None)
            return Tilted(
                "closed", "the normaliser of the tilted distribution has a formula", power, separate, formulas
            )
    if separate:
        return Tilted("quadrature", "every factor reads one latent", power, True)
    along = _along(program) if expectations == "auto" else None
    if along is not None:
        return Tilted("quadrature", "a row reads one linear function of latents", power, False, along=along)
    if len(basis_columns(program)) <= 2 and expectations != "closed":
        return Tilted("quadrature", "a row reads two latents", power, False)
    return Tilted("sampled", f"a row reads {len(basis_columns(program))} latents together", power, False)


def _closed_form(program: Program, observation: ObservationTerms, power: float) -> sp.Expr | None:
    latents = tuple({s: None for term in observation.terms for s in term.latents})
    moments = joint_moments_of(latents) if program.coupled else moments_of(latents)
    found = tilted_normaliser(observation.log_density, latents, moments, power)
    integrand = integrand_of(program.translator, observation.log_density, latents)
    if found is not None or not integrand.reduced or len(integrand.arguments) > 1:
        return found
    ((symbol, meaning),) = integrand.arguments
    slopes = {f: sp.diff(meaning, f) for f in latents}
    spread = sp.Add(*[slopes[f] * slopes[g] * moments.between(f, g) for f in latents for g in latents])
    own = moments_of([symbol])
    found = tilted_normaliser(integrand.expression, [symbol], own, power)
    known = {own.mean[symbol]: meaning.xreplace(dict(moments.mean)), own.variance[symbol]: spread}
    return None if found is None else found.xreplace(known)


def _along(program: Program) -> Integrand | None:
    """The log density of a row where that is a function of one argument."""
    if len(program.observations) != 1 or program.observations[0].axes:
        return None
    density = program.observations[0].log_density
    found = integrand_of(program.translator, density, latents_in(program.translator, density))
    plain = all(isinstance(p, int) for f in found.latents for p in program.translator.references[f].positions)
    return found if plain and len(found.arguments) == 1 else None


def _separate(program: Program) -> bool:
    """Whether every term reads a single value of a single latent, and none of a sum of values."""
    single = all(len(term.latents) <= 1 for o in program.observations for term in o.terms)
    return single and not any(group.readings.sums for group in program.groups)


def _overlapping(program: Program) -> bool:
    """Whether two factors of a row read the same latent, which couples their tilted distributions."""
    seen: list[int] = []
    for observation in program.observations:
        latents = {s for term in observation.terms for s in term.latents}
        declared = program.declarations.outputs[observation.outputs[0]].axes
        sizes = {axis_key(axis): program.translator.size(axis) for axis in declared}
        shape = tuple(sizes[key] for key in observation.axes)
        read = [np.broadcast_to(lattices.columns_read(program, s, observation.axes), shape).ravel() for s in latents]
        for element in np.stack(read, axis=1) if read else []:
            seen += sorted(set(element.tolist()))
    return len(seen) != len(set(seen))


def normaliser(
    tilted: Tilted,
    program: Program,
    parameters: Mapping[str, Array],
    rows: Rows,
    q: Marginals,
    cavity: Marginals,
) -> lattices.Normaliser:
    """log Z_n as a function of the cavities; nodes are placed for the current marginals `q` and cavities."""
    scope = Scope(parameters, rows)
    if tilted.method == "closed":
        return lattices.Formula(lambda cavity: _closed(tilted, program, scope, cavity), tilted.separate)
    q, cavity = jax.lax.stop_gradient((q, cavity))
    each = lattices.each_steep_latent if tilted.fine else lattices.each_latent
    if tilted.separate:
        return each(tilted.power, partial(lattices.by_latent, program, rows), parameters, q, cavity)
    if tilted.along is not None:
        law = partial(_law_along, program, tilted.along, scope)
        density = partial(lattices.by_argument, program, tilted.along, rows)
        inner = each(tilted.power, density, parameters, *jax.lax.stop_gradient((law(q), law(cavity))))
        return lattices.Along(inner, law, _direction(program, tilted.along, scope, q))
    if tilted.method == "quadrature":
        count = lattices.FINEST_LATTICE if tilted.finest else lattices.FINER_LATTICE if tilted.fine else None
        z, log_weights = lattices.plane(program, q, cavity, count)
    else:
        assert tilted.points is not None
        z, basis = tilted.points, basis_columns(program)
        squares = jnp.sum(z[:, 0][..., basis] ** 2, axis=-1)
        log_weights = 0.5 * (squares + len(basis) * lattices.LOG_2PI) - np.log(z.shape[0])
    at, surrogate = q.at(program, z), tilted.surrogate
    if surrogate is None:
        return lattices.together(tilted.power, program, Scope(parameters, rows, at), q, z, log_weights)
    said = Scope(parameters, rows, at, surrogate.values(program, parameters, at))
    whole = lattices.together(tilted.power, program, said, q, z, log_weights)
    return lattices.corrected(tilted.power, program, scope, surrogate, whole)


def _law_along(program: Program, integrand: Integrand, scope: Scope, q: Marginals) -> Marginals:
    """Mean and variance of the only argument."""
    law = integral_of(program, integrand, q, (), scope).law
    return Marginals(law.means[0][..., None], law.root[0][0][..., None] ** 2)


def _direction(program: Program, integrand: Integrand, scope: Scope, q: Marginals) -> Float[Array, "rows latents"]:
    """The slopes of the only argument in the latents."""
    ((_, meaning),), found = integrand.arguments, jnp.zeros_like(q.mean[0])
    for f in integrand.latents:
        found = found.at[:, program.evaluator.column(f)].set(program.evaluator(sp.diff(meaning, f), scope))
    return found


def _closed(tilted: Tilted, program: Program, scope: Scope, cavity: Marginals) -> Float[Array, "rows"]:
    total: Array = jnp.zeros(cavity.mean.shape[:2], cavity.mean.dtype)
    for observation, formula in zip(program.observations, tilted.formulas, strict=True):
        latents = tuple({s: None for term in observation.terms for s in term.latents})
        given = moment_values(program, latents, cavity, observation.axes, formula.free_symbols)
        given[POWER] = jnp.asarray(tilted.power, cavity.mean.dtype)
        values = program.evaluator(formula, scope, observation.axes, given)
        total = total + row_sum(scope.rows, observation, values, total.shape)
    return total[0]


def nodes_of(tilted: Tilted, program: Program, samples: int) -> int:
    """How often the likelihood of a row is evaluated in one sweep."""
    if tilted.method == "closed":
        return 1
    latents = 1 if tilted.one else len(basis_columns(program))
    return lattices.LATTICE[latents] ** latents if tilted.method == "quadrature" else samples
