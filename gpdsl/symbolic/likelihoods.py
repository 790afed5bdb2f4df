"""Checked distributions → laws: every argument translated, those with one value per level or component one by one."""

from __future__ import annotations

from collections.abc import Collection

import sympy as sp

from gpdsl.language import model as m
from gpdsl.language.vocabulary import DISTRIBUTIONS
from gpdsl.symbolic.errors import ComponentWeights, CutpointCount, NoSlope
from gpdsl.symbolic.laws import Law
from gpdsl.symbolic.tails import TAILS
from gpdsl.symbolic.translate import Environment, Translator, axis_key

LISTED = {"level", "cutpoint", "component"}
"""What a parameter may hold one value per."""


def law_of(translator: Translator, call: m.DistributionCall, env: Environment, own: Collection[str]) -> Law:
    """The law of one element of an observation, or of a parameter; `own` are the keys of the axes left of `~`."""
    held = {each.name: each.per for each in DISTRIBUTIONS[call.name].parameters}
    arguments: dict[str, sp.Expr | tuple[sp.Expr, ...]] = {}
    for name, expression in call.arguments.items():
        if held.get(name) in LISTED:
            arguments[name] = _along(translator, call, name, expression, env, own)
        else:
            arguments[name] = _one(translator, call, name, expression, env)
    listed = tuple(value for name, value in arguments.items() if name.startswith("weights["))
    if listed:
        arguments = {"weights": listed}
    law = Law(call.name, arguments, tuple(law_of(translator, each, env, own) for each in call.components))
    _check_weights(translator, call, law)
    _check_slopes(translator, call, law)
    return law


def _one(
    translator: Translator, call: m.DistributionCall, name: str, expression: m.Expression, env: Environment
) -> sp.Expr:
    return translator.bounded(translator.scalar(expression, env), f"`{name}` of `{call.name}`", expression.span)


def _along(
    translator: Translator,
    call: m.DistributionCall,
    name: str,
    expression: m.Expression,
    env: Environment,
    own: Collection[str],
) -> sp.Expr | tuple[sp.Expr, ...]:
    """The values along the one axis that the left side lacks; a single value when there is none."""
    more = [axis for axis in expression.axes if axis_key(axis) not in own]
    if not more:
        return _one(translator, call, name, expression, env)
    key = axis_key(more[0])
    places = range(1, translator.size(more[0]) + 1)
    return tuple(_one(translator, call, name, expression, {**env, key: place}) for place in places)


def check_cutpoints(translator: Translator, observation: m.Observation, law: Law, levels: int) -> None:
    """An Ordinal has one cutpoint fewer than levels, which shows once data have bound the sizes."""
    if law.name == "Ordinal" and len(law.arguments["cutpoints"]) != levels - 1:
        span, given = observation.distribution.arguments["cutpoints"].span, len(law.arguments["cutpoints"])
        raise translator.failure(CutpointCount(span, observation.outputs[0], levels, levels - 1, given))


def _check_weights(translator: Translator, call: m.DistributionCall, law: Law) -> None:
    weights = law.arguments.get("weights")
    if isinstance(weights, tuple) and len(weights) != len(law.components):
        span = next(iter(call.arguments.values())).span
        raise translator.failure(ComponentWeights(span, len(weights), len(law.components)))


def _check_slopes(translator: Translator, call: m.DistributionCall, law: Law) -> None:
    """Distribution functions have no derivative with respect to some arguments, which must then be known numbers."""
    if law.name not in {"Truncated", "Censored"}:
        return
    inner = law.components[0]
    tails = TAILS[inner.name]
    for name, moving in ((tails.constant, {"latent", "row", "param", "gathered"}), (tails.stiff, {"latent", "row"})):
        if not name:
            continue
        for symbol in inner.arguments[name].free_symbols:
            ref = translator.references[symbol]
            held = ref.name in translator.declarations.params and translator.declarations.params[ref.name].fixed
            if ref.kind in moving and not held:
                span = call.components[0].arguments[name].span
                raise translator.failure(NoSlope(span, inner.name, name, ref.name))
