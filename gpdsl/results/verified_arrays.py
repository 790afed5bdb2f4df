"""The arrays of a saved fit: numbers in their domains, of the shapes that the model and the choices ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from gpdsl.errors import need, shown
from gpdsl.inference.inducing.featured import outline_of
from gpdsl.kernels.functionals import Derivatives, Functionals, Integrals, blocks, outline
from gpdsl.program.evaluation import functionals_at
from gpdsl.program.groups import Group, columns_of
from gpdsl.program.parameters import Bijector
from gpdsl.program.rows import Rows
from gpdsl.program.standardise import refusal
from gpdsl.results.fit import Fit
from gpdsl.results.settings import Settings

ROUNDED = 1e-6
"""How far rounding in single precision may take a parameter out of its domain, relative to its size."""

ADDED = 1e-4
"""How far from 1 the weights of a mixture and the elements of a simplex may add up in single precision."""


def check_arrays(arrays: Mapping[str, np.ndarray]) -> None:
    """That all are numbers, and finite but for the bound in the history."""
    for name, values in arrays.items():
        need(values.dtype.kind in "fi", f"the array {name} is of {values.dtype}")
        need(name == "history" or np.all(np.isfinite(values)), f"the array {name} has values that are not finite")
    history = arrays["history"]
    need(history.ndim == 2 and history.shape[1] == 3 and history.dtype == float, "history: expected three columns")
    need(np.all(np.isfinite(history[:, [0, 2]])), "history: steps or seconds that are not finite")


def check_fit(fit: Fit) -> None:
    """That the numbers of a fit are in their domains, and that its parts belong together."""
    translator, domains = fit.program.translator, fit.program.parameters.bijectors
    for name, param in fit.program.declarations.params.items():
        value, shape = fit.parameters[name], translator.shape(param.axes)
        need(value.dtype == float and value.shape == shape, f"parameter {name}: expected floats of shape {shape}")
        need(_inside(domains[name], value), f"parameter {name}: expected {domains[name].domain}")
    _check_standardised(fit)
    need((fit.options.engine == "qsgp") == (fit.choice.weights is not None), "engine: not that of the posterior")
    _check_components(fit)
    _check_settings(fit)
    for group, points in zip(fit.program.groups, fit.inducing, strict=False):
        _check_points(fit, group, points)
    fit.at_rows.check(fit.choice, fit.options)


def _check_standardised(fit: Fit) -> None:
    """That what was standardised can be, by numbers of its shape."""
    d, (means, sds) = fit.program.declarations, (fit.standardised.means, fit.standardised.sds)
    need(means.keys() == sds.keys(), "standardised: means and deviations of different names")
    for name in sds:
        known = name in d.inputs or name in d.outputs
        need(known and not refusal(d, name), f"standardised: {shown(name)} cannot be")
        shape = fit.program.translator.shape(d.axes_of(name))
        for values in (means[name], sds[name]):
            need(values.dtype == float and values.shape == shape, f"standardised: {name} has another shape or type")
        need(np.all(sds[name] > 0), f"standardised: {name} has a deviation that is not positive")


def _inside(domain: Bijector, value: np.ndarray) -> bool:
    """Whether a value is in a domain, but for rounding: a sigmoid may end at 1.0, and an exponential at 0.0."""
    if not np.all(np.isfinite(value)):
        return False
    room = ROUNDED * np.abs(value) + np.finfo(float).tiny
    if domain.contains(value):
        return True
    if not domain.vector:
        each = zip(value.ravel(), room.ravel(), strict=True)
        return all(any(domain.contains(np.asarray(v + side * r)) for side in (0.0, 1.0, -1.0)) for v, r in each)
    simplex = np.maximum(value, np.finfo(float).tiny) / np.maximum(value.sum(axis=-1, keepdims=True), 0.5)
    adds_up = np.all(value >= 0) and np.all(np.abs(value.sum(axis=-1) - 1.0) < ADDED)
    apart = value + np.max(room) * np.arange(value.shape[-1])
    return bool(adds_up and domain.contains(simplex)) or domain.contains(apart)


def _check_components(fit: Fit) -> None:
    """The weights of a mixture."""
    count, weights = fit.at_rows.components(fit.choice), np.asarray(fit.weights)
    need(weights.shape == (count,) and np.all(weights >= 0), "weights: not those of the components")
    need(weights.dtype in (float, np.dtype(fit.options.dtype)), "weights: not of the precision of the fit")
    need(abs(float(weights.sum()) - 1.0) < ADDED, "weights: do not add up to 1")


def _check_settings(fit: Fit) -> None:
    """That every setting could be that of a fit without others, and that their weights add up to 1."""
    settings = fit.settings
    asked = fit.options.explores or fit.options.drawn
    need(settings is None or asked, "settings: not what was asked for")
    if settings is None:
        return
    weights = settings.weights
    need(weights.dtype == float and weights.ndim == 1 and np.all(weights > 0), "settings: not weights of settings")
    need(abs(float(weights.sum()) - 1.0) < ADDED, "settings: weights that do not add up to 1")
    alone = replace(fit.options, hyperparameters="point", parameters="point")
    for name, values in settings.chains.items():
        axes = fit.program.translator.shape(fit.program.declarations.params[name].axes)
        need(values.ndim >= 2 and values.shape[2:] == axes, f"settings: draws of {shown(name)} of another shape")
    _check_draws(settings)
    for each in settings.each:
        own = replace(fit, parameters=each.parameters, posterior=each.posterior, held=each.held)
        check_fit(replace(own, options=alone, settings=None))


def _check_draws(settings: Settings) -> None:
    """That settings are the draws of chains that they are said to be."""
    shapes = {each.shape[:2] for each in (*settings.chains.values(), *settings.statistics.values())}
    need(len(shapes) <= 1 and all(len(each) == 2 for each in shapes), "settings: chains of several shapes")
    kept = settings.kept
    need(kept.ndim == 1 and kept.dtype == int and np.all(np.diff(kept) > 0), "settings: not numbers of draws")
    if len(kept):
        chains, draws = next(iter(shapes), (0, 0))
        need(len(settings.each) == chains * len(kept), "settings: not as many as draws were kept")
        need(kept[0] >= 0 and kept[-1] < draws, "settings: draws beyond the ends of the chains")


def _check_points(fit: Fit, group: Group, points: Functionals) -> None:
    """That inducing functionals are of the kind that the group has, at points with as many columns."""
    translator, names = fit.program.translator, ", ".join(group.names)
    width, dtype = 0 if group.per_row else columns_of(group, translator), np.dtype(fit.options.dtype)
    for leaf in jax.tree.leaves(points):
        shaped = leaf.ndim == 2 and leaf.shape[1] == width and len(leaf) > 0
        need(shaped and leaf.dtype == dtype, f"inducing points of {names}: expected {width} columns of {dtype}")
    expected = {group.points} if group.points else {fit.rows} if group.per_row else {len(points)}
    need(len(points) in expected, f"inducing points of {names}: expected {expected}")
    need(outline(points) in _kinds(fit, group), f"inducing points of {names}: of another kind")


def _kinds(fit: Fit, group: Group) -> list[Any]:
    """The outlines that a group's inducing functionals may have: values, or what its rows read."""
    values: list[Any] = [["values"]]
    choice = fit.choice.of(group.names[0])
    if choice.features and not group.per_row:
        return [outline_of(fit.program, group, choice.features)]
    if group.points or group.per_row or not choice.dense:
        return values
    inputs, translator = fit.program.declarations.inputs, fit.program.translator
    one: dict[str, Any] = {name: np.zeros((1, *translator.shape(each.axes))) for name, each in inputs.items()}
    basis = fit.at_rows.by_data
    read = functionals_at(group, group.readings.basis if basis else group.readings.atoms, Rows(one, {}, {}))
    bent = any(isinstance(part, (Derivatives, Integrals)) for block in blocks(read) for _, part in block)
    return [outline(read)] if basis or bent else [*values, outline(read)]
