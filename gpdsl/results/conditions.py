"""How probable a condition is in each row: `y > 3 and rate < 2`, an expression of the language, never of Python.

The condition is parsed and checked as part of a model in which every quantity is an input. One latent or output against
what is known has its distribution function; all else is the share of draws in which the condition holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import jax.numpy as jnp
import numpy as np
import sympy as sp

from gpdsl.data.bound import Standardised
from gpdsl.data.errors import listed
from gpdsl.data.times import Calendar
from gpdsl.errors import GpdslError, quoted
from gpdsl.inference.posteriors.posterior import parts
from gpdsl.language import compile_text, model as m
from gpdsl.language.checker.scope import SORTS
from gpdsl.language.errors.axes import SubscriptCount
from gpdsl.language.errors.base import Mistake, ModelError
from gpdsl.language.errors.calls import LatentCalled
from gpdsl.language.errors.functionals import NotALabel
from gpdsl.language.errors.names import EndsEarly, Unexpected, UnknownName
from gpdsl.language.vocabulary import Source, Span
from gpdsl.program.cache import jit
from gpdsl.program.rows import RowEvaluator, Rows, Scope
from gpdsl.program.starts import unit_factors
from gpdsl.results import expectation as ex
from gpdsl.results.accuracy import error_of_sets
from gpdsl.results.draws import Draws, Shares, output_mean, row_by_row
from gpdsl.results.levels import Unseen, in_levels, without_subscripts, without_words
from gpdsl.results.named import names_of, of_output
from gpdsl.results.quantiles import sloped, where_reached
from gpdsl.symbolic.translate import Translator

# The units of the names in a condition: those of the data wherever the model tells them.
#
# Of standardised data, outputs and inputs have their own numbers, positive parameters the factors of `program.units`,
# and latents and lets what predictions have of them (`named.located`). Nothing tells the unit of any other.

WITHOUT_UNIT = {"unit", "simplex", "correlation_factor"}
"""Constraints of parameters that are the same in any units."""

_compiled = lru_cache(maxsize=64)(compile_text)  # hundreds of settings may be asked one condition


def names_in(expression: m.Expression) -> set[str]:
    """The names that an expression reads."""
    return {read.name for read in m.reads_of(expression)}


def units_of(condition: Condition) -> Standardised:
    """The numbers of every name in a condition. Raises GpdslError where it compares what has no known unit."""
    beliefs, known = condition.beliefs, condition.units
    names, declared = condition.reads(condition.expression), beliefs.program.declarations
    if not known.sds:
        return known
    factors = unit_factors(beliefs.program.translator, known.sds) if names & set(declared.params) else {}
    means, sds = dict(known.means), dict(known.sds)
    for name, factor in factors.items():
        means[name], sds[name] = np.zeros_like(factor), factor
    for name, (mean, sd) in _levels(declared, known).items():
        means[name], sds[name] = mean, sd
    unknown = {name for name in names if name not in sds and not _same(declared, known, name)}
    for part in _compared(condition.expression):
        read = condition.reads(part)
        if (without := sorted(read & unknown)) and (beside := sorted(read & set(sds))):
            raise GpdslError(
                f"probability: `{without[0]}` is compared with `{beside[0]}`, which is in the units of the data, and "
                f"of these standardised data nothing tells the unit of `{without[0]}`; compare it with numbers, in "
                "standard deviations as `mean` has it, or fit without standardise"
            )
    return Standardised(means, sds)


def _levels(declared: m.Declarations, known: Standardised) -> dict[str, np.ndarray]:
    """The numbers of parameters that are the mean of what has a location: `m` of `latent f(x) ~ GP(m, RBF(1))`."""
    told: dict[str, list[np.ndarray]] = {}
    for name, latent in declared.latents.items():
        level = latent.mean
        if isinstance(level, m.Read) and level.name in declared.params and name in known.sds:
            told.setdefault(level.name, []).append(np.stack([known.means[name], known.sds[name]]))
    one = {name for name, every in told.items() if not declared.params[name].axes and len({*map(bytes, every)}) == 1}
    return {name: told[name][0] for name in one if told[name][0].ndim == 1}


def _compared(condition: m.Expression) -> Iterable[m.Expression]:
    """The comparisons that a condition is made of."""
    if isinstance(condition, m.Operation) and condition.operator in {"and", "or", "not"}:
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


ROWS_AT_ONCE, NEVER = 256, 3.0
"""Rows of which all draws are held at a time; over the number of draws, what a probability may still be, at 95%, when
none of them says so."""

TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
"""What comparisons become when both sides are exchanged."""

SIGNS = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal}

UNFINISHED = re.compile(r"(^|[-+*/<>=!(,]|\b(and|or|not))\s*$")

BEFORE = "let _holds = if "
"""What stands before a condition on its line."""


@dataclass(frozen=True, eq=False)
class Condition:
    """A condition in a model of its own, and where the values of its names come from."""

    declarations: m.Declarations
    beliefs: ex.Beliefs
    units: Standardised
    unseen: Unseen
    at_level: Mapping[str, tuple[str, str]]
    """By a name in the condition, the parameter or constant and the label at whose level it is read."""

    @property
    def expression(self) -> m.Expression:
        """The condition itself."""
        body = self.declarations.lets["_holds"].cases[0].body
        assert isinstance(body, m.Operation)
        return body.operands[0]

    def reads(self, expression: m.Expression) -> set[str]:
        """The quantities of the model that a part of the condition reads."""
        return {self.at_level.get(name, (name, ""))[0] for name in names_in(expression)}

    def probability(self, count: int, seed: int, error: bool = False) -> np.ndarray:
        """In each row, or its standard error: 0 where a distribution function says it and no layers are sampled."""
        found = []
        for number, (rows, skip) in enumerate(parts(self.beliefs.count, ROWS_AT_ONCE)):
            part = replace(self, beliefs=self.beliefs.part(rows))
            known = part._in_rows(count, [seed, number])[int(error)]
            if error and part.beliefs.program.inner:
                sets = [replace(part, beliefs=each) for each in part.beliefs.sets()]
                shares = [
                    each._in_rows(max(count // len(sets), 1), [seed, number, k])[0] for k, each in enumerate(sets)
                ]
                known = np.maximum(known, error_of_sets(shares))
            found.append(known[skip:])
        return np.concatenate(found)

    def _in_rows(self, count: int, seeds: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """In each row, and the standard error of a share of draws."""
        share = self._by_law(self.expression) if _is_random(self.beliefs, self.expression) else self._known()
        if share is not None:
            return share, np.zeros(self.beliefs.count)
        share = self._share(row_by_row(self.beliefs, count, np.random.default_rng(seeds), apart=True))
        left = np.sqrt(share * (1.0 - share) / count)
        return share, np.where(share * (1.0 - share) > 0, left, NEVER / count)

    def _known(self) -> np.ndarray:
        """1 where it holds, of a condition that nothing random enters."""
        values = {name: jnp.asarray(self._values(name, None)[0]) for name in names_in(self.expression)}
        body = self.declarations.lets["_holds"].cases[0].body
        return np.array(np.broadcast_to(self._evaluated(body, values), self.beliefs.count))

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
        if name in self.at_level:
            of, label = self.at_level[name]
            places = np.asarray(scope.rows.inputs[label], int)[None, :, None] - 1
            return np.take_along_axis(self._values(of, draws), places, axis=2)[..., 0]
        if name in names_of(self.beliefs):
            assert draws is not None
            return in_levels(program, name, self.units.back(name, draws.of(name)))
        if name in declared.inputs:
            given = self.units.back(name, np.asarray(scope.rows.inputs[name], float))
            known = in_levels(program, name, given, self.unseen)
        else:
            values = scope.parameters[name] if name in declared.params else declared.consts[name].values
            known = self.units.back(name, np.asarray(values, float))
            known = np.broadcast_to(known, (self.beliefs.count, *known.shape))
        return np.broadcast_to(known, (1 if draws is None else len(draws.component), *known.shape))

    def _evaluated(self, expression: m.Expression, inputs: Mapping[str, jnp.ndarray]) -> np.ndarray:
        translator, scope = Translator(self.declarations, {}), Scope({}, Rows(inputs, {}, {}))
        return np.asarray(RowEvaluator(translator, {})(translator.scalar(expression), scope), float)

    def _by_law(self, asked: m.Expression) -> np.ndarray | None:
        """From the distribution function of what is compared with something known; None where there is none."""
        if isinstance(asked, m.Operation) and asked.operator == "not":
            against = self._by_law(asked.operands[0])
            return None if against is None else 1.0 - against
        if not isinstance(asked, m.Operation) or asked.operator not in TURNED:
            return None
        reads = [read for read in m.reads_of(asked) if read.name in names_of(self.beliefs)]
        places = {tuple(each.position - 1 if isinstance(each, m.Fixed) else -1 for each in r.subscripts) for r in reads}
        if len({read.name for read in reads}) != 1 or len(places) != 1 or -1 in (place := places.pop()):
            return None
        name, (left, right) = reads[0].name, (self._line(each) for each in asked.operands)
        if left is None or right is None:
            return self._bent(asked, name, place)
        slope = left[0] - right[0]
        if not (np.all(slope > 0) or np.all(slope < 0)):
            return None
        operator = asked.operator if np.all(slope > 0) else TURNED[asked.operator]
        meet = np.asarray((right[1] - left[1]) / slope)
        # what has no value, such as the logarithm of a negative number, is as in draws: nothing but unequal
        found = self._beyond(name, place, meet, operator)
        return None if found is None else np.where(np.isnan(meet), float(operator == "!="), found)

    def _bent(self, asked: m.Operation, name: str, place: tuple[int, ...]) -> np.ndarray | None:
        """Of sides whose gap is known to rise, or to fall, with one random value: where they meet."""
        output, count = self.beliefs.program.declarations.outputs.get(name), self.beliefs.count
        if output is not None and output.kind != "real":
            return None  # rounding would decide whether a whole number reaches where they meet
        translator = Translator(self.declarations, {})
        gap = translator.scalar(asked.operands[0]) - translator.scalar(asked.operands[1])
        own = [s for s in gap.free_symbols if translator.references[s].name == name]
        slope = sp.diff(gap, own[0]) if len(own) == 1 else sp.Integer(0)
        if not (slope.is_positive or slope.is_negative):
            return None
        known = {each: jnp.asarray(self._values(each, None)[0]) for each in names_in(asked) - {name}}
        evaluator, shape = RowEvaluator(translator, {}), translator.shape(self.declarations.axes_of(name))

        def difference(value: jnp.ndarray) -> jnp.ndarray:
            whole = jnp.zeros((count, *shape), value.dtype).at[(slice(None), *place)].set(value)
            return evaluator(gap, Scope({}, Rows({**known, name: whole}, {}, {})))

        meeting = where_reached(jit(partial(sloped, difference), brief=True), np.zeros(count), rising=slope.is_positive)
        return self._beyond(name, place, meeting, asked.operator if slope.is_positive else TURNED[asked.operator])

    def _line(self, expression: m.Expression) -> tuple[np.ndarray, np.ndarray] | None:
        """Slope and level [rows] of what is linear in the one random value that it reads; None of anything else."""
        count = self.beliefs.count
        if not _is_random(self.beliefs, expression):
            known = {name: jnp.asarray(self._values(name, None)[0]) for name in names_in(expression)}
            return np.zeros(count), np.broadcast_to(self._evaluated(expression, known), count)
        if isinstance(expression, m.Read):
            return np.ones(count), np.zeros(count)
        if not isinstance(expression, m.Operation) or expression.operator not in {"+", "-", "*", "/", "neg"}:
            return None
        lines = [self._line(each) for each in expression.operands]
        if lines[0] is None or lines[-1] is None:
            return None
        (a, b), (c, d), operator = lines[0], lines[-1], expression.operator
        if operator == "neg":
            return -a, -b
        if operator in {"+", "-"}:
            sign = 1.0 if operator == "+" else -1.0
            return a + sign * c, b + sign * d
        if operator == "*" and not (a.any() and c.any()):
            return a * d + b * c, b * d
        return None if c.any() or not d.all() or operator == "*" else (a / d, b / d)

    def _beyond(self, name: str, place: tuple[int, ...], threshold: np.ndarray, operator: str) -> np.ndarray | None:
        """How probable it is that one element of a latent or an output is on that side of the threshold."""
        beliefs, declared = self.beliefs, self.beliefs.program.declarations
        shape = beliefs.program.translator.shape(declared.axes_of(name))
        every = np.broadcast_to(threshold.reshape(-1, *(1,) * len(shape)), (beliefs.count, *shape))
        output = declared.outputs.get(name)
        if output is not None and (output.label is not None or output.kind == "binary"):
            chances = np.moveaxis(of_output(beliefs, name, partial(output_mean, beliefs)), 0, -1)[place]
            chances = chances if output.label is not None else np.stack([1.0 - chances, chances])
            numbers = in_levels(beliefs.program, name, np.arange(len(chances)) + float(output.label is not None))
            return np.sum(chances * SIGNS[operator](numbers[:, None], threshold), axis=0)
        shares, at = Shares(beliefs), self.units.into(name, every)
        if operator in {"==", "!="}:
            reached, short = shares.beyond(name, at, "<="), shares.beyond(name, at, "<")
            found = None if reached is None or short is None else reached - short
            found = found if found is None or operator == "==" else 1.0 - found
        else:
            found = shares.beyond(name, at, operator)
        return None if found is None else np.moveaxis(found, 0, -1)[place]


def _is_random(beliefs: ex.Beliefs, expression: m.Expression) -> bool:
    return bool(names_in(expression) & set(names_of(beliefs)))


def _moved(mistake: Mistake, before: int, length: int) -> Mistake:
    """A mistake at its place in the condition alone."""
    first, last = (min(max(each - before, 1), length + 1) for each in (mistake.span.column, mistake.span.end_column))
    return mistake.but(span=Span(1, first, 1, last))


def _refuse_others(text: str, written: str) -> None:
    """Raise GpdslError for what other languages have, `y = 3` and `1 < y < 2`; `written` is the text with its words."""
    if re.search(r"(?<![<>=!])=(?!=)|<>", text):
        raise GpdslError(f"probability: {written!r}: values are compared by `==`, `<`, `<=`, `>`, `>=` or `!=`")
    if re.search(r"!(?!=)", text):
        raise GpdslError(f"probability: {written!r} has `!`; write `not`, as in `not (y > 3)`")
    for part in re.split(r"\band\b|\bor\b|\bnot\b|[()]", text):
        if len(re.findall("[<>=!]=?", part)) > 1:
            join = (
                "`if` chooses between numbers; write `x > 1 and y < 2 or not x > 1 and y < 3`"
                if re.search(r"\bif\b", part)
                else "join them, `1 < y and y < 2`"
            )
            raise GpdslError(f"probability: {written!r} has two comparisons; {join}")


def _said(mistake: Mistake, names: str, sorts: Mapping[str, str]) -> Mistake:
    """A mistake in the terms of a condition, which declares nothing, and of what its names are in the model."""
    if isinstance(mistake, LatentCalled) and mistake.name in sorts:
        return mistake.but(what=f"{sorts[mistake.name]}, whose value in each row is meant")
    if isinstance(mistake, UnknownName) and not mistake.suggestion:
        return mistake.but(habit=f'a condition has {names}; levels stand in quotes, `site == "north"`')
    if isinstance(mistake, SubscriptCount) and mistake.given and sorts.get(mistake.name) == SORTS["latent"]:
        said = f"`{mistake.name}` has its value in each row; another one needs a name in the model, `let other = ...`"
        return mistake.but(habit=said)
    if isinstance(mistake, NotALabel):
        said = f"give it a name in the model, `let here = {mistake.name}[...]`; `start=fit` begins where this fit is"
        return mistake.but(what="read as a number here", remedy=said)
    if isinstance(mistake, Unexpected):
        said = "write a condition such as `y > 3 and rate < 2`"
        if mistake.found == "then":
            return EndsEarly(mistake.span, mistake.expected, mistake.form, said)
        return mistake.but(habit=f"`{mistake.found}` stands where it cannot; {said}")
    return mistake


def condition_of(
    beliefs: ex.Beliefs, text: str, known: Standardised, calendar: Calendar | None, unseen: Unseen
) -> Condition:
    """A condition, checked; times in quotes are those of a calendar, and rows may have levels that the fit has not.

    Raises ModelError, with its place, and GpdslError for several values.
    """
    if not isinstance(text, str):
        raise GpdslError(f'probability: expected a condition as text, as "y > 3", got {quoted(repr(text))[:60]}')
    if UNFINISHED.search(text):
        raise GpdslError(
            f"probability: {quoted(repr(text))[:60]} has no end; write a condition such as `y > 3 and rate < 2`"
        )
    written = text
    text = without_words(
        beliefs.program, text, {*beliefs.program.declarations.params, *names_of(beliefs)}, calendar, unseen
    )
    text, at_level = without_subscripts(beliefs.program, text)
    for sign, word in {"&": "and", "|": "or"}.items():
        if sign in text:
            raise GpdslError(f"probability: {quoted(written)} has `{sign}`; conditions are joined by `{word}`")
    if several := re.search(r"(\w+)\s+(?:not\s+)?in\s*[\[({]", text):
        remedy = f"write `{several[1]} == 1 or {several[1]} == 2`, words of levels in quotes"
        raise GpdslError(f"probability: {quoted(written)}: there is no `in`; {remedy}")
    alone = re.fullmatch(r"\s*(not\s)?\s*(?P<name>\w+)\s*", text)
    if alone and alone["name"] in names_of(beliefs):
        raise GpdslError(f"probability: {quoted(written)} compares nothing; write `{alone['name']} == 1`, or `> 0`")
    if any(each in text for each in '\n\r#"'):
        raise GpdslError('probability: expected one condition on one line, as in "y > 3 and rate < 2"')
    _refuse_others(text, quoted(written))
    translator, declared = beliefs.program.translator, beliefs.program.declarations
    lines = ["model asked", *(f"index {n} in 1..{translator.size(i.axis)}" for n, i in declared.indices.items())]
    for name in (*declared.inputs, *declared.consts, *declared.params, *names_of(beliefs), *at_level):
        axes = () if name in at_level else declared.axes_of(name)
        sizes = [axis.name if axis.name in declared.indices else str(translator.size(axis)) for axis in axes]
        lines.append(f"input {name} : real" + (f"[{', '.join(map(str, sizes))}]" if sizes else ""))
    lines += ["output _none : real", "_none ~ Normal(0, 1)", f"{BEFORE}{text} then 1 else 0"]
    try:
        asked = _compiled("\n".join(lines), "<condition>")
        Translator(asked, {}).scalar(asked.lets["_holds"].cases[0].body)  # says what has no value, `y > x / 0`
    except ModelError as error:
        names = listed(f"`{name}`" for name in (*declared.inputs, *declared.params, *names_of(beliefs)))
        kinds = {"latent": declared.latents, "row": declared.rows, "let": declared.lets, "output": declared.outputs}
        sorts = {name: SORTS[kind] for kind, table in kinds.items() for name in table}
        own = tuple(_moved(_said(each, names, sorts), len(BEFORE), len(written)) for each in error.diagnostics)
        raise ModelError(Source(written, "<condition>"), own) from None
    found = asked.lets["_holds"]
    if found.axes:
        raise GpdslError(
            f"probability: {text!r} has a value for each {found.axes[0].describe()}; name an element, as in "
            "`y[1] > 3`, or say `max(p, y[p]) > 3`"
        )
    condition = Condition(asked, beliefs, known, unseen, at_level)
    return replace(condition, units=units_of(condition))
