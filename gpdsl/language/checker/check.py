"""Syntax tree to checked declarations: names first, then each sort of statement after those it depends on.

`compile_text` is the whole way of a text: its files are gathered, it is parsed, and checked.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from gpdsl.language import syntax
from gpdsl.language.checker import quantities
from gpdsl.language.checker.expressions import check_expression
from gpdsl.language.checker.functions import check_external, check_functions, check_likelihood, nodes
from gpdsl.language.checker.groups import check_levels, find_elements
from gpdsl.language.checker.inference import check_infer
from gpdsl.language.checker.kernel_formulas import check_definition
from gpdsl.language.checker.latents import check_latent
from gpdsl.language.checker.layers import in_layers
from gpdsl.language.checker.left import check_density
from gpdsl.language.checker.lets import check_let
from gpdsl.language.checker.observations import check_elements, check_observation, check_order
from gpdsl.language.checker.recursion import layers_written_out
from gpdsl.language.checker.scope import Problems, Scope
from gpdsl.language.errors.axes import SizeUnknown
from gpdsl.language.errors.base import ModelError
from gpdsl.language.errors.calls import RepeatedOption
from gpdsl.language.errors.limits import NameTooLong, NotADefinition, in_order
from gpdsl.language.errors.names import DeclaredTwice, NeverObserved, NothingObserved, ReservedWord, ShadowsBuiltin
from gpdsl.language.model import Declarations, Infer, Observation
from gpdsl.language.parser import parse
from gpdsl.language.syntax import SyntaxTree
from gpdsl.language.used import Reach, gather
from gpdsl.language.vocabulary import BUILTINS, MAX_NAME, SHADOWABLE, STATEMENTS, Source, Span

# Register every declared name before anything is checked, so that declarations may stand in any order.

STATEMENT_SORTS: Mapping[type, str] = MappingProxyType(
    {
        syntax.IndexStatement: "index",
        syntax.InputStatement: "input",
        syntax.OutputStatement: "output",
        syntax.ConstStatement: "const",
        syntax.ParamStatement: "param",
        syntax.LatentStatement: "latent",
        syntax.RowStatement: "row",
        syntax.LetStatement: "let",
        syntax.FunctionStatement: "function",
        syntax.KernelStatement: "kernel",
        syntax.DensityStatement: "density",
        syntax.ExternalStatement: "external",
        syntax.ExternalLikelihoodStatement: "likelihood",
    }
)


_VALUES = frozenset({"input", "const", "param", "row", "let"})
"""What is read without parentheses, so that `mean` and `mean(q, ...)` are told apart."""


def register_names(scope: Scope, statements: tuple[syntax.Statement, ...]) -> tuple[syntax.Statement, ...]:
    """Fill `scope.sorts` and `scope.places`; returns the statements that go on to be checked.

    A second declaration of a name is reported and dropped, and so is one with a name that cannot be declared.
    """
    kept: list[syntax.Statement] = []
    for statement in statements:
        sort = STATEMENT_SORTS.get(type(statement))
        name = declared_name(statement)
        if sort is None or name is None:
            kept.append(statement)
            continue
        with scope.problems.contained:
            text = name.text
            if text in STATEMENTS:
                scope.lost.add(text)
                scope.problems.fail(ReservedWord(name.span, text))
            if text in BUILTINS and not (text in SHADOWABLE and sort in _VALUES):
                scope.problems.fail(ShadowsBuiltin(name.span, text, BUILTINS[text]))
            if len(text) > MAX_NAME:
                scope.lost.add(text)
                scope.problems.fail(NameTooLong(name.span, MAX_NAME))
            if text in scope.sorts and not (sort == "let" and scope.sorts[text] == "let"):
                scope.problems.fail(DeclaredTwice(name.span, text, scope.line(scope.places[text], name.span)))
            scope.sorts[text] = sort
            scope.places.setdefault(text, name.span)
            kept.append(statement)
    return tuple(kept)


def declared_name(statement: syntax.Node) -> syntax.Identifier | None:
    """The name a statement declares."""
    declared = getattr(statement, "declared", None)
    return declared.name if declared is not None else getattr(statement, "name", None)


# What a used file may say: definitions. Everything else belongs to the model that uses it.

DEFINITIONS = (syntax.FunctionStatement, syntax.KernelStatement, syntax.DensityStatement, syntax.UseStatement)


def is_library(tree: syntax.SyntaxTree) -> bool:
    """Whether a file is one to be used: it holds definitions, and nothing that belongs to a model."""
    kinds = {type(each) for each in tree.statements} - {syntax.ModelStatement}
    return bool(kinds) and kinds <= set(DEFINITIONS)


def without_others(scope: Scope, statements: tuple[syntax.Statement, ...]) -> tuple[syntax.Statement, ...]:
    """The statements of the model and the definitions of the files it uses; anything else there is reported."""
    kept: list[syntax.Statement] = []
    for each in statements:
        if scope.source.is_own(each.span) or isinstance(each, DEFINITIONS):
            kept.append(each)
        elif not isinstance(each, syntax.ModelStatement):
            scope.problems.add(NotADefinition(each.span, scope.source.name))
            name = declared_name(each)
            scope.lost.update([] if name is None else [name.text])
    return tuple(kept)


# What can be judged only once every statement is checked: unobserved outputs, sizes no data can bind.


def check_observed(scope: Scope, statements: tuple[syntax.Statement, ...]) -> None:
    """Every output is observed; a statement that failed counts as an observation of what stands on its left."""
    attempts = [each for each in statements if isinstance(each, syntax.ObservationStatement)]
    names = [_mentioned(scope, part) for each in attempts for part in each.left]
    mentioned = set().union(*names)
    # An observation of something else was probably meant for the output that lacks one: its own mistake says so.
    astray = any(not each & set(scope.names("output")) for each in names)
    for output in scope.outputs.values():
        if output.name not in mentioned | scope.lost and not astray:
            scope.problems.add(NeverObserved(output.span, output.name))
    if not attempts and not scope.names("output"):
        # Said at the last line of the model's own file that holds anything.
        lines = scope.source.own.split("\n")
        last = max((number for number, line in enumerate(lines, 1) if line.strip()), default=1)
        end = max(2, len(scope.source.line(last)) + 1)
        scope.problems.add(NothingObserved(Span(last, 1, last, end)))


def _mentioned(scope: Scope, left: syntax.Formula) -> set[str]:
    """The outputs that a left side is about, or the name that stands there instead."""
    if isinstance(left, syntax.Name):
        return {left.identifier.text}
    names = {each.identifier.text for each in nodes(left) if isinstance(each, syntax.Name)}
    return names & set(scope.names("output"))


def outputs_gone_wrong(
    scope: Scope, statements: tuple[syntax.Statement, ...], seen: list[Observation]
) -> frozenset[str]:
    """Outputs that a statement is about which failed, so that what they lack has been said."""
    spans = {each.span for each in seen}
    attempts = [each for each in statements if isinstance(each, syntax.ObservationStatement)]
    failed = [each for each in attempts if each.span not in spans]
    return frozenset(name for each in failed for part in each.left for name in _mentioned(scope, part))


def check_sizes(scope: Scope) -> None:
    """Each free dimension must occur in an input or output, or in a list of numbers whose length says it."""
    axes = [axis for table in (scope.inputs, scope.outputs) for each in table.values() for axis in each.axes]
    axes += [t.label for table in (scope.inputs, scope.outputs) for t in table.values() if t.label is not None]  # type: ignore[attr-defined]
    lists = [
        *((each.axes, each.values) for each in scope.consts.values()),
        *((each.axes, each.initial) for each in scope.params.values()),
    ]
    axes += [axis for own, values in lists if isinstance(values, tuple) for axis in own]
    known = {None, *(axis.dimension for axis in axes)}
    wanted = [(index.axis, index.span) for index in scope.indices.values()]
    wanted += [(axis, param.span) for param in scope.params.values() for axis in param.axes]
    loose = [(axis.dimension, span) for axis, span in wanted if axis.size is None and axis.dimension not in known]
    for dimension, span in dict(reversed(loose)).items():
        scope.problems.add(SizeUnknown(span, str(dimension)))


_QUANTITIES: Mapping[type[syntax.Node], Callable] = MappingProxyType(
    {
        syntax.IndexStatement: quantities.check_index,
        syntax.InputStatement: quantities.check_input,
        syntax.OutputStatement: quantities.check_output,
        syntax.ConstStatement: quantities.check_const,
        syntax.ParamStatement: quantities.check_param,
        syntax.ExternalStatement: check_external,
        syntax.ExternalLikelihoodStatement: check_likelihood,
        syntax.RowStatement: quantities.check_row,
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
    statements = without_others(scope, tree.statements) if tree.source.parts else tree.statements
    if any(each.subscripts or each.given for each in _of(statements, syntax.LatentStatement)):
        statements = layers_written_out(scope, statements)
    statements = register_names(scope, statements)
    _attempt_all(scope, statements, _QUANTITIES)
    if scope.labels:
        find_elements(scope, statements)
    for param in _of(statements, syntax.ParamStatement) if scope.labels else ():
        with problems.contained:
            check_levels(scope, param)
    if functions := _of(statements, syntax.FunctionStatement):
        check_functions(scope, functions, check_expression)
    _attempt_all(scope, statements, _FORMULAS)
    for param in [each for each in _of(statements, syntax.ParamStatement) if each.prior is not None]:
        with problems.contained:
            quantities.check_prior(scope, param)
    cases: dict[str, list[syntax.LetStatement]] = {}
    for let in _of(statements, syntax.LetStatement):
        cases.setdefault(let.name.text, []).append(let)
    for name, group in cases.items():
        scope.attempt(name, check_let, group)
    observations: list[Observation] = []
    for statement in _of(statements, syntax.ObservationStatement):
        with problems.contained:
            check_observation(scope, statement, observations)
    check_order(scope, observations)
    own = _first(scope, statements, syntax.InferStatement, "infer")
    infer = Infer() if own is None else check_infer(scope, own)
    titled = _first(scope, statements, syntax.ModelStatement, "model")
    if not tree.mistakes and not (library and is_library(tree)):
        check_observed(scope, statements)
        if any(each.guards for each in observations):
            check_elements(scope, observations, outputs_gone_wrong(scope, statements, observations))
        check_sizes(scope)
    mistakes = (*tree.mistakes, *problems.mistakes)
    if mistakes:
        raise ModelError(tree.source, in_order(mistakes))
    model, title = (titled.name.text, titled.title) if titled else ("model", "")
    tables = {key: MappingProxyType(dict(getattr(scope, key))) for key in _TABLES}
    return Declarations(
        name=model, title=title, source=scope.source, observations=tuple(observations), infer=infer, **tables
    )


def _attempt_all(
    scope: Scope, statements: tuple[syntax.Statement, ...], passes: Mapping[type[syntax.Node], Callable]
) -> None:
    for kind, check_one in passes.items():
        found: Sequence[syntax.Node] = _of(statements, kind)
        if kind is syntax.LatentStatement:
            found = in_layers(scope, _of(statements, syntax.LatentStatement))
        for declaration in found:
            name = declared_name(declaration)
            scope.attempt("" if name is None else name.text, check_one, declaration)


def _of(statements: Iterable[syntax.Statement], kind: type[Kind]) -> list[Kind]:
    return [each for each in statements if isinstance(each, kind)]


def _first(scope: Scope, statements: tuple[syntax.Statement, ...], kind: type[Kind], word: str) -> Kind | None:
    """The statement of a kind that a file has once, where it has one."""
    found = _of(statements, kind)
    for again in found[1:]:
        scope.problems.add(RepeatedOption(again.span, word, found[0].span.line))
    return found[0] if found else None


def compile_text(
    text: str,
    name: str = "<model>",
    path: str | os.PathLike[str] | None = None,
    reach: Reach | None = None,
    library: bool = False,
) -> Declarations:
    """The checked model of a `.gpm` text.

    Errors show `name`, or the file name of `path` when given (the file itself is not opened). The files it uses are
    looked for in `reach`, else beside `path`. A `library` may have definitions only. Raises ModelError, a GpdslError,
    with every mistake in its `diagnostics`.
    """
    shown = Path(path).name if path is not None else name
    # Some editors begin a file with a byte-order mark, which is no part of the model.
    source = Source(text.removeprefix("\ufeff"), shown)
    whole, mistakes = gather(source, reach if reach is not None else Reach.of(None, model=path))
    tree = parse(whole)
    # Nothing but the form of the rest is judged where a used file cannot be had: what its names mean is in that file.
    if mistakes or "use" in tree.lost:
        raise ModelError(whole, in_order((*mistakes, *tree.mistakes)))
    return check(tree, library)
