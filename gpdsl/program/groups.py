"""Latents whose kernels have the same form are one group: one batched computation, whatever their names and indices."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import sympy as sp
from jaxtyping import Array, Float

from gpdsl.errors import GpdslError
from gpdsl.kernels.form import Canonical, Form, canonical
from gpdsl.language import model as m
from gpdsl.program.rows import RowEvaluator, Rows, Scope
from gpdsl.symbolic.translate import Translator, axis_key


@dataclass(frozen=True)
class Member:
    """One declared latent of a group: its canonical kernel, and how many elements its axes have."""

    latent: m.Latent
    kernel: Canonical
    count: int


@dataclass(frozen=True)
class Group:
    """Latents computed together. Their values stand in columns `start:stop` of every marginal array.

    `shared` says that all members have the same kernel parameters up to the overall variance, and so one factorisation.
    """

    form: Form
    inputs: tuple[str, ...]
    members: tuple[Member, ...]
    start: int
    stop: int
    shared: bool

    @property
    def size(self) -> int:
        """Number of latent processes."""
        return self.stop - self.start

    @property
    def factors(self) -> int:
        """Number of different covariance matrices up to scale."""
        return 1 if self.shared else self.size

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the declared latents."""
        return tuple(member.latent.name for member in self.members)


@dataclass(frozen=True)
class KernelValues:
    """Numbers of a group's kernels: `scale` [latents], parameters each [factors] or [factors, columns]."""

    scale: Float[Array, "latents"]
    arguments: tuple[Float[Array, "factors ..."], ...]


def make_groups(translator: Translator) -> tuple[Group, ...]:
    """Partition the model's latents by kernel form and inputs, in order of declaration."""
    buckets: dict[tuple, list[Member]] = {}
    for latent in translator.declarations.latents.values():
        kernel = canonical(latent.kernel)
        count = 1
        for size in translator.shape(latent.axes):
            count *= size
        buckets.setdefault((kernel.form, latent.arguments), []).append(Member(latent, kernel, count))
    groups, start = [], 0
    for (form, inputs), members in buckets.items():
        stop = start + sum(member.count for member in members)
        groups.append(Group(form, inputs, tuple(members), start, stop, _shared(translator, members)))
        start = stop
    return tuple(groups)


def columns(groups: Sequence[Group]) -> dict[str, tuple[int, int]]:
    """Columns of each declared latent among the values of all latents."""
    found: dict[str, tuple[int, int]] = {}
    for group in groups:
        start = group.start
        for member in group.members:
            found[member.latent.name] = (start, start + member.count)
            start += member.count
    return found


def element_names(translator: Translator, groups: Sequence[Group]) -> list[str]:
    """The name of each column: `depth[2]`."""
    names = []
    for group in groups:
        for member in group.members:
            ranges = [range(1, n + 1) for n in translator.shape(member.latent.axes)]
            for position in itertools.product(*ranges):
                names.append(member.latent.name + (f"[{','.join(map(str, position))}]" if position else ""))
    return names


def _shared(translator: Translator, members: Sequence[Member]) -> bool:
    forms = {tuple(translator.scalar(a) for a in member.kernel.arguments) for member in members}
    if len(forms) > 1:
        return False
    own = {axis_key(a) for member in members for a in member.latent.axes}
    return not any(
        own & set(map(str, translator.references[s].positions)) for e in next(iter(forms)) for s in e.free_symbols
    )


def kernel_values(
    evaluator: RowEvaluator, group: Group, parameters: Mapping[str, Array], columns_in: int
) -> KernelValues:
    """Evaluate the kernel parameters of a group at these (constrained) parameter values."""
    scope = Scope(parameters, Rows({}, {}, {}))
    scales = [_per_element(evaluator, mem, mem.kernel.factors, scope) for mem in group.members]
    members = group.members[:1] if group.shared else group.members
    arguments = []
    for i in range(len(group.members[0].kernel.arguments)):
        parts = [_argument(evaluator, mem, mem.kernel.arguments[i], scope, group.shared) for mem in members]
        if len({p.ndim for p in parts}) > 1:
            parts = [p if p.ndim == 2 else jnp.broadcast_to(p[:, None], (p.shape[0], columns_in)) for p in parts]
        arguments.append(jnp.concatenate(parts))
    return KernelValues(jnp.concatenate(scales), tuple(arguments))


def _per_element(evaluator: RowEvaluator, member: Member, factors: Sequence[m.Expression], scope: Scope) -> Array:
    translator = evaluator.translator
    keys = tuple(axis_key(a) for a in member.latent.axes)
    product = sp.Mul(*[translator.scalar(f) for f in factors])
    value = jnp.asarray(evaluator(product, scope, keys), _dtype(scope))
    return jnp.broadcast_to(value, translator.shape(member.latent.axes)).reshape(-1)


def _argument(evaluator: RowEvaluator, member: Member, argument: m.Expression, scope: Scope, shared: bool) -> Array:
    translator = evaluator.translator
    own = tuple(axis_key(a) for a in member.latent.axes)
    extra = [a for a in argument.axes if axis_key(a) not in own]
    keys = (*own, *(axis_key(a) for a in extra))
    value = jnp.asarray(evaluator(translator.scalar(argument), scope, keys), _dtype(scope))
    shape = (*translator.shape(member.latent.axes), *translator.shape(tuple(extra)))
    value = jnp.broadcast_to(value, shape).reshape(-1, *translator.shape(tuple(extra)))
    return value[:1] if shared else value


def _dtype(scope: Scope) -> jnp.dtype:
    return next((v.dtype for v in scope.parameters.values()), jnp.asarray(0.0).dtype)


def stack_inputs(group_inputs: Sequence[str], rows: Rows) -> Float[Array, "rows D"]:
    """The arguments of a latent, side by side as columns."""
    return jnp.concatenate([rows.inputs[n].reshape(rows.inputs[n].shape[0], -1) for n in group_inputs], axis=1)


def prior_means(
    evaluator: RowEvaluator, groups: Sequence[Group], parameters: Mapping[str, Array], rows: Rows, count: int
) -> Float[Array, "rows latents"]:
    """Mean functions of all latents at the rows."""
    scope = Scope(parameters, rows)
    translator, parts = evaluator.translator, []
    for member in (mem for g in groups for mem in g.members):
        keys = tuple(axis_key(a) for a in member.latent.axes)
        value = jnp.asarray(evaluator(translator.scalar(member.latent.mean), scope, keys))
        shape = (count, *translator.shape(member.latent.axes))
        parts.append(jnp.broadcast_to(value, shape).reshape(count, -1))
    return jnp.concatenate(parts, axis=1)


def columns_of(group: Group, translator: Translator) -> int:
    """Number of input columns of a group."""
    total = 0
    for name in group.inputs:
        if name not in translator.declarations.inputs:
            raise GpdslError(f"latent `{group.names[0]}` takes `{name}`, which is not an input")
        width = 1
        for size in translator.shape(translator.declarations.inputs[name].axes):
            width *= size
        total += width
    return total
