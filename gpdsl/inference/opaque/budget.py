"""Evaluations of opaque functions as a currency: what a step costs, what the plan comes to, and what is allowed.

An evaluation is a call of one opaque function for one row. The probing call before a fit counts too.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.data import Data
from gpdsl.errors import GpdslError, GpdslWarning
from gpdsl.forward import ForwardModel, ForwardModelError, Policy, evaluate
from gpdsl.forward.errors import WrongGradient, describe_row
from gpdsl.inference.opaque.surrogate import (
    Values,
    arguments_of,
    opaque_reads,
    passed_parameters,
    points_for,
    read_columns,
)
from gpdsl.inference.plan.options import Choice, Options
from gpdsl.inference.posteriors.family import parse_family
from gpdsl.inference.problem import FRESH_SETS, as_arrays
from gpdsl.program.cache import jit
from gpdsl.program.evaluation import prior_means
from gpdsl.program.program import Program, make_rows, take_rows
from gpdsl.program.rows import Rows
from gpdsl.symbolic.expectations import has_opaque, latents_in, refuse_joint
from gpdsl.symbolic.kinks import jumps
from gpdsl.symbolic.translate import ExternalUse

# Jacobians of opaque functions that come with a gradient, by one call of it for every number that they return.

STEPS = (1e-3, 1e-5)
"""Steps of the differences that a gradient is checked against, relative to the arguments: the second if need be."""

DISAGREES = 0.1
"""Relative difference between a gradient and differences of the function that no rounding and no curvature explains."""


@dataclass(frozen=True)
class Flattened:
    """A gradient whose parts, one for each argument, are put behind each other; made of values that can travel."""

    function: Any
    vectorized: bool

    def __call__(self, *arguments: Any) -> np.ndarray:
        parts = self.function(*arguments)
        parts = parts if isinstance(parts, (tuple, list)) else (parts,)
        lead = (len(np.asarray(arguments[-1])),) if self.vectorized else ()
        return np.concatenate([np.asarray(part, float).reshape(*lead, -1) for part in parts], axis=-1)


def has_slopes(program: Program) -> bool:
    """Whether every opaque function gives a gradient, and none is called with another's results."""
    uses = program.uses()
    own = {use.key for use in uses}
    free = all(not own & _read(program, use) for use in uses)
    return bool(uses) and free and all(program.externals[use.function].gradient is not None for use in uses)


def _read(program: Program, use: ExternalUse) -> set[str]:
    """Keys of the opaque calls whose results are passed to this one."""
    symbols = {s for _, elements in use.arguments for e in elements for s in e.free_symbols}
    references = [program.translator.references[symbol] for symbol in symbols]
    return {ref.name for ref in references if ref.kind == "external"}


def point_cost(program: Program) -> int:
    """Evaluations that one point of one row takes: of every function, and of its gradient for each of its numbers."""
    slopes = has_slopes(program)
    return sum(1 + slopes * math.prod(use.result) for use in program.uses())


def jacobian(
    model: ForwardModel, use: ExternalUse, arguments: Sequence[np.ndarray], data_rows: int
) -> list[Float[np.ndarray, "rows values *dims"]]:
    """Derivatives of all values in every argument, each [rows, *dims]; NaN in rows where the gradient failed.

    Raises ForwardModelError as calls of the function do.
    """
    shapes = [shape for shape, _ in use.arguments]
    sizes = [math.prod(shape) for shape in shapes]
    pulling = _pulling(model)
    rows, found = len(arguments[0]), []
    for place in np.ndindex(*use.result):
        sensitivity = np.zeros((rows, *use.result))
        sensitivity[(slice(None), *place)] = 1.0
        found.append(evaluate(pulling, [*arguments, sensitivity], (sum(sizes),), data_rows=data_rows).values)
    whole = np.stack(found, axis=1)
    parts = np.split(whole, np.cumsum(sizes)[:-1], axis=2)
    return [part.reshape(rows, len(found), *shape) for part, shape in zip(parts, shapes, strict=True)]


def _pulling(model: ForwardModel) -> ForwardModel:
    """The gradient as a function to be called: of the arguments and a sensitivity, all parts behind each other."""
    names, name = (*model.arguments, "sensitivity"), f"gradient of {model.name}"
    return replace(model, name=name, function=Flattened(model.gradient, model.vectorized), arguments=names, cache=None)


def check_gradient(model: ForwardModel, use: ExternalUse, arguments: Sequence[np.ndarray]) -> None:
    """Raise ForwardModelError where a gradient is wrong in every row: along one random direction, for one sensitivity.

    It takes three calls for these rows, five where the first differences disagree; one that fails ends the check.
    """
    rng, tolerant = np.random.default_rng(0), replace(model, policy=Policy(0, "penalise"))
    along = [rng.standard_normal(a.shape) * np.where(a == 0.0, 1.0, np.abs(a)) for a in arguments]
    sensitivity = rng.standard_normal((len(arguments[0]), *use.result))
    by_row = lambda values: np.asarray(values).reshape(len(sensitivity), -1).sum(axis=1)  # noqa: E731

    def values(of: ForwardModel, at: Sequence[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
        found = evaluate(of, at, shape)
        of.account.penalised -= int(found.failed.sum())
        return found.values

    width = sum(math.prod(shape) for shape, _ in use.arguments)
    pulled = values(_pulling(tolerant), [*arguments, sensitivity], (width,))
    said = by_row(pulled * np.concatenate([each.reshape(len(each), -1) for each in along], axis=1))
    wrong = np.ones(len(said), bool)
    found = said
    for step in STEPS:
        ends = [
            values(tolerant, [a + sign * step * each for a, each in zip(arguments, along, strict=True)], use.result)
            for sign in (1.0, -1.0)
        ]
        found = by_row(sensitivity * (ends[0] - ends[1])) / (2.0 * step)
        rounding = 1e-9 * by_row(np.abs(sensitivity * ends[0])) / step
        wrong &= np.abs(said - found) > DISAGREES * np.maximum(np.abs(said), np.abs(found)) + rounding
        if not wrong.all():  # so are comparisons with what failed
            return
    shown = describe_row(model.arguments, arguments, 0)
    raise ForwardModelError(WrongGradient(model.name, "row 1 of the data", shown, f"{said[0]:.4g}", f"{found[0]:.4g}"))


ROUNDS = 4
"""Rounds that a small budget is meant to last for, where surrogates are made of every round's evaluations."""

ASSESSED_ROWS = 2000
"""Rows on which the bound at the end of steps on minibatches is estimated."""

HELD_OUT = 4
"""Sets of points whose scatter is the error of the bound at the end, of a point each at least."""

LAST_SHARE = 4
"""All evaluations of rounds are so many times those that judge the bound at the end, unless these are a round's."""

USUAL = 20
"""Rounds within which fits with surrogates end, as a rule."""


DIRECT, DOUBLINGS = 1024, 4
"""Samples at which predictions call functions that no polynomial describes, and how often a row's points are doubled
before that."""


class Spent(Exception):
    """The budget of evaluations does not allow for another step."""


def require(program: Program, evaluations: int) -> None:
    """Raise Spent where the budget has fewer evaluations left."""
    if program.account is not None and program.account.remaining < evaluations:
        raise Spent


def is_simulated(program: Program, options: Options, choice: Choice) -> bool:
    """Whether opaque functions are replaced by surrogates.

    Not where the papers' estimators are asked for, nor where a latent makes a jump, whose gradient values alone see.
    """
    if options.engine == "ep":
        return program.calls and not choice.batch
    papers = options.gradients == "score" or options.control_variate != "regression"
    sites = choice.optimizer == "natural" and not choice.batch
    terms = [term for each in program.observations for term in each.terms if term.method == "score"]
    smooth = all(has_opaque(program.translator, t.expression) and not jumps(t.expression, t.latents) for t in terms)
    return program.opaque and sites and smooth and not papers


def refuse_scores(program: Program) -> None:
    """Refuse what score functions do not cover, and surrogates do.

    A parameter inside an opaque call has no gradient, and several values of a latent in one row are not independent.
    """
    for term in (term for each in program.observations for term in each.terms if term.method == "score"):
        refuse_joint(program.translator, term.latents)
    for name in passed_parameters(program):
        raise GpdslError(
            f"parameter `{name}` is passed to an opaque function, so no gradient with respect to it exists here; "
            f"declare it `fixed`, pass fixed=['{name}'] to fit, or leave optimizer, engine and estimators to the plan"
        )


def each_step(program: Program, choice: Choice, rows: int, simulated: bool = False) -> int:
    """Evaluations of one step of the optimiser, or of one round with surrogates."""
    components = parse_family(choice.posterior, choice.dense).components
    cost = point_cost(program) if simulated else len(program.uses())
    return choice.samples * components * min(choice.batch or rows, rows) * cost


def within_budget(program: Program, options: Options, choice: Choice, rows: int) -> Choice:
    """The choice with samples and steps that the budget allows. Raises GpdslError for one that allows nothing."""
    simulated = is_simulated(program, options, choice)
    width = opaque_reads(program, whole=options.engine == "ep").width if simulated else 0
    if simulated and options.samples is None:
        choice = replace(choice, samples=points_for(width, slopes=has_slopes(program)))
    if options.evaluations is None or not program.uses():
        return choice
    left = options.evaluations - (program.account.evaluations if program.account is not None else 0)
    if simulated and options.samples is None:
        a_point, slopes = rows * point_cost(program), has_slopes(program)
        kept = 0 if options.engine == "ep" else HELD_OUT
        linear = min(points_for(width, quadratic=False, slopes=slopes), left // a_point - kept)
        choice = replace(choice, samples=max(2, linear, min(choice.samples, left // (ROUNDS * a_point))))
    each = each_step(program, choice, rows, simulated)
    last = _last(program, options, choice, rows, simulated)
    if left < each + last:
        raise GpdslError(
            f"evaluations = {options.evaluations}: one step takes {each} ({choice.samples} samples of "
            f"{each // choice.samples} evaluations), and the bound at the end {last}; allow more, or set fewer samples"
        )
    steps = choice.steps if simulated else min(choice.steps, (left - last) // each)
    return replace(choice, steps=steps)


def _last(program: Program, options: Options, choice: Choice, rows: int, simulated: bool) -> int:
    """Evaluations that are kept for the bound at the end."""
    if options.engine == "ep":
        return 0
    return held_out(choice) * rows * point_cost(program) if simulated else assessing(program, choice, rows)


def held_out(choice: Choice) -> int:
    """Points per row that a budget keeps for the bound at the end, where there are surrogates."""
    return min(HELD_OUT, choice.samples)


def assessed_rows(choice: Choice, rows: int) -> int:
    """Rows at which the bound at the end of steps with fresh evaluations is estimated."""
    return min(rows, max(choice.batch or rows, ASSESSED_ROWS))


def assessing(program: Program, choice: Choice, rows: int) -> int:
    """Evaluations that one look at the bound takes there."""
    return each_step(program, replace(choice, batch=0), assessed_rows(choice, rows))


def looks(program: Program, each: int) -> int:
    """How often the bound is looked at in the end, as far as the budget goes."""
    left = math.inf if program.account is None else program.account.remaining
    return int(min(left / max(each, 1), FRESH_SETS))


def predicted_uses(program: Program) -> tuple[ExternalUse, ...]:
    """The opaque calls that predictions need: not those of likelihoods."""
    return tuple(use for use in program.uses() if not use.likelihood)


def columns_read(program: Program) -> tuple[int, ...]:
    """Columns of the marginals that these read, directly or through each other."""
    elements = [e for use in predicted_uses(program) for _, each in use.arguments for e in each]
    symbols = {symbol for e in elements for symbol in latents_in(program.translator, e)}
    return tuple(sorted({column for symbol in symbols for column in read_columns(program, symbol, ())}))


def first_points(columns: Sequence[int]) -> int:
    """Points per row that a prediction begins with."""
    return points_for(len(columns)) if columns else 1


def most_points(first: int) -> int:
    """Points per row that polynomials of a prediction are given."""
    return min(first << DOUBLINGS, max(first, DIRECT // 4))


def planned_predictions(program: Program, choice: Choice, rows: int) -> str:
    """How many evaluations a prediction will make, for `explain`."""
    columns = columns_read(program)
    first = first_points(columns)
    cost = len(predicted_uses(program)) * parse_family(choice.posterior, choice.dense).components
    most = f", up to {(most_points(first) + DIRECT) * cost:,} a row where it is not" if columns else ""
    return f"{first * cost:,} a row where the function is smooth, {first * cost * rows:,} for {rows:,} rows{most}"


def planned_evaluations(program: Program, options: Options, choice: Choice, rows: int) -> str:
    """How many evaluations a fit will make, for `explain`."""
    simulated, limit = is_simulated(program, options, choice), options.evaluations or math.inf
    each = each_step(program, choice, rows, simulated)
    if simulated:
        kept = 0 if options.engine == "ep" else 1
        most = min(each * (USUAL + kept * USUAL // LAST_SHARE), limit)
        slopes = ", gradients included" if has_slopes(program) else ""
        usual = (
            f"{each:,} a round of {choice.samples} points a row{slopes}; fits end after 3 to {USUAL} rounds as a rule"
        )
        last = ", with those that judge the bound at the end" if kept else ","
        ending = f"{last} {min((3 + kept) * each, most):,} to {most:,}"
    else:
        steps, look = each * choice.steps, assessing(program, choice, rows)
        times = int(min((limit - steps) / look, FRESH_SETS))
        usual, ending = f"{each:,} a step", f", {steps + times * look:,} in all"
    bound = f"; never more than {options.evaluations:,}" if options.evaluations else ""
    return usual + ending + bound


# The probing call: each opaque function is called once before a fit, so that a wrong shape ends it at the start.
#
# It is called at the prior means of the latents and the initial parameters, at the first rows of the data.

MOST_ROWS = 8

CHANCE = 1e-5
"""Share of a result by which it may be another for the same inputs: rounding, also in single precision."""


def probe(program: Program, data: Data, dtype: Any) -> None:
    """Call each opaque function that the likelihood needs once. Raises ForwardModelError for what comes back wrong.

    A function under `penalise` or `retry` may fail here as anywhere, but not by a wrong shape or type.
    """
    uses = program.uses()
    models = [program.externals[use.function] for use in uses]
    count = min(_rows(uses) if any(model.vectorized for model in models) else 1, data.rows)
    rows = as_arrays(take_rows(make_rows(program, data), slice(0, count)), dtype)
    parameters = as_arrays(program.parameters.unconstrained(), dtype)
    values: Values = {}
    for use, model in zip(uses, models, strict=True):

        def arguments(learnt: Mapping[str, Array], rows: Rows, known: Values, use: ExternalUse = use) -> list[Array]:
            constrained = program.parameters.constrain(learnt)
            means = prior_means(program.evaluator, program.groups, constrained, rows, count)
            return arguments_of(program, use, constrained, rows, means, known)

        passed = [np.asarray(a) for a in jit(arguments)(parameters, rows, values)]
        values[use.key] = jnp.asarray(_probed(model, passed, use), dtype)
        if model.gradient is not None:
            check_gradient(model, use, passed)


def _probed(model: ForwardModel, arguments: list[np.ndarray], use: ExternalUse) -> np.ndarray:
    """Values, made up where the function failed and may."""
    if model.failures.attempts or model.failures.penalises:
        found = evaluate(replace(model, policy=Policy(0, "penalise")), arguments, use.result)
        model.account.penalised -= int(found.failed.sum())
    else:
        found = evaluate(model, arguments, use.result)
    values = np.where(np.isfinite(found.values), found.values, np.nan)
    _warn_of_chance(model, arguments, values.reshape(len(values), -1))
    return np.where(np.isnan(values), 1.0, values)


def _warn_of_chance(model: ForwardModel, arguments: Sequence[np.ndarray], values: np.ndarray) -> None:
    """Warn of rows that are the same, as at prior means they may be, with results that are not."""
    inputs = np.concatenate([each.reshape(len(values), -1) for each in arguments], axis=1)
    gaps = np.where(np.all(inputs == inputs[:1], axis=1)[:, None], np.abs(values - values[:1]), 0.0)
    row, place = np.unravel_index(np.argmax(np.nan_to_num(gaps)), gaps.shape) if gaps.size else (0, 0)
    if gaps.size and gaps[row, place] > CHANCE * np.abs(values[0, place]):
        said = f"gives {values[0, place]:.6g} and {values[row, place]:.6g} for the same inputs, "
        said += f"{describe_row(model.arguments, arguments, 0)}: it draws random numbers, or its rows depend on each "
        said += "other; a fit takes it for a function of each row: fix its seed, or return a mean"
        warnings.warn(f"`{model.name}` {said}", GpdslWarning, stacklevel=2)


def _rows(uses: Sequence[ExternalUse]) -> int:
    """So few rows that a result with its axes in another order, or without rows, has another shape."""
    lengths = {n for use in uses for shape in (use.result, *(shape for shape, _ in use.arguments)) for n in shape}
    return next(count for count in range(2, MOST_ROWS + 1) if count not in lengths or count == MOST_ROWS)
