"""What is asked of a latent besides its own value: `f(a)`, elsewhere; `D(f, x)`, a derivative; `integral(f, a, b)`.

`D` is also a letter for a size (`real[D]`): only a call of it, in a file that declares no `D`, is a derivative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from gpdsl.language import model as m, syntax
from gpdsl.language.checker.axes import all_elements, read
from gpdsl.language.checker.build import count, levels_of, read_at_level, recorded, refuse_without_level
from gpdsl.language.checker.reductions import no_names
from gpdsl.language.checker.scope import SORTS, Place, Scope, describe_axes
from gpdsl.language.errors import functionals
from gpdsl.language.errors.calls import LatentCalled, WrongArity
from gpdsl.language.errors.names import NotReadable, UsedBeforeDefined

# How often a process with a given kernel can be differentiated (mean-square; Rasmussen and Williams 2006, 4.1.1).

DERIVATIVES: Mapping[str, int] = MappingProxyType(
    {"White": 0, "Matern12": 0, "ArcCosine": 0, "Coregion": 0, "Matern32": 1, "Matern52": 2}
)
"""Kernels whose processes have only so many derivatives; all others have every one."""

_WHY = MappingProxyType(
    {
        "White": "white noise is nowhere continuous",
        "Coregion": "a Coregion kernel compares levels, which are not points of a line",
        "ArcCosine": "a covariance of threshold units has a kink where its two points meet",
    }
)

Roughness = tuple[str, str, str]
"""The kernel's name, why there is no derivative, and what to do."""


def roughness(kernel: m.Kernel, order: int, along: frozenset[str] | None = None) -> Roughness | None:
    """What keeps the process from having derivatives of this order, or None when it has them.

    `along` are the arguments that it is differentiated along, all of them by default.
    """
    match kernel:
        case m.KernelCall(on=on) | m.KernelFormula(on=on) if (
            on and along is not None and along.isdisjoint(read.name for each in on for read in m.reads_of(each))
        ):
            return None
        case m.KernelFormula(name=name, points=points):
            return None if len(points) == 2 else _of_formula(name)
        case m.KernelCall(name=name) if (own := _of_family(name, order)) is not None:
            return own
    inner = (found for each in m.kernels_in(kernel) if (found := roughness(each, order, along)) is not None)
    return next(inner, None)


def _of_family(name: str, order: int) -> Roughness | None:
    known = DERIVATIVES.get(name)
    if known is None or known >= order:
        return None
    times = "once" if known == 1 else "twice"
    why = _WHY.get(name) or (
        "a process with this kernel has no derivative at all"
        if known == 0
        else f"a process with this kernel can be differentiated only {times}"
    )
    apart = "; put noise into the likelihood" if name == "White" else ""
    return name, why, f"use a smoother kernel, such as `RBF` or `Matern52`{apart}"


def _of_formula(name: str) -> Roughness:
    why = "a formula in the distance may have a kink at distance zero, and none is ruled out"
    return name, why, f"write the formula in the two points instead: `kernel {name}(a, b) = ...`"


# What is asked of a latent besides its own value: `f(a)`, elsewhere; `D(f, x)`, a derivative; `integral(f, a, b)`.

DERIVATIVE = "D"
MAX_ORDER = 2
_SIGNATURE = "D(f, x)"
_CHAIN = "that of a formula follows by the chain rule"


def is_derivative(scope: Scope, call: syntax.Call) -> bool:
    """Whether a call is `D(f, x)`."""
    return call.function.text == DERIVATIVE and DERIVATIVE not in scope.sorts


def at_other_inputs(scope: Scope, place: Place, call: syntax.Call) -> m.Read:
    """`f(a)`: the latent, every element of it, at another input."""
    own = scope.latents.get(call.function.text)
    if own is not None and own.over is not None:
        return _at_its_points(scope, place, call, own)
    latent = _latent(scope, place, call.function)
    refuse_without_level(scope, call.function)
    functional = m.Functional(_points(scope, call, latent))
    return recorded(scope, all_elements(call.span, latent.name, latent.values, functional))


def elsewhere(scope: Scope, place: Place, formula: syntax.Elsewhere) -> m.Read:
    """`f[site](b)`: an element of a latent, at another input."""
    name = formula.element.identifier
    if scope.sort_of(name) != "latent":
        scope.problems.fail(LatentCalled(formula.span, name.text, SORTS[scope.sorts[name.text]]))
    latent = _latent(scope, place, name)
    value = read_at_level(scope, place, formula.element, latent.values)
    if not isinstance(value, m.Read):
        value = read(scope, place, formula.element, latent.values)
    own = len(latent.arguments) - levels_of(scope, latent)
    labels = (value.functional.at or latent.arguments)[own:]
    arguments = tuple(syntax.Argument(each.span, None, syntax.Name(each.span, each)) for each in formula.inputs)
    wanted = replace(latent, arguments=latent.arguments[:own])
    points = _points(scope, syntax.Call(formula.span, name, arguments), wanted) or wanted.arguments
    at = (*points, *labels)
    return recorded(scope, replace(value, functional=m.Functional(() if at == latent.arguments else at)))


def derivative(scope: Scope, place: Place, call: syntax.Call) -> m.Read:
    """`D(f, x)`, `D(f[p], x[1])`, `D(f(a), a[2])`, `D(f, x[1], x[2])`."""
    no_names(scope, call, _SIGNATURE)
    if not 2 <= len(call.arguments) <= 1 + MAX_ORDER:
        scope.problems.fail(WrongArity(call.span, DERIVATIVE, "2 or 3 arguments", len(call.arguments), _SIGNATURE))
    subject, *along = (each.value for each in call.arguments)
    value, latent = _subject(scope, place, subject, "`D` differentiates", _SIGNATURE, _CHAIN)
    at, axes = value.functional.at or latent.arguments, list(value.axes)
    found = scope.problems.each(along, lambda formula: _direction(scope, place, latent, at, formula))
    directions = [direction for direction, _ in found]
    for _, axis in found:
        axes += [axis] if axis is not None and not any(m.same_axis(axis, each) for each in axes) else []
    _check_smooth(scope, call, latent, directions)
    # The order of differentiation does not matter, and equal functionals are computed once.
    ordered = tuple(sorted(directions, key=lambda each: (each.argument, str(each.column))))
    functional = replace(value.functional, derivative=ordered)
    return recorded(scope, replace(value, span=call.span, axes=tuple(axes), functional=functional))


INTEGRAL = "integral"
_FROM_TO = "integral(f, a, b)"
INTEGRABLE = ("RBF", "Matern12", "Matern32", "Matern52", "Cosine", "Constant", "Linear", "Polynomial")
"""Kernels of one input whose covariances are integrated in closed form; the last three times each other as well."""
_POLYNOMIALS = INTEGRABLE[-3:]
_ENDS = ("real", "positive", "time")


def is_integral(scope: Scope, call: syntax.Call) -> bool:
    """Whether a call is `integral(f, a, b)`."""
    return call.function.text == INTEGRAL and INTEGRAL not in scope.sorts


def integral(scope: Scope, place: Place, call: syntax.Call) -> m.Read:
    """`integral(f, a, b)`, `integral(f[p], 0, b)`: minus the one from `b` to `a`."""
    no_names(scope, call, _FROM_TO)
    if len(call.arguments) != 3:
        scope.problems.fail(WrongArity(call.span, INTEGRAL, "3 arguments", len(call.arguments), _FROM_TO))
    subject, *ends = (each.value for each in call.arguments)
    value, latent = _subject(scope, place, subject, "`integral` integrates", _FROM_TO, "sums and factors stand outside")
    at = scope.problems.each(ends, lambda end: _end(scope, latent, end))
    _check_integrable(scope, call, latent, value)
    return recorded(scope, replace(value, span=call.span, functional=m.Functional(tuple(at), integrated=True)))


def _end(scope: Scope, latent: m.Latent, formula: syntax.Formula) -> str:
    """The name of an input, or a number as it is written."""
    sign, inner = ("-", formula.operand) if isinstance(formula, syntax.Negation) else ("", formula)
    if isinstance(inner, syntax.Literal):
        return f"{sign}{inner.text}"
    what = "a formula"
    if not sign and isinstance(formula, syntax.Name):
        name = formula.identifier
        given = scope.inputs.get(name.text)
        if given is None:
            what = SORTS[scope.sort_of(name)]
        elif formula.subscripts is not None or given.axes:
            what = f"not one number: `{name.text} : {_typed(given.axes)}`"
        elif given.kind in _ENDS:
            return name.text
        else:
            what = f"of type {given.kind}"
    return scope.problems.fail(functionals.NotABound(formula.span, what, latent.name))


def _check_integrable(scope: Scope, call: syntax.Call, latent: m.Latent, value: m.Read) -> None:
    """A latent of one input that is taken at its own place, and a kernel whose integrals are known."""
    why, remedy = _unintegrable(latent.kernel), f"use a sum of {', '.join(f'`{each}`' for each in INTEGRABLE)}"
    if value.functional.at:
        why, remedy = "it is taken at another input", f"write the ends of the interval: `{_FROM_TO}`"
    if len(latent.arguments) != 1 or scope.inputs[latent.arguments[0]].axes:
        what = ", ".join(f"`{each}`" for each in latent.arguments)
        why = f"it is a function of {what}, and an interval has one dimension"
        remedy = "an integral is of a latent of one input without columns, `input x : real` and `latent f(x) ~ ...`"
    if why:
        scope.problems.fail(functionals.NotIntegrable(call.span, latent.name, why, remedy))


def _unintegrable(kernel: m.Kernel) -> str:
    """Why covariances of a kernel have no integrals in closed form; nothing where they have."""
    match kernel:
        case m.KernelCall(name=name) if name not in INTEGRABLE:
            return f"covariances of `{name}` are not integrated in closed form"
        case m.KernelCall(on=on) if on:
            return "its kernel sees another column than the one that is integrated over (`on`)"
        case m.KernelScale() | m.KernelSum():
            return next((found for each in m.kernels_in(kernel) if (found := _unintegrable(each))), "")
        case m.KernelProduct(factors=parts):
            shown = [each for each in map(_plain, parts) if each is not None]
            if len(shown) > 1 and not all(isinstance(e, m.KernelCall) and e.name in _POLYNOMIALS for e in shown):
                return "its kernel is a product, whose covariances are not integrated in closed form"
            return next((found for each in shown if (found := _unintegrable(each))), "")
        case m.KernelFormula(name=name):
            return f"covariances of the formula `{name}` are not integrated in closed form"
    return ""


def _plain(kernel: m.Kernel) -> m.Kernel | None:
    """A factor of a product without the numbers before it; None for a number alone."""
    return kernel.kernel if isinstance(kernel, m.KernelScale) else kernel


def _at_its_points(scope: Scope, place: Place, call: syntax.Call, field: m.Latent) -> m.Read:
    """`f(node)` of a field over the points `node`: its values there, as `f` reads them."""
    given = [getattr(getattr(each.value, "identifier", None), "text", None) for each in call.arguments]
    if tuple(given) != field.arguments or any(getattr(each.value, "subscripts", None) for each in call.arguments):
        at = ", ".join(field.arguments)
        scope.problems.fail(functionals.FieldInRow(call.span, field.name, f"its values are those at `{at}`"))
    plain = read(scope, place, syntax.Name(call.span, call.function, None), field.values)
    return recorded(scope, plain)


def _latent(scope: Scope, place: Place, name: syntax.Identifier) -> m.Latent:
    """The latent of this name, when it is one over inputs that can be read here."""
    if "latent" not in place.readable:
        advice = "use inputs, constants and parameters here"
        scope.problems.fail(NotReadable(name.span, name.text, SORTS["latent"], place.words, advice))
    if name.text not in scope.latents:
        if name.text in scope.lost:
            scope.problems.give_up()
        scope.problems.fail(UsedBeforeDefined(name.span, name.text, scope.places[name.text].line))
    latent = scope.latents[name.text]
    if latent.over is not None:
        scope.problems.fail(functionals.FieldInRow(name.span, name.text, "it has values, and no derivatives"))
    for argument in latent.arguments:
        if argument not in scope.inputs and argument not in scope.indices:
            what = SORTS.get(scope.sorts.get(argument, ""), "no input")
            scope.problems.fail(functionals.InnerLayer(name.span, name.text, argument, what))
    return latent


def _points(scope: Scope, call: syntax.Call, latent: m.Latent) -> tuple[str, ...]:
    """The inputs that a latent is taken at, one per argument; none when they are its own.

    Indices among its arguments stay in their places: subscripts say at which of their values.
    """
    wanted = [each for each in latent.arguments if each in scope.inputs]
    signature = f"{latent.name}({', '.join(wanted)})"
    no_names(scope, call, signature)
    if len(call.arguments) != len(wanted):
        expected = count(len(wanted))
        scope.problems.fail(WrongArity(call.span, latent.name, expected, len(call.arguments), signature))
    pairs = zip(call.arguments, wanted, strict=True)
    points = iter(scope.problems.each(pairs, lambda pair: _point(scope, latent, pair[1], pair[0].value)))
    at = tuple(next(points) if own in scope.inputs else own for own in latent.arguments)
    return () if at == latent.arguments else at


def _point(scope: Scope, latent: m.Latent, own: str, formula: syntax.Formula) -> str:
    wanted = scope.inputs[own]
    if not isinstance(formula, syntax.Name) or formula.subscripts is not None:
        scope.problems.fail(functionals.NotAPoint(formula.span, latent.name, own, _typed(wanted.axes)))
    name = formula.identifier
    if name.text not in scope.inputs:
        if scope.sort_of(name) == "input":
            scope.problems.give_up()
        scope.problems.fail(functionals.NotAPoint(formula.span, latent.name, own, _typed(wanted.axes)))
    given = scope.inputs[name.text]
    alike = len(given.axes) == len(wanted.axes) and all(map(m.same_axis, given.axes, wanted.axes))
    if not alike:
        shapes = _typed(given.axes), own, _typed(wanted.axes)
        scope.problems.fail(functionals.WrongShape(formula.span, latent.name, name.text, *shapes))
    return name.text


def _typed(axes: tuple[m.Axis, ...]) -> str:
    return describe_axes(axes).strip("`") if axes else "real"


def _subject(
    scope: Scope, place: Place, formula: syntax.Formula, does: str, example: str, remedy: str
) -> tuple[m.Read, m.Latent]:
    """The value that `D` differentiates or `integral` integrates."""
    match formula:
        case syntax.Elsewhere():
            value = elsewhere(scope, place, formula)
            return value, scope.latents[value.name]
        case syntax.Name(identifier=name) | syntax.Call(function=name):
            sort = scope.sorts.get(name.text)
            if name.text in scope.lost:
                scope.problems.give_up()
            if sort == "latent":
                latent = _latent(scope, place, name)
                if isinstance(formula, syntax.Call):
                    functional = m.Functional(_points(scope, formula, latent))
                    return all_elements(formula.span, latent.name, latent.values, functional), latent
                at_level = read_at_level(scope, place, formula, latent.values)
                return at_level if isinstance(at_level, m.Read) else read(scope, place, formula, latent.values), latent
            if isinstance(formula, syntax.Name):
                what = SORTS[scope.sort_of(name)]
                scope.problems.fail(functionals.NotALatent(formula.span, what, _known(scope), does, example, remedy))
    what = "a derivative; there are no second ones" if syntax.called(formula) == DERIVATIVE else "an expression"
    return scope.problems.fail(functionals.NotALatent(formula.span, what, _known(scope), does, example, remedy))


def _known(scope: Scope) -> str:
    names = ", ".join(f"`{each}`" for each in [*scope.latents][:5])
    return f" ({names})" if names else ""


def _direction(
    scope: Scope, place: Place, latent: m.Latent, arguments: tuple[str, ...], formula: syntax.Formula
) -> tuple[m.Direction, m.Axis | None]:
    """One direction, and the axis along which it varies when the column is given by an index."""
    known = [each for each in arguments if each in scope.inputs]
    if not isinstance(formula, syntax.Name) or formula.identifier.text not in known:
        if isinstance(formula, syntax.Name):
            scope.sort_of(formula.identifier)  # an unknown name is its own mistake
        shown = " and ".join(f"`{each}`" for each in known)
        column = "[1]" if scope.inputs[known[0]].axes else ""
        example = f"D({latent.name}, {known[0]}{column})"
        scope.problems.fail(functionals.NotADirection(formula.span, latent.name, shown, example))
    name = formula.identifier.text
    axes = scope.inputs[name].axes
    if not axes and formula.subscripts is not None:
        scope.problems.fail(functionals.WrongColumn(formula.span, name, "real", f"write `D({latent.name}, {name})`"))
    position = arguments.index(name)
    checked = read(scope, replace(place, whole=False), formula, axes)
    match checked.subscripts:
        case ():
            return m.Direction(position, 1), None
        case (m.Fixed(position=number),):
            return m.Direction(position, number), None
        case (m.IndexValue() as index,):
            return m.Direction(position, index), checked.axes[0]
    remedy = (
        f"choose one: `D({latent.name}, {name}[1])`; or name the columns: `index d in 1..3`, `input {name} : real[d]`"
    )
    return scope.problems.fail(functionals.WrongColumn(formula.span, name, _typed(axes), remedy))


def _check_smooth(scope: Scope, call: syntax.Call, latent: m.Latent, directions: Sequence[m.Direction]) -> None:
    along = frozenset(latent.arguments[each.argument] for each in directions)
    found = roughness(latent.kernel, len(directions), along)
    if found is not None:
        kernel, why, remedy = found
        line = scope.latents[latent.name].kernel.span.line
        scope.problems.fail(functionals.TooRough(call.span, latent.name, kernel, line, why, remedy))
