"""The units of the names in a condition: those of the data wherever the model tells them.

Of standardised data, outputs and inputs have their own numbers, positive parameters the factors of `program.units`,
and a latent or `let` that is the location of an output those of that output. Nothing tells the unit of any other.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import sympy as sp

from gpdsl.data.standardised import Standardised
from gpdsl.errors import GpdslError
from gpdsl.language import model as m
from gpdsl.program.units import unit_factors
from gpdsl.results import expectation as ex
from gpdsl.symbolic.dependence import reads_of
from gpdsl.symbolic.translate import Ref

WITHOUT_UNIT = {"unit", "simplex", "correlation_factor"}
"""Constraints of parameters that are the same in any units."""

JOINING = {"and", "or", "not"}
"""Operators whose operands are conditions themselves."""

Affine = tuple[np.ndarray, np.ndarray]
"""What is 0 in the fit, and what 1 is more, in the units of the data; [*axes]."""


def names_in(expression: m.Expression) -> set[str]:
    """The names that an expression reads."""
    return {read.name for read in reads_of(expression)}


def units_of(beliefs: ex.Beliefs, known: Standardised, condition: m.Expression) -> Standardised:
    """The numbers of every name in a condition. Raises GpdslError where it compares what has no known unit."""
    names, declared = names_in(condition), beliefs.program.declarations
    if not known.sds:
        return known
    factors = unit_factors(beliefs.program.translator, known.sds) if names & set(declared.params) else {}
    means, sds = dict(known.means), dict(known.sds)
    for name, factor in factors.items():
        means[name], sds[name] = np.zeros_like(factor), factor
    for name in names & {*declared.latents, *declared.lets}:
        if located := _as_location(beliefs, known, name):
            means[name], sds[name] = located
    unknown = {name for name in names if name not in sds and not _same(declared, known, name)}
    for part in _compared(condition):
        read = names_in(part)
        if (without := sorted(read & unknown)) and (beside := sorted(read & set(sds))):
            raise GpdslError(
                f"probability: `{without[0]}` is compared with `{beside[0]}`, which is in the units of the data, and "
                f"of these standardised data nothing tells the unit of `{without[0]}`; compare it with numbers, in "
                "standard deviations as `mean` has it, or fit without standardise"
            )
    return Standardised(means, sds)


def _compared(condition: m.Expression) -> Iterable[m.Expression]:
    """The comparisons that a condition is made of."""
    if isinstance(condition, m.Operation) and condition.operator in JOINING:
        return [part for each in condition.operands for part in _compared(each)]
    return [condition]


def _same(declared: m.Declarations, known: Standardised, name: str) -> bool:
    """Whether standardising does not change a name without numbers of its own."""
    if name in declared.params:
        return declared.params[name].constraint in WITHOUT_UNIT
    if name in declared.latents:
        return not set(known.sds) & set(declared.outputs)
    if name in declared.lets:
        read = set[str]().union(*(names_in(case.body) for case in declared.lets[name].cases)) - {name}
        return all(each not in known.sds and _same(declared, known, each) for each in read)
    return name not in declared.rows


def _as_location(beliefs: ex.Beliefs, known: Standardised, name: str) -> Affine | None:
    """The numbers of the outputs that a latent or `let` is the location of, where all of its elements are."""
    translator = beliefs.program.translator
    shape, told = translator.shape(translator.declarations.axes_of(name)), []
    means, sds = np.full(shape, np.nan), np.full(shape, np.nan)
    for o in beliefs.program.observations:
        output = o.outputs[0]
        if o.law is None or o.warp is not None or len(o.outputs) > 1 or output not in known.sds:
            continue
        if len(shape) not in {0, len(o.positions)} or o.law.arguments.get("mean") is None:
            continue
        if _element(beliefs, name, o.positions if shape else ()) == o.law.arguments["mean"]:
            places = tuple(place - 1 if isinstance(place, int) else slice(None) for place in o.positions)
            numbers = np.stack([known.means[output][places], known.sds[output][places]])
            if shape:
                means[places], sds[places] = numbers
            told += [] if shape else numbers.reshape(2, -1).T.tolist()
    if not shape and told and all(each == told[0] for each in told):
        means, sds = np.asarray(told[0])
    return None if np.isnan(means).any() else (means, sds)


def _element(beliefs: ex.Beliefs, name: str, positions: tuple[int | str, ...]) -> sp.Expr:
    """One element of a latent or `let`, as densities have it."""
    translator = beliefs.program.translator
    if name in translator.declarations.lets:
        return translator.let(name, positions)
    return translator.symbol(Ref("latent", name, positions))
