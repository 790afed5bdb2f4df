"""Distributions that hardly fit their arguments."""

from __future__ import annotations

from collections.abc import Iterator

from gpdsl.language import model as m
from gpdsl.language.errors.base import Mistake
from gpdsl.language.vocabulary import DISTRIBUTIONS
from gpdsl.language.warnings.cautions import NotKeptInside

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
        yield NotKeptInside(argument.span, parameter.name, call.name, domain, remedy.format(text))


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
                known or not _reads_latent(declarations, each) for known, each in zip(linear, operands, strict=True)
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
    return positive or not _reads_latent(declarations, factor)


def _reads_latent(declarations: m.Declarations, expression: m.Expression) -> bool:
    pending, seen = [expression], set[str]()
    while pending:
        each = pending.pop()
        pending += m.parts(each)
        if isinstance(each, m.Read):
            if each.name in declarations.latents or each.name in declarations.rows:
                return True
            if each.name in declarations.lets and each.name not in seen:
                seen.add(each.name)
                pending += [case.body for case in declarations.lets[each.name].cases]
    return False
