"""Where periods and frequencies start: at the cycles that the outputs go through, by least squares at each frequency.

The evidence has a maximum near every multiple of a period and near most others, each as narrow as one cycle among all
that were seen, so that a search from the spread of the column ends at whichever is near. A sum of a few harmonics is
fitted at each frequency of a grid, beside a trend and the cycles found before (Lomb 1976; the greedy search is the
CLEAN of Roberts, Lehar and Dreher 1987), and the peak that stands out most among its neighbours is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

import numpy as np
from jaxtyping import Float

from gpdsl.language import model as m

HARMONICS = {"Periodic": 3, "Cosine": 1, "SpectralMixture": 1}
"""Kernels with cycles, and how many harmonics a cycle of each has here."""

FEWEST, ROWS = 20, 500
"""Rows below which nothing is looked for, and rows that are looked at: at random, which hides no frequency."""

SLOW, MOST, FINER, CLOSE = (0.5, 1.0), 1500, 4, 33
"""Cycles in the span that are a trend, the most that are looked for, and frequencies for each; and within a step of
these when one has been found: what is taken off beside a cycle leaves cycles on both sides."""

PART = 250
"""Frequencies at a time."""

CONSTANT = 1e-13
"""Spread of an output, relative to its largest value, below which it is a constant."""

FLOOR, CLEAR = 1e-3, 2.0
"""Share of the most that is explained below which nothing stands out; and how much more than the clearest of noise a
cycle explains, or one beside a shorter one, which is among its harmonics."""

WIDE = 0.5
"""Width of a component of a spectral mixture, in cycles in the span."""


def cycles(
    declarations: m.Declarations,
    values: Mapping[str, np.ndarray],
    shapes: Mapping[str, tuple[int, ...]],
    free: Collection[str],
) -> dict[str, np.ndarray]:
    """Starts of the `free` parameters that are periods or frequencies along one input, by its values and the outputs'.

    `values`: inputs and outputs, [rows, *axes], NaN where nothing is observed; `shapes` those of the parameters.
    """
    found: dict[str, np.ndarray] = {}
    y = _numbers(declarations, values)
    if not y.size:
        return found
    for latent in declarations.latents.values():
        asked = [(call, at) for call, at in _calls(latent.kernel, latent.arguments) if at in declarations.inputs]
        for column in dict.fromkeys(at for _, at in asked):
            x = values[column].ravel()
            if len(x) != len(y) or len(x) < FEWEST or np.ptp(x) == 0:
                continue
            rows = np.arange(len(x)) if len(x) <= ROWS else np.random.default_rng(0).choice(len(x), ROWS, replace=False)
            search = _searched(x[rows], y[rows], min(len(x) // 2, MOST))
            for call in (call for call, at in asked if at == column):
                name = _parameter(call, "means" if call.name == "SpectralMixture" else "period")
                if name not in free or name in found or len(shapes[name]) > 1:
                    continue
                each = [search(HARMONICS[call.name]) for _ in range(int(np.prod(shapes[name])))]
                if None in each:
                    continue
                seen = np.reshape(np.array(each, float), shapes[name])
                found[name] = seen if call.name == "SpectralMixture" else 1 / seen
                if call.name == "SpectralMixture" and (width := _parameter(call, "sds")) in free:
                    found[width] = np.full(shapes[width], WIDE / np.ptp(x))
    return found


def _calls(kernel: m.Kernel, arguments: tuple[str, ...]) -> Iterator[tuple[m.KernelCall, str]]:
    """The kernels with cycles inside another, and the one argument that each sees."""
    match kernel:
        case m.KernelScale(kernel=inner):
            yield from _calls(inner, arguments)
        case m.KernelSum(terms=inside) | m.KernelProduct(factors=inside):
            for each in inside:
                yield from _calls(each, arguments)
        case m.KernelCall():
            on = tuple(each.name if isinstance(each, m.Read) else "" for each in kernel.on) or arguments
            if kernel.name in HARMONICS and len(on) == 1:
                yield kernel, on[0]
            for each in kernel.kernels:
                yield from _calls(each, on)


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


def _searched(
    x: Float[np.ndarray, " N"], y: Float[np.ndarray, "N columns"], most: int
) -> Callable[[int], float | None]:
    """What gives the frequency of the next cycle of so many harmonics, beside those it has given, if there is one.

    Harmonics of less than two of the smallest steps count for nothing: at even distances they are slower ones, as two
    cycles in 7/3 of a day look like one in a week.
    """
    span, middle, fastest = np.ptp(x), (x.max() + x.min()) / 2, 0.501 / np.min(np.diff(np.unique(x)))
    grid = np.arange((SLOW[-1] + 0.5) * FINER, FINER * most + 1) / (FINER * span)

    def waves(frequencies: np.ndarray, harmonics: int) -> Float[np.ndarray, "F N waves"]:
        each = frequencies[:, None, None] * np.arange(1, harmonics + 1)
        angles, told = 2 * np.pi * each * (x - middle)[:, None], each <= fastest
        return np.concatenate([np.cos(angles) * told, np.sin(angles) * told], axis=-1)

    slow = waves(np.array(SLOW) / span, 1)
    base = np.concatenate([np.vander((x - middle) / span, 3), *slow], axis=1)

    def explained(frequencies: np.ndarray, harmonics: int) -> Float[np.ndarray, " F"]:
        if len(frequencies) > PART:
            some = np.split(frequencies, range(PART, len(frequencies), PART))
            return np.concatenate([explained(each, harmonics) for each in some])
        q, _ = np.linalg.qr(base)
        phi, left = waves(frequencies, harmonics), y - q @ (q.T @ y)
        phi = phi - q @ (q.T @ phi)
        gram = np.swapaxes(phi, 1, 2) @ phi + 1e-9 * len(x) * np.eye(phi.shape[-1])
        both = np.swapaxes(phi, 1, 2) @ left
        return np.sum(both * np.linalg.solve(gram, both), axis=(1, 2))

    def nearest(frequency: float, harmonics: int) -> float:
        """The best frequency within a step of the grid."""
        nearby = frequency + np.linspace(-1, 1, CLOSE) / (FINER * span)
        return float(nearby[np.argmax(explained(nearby, harmonics))])

    def search(harmonics: int) -> float | None:
        nonlocal base
        found = explained(grid, 1)
        ends = np.searchsorted(grid, [grid / 2, 2 * grid])
        among = np.array([np.median(found[slice(*each)]) for each in ends.T])
        peaks = np.append(False, found[1:] > found[:-1]) & np.append(found[:-1] > found[1:], False)
        clear = np.where(peaks, found, 0.0) / (among + FLOOR * found.max() + np.finfo(float).tiny)
        place, least = np.argmax(clear), CLEAR * 2 * np.log(most) / len(x)
        total = np.sum((y - base @ np.linalg.lstsq(base, y)[0]) ** 2)
        if found[place] < least * total:
            return None
        parts = range(1, harmonics + 1)
        alike = grid[place] * np.unique([a / b for a in parts for b in parts])
        alike = np.array([nearest(each, harmonics) for each in alike if grid[0] <= each <= grid[-1]])
        of_each = explained(alike, harmonics)
        best = alike[of_each >= of_each.max() - least * (total - of_each.max())].max()
        base = np.concatenate([base, waves(np.array([best]), harmonics)[0]], axis=1)
        return float(best)

    return search
