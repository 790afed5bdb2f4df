"""What a saved fit must hold to be one: types, domains, shapes, and that its parts belong together.

A file may be damaged, or edited by hand. What it says is compared with what the model in it needs and with what else
the file says, so that a fit that loads can be used. What does not fit raises `Damaged`, which names it.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gpdsl.data import Calendar
from gpdsl.data.values import in_order, two_valued
from gpdsl.errors import GpdslError, need, shown
from gpdsl.forward import Usage
from gpdsl.inference.inducing.registered import registered_features
from gpdsl.inference.plan.options import Choice, Options, WeightChoice
from gpdsl.language.inducing import per_latent, read_features
from gpdsl.language.model import Axis, Declarations, Input, Output
from gpdsl.language.options import OPTIONS, check_option
from gpdsl.language.source import MAX_ELEMENTS, Part, Source
from gpdsl.program.program import Program
from gpdsl.symbolic.densities import DENSITIES

_ZONE = re.compile(r"[A-Za-z0-9_+:/-]{0,64}")


def _whole(value: object, least: int, what: str) -> None:
    fine = isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**63
    need(fine, f"{what} is {shown(value)}: expected a whole number of at least {least}")


def _number(value: object, least: float, what: str) -> None:
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    need(plain and least <= float(value) < math.inf, f"{what} is {shown(value)}: expected a number")  # type: ignore[arg-type]


def _texts(values: object, what: str) -> None:
    need(isinstance(values, list) and all(isinstance(each, str) for each in values), f"{what}: expected texts")


def check_header(header: Mapping[str, Any]) -> None:
    """That everything is of its type, as far as that can be told without the model."""
    _texts([header[name] for name in ("model", "name", "message")], "model, name and message")
    _texts(header["notes"], "notes")
    need(isinstance(header.get("registered", {}), dict), "registered: expected a table of distributions")
    need(isinstance(header.get("features", {}), dict), "features: expected a table of inducing features")
    _whole(header["rows"], 1, "rows")
    for name, least in {"jitter": 0.0, "elbo": -math.inf, "seconds": 0.0, "compile_seconds": 0.0}.items():
        _number(header[name], least, name)
    error, loss = header["elbo_se"], header["inducing_loss"]
    plain = isinstance(error, (int, float)) and not isinstance(error, bool)
    need(plain and not error < 0, f"elbo_se is {shown(error)}: expected a number of at least 0")
    if loss is not None:
        _number(loss, -math.inf, "inducing_loss")
    need(isinstance(header["interrupted"], bool), f"interrupted is {shown(header['interrupted'])}")


def check_registered(path: Path, header: Mapping[str, Any]) -> None:
    """That this process knows what was registered for a fit: distributions by their log densities, and features."""
    for name, wanted in header.get("features", {}).items():
        found = registered_features(f"{name}(1)").get(name, f"no `{name}`")
        if found != wanted:
            how = "register those of the fit first (gpdsl.register_inducing, or --forward file.py)"
            raise GpdslError(f"{path} was fitted with {str(wanted)[:300]}\n  and here {found} is registered; {how}")
    for name, wanted in header.get("registered", {}).items():
        said = f"{path} was fitted with {str(wanted)[:300]}"
        if name not in DENSITIES:
            how = "(gpdsl.register_distribution, or --forward file.py)"
            raise GpdslError(f"{said}\n  and here no `{name}` is registered; register it first {how}")
        if DENSITIES[name].said != wanted:
            found = DENSITIES[name].said[:300]
            raise GpdslError(f"{said}\n  and here {found} is registered; register that of the fit first")


def read_source(header: Mapping[str, Any]) -> Source:
    """The text of the model with those of the files it used, which are not looked for again."""
    parts: list[Part] = []
    end = header["model"].count("\n") + 1
    for entry in header.get("used", []):
        need(isinstance(entry, list) and len(entry) == 2, f"used is {shown(entry)}: expected a line and a name")
        line, name = entry
        _whole(line, parts[-1].line + 1 if parts else 2, "used: a line")
        _texts([name], "used: a name")
        need(line <= end, "used: more than the text holds")
        parts.append(Part(line, name))
    return Source(header["model"], header["name"], tuple(parts))


def check_sizes(declarations: Declarations, header: Mapping[str, Any]) -> None:
    """Sizes, levels and names of columns, before anything is built of them."""
    sizes, levels, columns, digests = (header[name] for name in ("sizes", "levels", "columns", "digests"))
    for value in (sizes, levels, columns, digests):
        need(isinstance(value, dict), f"{shown(value)}: expected a table of sizes, levels, columns or digests")
    need(digests.keys() == {**declarations.inputs, **declarations.outputs}.keys(), "digests: not those of the data")
    _texts([*digests.values()], "digests")
    for name, value in columns.items():
        need(name in {**declarations.inputs, **declarations.outputs}, f"columns: nothing is called {name!r}")
        _texts([value] if isinstance(value, str) else value, "columns")
    letters = {axis.dimension for _, axes in _quantities(declarations) for axis in axes} - {None}
    need(sizes.keys() == letters, "sizes: not those of the axes of the model")
    for name, value in sizes.items():
        _whole(value, 1, f"the size {name}")
    count = elements_of(declarations, sizes)
    need(header["elements"] == count, "sizes: not those of the quantities that were fitted")
    need(count <= 10 * MAX_ELEMENTS, "sizes: beyond what anything is fitted to")
    for name, value in columns.items():
        lengths = [_length(axis, sizes) for axis in declarations.axes_of(name)]
        need(isinstance(value, str) or lengths == [len(value)], f"columns: {name} has another number of columns")
    labels = [each.label for each in labelled(declarations) if each.label is not None]
    words = {name for name, each in declarations.outputs.items() if each.kind == "binary"} & levels.keys()
    need(levels.keys() == {axis.name for axis in labels} | words, "levels: not those of the labels of the model")
    for name in words:
        two = levels[name]
        need(isinstance(two, list) and len(two) == 2, f"levels of {name}")
        need(two == [-1, 1] or all(isinstance(each, str) for each in two), f"levels of {name}")
        need(two[0] != two[1], f"levels of {name}: one word twice")
        need(not two_valued(two) or two == in_order(two), f"levels of {name}: yes before no")
    for axis in labels:
        _check_levels(declarations, axis, levels[axis.name], _length(axis, sizes))


def _check_levels(declarations: Declarations, axis: Axis, values: object, count: int) -> None:
    need(isinstance(values, list) and len(values) == count, f"levels of {axis.name}: expected a list of {count}")
    assert isinstance(values, list)
    for each in values:
        if not isinstance(each, str | bool):
            _number(each, -math.inf, f"a level of {axis.name}")
    need(len({*values}) == count, f"levels of {axis.name}: one of them twice")
    index = declarations.indices.get(axis.name or "")
    if index is not None and index.levels is not None:
        need(values == [*index.levels], f"levels of {axis.name}: not those of the model")


def labelled(declarations: Declarations) -> list[Input | Output]:
    """The inputs and outputs of levels."""
    every: list[Input | Output] = [*declarations.inputs.values(), *declarations.outputs.values()]
    return [each for each in every if each.label is not None]


def elements_of(declarations: Declarations, sizes: Mapping[str, int]) -> int:
    """How many numbers all quantities of a model have in a row, which every size has a part in."""
    return sum(math.prod(_length(axis, sizes) for axis in axes) for _, axes in _quantities(declarations))


def _length(axis: Axis, sizes: Mapping[str, int]) -> int:
    return sizes[axis.dimension] if axis.dimension is not None else int(axis.size or 1)


def _quantities(d: Declarations) -> Iterator[tuple[str, tuple[Axis, ...]]]:
    for table in (d.inputs, d.outputs, d.consts, d.params, d.rows, d.latents, d.lets):
        for name in table:
            yield name, d.axes_of(name)
    for each in labelled(d):
        yield each.name, (each.label,) if each.label is not None else ()


def read_options(kept: Mapping[str, Any]) -> Options:
    """The options of a fit, each checked as when it was given."""
    need(kept.keys() == OPTIONS.keys(), "options: not those there are")
    open_ones = {name for name, option in OPTIONS.items() if option.default is None}
    for name, value in kept.items():
        need(value is not None or name in open_ones, f"options: {name} is missing")
    known: dict[str, Any] = {name: v if v is None else check_option(name, v) for name, v in kept.items()}
    return Options(**known)


def read_choice(kept: Mapping[str, Any]) -> Choice:
    """The decisions of the plan."""
    need(isinstance(kept["dense"], bool), f"choice: dense is {shown(kept['dense'])}")
    for name, least in {"inducing": 0, "batch": 0, "samples": 0, "steps": 1}.items():
        _whole(kept[name], least, f"choice: {name}")
    for name in ("learning_rate", "power"):
        _number(kept[name], 0.0, f"choice: {name}")
    _texts([kept[name] for name in ("posterior", "optimizer", "inducing_start", "features")], "choice")
    need(not kept["features"] or read_features(kept["features"]), "choice: features are none")
    own = kept.get("own", {})
    need(not own or check_option("inducing", own) == own, "choice: own is not what latents can have")
    _texts([*kept["reasons"], *kept["reasons"].values()], "choice: reasons")
    sizes = {name: tuple(kept.get(name, ())) for name in ("exact", "grid", "sets")}
    for name, each in sizes.items():
        for size in each:
            _whole(size, 1, f"choice: {name}")
    weights = kept["weights"] if kept["weights"] is None else WeightChoice(**kept["weights"])
    if weights is not None:
        _texts([weights.sums], "choice: sums")
        for name, value in dataclasses.asdict(weights).items():
            if name != "sums":
                _whole(value, 0, f"choice: {name}")
    return Choice(**{**kept, "weights": weights, **sizes})


def check_own(program: Program, options: Options, choice: Choice) -> None:
    """That inducing points by name are those of the latents of the model.

    Layers have their own numbers without being asked: inner latents other ones than the last.
    """
    asked, latents = options.inducing, program.declarations.latents
    if isinstance(asked, Mapping):
        need(per_latent(asked, latents) == asked, "options: inducing is not that of the latents")
    odd = not (program.inner or isinstance(asked, Mapping)) or choice.own.keys() != latents.keys()
    need(not (choice.own and odd), "choice: own is not that of the latents")


def read_bounds(kept: Any) -> tuple[float, float] | None:
    """The least and the most that inducing points can have lost."""
    if kept is None:
        return None
    least, most = kept
    for value in (least, most):
        need(isinstance(value, float) and value == value, f"inducing_loss_bounds: {shown(value)} is no number")
    return least, most


def read_calendar(declarations: Declarations, kept: Any) -> Calendar | None:
    """When the times of a fit count from, and the zones of the inputs that are times."""
    times = [each.name for each in declarations.inputs.values() if each.kind == "time"]
    need((kept is None) == (not times), "calendar: expected one where inputs are times")
    if kept is None:
        return None
    calendar = Calendar(**kept)
    _texts([calendar.origin, *calendar.zones.values()], "calendar")
    origin = np.datetime64(calendar.origin, "us")
    need(str(origin) == calendar.origin and not np.isnat(origin), f"calendar: it begins at {shown(calendar.origin)}")
    need(calendar.zones.keys() == set(times), "calendar: not the inputs that are times")
    need(all(_ZONE.fullmatch(each) for each in calendar.zones.values()), "calendar: odd names of zones")
    return calendar


def read_usage(kept: Mapping[str, Any]) -> Usage:
    """The counts of evaluations."""
    for name, value in kept.items():
        (_number if name == "seconds" else _whole)(value, 0, f"usage: {name}")
    return Usage(**kept)


def check_same(said: object, again: object, where: str = "the header") -> None:
    """That a fit writes what it was read from: whatever was left out, converted or not understood shows here."""
    need(type(said) is type(again), f"{where} is {shown(said)}: expected {shown(again)}")
    if isinstance(said, dict) and isinstance(again, dict):
        odd = sorted(map(str, said.keys() ^ again.keys()))
        need(not odd, f"{where}: {', '.join(odd)[:60]} is missing or unknown")
        for name in said:
            check_same(said[name], again[name], str(name)[:60])
    elif isinstance(said, list) and isinstance(again, list):
        need(len(said) == len(again), f"{where}: expected {len(again)} elements")
        for one, other in zip(said, again, strict=True):
            check_same(one, other, where)
    elif isinstance(said, np.ndarray) and isinstance(again, np.ndarray):
        alike = said.dtype == again.dtype and said.shape == again.shape
        need(alike and np.array_equal(said, again, equal_nan=True), f"{where}: expected another shape or type")
    else:
        need(said == again or said != said, f"{where} is {shown(said)}: expected {shown(again)}")
