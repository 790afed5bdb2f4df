"""`Model.sample_prior` and `gpdsl simulate`: from a model and a few choices to a data set and the truth behind it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpdsl.data import Calendar, DataError, bind, read_table
from gpdsl.data.bound import Sizes
from gpdsl.data.columns import STYLES
from gpdsl.data.convert import column_of
from gpdsl.data.errors import listed
from gpdsl.data.files import write_table
from gpdsl.data.looks import look
from gpdsl.data.table import Table
from gpdsl.data.times import as_data
from gpdsl.errors import plural
from gpdsl.forward import resolve
from gpdsl.language import model as m
from gpdsl.language.calls import Named, spoken
from gpdsl.language.takes import Whole
from gpdsl.language.vocabulary import closest
from gpdsl.program.cache import precision
from gpdsl.simulation import processes
from gpdsl.simulation.errors import TooManyPoints, UnknownRequest, WrongRequest
from gpdsl.simulation.world import World, make_parameters

if TYPE_CHECKING:
    from gpdsl.model import Model


# `Simulation`: a simulated data set, the truth behind it, and both as columns of a table.


@spoken
@dataclass(frozen=True, eq=False)
class Simulation:
    """One draw from a model's prior. Arrays are [rows, *axes].

    `data` holds inputs and outputs, as `Model.fit` takes them; `latents`, `lets` and `row_variables` what is behind
    them; `functionals` values of `f(a)` and `D(f, x)`, by these names; `parameters` the values used. `assumed` are
    sizes nobody gave, and `drawn` inputs nobody gave.
    """

    data: Mapping[str, np.ndarray]
    latents: Mapping[str, np.ndarray]
    functionals: Mapping[str, np.ndarray]
    lets: Mapping[str, np.ndarray]
    row_variables: Mapping[str, np.ndarray]
    parameters: Mapping[str, np.ndarray]
    sizes: Mapping[str, int]
    assumed: Mapping[str, int]
    drawn: tuple[str, ...]

    def __repr__(self) -> str:
        """One line: how many rows, and what was drawn."""
        rows = len(next(iter(self.data.values()), ()))
        behind = (*self.parameters, *self.row_variables, *self.latents, *self.lets)
        names = f"{', '.join(self.data)}" + (f"; behind them {', '.join(behind)}" if behind else "")
        return f"<gpdsl.Simulation: {plural(rows, 'row')} of {names}>"

    def table(self) -> dict[str, np.ndarray]:
        """The data as columns, one per element, named as gpdsl reads them: `x`, `x1`; `t[2,1]` of several axes."""
        table = _columns(self.data)
        short = {re.sub(r"\[(\d+)\]$", r"\1", column): each for column, each in table.items()}
        # Where `x1` is the name of another quantity, brackets tell which is which.
        return short if len(short) == len(table) else table

    def truth(self) -> dict[str, np.ndarray]:
        """Latents, functionals of them, row variables and lets as columns: `f`, `g[2]`, `f(a)`, `D(f, x)`."""
        return _columns({**self.row_variables, **self.latents, **self.functionals, **self.lets})

    def save(self, path: str | Path) -> None:
        """Write the data to a .csv, .tsv, .parquet or .npz file. Raises GpdslError when that fails."""
        write_table(self.table(), path)

    def save_truth(self, path: str | Path) -> None:
        """Write the truth to a file, as `save` does the data."""
        write_table(self.truth(), path)


def _columns(quantities: Mapping[str, np.ndarray]) -> dict[str, Any]:
    table = {}
    for name, values in quantities.items():
        for position in np.ndindex(*values.shape[1:]):
            column = STYLES[-1](name, tuple(each + 1 for each in position)) if position else name
            table[column] = values[(slice(None), *position)]
    return table


ROWS = 200
MAX_AXIS = 10_000
MAX_ROWS = 100_000
BEGIN = Calendar("2000-01-01", {})
"""When drawn times count from."""


def simulate(
    model: Model,
    data: Any = None,
    *,
    rows: int | None = None,
    seed: int = 0,
    parameters: Mapping[str, Any] | None = None,
    draw_parameters: bool = False,
    inputs: Mapping[str, Any] | None = None,
    sizes: Mapping[str, int] | None = None,
    columns: Mapping[str, Any] | None = None,
) -> Simulation:
    """See `Model.sample_prior`."""
    declarations, source = model.declarations, model.declarations.source.name
    _check_names(declarations, parameters or {}, inputs or {}, sizes or {})
    whole = Whole(0).read(seed)
    if whole is None:
        raise DataError(WrongRequest("seed", repr(seed), "a whole number from 0"), source=source)
    externals = resolve(declarations, model.externals)
    given, known, count, calendar, levels = _given(declarations, data, inputs or {}, dict(sizes or {}), columns, rows)
    free, assumed = _all_sizes(declarations, known)
    with precision("float64"), np.errstate(all="ignore"):
        world = World(declarations, free, count, {}, {}, externals, whole)
        world.parameters = make_parameters(world, parameters or {}, draw_parameters)
        world.inputs = {
            name: given[name] if name in given else processes.draw_input(world, name) for name in declarations.inputs
        }
        world.inputs |= processes.intervals_drawn(world, given)
        outputs = {name: _output(world, each, levels) for name, each in declarations.outputs.items()}
        latents = {name: world.own_value(each) for name, each in declarations.latents.items()}
        own = {(name, at) for name, each in declarations.latents.items() for at in processes.own_values(world, each)}
        lets = {name: _elements(world, "let", each).astype(float) for name, each in declarations.lets.items()}
        row_variables = {name: world.quantity(name) for name in declarations.rows}
    return Simulation(
        data=Named({**as_data(declarations.inputs, calendar, world.inputs, levels), **outputs}),
        latents=Named(latents),
        functionals={
            processes.shown(declarations, *key): values for key, values in world.latents.items() if key not in own
        },
        lets=Named(lets),
        row_variables=Named(row_variables),
        parameters=Named(world.parameters),
        sizes=free,
        assumed=assumed,
        drawn=tuple(name for name in declarations.inputs if name not in given),
    )


def _check_names(
    declarations: m.Declarations, parameters: Mapping[str, Any], inputs: Mapping[str, Any], sizes: Mapping[str, int]
) -> None:
    source = declarations.source.name
    requests = (
        ("parameter", parameters, list(declarations.params)),
        ("input", inputs, list(declarations.inputs)),
        ("size", sizes, list(dict.fromkeys(processes.letters(declarations)))),
    )
    for what, asked, known in requests:
        for name in asked:
            if name not in known:
                names = listed(f"`{each}`" for each in known) or "none"
                raise DataError(UnknownRequest(what, str(name), names, closest(str(name), known)), source=source)
    for letter, size in sizes.items():
        if not isinstance(size, int) or not 1 <= size <= MAX_AXIS:
            expected = f"a whole number from 1 to {MAX_AXIS}"
            raise DataError(WrongRequest(f"size {letter}", repr(size), expected), source=source)


def _given(
    declarations: m.Declarations,
    data: Any,
    inputs: Mapping[str, Any],
    sizes: dict[str, int],
    columns: Mapping[str, Any] | None,
    rows: int | None,
) -> tuple[dict[str, np.ndarray], dict[str, int], int, Calendar, dict[str, tuple]]:
    """Inputs that are given, sizes that follow, the number of rows, when times begin, and the words of labels."""
    source = declarations.source.name
    levels = {name: index.levels for name, index in declarations.indices.items() if index.levels is not None}
    if rows is not None and (not isinstance(rows, int) or rows < 1):
        raise DataError(WrongRequest("rows", repr(rows), "a whole number from 1"), source=source)
    table: Any = {name: column_of(name, values, "inputs") for name, values in inputs.items()}
    wanted = {name: declared for name, declared in declarations.inputs.items() if data is not None or name in inputs}
    if not wanted:
        _check_rows(declarations, rows or ROWS)
        return {}, sizes, rows or ROWS, BEGIN, levels
    table = read_table(table if data is None else data)
    # Outputs are what is simulated: inputs are read, and the words of labels.
    labels = {name: each for name, each in declarations.outputs.items() if _has_words(table, each, columns or {})}
    read = m.Declarations(**{**vars(declarations), "inputs": wanted, "outputs": labels})
    bound = bind(read, table, sizes=sizes, columns=columns, outputs_required=False)
    if rows is not None and rows != bound.rows:
        raise DataError(WrongRequest("rows", str(rows), f"the {bound.rows} rows of the inputs"), source=source)
    return dict(bound.inputs), {**sizes, **bound.sizes}, bound.rows, bound.calendar or BEGIN, {**levels, **bound.levels}


def _has_words(table: Table, output: m.Output, columns: Mapping[str, Any]) -> bool:
    """Whether an output is a label that has a column with something in it."""
    column = columns.get(output.name, output.name)
    if output.label is None or not isinstance(column, str) or column not in table.columns:
        return False
    return bool(look(table, column).missing < table.rows)


def _check_rows(declarations: m.Declarations, rows: int) -> None:
    """Refuse what no latent could be drawn at before anything is allocated for it."""
    source, latent = declarations.source.name, next(iter(declarations.latents), None)
    if latent is not None and rows > processes.MAX_POINTS:
        raise DataError(TooManyPoints(latent, rows, processes.MAX_POINTS), source=source)
    if rows > MAX_ROWS:
        raise DataError(WrongRequest("rows", str(rows), f"a whole number from 1 to {MAX_ROWS}"), source=source)


def _all_sizes(declarations: m.Declarations, known: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """The size of every letter, and those of them that are only assumed."""
    sizes = Sizes(declarations, known, declarations.source.name)
    found = dict(known)
    assumed = {}
    for letter in processes.letters(declarations):
        size = found.get(letter) or sizes.of(m.Axis(None, dimension=letter))
        if size is None:
            assumed[letter] = size = processes.DEFAULT_SIZE
        found[letter] = size
    return found, assumed


def _output(world: World, declared: m.Output, known: Mapping[str, tuple]) -> np.ndarray:
    """An output as data hold it, [rows, *axes]: labels by their names, what is not observed missing."""
    values = _elements(world, "output", declared)
    words = None if declared.label is None else known.get(str(declared.label.name))
    if words is None:
        return values
    levels = np.array([*words, None], dtype=object)
    return levels[np.where(np.isnan(values), len(levels), values).astype(int) - 1]


def _elements(world: World, sort: str, declared: m.Let | m.Output) -> np.ndarray:
    """All elements of what others define, [rows, *axes]."""
    found = [world.defined((sort, declared.name, element)) for element in world.positions(declared.axes)]
    parts = [np.broadcast_to(each, world.rows) for each in found]
    return np.stack(parts, axis=-1).reshape(world.rows, *world.shape(declared.axes))
