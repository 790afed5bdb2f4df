"""Binding: the declared inputs and outputs of a model to the columns of a table, with everything checked."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace

import numpy as np

from gpdsl.data import errors
from gpdsl.data.bound import Data, Sizes, level_columns, wrong_level
from gpdsl.data.columns import Found, Wanted, find, in_order_of, places
from gpdsl.data.file_mistakes import UnknownLevel
from gpdsl.data.files import read_table
from gpdsl.data.looks import truths_as, warn_of_spellings
from gpdsl.data.table import Table, pieces, stays_on_disk
from gpdsl.data.times import Calendar, moments_of
from gpdsl.data.values import (
    Level,
    Wrong,
    as_numbers,
    binary_values,
    distinct_levels,
    input_values,
    label_values,
    output_values,
    place_of,
    two_words,
)
from gpdsl.errors import GpdslWarning
from gpdsl.language import model as m
from gpdsl.language.model import Declarations, Input, Output

# Labels: the levels of each index that is a label's, in their order, and the numbers that inputs of levels become.

MAX_GROUPS = 1_000_000


def labelled(declarations: m.Declarations, index: str) -> list[m.Input | m.Output]:
    """The inputs and outputs whose levels are those of an index."""
    return [each for each in declarations.labelled if each.label is not None and each.label.name == index]


def unseen_levels(
    declarations: m.Declarations, found: Found, known: Sequence[Level], further: Sequence[Level]
) -> tuple[Level, ...]:
    """Levels that an earlier fit does not know: `further`, of other inputs and rows, and then those of this input.

    Raises Wrong where something has values for the `known` ones alone.
    """
    axis = _index(declarations, found)
    index = axis.name or ""
    if axis.size is not None:
        return ()
    names = {*known, *map(str, known)}  # a truth is a number, too
    new = [level for level in distinct_levels([found], MAX_GROUPS) if not {level, str(level)} & names]
    if new and (needs := _needs_levels(declarations, found.name)):
        numbers = label_values(found, axis, [*known, *new])
        column, row, at = place_of(found, numbers >= len(known))
        value = str(new[int(numbers[at]) - len(known)])
        raise Wrong(UnknownLevel(column, row, value, index, needs, _remedy(declarations, needs, index, found.name)))
    names = set(map(str, further))
    return (*further, *(level for level in new if str(level) not in names))


def numbered(declarations: m.Declarations, found: Found, levels: Sequence[Level]) -> np.ndarray:
    """The numbers of an input's levels, from 1. Raises Wrong for a missing one, and for one that is no level."""
    values = label_values(found, _index(declarations, found), levels)
    if (missing := np.isnan(values)).any():
        column, row, _ = place_of(found, missing)
        raise Wrong(errors.NotFinite(column, row, "missing, as NA, None and null are in a text file"))
    return values + 1.0


def _index(declarations: m.Declarations, found: Found) -> m.Axis:
    label = declarations.inputs[found.name].label
    assert label is not None
    return label


def _needs_levels(declarations: m.Declarations, label: str) -> str:
    """Something that has a value for each level of an input, and no prior that says what others have; or nothing."""
    tables = declarations.lets, declarations.latents, {o.span: o for o in declarations.observations}
    for read in (each for table in tables for declared in table.values() for each in _reads(declared)):
        if m.At(label) in read.subscripts:
            return read.name
    return next((column.latent for column in level_columns(declarations) if column.name == label), "")


def _remedy(declarations: m.Declarations, needs: str, index: str, label: str) -> str:
    """How new levels get values of a quantity."""
    param = declarations.params.get(needs)
    if param is None or param.constraint not in {"real", "positive", "unit"}:
        return f"fit again with this level, or leave its rows out: nothing says what `{needs}` is there"
    bounded = param.lower is not None or param.upper is not None
    inferred, normal = "new levels follow priors that are inferred", "real ~ Normal(mu, tau)"
    if param.constraint == "unit" and not bounded:
        return f"{inferred}: `param z[{index}] : {normal}`, with `sigmoid(z[{label}])` for `{needs}[{label}]`"
    form = f"`param {needs}[{index}] : {'positive ~ LogNormal(m, s)' if param.constraint == 'positive' else normal}`"
    if bounded or param.prior is not None:
        return f"{inferred}: declare it {form}"
    return f"give `{needs}` a prior, {form}: new levels then follow it"


def _reads(node: object) -> Iterable[m.Read]:
    """Every read inside a declaration."""
    if isinstance(node, m.Read):
        yield node
    inside: Iterable[object] = ()
    if isinstance(node, tuple):
        inside = node
    elif isinstance(node, Mapping):
        inside = node.values()
    elif is_dataclass(node):
        inside = [getattr(node, each.name) for each in fields(node)]
    for each in inside:
        yield from _reads(each)


Columns = Mapping[str, str | Sequence[str]]

SHOWN_CONSTANTS = 3
"""Constant columns that a warning names one by one."""


def bind(
    declarations: Declarations,
    source: object,
    *,
    sizes: Mapping[str, int] | None = None,
    levels: Mapping[str, tuple] | None = None,
    before: Mapping[str, tuple] | None = None,
    unseen: Mapping[str, tuple] | None = None,
    calendar: Calendar | None = None,
    columns: Columns | None = None,
    kept: Columns | None = None,
    outputs_required: bool | None = True,
) -> Data:
    """Find, check and arrange the columns of a model in `source` (anything `read_table` takes).

    `columns` maps model names to data names (a list of them for a vector), and so does `kept`, of an earlier fit, where
    the data have these. `sizes`, `levels` and `calendar` are those of an earlier fit: they are enforced, and with sizes
    a constant input is no mistake; the levels `before` keep their order. `unseen` are those of other rows that this fit
    does not know: they have the same numbers in these. Without `outputs_required`, absent outputs are left out; of
    None, outputs are not looked at, where inputs count the rows. Data that are bound stay as they are. Raises DataError
    with every mistake found.
    """
    if isinstance(source, Data):
        return source
    table = read_table(source)
    binding = _Binding(declarations, table, columns or {}, kept or {}, Sizes(declarations, sizes or {}, table.source))
    if columns:
        binding.refuse_unknown_mappings()
    founds, rows = binding.find_all(outputs_required)
    founds = in_order_of(before, declarations, founds) if before else founds
    founds = truths_as(levels, declarations, founds) if levels else founds
    numbers = [name for name, each in declarations.inputs.items() if name in founds and each.label is None]
    inputs = {name: binding.input(founds[name], calendar) for name in numbers}
    moments = {name: values for name, values in inputs.items() if values.dtype.kind == "M"}
    if moments:
        # One that begins where that of an earlier fit does, or at the first of all times.
        origin = str(min(values.min() for values in moments.values())) if calendar is None else calendar.origin
        calendar = Calendar(origin, binding.zones)
        units = {name: declarations.inputs[name].unit for name in moments}
        inputs |= {name: calendar.numbers(values, units[name]) for name, values in moments.items()}
    known_levels = binding.levels(founds, levels)
    if len(numbers) < len(declarations.inputs):
        binding.unseen = dict(unseen or {})
        inputs |= binding.labels(founds, known_levels, fitted=levels is not None)
    binding.refuse_levels(founds, inputs)
    coded = {name: binding.output(founds[name], known_levels) for name in declarations.outputs if name in founds}
    if sizes is None:
        binding.refuse_constants(founds, inputs)
    if outputs_required:
        # A fit needs some value of every output; to score a fit, any value of any output will do.
        absent = [name for name, values in coded.items() if np.isnan(values).all()]
        if sizes is None or len(absent) == len(coded):
            binding.mistakes += [errors.NothingObserved(name) for name in absent]
    binding.finish()
    observed = {name: ~np.isnan(values) for name, values in coded.items()}
    outputs = {name: np.where(observed[name], values, 0.0) for name, values in coded.items()}
    names = {name: found.columns for name, found in founds.items()}
    sizes = binding.sizes.bound()
    bound = Data(rows, inputs, outputs, observed, sizes, known_levels, names, table.source, moments)
    return replace(bound, calendar=calendar if moments else None, unseen=binding.unseen)


@dataclass
class _Binding:
    """The state of one `bind`: mistakes collected so far, and the sizes known so far."""

    declarations: Declarations
    table: Table
    columns: Columns
    kept: Columns
    sizes: Sizes
    mistakes: list[errors.DataMistake] = field(default_factory=list)
    zones: dict[str, str] = field(default_factory=dict)
    unseen: dict[str, tuple[Level, ...]] = field(default_factory=dict)

    def finish(self) -> None:
        """Raise the mistakes, if any."""
        if self.mistakes:
            raise errors.DataError(*self.mistakes, source=self.table.source, lines=self.table.lines)

    def refuse_unknown_mappings(self) -> None:
        names = {**self.declarations.inputs, **self.declarations.outputs}
        for name in self.columns:
            if name not in names:
                self.mistakes.append(errors.UnknownMapping(name, errors.listed(f"`{each}`" for each in names)))
        self.finish()

    def find_all(self, outputs_required: bool | None) -> tuple[dict[str, Found], int]:
        """Every quantity's columns, and their rows; inputs first, because sizes are learnt in this order."""
        quantities: list[Input | Output] = [*self.declarations.inputs.values(), *self.declarations.outputs.values()]
        named = places(self.table, [each.name for each in quantities], self.columns, self.kept)
        owners = {c: name for name, its in named.items() for c in ([its] if isinstance(its, str) else its)}
        founds: dict[str, Found] = {}
        for each in quantities:
            kind = "input" if isinstance(each, Input) else "output"
            if kind == "output" and outputs_required is None and self.declarations.inputs:
                continue
            sizes = tuple(self.sizes.of(axis) for axis in each.axes)
            optional = kind == "output" and not outputs_required
            why, said = self.sizes.why(each.axes), each.name in {**self.kept, **self.columns}
            wanted = Wanted(kind, each.name, each.axes, sizes, named[each.name], optional, why, said, owners)
            try:
                found = find(self.table, wanted)
            except errors.DataError as problem:
                self.mistakes += problem.mistakes
                continue
            if found is not None:
                founds[each.name] = found
                self.sizes.learn(each.name, each.axes, found.values.shape[1:])
        self.finish()
        lengths = {name: found.values.shape[0] for name, found in founds.items()}
        first, rows = next(iter(lengths.items())) if lengths else ("", self.table.rows)
        self.mistakes += [errors.DifferentLengths(n, k, first, rows) for n, k in lengths.items() if k != rows]
        if rows == 0:
            self.mistakes = [errors.NoRows()]
        self.finish()
        return founds, rows

    def input(self, found: Found, calendar: Calendar | None) -> np.ndarray:
        """Checked values of an input, moments of a time; or the unchecked ones after noting the mistake."""
        kind = self.declarations.inputs[found.name].kind
        try:
            if kind != "time":
                return input_values(found, kind)
            known = None if calendar is None else calendar.zones.get(found.name)
            moments, self.zones[found.name] = moments_of(found, known, self.declarations.inputs[found.name].unit)
            return moments
        except Wrong as wrong:
            self.mistakes.append(wrong.mistake)
            return found.values

    def refuse_levels(self, founds: Mapping[str, Found], inputs: Mapping[str, np.ndarray]) -> None:
        """Inputs that number the levels of a kernel must not leave them."""
        for column in level_columns(self.declarations):
            size = self.sizes.of(column.axis)
            if column.name in inputs and size is not None:
                mistake = wrong_level(column, founds[column.name], inputs[column.name], size)
                self.mistakes += [mistake] if mistake is not None else []

    def levels(self, founds: Mapping[str, Found], given: Mapping[str, tuple] | None) -> dict[str, tuple[Level, ...]]:
        """Labels of each index that is a label's: given by an earlier fit, declared, counted, or found in the data; and
        the words of binary outputs that have two of their own, by the names of these."""
        result: dict[str, tuple[Level, ...]] = {name: tuple(values) for name, values in (given or {}).items()}
        for name, index in self.declarations.indices.items():
            users = labelled(self.declarations, name)
            if name in result or not users:
                continue
            size = self.sizes.of(index.axis)
            if index.levels is not None:
                result[name] = tuple(index.levels)
            elif size is not None:
                result[name] = tuple(range(1, size + 1))
            else:
                result[name] = self._found_levels(users, founds)
                self._refuse_unordered(name, founds, result[name])
                self.sizes.learn(name, (index.axis,), (len(result[name]),))
        for name, output in self.declarations.outputs.items():
            if output.kind == "binary" and name in founds and given is None and (words := two_words(founds[name])):
                result[name] = words
        return result

    def labels(self, founds: Mapping[str, Found], levels: Mapping[str, tuple], fitted: bool) -> dict[str, np.ndarray]:
        """The numbers of the levels of inputs; `fitted` says that these are those of an earlier fit.

        Others then get numbers above them, one for each name in all inputs of an index.
        """
        result: dict[str, np.ndarray] = {}
        for each in (each for each in self.declarations.inputs.values() if each.label is not None):
            if each.name not in founds:
                continue
            index, found = str(each.label and each.label.name), founds[each.name]
            try:
                if fitted:
                    further = self.unseen.get(index, ())
                    self.unseen[index] = unseen_levels(self.declarations, found, levels[index], further)
                    warn_of_spellings(found.columns[0], self.unseen[index], levels[index])
                known = (*levels[index], *self.unseen.get(index, ()))
                result[each.name] = numbered(self.declarations, found, known)
            except Wrong as wrong:
                self.mistakes.append(wrong.mistake)
                result[each.name] = np.full(len(found.values), np.nan)
        return result

    def _refuse_unordered(self, index: str, founds: Mapping[str, Found], levels: tuple[Level, ...]) -> None:
        """Words have no order but the alphabet's, which is hardly ever meant, and a categorical's, as numbers have."""
        ordinals = [o for o in labelled(self.declarations, index) if o.kind == "ordinal" and o.name in founds]
        for output in ordinals if levels and not as_numbers(levels) else ():
            if not {*map(str, levels)} <= {*(found := founds[output.name]).order()}:
                self.mistakes.append(
                    errors.OrderUnknown(found.columns[0], index, ", ".join(f'"{each}"' for each in levels))
                )

    def _found_levels(self, users: Sequence[Input | Output], founds: Mapping[str, Found]) -> tuple[Level, ...]:
        """The distinct labels of the columns of an index. Raises DataError for more of them than labels have."""
        try:
            own = [founds[user.name] for user in users if user.name in founds]
            inputs = any(isinstance(user, m.Input) for user in users)
            return distinct_levels(own, MAX_GROUPS) if inputs else distinct_levels(own)
        except Wrong as wrong:
            self.mistakes.append(wrong.mistake)
            self.finish()
            raise

    def output(self, found: Found, levels: Mapping[str, tuple[Level, ...]]) -> np.ndarray:
        """Coded values of an output, in memory, NaN where not observed; all NaN after noting a mistake."""
        if stays_on_disk(found.values):
            found = replace(found, values=np.asarray(found.values, np.float64))
        declared = self.declarations.outputs[found.name]
        try:
            if declared.label is not None:
                return label_values(found, declared.label, levels[declared.label.name or ""])
            if declared.kind == "binary":
                return binary_values(found, levels.get(found.name, ()))
            return output_values(found, declared.kind)
        except Wrong as wrong:
            self.mistakes.append(wrong.mistake)
            return np.zeros(found.values.shape)

    def refuse_constants(self, founds: Mapping[str, Found], inputs: Mapping[str, np.ndarray]) -> None:
        """Inputs that never vary although a latent is a function of them (with one row, nothing can vary).

        Of an input with several columns some may be constant, as the corners of images are: a warning says which.
        """
        for name, values in inputs.items():
            latents = [f"`{each.name}`" for each in self.declarations.latents.values() if name in each.arguments]
            if not latents or values.shape[0] < 2 or values.dtype == object:
                continue
            alike = [(piece == values[:1]).all(axis=0) for _, piece in pieces(values)]
            constant = np.atleast_1d(np.all(alike, axis=0)).ravel()
            first = values.reshape(values.shape[0], -1)[0]
            words = self.declarations.inputs[name].label is not None
            said = founds[name].values.reshape(len(values), -1)[0] if words else first
            mark = "`" if words else ""
            found = [
                (founds[name].columns[k], f"{mark}{errors.shown(said[k])}{mark}") for k in np.flatnonzero(constant)
            ]
            if constant.all():
                self.mistakes += [
                    errors.ConstantColumn(name, column, value, errors.listed(latents)) for column, value in found
                ]
            elif found:
                _warn_of_constants(name, found, len(constant), errors.listed(latents))


def _warn_of_constants(name: str, found: Sequence[tuple[str, str]], columns: int, latents: str) -> None:
    named = ", ".join(f"`{column}` is {value}" for column, value in found[:SHOWN_CONSTANTS])
    more = f" and {len(found) - SHOWN_CONSTANTS} more" if len(found) > SHOWN_CONSTANTS else ""
    warnings.warn(
        f"{len(found)} of the {columns} columns of input `{name}` never vary ({named}{more}): nothing can be learnt "
        f"about how {latents} varies with them, and a length-scale of their own stays where it starts",
        GpdslWarning,
        stacklevel=5,
    )
