"""`density huber(y | mu, s) = ...`: log densities by formula, and their use right of `~`."""

from __future__ import annotations

from gpdsl.language import syntax
from gpdsl.language.checker.build import require_axes
from gpdsl.language.checker.expressions import check_expression
from gpdsl.language.checker.functions import check_formula, expand, passed_arguments
from gpdsl.language.checker.left import Observed
from gpdsl.language.checker.scope import Passed, Place, Scope
from gpdsl.language.errors.calls import WrongKind
from gpdsl.language.model import Density, DistributionCall, Read
from gpdsl.language.vocabulary import OUTPUT_KINDS

KINDS = tuple(kind for kind in OUTPUT_KINDS if kind not in ("label", "ordinal"))
"""Kinds of outputs that a formula can describe: those whose values are numbers."""


def check_density(scope: Scope, statement: syntax.DensityStatement) -> None:
    """A definition: its body is checked once, whatever is passed."""
    observed = statement.observed.text
    arguments = tuple(each.text for each in statement.arguments)
    parameters = tuple(each.text for each in statement.parameters)
    body = check_formula(scope, statement, (observed, *arguments), check_expression)
    name = statement.name
    scope.formulas[name.text] = statement
    scope.densities[name.text] = Density(name.text, name.span, arguments, parameters, body, observed)


def density_call(scope: Scope, place: Place, call: syntax.Call, left: Observed) -> DistributionCall:
    """A use of a density: its formula with the left side and the arguments put in."""
    name, output = call.function.text, left.output
    if name not in scope.formulas:
        scope.problems.give_up()
    if output.kind not in KINDS:
        kinds, choices = " and ".join(KINDS), "Categorical"
        line = output.span.line
        scope.problems.fail(WrongKind(call.function.span, output.name, output.kind, line, name, kinds, choices))
    statement = scope.formulas[name]
    assert isinstance(statement, syntax.DensityStatement)
    arguments = passed_arguments(scope, place, call, statement, check_expression)
    running = frozenset(axis.name for axis in left.axes if axis.name is not None)
    observed = left.transform or Read(left.span, left.axes, output.name, left.subscripts)
    bound = {statement.observed.text: (observed, Passed(running, running)), **arguments}
    body = expand(scope, place, call, statement, bound, check_expression)
    require_axes(scope, place.left, body, left.axes)
    values = {each: value for each, (value, _) in arguments.items()}
    return DistributionCall(name, values, call.span, log_density=body)
