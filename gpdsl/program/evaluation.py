"""The rows' evaluation functionals of a group of latents, and the prior means of what they read."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import sympy as sp
from jaxtyping import Array, Float

from gpdsl.kernels.functionals import Combination, Derivatives, Elementary, Functionals, Values, stacked
from gpdsl.language import model as m
from gpdsl.program.groups import Group, Member
from gpdsl.program.rows import RowEvaluator, Rows, Scope
from gpdsl.symbolic.readings import Reading
from gpdsl.symbolic.translate import Environment, Ref, Translator, axis_key


def stack_inputs(group_inputs: Sequence[str], rows: Rows) -> Float[Array, "rows D"]:
    """The arguments of a latent, side by side as columns."""
    return jnp.concatenate([rows.inputs[n].reshape(rows.inputs[n].shape[0], -1) for n in group_inputs], axis=1)


def functionals_at(group: Group, readings: Sequence[Reading], rows: Rows) -> Functionals:
    """What the readings look at in each row, one reading after the other."""
    known = {functional: _elementary(group, functional, rows) for reading in readings for functional, _ in reading}
    return stacked(tuple(_combination(each, known) for each in readings))


def _combination(reading: Reading, known: Mapping[m.Functional, Elementary]) -> Elementary | Combination:
    parts = tuple(known[functional] for functional, _ in reading)
    weights = tuple(weight for _, weight in reading)
    return parts[0] if weights == (1.0,) else Combination(parts, weights)


def _elementary(group: Group, functional: m.Functional, rows: Rows) -> Elementary:
    names = functional.at or group.inputs
    points = stack_inputs(names, rows)
    if not functional.derivative:
        return Values(points)
    widths = [rows.inputs[name].reshape(rows.inputs[name].shape[0], -1).shape[1] for name in names]
    starts = (0, *itertools.accumulate(widths))
    return Derivatives(points, tuple(starts[d.argument] + _column(d) - 1 for d in functional.derivative))


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
            total: Array | float = 0.0
            for functional, weight in reading:
                total = total + weight * _mean(evaluator, member, functional, scope, count)
            parts.append(total)
    return jnp.concatenate(parts, axis=1) if parts else jnp.zeros((count, 0))


def _mean(
    evaluator: RowEvaluator, member: Member, functional: m.Functional, scope: Scope, count: int
) -> Float[Array, "rows elements"]:
    """Mean of one functional of every element of a latent: the mean function is differentiated symbolically."""
    translator, axes = evaluator.translator, member.latent.axes
    keys, shape = tuple(axis_key(a) for a in axes), translator.shape(axes)
    if not functional.derivative:
        value = jnp.asarray(evaluator(mean_formula(translator, member, functional, {}), scope, keys))
        return jnp.broadcast_to(value, (count, *shape)).reshape(count, -1)
    elements = itertools.product(*[range(1, size + 1) for size in shape])
    formulas = [mean_formula(translator, member, functional, dict(zip(keys, each, strict=True))) for each in elements]
    return jnp.stack([jnp.broadcast_to(jnp.asarray(evaluator(e, scope)), (count,)) for e in formulas], axis=1)


def mean_formula(translator: Translator, member: Member, functional: m.Functional, env: Environment) -> sp.Expr:
    """The mean of a functional of one element of a latent, or of a generic one."""
    latent = member.latent
    formula = translator.scalar(latent.mean, env)
    for direction in functional.derivative:
        name = latent.arguments[direction.argument]
        position = (_column(direction),) if translator.declarations.inputs[name].axes else ()
        formula = sp.diff(formula, _input(translator, name, position))
    moved = {}
    for own, other in zip(latent.arguments, functional.at or latent.arguments, strict=True):
        for symbol in formula.free_symbols:
            ref = translator.references.get(symbol)
            if ref is not None and ref.kind == "input" and ref.name == own:
                moved[symbol] = _input(translator, other, ref.positions)
    return formula.xreplace(moved)


def _input(translator: Translator, name: str, positions: tuple[int | str, ...]) -> sp.Symbol:
    positive = translator.declarations.inputs[name].kind == "positive"
    return translator.symbol(Ref("input", name, positions), positive=positive)
