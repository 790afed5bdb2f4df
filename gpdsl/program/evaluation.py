"""The rows' evaluation functionals of a group of latents, and the prior means of what they read."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
from jaxtyping import Array, Float

from gpdsl.errors import GpdslError
from gpdsl.kernels.combined import FINE
from gpdsl.kernels.covariance import covariance
from gpdsl.kernels.functionals import Combination, Derivatives, Elementary, Functionals, Integrals, Values, stacked
from gpdsl.kernels.numerics import cholesky
from gpdsl.language import model as m
from gpdsl.program.groups import Group, Member, kernel_values
from gpdsl.program.program import Program
from gpdsl.program.rows import RowEvaluator, Rows, Scope, row_count
from gpdsl.symbolic.readings import Reading, level_of, split_levels
from gpdsl.symbolic.translate import Environment, Ref, Translator, axis_key


def stack_inputs(group_inputs: Sequence[str], rows: Rows) -> Float[Array, "rows D"]:
    """The arguments of a latent, side by side as columns."""
    columns = [
        rows.inputs[n].reshape(rows.inputs[n].shape[0], -1)
        if n in rows.inputs
        else np.full((row_count(rows), 1), float(n))  # a number in every row
        for n in group_inputs
    ]
    on_host = all(isinstance(each, np.ndarray) for each in columns)
    return (np if on_host else jnp).concatenate(columns, axis=1)  # type: ignore[no-any-return]


def functionals_at(group: Group, readings: Sequence[Reading], rows: Rows) -> Functionals:
    """What the readings look at in each row, one reading after the other."""
    known: dict[m.Functional, Elementary] = {}
    for functional in dict.fromkeys(functional for reading in readings for functional, _ in reading):
        names = functional.at or group.inputs
        if functional.integrated:
            known[functional] = Integrals(*ends_of(functional, rows))
        elif not functional.derivative:
            known[functional] = Values(stack_inputs(names, rows))
        else:
            starts = (0, *itertools.accumulate(stack_inputs([name], rows).shape[1] for name in names))
            places = tuple(starts[each.argument] + _column(each) - 1 for each in functional.derivative)
            known[functional] = Derivatives(stack_inputs(names, rows), places)
    found: list[Elementary | Combination] = []
    for reading in readings:
        parts, weights = tuple(known[functional] for functional, _ in reading), tuple(weight for _, weight in reading)
        found.append(parts[0] if weights == (1.0,) else Combination(parts, weights))
    return stacked(tuple(found))


def ends_of(functional: m.Functional, rows: Rows) -> list[Float[Array, "rows 1"]]:
    """Both ends of the intervals that a functional integrates over: inputs, or a number in every row."""
    return [stack_inputs([end], rows) for end in functional.at]


def _column(direction: m.Direction) -> int:
    assert isinstance(direction.column, int)  # the translator leaves no index in it
    return direction.column


def prior_means(
    evaluator: RowEvaluator,
    groups: Sequence[Group],
    parameters: Mapping[str, Array],
    rows: Rows,
    count: int,
    latents: Float[Array, "rows latents"] | None = None,
) -> Float[Array, "rows columns"]:
    """Means of everything that is read of all latents at the rows; `latents` are values of those that means read."""
    scope, parts = Scope(parameters, rows, latents), []
    for group in groups:
        for reading, member in itertools.product(group.readings.all, group.members):
            means = [(weight, _mean(evaluator, member, each, scope, count)) for each, weight in reading]
            parts.append(functools.reduce(operator.add, [mean if w == 1 else w * mean for w, mean in means]))
    return jnp.concatenate(parts, axis=1) if parts else jnp.zeros((count, 0))


def _mean(
    evaluator: RowEvaluator, member: Member, functional: m.Functional, scope: Scope, count: int
) -> Float[Array, "rows elements"]:
    """Mean of one functional of every element of a latent: the mean function is differentiated symbolically."""
    translator, axes = evaluator.translator, member.latent.axes
    keys, shape = tuple(axis_key(a) for a in axes), translator.shape(axes)
    if functional.integrated:
        return _integrated_mean(evaluator, member, functional, scope, count)
    if not functional.derivative:
        value = jnp.asarray(evaluator(mean_formula(translator, member, functional, {}), scope, keys))
        return jnp.broadcast_to(value, (count, *shape)).reshape(count, -1)
    elements = itertools.product(*[range(1, size + 1) for size in shape])
    formulas = [mean_formula(translator, member, functional, dict(zip(keys, each, strict=True))) for each in elements]
    return jnp.stack([jnp.broadcast_to(jnp.asarray(evaluator(e, scope)), (count,)) for e in formulas], axis=1)


def _integrated_mean(
    evaluator: RowEvaluator, member: Member, functional: m.Functional, scope: Scope, count: int
) -> Float[Array, "rows elements"]:
    """The integrals of the mean functions over the intervals of the rows: exact for constants and polynomials."""
    lower, upper = ends_of(functional, scope.rows)
    (own,) = member.latent.arguments

    def at(share: Array) -> Array:
        x = (0.5 * (lower + upper) + share * (upper - lower))[:, 0]
        rows = replace(scope.rows, inputs={**scope.rows.inputs, own: x})
        return _mean(evaluator, member, m.VALUE, replace(scope, rows=rows), count)

    shares, weights = (jnp.asarray(each, lower.dtype) for each in FINE)
    return (upper - lower) * jnp.tensordot(weights, jax.vmap(at)(shares), axes=1)


def mean_formula(translator: Translator, member: Member, functional: m.Functional, env: Environment) -> sp.Expr:
    """The mean of a functional of one element of a latent, or of a generic one."""
    latent = member.latent
    at_level = _levels(translator, latent, functional) if latent.levels else {}
    formula = translator.scalar(latent.mean, {**env, **at_level})
    for direction in functional.derivative:
        name = latent.arguments[direction.argument]
        position = (_column(direction),) if translator.declarations.inputs[name].axes else ()
        formula = sp.diff(formula, _input(translator, name, position))
    moved = {}
    for own, other in zip(latent.arguments, functional.at or latent.arguments, strict=True):
        for symbol in formula.free_symbols if own in translator.declarations.inputs else ():
            ref = translator.references.get(symbol)
            if ref is not None and ref.kind == "input" and ref.name == own:
                moved[symbol] = _input(translator, other, ref.positions)
    return formula.xreplace(moved)


def _levels(translator: Translator, latent: m.Latent, functional: m.Functional) -> Environment:
    """Where a functional looks along the indices among the arguments of a latent."""
    _, levels = split_levels(translator.declarations, latent.name, functional.at)
    named = zip(map(axis_key, latent.levels), levels, strict=False)
    return {key: int(level) if m.is_number(level) else level_of(level) for key, level in named}


def _input(translator: Translator, name: str, positions: tuple[int | str, ...]) -> sp.Symbol:
    positive = translator.declarations.inputs[name].kind == "positive"
    return translator.symbol(Ref("input", name, positions), positive=positive)


# Fields: latents over points that are the same in every row, and their values from whitened ones.

NO_ROWS = Rows({}, {}, {})

Roots = list[tuple[Float[Array, "latents"], Float[Array, "factors G G"]]]
"""Of each group the standard deviations of its processes, and roots of its covariances at unit scale."""


def refuse_beside_fields(declarations: m.Declarations) -> None:
    """Raises GpdslError for a model that has fields and other latents or row variables."""
    others = [name for name, latent in declarations.latents.items() if latent.over is None] + [*declarations.rows]
    if declarations.fields and others:
        field, other = declarations.fields[0].name, others[0]
        raise GpdslError(
            f"`{field}` is a field, the same in every row, and `{other}` has a value in each row: a model with both "
            "can be checked, but its inference is not implemented yet.\n"
            f"  help: make `{other}` a field too, over the points at which it is needed"
        )


def points_of(declarations: m.Declarations, group: Group) -> Float[np.ndarray, "G D"]:
    """The points of a group of fields, the columns of all arguments side by side."""
    tables = [np.asarray(declarations.consts[name].values, float) for name in group.inputs]
    return np.concatenate([table.reshape(len(table), -1) for table in tables], axis=1)


def roots(program: Program, parameters: Mapping[str, Array], jitter: Array | float) -> Roots:
    """Standard deviations and Cholesky factors of all fields at their points."""
    found: Roots = []
    for group in program.groups:
        points = jnp.asarray(points_of(program.declarations, group))
        values = kernel_values(program.evaluator, group, parameters)
        at = Values(points.astype(values.scale.dtype))
        factors = [
            cholesky(covariance(group.form, [a[k] for a in values.arguments], at), jitter) for k in range(group.factors)
        ]
        found.append((jnp.sqrt(values.scale), jnp.stack(factors)))
    return found


def loadings(group: Group, root: tuple[Array, Array], white: Float[Array, "columns *rest"]) -> Array:
    """What whitened values of a group of fields come to around the prior mean, [columns, *rest]."""
    sd, factor = root
    apart = white.reshape(group.size, group.points, -1)
    spread = jnp.einsum("gab,jbr->jar" if factor.shape[0] == 1 else "jab,jbr->jar", factor, apart)
    return (sd[:, None, None] * spread).reshape(white.shape)


def deviations(program: Program, factors: Roots, white: Float[Array, "columns *rest"]) -> Float[Array, "columns *rest"]:
    """Values of all fields around their prior means, from whitened ones, in the columns of marginals."""
    pairs = zip(program.groups, factors, strict=True)
    return jnp.concatenate([loadings(g, root, white[g.start : g.stop]) for g, root in pairs])


def field_means(program: Program, parameters: Mapping[str, Array]) -> Float[Array, "columns"]:
    """Prior means of all fields at their points."""
    translator, scope, parts = program.translator, Scope(parameters, NO_ROWS), []
    for group in program.groups:
        for member in group.members:
            axes = member.latent.values
            value = jnp.asarray(
                program.evaluator(translator.scalar(member.latent.mean), scope, tuple(map(axis_key, axes)))
            )
            parts.append(jnp.broadcast_to(value, translator.shape(axes)).ravel())
    return jnp.concatenate(parts)
