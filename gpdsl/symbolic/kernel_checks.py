"""Whether a kernel by formula is a covariance: symmetric, finite, of positive variance, and positive definite.

The first is decided by algebra where algebra decides it; the rest at random points and parameters, without JAX.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import sympy as sp

from gpdsl.language import model as m
from gpdsl.language.errors.base import Mistake, ModelError
from gpdsl.language.warnings.factors import expressions
from gpdsl.language.writing import Writer
from gpdsl.symbolic import errors, kernel_values
from gpdsl.symbolic.kernel_analysis import analyse, same
from gpdsl.symbolic.kernel_formula import Formula, element_of, formula_of, require_variance
from gpdsl.symbolic.spectral import lowest_density
from gpdsl.symbolic.translate import NeedsElements, Translator

POINTS, SETS = 40, 32
FEW = 4
"""Elements of a vector that a message shows."""
MOST_COLUMNS = 20
SPREADS = 10.0 ** np.linspace(-2.0, 3.0, SETS)
"""Spreads of the random points: a formula shows what it is at distances near its own scales, which are not known."""
TOLERANCE = 1e-6
LARGEST = 1e150
"""Matrices with larger values overflow on the way to their eigenvalues."""
SEVERAL = (
    "a covariance over one column may be none over several: multiply one per column, `k(on = x[1]) * k(on = x[2])`"
)
BOUNDS = "it may be one for some values of its parameters: bound them, as in `param p : real(lower = 0, upper = 2)`"
APART = (
    "where levels differ in a number, a covariance often has a factor of both: for windows of widths w[d] and w[e] "
    "it is sqrt(2 * w[d] * w[e] / (w[d]^2 + w[e]^2))"
)
MOST_CALLS = 40
"""No more different calls are judged, so that a text cannot keep the checker busy."""
LARGE = 300
"""Formulas of more operations are tried at fewer sets of points."""


@dataclass(frozen=True)
class _Use:
    """One call of a kernel by formula, over so many columns."""

    kernel: m.KernelFormula
    formula: Formula
    arguments: tuple[m.Expression, ...]
    columns: int
    translator: Translator
    positive: bool
    """Whether its columns are inputs that are never below 0."""


def check_kernels(declarations: m.Declarations) -> None:
    """Raise ModelError for every kernel by formula that cannot be a covariance, or lacks a derivative that is read."""
    mistakes: list[Mistake] = []
    for latent, kernel in formulas(declarations):
        try:
            use = _use(declarations, latent, kernel)
            mistake = _mistake(use) if use is not None else None
        except ModelError as error:
            mistakes += error.diagnostics
            continue
        if mistake is not None:
            mistakes.append(mistake)
    if not mistakes:
        mistakes += _rough(declarations)
    if mistakes:
        first = {(each.span.line, each.span.column, each.code): each for each in reversed(mistakes)}
        raise ModelError(declarations.source, tuple(sorted(first.values(), key=lambda e: (e.span.line, e.span.column))))


def _rough(declarations: m.Declarations) -> Iterator[Mistake]:
    """Derivatives of latents that their formulas do not have."""
    reads: dict[tuple[str, tuple[m.Direction, ...]], m.Read] = {}
    for read in _reads(declarations):
        latent = declarations.latents.get(read.name)
        if latent is not None and read.functional.derivative and uses_formula(latent.kernel):
            reads.setdefault((read.name, read.functional.derivative), read)
    told = set[str]()
    for (name, along), read in sorted(reads.items(), key=lambda each: -len(each[0][1])):
        latent = declarations.latents[name]
        every = [(_derivatives(declarations, latent, each, along), each.name) for each in _inside(latent.kernel)]
        whole = analyse(latent.kernel, declarations, latent).smoothness
        known, kernel = min(every) if whole is None else (whole, every[0][1])
        if name not in told and known < len(along):
            told.add(name)
            times = {0: "not differentiable", 1: "differentiable once only"}.get(known, "differentiable twice only")
            yield errors.RoughFormula(read.span, name, kernel, times)


STEPS, SEEN, SLACK = 10.0 ** np.arange(-11.0, 4.0, 0.5), 1e-6, 0.05
"""By which points are moved; the share of their variance below which a difference may be rounding, a tenth of it for
each order; and how much less than 2 n the power of the step may be with which the variance of the n-th difference
falls, for each n: beside a kink it is one less."""


def _derivatives(
    declarations: m.Declarations, latent: m.Latent, kernel: m.KernelFormula, along: tuple[m.Direction, ...]
) -> int:
    """How many of these derivatives a process by formula has, by its differences over ever shorter distances."""
    use, had = _use(declarations, latent, kernel), len(along)
    if use is None:
        return had
    numbers = kernel_values.numbers_near(use.translator, use.formula, use.arguments, None)
    points = np.abs(np.random.default_rng(3).normal(size=(POINTS // 2, use.columns)))
    for direction in dict.fromkeys(along):
        times = along.count(direction)
        for column, order in itertools.product(_columns_of(use, latent, direction), range(1, times + 1)):
            if _power(use.formula, numbers, points, column, order) < (2.0 - SLACK) * order:
                had = min(had, len(along) - times + order - 1)
    return had


def _columns_of(use: _Use, latent: m.Latent, direction: m.Direction) -> Iterator[int]:
    """Columns of the points of a formula that change with one of the input."""
    name, start = latent.arguments[direction.argument], 0
    for part, width in _parts(use.translator, latent, use.kernel):
        if part == name and isinstance(direction.column, int):
            yield start + direction.column - 1
        elif part == name or (not isinstance(part, str) and _changes(part, name, direction.column)):
            yield from range(start, start + width)
        start += width


def _changes(part: m.Expression, name: str, column: int | m.IndexValue) -> bool:
    """Whether it reads this column of an input, or may."""
    read = [each.subscripts for each in m.reads_of(part) if each.name == name]
    return any(not isinstance(s[0], m.Fixed) or s[0].position == column for s in read if s) or () in read


def _power(formula: Formula, numbers: kernel_values.Numbers, points: np.ndarray, column: int, order: int) -> float:
    """With which the variance of differences of an order falls, over the shortest steps at which these are seen."""
    weights = np.array([(-1.0) ** k * math.comb(order, k) for k in range(order + 1)])
    found = []
    for step in STEPS:
        moved = np.stack([points] * (order + 1))
        moved[:, :, column] += step * np.arange(order + 1)[:, None]
        flat = moved.reshape(-1, points.shape[1])
        if formula.levels:
            flat = np.concatenate([flat, np.ones((len(flat), 1))], axis=1)
        values = kernel_values.matrix(formula, numbers, flat, flat).reshape(order + 1, len(points), order + 1, -1)
        own = np.einsum("kili->ikl", values)
        found.append((np.einsum("k,ikl,l->i", weights, own, weights), np.einsum("k,ikk->i", weights**2, own)))
    spread, size = np.array(found).swapaxes(0, 1)
    seen = (spread[:-1] > SEEN / 10**order * size[:-1]) & (spread[1:] > 0)
    which = np.flatnonzero(np.any(seen, axis=0))
    first = np.argmax(seen[:, which], axis=0)
    fall = np.log10(spread[first + 1, which] / spread[first, which]) / np.log10(STEPS[1] / STEPS[0])
    return float(np.median(fall)) if len(which) else np.inf


def _reads(declarations: m.Declarations) -> Iterator[m.Read]:
    stack = list(expressions(declarations))
    while stack:
        part = stack.pop()
        if isinstance(part, m.Read):
            yield part
        stack += m.parts(part)


def doubtful_kernels(declarations: m.Declarations) -> Iterator[Mistake]:
    """A warning for each kernel by formula with a clearly negative eigenvalue or spectral density."""
    seen: set[tuple[int, int]] = set()
    for latent, kernel in formulas(declarations):
        place = (kernel.body.span.line, kernel.body.span.column)
        use = _use(declarations, latent, kernel) if place not in seen else None
        finding = _finding(use) if use is not None else None
        if finding is not None:
            seen.add(place)
            yield errors.NotACovariance(kernel.body.span, kernel.name, *finding)


def _finding(use: _Use) -> tuple[str, str] | None:
    """What shows that a kernel is not positive definite, and what to do; None when nothing shows it."""
    several = f" in {use.columns} columns" if use.columns > 1 else ""
    advice = SEVERAL if use.columns > 1 else "check the signs and powers of the formula"
    for around in (False, True):
        smallest, largest, numbers = _eigenvalues(use, around)
        if smallest < -TOLERANCE * largest:
            shown = f"it has eigenvalues from {smallest:.2g} to {largest:.2g} at {POINTS} random points{several}"
            beyond = APART if use.formula.gathered and use.formula.levels else BOUNDS
            return shown + _with(numbers), beyond if around else advice
    if use.formula.radial and not use.formula.levels:
        numbers = kernel_values.elements_read(
            use.formula, kernel_values.numbers_near(use.translator, use.formula, use.arguments, None), {}
        )
        if lowest_density(lambda r: kernel_values.at_distances(use.formula, numbers, r), use.columns) is not None:
            return f"its spectral density{several} is negative at some frequencies" + _with(numbers), advice
    return None


def _with(numbers: Mapping[str, np.ndarray]) -> str:
    shown = [f"{name} = {float(value):.3g}" for name, value in numbers.items() if not np.ndim(value)]
    for name, value in numbers.items():
        if np.ndim(value) == 1 and len(value) <= FEW:
            shown.append(f"{name.removesuffix('()')} = [{', '.join(f'{each:.3g}' for each in value)}]")
    return f", with {', '.join(shown)}" if shown else ""


def _spreads(formula: Formula) -> np.ndarray:
    return SPREADS[:: min(8, 1 + int(sp.count_ops(formula.expression)) // LARGE)]


def _eigenvalues(use: _Use, around: bool) -> tuple[float, float, dict[str, np.ndarray]]:
    """The smallest and the largest eigenvalue of a formula's matrix, of the random points where their ratio is worst.

    Also the parameters at which they were found: the initial values, or random ones `around` them.
    """
    formula, columns = use.formula, use.columns
    rng = np.random.default_rng(0)
    worst: tuple[float, float, dict[str, np.ndarray]] = (0.0, 1.0, {})
    for turn, spread in enumerate(np.tile(_spreads(formula), 3 if around else 1)):
        numbers = kernel_values.numbers_near(use.translator, formula, use.arguments, rng if around else None)
        points = spread * (rng.normal(size=(POINTS, columns)) if turn % 2 else rng.uniform(size=(POINTS, columns)))
        points = _with_levels(formula, numbers, np.abs(points) if use.positive else points)
        values = kernel_values.matrix(formula, numbers, points, points)
        if not np.all(np.isfinite(values)):  # perhaps a logarithm or a root: such a formula is for positive inputs
            points = np.abs(points)
            values = kernel_values.matrix(formula, numbers, points, points)
        size = float(np.max(np.abs(values)))
        if not 0 < size < LARGEST:
            continue
        found = np.linalg.eigvalsh((values + values.T) / (2 * size)) * size
        smallest, largest = float(found[0]), float(np.max(np.abs(found)))
        if smallest / largest < worst[0] / worst[1]:
            worst = smallest, float(found[-1]), numbers
    return worst


def _with_levels(formula: Formula, numbers: Mapping[str, np.ndarray], points: np.ndarray) -> np.ndarray:
    """The points with a level each behind them, in turns, as many as the arrays have that it reads by levels."""
    if not formula.levels:
        return points
    along = [each for each in formula.gathered if any(isinstance(p, str) for p in each.positions)]
    counts = [numbers[g.array].shape[k] for g in along for k, p in enumerate(g.positions) if isinstance(p, str)]
    level = 1.0 + np.arange(len(points)) % min(counts, default=kernel_values.UNKNOWN_SIZE)
    return np.concatenate([points, level[:, None]], axis=1)


def uses_formula(kernel: m.Kernel) -> bool:
    """Whether a kernel is made of any that the file defines."""
    return any(True for _ in _inside(kernel))


def formulas(declarations: m.Declarations) -> Iterator[tuple[m.Latent, m.KernelFormula]]:
    """Every call of a kernel by formula, those that are written alike over the same arguments once."""
    writer = Writer(declarations)
    seen: set[tuple[str, tuple[str, ...], tuple[m.Axis, ...]]] = set()
    for latent in declarations.latents.values():
        for kernel in _inside(latent.kernel):
            key = writer.kernel(kernel), latent.arguments, latent.axes
            if key not in seen and len(seen) < MOST_CALLS:
                seen.add(key)
                yield latent, kernel


def _inside(kernel: m.Kernel) -> Iterator[m.KernelFormula]:
    """The formulas over the inputs that a kernel is made of; those between patches see something else."""
    if isinstance(kernel, m.KernelFormula):
        yield kernel
    if not (isinstance(kernel, m.KernelCall) and kernel.name == "Patch"):
        for each in m.kernels_in(kernel):
            yield from _inside(each)


def _use(declarations: m.Declarations, latent: m.Latent, kernel: m.KernelFormula) -> _Use | None:
    """A call made ready to be evaluated; None when it reads more columns than are tried, or has no generic form."""
    translator = Translator(declarations, {})
    translator.sizes = sizes = kernel_values.UnknownSizes()
    columns = sum(width for _, width in _parts(translator, latent, kernel))
    if columns > MOST_COLUMNS:
        return None
    try:
        formula, arguments = formula_of(kernel, translator, columns)
    except NeedsElements:
        return None
    except ModelError:
        if sizes.asked:
            return None
        raise
    inputs = [declarations.inputs.get(name) for name in latent.arguments]
    positive = not kernel.on and all(each is not None and m.interval_of(each.kind)[0] == 0.0 for each in inputs)
    return _Use(kernel, formula, arguments, columns, translator, positive)


def _parts(translator: Translator, latent: m.Latent, kernel: m.KernelFormula) -> list[tuple[m.Expression | str, int]]:
    """What a formula sees one after the other, inputs by name or what `on` selects, and how many columns each has."""
    own = {axis.name for axis in latent.axes}
    if not kernel.on:
        return [(n, int(np.prod(translator.shape(translator.declarations.columns_of(n))))) for n in latent.arguments]
    parts = kernel.on[:-1] if kernel.levels else kernel.on
    axes = [tuple(axis for axis in each.axes if axis.name is None or axis.name not in own) for each in parts]
    return [(each, int(np.prod(translator.shape(some)))) for each, some in zip(parts, axes, strict=True)]


def _mistake(use: _Use) -> Mistake | None:
    """What keeps a formula from being a covariance, or None."""
    require_variance(use.formula, use.kernel.name, use.kernel.body.span, use.translator)
    asymmetry = None if _symmetric(use.formula) else _asymmetry(use)
    return asymmetry or _values(use)


def _symmetric(formula: Formula) -> bool:
    """Whether algebra shows that the points may change places."""
    if formula.radial:
        return not formula.levels or same(formula.swapped(formula.expression), formula.expression)
    a, b = formula.points
    swap: dict[sp.Symbol, sp.Expr] = {a: b, b: a}
    for symbol in formula.expression.free_symbols:
        name, position = element_of(symbol)
        if position is not None and name in (a.name, b.name):
            other = b if name == a.name else a
            swap[symbol] = sp.Symbol(f"{other.name}[{position}]", real=True)

    def swapped(expression: sp.Expr) -> sp.Expr:
        moved = expression.subs(swap, simultaneous=True)
        return formula.swapped(moved) if formula.levels else moved

    if any(swapped(each.body) != each.body for each in formula.reductions):
        return False
    return same(swapped(formula.expression), formula.expression)


def _asymmetry(use: _Use) -> Mistake | None:
    rng = np.random.default_rng(1)
    levels = bool(use.formula.levels)
    for spread in (1.0, 0.1, 10.0):
        numbers = kernel_values.numbers_near(use.translator, use.formula, use.arguments, rng if levels else None)
        points = spread * np.abs(rng.normal(size=(POINTS, use.columns)))
        points = _with_levels(use.formula, numbers, points)
        values = kernel_values.matrix(use.formula, numbers, points, points)
        gap = np.where(np.isfinite(values) & np.isfinite(values.T), np.abs(values - values.T), 0.0)
        if np.max(gap) > 1e-8 * np.max(np.abs(values[np.isfinite(values)]), initial=1e-300):
            i, j = np.unravel_index(int(np.argmax(gap)), gap.shape)
            shown = f"{values[i, j]:.3g} and {values[j, i]:.3g} for the same two points"
            first, second = use.kernel.levels or use.kernel.points
            pair = "[{}, {}]" if levels else "({}, {})"
            forms = (f"w[{first}] + w[{second}], w[{first}] * w[{second}] and the like",) if levels else ()
            written = pair.format(first, second), pair.format(second, first)
            return errors.Asymmetric(use.kernel.body.span, use.kernel.name, *written, shown, *forms)
    return None


def _values(use: _Use) -> Mistake | None:
    """No real value at any of the random points, or a negative variance at all of them."""
    rng = np.random.default_rng(2)
    finite, lowest = False, np.inf
    largest = -np.inf
    for spread in _spreads(use.formula):
        points = spread * np.abs(rng.normal(size=(POINTS, use.columns)))
        numbers = kernel_values.numbers_near(use.translator, use.formula, use.arguments, None)
        points = _with_levels(use.formula, numbers, points)
        values = kernel_values.matrix(use.formula, numbers, points, points)
        known = np.diag(values)[np.isfinite(np.diag(values))]
        finite = finite or bool(np.isfinite(values).any())
        if known.size:
            lowest, largest = min(lowest, float(known.min())), max(largest, float(known.max()))
    if not finite:
        return errors.NoRealValue(use.kernel.body.span, use.kernel.name, "at any of the points that were tried")
    if largest < 0:
        return errors.NegativeVariance(use.kernel.body.span, use.kernel.name, f"{lowest:.3g}")
    return None
