"""Where periods and frequencies start: at the cycles that the outputs go through, by least squares at each frequency.

The evidence has a maximum near every multiple of a period and near most others, each as narrow as one cycle among all
that were seen, so that a search from the spread of the column ends at whichever is near. A sum of a few harmonics is
fitted at each frequency of a grid, beside a trend and the cycles found before (Lomb 1976; the greedy search is the
CLEAN of Roberts, Lehar and Dreher 1987). What counts is the evidence of normal weights, not how much is explained:
gaps between rows make other frequencies, and trends, look like a cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from gpdsl.language import model as m

HARMONICS = {"Periodic": 3, "Cosine": 1, "SpectralMixture": 1}
"""Kernels with cycles, and how many harmonics a cycle of each has here."""

FEWEST, ROWS = 10, 500
"""Rows below which nothing is looked for, and rows that are looked at: at random, which hides no frequency."""

MOST, FINER, CLOSE = 1500, 4, 33
"""The most cycles in the span that are looked for, and frequencies for each; and within a step of these at the best."""

PART = 250
"""Frequencies at a time."""

CONSTANT = 1e-13
"""Spread of an output, relative to its largest value, below which it is a constant."""

RATIOS, TRENDS, HALF_WAVES = (0.2, 1.0, 5.0), (0.0, 30.0), 5
"""Variances of a wave's weight and of a trend, in units of the noise; and half waves in the span that a trend has."""

SEVERAL = 8
"""The most cycles in one array of a formula: more are features at random, not what data go through."""

OTHERS, LOWER = 8, 12.0
"""The most other frequencies that are told, and nats that each may be worth less than the best."""

FASTEST = 0.501
"""Cycles in the smallest step up to which rows at even distances tell them from slower ones."""

WIDE = 0.5
"""Width of a component of a spectral mixture, in cycles in the span."""


def cycles(
    declarations: m.Declarations,
    values: Mapping[str, np.ndarray],
    shapes: Mapping[str, tuple[int, ...]],
    free: Collection[str],
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Starts of the `free` parameters that are periods or frequencies along one input, by its values and the outputs'.

    And the next best values of each. `values`: inputs and outputs, [rows, *axes], NaN where nothing is observed;
    `shapes` those of the parameters.
    """
    found: dict[str, np.ndarray] = {}
    others: dict[str, np.ndarray] = {}
    y = _numbers(declarations, values)
    if not y.size:
        return found, others
    for asked in _turning(declarations):
        for column in dict.fromkeys(each.column for each in asked):
            x = _of_column(declarations, values, column)
            if len(x) < FEWEST or np.ptp(x) == 0:
                continue
            rows = np.arange(len(x)) if len(x) <= ROWS else np.random.default_rng(0).choice(len(x), ROWS, replace=False)
            search = _searched(x[rows], y[rows], min(len(x) // 2, MOST))
            for turn in sorted((each for each in asked if each.column == column), key=lambda each: each.factor):
                name = turn.name
                number = int(np.prod(shapes.get(name, ())))
                if name not in free or name in found or len(shapes[name]) > 1 or (number > SEVERAL and not turn.width):
                    continue
                each = [search(turn.harmonics) for _ in range(number)]
                found[name] = turn.value(np.reshape([seen[0] for seen in each], shapes[name]))
                others[name] = turn.value(np.concatenate([seen[1:] for seen in each]))
                if turn.width in free:
                    found[turn.width] = np.full(shapes[turn.width], WIDE / np.ptp(x))
    return found, others


def radians(
    declarations: m.Declarations, values: Mapping[str, np.ndarray], starts: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """By how much the logarithms of periods and frequencies move where the last of the cycles seen does by a radian.

    `starts` are their values. Steps that are longer lead past maxima of the evidence.
    """
    found: dict[str, float] = {}
    for turn in (each for asked in _turning(declarations) for each in asked):
        name, x = turn.name, _of_column(declarations, values, turn.column)
        if len(x) and name in starts and declarations.params[name].constraint == "positive":
            number = float(np.max(np.ptp(x) * turn.frequency(np.asarray(starts[name])), initial=1.0))
            found[name] = min(1.0 / (2 * np.pi * number), found.get(name, 1.0))
    return found


def too_fast(
    declarations: m.Declarations, values: Mapping[str, np.ndarray], name: str, value: Float[np.ndarray, "..."]
) -> bool:
    """Whether a period or frequency has more than a cycle in two of the smallest steps of its column: rows at even
    distances do not tell it from a slower one."""
    turns = (each for asked in _turning(declarations) for each in asked if each.name == name)
    some = [(np.unique(_of_column(declarations, values, each.column)), each.frequency(value)) for each in turns]
    return any(np.max(cycles) * np.min(np.diff(x)) > FASTEST for x, cycles in some if len(x) > 1)


Column = tuple[str, int]
"""The name of an argument, and which of its columns; 0 for all of them."""


def _whole(latent: m.Latent) -> tuple[Column, ...]:
    return tuple((name, 0) for name in latent.arguments)


def _of_column(
    declarations: m.Declarations, values: Mapping[str, np.ndarray], column: Column
) -> Float[np.ndarray, " N"]:
    """The values of an input in one column; none of what is no such input."""
    name, place = column
    if name not in declarations.inputs:
        return np.zeros(0)
    columns = values[name].reshape(len(values[name]), -1)
    if not place:
        return columns[:, 0] if columns.shape[1] == 1 else np.zeros(0)
    return columns[:, place - 1]


def _seen(each: m.Expression) -> Column:
    match each:
        case m.Read(name=name, subscripts=()):
            return name, 0
        case m.Read(name=name, subscripts=(m.Fixed(position=place),)):
            return name, place
    return "", 0


@dataclass(frozen=True)
class Turn:
    """What says how fast something turns along a column: `factor` times its value, to a `power`, is the frequency.

    `harmonics` are those that a cycle has; `width` is that of a component of a spectral mixture.
    """

    name: str
    column: Column
    harmonics: int
    power: int = -1
    factor: float = 1.0
    width: str = ""

    def frequency(self, value: np.ndarray) -> np.ndarray:
        """Cycles in a unit of the column."""
        return self.factor * value**self.power

    def value(self, frequency: np.ndarray) -> np.ndarray:
        """Which value has so many."""
        return (frequency / self.factor) ** self.power


def _turning(declarations: m.Declarations) -> Iterator[list[Turn]]:
    """The periods and frequencies in the kernel of each latent, and those in all formulas of means and quantities."""
    formulas = [latent.mean for latent in declarations.latents.values()]
    formulas += [case.body for let in declarations.lets.values() for case in let.cases]
    for latent in declarations.latents.values():
        yield list(_of_kernel(declarations, latent.kernel, _whole(latent)))
    calls = [each.distribution for each in declarations.observations]
    while calls:
        formulas += calls[-1].arguments.values()
        calls += calls.pop().components
    yield [each for formula in formulas for each in _of_formula(declarations, formula, {})]


def _of_kernel(declarations: m.Declarations, kernel: m.Kernel, arguments: tuple[Column, ...]) -> Iterator[Turn]:
    """Those of kernels with cycles inside another, along the one column, or argument, that each sees."""
    match kernel:
        case m.KernelScale(kernel=inner):
            yield from _of_kernel(declarations, inner, arguments)
        case m.KernelSum(terms=inside) | m.KernelProduct(factors=inside):
            for each in inside:
                yield from _of_kernel(declarations, each, arguments)
        case m.KernelCall(name=name):
            on = tuple(map(_seen, kernel.on)) or arguments
            if name == "SpectralMixture" and len(on) == 1:
                yield Turn(_parameter(kernel, "means"), on[0], HARMONICS[name], 1, width=_parameter(kernel, "sds"))
            elif name in HARMONICS and len(on) == 1:
                yield Turn(_parameter(kernel, "period"), on[0], HARMONICS[name])
            for each in kernel.kernels:
                yield from _of_kernel(declarations, each, on)
        case m.KernelFormula(points=points, body=body):
            on = tuple(map(_seen, kernel.on)) or arguments
            if len(on) == 1:
                yield from _of_formula(declarations, body, {**kernel.arguments, **dict.fromkeys(points, on[0])})


def _of_formula(
    declarations: m.Declarations, body: m.Expression, local: Mapping[str, m.Expression | Column]
) -> Iterator[Turn]:
    """Those in sines and cosines, `sin(2 * pi * x / p + a)`; `local` are the points and arguments of a kernel.

    A kernel has the square of a sine, which turns twice as fast.
    """
    waiting = [body]
    while waiting:
        each = waiting.pop()
        waiting += m.parts(each)
        if isinstance(each, m.Operation) and each.operator in {"sin", "cos"}:
            number, powers = _product(declarations, each.operands[0], local) or (0.0, {})
            columns = [key for key in powers if isinstance(key, tuple)]
            names = [key for key in powers if key and isinstance(key, str)]
            alone = number != 0 and len(columns) == len(names) == 1
            if alone and powers[columns[0]] == 1 and abs(powers[names[0]]) == 1:
                factor = abs(number) / np.pi * (1.0 if local and each.operator == "sin" else 0.5)
                yield Turn(names[0], columns[0], 3 if local or "" in powers else 1, powers[names[0]], factor)


Powers = dict[str | Column, int]


def _product(
    declarations: m.Declarations, each: m.Expression | Column, local: Mapping[str, m.Expression | Column]
) -> tuple[float, Powers] | None:
    """A number times powers of parameters and columns, and of "", the number of a harmonic; of a sum, what has columns.

    None for anything else.
    """
    match each:
        case m.Number(value=value):
            return float(value), {}
        case m.IndexNumber():
            return 1.0, {"": 1}
        case m.Read(name=name) if name in declarations.inputs:
            return 1.0, {_seen(each): 1}
        case m.Read(name=name) if name in declarations.params:
            return 1.0, {name: 1}
        case m.Local(name=name) if name in local:
            return _product(declarations, local[name], local)
        case m.FunctionCall(body=inner) | m.Operation(operator="neg", operands=(inner,)):
            return _product(declarations, inner, local)
        case m.Operation(operator="-", operands=(m.Local(name=a), m.Local(name=b))) if _same(local, a, b):
            return _product(declarations, local[a], local)
        case m.Operation(operator="*" | "/" | "+" | "-" as operator, operands=(left, right)):
            one, other = (_product(declarations, side, local) for side in (left, right))
            if one is None or other is None:
                return None
            if operator in "*/":
                sign = 1 if operator == "*" else -1
                return one[0] * other[0] ** sign, {
                    key: one[1].get(key, 0) + sign * other[1].get(key, 0) for key in one[1] | other[1]
                }
            moving = [side for side in (one, other) if any(isinstance(key, tuple) for key in side[1])]
            return moving[0] if len(moving) == 1 else None
        case (str(), int()):
            return 1.0, {each: 1}
    return None


def _same(local: Mapping[str, m.Expression | Column], a: str, b: str) -> bool:
    """Whether both are points, at one column, of a kernel."""
    return a in local and local[a] == local.get(b)


def _parameter(call: m.KernelCall, argument: str) -> str:
    """The name that stands alone for an argument."""
    found = call.arguments.get(argument)
    return found.name if isinstance(found, m.Read) else ""


def _numbers(declarations: m.Declarations, values: Mapping[str, np.ndarray]) -> Float[np.ndarray, "N columns"]:
    """All outputs that are numbers and vary, of one spread, at their means where nothing is observed."""
    numbers = [name for name, output in declarations.outputs.items() if output.label is None]
    columns = [each for name in numbers for each in values[name].reshape(len(values[name]), -1).T]
    found = []
    for column in columns:
        known = np.isfinite(column)
        largest = np.max(np.abs(column), where=known, initial=0.0)
        if largest > 0:
            level = np.sum(column / largest, where=known) / known.sum()
            centred = np.where(known, column / largest - level, 0.0)
            if (spread := np.std(centred)) > CONSTANT:
                found.append(centred / spread)
    return np.reshape(found, (len(found), len(next(iter(values.values()))))).T


def _searched(x: Float[np.ndarray, " N"], y: Float[np.ndarray, "N columns"], most: int) -> Callable[[int], np.ndarray]:
    """What gives the frequency of the next cycle of up to so many harmonics, beside those it has given; others follow.

    Harmonics of less than two of the smallest steps count for nothing: at even distances they are slower ones, as two
    cycles in 7/3 of a day look like one in a week.
    """
    span, middle, fastest = np.ptp(x), (x.max() + x.min()) / 2, FASTEST / np.min(np.diff(np.unique(x)))
    grid = np.arange(FINER, FINER * most + 1) / (FINER * span)
    slow = np.arange(1, HALF_WAVES + 1)
    trend = np.cos(np.pi * slow * (x - x.min())[:, None] / span) * np.exp(-((np.pi * slow / 8) ** 2))
    known = np.vander((x - middle) / span, 2)

    def waves(frequencies: np.ndarray, harmonics: int) -> Float[np.ndarray, "F N waves"]:
        return _waves(x - middle, frequencies, harmonics, fastest)

    def evidence(frequencies: np.ndarray, harmonics: int) -> Float[np.ndarray, " F"]:
        if len(frequencies) > PART:
            some = np.split(frequencies, range(PART, len(frequencies), PART))
            return np.concatenate([evidence(each, harmonics) for each in some])
        return _evidence(waves(frequencies, harmonics), y, known[:, known.any(axis=0)], trend)

    def search(harmonics: int) -> Float[np.ndarray, " F"]:
        nonlocal known
        kinds = sorted({1, harmonics})
        nats = np.max([evidence(grid, each) for each in kinds], axis=0)
        beside = np.pad(nats, 1, constant_values=-np.inf)
        tops = np.flatnonzero((nats >= beside[:-2]) & (nats > beside[2:]) & (nats > nats.max() - LOWER))
        near, *others = grid[tops[np.argsort(-nats[tops], kind="stable")]][: 1 + OTHERS]
        nearby = near + np.linspace(-1, 1, CLOSE) / (FINER * span)
        best = nearby[np.argmax(np.max([evidence(nearby, each) for each in kinds], axis=0))]
        known = np.concatenate([known, waves(np.array([best]), harmonics)[0]], axis=1)
        return np.array([best, *others])

    return search


def _waves(
    x: Float[np.ndarray, " N"], frequencies: Float[np.ndarray, " F"], harmonics: int, fastest: float
) -> Float[np.ndarray, "F N waves"]:
    """Cosines of all harmonics, then their sines; nothing of those that are too fast."""
    each = frequencies[:, None, None] * np.arange(1, harmonics + 1)
    angles, told = 2 * np.pi * each * x[:, None], each <= fastest
    return np.concatenate([np.cos(angles) * told, np.sin(angles) * told], axis=-1)


def _evidence(
    phi: Float[np.ndarray, "F N waves"],
    y: Float[np.ndarray, "N columns"],
    known: Float[np.ndarray, "N found"],
    trend: Float[np.ndarray, "N halves"],
) -> Float[np.ndarray, " F"]:
    """In nats, with the best noise of each output: higher harmonics have less weight, trends come and go.

    The log density of y outside of what is known, up to a constant, for C = I + v T T' + r Phi D Phi' in units of the
    noise, D = diag(1 / k^2) for harmonic k: -(n/2) log y' C^-1 y - log |C| / 2, at the best v and r.
    """
    q, _ = np.linalg.qr(known)
    left, free, harmonics = y - q @ (q.T @ y), len(y) - q.shape[1], phi.shape[-1] // 2
    phi = phi - q @ (q.T @ phi)
    u, sizes, _ = np.linalg.svd(trend - q @ (q.T @ trend), full_matrices=False)
    found = np.full(len(phi), -np.inf)
    for variance in TRENDS:
        grown = 1.0 + variance * sizes**2
        taken = u * (1.0 - grown**-0.5)
        white, rest = phi - taken @ (u.T @ phi), left - taken @ (u.T @ left)
        gram, both = np.swapaxes(white, 1, 2) @ white, np.swapaxes(white, 1, 2) @ rest
        for ratio in RATIOS:
            root = np.sqrt(ratio) / np.tile(np.arange(1, harmonics + 1), 2)
            matrix = np.eye(len(root)) + root[:, None] * gram * root
            told = root[:, None] * both
            over = np.sum(rest**2, axis=0) - np.sum(told * np.linalg.solve(matrix, told), axis=1)
            size = np.linalg.slogdet(matrix)[1] + np.sum(np.log(grown))
            nats = -0.5 * np.sum(free * np.log(np.maximum(over, free * CONSTANT)) + size[:, None], axis=1)
            found = np.maximum(found, nats)
    return found
