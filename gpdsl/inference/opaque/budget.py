"""Evaluations of opaque functions as a currency: what a step costs, what the plan comes to, and what is allowed.

An evaluation is a call of one opaque function for one row. The probing call before a fit counts too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from gpdsl.errors import GpdslError
from gpdsl.inference.opaque.derivatives import has_slopes, point_cost
from gpdsl.inference.opaque.surrogate import opaque_reads, passed_parameters, points_for, read_columns
from gpdsl.inference.plan.options import Choice, Options
from gpdsl.inference.posteriors.families import parse_family
from gpdsl.inference.problem import FRESH_SETS
from gpdsl.program.program import Program
from gpdsl.symbolic.expectations import has_opaque, refuse_joint
from gpdsl.symbolic.jumps import jumps
from gpdsl.symbolic.terms import latents_in
from gpdsl.symbolic.translate import ExternalUse

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
