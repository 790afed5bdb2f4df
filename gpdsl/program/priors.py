"""Priors of parameters: the log densities that make a point estimate a MAP estimate.

A prior is a density of the parameter itself, not of the unconstrained number behind it: no Jacobian is added, so that
the mode does not depend on how the parameter is mapped to the real line. Bounds cut a prior without renormalising it,
which moves no mode.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import sympy as sp

from gpdsl.language import model as m
from gpdsl.symbolic.laws import dirichlet, lkj, log_density
from gpdsl.symbolic.likelihoods import law_of
from gpdsl.symbolic.translate import Ref, Translator, axis_key


@dataclass(frozen=True)
class Prior:
    """Log density of one generic element along `axes`; for a simplex or a factor, of all its elements together."""

    log_density: sp.Expr
    axes: tuple[str, ...]


def priors_of(translator: Translator, learnt: Collection[str]) -> dict[str, Prior]:
    """The prior of each learnt parameter that declares one."""
    params = translator.declarations.params
    return {name: _prior(translator, params[name]) for name in learnt if params[name].prior is not None}


def _prior(translator: Translator, param: m.Param) -> Prior:
    assert param.prior is not None
    keys = tuple(axis_key(a) for a in param.axes)
    if param.constraint == "simplex":
        return _dirichlet(translator, param, param.prior, keys)
    if param.constraint == "correlation_factor":
        return _lkj(translator, param, param.prior, keys)
    value = translator.symbol(Ref("param", param.name, keys), positive=param.positive)
    return Prior(log_density(law_of(translator, param.prior, {}, keys), value), keys)


def _dirichlet(translator: Translator, param: m.Param, call: m.DistributionCall, keys: tuple[str, ...]) -> Prior:
    """The elements of a simplex are written out: their density is joint."""
    concentration = call.arguments["concentration"]
    places = range(1, translator.size(param.axes[-1]) + 1)
    values = [translator.symbol(Ref("param", param.name, (*keys[:-1], i)), positive=True) for i in places]
    weights = [translator.scalar(concentration, {keys[-1]: i}) for i in places]
    return Prior(dirichlet(weights, values), keys[:-1])


def _lkj(translator: Translator, param: m.Param, call: m.DistributionCall, keys: tuple[str, ...]) -> Prior:
    """The diagonal of a factor is written out."""
    places = range(1, translator.size(param.axes[-1]) + 1)
    diagonal = [translator.symbol(Ref("param", param.name, (*keys[:-2], i, i)), positive=True) for i in places]
    return Prior(lkj(translator.scalar(call.arguments["eta"], {}), diagonal), keys[:-2])
