"""How probable a condition is in each row: `y > 3 and rate < 2`, an expression of the language, never of Python.

The condition is parsed and checked as part of a model in which every quantity is an input. One latent or output against
what is known has its distribution function; all else is the share of draws in which the condition holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np

from gpdsl.data.standardised import Standardised
from gpdsl.errors import GpdslError
from gpdsl.language import compile_text
from gpdsl.language import model as m
from gpdsl.program.rows import RowEvaluator, Rows, Scope
from gpdsl.results import expectation as ex
from gpdsl.results.chunks import parts
from gpdsl.results.condition_units import names_in, units_of
from gpdsl.results.draws import Draws, row_by_row
from gpdsl.results.named import names_of
from gpdsl.results.shares import Shares
from gpdsl.symbolic.translate import Translator

ROWS_AT_ONCE = 256
"""Of which all draws are held at a time."""

TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}

Keys = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Condition:
    """A condition in a model of its own, and where the values of its names come from."""

    declarations: m.Declarations
    beliefs: ex.Beliefs
    units: Standardised

    @property
    def expression(self) -> m.Expression:
        """The condition itself."""
        body = self.declarations.lets["_holds"].cases[0].body
        assert isinstance(body, m.Operation)
        return body.operands[0]

    def probability(self, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """In each row, and its standard error: 0 where a distribution function says it."""
        found, errors = [], []
        for number, (rows, skip) in enumerate(parts(self.beliefs.count, ROWS_AT_ONCE)):
            part = Condition(self.declarations, self.beliefs.part(rows), self.units)
            share = part._by_law()
            error = np.zeros(part.beliefs.count)
            if share is None:
                draws = row_by_row(part.beliefs, count, np.random.default_rng([seed, number]), apart=True)
                share = part._share(draws)
                error = np.sqrt(share * (1.0 - share) / count)
            found.append(share[skip:])
            errors.append(error[skip:])
        return np.concatenate(found), np.concatenate(errors)

    def _share(self, draws: Draws) -> np.ndarray:
        """Of draws in which it holds, row by row."""
        count, rows = len(draws.component), self.beliefs.count
        inputs = {name: self._values(name, draws) for name in names_in(self.expression)}
        flat = {name: jnp.asarray(values.reshape(-1, *values.shape[2:])) for name, values in inputs.items()}
        value = self._evaluated(self.declarations.lets["_holds"].cases[0].body, flat)
        return np.mean(np.broadcast_to(value, count * rows).reshape(count, rows), axis=0)

    def _values(self, name: str, draws: Draws | None) -> np.ndarray:
        """What a name has in all draws, [draws, rows, *axes], in the units of the data."""
        program, scope = self.beliefs.program, self.beliefs.scope()
        declared = program.declarations
        if name in names_of(self.beliefs):
            assert draws is not None
            return _numbered(self.beliefs, name, self.units.back(name, draws.of(name)))
        if name in declared.inputs:
            known = self.units.back(name, np.asarray(scope.rows.inputs[name], float))
        else:
            values = scope.parameters[name] if name in declared.params else declared.consts[name].values
            known = self.units.back(name, np.asarray(values, float))
            known = np.broadcast_to(known, (self.beliefs.count, *known.shape))
        return np.broadcast_to(known, (1 if draws is None else len(draws.component), *known.shape))

    def _evaluated(self, expression: m.Expression, inputs: Mapping[str, jnp.ndarray]) -> np.ndarray:
        translator = Translator(self.declarations, {})
        scope = Scope({}, Rows(inputs, {}, {}))
        return np.asarray(RowEvaluator(translator, {})(translator.scalar(expression), scope), float)

    def _by_law(self) -> np.ndarray | None:
        """From the distribution function of what is compared with something known; None where there is none."""
        asked = self.expression
        if not isinstance(asked, m.Operation) or asked.operator not in TURNED:
            return None
        (left, right), operator = asked.operands, asked.operator
        if not _is_random(self.beliefs, left):
            left, right, operator = right, left, TURNED[operator]
        if not isinstance(left, m.Read) or _is_random(self.beliefs, right) or not _is_random(self.beliefs, left):
            return None
        if not all(isinstance(each, m.Fixed) for each in left.subscripts):
            return None
        place = tuple(each.position - 1 for each in left.subscripts if isinstance(each, m.Fixed))
        known = {name: jnp.asarray(self._values(name, None)[0]) for name in names_in(right)}
        threshold = np.broadcast_to(self._evaluated(right, known), self.beliefs.count)
        return self._beyond(left.name, place, threshold, operator)

    def _beyond(self, name: str, place: tuple[int, ...], threshold: np.ndarray, operator: str) -> np.ndarray | None:
        """How probable it is that one element of a latent or an output is on that side of the threshold."""
        beliefs, declared = self.beliefs, self.beliefs.program.declarations
        shape = beliefs.program.translator.shape(declared.axes_of(name))
        every = np.broadcast_to(threshold.reshape(-1, *(1,) * len(shape)), (beliefs.count, *shape))
        found = Shares(beliefs).beyond(name, self.units.into(name, every), operator)
        return None if found is None else np.moveaxis(found, 0, -1)[place]


def _is_random(beliefs: ex.Beliefs, expression: m.Expression) -> bool:
    return bool(names_in(expression) & set(names_of(beliefs)))


def _numbered(beliefs: ex.Beliefs, name: str, drawn: np.ndarray) -> np.ndarray:
    """Draws of labels whose levels are numbers as these; other levels by their place, from 1."""
    output = beliefs.program.declarations.outputs.get(name)
    if output is None or output.label is None:
        return drawn
    levels = beliefs.program.levels.get(str(output.label.name), ())
    if not levels or not all(isinstance(each, int | float) for each in levels):
        return drawn
    return np.asarray(levels, float)[np.rint(drawn).astype(int) - 1]


def condition_of(beliefs: ex.Beliefs, text: str, known: Standardised) -> Condition:
    """A condition, checked. Raises ModelError, with its place, and GpdslError for several values."""
    if any(each in text for each in '\n\r#"'):
        raise GpdslError('probability: expected one condition on one line, as in "y > 3 and rate < 2"')
    translator = beliefs.program.translator
    declared = translator.declarations
    lines = ["model asked", *(f"index {n} in 1..{translator.size(i.axis)}" for n, i in declared.indices.items())]
    tables: tuple[Mapping[str, m.Declaration], ...] = (declared.inputs, declared.consts, declared.params)
    for name in (*(name for table in tables for name in table), *names_of(beliefs)):
        axes = declared.axes_of(name)
        sizes = [axis.name if axis.name in declared.indices else str(translator.size(axis)) for axis in axes]
        lines.append(f"input {name} : real" + (f"[{', '.join(map(str, sizes))}]" if sizes else ""))
    lines += ["output _none : real", "_none ~ Normal(0, 1)", f"let _holds = if {text} then 1 else 0"]
    asked = compile_text("\n".join(lines), "<condition>")
    found = asked.lets["_holds"]
    if found.axes:
        raise GpdslError(
            f"probability: {text!r} has a value for each {found.axes[0].describe()}; name an element, as in "
            "`y[1] > 3`, or say `max(p, y[p]) > 3`"
        )
    condition = Condition(asked, beliefs, known)
    return replace(condition, units=units_of(beliefs, known, condition.expression))
