"""A text as the server knows it: its tree, its checked model when it has one, its mistakes and its names."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gpdsl.language import Declarations, Mistake, ModelError, Source, check, parse, syntax
from gpdsl.language.checker.check import STATEMENT_SORTS, declared_name
from gpdsl.language.checker.scope import SORTS, in_order
from gpdsl.language.parser import Piece, split
from gpdsl.language.source import Span
from gpdsl.language.used import Reach, gather
from gpdsl.language.vocabulary import STATEMENTS
from gpdsl.lsp.occurrences import Occurrence, occurrences
from gpdsl.symbolic.checking import all_warnings, check_formulas


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
