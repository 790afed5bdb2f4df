"""What a saved fit must hold to be one: types, domains, shapes, and that its parts belong together.

A file may be damaged, or edited by hand. What it says is compared with what the model in it needs and with what else
the file says, so that a fit that loads can be used. What does not fit raises `Damaged`, which names it.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from gpdsl.data import Calendar
from gpdsl.data.values import in_order, two_valued
from gpdsl.errors import GpdslError, need, shown
from gpdsl.forward import Usage
from gpdsl.inference.inducing.featured import outline_of, registered_features
from gpdsl.inference.plan.options import Choice, Options, WeightChoice
from gpdsl.kernels.functionals import Derivatives, Functionals, Integrals, blocks, outline
from gpdsl.language.inducing import per_latent, read_features
from gpdsl.language.model import Axis, Declarations
from gpdsl.language.options import OPTIONS, check_option
from gpdsl.language.vocabulary import MAX_ELEMENTS, Part, Source
from gpdsl.program.evaluation import functionals_at
from gpdsl.program.groups import Group, columns_of
from gpdsl.program.parameters import Bijector
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows
from gpdsl.program.standardise import refusal
from gpdsl.results.fit import Fit
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
    letters = {axis.dimension for _, axes in declarations.quantities() for axis in axes} - {None}
    need(sizes.keys() == letters, "sizes: not those of the axes of the model")
    for name, value in sizes.items():
        _whole(value, 1, f"the size {name}")
    count = elements_of(declarations, sizes)
    need(header["elements"] == count, "sizes: not those of the quantities that were fitted")
    need(count <= 10 * MAX_ELEMENTS, "sizes: beyond what anything is fitted to")
    for name, value in columns.items():
        lengths = [_length(axis, sizes) for axis in declarations.axes_of(name)]
        need(isinstance(value, str) or lengths == [len(value)], f"columns: {name} has another number of columns")
    labels = [each.label for each in declarations.labelled if each.label is not None]
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


def elements_of(declarations: Declarations, sizes: Mapping[str, int]) -> int:
    """How many numbers all quantities of a model have in a row, which every size has a part in."""
    return sum(math.prod(_length(axis, sizes) for axis in axes) for _, axes in declarations.quantities())


def _length(axis: Axis, sizes: Mapping[str, int]) -> int:
    return sizes[axis.dimension] if axis.dimension is not None else int(axis.size or 1)


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

    Layers have their own numbers without being asked, inner latents other ones than the last; and some have features.
    """
    asked, latents = options.inducing, program.declarations.latents
    if isinstance(asked, Mapping):
        need(per_latent(asked, latents) == asked, "options: inducing is not that of the latents")
    odd = not (program.inner or isinstance(asked, Mapping) or choice.families) or choice.own.keys() != latents.keys()
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
    need(type(said) is type(again), f"{where} is of type {type(said).__name__}: expected {type(again).__name__}")
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


# Arrays: numbers in their domains, of the shapes that the model and the choices ask for.
ROUNDED = 1e-6
"""How far rounding in single precision may take a parameter out of its domain, relative to its size."""

ADDED = 1e-4
"""How far from 1 the weights of a mixture and the elements of a simplex may add up in single precision."""


def check_arrays(arrays: Mapping[str, np.ndarray]) -> None:
    """That all are numbers, and finite but for the bound in the history."""
    for name, values in arrays.items():
        need(values.dtype.kind in "fi", f"the array {name} is of {values.dtype}")
        need(name == "history" or np.all(np.isfinite(values)), f"the array {name} has values that are not finite")
    history = arrays["history"]
    need(history.ndim == 2 and history.shape[1] == 3 and history.dtype == float, "history: expected three columns")
    need(np.all(np.isfinite(history[:, [0, 2]])), "history: steps or seconds that are not finite")


def check_fit(fit: Fit) -> None:
    """That the numbers of a fit are in their domains, and that its parts belong together."""
    translator, domains = fit.program.translator, fit.program.parameters.bijectors
    for name, param in fit.program.declarations.params.items():
        value, shape = fit.parameters[name], translator.shape(param.axes)
        need(value.dtype == float and value.shape == shape, f"parameter {name}: expected floats of shape {shape}")
        need(_inside(domains[name], value), f"parameter {name}: expected {domains[name].domain}")
    _check_standardised(fit)
    need((fit.options.engine == "qsgp") == (fit.choice.weights is not None), "engine: not that of the posterior")
    # The weights of a mixture.
    count, weights = fit.at_rows.components(fit.choice), np.asarray(fit.weights)
    need(weights.shape == (count,) and np.all(weights >= 0), "weights: not those of the components")
    need(weights.dtype in (float, np.dtype(fit.options.dtype)), "weights: not of the precision of the fit")
    need(abs(float(weights.sum()) - 1.0) < ADDED, "weights: do not add up to 1")

    _check_settings(fit)
    for group, points in zip(fit.program.groups, fit.inducing, strict=False):
        _check_points(fit, group, points)
    fit.at_rows.check(fit.choice, fit.options)


def _check_standardised(fit: Fit) -> None:
    """That what was standardised can be, by numbers of its shape."""
    d, (means, sds) = fit.program.declarations, (fit.standardised.means, fit.standardised.sds)
    need(means.keys() == sds.keys(), "standardised: means and deviations of different names")
    for name in sds:
        known = name in d.inputs or name in d.outputs
        need(known and not refusal(d, name), f"standardised: {shown(name)} cannot be")
        shape = fit.program.translator.shape(d.axes_of(name))
        for values in (means[name], sds[name]):
            need(values.dtype == float and values.shape == shape, f"standardised: {name} has another shape or type")
        need(np.all(sds[name] > 0), f"standardised: {name} has a deviation that is not positive")


def _inside(domain: Bijector, value: np.ndarray) -> bool:
    """Whether a value is in a domain, but for rounding: a sigmoid may end at 1.0, and an exponential at 0.0."""
    if not np.all(np.isfinite(value)):
        return False
    room = ROUNDED * np.abs(value) + np.finfo(float).tiny
    if domain.contains(value):
        return True
    if not domain.vector:
        each = zip(value.ravel(), room.ravel(), strict=True)
        return all(any(domain.contains(np.asarray(v + side * r)) for side in (0.0, 1.0, -1.0)) for v, r in each)
    simplex = np.maximum(value, np.finfo(float).tiny) / np.maximum(value.sum(axis=-1, keepdims=True), 0.5)
    adds_up = np.all(value >= 0) and np.all(np.abs(value.sum(axis=-1) - 1.0) < ADDED)
    apart = value + np.max(room) * np.arange(value.shape[-1])
    return bool(adds_up and domain.contains(simplex)) or domain.contains(apart)


def _check_settings(fit: Fit) -> None:
    """That every setting could be that of a fit without others, and that their weights add up to 1."""
    settings = fit.settings
    asked = fit.options.explores or fit.options.drawn or fit.options.hyperparameters == "auto"
    need(settings is None or asked, "settings: not what was asked for")
    if settings is None:
        return
    weights = settings.weights
    need(weights.dtype == float and weights.ndim == 1 and np.all(weights > 0), "settings: not weights of settings")
    need(abs(float(weights.sum()) - 1.0) < ADDED, "settings: weights that do not add up to 1")
    alone = replace(fit.options, hyperparameters="point", parameters="point")
    for name, values in settings.chains.items():
        axes = fit.program.translator.shape(fit.program.declarations.params[name].axes)
        need(values.ndim >= 2 and values.shape[2:] == axes, f"settings: draws of {shown(name)} of another shape")
    # That settings are the draws of chains that they are said to be.
    shapes = {each.shape[:2] for each in (*settings.chains.values(), *settings.statistics.values())}
    need(len(shapes) <= 1 and all(len(each) == 2 for each in shapes), "settings: chains of several shapes")
    kept = settings.kept
    need(kept.ndim == 1 and kept.dtype == int and np.all(np.diff(kept) > 0), "settings: not numbers of draws")
    if len(kept):
        chains, draws = next(iter(shapes), (0, 0))
        need(len(settings.each) == chains * len(kept), "settings: not as many as draws were kept")
        need(kept[0] >= 0 and kept[-1] < draws, "settings: draws beyond the ends of the chains")

    for each in settings.each:
        own = replace(fit, parameters=each.parameters, posterior=each.posterior, held=each.held)
        check_fit(replace(own, options=alone, settings=None))


def _check_points(fit: Fit, group: Group, points: Functionals) -> None:
    """That inducing functionals are of the kind that the group has, at points with as many columns."""
    translator, names = fit.program.translator, ", ".join(group.names)
    width, dtype = 0 if group.per_row else columns_of(group, translator), np.dtype(fit.options.dtype)
    for leaf in jax.tree.leaves(points):
        shaped = leaf.ndim == 2 and leaf.shape[1] == width and len(leaf) > 0
        need(shaped and leaf.dtype == dtype, f"inducing points of {names}: expected {width} columns of {dtype}")
    expected = {group.points} if group.points else {fit.rows} if group.per_row else {len(points)}
    need(len(points) in expected, f"inducing points of {names}: expected {expected}")
    need(outline(points) in _kinds(fit, group), f"inducing points of {names}: of another kind")


def _kinds(fit: Fit, group: Group) -> list[Any]:
    """The outlines that a group's inducing functionals may have: values, or what its rows read."""
    values: list[Any] = [["values"]]
    choice = fit.choice.of(group.names[0])
    if choice.features and not group.per_row:
        return [outline_of(fit.program, group, choice.features)]
    if group.points or group.per_row or not choice.dense:
        return values
    inputs, translator = fit.program.declarations.inputs, fit.program.translator
    one: dict[str, Any] = {name: np.zeros((1, *translator.shape(each.axes))) for name, each in inputs.items()}
    basis = fit.at_rows.by_data
    read = functionals_at(group, group.readings.basis if basis else group.readings.atoms, Rows(one, {}, {}))
    bent = any(isinstance(part, (Derivatives, Integrals)) for block in blocks(read) for _, part in block)
    return [outline(read)] if basis or bent else [*values, outline(read)]
