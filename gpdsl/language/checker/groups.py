"""Groups: an index whose values are the levels of a column, and what is read at the level of each row.

`param a[s] : real ~ Normal(mu, tau)` with `input site : label[s]` is a latent over `site`, whose values at different
levels are independent: it is inferred, not estimated, since the mode over many levels and their spread is at no spread.
A latent `f[s](x)` is one over `x` and `site`. What has no prior of this form is a parameter, taken at the row's level.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from gpdsl.language import model as m, syntax
from gpdsl.language.checker.axes import all_elements
from gpdsl.language.checker.build import number, operation, over_levels
from gpdsl.language.checker.distributions import check_distribution
from gpdsl.language.checker.functions import nodes
from gpdsl.language.checker.scope import ByGroup, IndexRange, Left, Place, Scope
from gpdsl.language.errors.functionals import KernelByLevel, LabelInKernel, PriorOfLevels
from gpdsl.language.vocabulary import Span

SAME = "Same"
LEVELS = frozenset({SAME, "Coregion"})
"""Kernels that know levels from numbers."""

_INFERRED = {"Normal": "real", "LogNormal": "positive"}
"""Priors of levels that are inferred, and the type of parameter each goes with."""

_IN_PRIOR = frozenset({"const", "param", "input"})


# --- declarations -----------------------------------------------------------------------------------------------


def find_elements(scope: Scope, statements: Sequence[syntax.Statement]) -> None:
    """Find what has elements as without a label: where the model says how many levels there are, and reads one of them.

    Recursions along the levels do, `let h[k > 1] = rho[k] * h[k - 1] + d[k]`, and contrasts, `d[2] - d[1]`; kernels
    that differ are of elements too, `latent d[k](x) ~ GP(m[k], RBF(ell[k]))`, with all that they and the mean read.
    """
    known = {index for index in scope.labels if scope.indices[index].axis.size is not None}
    declared: dict[str, syntax.LatentStatement | syntax.ParamStatement] = {}
    waiting: list[syntax.Node] = []
    for each in statements:
        if isinstance(each, syntax.LatentStatement | syntax.ParamStatement):
            levels = {index.text for index in each.declared.indices} & scope.labels.keys()
            if levels and levels <= known:
                declared[each.declared.name.text] = each
                if isinstance(each, syntax.LatentStatement) and _by_level(each, levels):
                    scope.elementwise.add(each.declared.name.text)
                    waiting.append(each.process)
        elif isinstance(each, syntax.LetStatement | syntax.ObservationStatement):
            waiting.append(each)
    while declared and waiting:
        part = waiting.pop()
        own_indices = part.subscripts or () if isinstance(part, syntax.LetStatement) else ()
        along = {each.value.identifier.text for each in own_indices if isinstance(each.value, syntax.Name)} & known
        for name in [each for each in nodes(part) if isinstance(each, syntax.Name)]:
            own = declared.get(name.identifier.text)
            if own is None or own.declared.name.text in scope.elementwise:
                continue
            whole = name.subscripts is None and any(each.text in along for each in own.declared.indices)
            if whole or _element(scope, own, name, known):
                scope.elementwise.add(own.declared.name.text)
                waiting += [own.process] if isinstance(own, syntax.LatentStatement) else []


def _by_level(latent: syntax.LatentStatement, levels: Collection[str]) -> bool:
    """Whether a kernel reads an index of levels that its latent has."""
    given = latent.process.arguments if isinstance(latent.process, syntax.Call) else ()
    named = [each for each in given if each.name is not None and each.name.text == "kernel"]
    inside = [each for kernel in named or given[-1:] for each in nodes(kernel) if isinstance(each, syntax.Subscript)]
    return any(isinstance(each.value, syntax.Name) and each.value.identifier.text in levels for each in inside)


def _element(
    scope: Scope, own: syntax.LatentStatement | syntax.ParamStatement, name: syntax.Name, known: Collection[str]
) -> bool:
    """Whether a name is read in brackets at something else than the column that says the level of each row."""
    for index, subscript in zip(own.declared.indices, name.subscripts or (), strict=False):
        value = subscript.value
        declared = scope.inputs.get(value.identifier.text) if isinstance(value, syntax.Name) else None
        if index.text in known and (declared is None or declared.label is None):
            return True
    return False


def is_inferred(scope: Scope, param: m.Param, call: syntax.Formula | None) -> bool:
    """Whether a parameter of levels has a prior that makes it a latent."""
    if not isinstance(call, syntax.Call) or not over_levels(scope, param.axes) or param.fixed:
        return False
    if param.name in scope.elementwise:
        return False
    bounded = param.lower is not None or param.upper is not None
    return _INFERRED.get(call.function.text) == param.constraint and not bounded


def check_levels(scope: Scope, statement: syntax.ParamStatement) -> None:
    """`param a[s] : real ~ Normal(mu, tau)`: the latent that it is."""
    declared, call = statement.declared, statement.prior
    param = scope.params.get(declared.name.text)
    if param is None or not is_inferred(scope, param, call):
        return
    assert isinstance(call, syntax.Call)
    name, levels = param.name, over_levels(scope, param.axes)
    own = tuple(axis for axis in param.axes if axis not in levels)
    left = Left("param", name, f"param {name}", tuple(axis.name for axis in own if axis.name is not None))
    bound = {axis.name: IndexRange.of(axis) for axis in own if axis.name is not None}
    place = Place("a prior of levels", _IN_PRIOR, left, bound)
    prior = check_distribution(scope, place, call, own)
    mean, sd = (prior.arguments[key] for key in list(prior.arguments)[:2])
    arguments = tuple(scope.labels[str(axis.name)] for axis in levels)
    variance = operation(scope, place, call.span, "^", (sd, number(scope, call.span, 2, "2")))
    kernel = m.KernelScale(call.span, variance, m.KernelCall(call.span, SAME, {}))
    scope.params.pop(name)
    log = prior.name == "LogNormal"
    latent = _free_name(scope, f"log_{name}") if log else name
    scope.latents[latent] = m.Latent(latent, param.span, own, arguments, mean, kernel)
    scope.sorts[latent] = "latent"
    scope.by_group[name] = scope.by_group[latent] = ByGroup(param.axes, latent, False)
    if log:
        value = m.Operation(param.span, own, "exp", (all_elements(param.span, latent, own),))
        guards = tuple(m.Guard(axis.name or "") for axis in own)
        scope.lets[name] = m.Let(name, param.span, own, (m.Case(guards, value, param.span),))
        scope.sorts[name] = "let"
        scope.by_group[name] = ByGroup(param.axes, latent, True)


def _free_name(scope: Scope, name: str) -> str:
    return _free_name(scope, f"{name}_") if name in scope.sorts else name


def refuse_learnt(scope: Scope, call: syntax.Call, param: m.Param) -> None:
    """A prior of levels that are estimated, with parameters that are learnt."""
    read = (each for each in nodes(call) if isinstance(each, syntax.Name) and each.identifier.text in scope.params)
    learnt = next((each for each in read if not scope.params[each.identifier.text].fixed), None)
    if learnt is None or not over_levels(scope, param.axes):
        return
    remedy = PriorOfLevels.remedy
    if param.name in scope.elementwise:
        label = scope.labels[str(over_levels(scope, param.axes)[0].name)]
        remedy = (
            f"`{param.name}` is estimated, as single elements of it are read: write numbers in its prior; or read it "
            f"as `{param.name}[{label}]` alone, and compare predictions of rows with either level"
        )
    scope.problems.fail(PriorOfLevels(learnt.span, param.name, scope.quote(call.span), remedy))


def latent_of_levels(scope: Scope, latent: m.Latent, axes: Sequence[m.Axis], columns: tuple[m.Read, ...]) -> m.Latent:
    """`latent f[s](x)`: independent at different levels of `s`; `columns` are the whole arguments."""
    labels = tuple(scope.labels[str(axis.name)] for axis in over_levels(scope, axes))
    span = latent.kernel.span
    apart = [m.KernelCall(span, SAME, {}, (), (m.Read(span, (), name),)) for name in labels]
    kernel = m.KernelProduct(span, (seeing(latent.kernel, columns), *apart))
    scope.by_group[latent.name] = ByGroup(tuple(axes), latent.name, False)
    return replace(latent, arguments=(*latent.arguments, *labels), kernel=kernel)


def seeing(kernel: m.Kernel, columns: tuple[m.Expression, ...]) -> m.Kernel:
    """The kernel with these columns wherever it sees all of them."""
    match kernel:
        case m.KernelCall(name="Patch"):
            return kernel if kernel.on else replace(kernel, on=columns)
        case m.KernelCall(kernels=inside):
            seen = tuple(seeing(each, columns) for each in inside)
            return replace(kernel, kernels=seen, on=kernel.on or columns)
        case m.KernelFormula():
            return kernel if kernel.on else replace(kernel, on=columns)
        case m.KernelScale(kernel=inner):
            return replace(kernel, kernel=seeing(inner, columns))
        case m.KernelSum(terms=inside):
            return replace(kernel, terms=tuple(seeing(each, columns) for each in inside))
        case m.KernelProduct(factors=inside):
            return replace(kernel, factors=tuple(seeing(each, columns) for each in inside))
    return kernel


def check_labels_seen(scope: Scope, latent: m.Latent) -> None:
    """No kernel takes levels for numbers."""
    for call, name in _seen(latent.kernel, latent.arguments):
        if name in scope.inputs and scope.inputs[name].label is not None and call[1] not in LEVELS:
            scope.problems.fail(LabelInKernel(call[0], call[1], name, latent.name))


def _seen(kernel: m.Kernel, arguments: tuple[str, ...]) -> list[tuple[tuple[Span, str], str]]:
    """Which kernel, by place and name, sees which input."""
    match kernel:
        case m.KernelFormula(levels=levels, on=on) if levels:
            return _seen(replace(kernel, levels=(), on=on[:-1]), arguments)
        case m.KernelCall(name=name, kernels=()) | m.KernelFormula(name=name):
            names = [each.name for each in m.reads_of(*kernel.on)] if kernel.on else arguments
            return [((kernel.span, name), each) for each in names]
    return [each for part in m.kernels_in(kernel) for each in _seen(part, arguments)]


def refuse_levels_in_kernel(scope: Scope, formula: syntax.Formula, name: str, axes: Sequence[m.Axis]) -> None:
    """`tau[s]` in the kernel of `f[s]`."""
    levels = {str(axis.name) for axis in over_levels(scope, axes)}
    for each in nodes(formula):
        if isinstance(each, syntax.Subscript) and isinstance(each.value, syntax.Name):
            index = each.value.identifier.text
            if index in levels:
                scope.problems.fail(KernelByLevel(each.span, name, index, scope.labels[index]))
