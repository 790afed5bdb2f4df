"""Priors of parameters: the log densities that make a point estimate a MAP estimate.

A prior is a density of the parameter itself, not of the unconstrained number behind it: no Jacobian is added, so that
the mode does not depend on how the parameter is mapped to the real line. It is that of the distribution between the
bounds of the parameter: the log probability there, a number, is subtracted.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import sympy as sp

from gpdsl.errors import GpdslError
from gpdsl.language import model as m
from gpdsl.language.intervals import interval
from gpdsl.symbolic.laws import Law, dirichlet, lkj, log_density
from gpdsl.symbolic.likelihoods import law_of
from gpdsl.symbolic.mass import log_mass
from gpdsl.symbolic.translate import Ref, Translator, axis_key


@dataclass(frozen=True)
class Prior:
    """Log density of one generic element along `axes`; for a simplex or a factor, of all its elements together.

    What is subtracted of it for bounds is the mean of the elements, where their distributions differ.
    """

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
    law = law_of(translator, param.prior, {}, keys)
    return Prior(log_density(law, value) - _log_inside(translator, param, law), keys)


def _log_inside(translator: Translator, param: m.Param, law: Law) -> sp.Expr:
    """Log probability between the bounds of the parameter, the mean over elements."""
    keys, (low, high), found = tuple(axis_key(a) for a in param.axes), interval(param), []
    alike = not any(leaf.free_symbols for leaf in law.leaves())
    for at in np.ndindex(() if alike else translator.shape(param.axes)):
        assert param.prior is not None
        place = dict(zip(keys, (each + 1 for each in at), strict=False))
        mass = log_mass(law if alike else law_of(translator, param.prior, place, keys), low, high)
        if not np.isfinite(mass):
            raise GpdslError(
                f"the prior of `{param.name}`, `{law.name}`, has no probability between {low:g} and {high:g}, where "
                "the parameter lies; choose a prior with values there, or other bounds"
            )
        found.append(mass)
    mean = float(np.mean(found))
    return sp.Float(mean) if mean else sp.S.Zero


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
