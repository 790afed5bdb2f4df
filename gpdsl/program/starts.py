"""Where parameters without a value start: from the scales of the data, by the equations of `symbolic.scales`.

Parameters of either sign are searched for in units of their scale, to the nearest power of ten, so that a search takes
the same steps whatever the units of the data. Those that multiply a latent start at random: at zero, or all at one
value, no step would lead away from it, or from that of their neighbours.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy.sparse.csgraph import connected_components

from gpdsl.data import Data
from gpdsl.language import model as m
from gpdsl.program.cycles import cycles, radians
from gpdsl.program.parameters import DataStarts, Parameters, in_units
from gpdsl.symbolic.data_scales import LOOKED_AT, DataScales, Size, Unknown, log_spread, solved
from gpdsl.symbolic.kernel_scales import add_latent, add_observation
from gpdsl.symbolic.scales import Scales, Unsized
from gpdsl.symbolic.translate import Translator

FAR = np.log(20.0)
"""A given value farther than this factor from the scale of the data is no start to rely on."""

EXTREME = 200.0
"""Logarithms of scales beyond this are those of no data."""


def start_from_data(
    parameters: Parameters, translator: Translator, data: Data, given: Collection[str], seed: int
) -> Parameters:
    """The same parameters, where those that are not `given` start from the data, searched for in units of the data."""
    known = DataScales(_values(translator, data))
    learnt = {n: translator.declarations.params[n] for n in parameters.initial}
    free = equations(translator, known, parameters.held)
    held = {n: v for n, v in parameters.initial.items() if n in given}
    rest = equations(translator, known, {**parameters.held, **held}) if held else free
    units, scales = _scales_of(free, learnt), _scales_of(rest, learnt)
    rng = np.random.default_rng([seed, 15])
    alternative = {n: _start(parameters, free, p, units[n], rng) for n, p in learnt.items()}
    own = {n: _start(parameters, rest, p, scales[n], rng) for n, p in learnt.items() if n not in given}
    chosen = {n: own.get(n, v) for n, v in parameters.initial.items()}
    drawn, elsewhere = free.loadings | free.frequencies, set(free.places)
    plain = {n for n, p in learnt.items() if p.constraint in {"real", "ordered"} and (p.lower, p.upper) == (None, None)}
    levels = tuple(n for n in learnt if n in plain - drawn - elsewhere)
    info = DataStarts(
        alternative,
        {n: np.exp(u) for n, u in units.items()},
        frozenset(given),
        levels,
        (
            *(n for n, p in learnt.items() if n in given and _far(parameters.initial[n], p, units[n])),
            *_far_levels(translator, known, parameters.initial, [n for n in levels if n in given]),
        ),
        tuple(n for n in learnt if n in drawn),
        tuple(n for n in learnt if n in free.lengths),
        *(_cycles(parameters, translator, known, given, chosen) if free.cyclic else ()),
    )
    # Parameters of either sign are searched for in units of the nearest power of ten.
    powers = {n: 10.0 ** np.round(units[n] / np.log(10.0)) for n in plain if learnt[n].constraint == "real"}
    moved = {n: in_units(parameters.bijectors[n], each) for n, each in powers.items() if np.any(each != 1.0)}
    return replace(parameters, bijectors={**parameters.bijectors, **moved}, initial=chosen, data=info)


def _cycles(
    parameters: Parameters,
    translator: Translator,
    known: DataScales,
    given: Collection[str],
    chosen: Mapping[str, np.ndarray],
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, float]]:
    """Where cycles of the outputs put periods and frequencies that have no value, as far as these may be there.

    Next best values of these, and how far a search goes at first from there, or from the values that are `chosen`.
    """
    shapes = {name: value.shape for name, value in parameters.initial.items()}
    found, others = cycles(translator.declarations, known.values, shapes, shapes.keys() - set(given))
    found = {name: value for name, value in found.items() if parameters.bijectors[name].contains(value)}
    return found, others, radians(translator.declarations, known.values, {**chosen, **found})


def _values(translator: Translator, data: Data) -> dict[str, np.ndarray]:
    """Columns of the data, and constants that are points, at some of the rows."""
    step = max(data.rows // LOOKED_AT, 1)
    found = {name: np.asarray(values[::step], float) for name, values in data.inputs.items()}
    for name, values in data.outputs.items():
        found[name] = np.where(data.observed[name][::step], values[::step], np.nan)
    for name, const in translator.declarations.consts.items():
        if const.axes:
            found[name] = np.asarray(const.values, float)
    for axis in {axis for latent in translator.declarations.latents.values() for axis in latent.levels}:
        found[str(axis.name)] = _numbers_along(translator, axis, len(range(0, data.rows, step)))
    return found


def _numbers_along(translator: Translator, axis: m.Axis, rows: int) -> np.ndarray:
    """The values of an index among the arguments of a latent, in turn: a row reads it at all of them."""
    return np.resize(np.arange(1.0, translator.size(axis) + 1.0), rows)


def equations(translator: Translator, data: DataScales, known: Mapping[str, np.ndarray]) -> Scales:
    """The equations of the whole model; none of one that is too large to read."""
    scales = Scales(translator, data, known)
    try:
        for observation in translator.declarations.observations:
            add_observation(scales, observation)
        for latent in translator.declarations.latents.values():
            add_latent(scales, latent)
    except Unsized:
        return Scales(translator, data, known)
    return scales


def _scales_of(scales: Scales, params: Mapping[str, m.Param]) -> dict[str, np.ndarray]:
    """Logarithms of the scales of the elements of parameters; 0 where nothing is known of one."""
    known, found = solved(scales.equations), {n: np.zeros(scales.translator.shape(p.axes)) for n, p in params.items()}
    for name, logs in found.items():
        for where in np.ndindex(logs.shape):
            place = tuple(1 if (name, k) in scales.gathered else i + 1 for k, i in enumerate(where))
            logs[where] = np.clip(known.get((name, place), 0.0), -EXTREME, EXTREME)
    return found


def _start(
    parameters: Parameters, scales: Scales, param: m.Param, logs: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Where the data say that a parameter starts; where it would start anyway if they say nothing."""
    usual, name = parameters.initial[param.name], param.name
    if param.constraint in {"unit", "simplex", "ordered", "correlation_factor"}:
        return usual
    if param.constraint == "positive":
        found = np.exp(logs)
    elif name in scales.frequencies:
        found = np.exp(logs) * np.abs(rng.standard_normal(logs.shape))
    elif name in scales.loadings:
        found = np.exp(logs) * loadings(logs.shape, rng)
    elif name in scales.places:
        found = np.full(logs.shape, scales.places[name])
    else:
        return usual
    return found if parameters.bijectors[name].contains(found) else usual


def loadings(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Random numbers of size one; columns of a matrix are at right angles where there are rows enough."""
    drawn = rng.standard_normal(shape)
    if len(shape) < 2 or shape[-2] < shape[-1]:
        return np.sign(drawn) * (0.5 + np.abs(drawn)) / 1.5
    orthogonal, _ = np.linalg.qr(drawn)
    return orthogonal * np.sqrt(shape[-2] / shape[-1])


def _far(value: np.ndarray, param: m.Param, logs: np.ndarray) -> bool:
    if param.constraint != "positive":
        return False
    return bool(np.any(np.abs(np.log(value) - logs) > FAR))


def _far_levels(
    translator: Translator, data: DataScales, values: Mapping[str, np.ndarray], levels: Collection[str]
) -> tuple[str, ...]:
    """The given levels, where an output is so far from zero, in units of its spread, that none of them is near it."""
    for name, output in translator.declarations.outputs.items():
        if output.kind not in {"real", "positive"}:
            continue
        columns = data.columns(name)
        for column in columns.T:
            seen = column[np.isfinite(column)]
            reach = np.exp(FAR + log_spread(seen)) if seen.size else np.inf
            centre = float(np.mean(seen)) if seen.size else 0.0
            if abs(centre) > reach and all(np.min(np.abs(values[n] - centre)) > reach for n in levels):
                return tuple(levels)
    return ()


# Parameters of standardised data in the units of the data, by the equations of `symbolic.scales`.
#
# Columns multiplied by a factor move the scales of parameters by a power of it: a length-scale by that of its column, a
# variance by the square of that of its output. Where the equations leave that open, or contradict each other, as one
# length-scale for columns of different units does, there is no such parameter.

ROWS, LARGEST, CLOSE = 5, 400, 1e-7
"""Rows of the made-up data, the most unknown scales that are solved for, and how close their logarithms are found."""


def unit_factors(translator: Translator, sds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What positive parameters are multiplied by when columns are by their standard deviations, if that can be told."""
    d = translator.declarations
    told, found = _moved(translator, sds), {}
    logs = _solved(*(each.equations for each in told))[0]
    for name, param in d.params.items():
        shape = translator.shape(param.axes)
        one = [(name, k) in told[0].gathered for k in range(len(shape))]  # read at the level of the row
        known = [logs.get((name, tuple(np.where(one, 1, np.array(i) + 1).tolist()))) for i in np.ndindex(*shape)]
        if param.constraint == "positive" and None not in known:
            found[name] = np.exp(np.reshape(np.asarray(known, float), shape))
    return found


def tied(translator: Translator, names: Sequence[str]) -> bool:
    """Whether parameters make up for dividing all of these columns by one number, but not each by its own.

    So do latents, whatever variance their kernels give them.
    """
    rng = np.random.default_rng(1)
    shapes = {name: translator.shape(translator.declarations.axes_of(name)) for name in names}
    made = {name: 1.0 + rng.random(shape) for name, shape in shapes.items()}
    own: list[Sequence[Size]] = [each.equations for each in _moved(translator, made)]
    alike = {name: np.full(shape, 1.5) for name, shape in shapes.items()}
    one: list[Sequence[Size]] = [each.equations for each in _moved(translator, alike)]
    latents = translator.declarations.latents
    free = [  # all but what fixes a variance
        place
        for place, (each, moved) in enumerate(zip(one[0], one[1], strict=True))
        if len(each.unknown) > 1 or each.constant != moved.constant or {name for name, _ in each.unknown} - {*latents}
    ]

    def wrong(told: list[Sequence[Size]]) -> bool:
        return _solved(*([each[place] for place in free] for each in told))[1]

    return wrong(own) and not wrong(one)


def _moved(translator: Translator, sds: Mapping[str, np.ndarray]) -> list[Scales]:
    """Equations of scales at made-up data, then with columns multiplied by the numbers, and by their squares."""
    d, rng = translator.declarations, np.random.default_rng(0)
    made = {name: 1.0 + rng.random((ROWS, *translator.shape(d.axes_of(name)))) for name in (*d.inputs, *d.outputs)}
    consts = {name: np.asarray(const.values, float) for name, const in d.consts.items() if const.axes}
    for axis in {axis for latent in d.latents.values() for axis in latent.levels}:
        consts[str(axis.name)] = _numbers_along(translator, axis, ROWS)
    told: list[Scales] = []
    for power in (0, 1, 2):
        moved = {name: values * sds[name] ** power if name in sds else values for name, values in made.items()}
        told.append(equations(translator, DataScales(moved | consts), {}))
    return told


def _solved(plain: Sequence[Size], once: Sequence[Size], twice: Sequence[Size]) -> tuple[dict[Unknown, float], bool]:
    """By how much the logarithms of scales move, and whether that leaves an equation wrong.

    Twice the factors have to move them twice as far.
    """
    unknown = list(dict.fromkeys(key for each in plain for key in each.unknown))
    if not unknown or len(unknown) > LARGEST or not len(plain) == len(once) == len(twice):
        return {}, False
    matrix = np.array([[each.unknown.get(key, 0.0) for key in unknown] for each in plain])
    start, moved, further = (np.array([-each.constant for each in told]) for told in (plain, once, twice))
    right = moved - start
    solution = np.linalg.lstsq(matrix, right, rcond=CLOSE)[0]
    _, sizes, directions = np.linalg.svd(matrix, full_matrices=False)
    told_apart = np.sum(directions[sizes > CLOSE * sizes[0]] ** 2, axis=0) > 1.0 - CLOSE
    wrong = (np.abs(matrix @ solution - right) > CLOSE) | (np.abs(further - start - 2.0 * right) > CLOSE)
    _, part = connected_components(np.abs(matrix.T) @ np.abs(matrix), directed=False)
    spoilt = {part[place] for row in matrix[wrong] for place in np.flatnonzero(row)}
    each = zip(unknown, solution, told_apart, part, strict=True)
    return {key: float(value) for key, value, alone, own in each if alone and own not in spoilt}, bool(np.any(wrong))
