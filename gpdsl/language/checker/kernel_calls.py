"""Calls of the kernels of the table: what they are over, their numbers, arrays, inner kernels and sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from gpdsl.language import model as m, syntax
from gpdsl.language.checker.axes import carrier, contains
from gpdsl.language.checker.build import fact_of, match_arguments, number
from gpdsl.language.checker.constraints import check_domain
from gpdsl.language.checker.expressions import check_expression
from gpdsl.language.checker.scope import SORTS, Place, Scope, describe_axes
from gpdsl.language.distributions import KernelFamily, Parameter, signature
from gpdsl.language.errors import definitions as wrong
from gpdsl.language.errors.axes import KernelAxis, SeveralAxes
from gpdsl.language.errors.calls import NotWhole
from gpdsl.language.errors.functionals import NoColumnsOfPoints
from gpdsl.language.errors.names import NotReadable
from gpdsl.language.vocabulary import KERNELS, MAX_AXIS

# What a covariance function is over: the columns of its input, and those that `on = ...` makes of them.

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

    axes: tuple[m.Axis, ...]
    input_axis: m.Axis | None
    arguments: tuple[str, ...] = ()
    latent: str = "this latent"
    patches: str = ""
    over: m.Axis | None = None
    levels: tuple[m.Axis, ...] = ()

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


def argument_axes(scope: Scope, name: str) -> tuple[m.Axis, ...]:
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
) -> tuple[tuple[m.Expression, ...], Domain]:
    """The expressions of `on = ...`, and the domain of a kernel that sees those."""
    if domain.patches:
        scope.problems.fail(wrong.NoInputsHere(formula.span, domain.patches))
    if domain.over is not None:
        scope.problems.fail(NoColumnsOfPoints(formula.span, domain.latent))
    items = formula.items if isinstance(formula, syntax.Array) else (formula,)
    chosen = scope.problems.each(items, lambda item: _column(scope, place, item, domain))
    return tuple(chosen), replace(domain, input_axis=column_axis(chosen, domain))


def _column(scope: Scope, place: Place, formula: syntax.Formula, domain: Domain) -> m.Expression:
    sorts = {scope.sorts[name] for name in domain.arguments if name in scope.sorts}
    readable = frozenset({*_KNOWN, *sorts, "input", "row"})
    inner = replace(place, words="`on`", readable=readable, columns=frozenset(domain.arguments))
    checked = check_expression(scope, inner, formula)
    arguments = ", ".join(f"`{name}`" for name in domain.arguments)
    for each in m.reads_of(checked):
        if scope.sorts.get(each.name) not in _KNOWN and each.name not in domain.arguments:
            sort = SORTS[scope.sorts[each.name]]
            scope.problems.fail(wrong.NotAnArgument(each.span, each.name, sort, domain.latent, arguments))
        what = "" if each.functional == m.VALUE else f"a slope of `{each.name}`, or its value elsewhere,"
        if any(isinstance(at, m.At) for at in each.subscripts):
            what = f"what one level of `{each.name}` has"
        if what:
            advice = f"a kernel compares the arguments of its latent, {arguments}, or functions of them"
            scope.problems.fail(NotReadable(each.span, scope.quote(each.span).strip("`"), what, "`on`", advice))
    own = own_axes(checked, domain)
    if len(own) > 1:
        axes = ", ".join(axis.describe() for axis in own)
        scope.problems.fail(SeveralAxes(formula.span, scope.quote(formula.span).strip("`"), axes, _FLAT))
    return checked


def own_axes(expression: m.Expression, domain: Domain) -> tuple[m.Axis, ...]:
    """The axes of an expression that are not those of the latent: its columns."""
    return tuple(axis for axis in expression.axes if not contains(domain.axes, axis))


def column_axis(chosen: Sequence[m.Expression], domain: Domain) -> m.Axis | None:
    """The axis of all chosen columns side by side; None when they are one."""
    return side_by_side([own_axes(each, domain) for each in chosen])


def side_by_side(axes: Sequence[tuple[m.Axis, ...]]) -> m.Axis | None:
    """The axis of all columns of several quantities, each with its own axis of them or none; None when it is one."""
    if len(axes) == 1:
        return axes[0][0] if axes[0] else None
    sizes = [each[0].size if each else 1 for each in axes]
    total = sum(size for size in sizes if size is not None)
    return m.Axis(None, dimension="columns") if None in sizes else m.Axis(None, size=total)


CheckKernel = Callable[[Scope, Place, syntax.Formula, Domain], m.Kernel]
_EXAMPLES = {
    "SpectralMixture": "SpectralMixture(w, mu, s)` with `index q in 1..3` and `param w[q] : positive",
    "Coregion": "Coregion(W, kappa, on = task)` with `param W[t, r] : real`, `param kappa[t] : positive",
    "ChangePoint": "ChangePoint(RBF(1), Linear(1), at = 3, on = x[1])",
    "Patch": "weights = w` with `index p in 1..36` and `param w[p] : real = 1",
}


@dataclass
class _Call:
    """One call as it is checked; `arrays` are the axes found for the words of `Parameter.array`."""

    scope: Scope
    place: Place
    call: syntax.Call
    family: KernelFamily
    domain: Domain
    arrays: dict[str, m.Axis] = field(default_factory=dict)


def check_family(scope: Scope, place: Place, call: syntax.Call, domain: Domain, check_kernel: CheckKernel) -> m.Kernel:
    """A call of a kernel of the table; `check_kernel` checks the kernels among its arguments."""
    family = KERNELS[call.function.text]
    names = [each.name for each in family.parameters]
    required = [each.name for each in family.parameters if each.default is None]
    matched = match_arguments(scope, call, names, signature(family), required=required, named_only=(ON,))
    on, seen = selected(scope, place, matched[ON], domain) if ON in matched else ((), domain)
    if family.one_column:
        _require_one_column(scope, call, on, seen)
    told = _levels_told(scope, family, on) if family.name == "Coregion" else {}
    this = _Call(scope, place, call, family, seen, told)
    arguments: dict[str, m.Expression] = {}
    sizes: dict[str, tuple[int, ...]] = {}
    kernels: list[m.Kernel] = []
    left_out = [each.name for each in family.parameters if each.optional and each.name not in matched]
    for parameter in family.parameters:
        given = matched.get(parameter.name)
        if parameter.name in left_out:
            continue
        with scope.problems.contained:
            if parameter.role == "sizes" and given is not None:
                sizes[parameter.name] = _sizes(scope, call, parameter, given)
            elif parameter.role == "number":
                arguments[parameter.name] = _number(this, parameter, given)
    inner = _images(this, sizes, matched.get("weights")) if len(sizes) == 2 else domain
    for parameter in family.parameters:
        if parameter.role == "kernel":
            with scope.problems.contained:
                kernels.append(check_kernel(scope, place, matched[parameter.name], inner))
    if len(arguments) + len(sizes) + len(kernels) + len(left_out) < len(names):
        scope.problems.give_up()
    return m.KernelCall(call.span, family.name, arguments, tuple(kernels), on, sizes)


def _levels_told(scope: Scope, family: KernelFamily, on: tuple[m.Expression, ...]) -> dict[str, m.Axis]:
    """The axis of the levels that a kernel compares, where these are the values of an index."""
    words = [each.array[0] for each in family.parameters if each.array]
    index = scope.indices.get(getattr(on[0], "name", "")) if on else None
    return dict.fromkeys(words, index.axis) if index is not None else {}


def whole(scope: Scope, formula: syntax.Formula, what: str, smallest: int, largest: int) -> int:
    """A whole number written in the text, within these bounds."""
    value = formula.value if isinstance(formula, syntax.Literal) else None
    if not isinstance(value, int) or not smallest <= value <= largest:
        return scope.problems.fail(NotWhole(formula.span, what, smallest, largest))
    return value


def _require_one_column(scope: Scope, call: syntax.Call, on: tuple[m.Expression, ...], domain: Domain) -> None:
    name = call.function.text
    if domain.input_axis is not None:
        example = _EXAMPLES[name]
        scope.problems.fail(wrong.OneColumnNeeded(call.span, name, domain.describe(), example))
    if name == "Coregion":
        sources = on or ()
        for each in sources:
            plain = isinstance(each, m.Read) and all(isinstance(s, m.Fixed) for s in each.subscripts)
            if not plain or scope.sorts.get(getattr(each, "name", "")) not in ("input", "index"):
                scope.problems.fail(wrong.NotAPlainColumn(each.span))


def _number(this: _Call, parameter: Parameter, formula: syntax.Formula | None) -> m.Expression:
    scope, call = this.scope, this.call
    what = f"`{parameter.name}` of `{call.function.text}`"
    if formula is None:
        return number(scope, call.span, int(parameter.default or 0), parameter.name)
    if parameter.literal:
        value = whole(scope, formula, what, parameter.least, parameter.most)
        return number(scope, formula.span, value, parameter.name)
    checked = check_expression(scope, this.place, formula)
    if parameter.array:
        _fit_array(this, parameter, checked)
    else:
        fit_argument(scope, checked, this.domain, vector=parameter.vector)
    value_known = fact_of(scope, checked).value
    if value_known is not None:
        check_domain(scope, formula.span, what, value_known, parameter.domain)
    return checked


def fit_argument(scope: Scope, checked: m.Expression, domain: Domain, *, vector: bool) -> None:
    """A number may vary along the latent's axes, and a vector one along the columns too."""
    allowed = domain.axes
    if vector and domain.input_axis is not None:
        allowed = (*allowed, domain.input_axis)
    for axis in checked.axes:
        if not contains(allowed, axis):
            span, shapes = carrier(checked, axis).span, domain.shapes(vector=vector)
            what = scope.quote(span).strip("`"), axis.describe(), domain.describe()
            scope.problems.fail(KernelAxis(span, *what, shapes))


def _fit_array(this: _Call, parameter: Parameter, checked: m.Expression) -> None:
    """Each word of `parameter.array` is one axis, in this order, the same in all arguments of the call."""
    own = [axis for axis in checked.axes if not contains(this.domain.axes, axis)]
    words = list(parameter.array)
    if words[-1] == "columns" and len(own) < len(words):
        words.pop()
    fits = len(own) == len(words)
    for word, axis in zip(words, own, strict=False):
        expected = this.domain.input_axis if word == "columns" else this.arrays.setdefault(word, axis)
        fits = fits and expected is not None and m.same_axis(expected, axis)
    if not fits:
        names = [this.arrays[w].describe() if w in this.arrays else w for w in parameter.array if w != "columns"]
        expected_words = f"the axes `{', '.join(names)}`" if len(names) > 1 else f"one axis, `{names[0]}`"
        if "columns" in parameter.array and this.domain.input_axis is not None:
            expected_words += f", and may have that of the input, `{this.domain.input_axis.describe()}`, after it"
        name, given = this.family.name, describe_axes(tuple(own))
        needed = wrong.ArrayNeeded(checked.span, parameter.name, name, expected_words, given, _EXAMPLES[name])
        this.scope.problems.fail(needed)


def _sizes(scope: Scope, call: syntax.Call, parameter: Parameter, formula: syntax.Formula) -> tuple[int, ...]:
    what = f"each size in `{parameter.name}` of `{call.function.text}`"
    if not isinstance(formula, syntax.Array) or len(formula.items) != 2:
        why = f"`{parameter.name}` is a height and a width"
        scope.problems.fail(wrong.BadImage(formula.span, why, f"write `{parameter.name} = [28, 28]`"))
    return tuple(whole(scope, item, what, 1, MAX_AXIS) for item in formula.items)


def _images(this: _Call, sizes: dict[str, tuple[int, ...]], weights: syntax.Formula | None) -> Domain:
    """The domain of a kernel between patches; the image must be the input, hold a patch, and have a weight for each."""
    scope, call, domain = this.scope, this.call, this.domain
    (height, width), (rows, columns) = sizes["image"], sizes["patch"]
    if rows > height or columns > width:
        why = f"a patch of {rows} by {columns} is larger than the image of {height} by {width}"
        scope.problems.fail(wrong.BadImage(call.span, why, "choose a patch that fits into the image"))
    seen = domain.input_axis.size if domain.input_axis is not None else 1
    if seen is not None and seen != height * width:
        why = f"an image of {height} by {width} has {height * width} pixels, but the input is {domain.describe()}"
        remedy = f"declare `input x : real[{height * width}]`, or select the pixels: `on = x[1..{height * width}]`"
        scope.problems.fail(wrong.BadImage(call.span, why, remedy))
    count, axis_of_weights = (height - rows + 1) * (width - columns + 1), this.arrays.get("patches")
    if weights is not None and axis_of_weights is not None and axis_of_weights.size != count:
        found = f"an image of {height} by {width} has {count} patches of {rows} by {columns}"
        why = f"{found}, and there are {axis_of_weights.size or axis_of_weights.dimension} weights"
        remedy = f"declare `index p in 1..{count}` and `param w[p] : real = 1`, and write `weights = w`"
        scope.problems.fail(wrong.BadImage(weights.span, why, remedy))
    area = rows * columns
    axis = m.Axis(None, size=area) if area > 1 else None
    return replace(domain, input_axis=axis, patches=call.function.text)
