"""Observations that are normal about linear functions of the latents, in units of their noise: z = H (f - mean) + e.

Each observed value y with t(y) ~ Normal(c + h'f, s) becomes z = (t(y) - c - h'mean(f)) / s, loadings h / s, and a
constant log|t'(y)| - log s - log(2 pi)/2 of the log density; e is standard normal. With K the prior covariance of what
is read of the latents, z ~ N(0, B) with B = I + H K H'. There is no jitter: the noise itself makes B positive definite,
in whatever units the data are. Values that share no latent with others have a B of their own (`parts`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp

from gpdsl.inference.exact.grids import Grid, gridded
from gpdsl.inference.exact.parts import Part, batched, together
from gpdsl.program.groups import Group
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows, observed_mask
from gpdsl.symbolic.joint import combined
from gpdsl.symbolic.laws import Law
from gpdsl.symbolic.terms import ObservationTerms, latents_in
from gpdsl.symbolic.translate import POSITIVE, Ref

LAWS: Mapping[str, Any] = {"Normal": lambda y: y, "LogNormal": sp.log}
"""What of a value is normal, by law."""


@dataclass(frozen=True)
class Statement:
    """One observation statement: t(y) ~ Normal(mean, sd), in the symbols of the program."""

    observation: ObservationTerms
    residual: sp.Expr
    """(t(y) - mean) / sd"""
    signal: sp.Expr
    """mean / sd, whose slopes in the latents are the loadings"""
    constant: sp.Expr
    """log |t'(y)| - log sd - log(2 pi) / 2"""


def statement(program: Program, observation: ObservationTerms) -> Statement | None:
    """The observation in this form; None where it is not written so."""
    law: Law | None = observation.law
    if law is None or law.name not in LAWS or law.components:
        return None
    name, positions = observation.outputs[0], observation.positions
    kind = program.declarations.outputs[name].kind
    y = program.translator.symbol(Ref("output", name, positions), positive=kind in POSITIVE)
    value = y if observation.warp is None else observation.warp.value
    normal, mean, sd = LAWS[law.name](value), law.arguments["mean"], law.arguments["sd"]
    constant = -sp.log(sd) - sp.log(2 * sp.pi) / 2
    constant += observation.warp.log_slope() if observation.warp is not None else 0
    constant -= sp.log(value) if law.name == "LogNormal" else 0
    signal, read = _as_read(program, mean / sd), _as_read(program, mean)
    if signal is None or read is None:
        return None
    # One quotient: y / sd - mean / sd would lose what large values with a small spread differ in.
    return Statement(observation, (normal - read) / sd, signal, constant)


def _as_read(program: Program, signal: sp.Expr) -> sp.Expr | None:
    """The signal in the readings that the program computes: combinations of values may be read as one."""
    for written in (signal, combined(program.translator, signal, latents_in(program.translator, signal))):
        refs = [program.translator.references[symbol] for symbol in latents_in(program.translator, written)]
        if all((ref.name, ref.reading) in program.evaluator.columns for ref in refs):
            return written
    return None


@dataclass(frozen=True, eq=False)
class System:
    """All observations of a program with some rows: what is linear, and how it falls into parts."""

    program: Program
    statements: tuple[Statement, ...]
    parts: tuple[Part, ...]
    reads: Mapping[tuple[int, int], frozenset[int]]
    """The columns of the marginals that each element of a statement reads."""
    grid: Grid | None = None
    """Where its values stand on one: there is one part then."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the matrices to be factorised."""
        return tuple(size for part in self.parts for size in part.sizes)


def make_system(program: Program, rows: Rows, *, on_grid: bool = False) -> System | None:
    """The system of some rows, None where an observation is not normal about a linear function of the latents.

    `on_grid` asks for the one part on a grid that the plan has found.
    """
    if program.fields or program.opaque or not program.conjugate or any(group.per_row for group in program.groups):
        return None
    found = [statement(program, observation) for observation in program.observations]
    statements = tuple(each for each in found if each is not None)
    if len(statements) < len(found):
        return None
    masks = [np.asarray(observed_mask(rows, each.observation)) > 0 for each in statements]
    flat = [mask.reshape(mask.shape[0], -1) for mask in masks]
    reads = {
        (s, number): _columns_read(program, each, dict(zip(each.observation.axes, position, strict=True)))
        for s, each in enumerate(statements)
        for number, position in enumerate(itertools.product(*[range(1, n + 1) for n in masks[s].shape[1:]]))
    }
    apart = [part for elements in _sharing(program, reads) for part in _parts(program, rows, elements, reads, flat)]
    parts = tuple(part for part in apart if part.width)
    if len(parts) > 1:
        parts = batched(program.groups, parts)
    system = System(program, statements, parts, reads)
    return gridded(system, rows) if on_grid else system


def _parts(
    program: Program,
    rows: Rows,
    elements: tuple[tuple[int, int], ...],
    reads: Mapping[tuple[int, int], frozenset[int]],
    masks: Sequence[np.ndarray],
) -> Iterator[Part]:
    """The values of some elements, those of rows that share no level apart."""
    seen = np.stack([masks[s][:, number] for s, number in elements])
    columns = np.asarray(sorted(set().union(*[reads[each] for each in elements])), int)
    known = np.flatnonzero(seen.any(axis=0))
    groups = [group for group in program.groups if np.any((columns >= group.start) & (columns < group.stop))]
    labelled = any(each.label is not None for each in program.declarations.inputs.values())
    for some in together(groups, rows, known) if labelled else [known]:
        kept = seen[:, some].ravel()
        places = None if kept.all() else np.flatnonzero(kept)[None]
        yield Part(np.asarray(elements)[None], columns[None], some[None], places)


def _sharing(program: Program, reads: Mapping[tuple[int, int], frozenset[int]]) -> list[tuple[tuple[int, int], ...]]:
    """Elements that are linked by the latent processes they read, in order; those that read none are left out."""
    process = {c: owner for g in program.groups for c in range(g.start, g.stop) for owner in [process_of(g, c)]}
    sets: list[tuple[set[int], list[tuple[int, int]]]] = []
    for element, columns in reads.items():
        own, members = {process[c] for c in columns}, [element]
        for other in [each for each in sets if each[0] & own]:
            sets.remove(other)
            own |= other[0]
            members = other[1] + members
        if own:
            sets.append((own, members))
    return sorted(tuple(sorted(members)) for _, members in sets)


def process_of(group: Group, column: int) -> int:
    """The first column of the process that a column of the marginals is read of: its name, so to say."""
    return group.start + (column - group.start) % group.size


def _columns_read(program: Program, each: Statement, position: Mapping[str, int]) -> frozenset[int]:
    """Columns of the marginals that an element of a statement reads."""
    translator, found = program.translator, set()
    for symbol in latents_in(translator, each.signal):
        ref = translator.references[symbol]
        start, _ = program.evaluator.columns[ref.name, ref.reading]
        shape = translator.shape_at(ref)
        choices: list[Iterable[int]] = []
        for where, size in zip(ref.positions, shape, strict=True):
            known = where if isinstance(where, int) else position.get(where)
            choices.append(range(size) if known is None else (int(known) - 1,))
        for place in itertools.product(*choices):
            found.add(start + (int(np.ravel_multi_index(place, shape)) if shape else 0))
    return frozenset(found)
