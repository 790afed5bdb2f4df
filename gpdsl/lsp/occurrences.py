"""A text as the server knows it: its tree, its checked model, its mistakes, and every place where a name stands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property

from gpdsl.errors import GpdslError
from gpdsl.language import Declarations, Mistake, ModelError, Source, check, parse, syntax
from gpdsl.language.checker.check import STATEMENT_SORTS, declared_name
from gpdsl.language.checker.scope import SORTS
from gpdsl.language.errors.limits import in_order
from gpdsl.language.highlight import CLAUSE_WORDS, LOGICAL_WORDS
from gpdsl.language.parser import Piece, split
from gpdsl.language.used import Reach, gather
from gpdsl.language.vocabulary import BUILTINS, MAX_NAME, STATEMENTS, Span
from gpdsl.symbolic.checking import all_warnings, check_formulas

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


# A text as the server knows it: its tree, its checked model when it has one, its mistakes and its names.


@dataclass(frozen=True)
class Document:
    """`mistakes` are errors, or the warnings when there are none.

    `declarations` is the newest model that passed the checker, which may be older than the text.
    """

    source: Source
    missing: tuple[Mistake, ...]
    tree: syntax.SyntaxTree
    mistakes: tuple[Mistake, ...]
    declarations: Declarations | None
    occurrences: tuple[Occurrence, ...]
    broken: tuple[Piece, ...]

    def at(self, line: int, column: int) -> Occurrence | None:
        """The name at a place, or just before it."""
        for each in self.occurrences:
            if each.span.line == line and each.span.column <= column <= each.span.end_column:
                return each
        return None

    def same(self, place: Occurrence) -> list[Occurrence]:
        """All places where the same thing is named, from top to bottom."""
        found = {each for each in self.occurrences if (each.name, each.owner) == (place.name, place.owner)}
        return sorted(found, key=lambda each: (each.span.line, each.span.column))

    def statements_of(self, name: str) -> list[syntax.Statement]:
        """The statements that declare a name: several for a `let` by cases."""
        return self.declaring.get(name, [])

    @cached_property
    def declaring(self) -> dict[str, list[syntax.Statement]]:
        """The statements of every name that is declared."""
        found: dict[str, list[syntax.Statement]] = {}
        for each in self.tree.statements:
            name = declared_name(each) if type(each) in STATEMENT_SORTS else None
            if name is not None:
                found.setdefault(name.text, []).append(each)
        return found

    def sorts(self) -> dict[str, str]:
        """Every name of the model and its sort, those of statements that are not finished included."""
        broken = {words[1]: words[0] for each in self.broken if len(words := each.words()) == 2}
        unfinished = {name: sort for name, sort in broken.items() if sort in SORTS and name not in STATEMENTS}
        return unfinished | {name: STATEMENT_SORTS[type(its[-1])] for name, its in self.declaring.items()}

    def text_at(self, span: Span) -> str:
        """The text of a span, its lines joined."""
        lines = [self.source.line(number) for number in range(span.line, span.end_line + 1)]
        lines[-1] = lines[-1][: span.end_column - 1]
        return " ".join([lines[0][span.column - 1 :], *(each.strip() for each in lines[1:])])


def gathered(text: str, name: str, reach: Reach) -> tuple[Source, tuple[Mistake, ...]]:
    """A text with those of the files it uses, and the `use` lines that bring none."""
    # A blank in place of the byte-order mark: the columns of the editor stay right.
    return gather(Source(text.replace("\ufeff", " ", 1) if text.startswith("\ufeff") else text, name), reach)


def read(source: Source, missing: tuple[Mistake, ...] = (), before: Document | None = None) -> Document:
    """The document of a text; `before` is that of an earlier state. Never raises.

    Where a used file is `missing`, nothing but the form of the rest can be judged.
    """
    tree = parse(source)
    declarations = before.declarations if before is not None else None
    mistakes: tuple[Mistake, ...] = ()
    try:
        if missing:
            raise ModelError(source, in_order((*missing, *tree.mistakes)))
        declarations = check(tree, library=True)
        check_formulas(declarations)
        mistakes = tuple(all_warnings(declarations))
    except ModelError as error:
        mistakes = error.diagnostics
    starts = {each.span.line for each in tree.statements}
    pieces = (
        each for each in split(source)[0] if not starts & set(range(each.line, each.line + each.text.count("\n") + 1))
    )
    broken = tuple(pieces)
    return Document(source, missing, tree, mistakes, declarations, occurrences(tree.statements, broken), broken)


# Where a name is declared and used, whether it can be renamed, and the outline of a text.

_NAME = re.compile(r"[^\W\d]\w*")
_RESERVED = frozenset({*STATEMENTS, *CLAUSE_WORDS, *LOGICAL_WORDS})


def definition(document: Document, line: int, column: int) -> list[Span]:
    """Where the name at a place is declared; several places for a `let` by cases."""
    place = document.at(line, column)
    if place is None:
        # The beginning of the file whose path in a `use` line stands at a place.
        for part in document.source.parts:
            if part.used is not None and part.used.line == line and part.used.column <= column <= part.used.end_column:
                return [Span(part.line, 1, part.line, 1)]
        return []
    return [each.span for each in document.same(place) if each.declares]


def references(document: Document, line: int, column: int, declarations: bool = True) -> list[Span]:
    """Everywhere the thing named at a place is named."""
    place = document.at(line, column)
    same = document.same(place) if place is not None else []
    return [each.span for each in same if declarations or not each.declares]


def renameable(document: Document, line: int, column: int) -> Occurrence:
    """The name at a place. Raises GpdslError when there is none, or when it is a word of the language."""
    place = document.at(line, column)
    if place is None:
        raise GpdslError("there is no name here to rename")
    if place.owner == BUILTIN:
        raise GpdslError(f"`{place.name}` is a {BUILTINS[place.name]} of the language and cannot be renamed")
    for each in document.same(place):
        if not document.source.is_own(each.span):
            name = document.source.part(each.span.line).name
            raise GpdslError(f"`{place.name}` also stands in {name}, which other models may use: rename it by hand")
    return place


def rename(document: Document, line: int, column: int, new: str) -> list[Span]:
    """The places to rewrite so that the thing named here is called `new`.

    Raises GpdslError for a name that the file cannot declare or that already means something else in it.
    """
    place = renameable(document, line, column)
    if not _NAME.fullmatch(new) or len(new) > MAX_NAME:
        raise GpdslError(f"`{new[:MAX_NAME]}` is not a name: letters, digits and _, a letter first")
    if new in _RESERVED:
        raise GpdslError(f"`{new}` is a word of the language and cannot be a name")
    if new in BUILTINS:
        raise GpdslError(f"`{new}` is a {BUILTINS[new]} of the language and cannot be a name")
    if new != place.name:
        for each in document.occurrences:
            if each.name == new:
                raise GpdslError(
                    f"`{new}` already stands for something on line {document.source.seen_from(each.span.line, 1)}"
                )
    return [each.span for each in document.same(place)]
