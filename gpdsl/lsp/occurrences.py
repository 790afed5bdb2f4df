"""Every place of a text where a name stands, and what it stands for there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

from gpdsl.language import syntax
from gpdsl.language.checker.check import STATEMENT_SORTS, declared_name
from gpdsl.language.parser import Piece
from gpdsl.language.source import Span
from gpdsl.language.vocabulary import BUILTINS, STATEMENTS

MODEL = ""
BUILTIN = "built in"
_WORD_OR_NOT = re.compile(r'"[^"\n]*"|#[^\n]*|([^\W\d]\w*)')


@dataclass(frozen=True)
class Occurrence:
    """A name at a place. `owner` is the definition whose own name it is, `MODEL` for the model's, or `BUILTIN`."""

    name: str
    span: Span
    owner: str = MODEL
    declares: bool = False


def occurrences(statements: Iterable[syntax.Statement], broken: Iterable[Piece]) -> tuple[Occurrence, ...]:
    """The names of the statements, and of the pieces that are no statements yet, in no particular order."""
    every = tuple(statements)
    return (*_Collector(every).run(), *(each for piece in broken for each in _words(piece)))


def own_names(statement: syntax.Statement) -> tuple[syntax.Identifier, ...]:
    """The names that a definition introduces for its own formula or signature."""
    match statement:
        case syntax.DensityStatement():
            return (statement.observed, *statement.arguments, *statement.parameters)
        case syntax.KernelStatement():
            return (*statement.levels, *statement.arguments, *statement.parameters)
        case syntax.FunctionStatement():
            return (*statement.arguments, *statement.parameters)
        case syntax.ExternalStatement():
            return tuple(each.name for each in statement.arguments)
        case syntax.ExternalLikelihoodStatement():
            return tuple(each.name for each in (*statement.observed, *statement.arguments))
    return ()


def _words(piece: Piece) -> Iterator[Occurrence]:
    """The names of a text that cannot be parsed, by their looks: after a statement word stands what it declares."""
    found = [match for match in _WORD_OR_NOT.finditer(piece.text) if match.group(1)]
    for number, match in enumerate(found):
        name, line = match.group(), piece.line + piece.text.count("\n", 0, match.start())
        column = match.start() - piece.text.rfind("\n", 0, match.start())
        declares = number == 1 and found[0].group() in STATEMENTS
        if name not in STATEMENTS and name not in BUILTINS:
            yield Occurrence(name, Span(line, column, line, column + len(name)), MODEL, declares)


class _Collector:
    """One walk over all statements."""

    def __init__(self, statements: tuple[syntax.Statement, ...]) -> None:
        self.statements = statements
        named = [(each, name) for each in statements if type(each) in STATEMENT_SORTS and (name := declared_name(each))]
        self.declared = {name.text for _, name in named}
        self.arguments = {name.text: {own.text for own in own_names(each)} for each, name in named}
        self.own = {name.text: self._own(each) for each, name in named}
        # By identity: the same word at another place introduces nothing.
        self.naming = {id(name) for _, name in named}
        self.introducing = {id(each) for statement in statements for each in own_names(statement)}
        self.found: list[Occurrence] = []

    def run(self) -> list[Occurrence]:
        for statement in self.statements:
            name = declared_name(statement)
            if not isinstance(statement, syntax.ModelStatement):
                self._walk(statement, name.text if name is not None else MODEL)
        return self.found

    def _own(self, statement: syntax.Statement) -> frozenset[str]:
        # A parameter after `;` stands for the quantity of the model of that name, when there is one.
        parameters = {each.text for each in getattr(statement, "parameters", ())}
        return frozenset(each.text for each in own_names(statement)) - (parameters & self.declared)

    def _walk(self, node: object, owner: str) -> None:
        """Collect the names below a node; `owner` is the name its statement declares."""
        match node:
            case tuple():
                for each in node:
                    self._walk(each, owner)
            case syntax.Identifier():
                self._name(node, owner)
            case syntax.Call():
                self._call(node, owner)
            case syntax.Type():
                bounds = () if node.word.text == "time" else node.bounds  # its unit is a word of the language
                self._walk((tuple(each.value for each in bounds), node.sizes), owner)
            case syntax.InferStatement():
                self._walk(tuple(each.subject for each in node.options), owner)
                self._walk(tuple(each.value for each in node.options if each.name.text == "fixed"), owner)
            case syntax.Declared() | syntax.Node():
                self._walk(tuple(getattr(node, each.name) for each in fields(node)), owner)

    def _name(self, name: syntax.Identifier, statement: str) -> None:
        if id(name) in self.naming:
            self.found.append(Occurrence(name.text, name.span, MODEL, declares=True))
            return
        owner = statement if name.text in self.own.get(statement, ()) else MODEL
        if owner == MODEL and name.text in BUILTINS and name.text not in self.declared:
            owner = BUILTIN
        self.found.append(Occurrence(name.text, name.span, owner, owner == statement and id(name) in self.introducing))

    def _call(self, call: syntax.Call, owner: str) -> None:
        function = call.function.text
        if function in BUILTINS:
            self.found.append(Occurrence(function, call.function.span, BUILTIN))
        else:
            self._name(call.function, owner)
        for argument in call.arguments:
            name = argument.name
            if name is not None and name.text in self.arguments.get(function, ()):
                self.found.append(
                    Occurrence(name.text, name.span, function if name.text in self.own[function] else MODEL)
                )
            self._walk(argument.value, owner)
