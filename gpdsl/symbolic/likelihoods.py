"""Checked distributions → laws: every argument translated, those with one value per level or component one by one."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import sympy as sp

from gpdsl.language import model as m
from gpdsl.language.vocabulary import DISTRIBUTIONS
from gpdsl.symbolic import errors
from gpdsl.symbolic.laws import Law
from gpdsl.symbolic.stable import TAILS
from gpdsl.symbolic.translate import Covariance, Environment, Ref, Translator, axis_key

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
    weights = law.arguments.get("weights")
    if isinstance(weights, tuple) and len(weights) != len(law.components):
        span = next(iter(call.arguments.values())).span
        raise translator.failure(errors.ComponentWeights(span, len(weights), len(law.components)))
    if law.name in {"Truncated", "Censored"}:
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
        raise translator.failure(errors.CutpointCount(span, observation.outputs[0], levels, levels - 1, given))


def _check_slopes(translator: Translator, call: m.DistributionCall, law: Law) -> None:
    """Distribution functions have no derivative with respect to some arguments, which must then be known numbers."""
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
                raise translator.failure(errors.NoSlope(span, inner.name, name, ref.name))


# Multivariate normal outputs: the density of a whole row by way of a whitening matrix computed numerically.
#
# With S the covariance of a row and L L' = S, z = L^-1 (y - m) is white: log p = sum_i log W_ii - log(2 pi)/2 - z_i^2/2
# with W = L^-1. The entries of W are symbols here, and the density is a quadratic in y - m: when the mean is a
# polynomial in the latents, so is the density, and its expectation closes. Written out as formulas W would be
# astronomically large.
#
# Missing elements are marginalised exactly: with o_i = 1 where y_i is known and 0 elsewhere, the covariance with
# entries o_i o_j S_ij off the diagonal and o_i S_ii + 1 - o_i on it, residuals o_i (y_i - m_i) and o_i log(2 pi), leave
# out what is not known.

MAX_ELEMENTS = 32


def joint_density(translator: Translator, observation: m.Observation) -> tuple[Law, sp.Expr]:
    """The law of a whole row and its log density, with missing elements marginalised."""
    call, name = observation.distribution, observation.outputs[0]
    axis = translator.declarations.outputs[name].axes[0]
    key, size = axis_key(axis), translator.size(axis)
    if size > MAX_ELEMENTS:
        raise translator.failure(errors.VectorTooLong(call.span, name, size, MAX_ELEMENTS))
    places = range(1, size + 1)
    mean = tuple(translator.scalar(call.arguments["mean"], {key: i}) for i in places)
    entries = _covariance(translator, call, axis, size)
    _check(translator, call, entries)
    law = Law("MultivariateNormal", {"mean": mean, "covariance": tuple(entry for row in entries for entry in row)})
    whitening = f"{name}#{len(translator.covariances) + 1}"
    translator.covariances[whitening] = Covariance(name, entries)
    known = [translator.symbol(Ref("observed", name, (i,))) for i in places]
    residuals = [
        o * (translator.symbol(Ref("output", name, (i,))) - m_i) for i, o, m_i in zip(places, known, mean, strict=True)
    ]
    parts: list[sp.Expr] = []
    for i in places:
        row = [translator.symbol(Ref("whitening", whitening, (i, j)), positive=i == j) for j in range(1, i + 1)]
        white = sp.Add(*[w * r for w, r in zip(row, residuals, strict=False)])
        parts += [sp.log(row[-1]), -known[i - 1] * sp.log(2 * sp.pi) / 2, -(white**2) / 2]
    return law, sp.Add(*parts)


def _covariance(
    translator: Translator, call: m.DistributionCall, axis: m.Axis, size: int
) -> tuple[tuple[sp.Expr, ...], ...]:
    """S itself, or W W' + diag(sd^2)."""
    key, places = axis_key(axis), range(1, size + 1)
    argument = call.arguments.get("covariance", call.arguments.get("factor"))
    assert argument is not None
    other = next(each for each in argument.axes if axis_key(each) != key)
    along = axis_key(other)

    def entry(i: int, j: int) -> sp.Expr:
        env: Environment = {key: i, along: j}
        return translator.bounded(translator.scalar(argument, env), "the covariance", argument.span)

    if "covariance" in call.arguments:
        if translator.size(other) != size:
            raise translator.failure(
                errors.MatrixSizes(argument.span, axis.describe(), size, along, translator.size(other))
            )
        return tuple(tuple(entry(i, j) for j in places) for i in places)
    rows = [[entry(i, k) for k in range(1, translator.size(other) + 1)] for i in places]
    sd = call.arguments.get("sd")
    noise = [sp.Integer(0) if sd is None else translator.scalar(sd, {key: i}) ** 2 for i in places]

    def total(i: int, j: int) -> sp.Expr:
        products = [a * b for a, b in zip(rows[i], rows[j], strict=True)]
        return sp.Add(*products, noise[i] if i == j else sp.Integer(0))

    return tuple(tuple(total(i, j) for j in range(size)) for i in range(size))


def _check(translator: Translator, call: m.DistributionCall, entries: tuple[tuple[sp.Expr, ...], ...]) -> None:
    """No latents in it; and when it is a matrix of numbers, a covariance matrix."""
    span = call.arguments.get("covariance", call.arguments.get("factor", call)).span
    for symbol in sorted({s for row in entries for e in row for s in e.free_symbols}, key=str):
        if translator.references[symbol].kind in {"latent", "row", "external"}:
            raise translator.failure(errors.LatentCovariance(span, translator.references[symbol].name))
    if all(entry.is_number for row in entries for entry in row):
        matrix = np.array([[float(entry) for entry in row] for row in entries])
        scale = np.abs(matrix).max()
        why = "not symmetric" if np.abs(matrix - matrix.T).max() > 1e-9 * scale else ""
        if not why and np.linalg.eigvalsh(matrix)[0] <= 1e-12 * scale:
            why = f"singular or worse: its smallest eigenvalue is {np.linalg.eigvalsh(matrix)[0]:.3g}"
        if why:
            raise translator.failure(errors.NotPositiveDefinite(span, why))
