"""What a used file may say: definitions. Everything else belongs to the model that uses it."""

from __future__ import annotations

from gpdsl.language import syntax
from gpdsl.language.checker.names import declared_name
from gpdsl.language.checker.scope import Scope
from gpdsl.language.errors.used import NotADefinition

DEFINITIONS = (syntax.FunctionStatement, syntax.KernelStatement, syntax.DensityStatement, syntax.UseStatement)


def is_library(tree: syntax.SyntaxTree) -> bool:
    """Whether a file is one to be used: it holds definitions, and nothing that belongs to a model."""
    kinds = {type(each) for each in tree.statements} - {syntax.ModelStatement}
    return bool(kinds) and kinds <= set(DEFINITIONS)


def without_others(scope: Scope, statements: tuple[syntax.Statement, ...]) -> tuple[syntax.Statement, ...]:
    """The statements of the model and the definitions of the files it uses; anything else there is reported."""
    if not scope.source.parts:
        return statements
    kept: list[syntax.Statement] = []
    for each in statements:
        if scope.source.is_own(each.span) or isinstance(each, DEFINITIONS):
            kept.append(each)
        elif not isinstance(each, syntax.ModelStatement):
            scope.problems.add(NotADefinition(each.span, scope.source.name))
            name = declared_name(each)
            scope.lost.update([] if name is None else [name.text])
    return tuple(kept)
