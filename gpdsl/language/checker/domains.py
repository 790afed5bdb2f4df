"""What a covariance function is over: the columns of its input, and those that `on = ...` makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpdsl.language import syntax
from gpdsl.language.checker.axes import contains
from gpdsl.language.checker.expressions import check_expression
from gpdsl.language.checker.scope import SORTS, Place, Scope
from gpdsl.language.errors.axes import SeveralAxes
from gpdsl.language.errors.functionals import NoColumnsOfPoints
from gpdsl.language.errors.kernels import NoInputsHere, NotAnArgument
from gpdsl.language.model import Axis, Expression, reads_of

ON = "on"
_KNOWN = ("const", "param")
_FLAT = "select columns along one axis, or sum over the other: `on = sum(q, ...)`"


@dataclass(frozen=True)
class Domain:
    """What a latent is over: its own axes, and the axis of its input (None when it has a single column).

    `arguments` are the names of that input, and `latent` is the declaration as written. `patches` names the kernel of
    images inside which there are no inputs. `over` is the index of the points of a field, `levels` are those of the
    indices among the arguments.
    """

    axes: tuple[Axis, ...]
    input_axis: Axis | None
    arguments: tuple[str, ...] = ()
    latent: str = "this latent"
    patches: str = ""
    over: Axis | None = None
    levels: tuple[Axis, ...] = ()

    def describe(self) -> str:
        """How a message names the input."""
        return f"`real[{self.input_axis.describe()}]`" if self.input_axis is not None else "one number"

    def shapes(self, *, vector: bool) -> str:
        """How a message names the shapes that a parameter of a kernel can have here."""
        columns = self.input_axis if vector else None
        found = ["one number"]
        if columns is not None:
            found.append(f"one value per column of the input, `[{columns.describe()}]`")
        found += [f"one value per `{axis.name}`, `[{axis.name}]`" for axis in self.axes if axis.name is not None]
        return ", or ".join(found)


def argument_axes(scope: Scope, name: str) -> tuple[Axis, ...]:
    """The axes of what a latent is a function of, at one point. Gives up when that could not be checked itself."""
    if name in scope.consts:
        return scope.consts[name].axes[1:]
    if name in scope.indices:
        return ()
    for table in (scope.inputs, scope.rows, scope.latents):
        if name in table:
            return table[name].axes  # type: ignore[attr-defined]
    return scope.problems.give_up()


def selected(
    scope: Scope, place: Place, formula: syntax.Formula, domain: Domain
) -> tuple[tuple[Expression, ...], Domain]:
    """The expressions of `on = ...`, and the domain of a kernel that sees those."""
    if domain.patches:
        scope.problems.fail(NoInputsHere(formula.span, domain.patches))
    if domain.over is not None:
        scope.problems.fail(NoColumnsOfPoints(formula.span, domain.latent))
    items = formula.items if isinstance(formula, syntax.Array) else (formula,)
    chosen: list[Expression] = []
    for item in items:
        with scope.problems.contained():
            chosen.append(_column(scope, place, item, domain))
    if len(chosen) < len(items):
        scope.problems.give_up()
    return tuple(chosen), replace(domain, input_axis=columns_axis(chosen, domain))


def _column(scope: Scope, place: Place, formula: syntax.Formula, domain: Domain) -> Expression:
    sorts = {scope.sorts[name] for name in domain.arguments if name in scope.sorts}
    readable = frozenset({*_KNOWN, *sorts, "input", "row"})
    inner = replace(place, words="`on`", readable=readable, columns=frozenset(domain.arguments))
    checked = check_expression(scope, inner, formula)
    for each in reads_of(checked):
        if scope.sorts.get(each.name) not in _KNOWN and each.name not in domain.arguments:
            arguments = ", ".join(f"`{name}`" for name in domain.arguments)
            sort = SORTS[scope.sorts[each.name]]
            scope.problems.fail(NotAnArgument(each.span, each.name, sort, domain.latent, arguments))
    own = _own_axes(checked, domain)
    if len(own) > 1:
        axes = ", ".join(axis.describe() for axis in own)
        scope.problems.fail(SeveralAxes(formula.span, scope.quote(formula.span).strip("`"), axes, _FLAT))
    return checked


def _own_axes(expression: Expression, domain: Domain) -> tuple[Axis, ...]:
    """The axes of a column expression that are not those of the latent: its columns."""
    return tuple(axis for axis in expression.axes if not contains(domain.axes, axis))


def columns_axis(chosen: Sequence[Expression], domain: Domain) -> Axis | None:
    """The axis of all chosen columns side by side; None when they are one."""
    axes = [_own_axes(each, domain) for each in chosen]
    if len(axes) == 1:
        return axes[0][0] if axes[0] else None
    sizes = [each[0].size if each else 1 for each in axes]
    total = sum(size for size in sizes if size is not None)
    return Axis(None, dimension="columns") if None in sizes else Axis(None, size=total)
