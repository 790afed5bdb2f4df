"""Priors of parameters: a continuous distribution of constants, whose values are those the parameter can have."""

from __future__ import annotations

from dataclasses import replace

from gpdsl.language import syntax
from gpdsl.language.checker.build import fact_of
from gpdsl.language.checker.components import BOUNDS
from gpdsl.language.checker.distributions import check_distribution
from gpdsl.language.checker.groups import refuse_learnt
from gpdsl.language.checker.place import IndexRange, Left, Place
from gpdsl.language.checker.scope import Scope
from gpdsl.language.errors.calls import NotADistribution, NotAPrior
from gpdsl.language.errors.distributions import PriorElsewhere
from gpdsl.language.habits import distribution_habit
from gpdsl.language.intervals import interval, interval_of
from gpdsl.language.model import DistributionCall, Param
from gpdsl.language.vocabulary import DISTRIBUTIONS

_IN_PRIOR = frozenset({"const"})
_OWN = {"simplex": ("Dirichlet", "simplexes"), "correlation_factor": ("LKJ", "factors of correlation matrices")}
"""The one prior of a constraint, and what it is a prior of."""

_VALUES = {"real": "any number", "positive": "positive numbers", "unit": "numbers between 0 and 1"}


def check_prior(scope: Scope, statement: syntax.ParamStatement) -> None:
    """`param s : positive ~ Gamma(2, 1)`; a simplex has a Dirichlet prior, a factor LKJ, and nothing else has."""
    name, call = statement.declared.name.text, statement.prior
    if call is None or name not in scope.params:
        return
    param = scope.params[name]
    if not isinstance(call, syntax.Call):
        scope.problems.fail(NotADistribution(call.span))
    _check_names(scope, call, param)
    if scope.labels:
        refuse_learnt(scope, call, param)
    names = tuple(axis.name for axis in param.axes if axis.name is not None)
    bound = {axis.name: IndexRange.of(axis) for axis in param.axes if axis.name is not None}
    place = Place("a prior", _IN_PRIOR, Left("param", name, f"param {name}", names), bound)
    prior = check_distribution(scope, place, call, param.axes)
    _check_support(scope, prior, param)
    scope.params[name] = replace(param, prior=prior)


def _check_names(scope: Scope, call: syntax.Call, param: Param) -> None:
    """The distribution is a prior of this sort of parameter, and so are the components of a mixture."""
    word, own = call.function, _OWN.get(param.constraint)
    known = [own[0]] if own else [each.name for each in DISTRIBUTIONS.values() if each.continuous]
    if word.text not in known:
        meant = next((name for name, (prior, _) in _OWN.items() if prior == word.text), None)
        if word.text in DISTRIBUTIONS and (own or meant):
            values = _OWN[meant][1] if meant else "single numbers"
            remedy = f"write `~ {own[0]}(1)`" if own else f"declare a `{meant}`, or choose another prior"
            scope.problems.fail(PriorElsewhere(word.span, word.text, values, param.name, _described(param), remedy))
        suggestion = "" if word.text in DISTRIBUTIONS else scope.problems.suggest(word.text, known)
        scope.problems.fail(
            NotAPrior(word.span, word.text, ", ".join(known), suggestion, distribution_habit(word.text))
        )
    for argument in call.arguments:
        inner = argument.value
        if isinstance(inner, syntax.Call) and inner.function.text in DISTRIBUTIONS:
            _check_names(scope, inner, param)


def _check_support(scope: Scope, prior: DistributionCall, param: Param) -> None:
    """Every value the parameter can take has a density: else the search would end at an edge nobody has written."""
    if param.constraint in _OWN:
        return
    if prior.name == "Mixture":
        for component in prior.components:
            _check_support(scope, component, param)
        return
    low, high = interval(param)
    inner = prior.components[0] if prior.components else prior
    support = DISTRIBUTIONS[inner.name].support
    least, most = interval_of(support)
    if low < least or high > most:
        remedy = "declare `real(lower = 0, upper = 1)` or `unit`" if support == "unit" else f"declare it `{support}`"
        shown = _described(param)
        scope.problems.fail(
            PriorElsewhere(
                prior.span, inner.name, _VALUES[support], param.name, shown, f"{remedy}, or change the prior"
            )
        )
    bounds = {name: fact_of(scope, each).value for name, each in prior.arguments.items() if name in BOUNDS}
    lower, upper = bounds.get("lower"), bounds.get("upper")
    if (lower is not None and low < lower) or (upper is not None and high > upper):
        parts = [f"{name} = {value:g}" for name, value in bounds.items() if value is not None]
        remedy = f"give the parameter the same bounds: `param {param.name} : real({', '.join(parts)})`"
        values = f"numbers with {' and '.join(parts)}"
        scope.problems.fail(PriorElsewhere(prior.span, prior.name, values, param.name, _described(param), remedy))


def _described(param: Param) -> str:
    """`real(lower = -1)`, as it is written."""
    bounds = [f"{n} = {v:g}" for n, v in (("lower", param.lower), ("upper", param.upper)) if v is not None]
    return f"`{param.constraint}({', '.join(bounds)})`" if bounds else f"`{param.constraint}`"
