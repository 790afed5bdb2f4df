"""Latents whose kernels have the same form are one group: one batched computation, whatever their names and indices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import jax.numpy as jnp
import numpy as np
import sympy as sp
from jaxtyping import Array, Bool, Float

from gpdsl.kernels.columns import Canonical, Space, canonical
from gpdsl.kernels.form import Form
from gpdsl.language import model as m
from gpdsl.language.errors.functionals import TooManyLevels
from gpdsl.language.vocabulary import MAX_READINGS
from gpdsl.program.rows import RowEvaluator, Rows, Scope
from gpdsl.symbolic.expectations import correlated, latents_in
from gpdsl.symbolic.readings import OWN, Reading, added, reading, split_levels
from gpdsl.symbolic.terms import ObservationTerms
from gpdsl.symbolic.translate import Ref, Translator, axis_key

# Which readings of each latent are computed: those the bound needs while fitting, and all the model names afterwards.
#
# The covariance of two readings of one latent comes from the variance of their sum, so readings that are needed jointly
# bring their pairwise sums along: every marginal stays a mean and a variance, and so does every site.


@dataclass(frozen=True)
class Readings:
    """Readings of one latent: `basis`, then (when they are needed jointly) the sums of its pairs.

    `sums` says where the sum of two of the basis stands: (first, second, place).
    """

    basis: tuple[Reading, ...]
    all: tuple[Reading, ...]
    sums: tuple[tuple[int, int, int], ...] = ()

    @property
    def atoms(self) -> tuple[Reading, ...]:
        """Readings that determine the others: the only one, or every functional that occurs."""
        if len(self.basis) == 1:
            return self.basis
        functionals = dict.fromkeys(functional for each in self.basis for functional, _ in each)
        return tuple(reading(each) for each in functionals)


OWN_VALUE = Readings((OWN,), (OWN,))
"""What is read of a latent that is only used as `f`."""


def make_readings(basis: Iterable[Reading], *, jointly: bool) -> Readings:
    """Readings without repetition, with the sums of pairs when they are needed jointly."""
    distinct = tuple(dict.fromkeys(each for each in basis if each))
    if not jointly or len(distinct) < 2:
        return Readings(distinct, distinct)
    every = list(distinct)
    sums = []
    for i, j in itertools.combinations(range(len(distinct)), 2):
        total = added([(distinct[i], 1.0), (distinct[j], 1.0)])
        if total not in every:
            every.append(total)
        sums.append((i, j, every.index(total)))
    return Readings(distinct, tuple(every), tuple(sums))


def fitted_readings(translator: Translator, observations: Sequence[ObservationTerms]) -> dict[str, Readings]:
    """What the terms of the bound read of each latent; its own value when they read nothing."""
    found: dict[str, list[Reading]] = {}
    joint: set[str] = set()
    for term in (t for o in observations for t in o.terms):
        latents = latents_in(translator, term.expression)
        # Names of the latents of which a term reads several values at once.
        joint |= {translator.references[symbols[0]].name for symbols in correlated(translator, latents)}
        for symbol in latents:
            ref = translator.references[symbol]
            found.setdefault(ref.name, []).append(ref.reading)
    names = (*translator.declarations.latents, *translator.declarations.rows)
    several = [latent.name for latent in translator.declarations.latents.values() if latent.levels]
    own = {name: _few(translator, name, own_values(translator, name)) for name in several}
    read = {name: sorted(set(found.get(name) or own.get(name) or [OWN]), key=str) for name in names}
    return {name: make_readings(basis, jointly=name in joint) for name, basis in read.items()}


def own_values(translator: Translator, name: str) -> list[Reading]:
    """The value of a latent at its own inputs; at every level, where an index is among its arguments."""
    latent = translator.declarations.latents.get(name)
    if latent is None or not latent.levels:
        return [OWN]
    return [reading(each) for each in _at_levels(translator, latent, m.VALUE)]


def _at_levels(translator: Translator, latent: m.Latent, functional: m.Functional) -> Iterable[m.Functional]:
    """A functional at every value of the indices among the arguments of a latent, the last running fastest."""
    for levels in itertools.product(*[range(1, translator.size(axis) + 1) for axis in latent.levels]):
        yield replace(functional, at=latent.at_levels(functional.at, tuple(map(str, levels))))


def predicted_readings(
    translator: Translator, observations: Sequence[ObservationTerms], fitted: Mapping[str, Readings]
) -> dict[str, Readings]:
    """Everything the model says about each latent: its own value, what `let`s and observations read, jointly."""
    found = {name: [*own_values(translator, name), *each.basis] for name, each in fitted.items()}
    for observation in observations:
        for symbol in latents_in(translator, observation.log_density):
            ref = translator.references[symbol]
            found[ref.name].append(ref.reading)
    for read in reads_of(translator.declarations):
        found[read.name] += [reading(each) for each in _in_numbers(translator, read)]
    return {name: make_readings(_few(translator, name, each), jointly=True) for name, each in found.items()}


def _few(translator: Translator, name: str, basis: list[Reading]) -> list[Reading]:
    """The readings, of which the sums of all pairs are kept. Raises ModelError when a latent is read too often."""
    latent = translator.declarations.latents.get(name)
    distinct = list(dict.fromkeys(basis))
    if latent is not None and latent.levels and len(distinct) > MAX_READINGS:
        raise translator.failure(
            TooManyLevels(latent.span, name, str(latent.levels[0].name), len(distinct), MAX_READINGS)
        )
    return distinct


def reads_of(declarations: m.Declarations) -> Iterable[m.Read]:
    """Every read of a latent or row variable in the definitions and observations of a model."""
    pending: list[m.Expression] = [case.body for let in declarations.lets.values() for case in let.cases]
    calls = [observation.distribution for observation in declarations.observations]
    while calls:
        call = calls.pop()
        pending += call.arguments.values()
        calls += call.components
    while pending:
        expression = pending.pop()
        if isinstance(expression, m.Read) and expression.name in {**declarations.latents, **declarations.rows}:
            yield expression
        pending += m.parts(expression)


def _in_numbers(translator: Translator, read: m.Read) -> Iterable[m.Functional]:
    """The functional of a read for every value of the indices it is differentiated along, and of its levels."""
    functional, latent = read.functional, translator.declarations.latents.get(read.name)
    indices = {each.column.index for each in functional.derivative if isinstance(each.column, m.IndexValue)}
    names = sorted(indices)
    axes = [translator.declarations.indices[name].axis for name in names]
    for values in itertools.product(*[range(1, translator.size(axis) + 1) for axis in axes]):
        numbered = translator.functional(functional, dict(zip(names, values, strict=True)))
        if latent is None or not latent.levels:
            yield numbered
            continue
        levels = read.subscripts[len(latent.elements) :]
        known = [each.input if isinstance(each, m.At) else str(getattr(each, "position", "")) for each in levels]
        for every in _at_levels(translator, latent, numbered):
            pairs = zip(known, split_levels(translator.declarations, read.name, every.at)[1], strict=True)
            yield replace(every, at=latent.at_levels(every.at, tuple(own or level for own, level in pairs)))


# Row variables as latents: an independent Normal per row is white noise over the rows, sd^2 * White().


def process_of(row: m.Row) -> m.Latent:
    """The latent that a row variable is: its mean is that of its prior, its variance a factor of white noise."""
    arguments = row.distribution.arguments
    noise = m.KernelCall(row.span, "White", {})
    kernel = m.KernelScale(row.span, arguments["sd"], m.KernelScale(row.span, arguments["sd"], noise))
    return m.Latent(row.name, row.span, row.axes, (), arguments["mean"], kernel)


@dataclass(frozen=True)
class Member:
    """One declared latent of a group: its canonical kernel, and how many elements its axes have."""

    latent: m.Latent
    kernel: Canonical
    count: int


@dataclass(frozen=True)
class Group:
    """Latents computed together: in columns `start:stop` of every marginal array, one reading of all after the other.

    `shared` says that all members have the same kernel parameters up to the overall variance, and so one factorisation.
    `per_row` marks row variables, which are independent from row to row; `points` counts those of fields, whose columns
    are their values at one point after the other.
    """

    form: Form
    inputs: tuple[str, ...]
    members: tuple[Member, ...]
    start: int
    stop: int
    shared: bool
    readings: Readings = OWN_VALUE
    per_row: bool = False
    points: int = 0
    apart: bool = False
    """Whether inducing functionals are those of the latents without their white noise: `program.white`."""

    @property
    def size(self) -> int:
        """Number of latent processes."""
        return sum(member.count for member in self.members)

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


def make_groups(
    translator: Translator, readings: Mapping[str, Readings], told: Mapping[str, Hashable] = MappingProxyType({})
) -> tuple[Group, ...]:
    """Partition the model's latents by kernel form, inputs and what is read of them, in order of declaration.

    Those with different things `told` of them, by name, are apart.
    """
    declared = translator.declarations
    buckets: dict[tuple, list[Member]] = {}
    for latent in (*declared.latents.values(), *map(process_of, declared.rows.values())):
        kernel = canonical(latent.kernel, Space.of(translator, latent))
        member = Member(latent, kernel, math.prod(translator.shape(latent.axes)))
        points = 0 if latent.over is None else translator.size(latent.over)
        read = readings[latent.name]
        key = (kernel.form, latent.arguments, read, latent.name in declared.rows, points, told.get(latent.name))
        buckets.setdefault(key, []).append(member)
    return _placed(
        Group(form, inputs, tuple(members), 0, 0, _shared(translator, members), read, per_row, points)
        for (form, inputs, read, per_row, points, _), members in buckets.items()
    )


def with_kernels(translator: Translator, group: Group, kernels: Sequence[m.Kernel]) -> Group | None:
    """The group with other kernels of its members; None where they are not of one form."""
    pairs = list(zip(group.members, kernels, strict=True))
    found = [replace(x, kernel=canonical(kernel, Space.of(translator, x.latent))) for x, kernel in pairs]
    if len({member.kernel.form for member in found}) > 1:
        return None
    return replace(group, form=found[0].kernel.form, members=tuple(found), shared=_shared(translator, found))


def read_more(groups: Sequence[Group], readings: Mapping[str, Readings]) -> tuple[Group, ...]:
    """The same groups with more read of their latents."""
    found = []
    for group in groups:
        basis = dict.fromkeys(reading for name in group.names for reading in readings[name].basis)
        found.append(replace(group, readings=make_readings(basis, jointly=True)))
    return _placed(found)


def without_sums(groups: Sequence[Group]) -> tuple[Group, ...]:
    """The same groups without sums of pairs of readings, where covariances are worked out as such."""
    return _placed(replace(g, readings=make_readings(g.readings.basis, jointly=False)) for g in groups)


def _placed(groups: Iterable[Group]) -> tuple[Group, ...]:
    """Groups side by side in the columns of the marginals."""
    placed, start = [], 0
    for group in groups:
        stop = start + group.size * len(group.readings.all) * max(group.points, 1)
        placed.append(replace(group, start=start, stop=stop))
        start = stop
    return tuple(placed)


Columns = dict[tuple[str, Reading], tuple[int, int]]
"""Where the elements of a latent stand among the columns of the marginals, for each reading of it."""


def columns(groups: Sequence[Group]) -> Columns:
    """Columns of everything that is read of each declared latent."""
    found: Columns = {}
    for group in groups:
        start = group.start
        for kind in group.readings.all:
            for member in group.members:
                count = member.count * max(group.points, 1)
                found[member.latent.name, kind] = (start, start + count)
                start += count
    return found


def element_names(translator: Translator, groups: Sequence[Group]) -> list[str]:
    """The name of each column: `depth[2]`, `f(a)`."""
    names = []
    for group in groups:
        for kind, member in itertools.product(group.readings.all, group.members):
            ranges = [range(1, n + 1) for n in translator.shape(member.latent.elements)]
            for position in itertools.product(*ranges):
                names.append(translator.symbol(Ref("latent", member.latent.name, position, kind)).name)
    return names


def elements(translator: Translator, group: Group, name: str, at: Sequence[Any] = ()) -> Bool[np.ndarray, " size"]:
    """Which of a group's latents are those of a declared one, at these positions (from 1) or at all."""
    found = []
    for each in group.members:
        own = np.zeros(translator.shape(each.latent.axes), bool)
        if each.latent.name == name:
            own[tuple(place - 1 for place in at)] = True
        found.append(own.ravel())
    return np.concatenate(found)


def _shared(translator: Translator, members: Sequence[Member]) -> bool:
    forms = {tuple(translator.scalar(a) for a in member.kernel.arguments) for member in members}
    if len(forms) > 1:
        return False
    own = {axis_key(a) for member in members for a in member.latent.axes}
    return not any(
        own & set(map(str, translator.references[s].positions)) for e in next(iter(forms)) for s in e.free_symbols
    )


def kernel_values(evaluator: RowEvaluator, group: Group, parameters: Mapping[str, Array]) -> KernelValues:
    """Evaluate the kernel parameters of a group at these (constrained) parameter values."""
    scope, scalar = Scope(parameters, Rows({}, {}, {})), evaluator.translator.scalar
    products = [(mem, sp.Mul(*[scalar(factor) for factor in mem.kernel.factors])) for mem in group.members]
    scales = [_numbers(evaluator, mem, product, (), scope) for mem, product in products]
    members = group.members[:1] if group.shared else group.members
    arguments = []
    for i in range(len(group.members[0].kernel.arguments)):
        given = [(mem, mem.kernel.arguments[i]) for mem in members]
        parts = [_numbers(evaluator, mem, scalar(each), each.axes, scope) for mem, each in given]
        arguments.append(parts[0][:1] if group.shared else jnp.concatenate(_alike(parts)))
    return KernelValues(jnp.concatenate(scales), tuple(arguments))


def _alike(parts: list[Array]) -> list[Array]:
    """Numbers of several latents, [elements] or [elements, columns], all as the widest of them."""
    widest = max(parts, key=lambda part: part.ndim).shape[1:]
    return [p if p.ndim > 1 or not widest else jnp.broadcast_to(p[:, None], (p.shape[0], *widest)) for p in parts]


def _numbers(
    evaluator: RowEvaluator, member: Member, formula: sp.Expr, axes: Sequence[m.Axis], scope: Scope
) -> Float[Array, "elements ..."]:
    """The values of a formula along some axes for each element of a latent, [elements, *axes that are not its own]."""
    own, shape = member.latent.axes, evaluator.translator.shape
    keys = tuple(map(axis_key, own))
    extra = tuple(axis for axis in axes if axis_key(axis) not in keys)
    dtype = next((v.dtype for v in scope.parameters.values()), jnp.asarray(0.0).dtype)
    value = jnp.asarray(evaluator(formula, scope, (*keys, *map(axis_key, extra))), dtype)
    return jnp.broadcast_to(value, shape((*own, *extra))).reshape(-1, *shape(extra))


def columns_of(group: Group, translator: Translator) -> int:
    """Number of input columns of a group."""
    return sum(math.prod(translator.shape(translator.declarations.columns_of(name))) for name in group.inputs)
