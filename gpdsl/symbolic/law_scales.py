"""The equations that distributions add to those of `scales`: means and spreads have the unit of the output."""

from __future__ import annotations

from dataclasses import replace

from gpdsl.language import model as m
from gpdsl.symbolic.data_scales import NO_UNIT, NOISE, Size
from gpdsl.symbolic.densities import DENSITIES
from gpdsl.symbolic.scales import Scales, Unsized
from gpdsl.symbolic.translate import Environment, axis_key

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
            spread, size = _left(scales, observation, name, where, env)
        except Unsized:
            continue
        add_law(scales, observation.distribution, spread, size, env)


def _left(
    scales: Scales, observation: m.Observation, name: str, where: tuple[int, ...], env: Environment
) -> tuple[Size, Size]:
    """Spread and magnitude of what stands left of `~`."""
    if observation.transform is None:
        return Size(scales.data.spread(name, where)), Size(scales.data.magnitude(name, where))
    measured = scales.data.measured(scales.translator, observation.transform, env)
    if measured is not None:
        return Size(measured[0]), Size(measured[1])
    whole = scales.size(observation.transform, env)
    return whole, whole


def add_law(scales: Scales, call: m.DistributionCall, spread: Size, size: Size, env: Environment) -> None:
    """What a distribution says of an output with this spread and magnitude."""
    for component in call.components:
        add_law(scales, component, spread, size, env)
    if call.name == "LogNormal":
        scales.equal(size, NO_UNIT)  # a parameter that divides the output takes its unit away
    if _definition(scales, call) is not None:
        _by_formula(scales, call, spread, size, env)
        return
    for name, expression in call.arguments.items():
        more = [axis for axis in expression.axes if axis_key(axis) not in env]
        for each in scales.along(more, env):
            found = scales.sized(expression, each)
            rule = None if found is None else _rule(call.name, name, spread, spread if found.level else size)
            if found is not None and rule is not None:
                scales.equal(found, rule)


def _definition(scales: Scales, call: m.DistributionCall) -> m.Density | None:
    """The formula behind a distribution of the file, or one that is registered as a text."""
    if call.log_density is not None:
        return scales.translator.declarations.densities[call.name]
    return DENSITIES[call.name].definition if call.name in DENSITIES else None


def _by_formula(scales: Scales, call: m.DistributionCall, spread: Size, size: Size, env: Environment) -> None:
    """A log density has no unit, nor have the numbers in it: terms of it are of size one."""
    density = _definition(scales, call)
    assert density is not None
    observed = replace(size, spread=spread.constant)
    scales.equal(scales.by_formula(density.body, {density.observed: observed}, call.arguments, env, True), NO_UNIT)


def _joint(scales: Scales, call: m.DistributionCall, name: str) -> None:
    """A multivariate normal: means, covariances and factors in the units of the elements."""
    for argument, expression in call.arguments.items():
        for env in scales.along(expression.axes, {}):
            own = [env[axis_key(axis)] for axis in expression.axes]
            found = scales.sized(expression, env)
            if found is None or not own or not isinstance(own[0], int):
                continue
            sizes = [Size(scales.data.spread(name, (own[0],)))]
            if argument == "covariance" and len(own) > 1 and isinstance(own[1], int):
                sizes.append(Size(scales.data.spread(name, (own[1],))))
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
