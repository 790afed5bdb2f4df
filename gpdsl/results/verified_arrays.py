"""The arrays of a saved fit: numbers in their domains, of the shapes that the model and the choices ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from gpdsl.inference.exact.posterior import Regression
from gpdsl.inference.inducing.featured import outline_of
from gpdsl.inference.plan.options import Options
from gpdsl.inference.posteriors.family import parse_family
from gpdsl.kernels.functionals import Derivatives, Functionals, Integrals, blocks, outline
from gpdsl.program.evaluation import functionals_at
from gpdsl.program.groups import Group, columns_of
from gpdsl.program.parameters import Bijector
from gpdsl.program.rows import Rows
from gpdsl.program.standardise import refusal
from gpdsl.results.fit import Fit
from gpdsl.results.verification import need, shown

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
    held = fit.weight_space is not None
    need((fit.options.engine == "qsgp") == held, "engine: not that of the posterior")
    need(held == (fit.choice.weights is not None), "choice: weights are not what the posterior is")
    sizes = fit.choice.exact or fit.choice.sets
    need((fit.regression is not None) == bool(sizes), "choice: exact is not what the posterior is")
    dense = held or fit.choice.dense == (fit.choice.inducing == 0)
    need(dense, "choice: dense or not does not go with the number of inducing points")
    _check_components(fit)
    _check_settings(fit)
    if held:
        _check_weights(fit)
    else:
        _check_posterior(fit)


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
    choice, weights = fit.choice, np.asarray(fit.weights)
    if choice.weights is not None:
        named, count = f"chevron({choice.weights.chevron})" if choice.weights.chevron else "diagonal", 1
        need(choice.posterior == named, f"choice: posterior is {shown(choice.posterior)}: expected {named}")
    else:
        count = parse_family(choice.posterior, choice.dense).components
    need(weights.shape == (count,) and np.all(weights >= 0), "weights: not those of the components")
    need(weights.dtype in (float, np.dtype(fit.options.dtype)), "weights: not of the precision of the fit")
    need(abs(float(weights.sum()) - 1.0) < ADDED, "weights: do not add up to 1")


def _check_settings(fit: Fit) -> None:
    """That every setting could be that of a fit without others, and that their weights add up to 1."""
    settings = fit.settings
    asked = fit.options.hyperparameters == "integrated" or _drawn(fit.options)
    need(settings is None or asked, "settings: not what was asked for")
    if settings is None:
        return
    weights = settings.weights
    need(weights.dtype == float and weights.ndim == 1 and np.all(weights > 0), "settings: not weights of settings")
    need(abs(float(weights.sum()) - 1.0) < ADDED, "settings: weights that do not add up to 1")
    alone = replace(fit.options, hyperparameters="point")
    for name, values in settings.chains.items():
        axes = fit.program.translator.shape(fit.program.declarations.params[name].axes)
        need(values.ndim >= 2 and values.shape[2:] == axes, f"settings: draws of {shown(name)} of another shape")
    for each in settings.each:
        own = replace(fit, parameters=each.parameters, posterior=each.posterior, regression=each.regression)
        check_fit(replace(own, options=alone, settings=None))


def _drawn(options: Options) -> bool:
    """Whether settings may hold draws of the latents."""
    return options.engine == "mcmc" or options.posterior == "corrected"


def _check_weights(fit: Fit) -> None:
    """A posterior over the weights of basis functions."""
    space, choice = fit.weight_space, fit.choice.weights
    assert space is not None and choice is not None
    shape = 1 + choice.chevron, choice.features
    need(space.q.vectors.shape == shape and space.q.curvature.shape == shape[1:], "weights: not as many as chosen")
    numbers = [space.q.vectors, space.q.curvature, space.basis.centres, space.basis.precision]
    plain = all(each is None or each.dtype == fit.options.dtype for each in numbers)
    need(plain, "weights: not of the precision of the fit")
    need(space.stiffness >= 0 and np.all(np.asarray(space.q.curvature) >= 0), "weights: curvatures below 0")
    given = space.basis.centres is not None, space.basis.precision is not None
    need(given == POINTS[fit.options.basis], "weights: not those of this basis")
    points = shape[1], columns_of(fit.program.groups[0], fit.program.translator)
    need(space.basis.centres is None or space.basis.centres.shape == points, "weights: centres of another shape")
    precision = space.basis.precision
    need(precision is None or (precision.shape == shape[1:] and np.all(precision > 0)), "weights: precisions")


POINTS = {"fourier": (False, False), "inducing": (True, False), "relevance": (True, True)}
"""Whether basis functions have centres, and precisions of their own."""


def _check_posterior(fit: Fit) -> None:
    """Inducing functionals, q over their values (none of exact inference), and the weights of a mixture."""
    program, dtype = fit.program, np.dtype(fit.options.dtype)
    components = len(fit.weights)
    for group, points in zip(program.groups, fit.inducing, strict=True):
        _check_points(fit, group, points)
    if fit.regression is not None:
        _check_regression(fit, fit.regression)
        return
    coupled = fit.choice.posterior == "coupled" and fit.options.posterior in {"auto", "corrected"}
    need(not coupled or program.mixing, "choice: posterior is coupled, and no observation mixes latents")
    joint = bool(program.fields) or fit.choice.posterior == "coupled"
    total = sum(group.size * len(points) for group, points in zip(program.groups, fit.inducing, strict=True))
    for group, points, q in zip(program.groups, fit.inducing, fit.posterior, strict=True):
        shape = components, group.size, len(points)
        columns = 1 if group.per_row else total if joint else len(points)
        names = ", ".join(group.names)
        known = _drawn(fit.options) and q.root.shape == (*shape, 1) and not np.any(q.root)
        need(q.mean.shape == shape, f"the posterior of {names} has another shape")
        need(known or q.root.shape == (*shape, columns), f"the posterior of {names} has another shape")
        need(q.mean.dtype == dtype and q.root.dtype == dtype, f"the posterior of {names} is not of {dtype}")


def _check_regression(fit: Fit, known: Regression) -> None:
    """The data of exact inference."""
    kind = "coupled" if fit.program.mixing else "full"
    apart = bool(fit.choice.sets) and fit.choice.posterior == "full"
    need(apart or fit.choice.posterior == kind, f"choice: posterior is {shown(fit.choice.posterior)}: expected {kind}")
    sizes = tuple(size for part in known.parts for size in part.sizes)
    need((fit.choice.exact or fit.choice.sets) == sizes, "choice: exact is not the sizes of the data")
    places = [array for part in known.parts for array in (part.elements, part.columns, part.rows, part.kept)]
    need(all(each is None or each.dtype.kind == "i" for each in places), "the places of the data are no whole numbers")
    numbers = [array for each in known.values for array in (each.z, each.loadings)]
    need(all(array.dtype == fit.options.dtype for array in numbers), "the data are not of the precision of the fit")


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
    if fit.choice.features and not group.per_row:
        return [outline_of(fit.program, group, fit.choice.features)]
    if group.points or group.per_row or not fit.choice.dense:
        return values
    inputs, translator = fit.program.declarations.inputs, fit.program.translator
    one: dict[str, Any] = {name: np.zeros((1, *translator.shape(each.axes))) for name, each in inputs.items()}
    exact = fit.regression is not None
    read = functionals_at(group, group.readings.basis if exact else group.readings.atoms, Rows(one, {}, {}))
    bent = any(isinstance(part, (Derivatives, Integrals)) for block in blocks(read) for _, part in block)
    return [outline(read)] if exact or bent else [*values, outline(read)]
