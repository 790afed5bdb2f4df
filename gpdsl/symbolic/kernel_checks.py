"""Whether a kernel by formula is a covariance: symmetric, finite, of positive variance, and positive definite.

The first is decided by algebra where algebra decides it; the rest at random points and parameters, without JAX.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import sympy as sp

from gpdsl.language import model as m
from gpdsl.language.errors.base import Mistake, ModelError
from gpdsl.language.warnings.factors import expressions
from gpdsl.language.writing import Writer
from gpdsl.symbolic import errors, kernel_values
from gpdsl.symbolic.functions import expanded
from gpdsl.symbolic.kernel_analysis import analyse
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
    """Derivatives of latents that a formula in the distance of two points does not have."""
    reads: dict[str, m.Read] = {}
    for read in _reads(declarations):
        latent = declarations.latents.get(read.name)
        order = len(read.functional.derivative)
        if latent is None or not order or not uses_formula(latent.kernel):
            continue
        if read.name not in reads or order > len(reads[read.name].functional.derivative):
            reads[read.name] = read
    for name, read in reads.items():
        latent = declarations.latents[name]
        known = analyse(latent.kernel, declarations, latent).smoothness
        if known is None and any(_kinked(declarations, latent, each) for each in _inside(latent.kernel)):
            known = 0
        if known is not None and known < len(read.functional.derivative):
            times = {0: "not differentiable", 1: "differentiable once only"}.get(known, "differentiable twice only")
            kernel = next(_inside(latent.kernel)).name
            yield errors.RoughFormula(read.span, name, kernel, times)


NEAR, SMOOTH = (1e-3, 1e-4), 3.0
"""Shares of the spread by which points are moved, and how many times more the variance of a slope is over the shorter
step before there is none: it is the same where functions are differentiable, and ten times as large beside a kink."""


def _kinked(declarations: m.Declarations, latent: m.Latent, kernel: m.KernelFormula) -> bool:
    """Whether a formula of two points in one column has a kink where these meet, as min(a, b) has."""
    use = _use(declarations, latent, kernel)
    if use is None or use.formula.radial or use.formula.levels or use.columns > 1:
        return False
    numbers = kernel_values.numbers_near(use.translator, use.formula, use.arguments, None)
    points, slopes = np.abs(np.random.default_rng(3).normal(size=(POINTS, 1))), []
    for step in NEAR:
        both = np.concatenate([points, points + step])
        values = kernel_values.matrix(use.formula, numbers, both, both)
        here, beside, across = values[:POINTS, :POINTS], values[POINTS:, POINTS:], values[:POINTS, POINTS:]
        slopes.append(np.nanmedian(np.diag(here + beside - 2.0 * across)) / step**2)
    return bool(slopes[1] > SMOOTH * slopes[0] > 0)


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
    columns = _columns(translator, latent, kernel)
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


def _columns(translator: Translator, latent: m.Latent, kernel: m.KernelFormula) -> int:
    own = {axis.name for axis in latent.axes}
    if kernel.on:
        points = kernel.on[:-1] if kernel.levels else kernel.on
        axes = [[axis for axis in each.axes if axis.name is None or axis.name not in own] for each in points]
    else:
        axes = [list(translator.declarations.columns_of(name)) for name in latent.arguments]
    return sum(int(np.prod(translator.shape(tuple(each)))) for each in axes)


def _mistake(use: _Use) -> Mistake | None:
    """What keeps a formula from being a covariance, or None."""
    require_variance(use.formula, use.kernel.name, use.kernel.body.span, use.translator)
    asymmetry = None if _symmetric(use.formula) else _asymmetry(use)
    return asymmetry or _values(use)


def _symmetric(formula: Formula) -> bool:
    """Whether algebra shows that the points may change places."""
    if formula.radial:
        return not formula.levels or _same(formula.swapped(formula.expression), formula.expression)
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
    return _same(swapped(formula.expression), formula.expression)


def _same(one: sp.Expr, other: sp.Expr) -> bool:
    return bool(expanded(one - other) == 0)


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
