"""Parameters of standardised data in the units of the data, by the equations of `symbolic.scales`.

Columns multiplied by a factor move the scales of parameters by a power of it: a length-scale by that of its column, a
variance by the square of that of its output. Where the equations leave that open, or contradict each other, as one
length-scale for columns of different units does, there is no such parameter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.sparse.csgraph import connected_components

from gpdsl.program.starts import equations
from gpdsl.symbolic.data_scales import DataScales, Size, Unknown
from gpdsl.symbolic.translate import Translator

ROWS, LARGEST, CLOSE = 5, 400, 1e-7
"""Rows of the made-up data, the most unknown scales that are solved for, and how close their logarithms are found."""


def unit_factors(translator: Translator, sds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What positive parameters are multiplied by when columns are by their standard deviations, if that can be told."""
    d = translator.declarations
    logs, found = _solved(*_moved(translator, sds))[0], {}
    for name, param in d.params.items():
        shape = translator.shape(param.axes)
        known = [logs.get((name, tuple(i + 1 for i in where))) for where in np.ndindex(*shape)]
        if param.constraint == "positive" and None not in known:
            found[name] = np.exp(np.reshape(np.asarray(known, float), shape))
    return found


def tied(translator: Translator, names: Sequence[str]) -> bool:
    """Whether parameters make up for dividing all of these columns by one number, but not each by its own.

    So do latents, whatever variance their kernels give them.
    """
    rng = np.random.default_rng(1)
    shapes = {name: translator.shape(translator.declarations.axes_of(name)) for name in names}
    own = _moved(translator, {name: 1.0 + rng.random(shape) for name, shape in shapes.items()})
    one = _moved(translator, {name: np.full(shape, 1.5) for name, shape in shapes.items()})
    latents = translator.declarations.latents
    free = [  # all but what fixes a variance
        place
        for place, (each, moved) in enumerate(zip(one[0], one[1], strict=True))
        if len(each.unknown) > 1 or each.constant != moved.constant or {name for name, _ in each.unknown} - {*latents}
    ]

    def wrong(told: list[Sequence[Size]]) -> bool:
        return _solved(*([each[place] for place in free] for each in told))[1]

    return wrong(own) and not wrong(one)


def _moved(translator: Translator, sds: Mapping[str, np.ndarray]) -> list[Sequence[Size]]:
    """Equations of scales at made-up data, then with columns multiplied by the numbers, and by their squares."""
    d, rng = translator.declarations, np.random.default_rng(0)
    made = {name: 1.0 + rng.random((ROWS, *translator.shape(d.axes_of(name)))) for name in (*d.inputs, *d.outputs)}
    consts = {name: np.asarray(const.values, float) for name, const in d.consts.items() if const.axes}
    told: list[Sequence[Size]] = []
    for power in (0, 1, 2):
        moved = {name: values * sds[name] ** power if name in sds else values for name, values in made.items()}
        told.append(equations(translator, DataScales(moved | consts), {}).equations)
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
