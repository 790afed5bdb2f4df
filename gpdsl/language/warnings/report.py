"""All warnings about one model, in the order of the text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass

from gpdsl.language import model as m
from gpdsl.language.checker.monotone import reads_latent
from gpdsl.language.errors.base import Mistake, render_plain
from gpdsl.language.model import Declarations
from gpdsl.language.vocabulary import DISTRIBUTIONS, Source
from gpdsl.language.warnings import cautions
from gpdsl.language.warnings.factors import same_thing_twice

# Initial length-scales against the spread of the inputs they belong to.

SHORT, LONG = 30.0, 1 / 100
"""Standard deviations of the input per length-scale: beyond them all rows look unrelated, or all alike."""


def far_from_data(declarations: m.Declarations, spreads: Mapping[str, tuple[float, ...]]) -> Iterator[Mistake]:
    """A warning for each kernel whose length-scale starts far from the spread of its input; none without data."""
    for latent in declarations.latents.values():
        columns = [(name, spread) for name in latent.arguments for spread in spreads.get(name, ())]
        if not columns or any(name not in spreads for name in latent.arguments):
            continue
        for kernel in _kernels(latent.kernel):
            if isinstance(kernel, m.KernelCall) and not kernel.on and "ell" in kernel.arguments:
                yield from _compared(declarations, kernel, columns)


def _compared(
    declarations: m.Declarations, kernel: m.KernelCall, columns: list[tuple[str, float]]
) -> Iterator[Mistake]:
    scales = _initial(declarations, kernel.arguments["ell"])
    if not scales or len(scales) not in (1, len(columns)):
        return
    own = scales * len(columns) if len(scales) == 1 else scales
    ratios = [spread / scale if scale else 1.0 for (_, spread), scale in zip(columns, own, strict=True)]
    for worst in (max(range(len(ratios)), key=ratios.__getitem__), min(range(len(ratios)), key=ratios.__getitem__)):
        name, spread = columns[worst]
        if spread > 0 and not LONG < ratios[worst] < SHORT:
            look = "unrelated" if ratios[worst] >= SHORT else "all alike"
            consequence = f"rows look {look}, and the fit may stay there"
            remedy = f"scale the column, or start near it: `param ell : positive = {_rounded(spread)}`"
            place = kernel.arguments["ell"].span if kernel.arguments["ell"].span != kernel.span else kernel.span
            yield cautions.ScaleFarFromData(place, name, f"{own[worst]:g}", _rounded(spread), consequence, remedy)
            return


def _rounded(value: float) -> str:
    """Two digits that matter, without an exponent where that can be read."""
    return f"{float(f'{value:.2g}'):g}"


def _initial(declarations: m.Declarations, expression: m.Expression) -> list[float]:
    if isinstance(expression, m.Read) and expression.name in declarations.params:
        if all(isinstance(each, m.Whole) for each in expression.subscripts):
            return m.flat(declarations.params[expression.name].initial)
        return []
    value = cautions.value_of(declarations, expression)
    return [] if value is None else [value]


def _kernels(kernel: m.Kernel) -> Iterator[m.Kernel]:
    if isinstance(kernel, m.KernelCall | m.KernelFormula):
        yield kernel
    else:
        for each in m.kernels_in(kernel):
            yield from _kernels(each)


# Distributions that hardly fit their arguments.

_DOMAINS = {
    "positive": ("positive", "take the exponential, `exp({0})`, or `softplus({0})`"),
    "unit": ("between 0 and 1", "squeeze it, `sigmoid({0})`, or name its scale: `logit = {0}`"),
}
_POSITIVE = ("exp", "softplus", "sigmoid", "Phi", "cosh")


def doubtful_likelihoods(declarations: m.Declarations) -> Iterator[Mistake]:
    """A warning for each observation that takes a latent as a scale or a probability."""
    for observation in declarations.observations:
        call = observation.distribution
        for each in (call, *call.components):
            yield from _outside(declarations, each)


def _outside(declarations: m.Declarations, call: m.DistributionCall) -> Iterator[Mistake]:
    if call.external or call.name not in DISTRIBUTIONS:
        return
    for parameter in DISTRIBUTIONS[call.name].parameters:
        argument = call.arguments.get(parameter.name)
        if argument is None or parameter.domain not in _DOMAINS or not _unbounded(declarations, argument):
            continue
        domain, remedy = _DOMAINS[parameter.domain]
        text = _text(declarations, argument)
        yield cautions.NotKeptInside(argument.span, parameter.name, call.name, domain, remedy.format(text))


def _text(declarations: m.Declarations, argument: m.Expression) -> str:
    span = argument.span
    line = declarations.source.line(span.line)
    return line[span.column - 1 : span.end_column - 1] if span.line == span.end_line else "f"


def _unbounded(declarations: m.Declarations, expression: m.Expression) -> bool:
    """Whether a value surely takes both signs: it is linear in a latent, times what is not."""
    match expression:
        case m.Read(name=name) if name in declarations.latents:
            return True
        case m.Read(name=name) if name in declarations.lets and len(declarations.lets[name].cases) == 1:
            return _unbounded(declarations, declarations.lets[name].cases[0].body)
        case m.FunctionCall(body=body):
            return _unbounded(declarations, body)
        case m.Operation(operator="neg", operands=(inside,)):
            return _unbounded(declarations, inside)
        case m.Operation(operator="+" | "-", operands=operands):
            linear = [_unbounded(declarations, each) for each in operands]
            return any(linear) and all(
                known or not reads_latent(declarations, each) for known, each in zip(linear, operands, strict=True)
            )
        case m.Operation(operator="/", operands=(left, right)):
            return _unbounded(declarations, left) and _keeps_sign(declarations, right)
        case m.Operation(operator="*", operands=(left, right)):
            return any(
                _unbounded(declarations, a) and _keeps_sign(declarations, b) for a, b in ((left, right), (right, left))
            )
    return False


def _keeps_sign(declarations: m.Declarations, factor: m.Expression) -> bool:
    positive = isinstance(factor, m.Operation) and factor.operator in _POSITIVE
    return positive or not reads_latent(declarations, factor)


# Names that nothing reads, and latents and parameters that no observation depends on.

_TABLES = {
    "indices": "the index",
    "inputs": "the input",
    "consts": "the constant",
    "params": "the parameter",
    "rows": "the row variable",
    "latents": "the latent",
    "functions": "the function",
    "kernels": "the kernel",
    "densities": "the density",
    "externals": "the external",
    "likelihoods": "the external likelihood",
}
"""What may be unused, and how a message names it. A `let` that nothing reads is a quantity to predict."""

_LEARNT = {
    "params": ("the parameter", "it stays where it starts"),
    "latents": ("the latent", "its posterior is its prior"),
    "rows": ("the row variable", "its posterior is its prior"),
}


def unused_names(declarations: m.Declarations) -> Iterator[Mistake]:
    """A warning for each name that nothing reads, and for what only a `let` that nothing observes reads."""
    uses = {name: set(_names(each)) - {name} for name, each in _declared(declarations)}
    observed = set(_names(declarations.observations))
    read = observed.union(*uses.values())
    from_data, pending = set(observed), list(observed)
    while pending:
        new = uses.get(pending.pop(), set()) - from_data
        from_data |= new
        pending += new
    for table, what in _TABLES.items():
        for name, declaration in getattr(declarations, table).items():
            if not declarations.outputs or not declarations.source.is_own(declaration.span):
                continue  # of a file to be used nobody needs everything
            if name not in read:
                yield cautions.Unused(declaration.span, name, what)
            elif table in _LEARNT and name not in from_data and not getattr(declaration, "fixed", False):
                yield cautions.Unobserved(declaration.span, name, *_LEARNT[table])


def _declared(declarations: m.Declarations) -> Iterator[tuple[str, m.Declaration]]:
    for table in (*_TABLES, "outputs", "lets"):
        yield from getattr(declarations, table).items()


def _names(root: object) -> Iterator[str]:
    """Every text inside a declaration: among them are all the names it mentions, whatever the sort of mention."""
    pending = [root]
    while pending:
        each = pending.pop()
        match each:
            case str():
                yield each
            case tuple():
                pending += each
            case Mapping():
                pending += each.values()
            case _ if is_dataclass(each) and not isinstance(each, m.Span):
                pending += [getattr(each, field.name) for field in fields(each)]


@dataclass(frozen=True)
class Report:
    """What there is to say about a model; its text is the plain rendering, empty when there is nothing."""

    source: Source
    warnings: tuple[Mistake, ...]

    def __iter__(self) -> Iterator[Mistake]:
        return iter(self.warnings)

    def __len__(self) -> int:
        return len(self.warnings)

    def __str__(self) -> str:
        return render_plain(self.source, self.warnings)


def find_warnings(declarations: Declarations, spreads: Mapping[str, tuple[float, ...]] | None = None) -> Report:
    """Every warning about a checked model. `spreads` are the standard deviations of the columns of inputs, if known."""
    found = [
        *unused_names(declarations),
        *same_thing_twice(declarations),
        *doubtful_likelihoods(declarations),
        *cautions.doubtful_priors(declarations),
        *cautions.unbounded_priors(declarations),
        *far_from_data(declarations, spreads or {}),
    ]
    ordered = sorted(found, key=lambda each: (each.span.line, each.span.column, each.code))
    return Report(declarations.source, tuple(ordered))
