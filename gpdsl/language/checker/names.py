"""Register every declared name before anything is checked, so that declarations may stand in any order."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gpdsl.language import syntax
from gpdsl.language.checker.scope import Scope
from gpdsl.language.errors.limits import NameTooLong
from gpdsl.language.errors.names import DeclaredTwice, ShadowsBuiltin
from gpdsl.language.errors.syntax import ReservedWord
from gpdsl.language.limits import MAX_NAME
from gpdsl.language.vocabulary import BUILTINS, SHADOWABLE, STATEMENTS

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
        with scope.problems.contained():
            _check_name(scope, name, sort)
            scope.sorts[name.text] = sort
            scope.places.setdefault(name.text, name.span)
            kept.append(statement)
    return tuple(kept)


def declared_name(statement: syntax.Node) -> syntax.Identifier | None:
    """The name a statement declares."""
    declared = getattr(statement, "declared", None)
    return declared.name if declared is not None else getattr(statement, "name", None)


def _check_name(scope: Scope, name: syntax.Identifier, sort: str) -> None:
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
