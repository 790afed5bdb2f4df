"""Which readings of each latent are computed: those the bound needs while fitting, and all the model names afterwards.

The covariance of two readings of one latent comes from the variance of their sum, so readings that are needed jointly
bring their pairwise sums along: every marginal stays a mean and a variance, and so does every site.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpdsl.language import model as m
from gpdsl.symbolic.joint import sums_needed
from gpdsl.symbolic.readings import OWN, Reading, added, reading
from gpdsl.symbolic.terms import ObservationTerms, latents_in
from gpdsl.symbolic.translate import Translator


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
        joint |= sums_needed(translator, latents)
        for symbol in latents:
            ref = translator.references[symbol]
            found.setdefault(ref.name, []).append(ref.reading)
    names = (*translator.declarations.latents, *translator.declarations.rows)
    return {name: make_readings(sorted(set(found.get(name, [OWN])), key=str), jointly=name in joint) for name in names}


def predicted_readings(
    translator: Translator, observations: Sequence[ObservationTerms], fitted: Mapping[str, Readings]
) -> dict[str, Readings]:
    """Everything the model says about each latent: its own value, what `let`s and observations read, jointly."""
    found: dict[str, list[Reading]] = {name: [OWN, *each.basis] for name, each in fitted.items()}
    for observation in observations:
        for symbol in latents_in(translator, observation.log_density):
            ref = translator.references[symbol]
            found[ref.name].append(ref.reading)
    for read in reads_of(translator.declarations):
        found[read.name] += [reading(each) for each in _in_numbers(translator, read.functional)]
    return {name: make_readings(each, jointly=True) for name, each in found.items()}


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


def _in_numbers(translator: Translator, functional: m.Functional) -> Iterable[m.Functional]:
    """A functional for every value of the indices it is differentiated along."""
    indices = {each.column.index for each in functional.derivative if isinstance(each.column, m.IndexValue)}
    names = sorted(indices)
    axes = [translator.declarations.indices[name].axis for name in names]
    for values in itertools.product(*[range(1, translator.size(axis) + 1) for axis in axes]):
        yield translator.functional(functional, dict(zip(names, values, strict=True)))
