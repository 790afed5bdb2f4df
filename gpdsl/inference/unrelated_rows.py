"""A model whose latents are constant: what the data say of levels, and what a fit that learns nothing is worth.

Rows are then unrelated, and the log likelihood is a function of few numbers. Its maximum over the levels alone is where
these start when no value is given: the mean of an output, the logarithm of a rate, the log odds of a class. Its maximum
over everything is a yardstick: a bound that is no higher says that the latents explain nothing. All of it is NumPy on
some rows, and takes milliseconds: nothing is compiled.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import scipy
import sympy as sp
from jaxtyping import Float

from gpdsl.inference.problem import as_numpy
from gpdsl.lowering.table import align
from gpdsl.program.cache import precision
from gpdsl.program.evaluation import mean_formula
from gpdsl.program.program import Program, take_rows
from gpdsl.program.rows import Rows, Scope, gathered, observed_mask, row_count
from gpdsl.symbolic.laws import Law
from gpdsl.symbolic.numeric import evaluate
from gpdsl.symbolic.translate import axis_key

ROWS = 2000
"""Rows looked at for levels, spread evenly."""

WORK = 20_000_000
"""Values of log densities that one gradient may take; with more there is no answer."""

STEP = 1e-5
"""Of central differences, in coordinates of size one."""

ITERATIONS = 100


class Unknown(Exception):
    """The log density reads something that only a fit computes."""


@lru_cache(1024)
def _symbols(expression: sp.Expr) -> frozenset[sp.Symbol]:
    """Those that it is free in, which takes SymPy a walk through all of it."""
    return frozenset(expression.free_symbols)


@dataclass(frozen=True)
class UnrelatedRows:
    """The log likelihood of some rows with latents at their prior means, or constants above these.

    Expressions read rows [rows, *axes], and per trial parameters [trials, 1, *axes] and latents.
    """

    program: Program
    rows: Rows
    parameters: Mapping[str, np.ndarray] = field(default_factory=dict)
    latents: Float[np.ndarray, "trials rows columns"] | None = None

    def of(self, expression: sp.Expr, axes: tuple[str, ...]) -> np.ndarray:
        """Value of an expression, broadcastable to [trials, rows, *axes]."""
        evaluator, given = self.program.evaluator, dict[sp.Symbol, np.ndarray]()
        scope = Scope(self.parameters, self.rows)  # type: ignore[arg-type]
        try:
            for symbol in _symbols(expression):
                ref = self.program.translator.references[symbol]
                if ref.kind == "latent" and self.latents is not None:
                    given[symbol] = evaluator.latent(ref, self.latents, axes)
                elif ref.kind == "gathered" and ref.name in self.parameters:  # of every trial: [trials, 1, *axes]
                    at = [gathered(each[0], ref, self.rows.inputs) for each in self.parameters[ref.name]]
                    given[symbol] = align(np.stack(at), ref.positions, axes)
                else:
                    given[symbol] = np.asarray(align(evaluator.source(ref, scope), ref.positions, axes))
            return np.asarray(evaluate(expression, given), float)
        except KeyError as error:
            raise Unknown from error

    def constrained(self, unconstrained: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Parameters in their domains, [trials, *shape]."""
        bijectors = self.program.parameters.bijectors
        return {n: np.asarray(bijectors[n].forward(u)) for n, u in unconstrained.items()}  # type: ignore[arg-type]

    def value(self, parameters: Mapping[str, np.ndarray], above: Float[np.ndarray, "trials columns"]) -> np.ndarray:
        """Log likelihood and log prior of every trial; parameters are [trials, *shape] in their domains."""
        parameters = {**parameters, **{n: np.asarray(v)[None] for n, v in self.program.parameters.held.items()}}
        seen = replace(self, parameters={n: v[:, None] for n, v in parameters.items()})
        total = np.sum(seen.by_row(above[:, None]), axis=1)
        for prior in self.program.priors.values():
            found = seen.of(prior.log_density, prior.axes)
            total = total + found.reshape(found.shape[0] if found.ndim > len(prior.axes) else 1, -1).sum(axis=1)
        return total

    def by_row(self, above: Float[np.ndarray, "own any columns"]) -> Float[np.ndarray, "trials rows"]:
        """Log likelihood of every row, with latents so far above their prior means."""
        translator, count = self.program.translator, row_count(self.rows)
        means = [np.zeros((1, count, 0))]  # of everything that is read of the latents; a model may have none
        for group in self.program.groups:
            for reading, member in itertools.product(group.readings.all, group.members):
                keys = tuple(axis_key(a) for a in member.latent.axes)
                mean = np.zeros((1, count, *translator.shape(member.latent.axes)))
                for functional, weight in reading:
                    if functional.integrated:
                        raise Unknown
                    mean = mean + weight * self.of(mean_formula(translator, member, functional, {}), keys)
                means.append(mean.reshape(mean.shape[0], count, -1))
        trials, total = max(len(each) for each in means), np.zeros((1, count))
        every = np.concatenate([np.broadcast_to(each, (trials, *each.shape[1:])) for each in means], axis=2)
        seen = replace(self, latents=every + above)
        for observation in self.program.observations:
            mask = np.asarray(observed_mask(self.rows, observation), float)
            values = np.where(mask > 0, seen.of(observation.log_density, observation.axes), 0.0)
            total = total + np.sum(values, axis=tuple(range(values.ndim - mask.ndim + 1, values.ndim)))
        return total


def best_levels(
    program: Program, rows: Rows, start: Mapping[str, np.ndarray], names: Sequence[str]
) -> dict[str, np.ndarray]:
    """The start, on the real line, with the named parameters where latents at their prior means want them."""
    if not names or program.opaque or program.fields:
        return dict(start)
    some = _some(rows, max(ROWS // max(sum(np.size(start[n]) for n in names) // 20, 1), 100))
    model = UnrelatedRows(program, some)
    found = [_climb(model, each, names, 0) for each in (start, _at_means(model, start, names))]
    known = [each for each in found if each is not None]
    if not known:
        return dict(start)
    best = max(known, key=lambda each: each[0])[1]
    return {**start, **{n: best[n] for n in names}}


def _at_means(model: UnrelatedRows, start: Mapping[str, np.ndarray], names: Sequence[str]) -> Mapping[str, np.ndarray]:
    """The start with levels at the means of outputs of their shape: far from those, heavy tails have hardly a slope.

    One after the other, and only those that are better there: others are no means, but logarithms of spreads.
    """
    found = dict(start)
    bijectors = model.program.parameters.bijectors
    for name, values in model.rows.outputs.items():
        known = model.rows.observed[name]
        means = np.sum(values * known, axis=0) / np.maximum(np.sum(known, axis=0), 1.0)
        for each in names:
            same = np.shape(start[each]) == means.shape
            if not bijectors[each].vector and (same or not np.ndim(start[each])):
                value = means if same else np.mean(means)
                moved = found | {each: np.asarray(bijectors[each].inverse(np.asarray(value, float)))}
                found = moved if _value_at(model, moved) > _value_at(model, found) else found
    return found


def _value_at(model: UnrelatedRows, start: Mapping[str, np.ndarray]) -> float:
    """Log likelihood with all latents at their prior means; that of nothing where it cannot be had."""
    try:
        with precision("float64"), np.errstate(all="ignore"):
            constrained = model.constrained({n: np.asarray(v, float)[None] for n, v in start.items()})
            value = float(np.sum(model.value(constrained, np.zeros((1, 1)))))
    except Unknown:
        return -np.inf
    return value if np.isfinite(value) else -np.inf


def value_of_nothing(
    program: Program, rows: Rows, start: Mapping[str, np.ndarray], priors: bool = True
) -> float | None:
    """The largest log likelihood of rows that have nothing to do with each other; None where it cannot be had.

    It is largest together with the log priors of parameters, and has these in it where `priors` says so. Of no more
    values than there are constants nothing is known: these reproduce all of them.
    """
    rows = as_numpy(rows)  # which may be spread over processes
    values = sum(int(np.sum(known)) for known in rows.observed.values())
    if program.opaque or program.fields or values <= program.latents:
        return None
    found = _climb(UnrelatedRows(program, rows), start, list(start), program.latents)
    if found is None or priors:
        return None if found is None else found[0]
    return found[0] - _value_at(UnrelatedRows(replace(program, observations=()), rows), found[1])


def bends(
    program: Program,
    rows: Rows,
    parameters: Mapping[str, np.ndarray],
    above: Float[np.ndarray, "rows columns"],
    step: Float[np.ndarray, "rows columns"],
) -> Float[np.ndarray, "columns columns rows"] | None:
    """d^2 log p(y_n | f_n) / df_a df_b of every row at latents so far above their prior means, by central differences.

    The diagonal is left at 0. None where the log density cannot be had.
    """
    count, rows = above.shape[1], as_numpy(rows)
    found = np.zeros((count, count, len(above)))
    seen = UnrelatedRows(program, rows, {n: np.asarray(v, float)[None, None] for n, v in parameters.items()})
    signs = np.array([(1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0)])
    try:
        for a, b in itertools.combinations(range(count), 2):
            at = np.repeat(above[None], 4, axis=0)
            at[:, :, a] += signs[:, :1] * step[:, a]
            at[:, :, b] += signs[:, 1:] * step[:, b]
            values = np.broadcast_to(seen.by_row(at), (4, len(above)))
            found[a, b] = found[b, a] = np.prod(signs, axis=1) @ values / (4 * step[:, a] * step[:, b])
    except Unknown:
        return None
    return found


def laws_at(
    program: Program, rows: Rows, parameters: Mapping[str, np.ndarray], above: Float[np.ndarray, "trials rows columns"]
) -> dict[str, list[Law]]:
    """Laws of outputs that are one number in every row, all of them observed, by their names: with [trials, rows] for
    arguments, at latents so far above their prior means. Nothing where these cannot be had."""
    rows, laws = as_numpy(rows), dict[str, list[Law]]()
    seen = UnrelatedRows(program, rows, {n: np.asarray(v, float)[None, None] for n, v in parameters.items()})
    for each in program.observations:
        if each.law is None or each.warp is not None or each.axes or each.positions:
            continue
        alone = [replace(program, observations=(replace(each, log_density=leaf),)) for leaf in each.law.leaves()]
        try:
            values = [replace(seen, program=one).by_row(above) for one in alone]
        except Unknown:
            return {}
        laws.setdefault(each.outputs[0], []).append(each.law.filled(values))
    return laws


def missing_level(program: Program) -> str:
    """What to add to a model of counts, classes or shares that has nothing but its latents for a level of all rows."""
    declared = program.declarations
    known = any(each.constraint == "real" for each in declared.params.values())
    return (
        ""
        if known or any(each.kind == "real" for each in declared.outputs.values())
        else "what all rows share has no place but the latents: add a level, `a : real`, as in `f + a`"
    )


def _some(rows: Rows, count: int) -> Rows:
    step = max(row_count(rows) // count, 1)
    return as_numpy(take_rows(rows, slice(None, None, step)))


def _climb(
    model: UnrelatedRows, start: Mapping[str, np.ndarray], names: Sequence[str], above: int
) -> tuple[float, dict[str, np.ndarray]] | None:
    """The best value over the named parameters and so many constants, and the parameters there."""
    sizes = [int(np.size(start[n])) for n in names]
    count = sum(sizes) + above
    elements = sum(np.size(v) for v in model.rows.outputs.values())
    if 2 * count * elements > WORK:
        return None

    kept = {n: np.asarray(v, float)[None] for n, v in start.items() if n not in names}
    with precision("float64"):
        rest = model.constrained(kept)

    def objective(point: np.ndarray) -> tuple[float, np.ndarray]:
        around = np.concatenate([point[None], point + STEP * np.eye(count), point - STEP * np.eye(count)])
        parts = np.split(around, np.cumsum([*sizes, above])[:-1], axis=1)
        moved = {n: p.reshape(-1, *np.shape(start[n])) for n, p in zip(names, parts, strict=False)}
        found = model.value(rest | model.constrained(moved), parts[-1] if above else np.zeros((1, 1)))
        values = np.broadcast_to(found, len(around))
        slope = (values[1 : count + 1] - values[count + 1 :]) / (2 * STEP)
        if not np.isfinite(values[0]):
            return 1e300, np.zeros(count)
        return -float(values[0]), -np.nan_to_num(slope, nan=0.0, posinf=0.0, neginf=0.0)

    begin = np.concatenate([*[np.asarray(start[n], float).ravel() for n in names], np.zeros(above)])
    try:
        with precision("float64"), np.errstate(all="ignore"):
            how = {"jac": True, "method": "L-BFGS-B", "options": {"maxiter": ITERATIONS}}
            found = scipy.optimize.minimize(objective, begin, **how)
    except Unknown:
        return None
    if not np.isfinite(found.fun) or found.fun >= 1e300:
        return None
    parts = np.split(found.x, np.cumsum([*sizes, above])[:-1])
    return -float(found.fun), {n: p.reshape(np.shape(start[n])) for n, p in zip(names, parts, strict=False)}
