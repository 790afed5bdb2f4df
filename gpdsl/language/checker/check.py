"""Syntax tree to checked declarations: names first, then each sort of statement after those it depends on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from gpdsl.language import syntax
from gpdsl.language.checker.densities import check_density
from gpdsl.language.checker.elements import check_elements, check_order
from gpdsl.language.checker.expressions import check_expression
from gpdsl.language.checker.externals import check_external, check_likelihood
from gpdsl.language.checker.functions import check_functions
from gpdsl.language.checker.groups import check_levels
from gpdsl.language.checker.inference import check_infer
from gpdsl.language.checker.kernel_formulas import check_definition
from gpdsl.language.checker.latents import check_latent
from gpdsl.language.checker.layers import in_layers
from gpdsl.language.checker.lets import check_let
from gpdsl.language.checker.names import declared_name, register_names
from gpdsl.language.checker.observations import check_observation
from gpdsl.language.checker.priors import check_prior
from gpdsl.language.checker.problems import Problems, in_order
from gpdsl.language.checker.quantities import check_const, check_index, check_input, check_output, check_param
from gpdsl.language.checker.recursion import layers_written_out
from gpdsl.language.checker.rows import check_row
from gpdsl.language.checker.scope import Scope
from gpdsl.language.checker.used import is_library, without_others
from gpdsl.language.checker.whole import check_observed, check_sizes, outputs_gone_wrong
from gpdsl.language.errors.base import ModelError
from gpdsl.language.errors.values import RepeatedOption
from gpdsl.language.model import Declarations, Infer, Observation
from gpdsl.language.source import Source, Span
from gpdsl.language.syntax import SyntaxTree
from gpdsl.language.vocabulary import STATEMENTS

_QUANTITIES: Mapping[type[syntax.Node], Callable] = MappingProxyType(
    {
        syntax.IndexStatement: check_index,
        syntax.InputStatement: check_input,
        syntax.OutputStatement: check_output,
        syntax.ConstStatement: check_const,
        syntax.ParamStatement: check_param,
        syntax.ExternalStatement: check_external,
        syntax.ExternalLikelihoodStatement: check_likelihood,
        syntax.RowStatement: check_row,
    }
)
_FORMULAS: Mapping[type[syntax.Node], Callable] = MappingProxyType(
    {
        syntax.KernelStatement: check_definition,
        syntax.DensityStatement: check_density,
        syntax.LatentStatement: check_latent,
    }
)
"""Each sort of declaration and its check, in the order in which they depend on each other: functions in between."""

_TABLES = (
    *("indices", "inputs", "outputs", "consts", "params", "rows", "latents", "lets"),
    *("functions", "kernels", "densities", "externals", "likelihoods"),
)

Kind = TypeVar("Kind", bound=syntax.Node)


def check(tree: SyntaxTree, library: bool = False) -> Declarations:
    """The checked model, or with `library` also the definitions of a text that holds nothing else.

    Raises ModelError with every mistake of the text, those of its syntax included.
    """
    problems = Problems()
    scope = Scope(tree.source, problems, set(tree.lost) - set(STATEMENTS))
    statements = without_others(scope, tree.statements)
    if any(each.subscripts or each.given for each in _of(statements, syntax.LatentStatement)):
        statements = layers_written_out(scope, statements)
    statements = register_names(scope, statements)
    _attempt_all(scope, statements, _QUANTITIES)
    for param in _of(statements, syntax.ParamStatement) if scope.labels else ():
        with problems.contained():
            check_levels(scope, param)
    check_functions(scope, _of(statements, syntax.FunctionStatement), check_expression)
    _attempt_all(scope, statements, _FORMULAS)
    for param in _of(statements, syntax.ParamStatement):
        with problems.contained():
            check_prior(scope, param)
    _check_lets(scope, statements)
    observations: list[Observation] = []
    for statement in _of(statements, syntax.ObservationStatement):
        with problems.contained():
            check_observation(scope, statement, observations)
    check_order(scope, observations)
    infer = _check_infer(scope, statements)
    _check_model_once(scope, statements)
    if not tree.mistakes and not (library and is_library(tree)):
        check_observed(scope, statements, observations, _end(tree.source))
        check_elements(scope, observations, outputs_gone_wrong(scope, statements, observations))
        check_sizes(scope)
    mistakes = (*tree.mistakes, *problems.mistakes)
    if mistakes:
        raise ModelError(tree.source, in_order(mistakes))
    return _declarations(scope, statements, observations, infer)


def _attempt_all(
    scope: Scope, statements: tuple[syntax.Statement, ...], passes: Mapping[type[syntax.Node], Callable]
) -> None:
    for kind, check_one in passes.items():
        found: Sequence[syntax.Node] = _of(statements, kind)
        if kind is syntax.LatentStatement:
            found = in_layers(scope, _of(statements, syntax.LatentStatement))
        for declaration in found:
            _attempt(scope, check_one, declaration)


def _of(statements: Iterable[syntax.Statement], kind: type[Kind]) -> list[Kind]:
    return [each for each in statements if isinstance(each, kind)]


def _attempt(scope: Scope, check_one: Callable, statement: syntax.Node) -> None:
    """Check a declaration; when it fails, nothing more is said about its name."""
    name = declared_name(statement)
    with scope.problems.contained():
        check_one(scope, statement)
        return
    if name is not None:
        scope.lost.add(name.text)


def _check_lets(scope: Scope, statements: tuple[syntax.Statement, ...]) -> None:
    cases: dict[str, list[syntax.LetStatement]] = {}
    for statement in _of(statements, syntax.LetStatement):
        cases.setdefault(statement.name.text, []).append(statement)
    for name, group in cases.items():
        with scope.problems.contained():
            check_let(scope, group)
            continue
        scope.lost.add(name)


def _check_infer(scope: Scope, statements: tuple[syntax.Statement, ...]) -> Infer:
    found = _of(statements, syntax.InferStatement)
    for again in found[1:]:
        scope.problems.add(RepeatedOption(again.span, "infer", found[0].span.line))
    return check_infer(scope, found[0]) if found else Infer()


def _check_model_once(scope: Scope, statements: tuple[syntax.Statement, ...]) -> None:
    found = _of(statements, syntax.ModelStatement)
    for again in found[1:]:
        scope.problems.add(RepeatedOption(again.span, "model", found[0].span.line))


def _end(source: Source) -> Span:
    """The last line of the model's own file that holds anything."""
    lines = source.own.split("\n")
    last = max((number for number, line in enumerate(lines, 1) if line.strip()), default=1)
    return Span(last, 1, last, max(2, len(source.line(last)) + 1))


def _declarations(
    scope: Scope, statements: tuple[syntax.Statement, ...], observations: list[Observation], infer: Infer
) -> Declarations:
    titled = _of(statements, syntax.ModelStatement)
    name, title = (titled[0].name.text, titled[0].title) if titled else ("model", "")
    tables = {key: MappingProxyType(dict(getattr(scope, key))) for key in _TABLES}
    return Declarations(
        name=name, title=title, source=scope.source, observations=tuple(observations), infer=infer, **tables
    )
