"""The equations that covariance functions and distributions add to those of `scales`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import log

import numpy as np

from gpdsl.language import model as m
from gpdsl.symbolic.data_scales import NO_UNIT, NOISE, Size, log_size, log_spread
from gpdsl.symbolic.densities import DENSITIES
from gpdsl.symbolic.scales import Scales, Unsized
from gpdsl.symbolic.translate import Environment, axis_key

WEAKLY = 1e-3
"""Weight of an equation that holds where no other one is against it."""


def add_latent(scales: Scales, latent: m.Latent) -> None:
    """The equations of `latent f(x) ~ GP(mean, kernel)`, element by element."""
    for env in scales.along(latent.axes, {}):
        where = tuple(int(env[axis_key(axis)]) for axis in latent.axes)
        more = latent.values[len(latent.axes) :]  # points of a field, levels of an index
        places = scales.along(more, env)
        spots = [(*where, *(int(place[axis_key(axis)]) for axis in more)) for place in places]
        own = [Size(unknown={(latent.name, spot): 1.0}, latent=latent.over is None) for spot in spots]
        columns = _columns(scales, latent)
        first = latent.arguments[0]
        scales.centre = float(np.mean(scales.data.columns(first)[:, 0])) if first in scales.data.values else 0.0
        try:
            for each, place in zip(own, places, strict=True):
                mean = scales.size(latent.mean, env if latent.over is not None else place)
                if not mean.number:
                    scales.equal(each, mean)
        except Unsized:
            pass
        try:
            variance = kernel_size(scales, latent.kernel, columns, env)
        except Unsized:
            continue
        for each in own:
            scales.equal(each.times(each), variance)


def _columns(scales: Scales, latent: m.Latent) -> list[Size]:
    """The spreads of the columns of its arguments."""
    found: list[Size] = []
    d = scales.translator.declarations
    for name in latent.arguments:
        if name in d.latents or name in d.rows:
            for env in scales.along(d.axes_of(name), {}):
                where = tuple(int(env[axis_key(axis)]) for axis in d.axes_of(name))
                found.append(Size(unknown={(name, where): 1.0}) if name in d.latents else NO_UNIT)
        else:
            found += [Size(log_spread(column)) for column in scales.data.columns(name).T]
    return found


def kernel_size(scales: Scales, kernel: m.Kernel, columns: Sequence[Size], env: Environment) -> Size:
    """The scale of a covariance function, with equations for what is inside. Raises Unsized where it has none."""
    match kernel:
        case m.KernelScale(factor=factor, kernel=inner):
            variance = kernel_size(scales, inner, columns, env)
            return scales.size(factor, env).times(variance)
        case m.KernelSum(terms=terms):
            sizes = [kernel_size(scales, term, columns, env) for term in terms]
            free = next((each for each in sizes if each.unknown), sizes[0])
            for each in sizes:
                scales.equal(each, free)
            return free
        case m.KernelProduct(factors=factors):
            found = Size()
            for each_factor in factors:
                found = found.times(kernel_size(scales, each_factor, columns, env))
            return found
        case m.KernelCall():
            return _call(scales, kernel, _seen(scales, kernel.on, columns, env), env)
        case m.KernelFormula():
            return _by_formula(scales, kernel, _seen(scales, kernel.on, columns, env), env)
    raise Unsized


def _seen(scales: Scales, on: Sequence[m.Expression], columns: Sequence[Size], env: Environment) -> list[Size]:
    """The columns that `on =` makes, or all as they are."""
    if not on:
        return list(columns)
    found = []
    for expression in on:
        for each in scales.over(expression, env):
            measured = scales.data.measured(scales.translator, expression, each)
            found.append(Size(measured[0]) if measured is not None else scales.size(expression, each))
    return found


def _call(scales: Scales, kernel: m.KernelCall, columns: Sequence[Size], env: Environment) -> Size:
    arguments = kernel.arguments
    match kernel.name:
        case "Coregion":
            return _coregion(scales, arguments, env)
        case "SpectralMixture":
            scales.cyclic = True
            return _spectral(scales, arguments, columns, env)
        case "ChangePoint":
            return _change(scales, kernel, columns, env)
        case "Patch":
            _without_unit(scales, arguments.get("weights"), env)
            for found in scales.elements(arguments["weights"], env) if "weights" in arguments else []:
                scales.places |= dict.fromkeys(found.reals, 1.0)
            inside = [_typical(columns)] * int(np.prod(kernel.sizes["patch"]))
            return kernel_size(scales, kernel.kernels[0], inside, env)
        case "ArcCosine" | "Linear" | "Polynomial":
            return _products(scales, kernel, columns, env)
        case "Periodic":
            scales.cyclic = True
            _without_unit(scales, arguments.get("ell"), env)
            _per_column(scales, arguments.get("period"), columns, env)
            return NO_UNIT
    scales.cyclic |= kernel.name == "Cosine"
    for name in ("ell", "period"):
        _per_column(scales, arguments.get(name), columns, env)
    if "alpha" in arguments:
        _without_unit(scales, arguments["alpha"], env)
    return NO_UNIT


def _without_unit(scales: Scales, argument: m.Expression | None, env: Environment) -> None:
    for found in scales.elements(argument, env) if argument is not None else []:
        scales.equal(found, NO_UNIT)


def _products(scales: Scales, kernel: m.KernelCall, columns: Sequence[Size], env: Environment) -> Size:
    """Kernels of inner products have the unit of these, to a power: no length-scale takes it away.

    Without a factor that has the unit of the variance, weights and offsets have it; products are of size one if not.
    """
    arguments = kernel.arguments
    layer = kernel.name == "ArcCosine"
    name, power = ("weight", 1.0) if layer else ("ell", -2.0)
    inner = Size().times(_typical(columns), 2.0)
    if name in arguments:
        scales.lengths |= {read.name for read in m.reads_of(arguments[name])} if kernel.name == "Polynomial" else set()
        grown = 0.0 if layer or not columns else 0.5 * log(len(columns))
        pairs = _with_columns(scales, arguments[name], columns, env, grown)
        sized = [Size().times(size, 2.0).times(found, power) for found, size in pairs]
        for each in sized:
            scales.equal(each, sized[0])
        inner = sized[0] if sized else inner
    if kernel.name != "Linear":
        scales.equal(Size().times(inner, WEAKLY), NO_UNIT)
    beside = scales.elements(arguments[other], env) if (other := "bias" if layer else "offset") in arguments else []
    for each in beside:
        if each.unknown:
            scales.equal(each, inner)
        elif not inner.unknown:  # numbers of the model, which may be the larger part
            inner = Size(float(np.logaddexp(inner.constant, each.constant)))
    order = arguments.get("order" if layer else "degree")
    return Size().times(inner, float(order.value) if isinstance(order, m.Number) else 1.0)


def _per_column(scales: Scales, argument: m.Expression | None, columns: Sequence[Size], env: Environment) -> None:
    """One number per column has its unit; a single one that of distances between points of all columns.

    Distances grow with the root of the number of columns.
    """
    if argument is None or not columns:
        return
    scales.lengths |= {read.name for read in m.reads_of(argument)}
    for found, size in _with_columns(scales, argument, columns, env, 0.5 * log(len(columns))):
        scales.equal(found, size)


def _with_columns(
    scales: Scales, argument: m.Expression, columns: Sequence[Size], env: Environment, grown: float
) -> list[tuple[Size, Size]]:
    """The numbers of an argument that has one per column, or one for all, each with the size of what it belongs to."""
    elements = scales.over(argument, env)
    if len(elements) == len(columns) > 1:
        wanted = [column.times(Size(grown)) for column in columns]
    else:
        wanted = [_typical(columns).times(Size(grown))] * len(elements)
    sized = [(scales.sized(argument, element), size) for element, size in zip(elements, wanted, strict=True)]
    return [(found, size) for found, size in sized if found is not None]


def _typical(columns: Sequence[Size]) -> Size:
    """One column for several: the root of their mean square, where all are known."""
    if len(columns) == 1 or any(each.unknown for each in columns):
        return columns[0]
    constants = np.asarray([each.constant for each in columns])
    largest = constants.max()
    return Size(float(largest + 0.5 * np.log(np.mean(np.exp(2.0 * (constants - largest))))))


def _coregion(scales: Scales, arguments: Mapping[str, m.Expression], env: Environment) -> Size:
    loadings = scales.elements(arguments["W"], env)
    own = scales.elements(arguments["kappa"], env)
    scales.loadings |= {name for each in loadings for name in each.reals}
    total = next((each.times(each) for each in loadings), NO_UNIT)
    for each in loadings:
        scales.equal(each.times(each), total)
    for each in own:
        scales.equal(each, total)
    return total


def _spectral(scales: Scales, arguments: Mapping[str, m.Expression], columns: Sequence[Size], env: Environment) -> Size:
    weights = scales.elements(arguments["weights"], env)
    for name in ("means", "sds"):
        expression = arguments[name]
        more = [axis for axis in expression.axes if axis_key(axis) not in env]
        for place, element in enumerate(scales.along(more, env)):
            found = scales.sized(expression, element)
            column = columns[place % len(columns)] if len(more) > 1 else _typical(columns)
            if found is not None:
                scales.equal(found, Size().times(column, -1.0))
                scales.frequencies |= found.reals
    for each in weights:
        scales.equal(each, weights[0])
    return weights[0] if weights else NO_UNIT


def _change(scales: Scales, kernel: m.KernelCall, columns: Sequence[Size], env: Environment) -> Size:
    for name in ("at", "width"):
        found = scales.sized(kernel.arguments[name], env) if name in kernel.arguments else None
        if found is not None and columns:
            scales.equal(found, columns[0])
            scales.places |= dict.fromkeys(found.reals if name == "at" else (), scales.centre)
    sizes = [kernel_size(scales, each, columns, env) for each in kernel.kernels]
    scales.equal(sizes[0], sizes[1])
    return sizes[0]


def _by_formula(scales: Scales, kernel: m.KernelFormula, columns: Sequence[Size], env: Environment) -> Size:
    """A formula is one more expression, in which points and distances are as large as their columns.

    Arguments with a value per column are all alike: the formula is read for one column.
    """
    points = columns[:-1] if kernel.levels else columns
    if not points:
        raise Unsized
    known = dict.fromkeys(kernel.points, _typical(points)) | dict.fromkeys(kernel.levels, NO_UNIT)
    return scales.by_formula(kernel.body, known, kernel.arguments, env)


# The equations that distributions add to those of `scales`: means and spreads have the unit of the output.

DIMENSIONLESS = {"probit", "logit", "logits", "cutpoints", "p", "df", "shape", "a", "b", "dispersion", "weights"}
"""Arguments of distributions that have no unit."""


def add_observation(scales: Scales, observation: m.Observation) -> None:
    """The equations of a `~`: what its distribution says of the scale of the output, element by element."""
    if observation.distribution.external or len(observation.outputs) > 1:
        return
    (name,) = observation.outputs
    for env in scales.along(observation.axes, {}):
        try:
            where = scales.positions(observation.subscripts, env)
            if observation.distribution.name == "MultivariateNormal":
                _joint(scales, observation.distribution, name)
                return
            # Spread and magnitude of what stands left of `~`.
            if observation.transform is None:
                values = scales.data.element(name, where)
                spread, size = Size(log_spread(values)), Size(log_size(values))
            elif (measured := scales.data.measured(scales.translator, observation.transform, env)) is not None:
                spread, size = map(Size, measured)
            else:
                spread = size = scales.size(observation.transform, env)
        except Unsized:
            continue
        add_law(scales, observation.distribution, spread, size, env)


def add_law(scales: Scales, call: m.DistributionCall, spread: Size, size: Size, env: Environment) -> None:
    """What a distribution says of an output with this spread and magnitude."""
    for component in call.components:
        add_law(scales, component, spread, size, env)
    if call.name == "LogNormal":
        scales.equal(size, NO_UNIT)  # a parameter that divides the output takes its unit away
    named = DENSITIES.get(call.name)  # one of the table, or one that is registered as a text
    density = named.definition if named is not None else None
    if call.log_density is not None:
        density = scales.translator.declarations.densities[call.name]
    if density is not None:
        # A log density has no unit, nor have the numbers in it: terms of it are of size one.
        observed = {density.observed: replace(size, spread=spread.constant)}
        scales.equal(scales.by_formula(density.body, observed, call.arguments, env, True), NO_UNIT)
        return
    for name, expression in call.arguments.items():
        for each in scales.over(expression, env):
            found = scales.sized(expression, each)
            rule = None if found is None else _rule(call.name, name, spread, spread if found.level else size)
            if found is not None and rule is not None:
                scales.equal(found, rule)


def _joint(scales: Scales, call: m.DistributionCall, name: str) -> None:
    """A multivariate normal: means, covariances and factors in the units of the elements."""
    for argument, expression in call.arguments.items():
        for env in scales.along(expression.axes, {}):
            own = [env[axis_key(axis)] for axis in expression.axes]
            found = scales.sized(expression, env)
            if found is None or not own or not isinstance(own[0], int):
                continue
            sizes = [Size(log_spread(scales.data.element(name, (own[0],))))]
            if argument == "covariance" and len(own) > 1 and isinstance(own[1], int):
                sizes.append(Size(log_spread(scales.data.element(name, (own[1],)))))
            elif argument == "factor":
                scales.loadings |= found.reals
            scales.equal(found, sizes[0] if len(sizes) == 1 else sizes[0].times(sizes[1]))


def _rule(law: str, argument: str, spread: Size, size: Size) -> Size | None:
    """The scale of an argument of a distribution; None where it says nothing."""
    if argument.split("[")[0] in DIMENSIONLESS or argument.startswith("logits"):
        return NO_UNIT
    if law == "LogNormal":
        return NO_UNIT
    if argument == "rate":
        return Size().times(size, -1.0)
    if law in {"Weibull", "InverseGamma"} and argument == "scale" or law.startswith("Half") and argument != "df":
        return size
    if argument in {"sd", "scale"}:
        return spread.times(Size(NOISE))
    return size if argument == "mean" else None
